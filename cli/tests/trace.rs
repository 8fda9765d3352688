//! Tests of `dat trace`: the log of a program's adapters, as text and as JSON.

mod json_schema;

use std::collections::BTreeMap;
use std::env;
use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use dat::{Access, Adapter, Close, EventDispatcher, Flags};

use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};
use serde_json::Value;

fn trace(options: &[&str], program: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dat"));
    command.arg("trace").args(options).arg("--").args(program);
    for variable in ["DAPL_DBG_TYPE", "DAPL_DBG_DEST", "DAT_DBG_TYPE", "OPENDAT_PARAMS"] {
        command.env_remove(variable);
    }
    command.env("DAT_OVERRIDE", "/dev/null").output().expect("the program starts")
}

/// The text in the first line of each process.
const BEGINS: &str = " INFO  dat: the log begins monotonic_ns=";

const PING: &[&str] = &[env!("CARGO_BIN_EXE_dat"), "ping", "--count", "3"];

/// Returns the lines that are the same in each run, without the first line of each process.
fn lines(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stderr);
    text.lines()
        .filter(|line| !line.contains(BEGINS))
        .map(|line| line.split_once("dat::").map_or(line, |(_, rest)| rest).to_owned())
        .collect()
}

#[test]
fn a_connection_is_logged_from_start_to_end() {
    let output = trace(&["--log", "dat::cm=debug,dat::ia=info"], PING);
    assert!(output.status.success(), "{output:?}");
    assert!(
        String::from_utf8_lossy(&output.stdout).contains("round trip"),
        "the program must print its usual output: {output:?}"
    );
    let lines = lines(&output);
    let has = |start: &str| {
        let count = lines.iter().filter(|line| line.starts_with(start)).count();
        assert!(count > 0, "no line {start:?}: {lines:#?}");
        count
    };
    // The two processes log this event.
    assert_eq!(has("ia: opened ia=tcp-emu handle="), 2);
    assert_eq!(has("cm: connecting ia=tcp-emu ep=0x"), has("cm: request ia=tcp-emu cr=0x"));
    assert!(lines.iter().any(|line| line.contains(" to=127.0.0.1 qualifier=")), "{lines:#?}");
    assert_eq!(has("cm: accepted ia=tcp-emu cr=0x") * 2, has("cm: established ia=tcp-emu ep=0x"));
    has("cm: ended ia=tcp-emu ep=0x");
    assert!(
        !lines.iter().any(|line| line.starts_with("ep:")),
        "the log must not contain states of endpoints: {lines:#?}"
    );
}

/// The test uses a program that ends by itself, because the two processes of `dat ping` are killed
/// when they have sent their result.
#[test]
fn opening_and_closing_an_adapter_is_logged() {
    let output = trace(&["--log", "info"], &[env!("CARGO_BIN_EXE_dat"), "query", "tcp-emu"]);
    let lines = lines(&output);
    let [opened, closed] = &lines[..] else { panic!("{lines:#?}") };
    assert!(opened.starts_with("ia: opened ia=tcp-emu handle="), "{opened}");
    assert!(closed.starts_with("ia: closed ia=tcp-emu handle="), "{closed}");
    let handle =
        |line: &str| line.split(' ').find(|word| word.starts_with("handle=")).map(str::to_owned);
    assert_eq!(handle(opened), handle(closed), "{lines:#?}");
}

#[test]
fn refused_calls_and_broken_connections_are_logged() {
    let dat = env!("CARGO_BIN_EXE_dat");
    let told = |case: &str| {
        let output = trace(&[], &[dat, "conformance", "--ia", "tcp-emu", case]);
        assert!(output.status.success(), "{output:?}");
        lines(&output)
    };
    let has = |lines: &[String], start: &str, end: &str| {
        let found = lines.iter().any(|line| line.starts_with(start) && line.ends_with(end));
        assert!(found, "no line {start:?} … {end:?}: {lines:#?}");
    };
    let lines = told("dat_ep_post_send/in-unconnected");
    let error = "error=DAT_INVALID_STATE, DAT_INVALID_STATE_EP_UNCONNECTED";
    has(&lines, "api: dat_ep_post_send is refused handle=0x", error);

    // Both ends log the failure: the owner of the memory and the requester.
    let lines = told("dat_ep_post_rdma_write/remote-pz");
    let ended = |because: &str, detail: &str| {
        let found = lines.iter().any(|line| {
            line.starts_with("cm: ended ia=tcp-emu ep=0x")
                && line.contains("event=DAT_CONNECTION_EVENT_BROKEN because=peer ")
                && line.contains(because)
                && line.ends_with(&format!(" detail={detail}"))
        });
        assert!(found, "no line … because={because} … detail={detail}: {lines:#?}");
    };
    ended(" may not write", "stream error: DDP tagged buffer: STag not associated with the stream");
    ended(
        " does not let this side write",
        "TERMINATE received: DDP tagged buffer: STag not associated with the stream",
    );
    let because = "a larger evd_min_qlen";
    has(&told("dat_evd_create/overflow"), "evd: events are lost ia=tcp-emu evd=0x", because);

    // The operation that fails or is flushed also says why.
    let privilege = "with DAT_MEM_PRIV_REMOTE_READ_FLAG";
    let lines = told("dat_ep_post_rdma_read/no-remote-read");
    has(&lines, "dto: failed ia=tcp-emu ep=0x", privilege);
}

