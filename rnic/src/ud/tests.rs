//! Tests of datagram queue pairs: over an emulated network with a clock of its own, and against
//! packets made by hand.

mod hostile;
mod network;
mod receive;
mod replay;
mod send;

use std::net::{IpAddr, Ipv4Addr};
use std::ops::Deref;
use std::sync::Arc;

use wire::cm::UDP_Q_KEY;
use wire::rocev2::{Bth, Deth, Extension, Opcode, Packet, PathMtu, Psn, packet_len};

use super::cm_key_hosts::HOSTS_MAX;
use super::*;
use crate::rc::burst::ICRC_SIZE;
use crate::tests::*;
use crate::{
    Access, Burst, DatagramWr, Destination, Keys, Mw, PostError, Qp, RecvWr, Segment, Srq, Wc,
    WcOp, WcStatus, Work,
};

const Q_KEY: u32 = 0x1122_3344;
const QPN: u32 = 0x11_2233;
const CFG: UdCfg = UdCfg { q_key: Q_KEY, mtu: PathMtu::Octets4096, p_key: Bth::DEFAULT_P_KEY };
const PEER: Destination = Destination { address: HOST, route: 3, qpn: 0x44_5566, q_key: Q_KEY };
const HOST: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
const HEADER: [u8; HEADER_SIZE] = [0x47; HEADER_SIZE];

/// A queue pair with its engine.
struct End {
    queues: Queues,
    ud: DatagramQp,
    burst: Burst,
}

impl Deref for End {
    type Target = Queues;

    fn deref(&self) -> &Queues {
        &self.queues
    }
}

impl End {
    fn new() -> End {
        End::of(Queues::new(None, Arc::new(Keys::new())), CFG)
    }

    /// An end with a shared receive queue for this number of buffers. The queue calls `notify` at
    /// its low watermark.
    fn with_srq(depth: usize, notify: impl Fn() + Send + Sync + 'static) -> (End, Arc<Srq>) {
        let keys = Arc::new(Keys::new());
        let pd = keys.pd();
        let srq = Arc::new(Srq::new(&keys, pd, depth, SEGMENTS, notify).unwrap());
        (End::of(Queues::new(Some((Arc::clone(&srq), pd)), keys), CFG), srq)
    }

    fn of((queues, work): (Queues, Work), cfg: UdCfg) -> End {
        let (ud, burst) = (DatagramQp::new(work, cfg), Burst::new(64, 1 << 19));
        End { queues, ud, burst }
    }

    fn try_datagram(&self, wr: DatagramWr<'_>) -> Result<u32, PostError> {
        try_datagram(&self.qp, wr)
    }

    fn datagram(&self, wr: DatagramWr<'_>) {
        let len: u32 = wr.segments.iter().map(|segment| segment.len).sum();
        assert_eq!(self.try_datagram(wr), Ok(len));
    }

    fn transmit(&mut self, to: Destination) -> Result<(), Failure> {
        self.ud.transmit(to, QPN, &mut self.burst)
    }

    /// Takes the packets out of the burst, without their ICRCs.
    fn sent(&mut self) -> Vec<Vec<u8>> {
        let mut rest = self.burst.octets();
        let packets = self.burst.lens().iter().map(|&len| {
            let (datagram, after) = rest.split_at(len.into());
            rest = after;
            datagram[..datagram.len() - ICRC_SIZE].to_vec()
        });
        let packets = packets.collect();
        self.burst.clear();
        packets
    }

    /// Takes a packet from the network.
    fn take(&mut self, packet: &[u8]) -> Result<(), Failure> {
        self.take_from(HOST, packet)
    }

    /// Takes a packet of this host from the network.
    fn take_from(&mut self, host: IpAddr, packet: &[u8]) -> Result<(), Failure> {
        self.ud.receive(&Packet::parse(packet).unwrap(), host, &HEADER)
    }

    /// Asserts the value of this counter of received packets. All others must be 0.
    fn assert_received_as(&self, name: &str, count: u64) {
        for (other, value) in self.ud.stats().list() {
            assert_eq!(value, if other == name { count } else { 0 }, "{other}");
        }
    }
}

fn try_datagram(qp: &Qp, wr: DatagramWr<'_>) -> Result<u32, PostError> {
    // SAFETY: each test runs in one thread, and the buffers outlive the posted work requests.
    unsafe { qp.post_datagram(&wr) }
}

fn datagram(id: u64, segments: &[Segment]) -> DatagramWr<'_> {
    DatagramWr {
        id,
        to: PEER,
        immediate: None,
        segments,
        signalled: true,
        solicited: false,
        quiet: false,
    }
}

/// A datagram made by hand, for the queue pair with the number `QPN`.
fn packet(payload: &[u8]) -> Vec<u8> {
    let deth = Deth { q_key: Q_KEY, source_qpn: PEER.qpn };
    of_bth(Bth::new(Opcode::DatagramSendOnly, QPN, Psn::new(0)), Extension::Deth(deth), payload)
}

fn of_bth(bth: Bth, extension: Extension, payload: &[u8]) -> Vec<u8> {
    let mut octets = vec![0; packet_len(bth.opcode, payload.len())];
    Packet { bth, extension, payload }.emit(&mut octets);
    octets
}

/// The completion of a receive with this payload.
fn recv_wc(id: u64, payload: usize) -> Wc {
    wc(id, WcOp::Recv, HEADER_SIZE + payload, WcStatus::Success)
}

/// Divides a range of a buffer into as many segments as allowed, some of them empty, in a random
/// order of the memory.
fn scattered(rng: &mut Rng, buf: &Buf, len: usize) -> Vec<Segment> {
    let mut cuts: Vec<usize> = (1..SEGMENTS).map(|_| rng.below(len + 1)).collect();
    cuts.extend([0, len]);
    cuts.sort();
    let mut segments: Vec<Segment> =
        cuts.windows(2).map(|cut| buf.seg(cut[0], cut[1] - cut[0])).collect();
    for last in (1..segments.len()).rev() {
        segments.swap(last, rng.below(last + 1));
    }
    segments
}

/// The octets of segments of a buffer, in the order of the segments.
fn octets_of(buf: &Buf, segments: &[Segment]) -> Vec<u8> {
    let octets = segments.iter().flat_map(|segment| {
        let at = (segment.addr - buf.addr()) as usize;
        &buf.octets()[at..at + segment.len as usize]
    });
    octets.copied().collect()
}
