//! Tests that every RoCEv2 packet in the captures is parsed, and is encoded again to the same
//! octets.
//!
//! No capture contains a NAK, an RNR NAK or a solicited event. Examples of these packets, written
//! by hand, are in `src/rocev2`.

use std::collections::BTreeMap;

use wire::rocev2::{
    Aeth, Deth, Extension, ExtensionKind, Icrc, Identification, Opcode, Operation, Packet,
    Syndrome, UDP_PORT,
};

use crate::capture::{Ip, be16, captures, packets, root};

/// The contents of each capture. tshark shows the same counts, except where it interprets a payload
/// as another protocol.
const EXPECTED: &str = "
                            packets  ipv6  send write read-req read-resp atomic atom-ack   ack    \
                            ud   imm   mad
dapl/rxe_dapl                    11     0     8     0        0         0      0        0     0     \
3     0     3
dapl/rxe_dapl2                   87     0    40    10        2        10      0        0    15    \
10     0    10
dapl/rxe_rping                   29     0     8     2        2         2      0        0    10     \
5     0     5
dapl/v6                          29    29     8     2        2         2      0        0    10     \
5     0     5
rxe/atomic                       10     0     0     0        0         0      5        5     0     \
0     0     0
rxe/cmatose                      17     0     6     0        0         0      0        0     6     \
5     0     5
rxe/dapltest-tr                 121     0    62     9        3         9      0        0    21    \
17     0    17
rxe/dtest                       441     0   206     4        8         8      0        0   210     \
5     0     5
rxe/dtestcm                      15     0     0     0        0         0      0        0     0    \
15     0    15
rxe/dtestsrq                     17     0     6     0        0         0      0        0     6     \
5     0     5
rxe/dtestx                       27     0     2     2        0         0      6        6     4     \
7     2     7
rxe/killed                     6269     0  2088   522      522       522      0        0  2610     \
5     0     5
rxe/noserver                      2     0     0     0        0         0      0        0     0     \
2     0     2
rxe/rc-pingpong                  30     0    24     0        0         0      0        0     6     \
0     0     0
rxe/rnr                         120     0    60     0        0         0      0        0    60     \
0     0     0
rxe/rping-5000-loss             440     0    80   111       27       113      0        0   104     \
5     0     5
rxe/rping-5000-reorder          140     0    25    30       10        39      0        0    31     \
5     0     5
rxe/rping-5000                   45     0     8    10        2        10      0        0    10     \
5     0     5
rxe/rping-64                     29     0     8     2        2         2      0        0    10     \
5     0     5
rxe/rstream                     196     0     0   126        0         0      0        0    65     \
5    66     5
rxe/ud-pingpong                  10     0     0     0        0         0      0        0     0    \
10     0     0
rxe/udaddy                        8     0     0     0        0         0      0        0     0     \
8     6     2
rxe/write-imm-srq                44     0    22     0        0         0      0        0    22     \
0     0     0
rxe-mtu4096/rc-pingpong          30     0    24     0        0         0      0        0     6     \
0     0     0
rxe-mtu4096/rping-5000-loss     298     0    81    46       24        42      0        0   100     \
5     0     5
rxe-mtu4096/rping-5000-reorder     145     0    40    20       10        20      0        0    \
50     5     0     5
rxe-mtu4096/rping-5000           33     0     8     4        2         4      0        0    10     \
5     0     5
rxe-mtu4096/rping-64             29     0     8     2        2         2      0        0    10     \
5     0     5
two-guests-rxe/two-guests        90    45    16    20        4        20      0        0    20    \
10     0    10
user-space-peer-rxe              17     0     4     1        1         1      0        0     5     \
5     0     5
";

/// The columns:
///
/// - `packets`: all packets.
/// - `ipv6`: packets over IPv6.
/// - `send` to `ud`: packets by their kind. Each packet is counted in one of these columns.
/// - `imm`: packets with immediate data.
/// - `mad`: packets of the kind `ud` that carry connection management.
const COLUMNS: [&str; 12] = [
    "packets",
    "ipv6",
    "send",
    "write",
    "read-req",
    "read-resp",
    "atomic",
    "atom-ack",
    "ack",
    "ud",
    "imm",
    "mad",
];

#[test]
fn every_packet_of_the_captures() {
    let mut table = row("", |column| column.to_string());
    for (name, file) in captures(&root("rocev2")) {
        let mut counts = Counts::default();
        for (index, datagram) in datagrams(&file).enumerate() {
            counts.take(&datagram, &format!("{name}, packet {index}"));
        }
        table += &row(&name, |column| counts.0.get(column).unwrap_or(&0).to_string());
    }
    assert!(table.trim() == EXPECTED.trim(), "found:\n{table}\nexpected:\n{EXPECTED}");
}