/// Whoever asks for a peer's address for datagrams logs the answer, or why there is none.
#[test]
fn addresses_for_datagrams_are_logged() {
    let dat = env!("CARGO_BIN_EXE_dat");
    let told = |case: &str| {
        let case = format!("dat_extension_op/{case}");
        let program = [dat, "conformance", "--ia", "softroce", &case];
        let output = trace(&["--log", "dat::cm=debug"], &program);
        assert!(output.status.success(), "{output:?}");
        lines(&output)
    };
    let count = |lines: &[String], start: &str, part: &str| {
        lines.iter().filter(|line| line.starts_with(start) && line.contains(part)).count()
    };
    let lines = told("ud-established");
    for (start, part) in [
        ("cm: resolving ia=softroce ep=0x", " qualifier="),
        ("cm: request ia=softroce cr=0x", " from="),
        ("cm: answered ia=softroce cr=0x", " ep=0x"),
        ("cm: resolved ia=softroce ep=0x", " passive=false"),
        ("cm: resolved ia=softroce ep=0x", " passive=true"),
    ] {
        assert_eq!(count(&lines, start, part), 1, "{start}…{part}: {lines:#?}");
    }
    for (case, because) in [
        ("ud-rejected", " rejected the connection request with dat_cr_reject"),
        ("ud-nobody-listens", " refused the connection request: service ID not supported"),
    ] {
        let lines = told(case);
        let unresolved = count(&lines, "cm: unresolved ia=softroce ep=0x", because);
        assert_eq!(unresolved, 1, "{case}: {lines:#?}");
    }
}

/// In the log, each thread wakes up before it falls asleep again. The test does not compare
/// `waited_us` with `slept_us`, because the scheduler's accounting itself takes time.
#[test]
fn sleeps_and_wakeups_are_logged() {
    let output = trace(&["--log", "dat::wake=trace", "--json"], PING);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stderr);
    let lines = text.lines().map(|line| serde_json::from_str(line).expect("the line is JSON"));
    let lines: Vec<Value> = lines.filter(|line: &Value| line["target"] != "dat").collect();
    let mut asleep = BTreeMap::new();
    let (mut sleeps, mut asked) = (0, 0);
    for line in &lines {
        let place = (line["place"].clone(), line["on"].clone());
        let thread = (line["process"].as_u64().unwrap(), line["thread"].as_u64().unwrap());
        match line["message"].as_str().unwrap() {
            "falls asleep" => {
                assert_eq!(asleep.insert(thread, place), None, "the thread already sleeps: {line}")
            }
            "is awake" => {
                assert_eq!(
                    asleep.remove(&thread),
                    Some(place),
                    "the thread has not slept on this object: {line}"
                );
                assert!(line["slept_us"].is_u64() && line["waited_us"].is_u64(), "{line}");
                sleeps += 1;
            }
            "wakes" => asked += 1,
            _ => panic!("{line}"),
        }
    }
    assert!(sleeps > 0 && asked > 0, "{lines:#?}");
    // One thread of each process leaves the poller when its adapter is closed, because another
    // thread asks it to leave.
    assert!(
        lines.iter().any(|line| line["message"] == "wakes" && line["place"] == "poller"),
        "{lines:#?}"
    );
}

