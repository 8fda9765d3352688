//! Tests that write captures and read them back with an independent reader.

mod reader;

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use capture::{Capture, Datagram, Direction, Flow, OpenError};

use self::reader::{Body, Contents, Packet};

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;

fn open(path: &Path, interface: &str) -> Capture {
    Capture::open(path.to_str().expect("UTF-8"), interface).unwrap_or_else(|e| panic!("{e}"))
}

fn read(path: &Path) -> Contents {
    reader::read(&fs::read(path).expect("the file"))
}

fn addr(text: &str) -> SocketAddr {
    text.parse().expect(text)
}

struct Scratch {
    _dir: tempfile::TempDir,
    file: PathBuf,
}

fn scratch() -> Scratch {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("capture.pcapng");
    Scratch { _dir: dir, file }
}

#[test]
fn datagrams_of_all_lengths_over_both_families() {
    let scratch = scratch();
    let capture = open(&scratch.file, "softroce");
    let payload: Vec<u8> = (0..65_507).map(|i| (i * 7) as u8).collect();
    let mut expected = Vec::new();
    for (src, dst) in [("10.77.0.1:4791", "10.77.0.3:4791"), ("[fd77::1]:49152", "[fd77::3]:4791")]
    {
        for length in [0, 1, 2, 3, 4, 5, 16, 17, 1039, 1040, 4096, 65_507] {
            let id = (length as u16).rotate_left(3);
            let (direction, number) =
                if length % 2 == 0 { (Direction::Out, 2) } else { (Direction::In, 1) };
            let datagram = Datagram {
                src: addr(src),
                dst: addr(dst),
                id,
                dont_fragment: length % 3 == 0,
                payload: &payload[..length],
            };
            capture.udp(Instant::now(), direction, &datagram);
            let id = addr(src).is_ipv4().then_some((id, length % 3 == 0));
            expected.push((
                addr(src),
                addr(dst),
                number,
                Body::Udp { id, payload: payload[..length].into() },
            ));
        }
    }
    // The file is read before it is closed, because a killed process must also leave a readable
    // file.
    let contents = read(&scratch.file);
    assert_eq!(contents.sections.len(), 1);
    let (application, interfaces) = &contents.sections[0];
    assert!(
        application.starts_with("OpenDAT ")
            && application.contains(&std::process::id().to_string())
    );
    assert_eq!(interfaces, &["softroce"]);
    let got = contents
        .packets
        .into_iter()
        .map(|Packet { src, dst, direction, body, .. }| (src, dst, direction, body));
    assert!(got.eq(expected));
}

#[test]
fn families_that_differ_meet_in_ipv6_and_what_is_too_long_is_cut_off() {
    let scratch = scratch();
    let capture = open(&scratch.file, "x");
    let payload = vec![1; 70_000];
    for (src, dst) in
        [("10.0.0.1:1", "[::2]:2"), ("[::1]:1", "10.0.0.2:2"), ("10.0.0.1:1", "10.0.0.2:2")]
    {
        let datagram = Datagram {
            src: addr(src),
            dst: addr(dst),
            id: 0,
            dont_fragment: true,
            payload: &payload,
        };
        capture.udp(Instant::now(), Direction::Out, &datagram);
    }
    let packets = read(&scratch.file).packets;
    assert_eq!(packets[0].src, addr("[::ffff:10.0.0.1]:1"));
    assert_eq!(packets[1].dst, addr("[::ffff:10.0.0.2]:2"));
    for packet in packets {
        assert!(matches!(packet.body, Body::Udp { payload, .. } if payload.len() == 65_507));
    }
}

#[test]
fn time_is_that_of_the_packet() {
    let scratch = scratch();
    let before =
        SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock shows a time after 1970");
    let capture = open(&scratch.file, "x");
    let now = Instant::now();
    let after =
        SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock shows a time after 1970");
    let datagram = Datagram {
        src: addr("10.0.0.1:1"),
        dst: addr("10.0.0.2:2"),
        id: 0,
        dont_fragment: true,
        payload: &[],
    };
    let offsets = [0, 1, 999, 1_000_000_007];
    for offset in offsets {
        capture.udp(now + Duration::from_nanos(offset), Direction::Out, &datagram);
    }
    capture.udp(now - Duration::from_secs(3), Direction::Out, &datagram);
    let nanos: Vec<u64> = read(&scratch.file).packets.iter().map(|packet| packet.nanos).collect();
    assert!((before.as_nanos()..=after.as_nanos()).contains(&u128::from(nanos[0])));
    assert_eq!(
        nanos[1..4],
        offsets[1..].iter().map(|offset| nanos[0] + offset).collect::<Vec<_>>()
    );
    assert_eq!(nanos[4], nanos[0] - 3_000_000_000);
}

