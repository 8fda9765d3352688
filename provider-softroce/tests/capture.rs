//! Tests of captures. Wireshark's dissectors must understand the captures. Every ICRC in the
//! captures must be equal to the ICRC that this project computes, and to the ICRC that scapy
//! computes.

#[expect(dead_code, reason = "only the tests of the crate capture use the rest")]
#[path = "../../capture/tests/reader/mod.rs"]
mod reader;

use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use dat_core::provider::Provider;
use provider_mem::contract;
use provider_softroce::{Roce, SoftRoce};
use wire::rocev2::{Icrc, Identification};

use self::reader::{Body, Packet};

const TSHARK: &str = "/usr/bin/tshark";
/// Debian's own Python, for which Debian's Python packages are installed.
const PYTHON: &str = "/usr/bin/python3";
/// Dissectors that would guess the protocol of the consumers' payload.
const GUESSES: [&str; 2] = ["rpcrdma_infiniband", "smb_direct_infiniband"];

/// The number of octets around the payload of a WRITE's first packet, the longest packet of this
/// test: BTH, RETH, ICRC.
const OVERHEAD: usize = 12 + 16 + 4;

/// Returns tshark's output for the packets that pass the filter.
fn tshark(file: &Path, filter: &str) -> String {
    let mut command = Command::new(TSHARK);
    command
        .args(["-n", "-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE", "-r"])
        .arg(file);
    command
        .args(["-Y", filter])
        .args(GUESSES.iter().flat_map(|guess| ["--disable-heuristic", guess]));
    let output = command.output().expect("tshark starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Returns two ICRCs for each packet of a file: the one that scapy computes, and the one in the
/// packet.
fn scapy(file: &Path) -> Vec<[String; 2]> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/programs/icrc.py");
    let output = Command::new(PYTHON).arg(script).arg(file).output().expect("python3 starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let icrcs =
        |line: &str| line.rsplit(' ').take(2).map(str::to_owned).collect::<Vec<_>>().try_into();
    text.lines().map(|line| icrcs(line).expect("two ICRCs at the end")).collect()
}

fn has_scapy() -> bool {
    let import = Command::new(PYTHON).args(["-c", "import scapy.contrib.roce"]).output();
    import.is_ok_and(|output| output.status.success())
}

/// Runs some cases of the contract between two adapters. Returns the capture files of the adapters.
fn captured(params: &str, dir: &Path) -> [PathBuf; 2] {
    let files = ["a", "b"].map(|name| dir.join(name).with_extension("pcapng"));
    let open = |file: &PathBuf| -> Roce {
        let params = format!("{params} capture={}", file.display());
        SoftRoce.open("softroce", &params).unwrap_or_else(|e| panic!("{params}: {e}"))
    };
    let [a, b] = files.each_ref().map(open);
    contract::private_data_and_addresses_arrive(&a, &b);
    contract::sends_arrive_in_order_and_complete(&a, &b);
    contract::every_size_arrives(&a, &b);
    contract::writes_land_where_they_should(&a, &b);
    contract::reads_fetch_what_is_there(&a, &b);
    contract::a_send_invalidates_a_window(&a, &b);
    contract::a_write_with_immediate_data_is_one_operation(&a, &b);
    contract::atomic_operations_return_the_old_value(&a, &b);
    contract::a_rejection_carries_private_data(&a, &b);
    contract::forbidden_remote_access_breaks_the_connection(&a, &b);
    files
}

/// Returns how many times each datagram was captured in this direction.
fn datagrams(packets: &[Packet], direction: u32) -> HashMap<&[u8], usize> {
    let mut datagrams = HashMap::new();
    for packet in packets.iter().filter(|packet| packet.direction == direction) {
        *datagrams.entry(payload(packet)).or_default() += 1;
    }
    datagrams
}

fn payload(packet: &Packet) -> &[u8] {
    match &packet.body {
        Body::Udp { payload, .. } => payload,
        Body::Tcp { .. } => panic!("{packet:?}"),
    }
}

#[test]
fn packets_are_dissected_and_their_icrcs_are_right() {
    let (has_tshark, has_scapy) = (Path::new(TSHARK).exists(), has_scapy());
    for (params, mtu) in [("127.0.0.21", 4096), ("::1 mtu=256 gso=off", 256)] {
        let dir = tempfile::tempdir().expect("a directory");
        let files = captured(params, dir.path());
        let contents =
            files.each_ref().map(|file| reader::read(&std::fs::read(file).expect("the file")));
        for packet in contents.iter().flat_map(|contents| &contents.packets) {
            let Body::Udp { id, payload } = &packet.body else { panic!("{packet:?}") };
            let (id, dont_fragment) = id.unwrap_or_default();
            let icrc = Icrc::new(packet.src, packet.dst).expect("both addresses are of one family");
            icrc.verify(Identification { id, dont_fragment }, payload)
                .unwrap_or_else(|e| panic!("{e}: {packet:?}"));
        }
        // Debian's scapy does not support IPv6.
        if has_scapy && contents[0].packets[0].src.is_ipv4() {
            let icrcs = scapy(&files[0]);
            assert_eq!(icrcs.len(), contents[0].packets.len());
            for (icrcs, packet) in icrcs.iter().zip(&contents[0].packets) {
                assert_eq!(icrcs[0], icrcs[1], "{packet:?}");
            }
        }
        // The longest packet shows the MTU: the interface's MTU, or the MTU in the ia_params.
        let lengths = contents
            .iter()
            .flat_map(|contents| &contents.packets)
            .map(|packet| payload(packet).len());
        assert_eq!(lengths.max(), Some(mtu + OVERHEAD), "{params}");
        // A connection request reaches any adapter at its address, including those of other
        // programs on this host.
        let [a, b] = contents.each_ref().map(|contents| &contents.packets[..]);
        let sent = [datagrams(a, 2), datagrams(b, 2)];
        for received in [datagrams(a, 1), datagrams(b, 1)] {
            assert!(received.len() > 100, "{params}: {}", received.len());
            let of_connections =
                received.into_iter().filter(|(datagram, _)| datagram[5..8] != [0, 0, 1]);
            for (datagram, times) in of_connections {
                let sent: usize = sent.iter().filter_map(|sent| sent.get(datagram)).sum();
                assert!(
                    times <= sent,
                    "{params}: received {times} times, sent {sent} times: {datagram:02X?}"
                );
            }
        }
        // The list has the opcodes of each kind of request and response of RC, and of the UD packet
        // that carries connection management (IBA, volume 1, 9.2).
        let opcodes = [
            0x00, 0x01, 0x02, 0x04, 0x06, 0x08, 0x0A, 0x0B, 0x0C, 0x0D, 0x0F, 0x10, 0x11, 0x12,
            0x13, 0x14, 0x17, 0x64,
        ];
        for opcode in opcodes {
            assert!(
                a.iter().any(|packet| payload(packet)[0] == opcode),
                "{params}: no {opcode:02X}"
            );
        }
        if has_tshark {
            let mut messages = String::new();
            for file in &files {
                let flaws = "_ws.malformed || _ws.expert.severity >= \"Warning\" || !infiniband";
                assert_eq!(tshark(file, flaws), "", "{params}");
                messages += &tshark(file, "infiniband.bth.destqp == 1");
            }
            // A connection request may be in either file: the adapter that has read it from the
            // shared port records it.
            for message in [
                "ConnectRequest",
                "ConnectReply",
                "ReadyToUse",
                "ConnectReject",
                "DisconnectRequest",
            ] {
                assert!(messages.contains(message), "{params}: no {message}");
            }
        }
    }
    if !has_tshark {
        println!("SKIP: {TSHARK} is not installed (package tshark)");
    }
    if !has_scapy {
        println!("SKIP: scapy is not installed (package python3-scapy)");
    }
}

/// A datagram as it was on the wire: its IPv4 ID, DF, its sender's port, and its payload.
type CapturedPacket = (u16, bool, u16, Vec<u8>);

/// Captures the loopback device during `traffic`. `None` if this user may not capture there.
fn on_loopback(address: &str, file: &Path, traffic: impl FnOnce()) -> Option<Vec<CapturedPacket>> {
    let mut dumpcap = Command::new("/usr/bin/dumpcap");
    let filter = format!("udp port 4791 and host {address}");
    dumpcap
        .args(["-q", "-i", "lo", "-B", "64", "-f", &filter, "-w"])
        .arg(file)
        .stderr(Stdio::piped());
    let mut listener = dumpcap.spawn().ok()?;
    let says = BufReader::new(listener.stderr.take().expect("a pipe"));
    let ready = says.lines().map_while(Result::ok).any(|line| line.starts_with("File: "));
    if ready {
        traffic();
        // dumpcap writes its last packets when it gets the signal.
        let pid = listener.id().to_string();
        Command::new("kill").args(["-INT", &pid]).status().expect("kill starts");
    }
    listener.wait().expect("dumpcap ends");
    ready.then(|| {
        let fields = ["ip.id", "ip.flags.df", "udp.srcport", "udp.payload"];
        let mut command = Command::new(TSHARK);
        command.arg("-n").arg("-r").arg(file).args(["-T", "fields"]);
        command.args(fields.iter().flat_map(|field| ["-e", field]));
        let output = command.output().expect("tshark starts");
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        text.lines().map(on_wire).collect()
    })
}

fn on_wire(line: &str) -> CapturedPacket {
    let mut fields = line.split('\t');
    let mut field = || fields.next().expect("four fields");
    let id = u16::from_str_radix(field().trim_start_matches("0x"), 16).expect("an ID");
    let dont_fragment = ["1", "True"].contains(&field());
    let port = field().parse().expect("a port");
    let hex = field().replace(':', "");
    let octets =
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex"));
    (id, dont_fragment, port, octets.collect())
}

/// The ICRC covers IP headers as they leave the host. A socket does not show these headers.
#[test]
fn packets_leave_with_the_headers_that_their_icrcs_are_of() {
    const ADDRESS: &str = "127.0.0.22";
    let dir = tempfile::tempdir().expect("a directory");
    let mut files = None;
    let listened = on_loopback(ADDRESS, &dir.path().join("kernel.pcapng"), || {
        files = Some(captured(ADDRESS, dir.path()));
    });
    let Some((listened, files)) = listened.zip(files) else {
        println!(
            "SKIP: this user may not capture on the loopback device (needs root and dumpcap of \
             package tshark)"
        );
        return;
    };
    let mut sent = HashSet::new();
    for file in files {
        for packet in reader::read(&std::fs::read(file).expect("the file")).packets {
            let Body::Udp { id, payload } = &packet.body else { panic!("{packet:?}") };
            let (id, dont_fragment) = id.expect("IPv4");
            if packet.direction == 2 {
                sent.insert((id, dont_fragment, packet.src.port(), payload.clone()));
            }
        }
    }
    // The loopback device does not split batches, so a captured batch has the header of its first
    // packet.
    for datagram in listened.iter().filter(|datagram| !sent.contains(*datagram)) {
        let (id, dont_fragment, _, octets) = datagram;
        let is_batch = sent.iter().any(|(.., packet)| octets.starts_with(packet));
        assert!(is_batch, "differs from the capture file: {datagram:02X?}");
        assert_eq!((*id, *dont_fragment), (0, true));
    }
    // Only a connected socket numbers its packets.
    let connected = listened.iter().filter(|(id, ..)| *id != 0).count();
    assert!(connected > 100, "{connected} of {} left through a connected socket", listened.len());
}

/// At its limit a capture ends, and the adapter moves all data as before.
#[test]
fn a_full_capture_does_not_disturb_the_adapter() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("a.pcapng");
    let open = || {
        let params = format!("127.0.0.23 capture={},max=256K", file.display());
        SoftRoce.open("softroce", &params).unwrap_or_else(|e| panic!("{params}: {e}"))
    };
    let (a, b) = (open(), open());
    contract::every_size_arrives(&a, &b);
    contract::sends_arrive_in_order_and_complete(&a, &b);
    let length = std::fs::metadata(&file).expect("the file exists").len();
    assert!((240 << 10..=256 << 10).contains(&length), "{length}");
}
