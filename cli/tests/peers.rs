//! Tests of `dat ping` and `dat bench`, with `dat serve` as their peer.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use socket2::SockRef;

fn dat(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dat"));
    command
        .args(arguments)
        .env("DAT_OVERRIDE", "/dev/null")
        .env_remove("DAT_DBG_TYPE")
        .stdin(Stdio::null());
    command
}

fn stdout(output: &Output) -> String {
    let text = String::from_utf8(output.stdout.clone()).expect("UTF-8");
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// A process that is killed when this value is dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A process of `dat serve` on a port of its own. It is killed when this value is dropped.
struct Server {
    _process: Killed,
    at: SocketAddr,
}

impl Server {
    fn start() -> Server {
        Server::of(&["tcp-emu"])
    }

    fn of(adapters: &[&str]) -> Server {
        let mut command = dat(&["serve", "--port", "0"]);
        command.args(adapters.iter().flat_map(|name| ["--adapter", name]));
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the program starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("the output is piped"))
            .read_line(&mut line)
            .expect("a line");
        let at: SocketAddr =
            line.trim().rsplit(' ').next().expect("a word").parse().expect("an address");
        assert!(line.starts_with(&adapters.join(" and ")) && line.contains("serve"), "{line}");
        Server { _process: Killed(child), at: SocketAddr::from(([127, 0, 0, 1], at.port())) }
    }
}

fn times(document: &Value) -> Vec<f64> {
    let names = ["min", "p50", "p90", "p99", "p999", "max"];
    let times = names.iter().map(|name| &document["times"][name]);
    times.filter(|time| !time.is_null()).map(|time| time.as_f64().expect("a number")).collect()
}

#[test]
fn ping_without_a_host_uses_a_local_process() {
    for operation in ["send", "write", "read"] {
        let arguments = [
            "ping",
            "--count",
            "200",
            "--interval",
            "0",
            "--size",
            "4096",
            "--operation",
            operation,
            "--block",
            "--json",
        ];
        let document: Value =
            serde_json::from_str(&stdout(&dat(&arguments).output().expect("the program starts")))
                .expect("JSON");
        assert_eq!(
            (document["count"].as_u64(), document["size"].as_u64()),
            (Some(200), Some(4096))
        );
        let times = times(&document);
        assert!(times[0] > 0.0 && times.is_sorted(), "{document}");
        assert_eq!(
            (&document["operation"], &document["wait"]),
            (&operation.into(), &"block".into())
        );
        assert_eq!(document["answers"].as_array().map(Vec::len), Some(200), "{document}");
    }
    let arguments =
        ["ping", "--adapter", "softroce", "--count", "100", "--interval", "0", "--quiet"];
    let text = stdout(&dat(&arguments).output().expect("the program starts"));
    let [head, count, names, values] = text.lines().collect::<Vec<_>>()[..] else {
        panic!("{text}")
    };
    assert_eq!(head, "send/receive of 64 B to 127.0.0.1 and back, over softroce:");
    assert_eq!(count, "100 answers, round trip:");
    assert_eq!(
        names.split_whitespace().collect::<Vec<_>>(),
        ["min", "p50", "p90", "p99", "p99.9", "max", "mean"]
    );
    // A hundred samples are too few for the 99.9th percentile.
    assert!(values.split("  ").any(|value| value.trim() == "-"), "{text}");
}

#[test]
fn each_answer_is_printed_as_it_arrives() {
    let mut ping = dat(&["ping", "--count", "10000000", "--interval", "0"]);
    let mut ping = Killed(ping.stdout(Stdio::piped()).spawn().expect("the program starts"));
    // The pings take a long time, so the lines that are read now were printed before the end.
    let mut lines = BufReader::new(ping.0.stdout.take().expect("the output is piped")).lines();
    let mut line = || lines.next().expect("a line").expect("text");
    assert_eq!(line(), "send/receive of 64 B to 127.0.0.1 and back, over tcp-emu:");
    for number in 1..=100 {
        let answer = line();
        let time = answer.strip_prefix(&format!("answer {number}: ")).expect(&answer);
        assert!(["µs", "ms", "s"].iter().any(|unit| time.ends_with(unit)), "{answer}");
    }
    assert!(
        ping.0.try_wait().expect("the process is a child of this one").is_none(),
        "the program must not have ended"
    );
}

