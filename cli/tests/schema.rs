//! Every `--json` output conforms to its schema in `schema/`, on which programs may rely.

mod json_schema;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::slice;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

fn schema(name: &str) -> Value {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("schema").join(name).with_extension("json");
    serde_json::from_str(&std::fs::read_to_string(path).expect("the file exists")).expect("JSON")
}

/// Runs a command and validates its output. Its first argument is also the name of the schema;
/// `exit_code` is the expected exit code.
fn conforms(registry: &Path, arguments: &[&str], exit_code: i32) {
    let output = dat(arguments)
        .arg("--json")
        .env("DAT_OVERRIDE", registry)
        .output()
        .expect("the program starts");
    assert_eq!(output.status.code(), Some(exit_code), "{arguments:?}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!("{arguments:?}: {error}: {}", String::from_utf8_lossy(&output.stderr))
    });
    is_valid(arguments, &document);
}

fn dat(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dat"));
    command.args(arguments);
    command
}

fn is_valid(arguments: &[&str], document: &Value) {
    let errors = json_schema::errors(&schema(arguments[0]), slice::from_ref(document));
    assert!(errors.is_empty(), "{arguments:?}: {errors:#?}\n{document:#}");
}

#[test]
fn every_document_is_as_its_schema_says() {
    if !json_schema::is_installed() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("dat.conf");
    let text = "gone u2.0 nonthreadsafe default libopendat_gone.so v.1.0 \"\" \"\"\nbroken u2.0\n";
    std::fs::write(&file, text).expect("the file can be written");
    conforms(&file, &["list"], 1);
    conforms(&file, &["query", "tcp-emu"], 0);
    conforms(&file, &["query", "softroce"], 0);
    conforms(&file, &["check", file.to_str().expect("UTF-8")], 1);
    conforms(&file, &["list", "--limit", "0"], 1);
    conforms(&file, &["check", file.to_str().expect("UTF-8"), "--limit", "0"], 1);
    conforms(&file, &["doctor"], 1);
    let good = dir.path().join("good.toml");
    let text = "[[interface]]\nname = 'a'\napi = 'u2.0'\nthreadsafe = true\nlibrary = \
                'liba.so'\nversion = 'v.1.0'\n";
    std::fs::write(&good, text).expect("the file can be written");
    conforms(&file, &["convert", good.to_str().expect("UTF-8")], 0);
    conforms(&file, &["ping", "--count", "10"], 0);
    conforms(&file, &["bench", "--rounds", "1", "--sizes", "64", "--vs", "softroce"], 0);
    conforms(&file, &["conformance", "dat_pz_create"], 0);
    conforms(&file, &["conformance", "--list"], 0);
    conforms(&file, &["conformance", "--explain"], 0);
    conforms(&file, &["conformance", "--returns"], 0);
    conforms(&file, &["register", "new", "libnew.so"], 0);
    conforms(&file, &["unregister", "new"], 0);
}

#[test]
fn the_demonstration_is_as_its_schema_says() {
    if !json_schema::is_installed() {
        return;
    }
    let output = dat(&["--json", "--rounds", "1"])
        .env("DAT_OVERRIDE", "/dev/null")
        .output()
        .expect("the program starts");
    is_valid(&["demo"], &serde_json::from_slice(&output.stdout).expect("JSON"));
}

#[test]
fn an_error_document_has_the_reason() {
    if !json_schema::is_installed() {
        return;
    }
    for (arguments, code) in [
        (&["query", "no-such-ia"][..], 1),
        (&["check", "no-such-file"], 2),
        (&["convert", "no-such-file"], 1),
        (&["ping", "no-such-host.invalid"], 1),
        (&["conformance", "--provider", "no-such-ia"], 2),
        (&["--adapter", "no-such-ia"], 1),
        (&["no-such-command"], 2),
        (&["bench", "--no-such-option"], 2),
        (&["ping", "--operation", "rdma_read"], 2),
    ] {
        let output = dat(arguments)
            .arg("--json")
            .env("DAT_OVERRIDE", "/dev/null")
            .output()
            .expect("the program starts");
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        is_valid(&["error"], &document);
        let said = String::from_utf8_lossy(&output.stderr);
        let why = document["error"].as_str().expect("a text");
        let is_same = ["dat: ", "error: "].iter().any(|by| said.contains(&format!("{by}{why}")));
        assert!(is_same, "{arguments:?}: {why}\n{said}");
    }
}

