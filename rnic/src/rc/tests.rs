//! Tests of engines against each other over an emulated network with a clock of its own, and
//! against packets made by hand.

mod ack_only;
mod acknowledgements;
mod bottleneck;
mod gap;
mod hostile;
mod lengths;
mod lossy;
mod notification;
mod order;
mod outage;
mod replay;
mod requester;
mod responder;
mod rxe;
mod strangers;
mod transfer;
mod wheel;

use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use netem::{Channel, Conditions};
use wire::rocev2::{
    Aeth, Bth, Extension, Opcode, Packet, PathMtu, Psn, Reth, RnrTimer, Syndrome, packet_len,
};

use super::*;
use crate::tests::*;
use crate::{Keys, Pd, Srq, Wc, Work};

/// One end of a connection, and the network from it to the other end.
pub(crate) struct Side {
    queues: Queues,
    pub(crate) rc: ReliableConnection,
    pub(crate) early_pool: Arc<EarlyPool>,
    pub(crate) burst: Burst,
    channel: Channel<Vec<u8>>,
}

impl Deref for Side {
    type Target = Queues;

    fn deref(&self) -> &Queues {
        &self.queues
    }
}

pub(crate) const MTU: PathMtu = PathMtu::Octets256;
pub(crate) const OCTETS: usize = MTU.octets();
/// The starting PSNs in `cfg`: each side's first packet has the PSN that the other side expects.
pub(crate) const PSNS: [Psn; 2] = [Psn::new(0xFF_FFF0), Psn::new(7)];
pub(crate) const QPNS: [u32; 2] = [0x11, 0x22];

/// The configuration of the side whose peer has the index `peer`.
pub(crate) fn cfg(peer: usize) -> RcCfg {
    RcCfg {
        mtu: MTU,
        ip_mtu: MTU.octets(),
        peer_qpn: QPNS[peer],
        p_key: 0xFFFF,
        sq_psn: PSNS[1 - peer],
        rq_psn: PSNS[peer],
        initiator_depth: 4,
        responder_resources: 4,
        ack_timeout: 17,
        retries: 7,
        rnr_retries: 7,
        rnr_timer: RnrTimer::from_code(12),
        window: 64,
    }
}

/// Takes the packets out of a burst, without their ICRCs.
fn take_packets(burst: &mut Burst) -> Vec<Vec<u8>> {
    let mut rest = burst.octets();
    let packets = burst.lens().iter().map(|&len| {
        let (datagram, after) = rest.split_at(len.into());
        rest = after;
        datagram[..datagram.len() - burst::ICRC_SIZE].to_vec()
    });
    let packets = packets.collect();
    burst.clear();
    packets
}

impl Side {
    pub(crate) fn new(cfg: RcCfg, now: Instant) -> Side {
        Side::with_srq(cfg, None, Arc::new(Keys::new()), now)
    }

    pub(crate) fn with_srq(
        cfg: RcCfg,
        srq: Option<(Arc<Srq>, Pd)>,
        keys: Arc<Keys>,
        now: Instant,
    ) -> Side {
        Side::of(Queues::new(srq, keys), cfg, now)
    }

    pub(crate) fn of((queues, work): (Queues, Work), cfg: RcCfg, now: Instant) -> Side {
        let early_pool = Arc::default();
        let rc = ReliableConnection::new(work, cfg, now).with_early_pool(&early_pool);
        let (burst, channel) = (Burst::new(64, 1 << 18), Channel::new(Conditions::default()));
        Side { queues, rc, early_pool, burst, channel }
    }

    /// The packets that this side has put into its burst.
    pub(crate) fn sent(&mut self) -> Vec<Vec<u8>> {
        take_packets(&mut self.burst)
    }

    pub(crate) fn take(&mut self, now: Instant, packet: &[u8]) -> Result<(), Failure> {
        self.rc.receive(now, &Packet::parse(packet).unwrap())
    }

    /// Passes the burst to the network. Returns whether it contained packets.
    fn send_burst(&mut self, now: Instant) -> bool {
        let packets = self.sent();
        let any = !packets.is_empty();
        for packet in packets {
            // The size on the wire includes the headers of Ethernet, IPv4 and UDP, and the ICRC.
            let octets = packet.len() + 14 + 20 + 8 + 4;
            self.channel.send(now, packet, octets);
        }
        any
    }

    /// Performs all actions that are possible at this time. Returns whether there were any.
    fn run(&mut self, now: Instant, from: &mut Channel<Vec<u8>>) -> Result<bool, Failure> {
        let mut moved = false;
        while let Some(packet) = from.receive(now) {
            self.take(now, &packet)?;
            moved = true;
        }
        if self.rc.deadline().is_some_and(|at| at <= now) {
            self.rc.expire(now)?;
            moved = true;
        }
        while self.rc.wants_tx() {
            let result = self.rc.transmit(now, &mut self.burst);
            self.send_burst(now);
            result?;
            moved = true;
        }
        if self.rc.owes_ack() {
            self.rc.acknowledge(&mut self.burst);
            moved |= self.send_burst(now);
        }
        Ok(moved)
    }