#[test]
fn a_ping_of_some_answers_fits_a_terminal() {
    let text = stdout(
        &dat(&["ping", "--count", "3", "--interval", "0"]).output().expect("the program starts"),
    );
    assert_eq!(text.lines().filter(|line| line.starts_with("answer ")).count(), 3, "{text}");
    assert!(text.contains("\n3 answers, round trip:\n"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn ping_reaches_dat_serve_on_another_host() {
    let server = Server::start();
    let host = server.at.to_string();
    for _ in 0..3 {
        let output = dat(&["ping", &host, "--count", "100", "--interval", "0", "--json"])
            .output()
            .expect("the program starts");
        let document: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
        assert_eq!(document["address"], "127.0.0.1");
        assert!(times(&document).is_sorted());
    }
}

/// Connects to the server without a pause, and counts the connections. The latest 100 stay open.
/// None of them sends anything.
fn connect_silently(server: &Server, count: &AtomicUsize, ends: &AtomicBool) {
    let mut silent = VecDeque::new();
    while !ends.load(Ordering::Relaxed) {
        // If this host has no memory or port for the connection, the loop tries again.
        let Ok(stream) = TcpStream::connect(server.at) else { continue };
        count.fetch_add(1, Ordering::Relaxed);
        // A closed connection must not leave its port in TIME_WAIT, because other connections need
        // ports.
        SockRef::from(&stream).set_linger(Some(Duration::ZERO)).expect("a socket");
        silent.push_back(stream);
        if silent.len() > 100 {
            silent.pop_front();
        }
    }
}

/// Clients that send nothing do not prevent others from being served, even if they connect and
/// disconnect without a pause, and even if another client sends its plan late.
#[test]
fn silent_clients_do_not_block_others() {
    let server = Server::start();
    let (count, ends) = (AtomicUsize::new(0), AtomicBool::new(false));
    let host = server.at.to_string();
    let check = || {
        for _ in 0..5 {
            let mut late = TcpStream::connect(server.at).expect("the server listens");
            let others = count.load(Ordering::Relaxed) + 500;
            while count.load(Ordering::Relaxed) < others {
                thread::yield_now();
            }
            late.write_all(b"{}\n").expect("the server waits for the plan");
            let mut answer = String::new();
            late.read_to_string(&mut answer).expect("an answer");
            assert!(answer.contains("this is the port of `dat serve`"), "{answer}");
        }
        for _ in 0..8 {
            let output = dat(&["ping", &host, "--count", "10", "--interval", "0", "--json"])
                .output()
                .expect("the program starts");
            let document: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
            assert!(times(&document).is_sorted());
        }
    };
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| connect_silently(&server, &count, &ends));
        }
        let result = catch_unwind(AssertUnwindSafe(check));
        ends.store(true, Ordering::Relaxed);
        result.unwrap_or_else(|panic| resume_unwind(panic));
    });
}

/// Clients that send a plan and never connect do not prevent others from being served.
#[test]
fn clients_that_never_connect_do_not_block_others() {
    let server = Server::start();
    let plan = "{\"role\":\"Server\",\"adapters\":[\"tcp-emu\"],\"address\":\"\",\"server\":null,\
                \"cpu\":null,\"wait\":\"poll\",\"raw_wait\":\"block\",\"task\":{\"Ping\":{\"size\":64,\
                \"count\":1,\"operation\":\"send\",\
             \"interval\":0.0,\"tells_each\":false}}}\n";
    let connect = || {
        let mut stream = TcpStream::connect(server.at).expect("the server listens");
        stream.write_all(plan.as_bytes()).expect("the server waits for the plan");
        stream
    };
    let (mut oldest, mut first) = (BufReader::new(connect()), String::new());
    // This client has its place before the others come.
    oldest.read_line(&mut first).expect("the oldest client is served");
    assert!(first.contains("Listening"), "{first}");
    let _silent: Vec<_> = (0..39).map(|_| connect()).collect();
    let host = server.at.to_string();
    for _ in 0..8 {
        stdout(
            &dat(&["ping", &host, "--count", "10", "--interval", "0"])
                .output()
                .expect("the program starts"),
        );
    }
    let mut last = String::new();
    oldest.read_to_string(&mut last).expect("an answer");
    assert!(last.contains("the client did not connect in time"), "{last}");
}

