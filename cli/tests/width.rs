//! What the program prints fits a terminal: no line is wider than 80 columns.

use std::fs;
use std::process::{Command, Output};

fn dat(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dat"));
    command.args(arguments).env("DAT_OVERRIDE", "/dev/null").env_remove("OPENDAT_PARAMS");
    command.output().expect("the program starts")
}

/// Returns the text that the program prints, after checking the width of its lines.
fn narrow(arguments: &[&str]) -> String {
    let output = dat(arguments);
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8(text).expect("the output is UTF-8");
    assert_narrow(&text);
    text
}

/// A word is never cut. A path of this host may be wider than a terminal, and then it stands alone
/// behind the indent of its line.
fn assert_narrow(text: &str) {
    let is_wide = |line: &&str| line.chars().count() > 80 && line.trim_start().contains(' ');
    let wide: Vec<&str> = text.lines().filter(is_wide).collect();
    assert!(wide.is_empty(), "{wide:#?}");
}

#[test]
fn help_fits_a_terminal_and_keeps_the_layout_of_its_table() {
    let help = narrow(&["--help"]);
    let commands = help.split_once("Commands:\n").expect("a list of commands").1;
    let commands = commands.split("\n\n").next().expect("the list ends");
    // A line of the list that continues the description above it begins with more blanks.
    let names = commands.lines().filter_map(|line| line.strip_prefix("  "));
    let names: Vec<&str> = names
        .filter(|line| !line.starts_with(' '))
        .map(|line| line.split(' ').next().expect("a word"))
        .collect();
    assert!(names.contains(&"bench") && names.contains(&"ping"), "{names:?}");
    for name in names {
        narrow(&[name, "--help"]);
    }
    let table = help.split_once("Environment:\n").expect("a table").1;
    let is_row = |line: &str| line.starts_with("  ") && !line.starts_with("     ");
    let continues = |line: &str| line.starts_with(&" ".repeat(24));
    assert!(table.lines().all(|line| is_row(line) || continues(line)), "{table}");
}

#[test]
fn attributes_and_findings_about_the_host_fit_a_terminal() {
    narrow(&["list"]);
    narrow(&["doctor"]);
    assert!(narrow(&["query", "tcp-emu"]).contains("EVD_THRESHOLD"));
    assert!(narrow(&["query", "softroce"]).contains("EVD_THRESHOLD"));
}

#[test]
fn explanations_of_the_conformance_suite_fit_a_terminal() {
    assert!(narrow(&["conformance", "--explain"]).contains("Not tested:\n"));
    assert!(
        narrow(&["conformance", "--returns"]).contains("DAT_CONN_QUAL_UNAVAILABLE: not tested: ")
    );
}

#[test]
fn findings_about_a_file_fit_a_terminal_and_show_lines_that_end_with_crlf() {
    let dir = tempfile::tempdir().expect("a directory");
    let long =
        format!("x u2.0 nonthreadsafe default x.so v.1.0 \"{}\" \"\" more\r\n", "y".repeat(200));
    fs::write(
        dir.path().join("dat.conf"),
        format!("bad u2.0 maybe default x.so v.1.0 \"\" \"\"\r\n{long}"),
    )
    .expect("a file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_dat"));
    let output = command.args(["check", "dat.conf"]).current_dir(dir.path()).output();
    let text = String::from_utf8(output.expect("the program starts").stdout).expect("UTF-8");
    assert!(text.contains("\n    bad u2.0 maybe default x.so v.1.0 \"\" \"\"\n"), "{text}");
    assert!(!text.contains('\u{fffd}'), "{text}");
    assert_narrow(&text);
}

#[test]
fn shells_complete_file_names_only_for_files() {
    let script = String::from_utf8(dat(&["completions", "bash"]).stdout).expect("UTF-8");
    for (option, is_file) in [("--adapter)", false), ("--sizes)", false), ("--html)", true)] {
        let after = script.split_once(option).unwrap_or_else(|| panic!("{option}: {script}")).1;
        let case = after.split(";;").next().expect("a case");
        assert_eq!(case.contains("compgen -f"), is_file, "{option}: {case}");
    }
}
