//! What docs/ says is so: its programs are compiled and run, what it prints of them is what they print, its links lead somewhere.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use opendat_tests::{Dist, Skip, find_program, skip};

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace")
}

fn read(path: impl AsRef<Path>) -> String {
    let path = workspace().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The pages.
fn pages() -> Vec<PathBuf> {
    let entries = fs::read_dir(workspace().join("docs")).expect("docs");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect()
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn text(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// docs/tutorial.md, "In C": compiled as it says there, run over both adapters that need nothing.
#[test]
fn the_program_in_c_of_the_tutorial_prints_what_it_says() {
    let run = || -> Result<(), Skip> {
        let (dist, cc) = (Dist::locate()?, find_program("cc", "gcc")?);
        let pkg_config = find_program("pkg-config", "pkg-config")?;
        let dir = tempfile::tempdir().expect("a directory");
        let hello = dir.path().join("hello");
        let flags = Command::new(pkg_config)
            .args(["--cflags", "--libs", "dat2"])
            .env("PKG_CONFIG_PATH", dist.lib().join("pkgconfig"))
            .output();
        let flags = text(&flags.expect("it starts"));
        let source = workspace().join("examples/hello/hello.c");
        let compiled = Command::new(cc)
            .args(["-Wall", "-Wextra", "-Werror", "-o"])
            .args([&hello, &source])
            .args(flags.split_whitespace())
            .output();
        text(&compiled.expect("it starts"));
        for ia in ["tcp-emu", "softroce"] {
            let program = |arguments: &[&str]| {
                let mut command = Command::new(&hello);
                command
                    .args(arguments)
                    .arg(ia)
                    .env("LD_LIBRARY_PATH", dist.lib())
                    .env("DAT_OVERRIDE", "/dev/null");
                command
            };
            let mut server = program(&["server"]);
            let mut server = Killed(server.stdout(Stdio::piped()).spawn().expect("it starts"));
            let mut said = BufReader::new(server.0.stdout.take().expect("piped"));
            let mut line = String::new();
            said.read_line(&mut line).expect("a line");
            let client = program(&["client", "127.0.0.1"]).output().expect("it starts");
            assert_eq!(text(&client), read("examples/hello/client.txt"), "{ia}");
            said.read_to_string(&mut line).expect("text");
            assert_eq!(line, read("examples/hello/server.txt"), "{ia}");
        }
        Ok(())
    };
    if let Err(reason) = run() {
        skip(&reason);
    }
}

#[test]
fn the_summary_has_every_page() {
    let summary = read("docs/SUMMARY.md");
    let named: BTreeSet<&str> =
        summary.split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect();
    let pages = pages();
    let there: BTreeSet<&str> = pages
        .iter()
        .filter_map(|path| path.file_name()?.to_str())
        .filter(|name| *name != "SUMMARY.md")
        .collect();
    assert_eq!(named, there);
}

/// Relative ones, and what pages include.
#[test]
fn links_and_inclusions_lead_somewhere() {
    let mut checked = 0;
    for page in pages() {
        let (text, dir) = (read(&page), page.parent().expect("a directory").to_owned());
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = link.split('#').next().unwrap_or(link);
            if file.is_empty() || file.contains("://") || file.contains(char::is_whitespace) {
                continue;
            }
            assert!(dir.join(file).exists(), "{}: {link}", page.display());
            checked += 1;
        }
        for inclusion in text.split("{{#include ").skip(1).filter_map(|rest| rest.split("}}").next()) {
            let (file, anchor) = inclusion.split_once(':').unwrap_or((inclusion, ""));
            let text = read(dir.join(file));
            for mark in ["ANCHOR: ", "ANCHOR_END: "] {
                let mark = format!("{mark}{anchor}");
                let found = text.lines().any(|line| line.trim_end_matches(" */").ends_with(&mark));
                assert!(anchor.is_empty() || found, "{}: {inclusion}", page.display());
            }
            checked += 1;
        }
    }
    assert!(checked > 30, "{checked} links were found");
}