/// Returns the server's answer to this text.
fn send_and_receive(server: &Server, words: &str) -> String {
    let mut stream = TcpStream::connect(server.at).expect("the server listens");
    let _ = stream.write_all(words.as_bytes());
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}

#[test]
fn an_invalid_plan_is_refused_and_others_are_served() {
    let server = Server::start();
    let plan = |work: &str| {
        format!(
            "{{\"role\":\"Server\",\"adapters\":[\"tcp-emu\"],\"address\":\"\",\"server\":null,\
             \"cpu\":null,\"wait\":\"poll\",\"raw_wait\":\"block\",\"task\":{work}}}\n"
        )
    };
    let ping = |size: &str, count: &str, interval: &str| {
        plan(&format!(
            "{{\"Ping\":{{\"size\":{size},\"count\":{count},\"operation\":\"send\",\
             \"interval\":{interval},\"tells_each\":false}}}}"
        ))
    };
    let many = ping("64", "18446744073709551615", "0.0");
    let large = ping("18446744073709551615", "1", "0.0");
    let slow = ping("64", "1", "1e300");
    let other = plan("{\"Demo\":{\"sizes\":[64],\"unmeasured\":[],\"rounds\":1}}");
    let point = "{\"operation\":\"send\",\"size\":16777216,\"depth\":1,\"connections\":64}";
    let memory = plan(&format!(
        "{{\"Bench\":{{\"points\":[{point}],\"rounds\":1,\"seconds\":0.0,\"wait\":\"block\",\"server_cpu\":null}}}}"
    ));
    for words in [&many, &large, &slow, &other, &memory] {
        let answer = send_and_receive(&server, words);
        assert!(
            answer.contains("only `dat ping` and `dat bench` are served here"),
            "{words}: {answer}"
        );
    }
    for words in ["GET / HTTP/1.1\r\n\r\n", "{}\n", &"x".repeat(100_000)] {
        let answer = send_and_receive(&server, words);
        assert!(
            answer.is_empty() || answer.contains("this is the port of `dat serve`"),
            "{answer}"
        );
    }
    stdout(
        &dat(&["ping", &server.at.to_string(), "--count", "10"])
            .output()
            .expect("the program starts"),
    );
}

#[test]
fn a_missing_server_is_an_error_with_a_remedy() {
    // This port was free a moment ago, so no server listens at it.
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .expect("a port")
        .local_addr()
        .expect("the socket is bound")
        .port();
    let output = dat(&["ping", &format!("127.0.0.1:{port}")]).output().expect("the program starts");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1));
    assert!(text.contains("does `dat serve` run there"), "{text}");
    let output = dat(&["ping", "no-such-host.invalid"]).output().expect("the program starts");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        text.contains("finding no-such-host.invalid: expected a host name or an address"),
        "{text}"
    );
}

/// A benchmark that takes little time.
const SHORT_BENCHMARK: [&str; 8] =
    ["bench", "--sizes", "64,4K", "--depths", "1,4", "--rounds", "1", "--json"];

fn bench(more: &[&str]) -> Value {
    let output = dat(&SHORT_BENCHMARK).args(more).output().expect("the program starts");
    serde_json::from_str(&stdout(&output)).expect("JSON")
}

