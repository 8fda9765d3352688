//! Tests that every iWARP frame in the captures is parsed, and is encoded again to the same octets.
//!
//! No capture contains a TERMINATE. Octets of that message, written by hand, are in
//! `src/iwarp/terminate/tests.rs`.

use std::collections::BTreeMap;

use wire::iwarp::mpa::fpdu::{self, LENGTH_SIZE};
use wire::iwarp::{
    Fpdu, Header, MAX_HEADER, ReadRequest, Setup, SetupKind, SetupProgress, TaggedOpcode,
    UntaggedOpcode,
};

use crate::capture::{captures, root};
use crate::tcp::{Connection, Stream, connections};

/// The contents of each capture. If TCP has not lost or reordered any segment, tshark shows the
/// same counts.
const EXPECTED: &str = "
                              tcp other disorder request reply  fpdu   crc junk-pad write read-req \
                              read-resp  send send-se
dapl/siw_dapl                   2     0        0       2     2    50     0        0     8        \
2         8    32       0
dapl/siw_rping                  1     0        0       1     1    14     0        0     2        \
2         2     8       0
siw/cmatose                     1     0        0       1     1     6     0        0     0        \
0         0     6       0
siw/dapltest-tr                 3     0        0       3     3    69     0        0     9        \
3         9    48       0
siw/dtest                       2     1        0       1     1   226     0        0     4        \
8         8   206       0
siw/dtestcm                     4     1        0       3     3     0     0        0     0        \
0         0     0       0
siw/killed                      1     0        0       1     1     4     0        0     0        \
1         1     2       0
siw/noserver                    1     1        0       0     0     0     0        0     0        \
0         0     0       0
siw/rping-5000-crc              1     0        0       1     1    26    26        0     8        \
2         8     8       0
siw/rping-5000-loss             1     0       14       1     1   260     0        0    80       \
20        80    80       0
siw/rping-5000-reorder          1     0       36       1     1   130     0        0    40       \
10        40    40       0
siw/rping-5000                  1     0        0       1     1    26     0        0     8        \
2         8     8       0
siw/rping-64-crc                1     0        0       1     1    14    14        0     2        \
2         2     8       0
siw/rping-64-mpav1              1     0        0       1     1     1     0        0     0        \
0         0     1       0
siw/rping-64-p2p                1     0        0       1     1    15     0        0     3        \
2         2     8       0
siw/rping-64                    1     0        0       1     1    14     0        0     2        \
2         2     8       0
siw/rstream                     1     0        0       1     1   189     0        0   124        \
0         0    65       0
siw/write-bw-crc                2     0        2       2     2    47    47        2    15        \
0         0    32       0
two-guests-siw/two-guests       2     0        0       2     2    52     0        0    16        \
4        16    16       0
user-space-peer-siw-crc         1     0        0       1     1     7     7        0     1        \
1         1     4       0
";

/// The columns:
///
/// - `tcp`: connections.
/// - `other`: connections that do not speak MPA. They were refused, or they use the ports on which
///   test programs exchange parameters.
/// - `disorder`: TCP segments that were sent again or out of order.
/// - `fpdu`: all FPDUs. Each column after it counts some of them.
/// - `crc`: FPDUs with a CRC. All of these CRCs are correct.
/// - `junk-pad`: FPDUs whose pad is not zero.
const COLUMNS: [&str; 13] = [
    "tcp",
    "other",
    "disorder",
    "request",
    "reply",
    "fpdu",
    "crc",
    "junk-pad",
    "write",
    "read-req",
    "read-resp",
    "send",
    "send-se",
];

#[test]
fn every_frame_of_the_captures() {
    let mut table = row("", |column| column.to_string());
    for (name, file) in captures(&root("iwarp")) {
        let mut counts = Counts::default();
        for (index, connection) in connections(&file).iter().enumerate() {
            counts.take(connection, &format!("{name}, connection {index}"));
        }
        table += &row(&name, |column| counts.0.get(column).unwrap_or(&0).to_string());
    }
    assert!(table.trim() == EXPECTED.trim(), "found:\n{table}\nexpected:\n{EXPECTED}");
}