/// The messages of connection management in all captures: the payloads of the datagrams to and from
/// queue pair 1. Each has the name of its capture and the number of its packet.
pub(crate) fn mads() -> Vec<(String, Vec<u8>)> {
    let mut mads = vec![];
    for (name, file) in captures(&root("rocev2")) {
        for (index, datagram) in datagrams(&file).enumerate() {
            if let Some(mad) = mad(&Packet::parse(datagram.packet).unwrap()) {
                mads.push((format!("{name}, packet {index}"), mad.to_vec()));
            }
        }
    }
    mads
}

fn mad<'a>(packet: &Packet<'a>) -> Option<&'a [u8]> {
    let gsi = Extension::Deth(Deth { q_key: Deth::GSI_Q_KEY, source_qpn: Deth::GSI_QPN });
    (packet.bth.dest_qpn == Deth::GSI_QPN && packet.extension == gsi).then_some(packet.payload)
}

#[test]
fn mads_have_their_size_and_class() {
    let mads = mads();
    assert!(mads.len() > 100);
    for (place, mad) in mads {
        assert_eq!((mad.len(), &mad[..4]), (256, &[1, 7, 2, 3][..]), "{place}");
    }
}

/// A UDP datagram to port 4791, with the relevant fields of its IP header.
struct Datagram<'a> {
    icrc: Icrc,
    identification: Identification,
    ipv6: bool,
    bytes: &'a [u8],
    packet: &'a [u8],
}

fn datagrams(file: &[u8]) -> impl Iterator<Item = Datagram<'_>> {
    packets(file).filter_map(Datagram::new)
}

impl<'a> Datagram<'a> {
    fn new(Ip { source, destination, protocol, header, payload }: Ip<'a>) -> Option<Self> {
        const UDP: u8 = 17;
        let (source, destination) = ((source, be16(payload, 0)), (destination, be16(payload, 2)));
        if protocol != UDP || destination.1 != UDP_PORT {
            return None;
        }
        assert_eq!(usize::from(be16(payload, 4)), payload.len());
        let bytes = &payload[8..];
        Some(Self {
            icrc: Icrc::new(source.into(), destination.into()).unwrap(),
            identification: Identification {
                id: be16(header, 4),
                dont_fragment: header[6] == 0x40,
            },
            ipv6: header[0] >> 4 == 6,
            bytes,
            packet: &bytes[..bytes.len() - Icrc::SIZE],
        })
    }
}

#[derive(Default)]
struct Counts(BTreeMap<&'static str, usize>);

impl Counts {
    fn add(&mut self, column: &'static str) {
        assert!(COLUMNS.contains(&column), "{column}");
        *self.0.entry(column).or_default() += 1;
    }

    fn take(&mut self, datagram: &Datagram<'_>, place: &str) {
        let &Datagram { icrc, identification, ipv6, bytes, packet } = datagram;
        let parsed = Packet::parse(packet).unwrap_or_else(|error| panic!("{place}: {error}"));
        let place = format!("{place}: {parsed}");
        self.add("packets");

        assert_eq!(icrc.verify(identification, bytes), Ok(packet), "{place}");
        let recovered = icrc.recover(0, bytes).unwrap_or_else(|error| panic!("{place}: {error}"));
        assert_eq!(recovered.0, packet);
        if ipv6 {
            self.add("ipv6");
        } else {
            assert_eq!(recovered.1, identification, "{place}");
        }
        assert_eq!(reencode(&parsed, icrc, identification), bytes, "{place}");

        self.add(match (parsed.bth.opcode.operation(), parsed.extension) {
            (Operation::Send, _) => "send",
            (Operation::Write, _) => "write",
            (Operation::ReadRequest, _) => "read-req",
            (Operation::ReadResponse, _) => "read-resp",
            (Operation::CompareSwap | Operation::FetchAdd, _) => "atomic",
            (Operation::AtomicAcknowledge, _) => "atom-ack",
            (Operation::Acknowledge, Extension::Aeth(Aeth { syndrome: Syndrome::ACK, .. })) => {
                "ack"
            }
            (Operation::DatagramSend, _) => "ud",
            _ => panic!("{place}: not seen before"),
        });
        if let ExtensionKind::Immediate
        | ExtensionKind::RethImmediate
        | ExtensionKind::DethImmediate = parsed.extension.extension_kind()
        {
            self.add("imm");
        }
        if mad(&parsed).is_some() {
            self.add("mad");
        }
        assert_eq!(
            parsed.bth.dest_qpn == Deth::GSI_QPN,
            parsed.bth.opcode == Opcode::DatagramSendOnly && mad(&parsed).is_some()
        );
    }
}

/// The datagram, re-encoded from the packet's parsed form.
fn reencode(packet: &Packet<'_>, icrc: Icrc, identification: Identification) -> Vec<u8> {
    let mut bytes = vec![0xEE; packet.len() + Icrc::SIZE];
    let len = packet.emit(&mut bytes);
    let checksum = icrc.compute(identification, &bytes[..len]);
    bytes[len..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

fn row(name: &str, cell: impl Fn(&'static str) -> String) -> String {
    let cells: String = COLUMNS
        .iter()
        .map(|column| format!(" {:>1$}", cell(column), column.len().max(5)))
        .collect();
    format!("{name:27}{cells}\n")
}