#[test]
fn bench_measures_operations_sizes_depths_and_connections() {
    let document = bench(&["--connections", "1,2"]);
    let points = document["points"].as_array().expect("points");
    // The points are three operations of two sizes and two atomic operations of one size, each at
    // two depths, with one and with two connections.
    assert_eq!(points.len(), (3 * 2 + 2) * 4, "{document}");
    for point in points {
        let [figures] = point["figures"].as_array().expect("figures").as_slice() else {
            panic!("{point}")
        };
        let number = |name: &str| figures[name].as_f64().expect("a number");
        assert!(number("operations_per_second") > 0.0 && number("client_cpu") > 0.0, "{point}");
        let size = point["size"].as_f64().expect("a number");
        assert!(
            (number("bytes_per_second") / number("operations_per_second") / size - 1.0).abs()
                < 1e-6
        );
        let times =
            ["min", "p50", "p90", "p99", "p999", "max"].map(|name| &figures["latency"][name]);
        let times: Vec<f64> = times.into_iter().filter_map(Value::as_f64).collect();
        assert!(times.is_sorted() && times[0] > 0.0, "{point}");
        // Both processes have processors of their own, if there are two.
        let copies = document["pinned"].as_array().is_some_and(|two| two[0] != two[1]);
        assert!(!copies || point["copy"]["median"].as_f64() > Some(0.0), "{point}");
        let atomic = ["fetch-add", "compare-swap"].iter().any(|name| point["operation"] == *name);
        assert_eq!(atomic, size == 8.0, "{point}");
    }
}