/// The number of messages that wait for a receive in the program below.
const WAITING_COUNT: usize = 3;
/// The size of each message in octets.
const MESSAGE_OCTETS: usize = 64;
/// The variable that names the adapter for the program below.
const IA_VARIABLE: &str = "OPENDAT_TEST_IA";
/// The time limit of every step.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A program that posts a receive for each line on its standard input. A message that arrives
/// before its receive is posted waits.
#[test]
#[ignore = "not a test: the program that `a_message_without_a_receive_is_logged_once` traces"]
fn late_receiver() -> Result<(), Box<dyn Error>> {
    let adapter = Adapter::open(&env::var(IA_VARIABLE)?)?;
    let zone = adapter.zone()?;
    let memory = zone.register(vec![7; MESSAGE_OCTETS], Access::ALL)?;
    let dispatcher = || adapter.dispatcher(8);
    let (mut calls, mut near_events, mut far_events) =
        (dispatcher()?, dispatcher()?, dispatcher()?);
    let mut near = adapter.endpoint().zone(&zone).events(&near_events).create()?;
    let mut far = adapter.endpoint().zone(&zone).events(&far_events).create()?;
    let listener = adapter.listen_any(&calls)?;
    far.connect("127.0.0.1".parse()?, listener.qualifier(), b"", Some(TIMEOUT))?;
    calls.wait(Some(TIMEOUT))?.request()?.accept(&mut near, b"")?;
    let next = |events: &mut EventDispatcher| events.wait(Some(TIMEOUT));
    next(&mut near_events)?.established()?;
    next(&mut far_events)?.established()?;

    // This message finds a posted receive, so it does not wait.
    near.post_receive(&[memory.segment(0..MESSAGE_OCTETS)?], 0)?;
    far.post_send(&[memory.segment(0..MESSAGE_OCTETS)?], 0, Flags::default())?;
    println!("{}, {}", next(&mut near_events)?, next(&mut far_events)?);
    for message in 1..=WAITING_COUNT as u64 {
        far.post_send(&[memory.segment(0..MESSAGE_OCTETS)?], message, Flags::default())?;
    }
    for message in 1..=WAITING_COUNT as u64 {
        std::io::stdin().read_line(&mut String::new())?;
        near.post_receive(&[memory.segment(0..MESSAGE_OCTETS)?], message)?;
        println!("{}, {}", next(&mut near_events)?, next(&mut far_events)?);
    }
    far.disconnect(Close::Graceful)?;
    next(&mut near_events)?.disconnected()?;
    Ok(next(&mut far_events)?.disconnected()?)
}

#[test]
fn a_message_without_a_receive_is_logged_once() {
    for ia in ["tcp-emu", "softroce"] {
        // If the log did not mention a waiting message, the program would wait for ever.
        let mut command = Command::new("timeout");
        command.args(["120", env!("CARGO_BIN_EXE_dat"), "trace", "--log", "dat::dto=info", "--"]);
        command.arg(env::current_exe().expect("this program"));
        command.args(["--exact", "late_receiver", "--include-ignored", "--nocapture"]);
        command.env(IA_VARIABLE, ia).env("DAT_OVERRIDE", "/dev/null");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut program = command.spawn().expect("the program starts");
        let mut go_on = program.stdin.take().expect("the input is piped");
        let mut told = Vec::new();
        // For each message that the log mentions, one receive is posted. Then the next message
        // follows.
        for line in BufReader::new(program.stderr.take().expect("the output is piped")).lines() {
            let line = line.expect("text");
            if line.contains(" and no receive is posted on this endpoint") {
                writeln!(go_on, "go on").expect("the program reads its input");
                told.push(line);
            }
        }
        let output = program.wait_with_output().expect("the program ends");
        assert!(output.status.success(), "{output:?}");
        assert_eq!(told.len(), WAITING_COUNT, "{told:#?}");
        for line in &told {
            let (_, text) = line.split_once("dat::dto: ").expect("the target");
            let (start, because) = text.split_once(" because=").expect(line);
            assert!(start.starts_with(&format!("waits ia={ia} ep=0x")), "{line}");
            assert_eq!(
                because,
                "peer 127.0.0.1 sent 64 octets and no receive is posted on this endpoint: post a \
                 receive for each message of the peer, the first ones before you connect or accept"
            );
        }
    }
}

