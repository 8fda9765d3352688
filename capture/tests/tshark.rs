//! Checks captures with Wireshark's dissectors.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use capture::{Capture, Datagram, Direction};

const TSHARK: &str = "/usr/bin/tshark";
/// Dissectors that guess the protocol inside of RDMA messages. They would report the payload of a
/// short SEND as a malformed message of RPC over RDMA.
const DISABLED_DISSECTORS: [&str; 2] = ["rpcrdma_infiniband", "rpcrdma_iwarp"];
/// Enables the verification of all checksums.
const CHECKSUM_OPTIONS: [&str; 3] =
    ["ip.check_checksum:TRUE", "tcp.check_checksum:TRUE", "udp.check_checksum:TRUE"];

/// Runs tshark on a file. Returns the fields of each packet that passes the filter.
fn tshark(file: &Path, filter: &str, fields: &[&str]) -> Vec<String> {
    let mut command = Command::new(TSHARK);
    command.args(["-n", "-r"]).arg(file).args(["-Y", filter, "-T", "fields"]);
    command.args(fields.iter().flat_map(|field| ["-e", field]));
    command.args(DISABLED_DISSECTORS.iter().flat_map(|guess| ["--disable-heuristic", guess]));
    command.args(CHECKSUM_OPTIONS.iter().flat_map(|check| ["-o", check]));
    let output = command.output().expect("tshark starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8").lines().map(str::to_owned).collect()
}

/// Whether tshark is installed. If not, prints that the test is skipped.
fn is_installed() -> bool {
    let is_here = Path::new(TSHARK).exists();
    if !is_here {
        println!("SKIP: {TSHARK} is not installed (package tshark)");
    }
    is_here
}

fn assert_flawless(file: &Path) {
    let flaws = tshark(
        file,
        "_ws.malformed || _ws.expert.severity >= \"Warning\"",
        &["frame.number", "_ws.col.Info"],
    );
    assert!(flaws.is_empty(), "{flaws:#?}");
}

/// Records the octets of a TCP connection between kernels that speak iWARP, once as the client's
/// socket would show them and once as the server's socket would.
#[test]
fn iwarp_is_dissected_as_in_a_capture_of_the_wire() {
    if !is_installed() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    for name in ["rping-64-crc", "rping-64-p2p", "rping-5000", "dapltest-tr"] {
        let golden = golden(name);
        let expected = iwarp(&golden);
        assert!(expected.len() >= 3, "{name}: {expected:?}");
        for client in [true, false] {
            let file = dir.path().join(format!("{name}-{client}.pcapng"));
            replay(&golden, &file, client);
            assert_flawless(&file);
            assert_eq!(iwarp(&file), expected, "{name}");
        }
    }
}

/// The fields of all iWARP messages in a capture. Fields that concern only TCP are left out.
fn iwarp(file: &Path) -> Vec<String> {
    tshark(file, "iwarp_mpa", &["ip.src", "tcp.len", "_ws.col.Protocol", "_ws.col.Info"])
}

fn golden(name: &str) -> PathBuf {
    let file = format!("../tests/golden/iwarp/siw/{name}.pcap");
    Path::new(env!("CARGO_MANIFEST_DIR")).join(file)
}

/// Records the octets of a capture file in another capture file.
fn replay(golden: &Path, file: &Path, as_client: bool) {
    let capture = Capture::open(file.to_str().expect("UTF-8"), "replay").expect("a capture");
    let mut flows = std::collections::HashMap::new();
    for (src, dst, flags, payload) in tcp_segments(&fs::read(golden).expect("the golden file")) {
        let [syn, ack, fin, rst] = [0x02, 0x10, 0x01, 0x04].map(|flag| flags & flag != 0);
        let now = Instant::now();
        if syn && !ack {
            let (local, peer, opened) = match as_client {
                true => (src, dst, Direction::Out),
                false => (dst, src, Direction::In),
            };
            flows.insert(
                (local, peer),
                capture.tcp(now, local, peer, opened).expect("the connection is new"),
            );
        }
        let (flow, direction) = match flows.contains_key(&(src, dst)) {
            true => (flows.get_mut(&(src, dst)), Direction::Out),
            false => (flows.get_mut(&(dst, src)), Direction::In),
        };
        let flow = flow.expect("the flow began with a SYN");
        flow.data(now, direction, &payload);
        if fin {
            flow.finish(now, direction);
        }
        if rst {
            flow.reset(now, direction);
        }
    }
}

