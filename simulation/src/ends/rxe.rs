//! Linux rxe, as the crate `rxe_model` has it. A packet takes [`PACKET_TIME`] of the kernel's task,
//! so a NAK may arrive while packets are being sent.

use std::rc::Rc;
use std::time::{Duration, Instant};

use wire::rocev2::{Packet, PathMtu, Psn};

use super::{Content, ETHERNET_IP_OCTETS, End, Outgoing};
use crate::Operation;
use crate::network::Ecn;
use crate::queue_pair::Memory;
use crate::requests::{Load, Requests};

/// The ACK timeout that connection management of the kernel chooses: 4.096 µs << 17.
const TIMEOUT: Duration = Duration::from_nanos(4096 << 17);
/// The number of retries. It is below 7, because rxe treats 7 as no limit.
const RETRIES: u8 = 6;
/// The time that the requester takes for a packet.
const PACKET_TIME: Duration = Duration::from_micros(2);
/// The octets of the UDP header and the ICRC.
const UDP_ICRC_OCTETS: usize = 8 + 4;

/// An end of a connection of rxe.
pub(crate) struct Rxe {
    model: rxe_model::Rxe,
    memory: Rc<Memory>,
    /// The messages of this end. `None` if the peer posts all messages.
    requests: Option<Requests>,
    /// The time from which the requester may send the next packet.
    next_packet: Instant,
}

impl Rxe {
    /// An end that posts this load, or that serves it.
    pub(crate) fn new(memory: &Rc<Memory>, mtu: PathMtu, load: Load, posts: bool) -> Self {
        let cfg = rxe_model::RxeCfg {
            mtu,
            peer_qpn: 0,
            sq_psn: Psn::default(),
            rq_psn: Psn::default(),
            timeout: TIMEOUT,
            retry_cnt: RETRIES,
        };
        Rxe {
            model: rxe_model::Rxe::new(cfg),
            memory: Rc::clone(memory),
            requests: posts.then(|| Requests::new(load)),
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
        if let Some(requests) = &mut self.requests {
            requests.complete(self.model.completed() - requests.completed.len(), now);
        }
    }

    fn act(&mut self, now: Instant, out: &mut Vec<Outgoing>) {
        self.model.expire(now);
        if let Some(requests) = &mut self.requests {
            let Load { operation, size, .. } = requests.load;
            let remote = self.memory.remote();
            let remote = (operation != Operation::Send).then_some((remote.addr, remote.key));
            while requests.post(now) {
                self.model.post(size as usize, remote);
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
        let start = self.requests.as_ref().and_then(Requests::deadline);
        let next_packet = self.model.has_request().then_some(self.next_packet);
        [start, self.model.deadline(), next_packet].into_iter().flatten().min()
    }

    fn requests(&self) -> Option<&Requests> {
        self.requests.as_ref()
    }

    fn failure(&self) -> Option<String> {
        self.model.failure().map(str::to_owned)
    }
}