#[test]
fn each_line_is_as_its_schema_says() {
    if !json_schema::is_installed() {
        return;
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("schema/trace.json");
    let schema = serde_json::from_str(&std::fs::read_to_string(path).expect("the file exists"))
        .expect("JSON");
    let output = trace(&["--json", "--log", "trace"], PING);
    let text = String::from_utf8_lossy(&output.stderr);
    let parse = |line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
    let lines: Vec<Value> = text.lines().map(parse).collect();
    assert_eq!(json_schema::errors(&schema, &lines), [""; 0], "{text}");
    let mut targets: Vec<String> = Vec::new();
    for line in lines {
        assert_eq!(line["version"], env!("CARGO_PKG_VERSION"), "{line:#}");
        targets.push(line["target"].as_str().expect("a target").to_owned());
        if line["message"] == "state" {
            assert!(line["ep"].as_str().is_some_and(|ep| ep.starts_with("0x")), "{line}");
        }
    }
    targets.sort();
    targets.dedup();
    for target in ["dat::api", "dat::cm", "dat::ep", "dat::ia"] {
        assert!(targets.iter().any(|told| told == target), "{targets:?}");
    }
}

/// The first line of a process says what the clocks showed, so that lines of several processes can
/// be put in order. The log goes to a socket that keeps the boundaries of its messages, so each
/// message is what one call has written.
#[test]
fn lines_of_several_processes_can_be_merged() {
    let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
    let (log, child_log) = socketpair(AddressFamily::UNIX, kind, flags, None).expect("sockets");
    let mut command = Command::new(env!("CARGO_BIN_EXE_dat"));
    command.args(["trace", "--json", "--log", "dat::cm=debug", "--"]).args(PING);
    for variable in ["DAPL_DBG_TYPE", "DAPL_DBG_DEST", "DAT_DBG_TYPE", "OPENDAT_PARAMS"] {
        command.env_remove(variable);
    }
    command.env("DAT_OVERRIDE", "/dev/null").stdout(Stdio::null()).stderr(child_log);
    let mut child = command.spawn().expect("the program starts");
    // The command has this process's end of the child's socket.
    drop(command);
    let (mut zeros, mut times) = (BTreeMap::new(), Vec::new());
    let mut written = [0; 1 << 16];
    loop {
        let (length, _) = recv(&log, &mut written, RecvFlags::empty()).expect("a line");
        if length == 0 {
            break;
        }
        let text = std::str::from_utf8(&written[..length]).expect("text");
        let line = text.strip_suffix('\n').unwrap_or_else(|| panic!("not a whole line: {text}"));
        let line: Value = serde_json::from_str(line).unwrap_or_else(|why| panic!("{why}: {line}"));
        let process = line["process"].as_u64().expect("a process ID");
        let seconds = line["seconds"].as_f64().expect("a time");
        if line["message"] == "the log begins" {
            let zero = |clock: &str| line[clock].as_u64().expect("the time of a clock");
            // The test was written in 2026.
            assert!(zero("realtime_ns") > 1_750_000_000_000_000_000, "{line}");
            let other = zeros.insert(process, zero("monotonic_ns"));
            assert_eq!(other, None, "{line}");
            continue;
        }
        let zero = zeros.get(&process).unwrap_or_else(|| panic!("no first line: {line}"));
        let message = line["message"].as_str().expect("a message").to_owned();
        times.push((*zero as f64 + seconds * 1e9, process, message));
    }
    assert!(child.wait().expect("the child ends").success());
    let first = |wanted: &str| {
        let found = times.iter().find(|(.., message)| message == wanted);
        found.unwrap_or_else(|| panic!("no {wanted}: {times:#?}"))
    };
    // A request arrives after it has left, in another process.
    let ((left, client, _), (arrived, server, _)) = (first("connecting"), first("request"));
    assert_ne!(client, server);
    assert!(left <= arrived, "{times:#?}");
}

#[test]
fn a_full_standard_error_disturbs_no_program() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("the file exists");
    let mut ping = Command::new(PING[0]);
    ping.args(&PING[1..]).env("OPENDAT_LOG", "trace").env("DAT_OVERRIDE", "/dev/null").stderr(full);
    let output = ping.output().expect("the program starts");
    assert!(output.status.success(), "{output:?}");
}

/// Runs `dat query` in an environment with these variables. Returns the lines of standard output
/// and of standard error. An invalid parameter keeps the adapter from opening, and the program
/// prints the error of the registry as its last message. The reason is a part of that error, so the
/// library writes it only because DAT_DBG_TYPE asks for it.
fn failed_query(variables: &[(&str, &str)]) -> [Vec<String>; 2] {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dat"));
    command.args(["query", "tcp-emu"]);
    for variable in ["DAPL_DBG_TYPE", "DAPL_DBG_DEST", "DAT_DBG_TYPE", "DAT_DBG_DEST"] {
        command.env_remove(variable);
    }
    command.env("DAT_OVERRIDE", "/dev/null").env("OPENDAT_PARAMS", "crc=maybe");
    command.env("DAT_DBG_TYPE", "1");
    let output = command.envs(variables.iter().copied()).output().expect("the program starts");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    [output.stdout, output.stderr].map(|text| {
        let text = String::from_utf8(text).expect("text");
        text.lines().map(str::to_owned).collect()
    })
}

