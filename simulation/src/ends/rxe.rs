//! A model of the kernel's rxe as it is (Linux 6.12, drivers/infiniband/sw/rxe): a requester of
//! WRITEs and SENDs, and their responder. It speaks the real packets, so its peer may be
//! softroce's engine.
//!
//! What matters for the results, and where the kernel has it:
//!
//! - At most 129 PSNs are in flight (`RXE_MAX_UNACKED_PSNS`, rxe_req.c). There is no congestion
//!   window, no pacing and no measurement of round trips.
//! - A loss sends everything again from the missing packet (`req_retry`).
//! - A requester that has started a retry ignores further NAKs until it gets a positive ACK or its
//!   timer expires (`comp.started_retry`, rxe_comp.c). A NAK that acknowledges earlier packets is
//!   no positive ACK.
//! - Each packet that arrives starts the timer again.
//! - The responder sends one NAK for a gap, and the next one only after a packet in order
//!   (`resp.sent_psn_nak`, rxe_resp.c). It answers each duplicate.
//!
//! - A packet takes [`PACKET_TIME`] of the kernel's task. Therefore a NAK may arrive while packets
//!   are being sent.
//!
//! Left out: READs and atomic operations, RNR NAKs, and the limit of 64 packets in the socket.

use std::rc::Rc;
use std::time::{Duration, Instant};

use wire::rocev2::{
    Aeth, Bth, Extension, NakCode, Opcode, Packet, PathMtu, Position, Psn, Reth, SendKind,
    Syndrome, packet_len,
};

use super::{Content, ETHERNET_IP_OCTETS, End, Outgoing};
use crate::Operation;
use crate::network::Ecn;
use crate::queue_pair::Memory;
use crate::requests::{Load, Requests};

/// rxe: `RXE_MAX_UNACKED_PSNS`.
const UNACKED_PSNS_MAX: u64 = 128;
/// rxe: `RXE_MAX_PKT_PER_ACK`. After one more than this number of packets, one asks for an
/// acknowledgement.
const PACKETS_PER_ACK_MAX: u32 = 64;
/// The ACK timeout that connection management of the kernel chooses: 4.096 µs << 17.
const TIMEOUT: Duration = Duration::from_nanos(4096 << 17);
/// The retries that OpenDAT asks for. rxe takes 7 for no limit.
const RETRIES: u32 = 6;
/// The time that the requester takes for a packet.
const PACKET_TIME: Duration = Duration::from_micros(2);
/// The octets of the UDP header and the ICRC.
const UDP_ICRC_OCTETS: usize = 8 + 4;

/// An end of a connection of rxe.
pub(crate) struct Rxe {
    mtu: PathMtu,
    memory: Rc<Memory>,
    requester: Option<Requester>,
    responder: Responder,
    /// The acknowledgements that are to be sent.
    answers: Vec<(Psn, Syndrome)>,
}

/// The names are those of rxe's structures. PSNs are counted from 0 and do not wrap.
struct Requester {
    requests: Requests,
    posted: u64,
    /// The next PSN to be sent (`req.psn`).
    req_psn: u64,
    /// The first PSN that is not acknowledged (`comp.psn`).
    comp_psn: u64,
    noack_pkts: u32,
    started_retry: bool,
    retry_cnt: u32,
    retrans_timer: Option<Instant>,
    /// The time from which the next packet may be sent.
    next_packet: Instant,
    failure: Option<&'static str>,
}

#[derive(Default)]
struct Responder {
    psn: u64,
    msn: u32,
    sent_psn_nak: bool,
}

/// The PSN that a packet means. `None` if it is before the first PSN of the connection.
fn absolute(psn: Psn, expected: u64) -> Option<u64> {
    let distance = psn.distance(wire_psn(expected));
    expected.checked_add_signed(distance.into())
}

fn wire_psn(psn: u64) -> Psn {
    Psn::new((psn % u64::from(Psn::COUNT)) as u32)
}

