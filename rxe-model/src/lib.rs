//! A model of rxe, the software RDMA device of Linux (6.12, drivers/infiniband/sw/rxe), as far as
//! losses matter: SENDs and WRITEs, without memory. The names are those of the kernel's source.
//! Packets and `Instant`s go in, packets and a deadline come out.
//!
//! - The requester goes back to the oldest unacknowledged packet, and has at most 129 PSNs in
//!   flight (rxe_req.c).
//! - The completer ignores a NAK while `started_retry` is set, and counts `retry_cnt` down. Only an
//!   acknowledgement that is new resets both (rxe_comp.c).
//! - Each acknowledgement starts the timer again (`COMPST_EXIT`, rxe_comp.c).
//! - The responder drops each packet after a missing one, and sends one NAK (rxe_resp.c). It
//!   answers each duplicate.
//!
//! There is no congestion window, no pacing and no measurement of round trips, because rxe has
//! none. The model leaves out READs and atomic operations, RNR NAKs, and the limit of 64 packets in
//! the socket.

#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use wire::rocev2::{
    Aeth, Bth, Extension, NakCode, Opcode, Packet, PathMtu, Position, Psn, Reth, SendKind,
    Syndrome, packet_len,
};

const RXE_MAX_UNACKED_PSNS: u32 = 128;
const RXE_MAX_PKT_PER_ACK: u32 = 64;
/// The retry count that stands for any number of retries.
const RETRY_CNT_INFINITE: u8 = 7;

/// The parameters of a queue pair.
#[derive(Clone, Copy, Debug)]
pub struct RxeCfg {
    /// The maximum payload of a packet.
    pub mtu: PathMtu,
    /// The number of the peer's queue pair.
    pub peer_qpn: u32,
    /// The first PSN that this side sends.
    pub sq_psn: Psn,
    /// The first PSN that the peer sends.
    pub rq_psn: Psn,
    /// The time without an acknowledgement after which the requester goes back.
    pub timeout: Duration,
    /// The number of retries without an acknowledgement. 7 stands for any number.
    pub retry_cnt: u8,
}

/// A queue pair of rxe.
///
/// ```text
/// for each message:  rxe.post(len, remote)
/// on a packet:       rxe.receive(now, packet)
/// at deadline():     rxe.expire(now)
/// after each:        send what rxe.transmit(now) returns, until it returns None
/// ```
#[derive(Debug)]
pub struct Rxe {
    cfg: RxeCfg,
    /// The send queue.
    wqes: VecDeque<Wqe>,
    req: Req,
    comp: Comp,
    resp: Resp,
    retrans_timer: Option<Instant>,
    /// The acknowledgements and NAKs that are to be sent.
    responses: VecDeque<Vec<u8>>,
    completed: usize,
    failure: Option<&'static str>,
}

#[derive(Debug)]
struct Wqe {
    /// The remote address and key of a WRITE. `None` for a SEND.
    remote: Option<(u64, u32)>,
    len: usize,
    first_psn: Psn,
    last_psn: Psn,
    state: WqeState,
    /// The number of octets that have been sent.
    sent: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WqeState {
    Posted,
    Processing,
    Pending,
}

#[derive(Debug)]
struct Req {
    wqe_index: usize,
    psn: Psn,
    need_retry: bool,
    noack_pkts: u32,
}

#[derive(Debug)]
struct Comp {
    psn: Psn,
    retry_cnt: u8,
    started_retry: bool,
}

#[derive(Debug)]
struct Resp {
    psn: Psn,
    sent_psn_nak: bool,
    msn: u32,
}

impl Rxe {
    /// A queue pair without requests, which is connected.
    pub fn new(cfg: RxeCfg) -> Rxe {
        Rxe {
            cfg,
            wqes: VecDeque::new(),
            req: Req { wqe_index: 0, psn: cfg.sq_psn, need_retry: false, noack_pkts: 0 },
            comp: Comp { psn: cfg.sq_psn, retry_cnt: cfg.retry_cnt, started_retry: false },
            resp: Resp { psn: cfg.rq_psn, sent_psn_nak: false, msn: 0 },
            retrans_timer: None,
            responses: VecDeque::new(),
            completed: 0,
            failure: None,
        }
    }

    /// Posts a request for a message of `len` octets: a WRITE to this address and key, or a SEND.
    pub fn post(&mut self, len: usize, remote: Option<(u64, u32)>) {
        let (first_psn, last_psn) = (self.req.psn, self.req.psn);
        let state = WqeState::Posted;
        self.wqes.push_back(Wqe { remote, len, first_psn, last_psn, state, sent: 0 });
    }