/// The direction, the flags and the payload length of each segment.
fn segments(packets: &[Packet]) -> Vec<(u32, u8, usize)> {
    let segment = |packet: &Packet| match &packet.body {
        Body::Tcp { flags, payload, .. } => (packet.direction, *flags, payload.len()),
        Body::Udp { .. } => panic!("{packet:?}"),
    };
    packets.iter().map(segment).collect()
}

/// Checks the sequence numbers: the octets of each side have no gaps, and each acknowledgement is
/// for octets that were sent. Returns the octets that each side has sent, the incoming octets
/// first.
fn streams(packets: &[Packet]) -> [Vec<u8>; 2] {
    let mut next: [Option<u32>; 2] = [None; 2];
    let mut streams = [Vec::new(), Vec::new()];
    for packet in packets {
        let Body::Tcp { sequence, acknowledged, flags, payload } = &packet.body else {
            panic!("{packet:?}")
        };
        let (from, to) = if packet.direction == 1 { (0, 1) } else { (1, 0) };
        assert_eq!(*sequence, next[from].unwrap_or(*sequence));
        match flags & ACK {
            0 => assert_eq!((*acknowledged, *flags), (0, SYN)),
            _ => assert_eq!(Some(*acknowledged), next[to]),
        }
        assert!(payload.len() <= 65_495);
        streams[from].extend(payload);
        let numbered = payload.len() as u32 + u32::from(flags & (SYN | FIN) != 0);
        next[from] = Some(sequence.wrapping_add(numbered));
    }
    streams
}

const CLIENT: &str = "192.0.2.1:40000";
const SERVER: &str = "192.0.2.2:7174";

fn flow(capture: &Capture, local: &str, peer: &str, opened: Direction) -> Flow {
    capture
        .tcp(Instant::now(), addr(local), addr(peer), opened)
        .expect("the connection is not recorded yet")
}

#[test]
fn a_connection_from_its_first_segment_to_its_last() {
    let scratch = scratch();
    let capture = open(&scratch.file, "tcp-emu");
    let mut flow = flow(&capture, CLIENT, SERVER, Direction::Out);
    let now = Instant::now();
    flow.data(now, Direction::Out, b"request");
    flow.data(now, Direction::In, b"reply");
    flow.data(now, Direction::In, b"");
    flow.finish(now, Direction::Out);
    flow.finish(now, Direction::Out);
    flow.data(now, Direction::In, b"last words");
    flow.finish(now, Direction::In);
    flow.data(now, Direction::In, b"none");
    drop(flow);
    let packets = read(&scratch.file).packets;
    let expected = [
        (2, SYN, 0),
        (1, SYN | ACK, 0),
        (2, ACK, 0),
        (2, ACK | PSH, 7),
        (1, ACK | PSH, 5),
        (2, FIN | ACK, 0),
        (1, ACK, 0),
        (1, ACK | PSH, 10),
        (1, FIN | ACK, 0),
        (2, ACK, 0),
    ];
    assert_eq!(segments(&packets), expected);
    assert_eq!(streams(&packets), [b"replylast words".to_vec(), b"request".to_vec()]);
    assert_eq!((packets[0].src, packets[0].dst), (addr(CLIENT), addr(SERVER)));
}

#[test]
fn the_passive_side_and_a_reset() {
    let scratch = scratch();
    let capture = open(&scratch.file, "tcp-emu");
    let mut flow = flow(&capture, "[::1]:7174", "[::1]:40000", Direction::In);
    flow.reset(Instant::now(), Direction::In);
    flow.data(Instant::now(), Direction::Out, b"too late");
    drop(flow);
    let packets = read(&scratch.file).packets;
    assert_eq!(
        segments(&packets),
        [(1, SYN, 0), (2, SYN | ACK, 0), (1, ACK, 0), (1, RST | ACK, 0)]
    );
    assert_eq!(streams(&packets), [const { Vec::<u8>::new() }; 2]);
}

#[test]
fn a_flow_that_is_dropped_has_closed() {
    let scratch = scratch();
    let capture = open(&scratch.file, "tcp-emu");
    drop(flow(&capture, CLIENT, SERVER, Direction::Out));
    assert_eq!(segments(&read(&scratch.file).packets)[3..], [(2, FIN | ACK, 0), (1, ACK, 0)]);
}

