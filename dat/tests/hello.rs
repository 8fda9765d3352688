//! The example does what it says, as docs/tutorial.md has it.

use std::path::Path;
use std::process::Command;

#[test]
fn hello_sends_writes_and_reads() {
    // Cargo builds examples for tests, beside them.
    let here = std::env::current_exe().expect("this program");
    let hello = here.ancestors().nth(2).expect("target/debug").join("examples/hello");
    let output = Command::new(hello).env("DAT_OVERRIDE", "/dev/null").output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/hello/rust.txt");
    let said = std::fs::read_to_string(said).expect("it is there");
    assert_eq!(String::from_utf8_lossy(&output.stdout), said);
}
