//! Runs the examples, each over tcp-emu and softroce.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

const ADAPTERS: [&str; 2] = ["tcp-emu", "softroce"];

/// A server that is killed when this value is dropped.
struct Server {
    process: Child,
    output: BufReader<ChildStdout>,
    /// The first line of its output.
    first_line: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn example(name: &str, arguments: &[&str]) -> Command {
    // Cargo builds the examples next to the tests.
    let here = std::env::current_exe().expect("this program");
    let target: PathBuf = here.ancestors().nth(2).expect("target/debug").into();
    let mut example = Command::new(target.join("examples").join(name));
    example.args(arguments).env("DAT_OVERRIDE", "/dev/null");
    example
}

impl Server {
    /// Starts a server, which is ready when it has printed its first line.
    fn start(name: &str, arguments: &[&str]) -> Self {
        let mut command = example(name, arguments);
        let mut process = command.stdout(Stdio::piped()).spawn().expect("the program starts");
        let mut output = BufReader::new(process.stdout.take().expect("the output is piped"));
        let mut first_line = String::new();
        output.read_line(&mut first_line).expect("a line");
        Server { process, output, first_line }
    }

    /// The connection qualifier that the server has printed.
    fn qualifier(&self) -> &str {
        self.first_line.trim_end().strip_prefix("listening at ").expect("a qualifier")
    }

    /// Waits for the end of the server and returns its output after the first line.
    fn finish(mut self) -> String {
        let mut text = String::new();
        self.output.read_to_string(&mut text).expect("text");
        assert!(self.process.wait().expect("the program ends").success(), "{text}");
        text
    }
}

/// Runs a client to its end and returns its output.
fn run(name: &str, arguments: &[&str]) -> String {
    let output = example(name, arguments).output().expect("the program starts");
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// The output that docs/tutorial.md shows.
fn expected_output(side: &str) -> String {
    let file = format!("../examples/hello/rust-{side}.txt");
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file))
        .expect("the file exists")
}

#[test]
fn hello_sends_writes_and_reads() {
    for adapter in ADAPTERS {
        let server = Server::start("hello", &["server", adapter]);
        assert_eq!(run("hello", &["client", "127.0.0.1", adapter]), expected_output("client"));
        assert_eq!(server.first_line.clone() + &server.finish(), expected_output("server"));
    }
}

#[test]
fn ping_pong_returns_each_message() {
    for adapter in ADAPTERS {
        let server = Server::start("ping_pong", &["server", adapter]);
        let text = run("ping_pong", &["client", "127.0.0.1", server.qualifier(), adapter]);
        assert!(text.starts_with("1000 round trips of 64 bytes, "), "{text}");
        assert_eq!(server.finish(), "1000 messages returned\n");
    }
}

#[test]
fn key_value_stores_and_reads() {
    for adapter in ADAPTERS {
        let server = Server::start("key_value", &["server", adapter]);
        let at = ["127.0.0.1", server.qualifier()];
        let put = |key, value| run("key_value", &["put", at[0], at[1], key, value, adapter]);
        let get = |key| run("key_value", &["get", at[0], at[1], key, adapter]);
        assert_eq!(get("colour"), "colour is not in the store\n");
        assert_eq!(put("colour", "green"), "colour is now green\n");
        assert_eq!(put("shape", "round"), "shape is now round\n");
        assert_eq!(put("colour", "blue"), "colour is now blue\n");
        assert_eq!(
            (get("colour"), get("shape")),
            ("colour is blue\n".into(), "shape is round\n".into())
        );
    }
}

#[test]
fn send_file_sends_every_octet() {
    let dir = std::env::temp_dir().join(format!("opendat-send-file-{}", std::process::id()));
    std::fs::create_dir(&dir).expect("a directory");
    let [from, to] = ["from", "to"].map(|name| dir.join(name).display().to_string());
    for adapter in ADAPTERS {
        for size in [0, 1, 3_000_001_usize] {
            let content: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
            std::fs::write(&from, &content).expect("the file can be written");
            let server = Server::start("send_file", &["receive", &to, adapter]);
            let qualifier = server.qualifier();
            let text = run("send_file", &["send", &from, "127.0.0.1", qualifier, adapter]);
            let progress = "10 % 20 % 30 % 40 % 50 % 60 % 70 % 80 % 90 % 100 % ";
            let progress = if size == 0 { "" } else { progress };
            assert_eq!(text, format!("{progress}\n{size} bytes sent\n"));
            assert_eq!(server.finish(), format!("{progress}\n{size} bytes received\n"));
            assert!(std::fs::read(&to).expect("the file exists") == content, "{size} bytes");
        }
    }
    std::fs::remove_dir_all(&dir).expect("the directory can be removed");
}

#[test]
fn srq_server_answers_all_clients() {
    for adapter in ADAPTERS {
        let server = Server::start("srq_server", &["server", adapter]);
        let text = run("srq_server", &["clients", "127.0.0.1", server.qualifier(), adapter]);
        assert_eq!(text, "100 answers for 10 clients\n");
    }
}

#[test]
fn custom_provider_transfers_over_its_own_wire() {
    let text = run("custom_provider", &[]);
    assert_eq!(text, "provider: loop\nreceive 1: done, 5 bytes\nmemory: hello\n");
}
