//! Tests of the manual pages: each has all sections, and its examples run as they are printed.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const DAT: &str = env!("CARGO_BIN_EXE_dat");

/// The port in the examples. The tests use free ports instead.
const PORT: &str = "7480";

/// Returns the pages of section 1: the name of each command, and the text of its page.
fn pages() -> Vec<(String, String)> {
    let dir = tempfile::tempdir().expect("a directory");
    let written = Command::new(DAT).arg("manual").arg(dir.path()).status();
    assert!(written.expect("the program starts").success());
    let files = fs::read_dir(dir.path()).expect("the pages");
    let page = |path: &Path| {
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        (name, fs::read_to_string(path).expect("text"))
    };
    let mut pages: Vec<_> = files.map(|file| page(&file.expect("a page").path())).collect();
    pages.sort();
    assert!(pages.len() > 14, "only {} pages", pages.len());
    pages
}

/// Returns a section of a page, without its heading.
fn section<'p>(page: &'p str, heading: &str) -> &'p str {
    let (_, rest) = page
        .split_once(&format!("\n.SH {heading}\n"))
        .unwrap_or_else(|| panic!("no section {heading}: {page}"));
    rest.split("\n.SH ").next().unwrap_or(rest)
}

/// Returns the text that a reader sees in place of roff's escapes.
fn plain(text: &str) -> String {
    let text =
        text.replace("\\ ", " ").replace("\\-", "-").replace("\\(aq", "'").replace("\\e", "\\");
    text.replace("\\fB", "").replace("\\fI", "").replace("\\fR", "")
}

#[test]
fn the_synopsis_names_every_option_with_its_values() {
    for (name, page) in pages() {
        let synopsis = plain(section(&page, "SYNOPSIS"));
        // The line of an option is `--size <SIZE> [default: 64]`.
        let options = plain(section(&page, "OPTIONS"));
        let options = options.lines().filter(|line| line.starts_with('-'));
        let mut seen = 0;
        for option in options {
            let names = option.split(" [").next().unwrap_or(option);
            let names = names.replace(", ", "|").replace(['<', '>'], "");
            assert!(synopsis.contains(&format!("[{names}]")), "{name}: no {names}: {synopsis}");
            seen += 1;
        }
        assert!(seen > 0, "{name} has no options: {page}");
    }
}

/// The lines that roff does not fill fit a terminal.
#[test]
fn lines_that_are_not_filled_fit_a_terminal() {
    for (name, page) in pages() {
        let blocks = page.split("\n.nf\n").skip(1);
        let lines = blocks.flat_map(|block| block.split("\n.fi").next().unwrap_or(block).lines());
        let wide: Vec<String> = lines
            .map(|line| plain(line.trim_start_matches("\\&")))
            // Examples are indented by two columns.
            .filter(|line| line.chars().count() > if line.starts_with("$ ") { 78 } else { 80 })
            .collect();
        assert!(page.contains("\n.nf\n") && wide.is_empty(), "{name}: {wide:#?}");
    }
}

/// man(1) shows the third argument of a title as the date. An empty one must be quoted.
#[test]
fn titles_have_an_empty_date() {
    for (name, page) in pages() {
        let title = page.lines().find(|line| line.starts_with(".TH ")).expect("a title");
        assert!(title.contains(" 1 \"\" \"OpenDAT "), "{name}: {title}");
    }
}

#[test]
fn every_page_says_what_its_exit_status_means() {
    for (name, page) in pages() {
        let text = section(&page, "EXIT STATUS");
        assert!(text.contains('1') && text.trim().ends_with('.'), "{name}: {text}");
    }
}

#[test]
fn the_examples_run_as_they_are_printed() {
    for (name, page) in pages() {
        let text = plain(section(&page, "EXAMPLES"));
        let lines: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("$ ")).collect();
        assert!(!lines.is_empty(), "{name} has no example: {page}");
        run(&name, &lines);
    }
}

