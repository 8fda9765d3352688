//! Reassembles the TCP streams of a capture. It supports only the captures of this repository, and
//! panics on anything else.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::capture::{Ip, be16, packets};

/// A TCP connection whose start is in the capture.
pub(crate) struct Connection {
    pub(crate) initiator: Stream,
    pub(crate) responder: Stream,
}

/// The octets that one side sent, in order.
#[derive(Default)]
pub(crate) struct Stream {
    pub(crate) bytes: Vec<u8>,
    /// TCP segments that were sent again, or arrived after a later part of the stream.
    pub(crate) disordered: usize,
}

/// The connections of a capture in the order of their start.
pub(crate) fn connections(file: &[u8]) -> Vec<Connection> {
    let mut sides = BTreeMap::new();
    let mut opened = vec![];
    for packet in packets(file) {
        let Some(segment) = Segment::parse(&packet) else { continue };
        if segment.flags & (SYN | ACK) == SYN && !opened.contains(&segment.flow) {
            opened.push(segment.flow);
        }
        sides.entry(segment.flow).or_insert_with(Vec::new).push(segment);
    }

    let mut stream =
        |flow| sides.remove(&flow).map(|segments| reassemble(&segments)).unwrap_or_default();
    let connections = opened
        .iter()
        .map(|&(from, to)| Connection {
            initiator: stream((from, to)),
            responder: stream((to, from)),
        })
        .collect();
    assert!(sides.is_empty(), "these streams have no SYN: {:?}", sides.keys());
    connections
}

fn reassemble(segments: &[Segment<'_>]) -> Stream {
    // A side that sent no SYN has sent only a RST.
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
        while let Some(start) =
            waiting.first_entry().filter(|first| *first.key() <= stream.bytes.len())
        {
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
    /// Parses a packet. Returns `None` if it is not TCP.
    fn parse(packet: &Ip<'a>) -> Option<Self> {
        const TCP: u8 = 6;
        let tcp = packet.payload;
        (packet.protocol == TCP).then(|| Self {
            flow: ((packet.source, be16(tcp, 0)), (packet.destination, be16(tcp, 2))),
            seq: u32::from_be_bytes(*tcp[4..].first_chunk().unwrap()),
            flags: tcp[13],
            data: &tcp[usize::from(tcp[12] >> 4) * 4..],
        })
    }
}