/// A process that is killed, with its children, when this value is dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn serve_reports_where_it_listens() {
    if !json_schema::is_installed() {
        return;
    }
    let mut serve = dat(&["serve", "--json", "--bind", "127.0.0.1", "--port", "0"]);
    serve.env("DAT_OVERRIDE", "/dev/null").stdout(Stdio::piped());
    let mut serve = Killed(serve.spawn().expect("the program starts"));
    let mut line = String::new();
    BufReader::new(serve.0.stdout.take().expect("the output is piped"))
        .read_line(&mut line)
        .expect("a line");
    let document: Value = serde_json::from_str(&line).expect("JSON");
    is_valid(&["serve"], &document);
    assert_eq!(
        (&document["adapters"], &document["address"]),
        (&json!(["tcp-emu"]), &json!("127.0.0.1"))
    );
}

#[test]
fn a_process_publishes_its_counters_while_it_runs() {
    if !json_schema::is_installed() {
        return;
    }
    let mut ping = dat(&["ping", "--block", "--count", "10000000", "--interval", "0", "--quiet"]);
    ping.env("OPENDAT_PARAMS", "stats=on").env("DAT_OVERRIDE", "/dev/null").stdout(Stdio::null());
    let _ping = Killed(ping.spawn().expect("the program starts"));
    let since = Instant::now();
    let document = loop {
        assert!(
            since.elapsed() < Duration::from_secs(60),
            "no process published its counters within 60 s"
        );
        let list = dat(&["top", "--json"]).output().expect("the program starts");
        let list: Value = serde_json::from_slice(&list.stdout).expect("JSON");
        is_valid(&["top"], &list);
        let pids =
            list["processes"].as_array().expect("processes").iter().filter_map(Value::as_u64);
        let asked = pids.filter_map(|pid| {
            let answer = dat(&["top", &pid.to_string(), "--once", "--json"])
                .output()
                .expect("the program starts");
            serde_json::from_slice::<Value>(&answer.stdout).ok()
        });
        let sends = |document: &Value| document["adapters"][0]["ep"]["DCNT_EP_POST_SEND"].as_u64();
        if let Some(document) = asked.into_iter().find(|document| sends(document) > Some(100)) {
            break document;
        }
    };
    is_valid(&["top"], &document);
    let adapter = &document["adapters"][0];
    assert_eq!(
        (&adapter["name"], &adapter["provider"]),
        (&json!("tcp-emu"), &json!("tcp-emu")),
        "{document}"
    );
    assert_eq!(adapter["endpoints"][0]["state"], "Connected", "{document}");
    assert!(adapter["ia"]["octets-sent"].as_u64() > Some(1000), "{document}");
    let pid = document["pid"].to_string();
    let text = dat(&["top", &pid, "--once"]).output().expect("the program starts");
    let text = String::from_utf8_lossy(&text.stdout);
    assert!(
        text.starts_with("tcp-emu (provider tcp-emu), 1 endpoint\n")
            && text.contains("DCNT_EP_POST_SEND"),
        "{text}"
    );
}

/// Returns whether the document is as the schema of `register` says.
fn is_of_register(document: &Value) -> bool {
    json_schema::errors(&schema("register"), slice::from_ref(document)).is_empty()
}

#[test]
fn a_schema_refuses_what_it_does_not_know() {
    if !json_schema::is_installed() {
        return;
    }
    let right = json!({ "version": "1", "file": "f", "registered": ["a line"], "concerns": [] });
    assert!(is_of_register(&right));
    for wrong in
        [json!({ "file": "f" }), json!({ "file": "f", "registered": ["l"], "more": 1 }), json!([])]
    {
        assert!(!is_of_register(&wrong), "{wrong}");
    }
}