/// Returns the lines of a failed query that come before the error of the registry.
fn messages(variables: &[(&str, &str)]) -> [Vec<String>; 2] {
    failed_query(variables).map(|lines| {
        lines.into_iter().take_while(|line| !line.starts_with("dat: cannot open IA")).collect()
    })
}

const REASON: &str = "tcp-emu (tcp-emu): OPENDAT_PARAMS: crc=maybe: expected on or off";

#[test]
fn messages_go_where_the_log_goes() {
    let reason = [format!("dat: {REASON}")];
    assert_eq!(messages(&[]), [&[][..], &reason]);
    assert_eq!(messages(&[("DAPL_DBG_DEST", "1")]), [&reason[..], &[]]);
    // The registry's variable DAT_DBG_DEST applies to messages but not to the log. For messages it
    // takes precedence over DAPL_DBG_DEST.
    assert_eq!(messages(&[("DAT_DBG_DEST", "1")]), [&reason[..], &[]]);
    assert_eq!(messages(&[("DAPL_DBG_DEST", "1"), ("DAT_DBG_DEST", "0")]), [&[][..], &reason]);
    assert_eq!(messages(&[("DAT_DBG_TYPE", "0")]), [const { Vec::<String>::new() }; 2]);

    let [stdout, stderr] = messages(&[("DAPL_DBG_DEST", "1"), ("OPENDAT_LOG", "degub")]);
    assert!(stderr.is_empty(), "{stderr:#?}");
    let [refusal, line] = &stdout[..] else { panic!("{stdout:#?}") };
    assert!(refusal.starts_with("dat: OPENDAT_LOG=degub: degub is neither"), "{refusal}");
    assert_eq!(*line, reason[0]);
}

#[test]
fn messages_are_json_if_the_log_is() {
    let [stdout, stderr] = messages(&[("OPENDAT_LOG", "json,degub")]);
    assert!(stdout.is_empty(), "{stdout:#?}");
    let lines: Vec<Value> =
        stderr.iter().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let [refusal, reason, _] = &lines[..] else { panic!("{lines:#?}") };
    let text = refusal["message"].as_str().expect("text");
    assert!(text.starts_with("OPENDAT_LOG=json,degub: degub is neither"), "{text}");
    assert_eq!((&reason["target"], &reason["level"]), (&"dat".into(), &"warn".into()));
    assert_eq!(reason["message"], REASON);
    assert!(reason["process"].is_u64() && reason["seconds"].is_f64(), "{reason}");
    for line in &lines {
        assert_eq!(line["version"], env!("CARGO_PKG_VERSION"), "{line}");
    }
}

#[test]
fn a_reason_that_is_logged_is_no_message_as_well() {
    let [_, stderr] = messages(&[("OPENDAT_LOG", "warn")]);
    let [first, line] = &stderr[..] else { panic!("{stderr:#?}") };
    assert!(first.contains(BEGINS), "{first}");
    assert!(line.contains(" WARN  dat::ia: the adapter cannot be opened"), "{line}");
    assert!(line.ends_with("error=OPENDAT_PARAMS: crc=maybe: expected on or off"), "{line}");
    let [_, stderr] = messages(&[("OPENDAT_LOG", "dat::cm=warn")]);
    assert_eq!(stderr[1..], [format!("dat: {REASON}")]);
}

#[test]
fn an_error_that_a_program_prints_is_reported_only_if_asked_for() {
    let count = |types| {
        let [stdout, _] = failed_query(&[("DAT_DBG_DEST", "1"), ("DAT_DBG_TYPE", types)]);
        stdout.iter().filter(|line| line.starts_with("dat: cannot open IA")).count()
    };
    assert_eq!([count("4"), count("1")], [0, 1]);
}

#[test]
fn invalid_log_targets_are_reported() {
    let output = trace(&["--log", "dat::ep=loud"], PING);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("invalid value 'dat::ep=loud' for '--log <WHAT>'"), "{text}");

    // An invalid value in the environment of a program does not prevent it from running.
    let mut ping = Command::new(PING[0]);
    ping.args(&PING[1..]).env("OPENDAT_LOG", "degub").env("DAT_OVERRIDE", "/dev/null");
    let output = ping.output().expect("the program starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert!(
        text.contains("dat: OPENDAT_LOG=degub: degub is neither a level nor a target"),
        "{text}"
    );

    let output = trace(&[], &["/nonexistent/program"]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        text,
        "dat: /nonexistent/program cannot be run: No such file or directory (os error 2)\n"
    );
    assert_eq!(output.status.code(), Some(127));
}
