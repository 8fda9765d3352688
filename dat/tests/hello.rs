//! Tests that the example prints the output that docs/tutorial.md shows.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A child process that is killed when this value is dropped.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn hello() -> Command {
    // Cargo builds the examples next to the tests.
    let here = std::env::current_exe().expect("this program");
    let target: PathBuf = here.ancestors().nth(2).expect("target/debug").into();
    let mut hello = Command::new(target.join("examples/hello"));
    hello.env("DAT_OVERRIDE", "/dev/null");
    hello
}

fn expected_output(side: &str) -> String {
    let file = format!("../examples/hello/rust-{side}.txt");
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file))
        .expect("the file exists")
}

#[test]
fn hello_sends_writes_and_reads() {
    let mut server = KillOnDrop(
        hello().arg("server").stdout(Stdio::piped()).spawn().expect("the program starts"),
    );
    let mut output = BufReader::new(server.0.stdout.take().expect("the output is piped"));
    let mut output_text = String::new();
    output.read_line(&mut output_text).expect("a line");
    let client = hello().args(["client", "127.0.0.1"]).output().expect("the program starts");
    assert!(client.status.success(), "{}", String::from_utf8_lossy(&client.stderr));
    assert_eq!(String::from_utf8_lossy(&client.stdout), expected_output("client"));
    output.read_to_string(&mut output_text).expect("text");
    assert_eq!(output_text, expected_output("server"));
    assert!(server.0.wait().expect("the program ends").success());
}