/// Sequence numbers wrap during this transfer.
#[test]
fn a_long_stream_is_cut_and_acknowledged() {
    let scratch = scratch();
    let capture = open(&scratch.file, "tcp-emu");
    let sent: Vec<u8> = (0..3_000_000u32).map(|i| (i ^ (i >> 8)) as u8).collect();
    for _ in 0..8 {
        let mut flow = flow(&capture, CLIENT, SERVER, Direction::Out);
        for piece in sent.chunks(100_000) {
            flow.data(Instant::now(), Direction::In, piece);
        }
        flow.data(Instant::now(), Direction::Out, &sent);
    }
    let packets = read(&scratch.file).packets;
    let connections: Vec<_> =
        packets.chunk_by(|_, next| segments(std::slice::from_ref(next))[0].1 != SYN).collect();
    assert_eq!(connections.len(), 8);
    for packets in connections {
        assert!(streams(packets) == [sent.clone(), sent.clone()]);
        let acknowledgements =
            segments(packets).iter().filter(|segment| **segment == (2, ACK, 0)).count();
        assert!((14..=17).contains(&acknowledgements), "{acknowledgements}");
    }
}

#[test]
fn a_connection_within_a_file_is_recorded_once() {
    let scratch = scratch();
    let (a, b) = (open(&scratch.file, "a"), open(&scratch.file, "b"));
    let (client, server) = (addr(CLIENT), addr(SERVER));
    let now = Instant::now();
    let first = a.tcp(now, client, server, Direction::Out).expect("the connection is new");
    assert!(b.tcp(now, server, client, Direction::In).is_none());
    assert!(a.tcp(now, server, client, Direction::In).is_none());
    drop(first);
    assert!(b.tcp(now, server, client, Direction::In).is_some());
}

#[test]
fn captures_of_one_name_share_a_file_and_later_ones_go_on() {
    let scratch = scratch();
    let datagram = |port| Datagram {
        src: SocketAddr::from(([10, 0, 0, 1], port)),
        dst: addr("10.0.0.2:2"),
        id: 0,
        dont_fragment: true,
        payload: &[],
    };
    let (a, b) = (open(&scratch.file, "a"), open(&scratch.file, "b"));
    b.udp(Instant::now(), Direction::Out, &datagram(1));
    a.udp(Instant::now(), Direction::Out, &datagram(0));
    drop(a);
    b.udp(Instant::now(), Direction::Out, &datagram(1));
    drop(b);
    open(&scratch.file, "c").udp(Instant::now(), Direction::Out, &datagram(2));
    let contents = read(&scratch.file);
    let interfaces: Vec<_> =
        contents.sections.iter().map(|(_, interfaces)| interfaces.clone()).collect();
    assert_eq!(interfaces, [vec!["a", "b"], vec!["c"]]);
    let filed: Vec<_> =
        contents.packets.iter().map(|p| (p.section, p.interface, p.src.port())).collect();
    assert_eq!(filed, [(0, 1, 1), (0, 0, 0), (0, 1, 1), (1, 0, 2)]);
}

/// Tests that the file is complete and consists of whole blocks if some threads open and close
/// captures while others record.
#[test]
fn many_threads() {
    let scratch = scratch();
    let record = |thread: u16| {
        for number in 0..200 {
            let capture = open(&scratch.file, "x");
            let datagram = Datagram {
                src: SocketAddr::from(([10, 0, 0, 1], thread)),
                dst: addr("10.0.0.2:2"),
                id: number,
                dont_fragment: true,
                payload: &[0; 100],
            };
            capture.clone().udp(Instant::now(), Direction::In, &datagram);
            let mut batch = capture.batch();
            batch.udp(Instant::now(), Direction::In, &datagram);
            batch.udp(Instant::now(), Direction::In, &datagram);
        }
    };
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || record(thread));
        }
    });
    let packets = read(&scratch.file).packets;
    for thread in 0..4 {
        let of_thread = packets.iter().filter(|packet| packet.src.port() == thread);
        let ids = of_thread.map(|packet| match packet.body {
            Body::Udp { id: Some((id, true)), .. } => id,
            _ => panic!("{packet:?}"),
        });
        assert!(ids.eq((0..200).flat_map(|number| [number; 3])));
    }
}

