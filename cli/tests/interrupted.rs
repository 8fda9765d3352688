//! Tests of commands that a signal ends before they are done: what they have measured is printed.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use socket2::{Domain, Socket, Type};

/// A process that is killed when this value is dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Killed {
    fn start(arguments: &[&str]) -> Killed {
        let mut command = dat(arguments);
        command.env("OPENDAT_PARAMS", "stats=on").stdout(Stdio::piped());
        Killed(command.spawn().expect("the program starts"))
    }

    fn output(&mut self) -> BufReader<impl Read + use<>> {
        BufReader::new(self.0.stdout.take().expect("the output is piped"))
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.0);
        kill_process(pid, signal).expect("the process is a child of this one");
    }

    fn status(&mut self) -> ExitStatus {
        self.0.wait().expect("the process is a child of this one")
    }
}

fn dat(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dat"));
    command.args(arguments).env("DAT_OVERRIDE", "/dev/null").stdin(Stdio::null());
    command
}

/// The signals that end a command. SIGINT is not among them where the tests run in the background
/// of a shell, because the shell makes its background processes ignore SIGINT.
fn signals() -> Vec<Signal> {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc");
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("signals");
    let ignored = u64::from_str_radix(ignored.trim(), 16).expect("a number");
    let is_ignored = |signal: &Signal| ignored & 1 << (signal.as_raw() - 1) != 0;
    [Signal::INT, Signal::TERM].into_iter().filter(|signal| !is_ignored(signal)).collect()
}

#[test]
fn an_interrupted_ping_prints_the_summary_of_its_answers() {
    for signal in signals() {
        let mut ping =
            Killed::start(&["ping", "--block", "--count", "10000000", "--interval", "0"]);
        let mut lines = ping.output().lines().map(|line| line.expect("text"));
        let answers = lines.by_ref().take_while(|line| !line.starts_with("answer 100:"));
        assert_eq!(answers.count(), 100, "a head and 99 answers come before");
        ping.signal(signal);
        let mut rest: Vec<String> = lines.collect();
        assert!(ping.status().success(), "{rest:?}");
        let summary = rest.split_off(rest.len() - 3);
        let count = 100 + rest.len();
        assert_eq!(summary[0], format!("{count} answers, round trip:"), "{summary:?}");
        assert!(summary[1].trim_start().starts_with("min "), "{summary:?}");
    }
}

#[test]
fn an_interrupted_ping_prints_its_answers_as_json() {
    let mut ping =
        Killed::start(&["ping", "--block", "--count", "10000000", "--interval", "0", "--json"]);
    wait_for_sends(&ping, 500);
    ping.signal(Signal::TERM);
    let document: Value = serde_json::from_reader(ping.output()).expect("JSON");
    assert!(ping.status().success());
    let answers = document["answers"].as_array().expect("answers").len() as u64;
    assert_eq!(
        (document["count"].as_u64(), document["times"]["samples"].as_u64()),
        (Some(answers), Some(answers))
    );
}

/// Regression test: the page was written only at the end of a complete measurement.
#[test]
fn an_interrupted_benchmark_writes_its_rounds() {
    let dir = tempfile::tempdir().expect("a directory");
    let page = dir.path().join("page.html");
    let path = page.to_str().expect("UTF-8");
    let endless = ["--sizes", "64", "--depths", "1", "--operations", "send", "--rounds", "1000"];
    // Two processes that poll would be slow on a busy machine.
    let endless = [&["--block"][..], &endless].concat();
    let mut sends = 1000;
    for format in ["--csv", "--json"] {
        let arguments = [&["bench", format, "--html", path][..], &endless].concat();
        let text = loop {
            let mut bench = Killed::start(&arguments);
            wait_for_sends(&bench, sends);
            bench.signal(Signal::TERM);
            let mut text = String::new();
            bench.output().read_to_string(&mut text).expect("text");
            assert_eq!(bench.status().code(), Some(143), "{text}");
            if !text.is_empty() {
                break text;
            }
            // The signal came before the end of the first round, because a fast machine sends
            // more messages in a round. The next attempt waits for more of them.
            assert_eq!(files_in(dir.path()), 0, "no round was measured, so there is no page");
            sends *= 4;
            assert!(sends < 100_000_000, "no round was written after {sends} sends");
        };
        if format == "--csv" {
            assert_eq!(text.lines().count(), 2, "{text}");
            assert!(text.contains("\ntcp-emu,send,64,1,1,"), "{text}");
        } else {
            let document: Value = serde_json::from_str(&text).expect("JSON");
            assert_eq!(document["interrupted"], true);
            let rounds = document["points"][0]["figures"][0]["rounds"].as_u64();
            assert!(rounds.is_some_and(|rounds| (1..1000).contains(&rounds)), "{document}");
        }
        let page = std::fs::read_to_string(&page).expect("the page was written");
        assert!(page.contains("Interrupted: ") && page.ends_with("</html>\n"), "{page}");
        std::fs::remove_file(path).expect("the page");
    }
}