    /// The number of requests that have completed.
    pub fn completed(&self) -> usize {
        self.completed
    }

    /// The reason for which the connection is broken.
    pub fn failure(&self) -> Option<&'static str> {
        self.failure
    }

    /// Handles a packet of the peer.
    pub fn receive(&mut self, now: Instant, packet: &Packet<'_>) {
        if self.failure.is_some() {
            return;
        }
        match packet.extension {
            Extension::Aeth(Aeth { syndrome, .. }) => {
                // The completer does not run before the requester has gone back.
                self.go_back();
                self.run_completer(now, Some((packet.bth.psn, syndrome)));
            }
            _ => self.run_responder(packet),
        }
    }

    /// Returns the next packet to be sent.
    pub fn transmit(&mut self, now: Instant) -> Option<Vec<u8>> {
        self.transmit_response().or_else(|| self.transmit_request(now))
    }

    /// Returns the next packet of the responder.
    pub fn transmit_response(&mut self) -> Option<Vec<u8>> {
        self.responses.pop_front().filter(|_| self.failure.is_none())
    }

    /// Whether the requester may send a packet now.
    pub fn has_request(&self) -> bool {
        let is_window_open = !self.req.psn.is_after(self.comp.psn + RXE_MAX_UNACKED_PSNS);
        let has_wqe = self.req.wqe_index < self.wqes.len();
        self.failure.is_none() && (self.req.need_retry || is_window_open && has_wqe)
    }

    /// The time of the next [`expire`](Self::expire).
    pub fn deadline(&self) -> Option<Instant> {
        self.retrans_timer.filter(|_| self.failure.is_none())
    }

    /// Handles the end of the timer.
    pub fn expire(&mut self, now: Instant) {
        if self.retrans_timer.take_if(|at| *at <= now).is_some() {
            self.run_completer(now, None);
        }
    }

    /// Returns the next packet of the requester (`rxe_requester`).
    pub fn transmit_request(&mut self, now: Instant) -> Option<Vec<u8>> {
        self.go_back();
        if !self.has_request() {
            return None;
        }
        let mtu = self.cfg.mtu.octets();
        let wqe = self.wqes.get_mut(self.req.wqe_index)?;
        let left = wqe.len - wqe.sent;
        let payload = left.min(mtu);
        // If all packets of the first message are acknowledged, it starts again with no octet.
        let starts = wqe.sent == 0 || left == 0;
        let ends = left <= mtu;
        if starts {
            wqe.first_psn = self.req.psn;
            wqe.last_psn = self.req.psn + (left.div_ceil(mtu).max(1) as u32 - 1);
        }
        wqe.state = if ends { WqeState::Pending } else { WqeState::Processing };
        let ack_request = ends || self.req.noack_pkts > RXE_MAX_PKT_PER_ACK;
        self.req.noack_pkts = if ack_request { 0 } else { self.req.noack_pkts + 1 };
        let position = Position::new(starts, ends);
        let (opcode, extension) = match wqe.remote {
            None => (Opcode::send(position, SendKind::Plain), Extension::None),
            Some((va, r_key)) if starts => {
                let reth = Reth { va: va + wqe.sent as u64, r_key, len: left as u32 };
                (Opcode::write(position, false), Extension::Reth(reth))
            }
            Some(_) => (Opcode::write(position, false), Extension::None),
        };
        let bth = Bth { ack_request, ..Bth::new(opcode, self.cfg.peer_qpn, self.req.psn) };
        let octets: Vec<_> = (wqe.sent..wqe.sent + payload).map(octet).collect();
        wqe.sent += payload;
        self.req.psn = self.req.psn.next();
        self.req.wqe_index += usize::from(ends);
        self.retrans_timer.get_or_insert(now + self.cfg.timeout);
        Some(emit(bth, extension, &octets))
    }

    /// Goes back to the oldest unacknowledged packet if the completer has asked for it
    /// (`req_retry`).
    fn go_back(&mut self) {
        if !std::mem::take(&mut self.req.need_retry) {
            return;
        }
        (self.req.wqe_index, self.req.psn) = (0, self.comp.psn);
        for (index, wqe) in self.wqes.iter_mut().enumerate() {
            if wqe.state == WqeState::Posted {
                break;
            }
            let acknowledged = match index {
                0 => self.comp.psn.distance(wqe.first_psn).max(0) as usize,
                _ => 0,
            };
            wqe.sent = wqe.len.min(acknowledged * self.cfg.mtu.octets());
            wqe.state = WqeState::Posted;
        }
    }

