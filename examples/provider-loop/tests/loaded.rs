//! Tests the library as a registry loads it: everything that docs/writing-a-provider.md describes.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use dat::{Access, Adapter, Address, Close, Flags, RemoteRegion};
use registry::{Builtins, List, Registry};
use serde_json::Value;
use tempfile::TempDir;

// The symbols that the library needs from the program.
registry::export_symbols!();

/// Cargo builds the library with this test and puts it next to the test.
fn library() -> PathBuf {
    let this = std::env::current_exe().expect("this test has a path");
    let library = this.with_file_name("libdat_loop.so");
    assert!(library.exists(), "{} is not there", library.display());
    library
}

/// A registry file with the example provider, for runs of the program `dat`.
struct Registered {
    dir: TempDir,
}

impl Registered {
    /// Registers the library, also for programs that need a thread-safe provider.
    fn new() -> Self {
        let registered = Registered { dir: tempfile::tempdir().expect("a temporary directory") };
        let (library, file) = (library(), registered.file());
        for safety in [&[][..], &["--threadsafe"]] {
            registered.dat(
                &[&["register", "loop", utf8(&library), "--file", utf8(&file)], safety].concat(),
            );
        }
        registered
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("my.conf")
    }

    fn dat(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {}\n{text}{errors}", output.status);
        text
    }

    fn output(&self, arguments: &[&str]) -> Output {
        // The program is taken from OPENDAT_DIST, which `cargo xtask test` sets. If the variable is
        // not set, cargo builds the program.
        let mut command = match std::env::var_os("OPENDAT_DIST") {
            Some(dist) => Command::new(Path::new(&dist).join("bin/dat")),
            None => {
                let mut cargo = Command::new(env!("CARGO"));
                cargo.args(["run", "--quiet", "--package", "cli", "--"]);
                cargo
            }
        };
        command
            .args(arguments)
            .env("DAT_OVERRIDE", self.file())
            .env("OPENDAT_PARAMS", "builtin=off");
        command.env_remove("DAT_DBG_TYPE");
        command.output().expect("cargo runs")
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.dat(&[arguments, &["--json"]].concat())).expect("JSON")
    }
}

fn utf8(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[test]
fn two_adapters_of_a_program_talk_to_each_other() -> Result<(), Box<dyn std::error::Error>> {
    const TIME_LIMIT: Option<Duration> = Some(Duration::from_secs(60));
    let dir = tempfile::tempdir()?;
    let conf = dir.path().join("dat.conf");
    let line = format!(
        "loop u2.0 nonthreadsafe default {} example.0.1 \"127.0.0.1\" \"\"\n",
        library().display()
    );
    std::fs::write(&conf, line)?;
    let registry = Registry::with_list(List::new(
        Some(conf.into()),
        Some("builtin=off".into()),
        Builtins::NONE,
    ));

    let (near, far) = (Adapter::open_in(&registry, "loop")?, Adapter::open_in(&registry, "loop")?);
    assert_eq!(near.attributes().provider, "loop");
    let (zone, far_zone) = (near.zone()?, far.zone()?);
    let (mut events, mut far_events) = (near.dispatcher(8)?, far.dispatcher(8)?);
    let memory = zone.register(b"sendRDMA write.........".to_vec(), Access::LOCAL)?;
    let far_memory = far_zone.register(b"________________RDMA read".to_vec(), Access::ALL)?;
    let mut client = near.endpoint().zone(&zone).events(&events).create()?;
    let mut server = far.endpoint().zone(&far_zone).events(&far_events).create()?;

    server.post_receive(&[far_memory.segment(0..6)?], 1)?;
    let listener = far.listen_any(&far_events)?;
    let address: Address = "127.0.0.1".parse()?;
    client.connect(address, listener.qualifier(), b"hello", TIME_LIMIT)?;
    let request = far_events.wait(TIME_LIMIT)?.request()?;
    assert_eq!(request.private_data()?, b"hello");
    request.accept(&mut server, &far_memory.remote().to_bytes())?;
    far_events.wait(TIME_LIMIT)?.established()?;
    let remote =
        RemoteRegion::from_bytes(&events.wait(TIME_LIMIT)?.established()?).ok_or("no region")?;

    client.post_write(&[memory.segment(4..14)?], remote.segment(6..16)?, 2, Flags::default())?;
    client.post_send(&[memory.segment(0..4)?], 3, Flags::default())?;
    client.post_read(&[memory.segment(14..23)?], remote.segment(16..25)?, 4, Flags::default())?;
    let mut reported = Vec::new();
    for _ in 0..3 {
        reported.push(events.wait(TIME_LIMIT)?.to_string());
    }
    reported.push(far_events.wait(TIME_LIMIT)?.to_string());
    let expected = [
        "RDMA write 2: done, 10 bytes",
        "send 3: done, 4 bytes",
        "RDMA read 4: done, 9 bytes",
        "receive 1: done, 4 bytes",
    ];
    assert_eq!(reported, expected);
    assert_eq!(far_memory.to_vec(0..16)?, b"send__RDMA write");
    assert_eq!(memory.to_vec(14..23)?, b"RDMA read");

    client.disconnect(Close::Graceful)?;
    events.wait(TIME_LIMIT)?.disconnected()?;
    far_events.wait(TIME_LIMIT)?.disconnected()?;
    Ok(())
}

/// Regression test: the error advised the user to name an --address and to start the server.
/// Neither helps: the adapter connects only within one process, and `dat ping` had started the
/// server.
#[test]
fn dat_ping_fails_without_advice_that_cannot_help() {
    let output = Registered::new().output(&["ping", "--adapter", "loop"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{errors}");
    assert!(errors.contains("connecting to 127.0.0.1 over loop"), "{errors}");
    assert!(errors.contains("the adapter connects only within one process"), "{errors}");
    assert!(!errors.contains("--address") && !errors.contains("start the server"), "{errors}");
}

#[test]
fn it_is_found_and_says_what_it_is() {
    let registered = Registered::new();
    let checked = registered.json(&["check", "--strict", utf8(&registered.file())]);
    assert_eq!(
        (&checked["entries"], checked["findings"].as_array().map(Vec::len)),
        (&2.into(), Some(0))
    );
    let listed = registered.json(&["list"]);
    let states: Vec<_> =
        listed["entries"].as_array().into_iter().flatten().map(|e| &e["state"]).collect();
    assert_eq!(states, ["opens", "opens"], "{listed}");
    let answer = registered.json(&["query", "loop"]);
    assert_eq!(answer["provider"]["provider_name"], "loop", "{answer}");
}

#[test]
fn it_does_what_the_standard_says() {
    /// Unsupported features: multi-path, which no provider of this project has, datagrams, which
    /// iWARP does not have, and peers in another process, whose memory is not shared.
    const UNSUPPORTED: [&str; 3] = [
        "the provider attribute supports_multipath is false",
        "the provider does not list DAT_IB_UD",
        "this adapter cannot connect to another process",
    ];
    let registered = Registered::new();
    let report = registered.json(&[
        "conformance",
        "--provider",
        "loop",
        "--registry",
        utf8(&registered.file()),
    ]);
    let cases = report["cases"].as_array().expect("a list");
    assert!(cases.len() > 700, "{}", report["all"]);
    for case in cases {
        let is_known = || UNSUPPORTED.iter().any(|reason| case["reason"] == *reason);
        assert!(
            case["verdict"] == "passed" || case["verdict"] == "unsupported" && is_known(),
            "{case}"
        );
    }
}