#[test]
fn bench_compares_two_adapters_and_draws_plots() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("page.html");
    let page = path.to_str().expect("UTF-8");
    let document = bench(&["--vs", "softroce", "--operations", "send,read", "--html", page]);
    let names =
        document["adapters"].as_array().expect("adapters").iter().map(|adapter| &adapter["name"]);
    assert_eq!(names.collect::<Vec<_>>(), ["tcp-emu", "softroce"]);
    let points = document["points"].as_array().expect("points");
    assert_eq!(points.len(), 2 * 2 * 2);
    assert!(
        points.iter().all(|point| point["figures"].as_array().is_some_and(|both| both.len() == 2))
    );
    let text = std::fs::read_to_string(&path).expect("the file was written");
    // On a slow machine, high percentiles may have too few samples.
    for plot in ["latency, p50", "bandwidth", "operations per second", "processor time"] {
        assert_eq!(
            text.matches(&format!("role=\"img\" aria-label=\"{plot}")).count(),
            2,
            "{plot}: {text}"
        );
    }
    assert!(text.starts_with("<!DOCTYPE html>") && text.ends_with("</html>\n"));
    for word in ["<script", "http://", "https://", "NaN", "inf"] {
        assert!(!text.contains(word), "{word}");
    }
    for word in ["tcp-emu depth 1", "softroce depth 4", "p99.9", "<h2>RDMA read</h2>"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    let text = stdout(
        &dat(&SHORT_BENCHMARK[..7])
            .args(["--vs", "softroce", "--operations", "send"])
            .output()
            .expect("the program starts"),
    );
    assert!(
        text.starts_with("operation ") && text.contains(" ratio ") && text.contains("p50"),
        "{text}"
    );
    assert_eq!(text.matches("send/receive").count(), 4, "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn bench_table_fits_a_terminal_and_wide_has_more_columns() {
    let short = ["bench", "--sizes", "64,64K", "--rounds", "2"];
    let text = stdout(&dat(&short).output().expect("the program starts"));
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    for words in [
        "compare-swap    8 B ",
        "RDMA read    64 KiB ",
        "Each figure is the median of ",
        " spread\n",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let text = stdout(
        &dat(&short).args(["--operations", "send", "--wide"]).output().expect("the program starts"),
    );
    assert!(
        text.contains("p99.9") && text.contains("client + server") && text.contains(" + "),
        "{text}"
    );
}

#[test]
fn bench_prints_values_for_a_spreadsheet() {
    let arguments =
        ["bench", "--sizes", "64", "--depths", "1", "--rounds", "1", "--operations", "send,read"];
    let text = stdout(
        &dat(&arguments).args(["--csv", "--vs", "softroce"]).output().expect("the program starts"),
    );
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    let rows: Vec<&[&str]> = lines[1..].iter().map(|line| &line[..3]).collect();
    let expected = [
        ["tcp-emu", "send", "64"],
        ["softroce", "send", "64"],
        ["tcp-emu", "read", "64"],
        ["softroce", "read", "64"],
    ];
    assert_eq!(rows, expected, "{text}");
    assert!(lines.iter().all(|line| line.len() == lines[0].len()), "{text}");
    let at = lines[0].iter().position(|column| *column == "bytes_per_second").expect("a column");
    assert!(
        lines[1..].iter().all(|line| line[at].parse::<f64>().is_ok_and(|rate| rate > 0.0)),
        "{text}"
    );
}

#[test]
fn bench_applies_duration_and_cpus() {
    let processor = {
        let list = std::fs::read_to_string("/proc/self/status").expect("the file exists");
        let list =
            list.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).expect("a line");
        list.trim().split(['-', ',']).next().expect("a number").to_owned()
    };
    let both = format!("{processor},{processor}");
    let arguments = ["bench", "--sizes", "64", "--depths", "1", "--operations", "read", "--json"];
    let output = dat(&arguments)
        .args(["--duration", "1", "--cpus", &both])
        .output()
        .expect("the program starts");
    let document: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    let number: u64 = processor.parse().expect("a number");
    assert_eq!(document["pinned"], serde_json::json!([number, number]));
    assert_eq!(
        document["points"][0]["wait"], "block",
        "threads that poll would take processor time from each other"
    );
    assert!(
        document["points"][0]["figures"][0]["rounds"].as_u64().is_some_and(|rounds| rounds >= 1),
        "{document}"
    );
    let command = document["command"].as_str().expect("text");
    assert!(command.starts_with("dat bench --sizes 64 ") && command.ends_with(&both), "{command}");
}

#[test]
fn an_error_names_the_provider_that_is_served() {
    let server = Server::of(&["tcp-emu"]);
    let output = dat(&["ping", &server.at.to_string(), "--ia", "softroce"])
        .output()
        .expect("the program starts");
    let text = String::from_utf8_lossy(&output.stderr);
    let why = "the server at 127.0.0.1 uses provider tcp-emu, but adapter softroce uses provider \
               softroce: run `dat serve --adapter softroce` there";
    assert!(!output.status.success() && text.contains(why), "{text}");
}

#[test]
fn bench_with_another_host_asks_for_the_adapters_that_are_served_there() {
    let server = Server::of(&["tcp-emu", "softroce"]);
    let host = server.at.to_string();
    let document = bench(&[&host, "--operations", "write"]);
    assert_eq!(document["adapters"].as_array().map(Vec::len), Some(1), "{document}");
    let document = bench(&[&host, "--operations", "write", "--vs", "softroce"]);
    assert_eq!(document["adapters"][1]["provider"], "softroce", "{document}");
    let one = Server::start();
    let output = dat(&SHORT_BENCHMARK)
        .args([&one.at.to_string(), "--vs", "softroce"])
        .output()
        .expect("the program starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        text.contains("2 adapters requested, 1 served: run `dat serve` with --adapter once more"),
        "{text}"
    );
}

#[test]
fn bench_refuses_invalid_options_before_it_measures() {
    for (arguments, words) in [
        (&["--sizes", "1G"][..], "expected 1 to 16777216 bytes, as in 64, 4K or 1M"),
        (&["--depths", "0"], "expected a number from 1 to 120"),
        (&["--connections", "65"], "expected a number from 1 to 64"),
        (
            &["--sizes", "16M", "--connections", "64"],
            "need 2048 MiB of memory at each end; the limit is 1024 MiB",
        ),
        (&["--html", "/no/such/page"], "writing /no/such/page"),
        (&["--duration", "0.1"], "expected 0.5 to 3600 seconds"),
        (&["--duration", "1", "--rounds", "5"], "cannot be used with"),
        (&["--cpus", "0"], "--cpus takes two processors"),
        (&["--cpus", "0,99999"], "this process may not run on processor 99999"),
        (&["--csv", "--json"], "cannot be used with"),
        (&["--vs", "nowhere"], "nowhere"),
    ] {
        let output = dat(&["bench"]).args(arguments).output().expect("the program starts");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(words), "{arguments:?}: {text}");
    }
}
