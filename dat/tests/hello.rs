//! The example does what it says, as docs/tutorial.md has it.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Ends with this.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn hello() -> Command {
    // Cargo builds examples for tests, beside them.
    let here = std::env::current_exe().expect("this program");
    let target: PathBuf = here.ancestors().nth(2).expect("target/debug").into();
    let mut hello = Command::new(target.join("examples/hello"));
    hello.env("DAT_OVERRIDE", "/dev/null");
    hello
}

fn said_by(side: &str) -> String {
    let file = format!("../examples/hello/rust-{side}.txt");
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).expect("it is there")
}

#[test]
fn hello_sends_writes_and_reads() {
    let mut server =
        Killed(hello().arg("server").stdout(Stdio::piped()).spawn().expect("it starts"));
    let mut output = BufReader::new(server.0.stdout.take().expect("piped"));
    let mut said = String::new();
    output.read_line(&mut said).expect("a line");
    let client = hello().args(["client", "127.0.0.1"]).output().expect("it starts");
    assert!(client.status.success(), "{}", String::from_utf8_lossy(&client.stderr));
    assert_eq!(String::from_utf8_lossy(&client.stdout), said_by("client"));
    output.read_to_string(&mut said).expect("text");
    assert_eq!(said, said_by("server"));
    assert!(server.0.wait().expect("it ends").success());
}