fn record(capture: &Capture) {
    let (src, dst) = (addr("10.0.0.1:1"), addr("10.0.0.2:2"));
    let datagram = Datagram { src, dst, id: 0, dont_fragment: true, payload: &[] };
    capture.udp(Instant::now(), Direction::Out, &datagram);
}

#[test]
fn a_file_is_new_and_belongs_to_its_owner() {
    let scratch = scratch();
    let name = scratch.file.to_str().expect("UTF-8");
    fs::write(&scratch.file, "something else").expect("the file can be written");
    let error = Capture::open(name, "x").expect_err("the file exists");
    assert!(matches!(error, OpenError::Exists(_)));
    assert!(error.to_string().ends_with("or put append: before the name"), "{error}");
    assert_eq!(fs::read(&scratch.file).expect("the file exists"), b"something else");
    let fresh = scratch.file.with_extension("fresh");
    let _capture = open(&fresh, "x");
    assert_eq!(fs::metadata(fresh).expect("the file exists").permissions().mode() & 0o777, 0o600);
}

/// A symbolic link of another user may lead to a file that this user must not change.
#[test]
fn links_are_not_followed() {
    let scratch = scratch();
    let (target, link) =
        (scratch.file.with_extension("target"), scratch.file.with_extension("link"));
    fs::write(&target, "precious").expect("the file can be written");
    symlink(&target, &link).expect("a link");
    for prefix in ["", "append:"] {
        let name = format!("{prefix}{}", link.display());
        let error = Capture::open(&name, "x").expect_err("a link");
        assert!(matches!(error, OpenError::NotAFile(_)), "{error}");
    }
    fs::remove_file(&target).expect("the file can be removed");
    Capture::open(link.to_str().expect("UTF-8"), "x").expect_err("a link to nothing");
    assert!(!target.exists());
}

#[test]
fn a_file_that_is_there_can_be_gone_on_with() {
    let scratch = scratch();
    let earlier = scratch.file.with_extension("earlier");
    record(&open(&scratch.file, "a"));
    fs::rename(&scratch.file, &earlier).expect("the path can be renamed");
    let name = format!("append:{}", earlier.display());
    record(&Capture::open(&name, "b").expect("the file opens"));
    let contents = read(&earlier);
    assert_eq!((contents.sections.len(), contents.packets.len()), (2, 2));
}

#[test]
fn what_is_no_capture_is_not_appended_to() {
    let scratch = scratch();
    let name = format!("append:{}", scratch.file.display());
    for text in ["x", "some other text"] {
        fs::write(&scratch.file, text).expect("the file can be written");
        let error = Capture::open(&name, "x").expect_err("the file must not be overwritten");
        assert!(matches!(error, OpenError::NotACapture(_)), "{error}");
        assert_eq!(fs::read_to_string(&scratch.file).expect("the file exists"), text);
    }
    fs::write(&scratch.file, "").expect("the file can be written");
    record(&Capture::open(&name, "x").expect("an empty file may be overwritten"));
    assert_eq!(read(&scratch.file).packets.len(), 1);
}

/// The blocks up to the limit are whole, whether packets are written singly or in batches. Later
/// packets are not recorded, not even those that would fit.
#[test]
fn a_file_ends_before_the_packet_that_would_exceed_its_limit() {
    const LIMIT: u64 = 600 << 10;
    let datagram = |id, payload| Datagram {
        src: addr("10.0.0.1:1"),
        dst: addr("10.0.0.2:2"),
        id,
        dont_fragment: true,
        payload,
    };
    for is_batch in [false, true] {
        let scratch = scratch();
        let name = format!("{},max={LIMIT}", scratch.file.display());
        let capture = Capture::open(&name, "x").expect("the file opens");
        let mut batch = is_batch.then(|| capture.batch());
        for id in 0..1000 {
            let datagram = datagram(id, &[7; 1000]);
            match &mut batch {
                Some(batch) => batch.udp(Instant::now(), Direction::Out, &datagram),
                None => capture.udp(Instant::now(), Direction::Out, &datagram),
            }
        }
        drop(batch);
        capture.udp(Instant::now(), Direction::Out, &datagram(1000, &[]));
        let flow = flow(&capture, CLIENT, SERVER, Direction::Out);
        let length = fs::metadata(&scratch.file).expect("the file exists").len();
        let packets = read(&scratch.file).packets;
        let longest_block = 1000 + 100;
        assert!(length <= LIMIT && length + longest_block > LIMIT, "{is_batch}: {length}");
        for (number, packet) in packets.iter().enumerate() {
            let Body::Udp { id, payload } = &packet.body else { panic!("{packet:?}") };
            assert_eq!((*id, payload.len()), (Some((number as u16, true)), 1000), "{is_batch}");
        }
        drop((flow, capture));
        assert_eq!(fs::metadata(&scratch.file).expect("the file stays").len(), length);
    }
}

