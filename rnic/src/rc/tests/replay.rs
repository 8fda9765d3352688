//! Replays both sides of every captured connection between other implementations in which no packet
//! was lost. Given the same work requests, the engine sends the same packets.
//!
//! The engine's packets are compared with those of the captured kernel, except for the bit MigReq.
//! The engine's keys are random. So if a captured packet of the peer contains a key of the captured
//! side, the test replaces this key by its own key.

use std::collections::HashMap;
use std::net::IpAddr;

use wire::cm::{Mad, Message};
use wire::rocev2::{AtomicEth, Icrc, Operation, UDP_PORT};

use super::*;
use crate::tests::capture;
use crate::{Remote, Segment, SendOp, WcStatus};

/// For each capture, the number of packets that were reproduced octet for octet: requests and
/// responses.
const EXPECTED: &str = "
dapl/rxe_dapl                      8     1
dapl/rxe_dapl2                    52    25
dapl/rxe_rping                    12    12
dapl/v6                           12    12
rxe/atomic                         5     5
rxe/cmatose                        6     6
rxe/dapltest-tr                   74    30
rxe/dtest                        218   218
rxe/dtestsrq                       6     6
rxe/dtestx                        10    10
rxe/killed                      3132  3132
rxe/rc-pingpong                   24     6
rxe/rnr                           60    60
rxe/rping-5000                    20    20
rxe/rping-64                      12    12
rxe/rstream                      126    66
rxe/write-imm-srq                 22    22
rxe-mtu4096/rc-pingpong           24     6
rxe-mtu4096/rping-5000            14    14
rxe-mtu4096/rping-64              12    12
two-guests-rxe/two-guests         40    40
user-space-peer-rxe                6     6
";

#[test]
#[cfg_attr(miri, ignore = "not a test: it takes long in Miri, which would find nothing new")]
fn every_connection_of_the_captures() {
    let mut table = String::new();
    for (name, file) in capture::captures(&capture::root("rocev2")) {
        if name.contains("loss") || name.contains("reorder") {
            // Repeated packets are skipped, because sending them again was a decision of the
            // captured sender.
            continue;
        }
        let (mut requests, mut responses) = (0, 0);
        for [caller, callee] in connections(&file) {
            for [end, peer] in [[caller, callee], [callee, caller]] {
                let packets = datagrams(&file).filter_map(|(_, to, packet)| match to {
                    _ if to == end => Some((false, packet)),
                    _ if to == peer => Some((true, packet)),
                    _ => None,
                });
                let sent = Replay::of(&packets.collect::<Vec<_>>(), peer.1, &name);
                requests += sent.0;
                responses += sent.1;
            }
        }
        if requests > 0 {
            table += &format!("{name:<30} {requests:>5} {responses:>5}\n");
        }
    }
    assert!(table.trim() == EXPECTED.trim(), "found:\n{table}\nexpected:\n{EXPECTED}");
}

/// A queue pair at an address.
type End = (IpAddr, u32);

/// RoCEv2 packets, each with its source address and its destination.
fn datagrams(file: &[u8]) -> impl Iterator<Item = (IpAddr, End, Packet<'_>)> {
    const UDP: u8 = 17;
    capture::packets(file)
        .filter(|ip| ip.protocol == UDP && ip.payload[2..4] == UDP_PORT.to_be_bytes())
        .map(|ip| {
            let packet = Packet::parse(&ip.payload[8..ip.payload.len() - Icrc::SIZE]).unwrap();
            (ip.source, (ip.destination, packet.bth.dest_qpn), packet)
        })
}

/// The two ends of each connection.
fn connections(file: &[u8]) -> Vec<[End; 2]> {
    let mut callers = HashMap::new();
    let mut connections = Vec::new();
    for (from, to, packet) in datagrams(file) {
        match (packet.bth.opcode, Mad::parse(packet.payload)) {
            (Opcode::DatagramSendOnly, Ok(Mad { message: Message::Req(req), .. })) => {
                callers.insert(req.local_id, req.qpn);
            }
            (Opcode::DatagramSendOnly, Ok(Mad { message: Message::Rep(rep), .. })) => {
                if let Some(caller) = callers.remove(&rep.remote_id) {
                    connections.push([(to.0, caller), (from, rep.qpn)]);
                }
            }
            _ => {}
        }
    }
    if connections.is_empty() {
        // Some programs exchange queue pair numbers by other means than CM. Both ends number their
        // queue pairs in the same order.
        let is_rc =
            |packet: &Packet<'_>| packet.bth.opcode.is_request() || packet.bth.opcode.is_response();
        let ends = datagrams(file).filter(|(.., packet)| is_rc(packet)).map(|(_, to, _)| to);
        let mut ends: Vec<_> = ends.collect();
        ends.sort();
        ends.dedup();
        let (here, there) = ends.split_at(ends.len() / 2);
        connections.extend(here.iter().zip(there).map(|(&here, &there)| [here, there]));
    }
    connections
}

