//! `dat ping` and `dat bench`, and `dat serve` on the other side of them.

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
        Server::of(&["tcp-emu"])
    }

    fn of(adapters: &[&str]) -> Server {
        let mut command = dat(&["serve", "--port", "0"]);
        command.args(adapters.iter().flat_map(|name| ["--adapter", name]));
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
        let at: SocketAddr = line.trim().rsplit(' ').next().expect("a word").parse().expect("an address");
        assert!(line.starts_with(&adapters.join(" and ")) && line.contains("serve"), "{line}");
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
    let times = names.iter().map(|name| &document["times"][name]);
    times.filter(|time| !time.is_null()).map(|time| time.as_f64().expect("a number")).collect()
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
    // Of a hundred, the slowest is no thousandth.
    assert!(text.contains("  p99 ") && !text.contains("p99.9"), "{text}");
    assert!(text.ends_with("there and back\n"), "{text}");
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
            "{{\"role\":\"Server\",\"adapters\":[\"tcp-emu\"],\"address\":\"\",\"server\":null,\"cpu\":null,\"wait\":\"Poll\",\
             \"raw_wait\":\"Block\",\"work\":{work}}}\n"
        )
    };
    let many = plan("{\"Ping\":{\"size\":64,\"count\":18446744073709551615,\"operation\":\"send\"}}");
    let large = plan("{\"Ping\":{\"size\":18446744073709551615,\"count\":1,\"operation\":\"send\"}}");
    let other = plan("{\"Demo\":{\"sizes\":[64]}}");
    let point = "{\"operation\":\"send\",\"size\":16777216,\"depth\":1,\"connections\":64}";
    let memory = plan(&format!("{{\"Bench\":{{\"points\":[{point}],\"rounds\":1,\"wait\":\"Block\"}}}}"));
    for words in [&many, &large, &other, &memory] {
        let answer = tell(&server, words);
        assert!(
            answer.contains("only what `dat ping` and `dat bench` ask for is served here"),
            "{words}: {answer}"
        );
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

/// A benchmark that is soon over.
const SHORT: [&str; 8] = ["bench", "--sizes", "64,4K", "--depths", "1,4", "--rounds", "1", "--json"];

fn bench(more: &[&str]) -> Value {
    let output = dat(&SHORT).args(more).output().expect("it starts");
    serde_json::from_str(&stdout(&output)).expect("JSON")
}

#[test]
fn bench_measures_operations_sizes_depths_and_connections() {
    let document = bench(&["--connections", "1,2"]);
    let points = document["points"].as_array().expect("points");
    // Three operations of two sizes, two atomic ones of one; each at two depths with one and with two connections.
    assert_eq!(points.len(), (3 * 2 + 2) * 4, "{document}");
    for point in points {
        let [figures] = point["figures"].as_array().expect("figures").as_slice() else { panic!("{point}") };
        let number = |name: &str| figures[name].as_f64().expect("a number");
        assert!(number("operations_per_second") > 0.0 && number("client_cpu") > 0.0, "{point}");
        let size = point["size"].as_f64().expect("a number");
        assert!((number("bytes_per_second") / number("operations_per_second") / size - 1.0).abs() < 1e-6);
        let times = ["min", "p50", "p90", "p99", "p999", "max"].map(|name| &figures["latency"][name]);
        let times: Vec<f64> = times.into_iter().filter_map(Value::as_f64).collect();
        assert!(times.is_sorted() && times[0] > 0.0, "{point}");
        let atomic = ["fetch_add", "compare_swap"].iter().any(|name| point["operation"] == *name);
        assert_eq!(atomic, size == 8.0, "{point}");
    }
}

#[test]
fn bench_compares_two_adapters_and_draws_what_came_out() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("page.html");
    let page = path.to_str().expect("UTF-8");
    let document = bench(&["--vs", "softroce", "--operations", "send,read", "--html", page]);
    let names = document["adapters"].as_array().expect("adapters").iter().map(|adapter| &adapter["name"]);
    assert_eq!(names.collect::<Vec<_>>(), ["tcp-emu", "softroce"]);
    let points = document["points"].as_array().expect("points");
    assert_eq!(points.len(), 2 * 2 * 2);
    assert!(points.iter().all(|point| point["figures"].as_array().is_some_and(|both| both.len() == 2)));
    let text = std::fs::read_to_string(&path).expect("it was written");
    // Of rare percentiles there may be none, where a machine is slow.
    for plot in ["latency, p50", "bandwidth", "operations for each second", "processor time"] {
        assert_eq!(text.matches(&format!("role=\"img\" aria-label=\"{plot}")).count(), 2, "{plot}: {text}");
    }
    assert!(text.starts_with("<!DOCTYPE html>") && text.ends_with("</html>\n"));
    for word in ["<script", "http://", "https://", "NaN", "inf"] {
        assert!(!text.contains(word), "{word}");
    }
    for word in ["tcp-emu depth 1", "softroce depth 4", "p99.9", "<h2>RDMA read</h2>"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    let text = stdout(
        &dat(&SHORT[..7]).args(["--vs", "softroce", "--operations", "send"]).output().expect("starts"),
    );
    assert!(text.starts_with("operation ") && text.contains(" ratio ") && text.contains("p50"), "{text}");
    assert_eq!(text.matches("send/receive").count(), 4, "{text}");
}

#[test]
fn who_calls_over_another_wire_is_told_which_is_served() {
    let server = Server::of(&["tcp-emu"]);
    let output = dat(&["ping", &server.1.to_string(), "--ia", "softroce"]).output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stderr);
    let why = "127.0.0.1 serves an adapter of tcp-emu, and softroce is of softroce: `dat serve --adapter softroce` there";
    assert!(!output.status.success() && text.contains(why), "{text}");
}

#[test]
fn bench_with_another_host_asks_for_the_adapters_that_are_served_there() {
    let server = Server::of(&["tcp-emu", "softroce"]);
    let host = server.1.to_string();
    let document = bench(&[&host, "--operations", "write"]);
    assert_eq!(document["adapters"].as_array().map(Vec::len), Some(1), "{document}");
    let document = bench(&[&host, "--operations", "write", "--vs", "softroce"]);
    assert_eq!(document["adapters"][1]["provider"], "softroce", "{document}");
    let one = Server::start();
    let output = dat(&SHORT).args([&one.1.to_string(), "--vs", "softroce"]).output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        text.contains("asked for 2 adapters, and 1 served: `dat serve` with --adapter once more"),
        "{text}"
    );
}

#[test]
fn bench_says_what_it_cannot_do_before_it_begins() {
    for (arguments, words) in [
        (&["--sizes", "1G"][..], "expected 1 to 16777216 bytes, as in 64, 4K or 1M"),
        (&["--depths", "0"], "expected a number from 1 to 120"),
        (&["--connections", "65"], "expected a number from 1 to 64"),
        (
            &["--sizes", "16M", "--connections", "64"],
            "need 2048 MiB of memory at each end; 1024 MiB is the most",
        ),
        (&["--html", "/no/such/page"], "writing /no/such/page"),
        (&["--plain", "--vs", "softroce"], "cannot be used with"),
        (&["--row", "64 B"], "--plain"),
        (&["--vs", "nowhere"], "nowhere"),
    ] {
        let output = dat(&["bench"]).args(arguments).output().expect("it starts");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(words), "{arguments:?}: {text}");
    }
}
