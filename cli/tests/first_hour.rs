//! Tests of the errors that a new user sees in the first hour. Each error must report what
//! happened, where it happened, and what to do. `snapshots/` contains the texts for review.
//! `INSTA_UPDATE=always` rewrites them.

use std::fmt::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use dat::{Access, Adapter, Close, Endpoint, Event, EventDispatcher, Flags, ProtectionZone};

const TIMEOUT: Option<Duration> = Some(Duration::from_secs(20));

/// Entries that do not open, each for a different reason.
const REGISTRY: &str = "\
older u1.2 nonthreadsafe default libdat_tcp_emu.so opendat.0.1 \"\" \"\"
lost u2.0 nonthreadsafe default libopendat_gone.so vendor.1.0 \"\" \"\"
no-library u2.0 nonthreadsafe default /etc/passwd vendor.1.0 \"\" \"\"
no-provider u2.0 nonthreadsafe default libc.so.6 vendor.1.0 \"\" \"\"
short u2.0 nonthreadsafe default libdat_tcp_emu.so
";

#[test]
fn program_errors_name_event_place_and_remedy() {
    let dir = tempfile::tempdir().expect("a directory");
    let conf = dir.path().join("dat.conf");
    std::fs::write(&conf, REGISTRY).expect("the file can be written");
    let mut output_text = String::new();
    for arguments in [
        &["query", "no-such-ia"][..],
        &["query", "older"],
        &["query", "lost"],
        &["query", "no-library"],
        &["query", "no-provider"],
        &["query", "short"],
        &["ping", "--adapter", "no-such-ia"],
        &["ping", "--address", "192.0.2.1"],
        &["ping", "no-such-host.invalid"],
        &["ping", "127.0.0.1:1"],
        &["bench", "--sizes", "huge"],
        &["check", "no-such-file"],
        &["register", "", "libdat_tcp_emu.so"],
        &["top", "1"],
        &["lsit"],
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_dat"))
            .args(arguments)
            .env("DAT_OVERRIDE", &conf)
            .env_remove("DAT_DBG_TYPE")
            .stdin(Stdio::null())
            .output()
            .expect("the program starts");
        assert!(!output.status.success(), "{arguments:?}");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let text = text.replace(&conf.display().to_string(), "my.conf");
        let libc = text.find("/libc.so.6: undefined").map(|end| {
            let start = text[..end].rfind(' ').map_or(0, |at| at + 1);
            text[start..end].to_owned()
        });
        let text = libc.map_or(text.clone(), |dir| text.replace(&dir, "/lib"));
        writeln!(output_text, "$ dat {}\n{}", arguments.join(" "), text.trim_end())
            .expect("a string");
        output_text.push('\n');
    }
    insta::assert_snapshot!("programs", output_text);
}

/// One end of a connection.
struct Side {
    adapter: Adapter,
    zone: ProtectionZone,
    events: EventDispatcher,
    endpoint: Endpoint,
}

impl Side {
    fn new() -> Side {
        let adapter = Adapter::open("tcp-emu").expect("tcp-emu opens without any configuration");
        let zone = adapter.zone().expect("a zone");
        let events = adapter.dispatcher(32).expect("a dispatcher");
        let endpoint =
            adapter.endpoint().zone(&zone).events(&events).create().expect("an endpoint");
        Side { adapter, zone, events, endpoint }
    }

    fn event(&mut self) -> Event {
        self.events.wait(TIMEOUT).expect("an event")
    }
}

fn connected() -> (Side, Side) {
    let (mut client, mut server) = (Side::new(), Side::new());
    let listener = server.adapter.listen_any(&server.events).expect("the listener opens");
    let here = "127.0.0.1".parse().expect("an address");
    client
        .endpoint
        .connect(here, listener.qualifier(), b"", TIMEOUT)
        .expect("the attempt to connect begins");
    server
        .event()
        .request()
        .expect("a request")
        .accept(&mut server.endpoint, b"")
        .expect("the request is accepted");
    server.event().established().expect("the connection is established");
    client.event().established().expect("the connection is established");
    (client, server)
}

#[test]
fn operation_errors_name_event_place_and_remedy() {
    let mut output_text = String::new();
    let mut report = |what: &str, text: &dyn std::fmt::Display| {
        writeln!(output_text, "{what}\n    {text}\n").expect("a string");
    };

    let mut lonely = Side::new();
    let here = "127.0.0.1".parse().expect("an address");
    let error = lonely
        .endpoint
        .post_send(&[], 1, Flags::default())
        .expect_err("an unconnected endpoint must refuse a send");
    report("a send on an endpoint that is not connected", &error);
    lonely.endpoint.connect(here, 1, b"", TIMEOUT).expect("the attempt to connect begins");
    let error =
        lonely.event().established().expect_err("the attempt must fail, because nobody listens");
    report("a connection to a port without a listener", &error);
    let error =
        lonely.adapter.dispatcher(1 << 30).err().expect("an EVD of that length must be refused");
    report("a dispatcher with a longer queue than the adapter permits", &error);

    let (mut client, server) = connected();
    let foreign = client
        .adapter
        .zone()
        .expect("a zone")
        .register(vec![0; 8], Access::ALL)
        .expect("the memory can be registered");
    let error = client.endpoint.post_send(
        &[foreign.segment(0..8).expect("the segment is inside the region")],
        1,
        Flags::default(),
    );
    report("a send of memory of another protection zone", &error.expect_err("another zone"));
    let fixed =
        client.zone.register(vec![0; 8], Access::LOCAL_READ).expect("the memory can be registered");
    let error = client
        .endpoint
        .post_receive(&[fixed.segment(0..8).expect("the segment is inside the region")], 1);
    report("a receive into memory that may not be written", &error.expect_err("no privilege"));
    let memory =
        client.zone.register(vec![0; 64], Access::ALL).expect("the memory can be registered");
    let error = memory.segment(60..70).expect_err("a range outside the region must be refused");
    report("a segment that extends beyond its memory", &error);
    let error = client
        .endpoint
        .connect(here, 1, b"", TIMEOUT)
        .expect_err("a connected endpoint cannot connect again");
    report("a connect on an endpoint that is already connected", &error);

    let private =
        server.zone.register(vec![0; 64], Access::LOCAL).expect("the memory can be registered");
    let target = private.remote().segment(0..8).expect("the segment is inside the region");
    let data = memory.segment(0..8).expect("the segment is inside the region");
    client.endpoint.post_read(&[data], target, 1, Flags::default()).expect("the post succeeds");
    let mut events: Vec<String> = (0..2).map(|_| client.event().to_string()).collect();
    events.sort();
    report(
        "a read of memory that the peer has not registered for remote reads",
        &events.join("\n    "),
    );

    let (mut client, mut server) = connected();
    client.endpoint.disconnect(Close::Graceful).expect("the disconnect begins");
    report("the peer disconnects", &server.event());
    let error = server
        .endpoint
        .connect(here, 1, b"", TIMEOUT)
        .expect_err("the endpoint must be reset before it connects again");
    report("a connect on an endpoint whose connection has ended", &error);
    insta::assert_snapshot!("operations", output_text);
}