/// The examples of dat.conf(5) are lines of a file, in which `dat check` finds no error.
#[test]
fn the_examples_of_dat_conf_are_valid_lines() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/man/dat.conf.5");
    let page = fs::read_to_string(page).expect("the page").replace(".Sh ", ".SH ");
    let examples = section(&page, "EXAMPLES").replace("\\(dq", "\"");
    let lines = examples.lines().filter(|line| line.contains('"'));
    let lines: String = lines.map(|line| format!("{line}\n")).collect();
    assert!(lines.lines().count() >= 3, "{examples}");
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("dat.conf");
    fs::write(&file, &lines).expect("a file");
    let output = Command::new(DAT).arg("check").arg(&file).output().expect("the program starts");
    assert!(output.status.success(), "{lines}{}", String::from_utf8_lossy(&output.stdout));
}

/// Commands that fail unless the examples of a page have done what they promise.
fn effects(name: &str) -> &'static str {
    match name {
        "dat-register" => "test \"$(grep -c '^tcp-lo ' my.conf)\" = 1\ngrep -q 'crc=on' my.conf\n",
        "dat-unregister" => "test \"$(grep -c '^tcp-lo ' my.conf)\" = 0\n",
        "dat-convert" => "grep -q '^lab ' my-copy.conf\n",
        "dat-bench" => "grep -q '<svg' a.html\n",
        "dat-conformance" => "grep -q '<testcase' result.xml\n",
        "dat-trace" => "grep -q '\"established\"' trace.json\n",
        "dat-completions" => "grep -q complete ~/.local/share/bash-completion/completions/dat\n",
        _ => "",
    }
}

/// What the program `server` of the examples prints when it has opened an adapter.
const READY: &str = "the adapter is open";

#[test]
#[ignore = "not a test: the program `server` of the examples"]
fn server() {
    let _adapter = dat::Adapter::open("tcp-emu").expect("an adapter");
    println!("{READY}");
    // The shell ends this process after the example.
    std::thread::park_timeout(Duration::from_secs(600));
}

/// Types the lines in a shell, in a directory with a file my.conf. Every line must succeed, and
/// must have its effect.
fn run(name: &str, lines: &[&str]) {
    let dir = tempfile::tempdir().expect("a directory");
    let entry = "lab u2.0 nonthreadsafe default libdat_tcp_emu.so opendat.0.1 \"lo\" \"\"\n";
    fs::write(dir.path().join("my.conf"), entry).expect("a file");
    let own = std::env::current_exe().expect("a path");
    let server =
        format!("#!/bin/sh\nexec '{}' --ignored --exact server --nocapture\n", own.display());
    fs::write(dir.path().join("server"), server).expect("a file");
    fs::set_permissions(dir.path().join("server"), fs::Permissions::from_mode(0o755))
        .expect("permissions");
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = free.local_addr().expect("bound").port().to_string();
    drop(free);
    let mut script =
        "server=\ntrap 'if [ -n \"$server\" ]; then kill $server; fi' EXIT\n".to_owned();
    for line in lines {
        let line = line.replace(PORT, &port);
        script += &match line.strip_suffix(" &") {
            // A server says that it is ready. `$!` is its process, as after `&`.
            Some(server) => format!(
                "exec 3< <(exec env {server})\nserver=$!\nwhile read -r -u 3 line; do\n\
                 case $line in *serve*|*'{READY}'*) break;; esac\ndone\n"
            ),
            None => format!("{line}\n"),
        };
    }
    script += effects(name);
    let programs = Path::new(DAT).parent().expect("a directory").display();
    let mut shell = Command::new("bash");
    let heeded =
        |name: &str| ["DAT_", "DAPL_", "OPENDAT_"].iter().any(|prefix| name.starts_with(prefix));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(heeded)) {
        shell.env_remove(name);
    }
    let path = format!("{programs}:{}", std::env::var("PATH").unwrap_or_default());
    let output = shell
        .args(["-e", "-o", "pipefail", "-c", &script])
        .current_dir(dir.path())
        .env("PATH", path)
        .env("HOME", dir.path())
        .env("DAT_OVERRIDE", "/dev/null")
        .stdin(Stdio::null())
        .output()
        .expect("bash starts");
    let (said, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{name}: {}\n{script}\n{said}{errors}", output.status);
}
