//! Tests of the page of `dat bench --html`, as a browser renders it.

use std::collections::HashMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::process::Command;

const CHROMIUM: &str = "/usr/bin/chromium";

/// The colours `--a0` and `--a1` of the page's style: the lines of the first and of the second
/// adapter.
const LINE_COLOURS: [[u8; 3]; 2] = [[0x1f, 0x6f, 0xb2], [0xd2, 0x69, 0x1e]];

#[test]
fn a_browser_renders_the_plots_without_errors() {
    if !Path::new(CHROMIUM).exists() {
        println!("SKIP: no {CHROMIUM} (package chromium)");
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let (page, picture) = (dir.path().join("page.html"), dir.path().join("page.png"));
    let output = Command::new(env!("CARGO_BIN_EXE_dat"))
        .args([
            "bench",
            "--rounds",
            "1",
            "--sizes",
            "64,4096",
            "--operations",
            "send",
            "--vs",
            "softroce",
            "--html",
        ])
        .arg(&page)
        .env("DAT_OVERRIDE", "/dev/null")
        .output()
        .expect("the program starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let output = Command::new(CHROMIUM)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args([
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--disable-dev-shm-usage",
        ])
        .args(["--enable-logging=stderr", "--force-color-profile=srgb", "--window-size=1000,1000"])
        .arg(format!("--user-data-dir={}", dir.path().join("profile").display()))
        .arg(format!("--screenshot={}", picture.display()))
        .arg(format!("file://{}", page.display()))
        .output()
        .expect("the program starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    // The browser's console contains the errors of the page, and the resources that could not be
    // loaded.
    assert!(!said.contains("CONSOLE"), "{said}");

    let colours = colours(&picture);
    for line in LINE_COLOURS {
        // There are at least four plots, each with a line and its key. A page without them has no
        // pixels of this colour.
        assert!(
            colours.get(&line).is_some_and(|&pixels| pixels > 500),
            "{line:?}: {:?}",
            colours.get(&line)
        );
    }
}

/// Counts the pixels of each colour.
fn colours(picture: &Path) -> HashMap<[u8; 3], usize> {
    let file = BufReader::new(File::open(picture).expect("a picture"));
    let mut reader = png::Decoder::new(file).read_info().expect("a PNG file");
    let mut pixels = vec![0; reader.output_buffer_size().expect("the picture fits in memory")];
    let frame = reader.next_frame(&mut pixels).expect("pixels");
    let samples = frame.color_type.samples();
    assert!(frame.bit_depth == png::BitDepth::Eight && samples >= 3, "{frame:?}");
    let mut colours = HashMap::new();
    for pixel in pixels[..frame.buffer_size()].chunks_exact(samples) {
        *colours.entry([pixel[0], pixel[1], pixel[2]]).or_default() += 1;
    }
    colours
}