/// The TCP segments of a pcap file of Ethernet and IPv4: source, destination, flags, octets.
fn tcp_segments(pcap: &[u8]) -> Vec<(SocketAddr, SocketAddr, u8, Vec<u8>)> {
    let mut segments = Vec::new();
    let mut rest = &pcap[24..];
    while !rest.is_empty() {
        let length = u32::from_le_bytes(rest[8..12].try_into().expect("4 octets")) as usize;
        let packet = &rest[16 + 14..16 + length];
        rest = &rest[16 + length..];
        if packet[0] != 0x45 || packet[9] != 6 {
            continue;
        }
        let word = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
        let addr = |ip: usize, port: usize| {
            let octets: [u8; 4] = packet[ip..ip + 4].try_into().expect("4 octets");
            SocketAddr::from((Ipv4Addr::from(octets), word(port)))
        };
        // Ethernet pads short packets.
        let payload = &packet[20 + usize::from(packet[32] >> 4) * 4..word(2).into()];
        segments.push((addr(12, 20), addr(16, 22), packet[33], payload.to_vec()));
    }
    segments
}

/// Records an acknowledgement and a SEND of RoCEv2. The ICRC covers the identification and the
/// flags of IPv4.
#[test]
fn rocev2_is_dissected() {
    if !is_installed() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("rocev2.pcapng");
    let capture = Capture::open(file.to_str().expect("UTF-8"), "softroce").expect("a capture");
    let [a, b, c]: [SocketAddr; 3] = ["10.77.0.1:4791", "10.77.0.3:4791", "10.77.0.2:4791"]
        .map(|text| text.parse().expect(text));
    let ack = hex("1100ffff00000011000a501e1f000001faa46b27");
    let from = SocketAddr::new(b.ip(), 0xD075);
    let datagram = Datagram { src: from, dst: c, id: 0x2617, dont_fragment: true, payload: &ack };
    capture.udp(Instant::now(), Direction::In, &datagram);
    let send = hex("0410ffff000000118000000561626300548e4abe");
    let datagram = Datagram { src: a, dst: b, id: 0, dont_fragment: true, payload: &send };
    capture.udp(Instant::now(), Direction::Out, &datagram);

    assert_flawless(&file);
    let fields =
        ["infiniband.bth.opcode", "infiniband.bth.psn", "ip.id", "frame.packet_flags_direction"];
    let rows = tshark(&file, "infiniband", &fields);
    assert_eq!(rows, ["17\t675870\t0x2617\t0x00000001", "4\t5\t0x0000\t0x00000002"]);
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.chars().filter_map(|c| c.to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// Records segments of all lengths up to the maximum, and interfaces with names.
#[test]
fn long_segments_and_interfaces() {
    if !is_installed() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("long.pcapng");
    let name = file.to_str().expect("UTF-8");
    let (a, b) = (Capture::open(name, "eth0").expect("a"), Capture::open(name, "eth1").expect("b"));
    let octets = vec![0; 300_000];
    for (capture, client, server) in
        [(a, "192.0.2.1:40000", "192.0.2.2:7174"), (b, "[2001:db8::1]:40000", "[2001:db8::2]:7174")]
    {
        let [client, server] = [client, server].map(|text| text.parse().expect(text));
        let mut flow = capture
            .tcp(Instant::now(), client, server, Direction::Out)
            .expect("the connection is new");
        for length in [1, 65_494, 65_495, 65_496, 300_000] {
            flow.data(Instant::now(), Direction::Out, &octets[..length]);
            flow.data(Instant::now(), Direction::In, &octets[..length / 2]);
        }
    }
    assert_flawless(&file);
    let rows = tshark(
        &file,
        "tcp.flags.syn == 1 && tcp.flags.ack == 0",
        &["frame.interface_name", "tcp.stream"],
    );
    assert_eq!(rows, ["eth0\t0", "eth1\t1"]);
    let lengths =
        tshark(&file, "tcp.stream == 0 && frame.packet_flags_direction == 2", &["tcp.len"]);
    let total: usize =
        lengths.iter().map(|length| length.parse::<usize>().expect("a number")).sum();
    assert_eq!(total, 1 + 65_494 + 65_495 + 65_496 + 300_000);
}
