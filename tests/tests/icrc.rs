//! Compares ICRCs and fields of the BTH with those that scapy computes and reads. scapy shares no
//! code with this project. Debian's scapy does not support IPv6, so for IPv6 the captures of
//! `wire/tests/golden` are the independent source.
#![forbid(unsafe_code)]

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, Stdio};

use opendat_tests::{Skip, skip};
use wire::rocev2::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Extension, ExtensionKind, Icrc, Identification,
    Opcode, Packet, Psn, Reth, Syndrome, UDP_PORT, pad,
};

/// Debian's own Python, for which its Python packages are installed.
const PYTHON: &str = "/usr/bin/python3";

#[test]
fn scapy_agrees() {
    if let Err(reason) = find_scapy() {
        return skip(&reason);
    }
    let packets: Vec<Example> = examples().collect();
    let fields = scapy(&packets);
    let fields: Vec<&str> = fields.lines().collect();
    assert_eq!(fields.len(), packets.len());
    for (packet, fields) in packets.iter().zip(fields) {
        assert_eq!(fields, packet.fields, "{}", hex(&packet.bytes));
    }
}

fn find_scapy() -> Result<(), Skip> {
    let mut import = Command::new(PYTHON);
    import.args(["-c", "import scapy.contrib.roce"]).stdout(Stdio::null()).stderr(Stdio::null());
    match import.status() {
        Ok(status) if status.success() => Ok(()),
        _ => Err(Skip("scapy is not installed (package python3-scapy)".into())),
    }
}

/// Runs the script with the packets on its standard input, and returns its output.
fn scapy(packets: &[Example]) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/icrc.py");
    let mut child = Command::new(PYTHON)
        .arg(script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 has started before, so it starts now");
    let lines: String = packets.iter().map(|packet| hex(&packet.bytes) + "\n").collect();
    let mut stdin = child.stdin.take().expect("a pipe");
    // A separate thread writes the packets, because the script answers before it has read all of
    // them. With one thread, both processes could wait for each other forever.
    let writer = std::thread::spawn(move || stdin.write_all(lines.as_bytes()));
    let output = child.wait_with_output().expect("the script's output");
    writer.join().expect("no panic").expect("the script reads all");
    assert!(output.status.success(), "{}", output.status);
    String::from_utf8(output.stdout).expect("text")
}

/// An IPv4 packet and its fields, in the form in which the script prints them.
struct Example {
    bytes: Vec<u8>,
    fields: String,
}

/// Returns packets with every opcode, with payloads around the important sizes and each pad count,
/// with all flags, and with IDs with and without DF.
fn examples() -> impl Iterator<Item = Example> {
    const LENGTHS: [usize; 9] = [0, 1, 2, 3, 4, 64, 1023, 1024, 4096];
    let cases = Opcode::ALL.into_iter().flat_map(|opcode| {
        let lengths = if opcode.has_payload() { &LENGTHS[..] } else { &[0] };
        lengths.iter().map(move |&len| (opcode, len))
    });
    cases.enumerate().map(|(index, (opcode, len))| {
        let flag = |bit: usize| index >> bit & 1 == 1;
        let bth = Bth {
            opcode,
            solicited: flag(0),
            migrated: flag(1),
            p_key: if flag(2) { Bth::DEFAULT_P_KEY } else { 0x1234 },
            fecn: flag(3),
            becn: flag(4),
            dest_qpn: 0xABCDEF ^ index as u32,
            ack_request: flag(5),
            psn: Psn::new(0xFF_FFFF) + index as u32,
        };
        let payload: Vec<u8> = (0..len).map(|octet| (octet * 31 + index) as u8).collect();
        let packet =
            Packet { bth, extension: extension(opcode.extension_kind()), payload: &payload };
        let ip =
            Identification { id: (index as u16).wrapping_mul(257), dont_fragment: index % 3 != 0 };
        example(&packet, ip, 0xC000 + index as u16)
    })
}

fn extension(carries: ExtensionKind) -> Extension {
    let reth = Reth { va: 0x0102_0304_0506_0708, r_key: 0x1112_1314, len: 0x2122_2324 };
    let aeth = Aeth { syndrome: Syndrome::ACK, msn: 0x01_0203 };
    let atomic = AtomicEth { va: 0xFFF8, r_key: 0x1112_1314, swap_or_add: 1, compare: u64::MAX };
    let deth = Deth { q_key: Deth::GSI_Q_KEY, source_qpn: Deth::GSI_QPN };
    match carries {
        ExtensionKind::Nothing => Extension::None,
        ExtensionKind::Immediate => Extension::Immediate(0xDEAD_BEEF),
        ExtensionKind::Invalidate => Extension::Invalidate(0xDEAD_BEEF),
        ExtensionKind::Reth => Extension::Reth(reth),
        ExtensionKind::RethImmediate => Extension::RethImmediate(reth, 0xDEAD_BEEF),
        ExtensionKind::Aeth => Extension::Aeth(aeth),
        ExtensionKind::AtomicAck => {
            Extension::AtomicAck(aeth, AtomicAckEth { original: 0x3132_3334_3536_3738 })
        }
        ExtensionKind::Atomic => Extension::Atomic(atomic),
        ExtensionKind::Deth => Extension::Deth(deth),
        ExtensionKind::DethImmediate => Extension::DethImmediate(deth, 0xDEAD_BEEF),
        ExtensionKind::Reserved => Extension::Reserved,
    }
}

fn example(packet: &Packet<'_>, ip: Identification, source_port: u16) -> Example {
    let (source, destination) = (Ipv4Addr::new(10, 77, 0, 1), Ipv4Addr::new(192, 168, 254, 3));
    let udp_len = 8 + packet.len() + Icrc::SIZE;
    let mut bytes = vec![0x45, 0x02];
    bytes.extend((20 + udp_len as u16).to_be_bytes());
    bytes.extend(ip.id.to_be_bytes());
    bytes.extend([if ip.dont_fragment { 0x40 } else { 0 }, 0, 63, 17, 0x12, 0x34]);
    bytes.extend(source.octets());
    bytes.extend(destination.octets());
    bytes.extend(source_port.to_be_bytes());
    bytes.extend(UDP_PORT.to_be_bytes());
    bytes.extend((udp_len as u16).to_be_bytes());
    bytes.extend([0x56, 0x78]);

    let start = bytes.len();
    bytes.resize(start + packet.len(), 0xEE);
    packet.emit(&mut bytes[start..]);
    let ends: [SocketAddr; 2] = [(source, source_port).into(), (destination, UDP_PORT).into()];
    let icrc =
        Icrc::new(ends[0], ends[1]).expect("both addresses are IPv4").compute(ip, &bytes[start..]);
    bytes.extend(icrc.to_le_bytes());

    let Bth { opcode, solicited, migrated, p_key, fecn, becn, dest_qpn, ack_request, psn } =
        packet.bth;
    let fields = [
        opcode.code().into(),
        solicited.into(),
        migrated.into(),
        pad(packet.payload.len()) as u32,
        p_key.into(),
        fecn.into(),
        becn.into(),
        dest_qpn,
        ack_request.into(),
        psn.value(),
    ];
    let fields: String = fields.iter().map(|field| format!("{field} ")).collect();
    Example { bytes, fields: fields + &hex(&icrc.to_le_bytes()) }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