fn row(name: &str, cell: impl Fn(&'static str) -> String) -> String {
    let cells: String = COLUMNS
        .iter()
        .map(|column| format!(" {:>1$}", cell(column), column.len().max(5)))
        .collect();
    format!("{name:27}{cells}\n")
}

#[derive(Default)]
struct Counts(BTreeMap<&'static str, usize>);

impl Counts {
    fn add(&mut self, column: &'static str) {
        self.add_n(column, 1);
    }

    fn add_n(&mut self, column: &'static str, n: usize) {
        assert!(COLUMNS.contains(&column), "{column}");
        *self.0.entry(column).or_default() += n;
    }

    fn take(&mut self, connection: &Connection, place: &str) {
        let Connection { initiator, responder } = connection;
        self.add("tcp");
        self.add_n("disorder", initiator.disordered + responder.disordered);
        if !initiator.bytes.starts_with(b"MPA ID Req Frame") {
            self.add("other");
            return;
        }
        let (request, request_len) = setup(SetupKind::Request, initiator, place);
        self.add("request");
        if responder.bytes.is_empty() {
            assert_eq!(initiator.bytes.len(), request_len, "{place}: FPDUs without a reply");
            return;
        }
        let (reply, reply_len) = setup(SetupKind::Reply, responder, place);
        self.add("reply");

        let crc = request.crc || reply.crc;
        self.fpdus(&initiator.bytes[request_len..], crc, &format!("{place}, from the initiator"));
        self.fpdus(&responder.bytes[reply_len..], crc, &format!("{place}, from the responder"));
    }

    fn fpdus(&mut self, mut stream: &[u8], crc: bool, place: &str) {
        let mut next_msn = [1_u32; 4];
        while !stream.is_empty() {
            let fpdu = Fpdu::parse(stream)
                .unwrap_or_else(|| panic!("{place}: {} octets are left", stream.len()));
            let (frame, rest) = stream.split_at(fpdu.len());
            stream = rest;
            let place = format!("{place}: {fpdu}");

            self.add("fpdu");
            if crc {
                assert_eq!(fpdu.check_crc(), Ok(()), "{place}");
                self.add("crc");
            }
            let (whole, end) =
                (reencode(&fpdu, crc), frame.len() - fpdu::trailer_len(fpdu.ulpdu().len()));
            let junk_pad =
                frame[end..][..fpdu::pad(fpdu.ulpdu().len())].iter().any(|&octet| octet != 0);
            if junk_pad {
                // After SENDs of odd lengths, siw leaks 1 to 3 octets of memory in the pad. The pad
                // of this project is zero, so the CRC differs.
                assert_eq!(whole[..end], frame[..end], "{place}");
                self.add("junk-pad");
            } else {
                assert_eq!(whole, frame, "{place}");
            }
            let (header, _) = Header::parse(fpdu.ulpdu()).unwrap().unwrap();
            self.add(match header {
                Header::Tagged { opcode: TaggedOpcode::Write, .. } => "write",
                Header::Tagged { opcode: TaggedOpcode::ReadResponse, .. } => "read-resp",
                Header::Untagged { opcode, .. } => match opcode {
                    UntaggedOpcode::Send => "send",
                    UntaggedOpcode::SendSolicited => "send-se",
                    UntaggedOpcode::ReadRequest => "read-req",
                    _ => panic!("{place}: not seen before"),
                },
            });
            if let Header::Untagged { opcode, qn, msn, last, .. } = header {
                assert_eq!(qn, opcode.queue().number(), "{place}");
                assert_eq!(msn, next_msn[qn as usize], "{place}");
                next_msn[qn as usize] += u32::from(last);
            }
        }
    }
}

/// The setup frame at the start of a stream, after it was re-encoded.
fn setup<'a>(kind: SetupKind, stream: &'a Stream, place: &str) -> (Setup<'a>, usize) {
    let Ok(SetupProgress::Frame(setup, len)) = Setup::parse(kind, &stream.bytes) else {
        panic!("{place}: no {kind}: {:?}", Setup::parse(kind, &stream.bytes));
    };
    let mut frame = vec![];
    setup.emit(&mut frame).unwrap();
    assert_eq!(frame, stream.bytes[..len], "{place}: {setup}");
    (setup, len)
}

/// The FPDU, re-encoded from the parsed form of each part that this crate knows.
fn reencode(fpdu: &Fpdu<'_>, crc: bool) -> Vec<u8> {
    let ulpdu = fpdu.ulpdu();
    let (header, size) =
        Header::parse(ulpdu).unwrap_or_else(|error| panic!("{fpdu}: {error}")).unwrap();
    let payload = &ulpdu[size..];
    assert_eq!(header.payload_len(ulpdu.len()), Ok(payload.len()));

    let mut start = [0; MAX_HEADER];
    start[..LENGTH_SIZE].copy_from_slice(&(ulpdu.len() as u16).to_be_bytes());
    let end = LENGTH_SIZE + header.emit(&mut start[LENGTH_SIZE..]);
    let mut frame = start[..end].to_vec();
    match header {
        Header::Untagged { opcode: UntaggedOpcode::ReadRequest, .. } => {
            let mut buf = [0; ReadRequest::SIZE];
            ReadRequest::parse(payload).unwrap().emit(&mut buf);
            frame.extend_from_slice(&buf);
        }
        _ => frame.extend_from_slice(payload),
    }

    frame.resize(fpdu::fpdu_len(ulpdu.len()), 0);
    if crc {
        fpdu::write_crc(&mut frame);
    }
    frame
}