impl Rxe {
    /// An end that posts this load, or that serves it.
    pub(crate) fn new(memory: &Rc<Memory>, mtu: PathMtu, load: Load, posts: bool) -> Self {
        let requester = posts.then(|| Requester {
            requests: Requests::new(load),
            posted: 0,
            req_psn: 0,
            comp_psn: 0,
            noack_pkts: 0,
            started_retry: false,
            retry_cnt: RETRIES,
            retrans_timer: None,
            next_packet: load.start,
            failure: None,
        });
        let (memory, responder) = (Rc::clone(memory), Responder::default());
        Rxe { mtu, memory, requester, responder, answers: Vec::new() }
    }

    fn outgoing(bth: &Bth, extension: &Extension, payload: usize) -> Outgoing {
        let mut bytes = vec![0; packet_len(bth.opcode, payload)];
        Packet::emit_around(bth, extension, payload, &mut bytes);
        Outgoing {
            octets: bytes.len() + UDP_ICRC_OCTETS + ETHERNET_IP_OCTETS,
            payload,
            content: Content::RoceV2(bytes),
            ecn: Ecn::NotCapable,
        }
    }
}

impl Requester {
    fn packets_per_message(&self, mtu: PathMtu) -> u64 {
        mtu.packets(self.requests.load.size).into()
    }

    /// Handles an acknowledgement as the states of `rxe_completer` do.
    fn complete(&mut self, mtu: PathMtu, psn: Psn, syndrome: Syndrome, now: Instant) {
        let packets = self.packets_per_message(mtu);
        let Some(psn) = absolute(psn, self.comp_psn) else { return };
        // check_psn: a later message shows that the oldest messages are complete.
        loop {
            let last_psn = self.requests.completed.len() as u64 * packets + packets - 1;
            let is_posted = self.requests.outstanding() > 0;
            let is_pending = is_posted && self.req_psn > last_psn;
            if !is_posted || psn <= last_psn {
                break;
            }
            if !is_pending {
                return;
            }
            (self.retry_cnt, self.started_retry) = (RETRIES, false);
            self.comp_psn = self.comp_psn.max(last_psn + 1);
            self.requests.complete(1, now);
        }
        let last_psn = self.requests.completed.len() as u64 * packets + packets - 1;
        if self.requests.outstanding() == 0 || (psn < self.comp_psn && psn != last_psn) {
            return;
        }
        match syndrome {
            Syndrome::Ack { .. } => {
                (self.retry_cnt, self.started_retry) = (RETRIES, false);
                self.comp_psn = self.comp_psn.max(psn + 1);
                if psn == last_psn && self.req_psn > last_psn {
                    self.requests.complete(1, now);
                }
            }
            Syndrome::Nak(NakCode::SequenceError) => {
                self.comp_psn = self.comp_psn.max(psn);
                self.retry(false);
            }
            _ => self.failure = Some("the peer refused a request"),
        }
    }

    /// COMPST_ERROR_RETRY.
    fn retry(&mut self, is_timeout: bool) {
        if self.started_retry && !is_timeout {
            return;
        }
        if self.retry_cnt == 0 {
            self.failure = Some("the retries are used up");
            return;
        }
        self.retry_cnt -= 1;
        if self.req_psn > self.comp_psn {
            self.started_retry = true;
            self.req_psn = self.comp_psn;
        }
    }

    fn may_send(&self, mtu: PathMtu) -> bool {
        self.req_psn <= self.comp_psn + UNACKED_PSNS_MAX
            && self.req_psn < self.posted * self.packets_per_message(mtu)
    }