/// The engine, which takes the place of one captured side.
struct Replay {
    side: Side,
    now: Instant,
    /// For each key of the captured side, the memory of the test and the captured start address.
    memory: HashMap<u32, (Buf, u64)>,
    /// The memory of posted requests.
    buffers: Vec<Buf>,
    requests: Vec<Vec<u8>>,
    responses: Vec<Vec<u8>>,
}

impl Replay {
    /// Plays one end of a conversation. `true` marks the packets that this end sent. Returns the
    /// number of requests and the number of responses that the engine sends.
    fn of(packets: &[(bool, Packet<'_>)], peer_qpn: u32, name: &str) -> (usize, usize) {
        let sent_by = |which| {
            packets.iter().filter(move |(ours, _)| *ours == which).map(|(_, packet)| packet)
        };
        let ours: Vec<_> = sent_by(true).collect();
        let theirs: Vec<_> = sent_by(false).collect();
        let first = |sent: &[&Packet<'_>]| {
            let request = sent.iter().find(|packet| packet.bth.opcode.is_request());
            request.map_or(Psn::default(), |packet| packet.bth.psn)
        };
        // The payload length of packets that do not end a message.
        let full = ours.iter().chain(&theirs).filter(|packet| !packet.bth.opcode.position().ends());
        let full = full.map(|packet| packet.payload.len()).max();
        let mtu = PathMtu::ALL.into_iter().find(|mtu| full.is_none_or(|len| mtu.octets() == len));
        let cfg = RcCfg {
            mtu: if full.is_none() { PathMtu::Octets4096 } else { mtu.unwrap() },
            ip_mtu: 1500,
            peer_qpn,
            sq_psn: first(&ours),
            rq_psn: first(&theirs),
            initiator_depth: 128,
            responder_resources: 128,
            window: 1 << 16,
            ..cfg(0)
        };
        let now = Instant::now();
        let mut side = Side::new(cfg, now);
        // The captured senders have no congestion window.
        side.rc.open_window();
        let mut replay = Replay {
            memory: memory(&side, &theirs),
            side,
            now,
            buffers: Vec::new(),
            requests: Vec::new(),
            responses: Vec::new(),
        };
        for (sent, packet) in packets {
            match *sent {
                false => replay.take(packet, &ours),
                true if packet.bth.opcode.is_request() => replay.post(packet, &ours),
                true => {}
            }
        }
        let captured = |requests: bool| -> Vec<_> {
            let kind = ours.iter().filter(|packet| packet.bth.opcode.is_request() == requests);
            let octets = kind.map(|packet| {
                let mut octets = vec![0; packet.len()];
                Packet { bth: Bth { migrated: true, ..packet.bth }, ..**packet }.emit(&mut octets);
                octets
            });
            octets.collect()
        };
        for (sent, captured) in
            [(&replay.requests, captured(true)), (&replay.responses, captured(false))]
        {
            // Some captures end before the last answer.
            if let Some(at) = (0..captured.len()).find(|&at| sent.get(at) != captured.get(at)) {
                let show = |packets: &[Vec<u8>]| words(packets.get(at..at + 1).unwrap_or(&[]));
                let (sent, captured) = (show(sent), show(&captured));
                panic!("{name}, to {peer_qpn:#x}, {at}: sent {sent:?}, captured {captured:?}");
            }
        }
        assert_eq!(replay.requests.len(), captured(true).len());
        let done = replay.side.completions();
        assert!(done.iter().all(|wc| wc.status == WcStatus::Success));
        (replay.requests.len(), replay.responses.len())
    }

    /// Passes a packet of the peer to the engine, with the test's keys in place of the captured
    /// side's.
    fn take(&mut self, packet: &Packet<'_>, ours: &[&Packet<'_>]) {
        let here = |va: &mut u64, r_key: &mut u32| {
            if let Some((buf, base)) = self.memory.get(r_key) {
                let Remote { addr, key } = buf.remote((*va - base) as usize);
                (*va, *r_key) = (addr, key);
            }
        };
        let mut extension = packet.extension;
        match &mut extension {
            Extension::Reth(reth) | Extension::RethImmediate(reth, _) => {
                if packet.bth.opcode == Opcode::ReadRequest {
                    self.fill_read_source(packet.bth.psn, *reth, ours);
                }
                here(&mut reth.va, &mut reth.r_key);
            }
            Extension::Atomic(AtomicEth { va, r_key, .. }) => {
                let answer = ours.iter().find(|answer| {
                    answer.bth.psn == packet.bth.psn
                        && answer.bth.opcode == Opcode::AtomicAcknowledge
                });
                if let (
                    Some((buf, base)),
                    Some(Packet { extension: Extension::AtomicAck(_, ack), .. }),
                ) = (self.memory.get(r_key), answer)
                {
                    buf.set_number((*va - base) as usize, ack.original);
                }
                here(va, r_key);
            }
            _ => {}
        }
        let takes_buffer = match packet.bth.opcode.operation() {
            Operation::Send => packet.bth.opcode.position().starts(),
            _ => matches!(extension, Extension::Immediate(_) | Extension::RethImmediate(..)),
        };
        if takes_buffer {
            let sink = self.side.buf(1 << 16);
            self.side.recv(0, &[sink.seg(0, 1 << 16)]);
            self.buffers.push(sink);
            self.side.received();
        }
        self.side.rc.receive(self.now, &Packet { extension, ..*packet }).unwrap();
        self.send_burst();
    }

    /// Fills the memory with the octets that a READ of the peer returned in the capture.
    fn fill_read_source(&self, psn: Psn, reth: Reth, ours: &[&Packet<'_>]) {
        let Some((buf, base)) = self.memory.get(&reth.r_key) else { return };
        let mut at = (reth.va - base) as usize;
        let end = at + reth.len as usize;
        let responses =
            ours.iter().filter(|packet| packet.bth.opcode.operation() == Operation::ReadResponse);
        for response in responses.skip_while(|response| response.bth.psn != psn) {
            if at < end {
                buf.octets_mut()[at..at + response.payload.len()].copy_from_slice(response.payload);
                at += response.payload.len();
            }
        }
    }

    /// Posts the work request that begins with this packet of the captured side.
    fn post(&mut self, packet: &Packet<'_>, ours: &[&Packet<'_>]) {
        if !packet.bth.opcode.position().starts() {
            return;
        }
        let from = ours.iter().position(|sent| sent.bth == packet.bth).unwrap();
        let rest = ours[from..].iter().filter(|sent| sent.bth.opcode.is_request());
        let mut message = Vec::new();
        for part in rest {
            message.push(*part);
            if part.bth.opcode.position().ends() {
                break;
            }
        }
        let octets: Vec<u8> = message.iter().flat_map(|part| part.payload).copied().collect();
        let last = message[message.len() - 1];
        let (mut len, mut immediate) = (octets.len(), None);
        if let Extension::Immediate(data) | Extension::RethImmediate(_, data) = last.extension {
            immediate = Some(data.to_be());
        }
        let op = match (packet.bth.opcode.operation(), packet.extension) {
            (Operation::Send, _) => SendOp::Send { invalidate: None },
            (Operation::Write, Extension::Reth(reth) | Extension::RethImmediate(reth, _)) => {
                let to = Remote { addr: reth.va, key: reth.r_key };
                immediate.map_or(SendOp::Write(to), |immediate| SendOp::WriteImm { to, immediate })
            }
            (Operation::ReadRequest, Extension::Reth(reth)) => {
                len = reth.len as usize;
                SendOp::Read(Remote { addr: reth.va, key: reth.r_key })
            }
            (operation, Extension::Atomic(AtomicEth { va, r_key, swap_or_add, compare })) => {
                len = 8;
                let at = Remote { addr: va, key: r_key };
                match operation {
                    Operation::FetchAdd => SendOp::FetchAdd { at, add: swap_or_add },
                    _ => SendOp::CompareSwap { at, compare, swap: swap_or_add },
                }
            }
            other => panic!("{other:?}"),
        };
        let buf = self.side.buf(len);
        buf.octets_mut()[..octets.len()].copy_from_slice(&octets);
        let segments: [Segment; 1] = [buf.seg(0, len)];
        self.side
            .post(crate::SendWr { solicited: last.bth.solicited, ..request(0, op, &segments) });
        self.buffers.push(buf);
        self.send_burst();
    }

    /// Acknowledges each packet that requests it, as the captured kernel does.
    fn send_burst(&mut self) {
        while self.side.rc.wants_tx() {
            self.side.rc.transmit(self.now, &mut self.side.burst).unwrap();
            self.keep();
        }
        self.side.rc.acknowledge(&mut self.side.burst);
        self.keep();
    }

    fn keep(&mut self) {
        for octets in self.side.sent() {
            match Packet::parse(&octets).unwrap().bth.opcode.is_request() {
                true => self.requests.push(octets),
                false => self.responses.push(octets),
            }
        }
    }
}

/// Creates memory for each key that the peer names.
fn memory(side: &Side, theirs: &[&Packet<'_>]) -> HashMap<u32, (Buf, u64)> {
    let mut ranges = HashMap::<u32, (u64, u64)>::new();
    for packet in theirs {
        let (va, r_key, len) = match packet.extension {
            Extension::Reth(reth) | Extension::RethImmediate(reth, _) => {
                (reth.va, reth.r_key, reth.len)
            }
            Extension::Atomic(atomic) => (atomic.va, atomic.r_key, 8),
            _ => continue,
        };
        let (start, end) = ranges.entry(r_key).or_insert((va & !63, va));
        *start = (va & !63).min(*start);
        *end = (va + u64::from(len)).max(*end);
    }
    let buf =
        |(key, (start, end)): (u32, (u64, u64))| (key, (side.buf((end - start) as usize), start));
    ranges.into_iter().map(buf).collect()
}