    /// Acts as the owner of a failed connection.
    pub(crate) fn end(&mut self, now: Instant) {
        self.rc.transmit_fatal_nak(&mut self.burst);
        self.send_burst(now);
        self.rc.flush();
    }
}

/// Two ends, and the network between them.
pub(crate) struct Pair {
    pub(crate) a: Side,
    pub(crate) b: Side,
    pub(crate) start: Instant,
    pub(crate) now: Instant,
}

impl Pair {
    pub(crate) fn new() -> Pair {
        Pair::with(|_| {})
    }

    /// A pair for which `change` has changed both configurations.
    pub(crate) fn with(change: impl Fn(&mut RcCfg)) -> Pair {
        let now = Instant::now();
        let side = |peer| {
            let mut cfg = cfg(peer);
            change(&mut cfg);
            Side::new(cfg, now)
        };
        Pair { a: side(1), b: side(0), start: now, now }
    }

    /// Connects the two sides by a network with these conditions, in both directions.
    pub(crate) fn over(mut self, conditions: &Conditions) -> Pair {
        self.a.channel = Channel::new(conditions.clone());
        self.b.channel =
            Channel::new(Conditions { seed: conditions.seed ^ 0xB, ..conditions.clone() });
        self
    }

    /// Performs all actions that are possible now, then advances the clock to the next event.
    /// Returns whether there is one.
    pub(crate) fn step(&mut self) -> Result<bool, (char, Failure)> {
        loop {
            let moved =
                self.b.run(self.now, &mut self.a.channel).map_err(|failure| ('b', failure))?;
            if !moved
                & !self.a.run(self.now, &mut self.b.channel).map_err(|failure| ('a', failure))?
            {
                break;
            }
        }
        let Pair { a, b, now, .. } = self;
        let events = [a.channel.deadline(), b.channel.deadline(), a.rc.deadline(), b.rc.deadline()];
        let next = events.into_iter().flatten().min();
        // If the next event is overdue, the clock still advances by a nanosecond.
        *now = next.map_or(*now, |at| at.max(*now + Duration::from_nanos(1)));
        Ok(next.is_some())
    }

    /// Runs until no more events follow.
    pub(crate) fn drive(&mut self) -> Result<(), (char, Failure)> {
        while self.step()? {}
        Ok(())
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.now - self.start
    }
}

/// The completions of both ends: requests and receives of `a`, then of `b`.
pub(crate) fn all(pair: &Pair) -> [Vec<Wc>; 4] {
    [pair.a.completions(), pair.a.received(), pair.b.completions(), pair.b.received()]
}

/// A packet made by hand. If it is a request, it requests an acknowledgement.
pub(crate) fn packet(opcode: Opcode, psn: Psn, extension: Extension, payload: &[u8]) -> Vec<u8> {
    let bth = Bth { ack_request: opcode.is_request(), ..Bth::new(opcode, 0, psn) };
    let mut octets = vec![0; packet_len(opcode, payload.len())];
    Packet { bth, extension, payload }.emit(&mut octets);
    octets
}

/// An ACK packet with any syndrome.
pub(crate) fn answer(syndrome: Syndrome, psn: Psn) -> Vec<u8> {
    packet(Opcode::Acknowledge, psn, Extension::Aeth(Aeth { syndrome, msn: 0 }), &[])
}

/// Packets as text, without queue pair numbers and keys.
pub(crate) fn words(packets: &[Vec<u8>]) -> Vec<String> {
    let word = |packet: &Vec<u8>| {
        let Packet { bth, extension, payload } = Packet::parse(packet).unwrap();
        let flags = [(bth.solicited, " solicited"), (bth.ack_request, " ask")];
        let flags: String =
            flags.into_iter().filter(|(set, _)| *set).map(|(_, flag)| flag).collect();
        let extension = match extension {
            Extension::Reth(Reth { len, .. }) => format!(" of {len}"),
            Extension::Aeth(aeth) | Extension::AtomicAck(aeth, _) => format!(" {}", aeth.syndrome),
            Extension::RethImmediate(Reth { len, .. }, octets) => {
                format!(" of {len} immediate={:#x}", octets.to_be())
            }
            Extension::Atomic(_) => String::new(),
            other => other.to_string(),
        };
        format!("{} {}{extension}{flags} {}", bth.psn, bth.opcode, payload.len())
    };
    packets.iter().map(word).collect()
}