    /// Returns the next packet.
    fn transmit(&mut self, mtu: PathMtu, memory: &Memory, now: Instant) -> Outgoing {
        let (packets, size) = (self.packets_per_message(mtu), self.requests.load.size);
        let index = self.req_psn % packets;
        let position = Position::new(index == 0, index + 1 == packets);
        let (opcode, extension) = match self.requests.load.operation {
            Operation::Send => (Opcode::send(position, SendKind::Plain), Extension::None),
            _ if position.starts() => {
                let remote = memory.remote();
                let reth = Reth { va: remote.addr, r_key: remote.key, len: size };
                (Opcode::write(position, false), Extension::Reth(reth))
            }
            _ => (Opcode::write(position, false), Extension::None),
        };
        let ack_request = position.ends() || self.noack_pkts > PACKETS_PER_ACK_MAX;
        self.noack_pkts = if ack_request { 0 } else { self.noack_pkts + 1 };
        let payload = (size as usize - index as usize * mtu.octets()).min(mtu.octets());
        let bth = Bth { ack_request, ..Bth::new(opcode, 0, wire_psn(self.req_psn)) };
        self.req_psn += 1;
        self.retrans_timer.get_or_insert(now + TIMEOUT);
        self.next_packet = now + PACKET_TIME;
        Rxe::outgoing(&bth, &extension, payload)
    }
}

impl End for Rxe {
    fn receive(&mut self, now: Instant, content: &Content, _is_marked: bool) {
        let Content::RoceV2(bytes) = content else { return };
        let Ok(packet) = Packet::parse(bytes) else { return };
        let (opcode, psn) = (packet.bth.opcode, packet.bth.psn);
        if let (Some(requester), Extension::Aeth(aeth)) = (&mut self.requester, packet.extension) {
            requester.complete(self.mtu, psn, aeth.syndrome, now);
            if requester.req_psn > requester.comp_psn {
                requester.retrans_timer = Some(now + TIMEOUT);
            }
        }
        if opcode.is_request() {
            let responder = &mut self.responder;
            match psn.distance(wire_psn(responder.psn)) {
                0 => {
                    responder.sent_psn_nak = false;
                    responder.psn += 1;
                    responder.msn += u32::from(opcode.position().ends());
                    if packet.bth.ack_request {
                        self.answers.push((psn, Syndrome::ACK));
                    }
                }
                1.. if responder.sent_psn_nak => {}
                1.. => {
                    responder.sent_psn_nak = true;
                    let nak = Syndrome::Nak(NakCode::SequenceError);
                    self.answers.push((wire_psn(responder.psn), nak));
                }
                _ => self.answers.push((wire_psn(responder.psn).previous(), Syndrome::ACK)),
            }
        }
    }

    fn act(&mut self, now: Instant, out: &mut Vec<Outgoing>) {
        for (psn, syndrome) in self.answers.drain(..) {
            let aeth = Aeth { syndrome, msn: self.responder.msn & (Psn::COUNT - 1) };
            let bth = Bth::new(Opcode::Acknowledge, 0, psn);
            out.push(Rxe::outgoing(&bth, &Extension::Aeth(aeth), 0));
        }
        let Some(requester) = &mut self.requester else { return };
        if requester.failure.is_some() {
            return;
        }
        if requester.retrans_timer.take_if(|at| *at <= now).is_some()
            && requester.req_psn > requester.comp_psn
        {
            requester.retry(true);
        }
        while requester.requests.post(now) {
            requester.posted += 1;
        }
        if requester.failure.is_none()
            && requester.may_send(self.mtu)
            && now >= requester.next_packet
        {
            out.push(requester.transmit(self.mtu, &self.memory, now));
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let requester = self.requester.as_ref().filter(|one| one.failure.is_none())?;
        let next_packet = requester.may_send(self.mtu).then_some(requester.next_packet);
        let deadlines = [requester.requests.deadline(), requester.retrans_timer, next_packet];
        deadlines.into_iter().flatten().min()
    }

    fn requests(&self) -> Option<&Requests> {
        self.requester.as_ref().map(|requester| &requester.requests)
    }

    fn failure(&self) -> Option<String> {
        self.requester.as_ref().and_then(|one| one.failure).map(str::to_owned)
    }
}
