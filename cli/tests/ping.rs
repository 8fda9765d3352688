//! `dat ping`, and `dat serve` on the other side of it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

fn dat(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dat"));
    command.args(arguments).env("DAT_OVERRIDE", "/dev/null").env_remove("DAT_DBG_TYPE").stdin(Stdio::null());
    command
}

fn stdout(output: &Output) -> String {
    let text = String::from_utf8(output.stdout.clone()).expect("UTF-8");
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// `dat serve` on a port of its own; ends with this.
struct Server(Child, SocketAddr);

impl Server {
    fn start() -> Server {
        let mut child = dat(&["serve", "--port", "0"]).stdout(Stdio::piped()).spawn().expect("it starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
        let at: SocketAddr = line.trim().rsplit(' ').next().expect("a word").parse().expect("an address");
        assert!(line.starts_with("tcp-emu serves at "), "{line}");
        Server(child, SocketAddr::from(([127, 0, 0, 1], at.port())))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn times(document: &Value) -> Vec<f64> {
    let names = ["min", "p50", "p90", "p99", "p999", "max"];
    names.iter().map(|name| document["times"][name].as_f64().expect("a number")).collect()
}

#[test]
fn without_a_host_a_process_here_answers() {
    for operation in ["send", "write", "read"] {
        let arguments = ["ping", "--count", "200", "--size", "4096", "--operation", operation, "--json"];
        let document: Value =
            serde_json::from_str(&stdout(&dat(&arguments).output().expect("it starts"))).expect("JSON");
        assert_eq!((document["count"].as_u64(), document["size"].as_u64()), (Some(200), Some(4096)));
        let times = times(&document);
        assert!(times[0] > 0.0 && times.is_sorted(), "{document}");
        assert!(document["operation"].as_str().is_some_and(|name| name.ends_with(operation)), "{document}");
    }
    let text =
        stdout(&dat(&["ping", "--adapter", "softroce", "--count", "100"]).output().expect("it starts"));
    assert!(
        text.starts_with(
            "100 times send/receive of 64 B between this process and 127.0.0.1, over softroce\nmin "
        ),
        "{text}"
    );
    assert!(text.contains("  p99.9 ") && text.ends_with("there and back\n"), "{text}");
}

#[test]
fn another_host_answers_where_dat_serve_runs() {
    let server = Server::start();
    let host = server.1.to_string();
    for _ in 0..3 {
        let output = dat(&["ping", &host, "--count", "100", "--json"]).output().expect("it starts");
        let document: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
        assert_eq!(document["address"], "127.0.0.1");
        assert!(times(&document).is_sorted());
    }
}

/// What the server answers to these words.
fn tell(server: &Server, words: &str) -> String {
    let mut stream = TcpStream::connect(server.1).expect("it listens");
    let _ = stream.write_all(words.as_bytes());
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}

#[test]
fn who_does_not_know_the_words_is_told_so_and_others_are_served() {
    let server = Server::start();
    let plan = |work: &str| {
        format!(
            "{{\"role\":\"Server\",\"adapter\":\"tcp-emu\",\"address\":\"\",\"server\":null,\"cpu\":null,\"wait\":\"Poll\",\
             \"raw_wait\":\"Block\",\"work\":{work}}}\n"
        )
    };
    let many = plan("{\"Ping\":{\"size\":64,\"count\":18446744073709551615,\"operation\":\"send\"}}");
    let large = plan("{\"Ping\":{\"size\":18446744073709551615,\"count\":1,\"operation\":\"send\"}}");
    let other = plan("{\"Demo\":{\"sizes\":[64]}}");
    for words in [&many, &large, &other] {
        let answer = tell(&server, words);
        assert!(answer.contains("only what `dat ping` asks for is served here"), "{words}: {answer}");
    }
    for words in ["GET / HTTP/1.1\r\n\r\n", "{}\n", &"x".repeat(100_000)] {
        let answer = tell(&server, words);
        assert!(answer.is_empty() || answer.contains("this is the port of `dat serve`"), "{answer}");
    }
    stdout(&dat(&["ping", &server.1.to_string(), "--count", "10"]).output().expect("it starts"));
}

#[test]
fn nobody_there_is_an_error_that_says_what_to_do() {
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("it").port();
    let output = dat(&["ping", &format!("127.0.0.1:{port}")]).output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1));
    assert!(text.contains("does `dat serve` run there"), "{text}");
    let output = dat(&["ping", "no-such-host.invalid"]).output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("finding no-such-host.invalid: expected a host name or an address"), "{text}");
}