/// A limit is one of the whole file: what was in it before counts, and so do the packets of other
/// captures.
#[test]
fn the_limit_is_that_of_the_whole_file() {
    let scratch = scratch();
    let name = format!("append:{},max=4K", scratch.file.display());
    let length = || fs::metadata(&scratch.file).expect("the file exists").len();
    let mut opened = Vec::new();
    for adapter in ["a", "b", "c"] {
        opened.push(Capture::open(&name, adapter).expect("the file opens"));
        for _ in 0..30 {
            opened.iter().for_each(record);
        }
    }
    assert_eq!(read(&scratch.file).sections[0].1, ["a", "b"]);
    assert!((4000..=4096).contains(&length()), "{}", length());
    drop(opened);
    let full = fs::read(&scratch.file).expect("the file");
    // The adapter opens, although nothing can be recorded any more.
    record(&Capture::open(&name, "d").expect("the file opens"));
    assert!(fs::read(&scratch.file).expect("the file") == full);
    // A larger limit has room again.
    record(&Capture::open(&name.replace("4K", "1M"), "e").expect("the file opens"));
    assert_eq!(read(&scratch.file).sections[1].1, ["e"]);
}

/// `dat list` opens and closes an adapter without recording a packet.
#[test]
fn a_file_without_packets_is_taken_away() {
    let scratch = scratch();
    for _ in 0..2 {
        drop(open(&scratch.file, "x"));
        assert!(!scratch.file.exists());
    }
    record(&open(&scratch.file, "x"));
    drop(open(&scratch.file, "x"));
    assert_eq!(read(&scratch.file).packets.len(), 1);
}

#[test]
fn names_are_expanded() {
    let scratch = scratch();
    let pattern = scratch.file.with_extension("%p.%n");
    let (a, b) = (open(&pattern, "a"), open(&pattern, "b"));
    assert_ne!(a.path(), b.path());
    for capture in [a, b] {
        let name = capture.path().display().to_string();
        assert!(name.contains(&format!("capture.{}.", std::process::id())), "{name}");
        assert_eq!(read(capture.path()).sections.len(), 1);
    }
}

#[test]
fn what_cannot_be_written_is_said_at_once() {
    let scratch = scratch();
    let dir = scratch.file.parent().expect("a directory");
    let error = |path: &Path| {
        Capture::open(path.to_str().expect("UTF-8"), "x")
            .expect_err("a file that cannot be written must be refused")
    };

    let missing = dir.join("missing/capture.pcapng");
    let text = error(&missing).to_string();
    assert_eq!(text, format!("{}: No such file or directory (os error 2)", missing.display()));
    assert!(matches!(error(dir), OpenError::NotAFile(path) if path == dir));
    assert!(matches!(error(Path::new("/dev/null")), OpenError::NotAFile(_)));
    let dangling = dir.join("dangling");
    symlink("/proc/no/such", &dangling).expect("a link");
    assert!(matches!(error(&dangling), OpenError::NotAFile(_)));
    assert!(matches!(Capture::open("", "x"), Err(OpenError::EmptyName)));
    assert!(matches!(Capture::open("/tmp/%d", "x"), Err(OpenError::Pattern { .. })));
}

/// The same test runs again in another process, which must find that the file is in use.
#[test]
fn another_process_is_kept_away() {
    const FILE: &str = "CAPTURE_TEST_FILE";
    if let Some(file) = std::env::var_os(FILE) {
        let error = Capture::open(file.to_str().expect("UTF-8"), "intruder")
            .expect_err("a file in use must not be opened");
        assert!(matches!(error, OpenError::InUse(_)));
        assert!(error.to_string().ends_with("put %p, the process id, into the name"), "{error}");
        return;
    }
    let scratch = scratch();
    let capture = open(&scratch.file, "owner");
    let before = fs::read(&scratch.file).expect("the file");
    let intruder = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "another_process_is_kept_away"])
        .env(FILE, &scratch.file)
        .output()
        .expect("this program starts again");
    assert!(intruder.status.success(), "{}", String::from_utf8_lossy(&intruder.stdout));
    assert_eq!(fs::read(&scratch.file).expect("the file"), before);
    drop(capture);
}