/// Regression test: nothing handled the signal while the program called a host that is silent.
#[test]
fn a_command_that_calls_a_silent_host_ends_at_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let page = dir.path().join("page.html");
    let path = page.to_str().expect("UTF-8");
    for command in [&["ping"][..], &["bench", "--operations", "send", "--html", path]] {
        let silent = SilentPort::new();
        let host = format!("127.0.0.1:{}", silent.port);
        let mut called = Killed::start(&[command, &[host.as_str()]].concat());
        silent.wait_for_call();
        called.signal(Signal::TERM);
        assert_eq!(called.status().code(), Some(143), "{command:?}");
        assert_eq!(files_in(dir.path()), 0, "{command:?} must leave no file");
    }
}

/// Regression test: the temporary file of the page was left behind.
#[test]
fn a_benchmark_without_a_round_leaves_no_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let page = dir.path().join("page.html");
    let path = page.to_str().expect("UTF-8");
    let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let host = server.local_addr().expect("the socket is bound").to_string();
    let mut bench = Killed::start(&["bench", &host, "--operations", "send", "--html", path]);
    let (stream, _) = server.accept().expect("the program calls");
    BufReader::new(&stream).read_line(&mut String::new()).expect("a plan");
    // The client process calls this port, and so its rounds never begin.
    let silent = SilentPort::new();
    let ports = json!({"qualifiers": [1], "tcp": silent.port, "udp": 1, "providers": ["tcp-emu"]});
    writeln!(&stream, "{}", json!({ "Listening": ports })).expect("the program reads");
    silent.wait_for_call();
    bench.signal(Signal::TERM);
    assert_eq!(bench.status().code(), Some(143));
    assert_eq!(files_in(dir.path()), 0, "the program must leave no file");
}

fn files_in(directory: &Path) -> usize {
    std::fs::read_dir(directory).expect("the directory exists").count()
}

/// A TCP port that does not answer calls, because its queue of connections is full.
struct SilentPort {
    port: u16,
    _listener: Socket,
    _only_connection: TcpStream,
}

impl SilentPort {
    fn new() -> SilentPort {
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        listener.bind(&any.into()).and_then(|()| listener.listen(0)).expect("a port");
        let at = listener.local_addr().ok().and_then(|at| at.as_socket()).expect("it is bound");
        let only = TcpStream::connect(at).expect("the queue has room for one connection");
        SilentPort { port: at.port(), _listener: listener, _only_connection: only }
    }

    /// Waits until a process is calling this port.
    fn wait_for_call(&self) {
        // The peer's address and the state SYN_SENT in the kernel's table.
        let call = format!(" 0100007F:{:04X} 02 ", self.port);
        let since = Instant::now();
        while !std::fs::read_to_string("/proc/net/tcp").expect("a table").contains(&call) {
            assert!(since.elapsed() < Duration::from_secs(300), "no call came for 300 s");
            std::thread::yield_now();
        }
    }
}

/// Waits until a process of this command has posted this number of sends.
fn wait_for_sends(command: &Killed, least: u64) {
    let since = Instant::now();
    let pid = command.0.id();
    let children = Path::new("/proc").join(format!("{pid}/task/{pid}/children"));
    loop {
        assert!(since.elapsed() < Duration::from_secs(300), "{least} sends took more than 300 s");
        let pids = std::fs::read_to_string(&children).expect("the process runs");
        let sends = pids.split_whitespace().filter_map(|pid| {
            let answer = dat(&["top", pid, "--once", "--json"]).output().ok()?;
            let document: Value = serde_json::from_slice(&answer.stdout).ok()?;
            document["adapters"][0]["ep"]["DCNT_EP_POST_SEND"].as_u64()
        });
        if sends.max() >= Some(least) {
            return;
        }
    }
}
