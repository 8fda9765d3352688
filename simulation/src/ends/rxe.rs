//! Linux rxe, as the crate `rxe_model` has it. A packet takes [`PACKET_TIME`] of the kernel's task,
//! so a NAK may arrive while packets are being sent.

use std::time::{Duration, Instant};

use rnic::Remote;
use rxe_model::{Op, WorkRequest};
use wire::rocev2::{Packet, PathMtu, Psn};

use super::{Content, ETHERNET_IP_OCTETS, End, Outgoing};
use crate::Operation;
use crate::network::Ecn;
use crate::posted_messages::{Load, PostedMessages};

/// The ACK timeout that connection management of the kernel chooses: 4.096 µs << 17.
const TIMEOUT: Duration = Duration::from_nanos(4096 << 17);
/// The number of retries. It is below 7, because rxe treats 7 as no limit.
const RETRIES: u8 = 6;
/// The number of READs in flight, which consumers choose.
const RD_ATOMIC: usize = 16;
/// The time that the requester takes for a packet.
const PACKET_TIME: Duration = Duration::from_micros(2);
/// The number of octets of the UDP header and the ICRC.
const UDP_ICRC_OCTETS: usize = 8 + 4;

/// The memory of each end, as the peer names it.
pub(crate) const MEMORY: Remote = Remote { addr: 0, key: rxe_model::R_KEY };

/// An end of a connection of rxe.
pub(crate) struct Rxe {
    model: rxe_model::Rxe,
    /// The peer's memory.
    remote: rxe_model::Remote,
    /// The messages of this end. `None` if the peer posts all messages.
    requests: Option<PostedMessages>,
    /// The time from which the requester may send the next packet.
    next_packet: Instant,
}

impl Rxe {
    /// An end that posts this load, or that serves it. `remote` is the peer's memory.
    pub(crate) fn new(remote: Remote, mtu: PathMtu, load: Load, posts: bool) -> Self {
        let cfg = rxe_model::RxeCfg {
            mtu,
            peer_qpn: 0,
            sq_psn: Psn::default(),
            rq_psn: Psn::default(),
            timeout: TIMEOUT,
            retry_cnt: RETRIES,
            rd_atomic: RD_ATOMIC,
        };
        Rxe {
            model: rxe_model::Rxe::new(cfg, vec![0; load.size as usize]),
            remote: rxe_model::Remote { va: remote.addr, r_key: remote.key },
            requests: posts.then(|| PostedMessages::new(load)),
            next_packet: load.start,
        }
    }
}

fn outgoing(bytes: Vec<u8>) -> Outgoing {
    Outgoing {
        octets: bytes.len() + UDP_ICRC_OCTETS + ETHERNET_IP_OCTETS,
        payload: Packet::parse(&bytes).map_or(0, |packet| packet.payload.len()),
        content: Content::RoceV2(bytes),
        ecn: Ecn::NotCapable,
    }
}

impl End for Rxe {
    fn receive(&mut self, now: Instant, content: &Content, _is_marked: bool) {
        let Content::RoceV2(bytes) = content else { return };
        let Ok(packet) = Packet::parse(bytes) else { return };
        self.model.receive(now, &packet);
        // Experiments measure times and not contents.
        while self.model.take_received().is_some() {}
        if let Some(requests) = &mut self.requests {
            requests.complete(self.model.completed() - requests.completed.len(), now);
        }
    }

    fn act(&mut self, now: Instant, out: &mut Vec<Outgoing>) {
        self.model.expire(now);
        if let Some(requests) = &mut self.requests {
            let Load { operation, size, .. } = requests.load;
            let op = match operation {
                Operation::Send => Op::Send,
                Operation::Write => Op::Write(self.remote),
                Operation::Read => Op::Read(self.remote),
            };
            while requests.post(now) {
                self.model.post(WorkRequest { op, local: 0, len: size as usize });
            }
        }
        out.extend(std::iter::from_fn(|| self.model.transmit_response()).map(outgoing));
        if now >= self.next_packet
            && let Some(packet) = self.model.transmit_request(now)
        {
            self.next_packet = now + PACKET_TIME;
            out.push(outgoing(packet));
        }
    }

    fn deadline(&self) -> Option<Instant> {
        if self.model.failure().is_some() {
            return None;
        }
        let start = self.requests.as_ref().and_then(PostedMessages::deadline);
        let next_packet = self.model.has_request().then_some(self.next_packet);
        [start, self.model.deadline(), next_packet].into_iter().flatten().min()
    }

    fn requests(&self) -> Option<&PostedMessages> {
        self.requests.as_ref()
    }

    fn failure(&self) -> Option<String> {
        self.model.failure().map(str::to_owned)
    }
}