    /// `rxe_completer`: processes a response, or the end of the timer.
    fn run_completer(&mut self, now: Instant, response: Option<(Psn, Syndrome)>) {
        match response {
            None => self.error_retry(true),
            Some((psn, syndrome)) => self.check_psn(psn, syndrome),
        }
        // `COMPST_EXIT`
        if self.req.psn.is_after(self.comp.psn) {
            self.retrans_timer = Some(now + self.cfg.timeout);
        }
    }

    fn check_psn(&mut self, psn: Psn, syndrome: Syndrome) {
        while let Some(wqe) = self.wqes.front() {
            if wqe.state == WqeState::Posted {
                return;
            }
            if psn.is_after(wqe.last_psn) {
                if wqe.state != WqeState::Pending {
                    return;
                }
                self.reset_retry_counters();
                self.complete();
                continue;
            }
            if psn.is_before(self.comp.psn) {
                if psn == wqe.last_psn {
                    self.complete();
                }
                return;
            }
            match syndrome {
                Syndrome::Ack { .. } => {
                    let completes = wqe.state == WqeState::Pending && wqe.last_psn == psn;
                    self.reset_retry_counters();
                    self.comp.psn = psn.next();
                    if completes {
                        self.complete();
                    }
                }
                Syndrome::Nak(NakCode::SequenceError) => {
                    self.comp.psn = psn;
                    self.error_retry(false);
                }
                _ => self.failure = Some("the peer refused a request"),
            }
            return;
        }
    }

    /// `reset_retry_counters`
    fn reset_retry_counters(&mut self) {
        (self.comp.retry_cnt, self.comp.started_retry) = (self.cfg.retry_cnt, false);
    }

    /// `complete_wqe`, `complete_ack`
    fn complete(&mut self) {
        let Some(wqe) = self.wqes.pop_front() else { return };
        if !wqe.last_psn.is_before(self.comp.psn) {
            self.comp.psn = wqe.last_psn.next();
        }
        self.req.wqe_index = self.req.wqe_index.saturating_sub(1);
        self.completed += 1;
    }

    /// `COMPST_ERROR_RETRY`
    fn error_retry(&mut self, timeout_retry: bool) {
        if self.wqes.front().is_none_or(|wqe| wqe.state == WqeState::Posted) {
            return;
        }
        if self.comp.started_retry && !timeout_retry {
            return;
        }
        if self.comp.retry_cnt == 0 {
            self.failure = Some("the retries are used up");
            return;
        }
        if self.comp.retry_cnt != RETRY_CNT_INFINITE {
            self.comp.retry_cnt -= 1;
        }
        if self.req.psn.is_after(self.comp.psn) {
            (self.req.need_retry, self.comp.started_retry) = (true, true);
        }
    }

    /// `rxe_responder`
    fn run_responder(&mut self, packet: &Packet<'_>) {
        let psn = packet.bth.psn;
        match psn.distance(self.resp.psn) {
            1.. => {
                if !std::mem::replace(&mut self.resp.sent_psn_nak, true) {
                    self.answer(self.resp.psn, Syndrome::Nak(NakCode::SequenceError));
                }
            }
            0 => {
                self.resp.sent_psn_nak = false;
                self.resp.psn = psn.next();
                self.resp.msn += u32::from(packet.bth.opcode.position().ends());
                if packet.bth.ack_request {
                    self.answer(psn, Syndrome::ACK);
                }
            }
            // `duplicate_request`
            _ => self.answer(self.resp.psn.previous(), Syndrome::ACK),
        }
    }

    fn answer(&mut self, psn: Psn, syndrome: Syndrome) {
        let bth = Bth::new(Opcode::Acknowledge, self.cfg.peer_qpn, psn);
        let aeth = Aeth { syndrome, msn: self.resp.msn };
        self.responses.push_back(emit(bth, Extension::Aeth(aeth), &[]));
    }
}

/// The octet at this offset of each message.
pub fn octet(offset: usize) -> u8 {
    (offset % 251) as u8
}

fn emit(bth: Bth, extension: Extension, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; packet_len(bth.opcode, payload.len())];
    Packet { bth, extension, payload }.emit(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests;
