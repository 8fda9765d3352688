//! TCP streams out of a capture: just enough of pcap, Ethernet, IPv4, IPv6 and TCP. It reads files of this
//! repository, so what it does not know is a panic.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

/// One TCP connection whose opening is in the capture.
pub(crate) struct Connection {
    pub(crate) initiator: Stream,
    pub(crate) responder: Stream,
}

/// What one side sent, put back in order.
#[derive(Default)]
pub(crate) struct Stream {
    pub(crate) bytes: Vec<u8>,
    /// TCP segments sent again, or before an earlier part of the stream.
    pub(crate) disordered: usize,
}

/// The connections of a capture, in the order of their opening.
pub(crate) fn connections(path: &Path) -> Vec<Connection> {
    let file = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut sides = BTreeMap::new();
    let mut opened = vec![];
    for frame in frames(&file) {
        let Some(segment) = Segment::parse(frame) else { continue };
        if segment.flags & (SYN | ACK) == SYN && !opened.contains(&segment.flow) {
            opened.push(segment.flow);
        }
        sides.entry(segment.flow).or_insert_with(Vec::new).push(segment);
    }

    let mut stream = |flow| sides.remove(&flow).map(|segments| reassemble(&segments)).unwrap_or_default();
    let connections = opened
        .iter()
        .map(|&(from, to)| Connection { initiator: stream((from, to)), responder: stream((to, from)) })
        .collect();
    assert!(sides.is_empty(), "{}: TCP without an opening: {:?}", path.display(), sides.keys());
    connections
}

fn reassemble(segments: &[Segment<'_>]) -> Stream {
    // Without an answer to its SYN a side has sent nothing but a reset.
    let Some(syn) = segments.iter().find(|segment| segment.flags & SYN != 0) else {
        assert!(segments.iter().all(|segment| segment.data.is_empty() && segment.flags & RST != 0));
        return Stream::default();
    };
    let mut stream = Stream::default();
    let mut waiting = BTreeMap::<usize, &[u8]>::new();
    for segment in segments.iter().filter(|segment| !segment.data.is_empty()) {
        let at = segment.seq.wrapping_sub(syn.seq).wrapping_sub(1) as usize;
        stream.disordered += usize::from(at != stream.bytes.len());
        let longest = waiting.entry(at).or_default();
        if segment.data.len() > longest.len() {
            *longest = segment.data;
        }
        while let Some(start) = waiting.first_entry().filter(|first| *first.key() <= stream.bytes.len()) {
            let (at, data) = start.remove_entry();
            let known = data.len().min(stream.bytes.len() - at);
            assert_eq!(stream.bytes[at..][..known], data[..known], "a retransmission differs");
            stream.bytes.extend_from_slice(&data[known..]);
        }
    }
    assert!(waiting.is_empty(), "the capture lacks a part of the stream");
    stream
}

type Flow = ((IpAddr, u16), (IpAddr, u16));

struct Segment<'a> {
    flow: Flow,
    seq: u32,
    flags: u8,
    data: &'a [u8],
}

const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

impl<'a> Segment<'a> {
    /// `None` for what is not TCP.
    fn parse(frame: &'a [u8]) -> Option<Self> {
        const TCP: u8 = 6;
        let packet = &frame[14..];
        let (protocol, from, to, tcp) = match be16(frame, 12) {
            0x0800 => {
                let header = usize::from(packet[0] & 0xF) * 4;
                assert_eq!(be16(packet, 6) & 0x3FFF, 0, "an IP fragment");
                let address = |at| IpAddr::from(*packet[at..].first_chunk::<4>().unwrap());
                (packet[9], address(12), address(16), &packet[header..usize::from(be16(packet, 2))])
            }
            0x86DD => {
                let address = |at| IpAddr::from(*packet[at..].first_chunk::<16>().unwrap());
                (packet[6], address(8), address(24), &packet[40..][..usize::from(be16(packet, 4))])
            }
            _ => return None,
        };
        (protocol == TCP).then(|| Self {
            flow: ((from, be16(tcp, 0)), (to, be16(tcp, 2))),
            seq: u32::from_be_bytes(*tcp[4..].first_chunk().unwrap()),
            flags: tcp[13],
            data: &tcp[usize::from(tcp[12] >> 4) * 4..],
        })
    }
}

/// The frames of a little-endian pcap file of Ethernet.
fn frames(file: &[u8]) -> impl Iterator<Item = &[u8]> {
    let le32 = |at: usize| u32::from_le_bytes(*file[at..].first_chunk().unwrap()) as usize;
    assert_eq!(le32(0), 0xA1B2_C3D4, "not a little-endian pcap file");
    assert_eq!(le32(20), 1, "link type is not Ethernet");
    let mut at = 24;
    std::iter::from_fn(move || {
        let (captured, sent) = (at < file.len()).then(|| (le32(at + 8), le32(at + 12)))?;
        assert_eq!(captured, sent, "a frame was cut short");
        let frame = &file[at + 16..][..captured];
        at += 16 + captured;
        Some(frame)
    })
}

fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}
