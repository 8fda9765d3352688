//! A model of rxe, the software RDMA device of Linux (6.12, drivers/infiniband/sw/rxe), as far as
//! losses matter. The names are those of the kernel's source. Packets and `Instant`s go in, packets
//! and a deadline come out.
//!
//! | file | what |
//! |---|---|
//! | `requester` | sends requests, and goes back after a loss (rxe_req.c) |
//! | `completer` | handles the peer's responses, and completes requests (rxe_comp.c) |
//! | `responder` | carries out the peer's requests (rxe_resp.c) |
//!
//! - The requester goes back to the oldest unacknowledged packet, and has at most 129 PSNs in
//!   flight. It has at most [`RxeCfg::rd_atomic`] READs and atomic operations in flight.
//! - The completer ignores a NAK while `started_retry` is set, and counts `retry_cnt` down. Only an
//!   acknowledgement that is new resets both.
//! - A response to a later request shows that the response to a READ or an atomic operation is
//!   lost (`check_psn`). An acknowledgement of the last PSN of a READ or an atomic operation itself
//!   completes it although no data have arrived (`COMPST_WRITE_SEND`).
//! - Each acknowledgement starts the timer again (`reset_retry_timer`).
//! - The responder drops each packet after a missing one, and sends one NAK. It answers each
//!   duplicate. It remembers the last [`RxeCfg::rd_atomic`] READs and atomic operations. It carries
//!   out a repeated READ again, and returns the first result of a repeated atomic operation.
//!
//! There is no congestion window, no pacing and no measurement of round trips, because rxe has
//! none. The model leaves out the responder's RNR NAKs, because it always has receive buffers, and
//! the limit of 64 packets in the socket.

#![forbid(unsafe_code)]

mod completer;
mod requester;
mod responder;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use completer::Comp;
use requester::Req;
use responder::Resp;
use wire::rocev2::{Bth, Extension, Packet, PathMtu, Psn, packet_len};

/// The key of a queue pair's [memory](Rxe::memory), for all accesses of the peer.
pub const R_KEY: u32 = 0x1234;

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
    /// The maximum number of READs and atomic operations in flight (`max_rd_atomic`). It is also
    /// the number of the peer's READs and atomic operations that are remembered
    /// (`max_dest_rd_atomic`).
    pub rd_atomic: usize,
}

/// A place in the peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// The address.
    pub va: u64,
    /// The key.
    pub r_key: u32,
}

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Sends a message.
    Send,
    /// Writes to this place.
    Write(Remote),
    /// Reads from this place.
    Read(Remote),
    /// Adds this number to the eight octets at this place, and returns their former value.
    FetchAdd(Remote, u64),
    /// Replaces the first number by the second one at this place, and returns the former value.
    CompareSwap(Remote, [u64; 2]),
}

impl Op {
    /// Whether the request is a READ or an atomic operation, whose response carries data.
    fn awaits_response(self) -> bool {
        !matches!(self, Op::Send | Op::Write(_))
    }
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub struct WorkRequest {
    /// What it does.
    pub op: Op,
    /// The place of the request's data in the [memory](Rxe::memory) of this queue pair, as an
    /// offset.
    pub local: usize,
    /// The number of octets. 8 for an atomic operation.
    pub len: usize,
}

/// A queue pair of rxe.
///
/// ```text
/// for each request:  rxe.post(request)
/// on a packet:       rxe.receive(now, packet)
/// at deadline():     rxe.expire(now)
/// after each:        send what rxe.transmit(now) returns, until it returns None
/// ```
#[derive(Debug)]
pub struct Rxe {
    cfg: RxeCfg,
    memory: Vec<u8>,
    /// The send queue.
    wqes: VecDeque<Wqe>,
    req: Req,
    comp: Comp,
    resp: Resp,
    retrans_timer: Option<Instant>,
    rnr_nak_timer: Option<Instant>,
    /// The packets of the responder that are to be sent.
    responses: VecDeque<Vec<u8>>,
    received: VecDeque<Vec<u8>>,
    completed: usize,
    failure: Option<&'static str>,
}

#[derive(Debug)]
struct Wqe {
    op: Op,
    local: usize,
    len: usize,
    first_psn: Psn,
    last_psn: Psn,
    state: WqeState,
    /// The number of octets that have been sent, or that have arrived in the response to a READ
    /// (`dma.length - dma.resid`).
    done: usize,
    has_rd_atomic: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WqeState {
    Posted,
    Processing,
    Pending,
}

impl Rxe {
    /// A queue pair without requests, which is connected, and its memory. The peer may access all
    /// of the memory with [`R_KEY`]. An address is an offset in it.
    pub fn new(cfg: RxeCfg, memory: Vec<u8>) -> Rxe {
        Rxe {
            cfg,
            memory,
            wqes: VecDeque::new(),
            req: Req::new(&cfg),
            comp: Comp::new(&cfg),
            resp: Resp::new(&cfg),
            retrans_timer: None,
            rnr_nak_timer: None,
            responses: VecDeque::new(),
            received: VecDeque::new(),
            completed: 0,
            failure: None,
        }
    }

    /// Posts a request.
    pub fn post(&mut self, WorkRequest { op, local, len }: WorkRequest) {
        self.wqes.push_back(Wqe {
            op,
            local,
            len,
            first_psn: self.req.psn,
            last_psn: self.req.psn,
            state: WqeState::Posted,
            done: 0,
            has_rd_atomic: false,
        });
    }

    /// The number of requests that have completed. They complete in the order of their posts.
    pub fn completed(&self) -> usize {
        self.completed
    }

    /// The memory of the queue pair.
    pub fn memory(&self) -> &[u8] {
        &self.memory
    }

    /// Takes the oldest message of the peer.
    pub fn take_received(&mut self) -> Option<Vec<u8>> {
        self.received.pop_front()
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
        match packet.bth.opcode.is_response() {
            true => {
                // The completer does not run before the requester has gone back.
                self.go_back();
                self.run_completer(now, packet);
            }
            false => self.run_responder(packet),
        }
    }

    /// Returns the next packet to be sent.
    pub fn transmit(&mut self, now: Instant) -> Option<Vec<u8>> {
        self.transmit_response().or_else(|| self.transmit_request(now))
    }

    /// Returns the next packet of the responder.
    pub fn transmit_response(&mut self) -> Option<Vec<u8>> {
        self.responses.pop_front()
    }

    /// The time of the next [`expire`](Self::expire).
    pub fn deadline(&self) -> Option<Instant> {
        let timers = [self.retrans_timer, self.rnr_nak_timer].into_iter().flatten();
        timers.min().filter(|_| self.failure.is_none())
    }

    /// Handles the end of a timer.
    pub fn expire(&mut self, now: Instant) {
        if self.rnr_nak_timer.take_if(|at| *at <= now).is_some() {
            self.req.need_retry = true;
        }
        if self.retrans_timer.take_if(|at| *at <= now).is_some() {
            self.error_retry(true);
            self.reset_retry_timer(now);
        }
    }
}

/// Makes a packet.
fn emit(bth: Bth, extension: Extension, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; packet_len(bth.opcode, payload.len())];
    Packet { bth, extension, payload }.emit(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests;
