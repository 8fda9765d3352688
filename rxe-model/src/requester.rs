//! The requester (rxe_req.c).

use std::time::Instant;

use wire::rocev2::{AtomicEth, Bth, Extension, Opcode, Position, Psn, Reth, SendKind};

use crate::{Op, Remote, Rxe, RxeCfg, WqeState, emit};

const RXE_MAX_UNACKED_PSNS: u32 = 128;
const RXE_MAX_PKT_PER_ACK: u32 = 64;

/// The state of the requester.
#[derive(Debug)]
pub(crate) struct Req {
    pub(crate) wqe_index: usize,
    pub(crate) psn: Psn,
    pub(crate) need_retry: bool,
    noack_pkts: u32,
    /// The number of further READs and atomic operations that may be sent.
    pub(crate) rd_atomic: usize,
}

impl Req {
    pub(crate) fn new(cfg: &RxeCfg) -> Req {
        let (psn, rd_atomic) = (cfg.sq_psn, cfg.rd_atomic);
        Req { wqe_index: 0, psn, need_retry: false, noack_pkts: 0, rd_atomic }
    }
}

impl Rxe {
    /// Whether the requester may send a packet now.
    pub fn has_request(&self) -> bool {
        let is_window_open = !self.req.psn.is_after(self.comp.psn + RXE_MAX_UNACKED_PSNS);
        // `check_init_depth`
        let may_start = self.wqes.get(self.req.wqe_index).is_some_and(|wqe| {
            !wqe.op.awaits_response() || wqe.has_rd_atomic || self.req.rd_atomic > 0
        });
        self.failure.is_none() && (self.may_go_back() || is_window_open && may_start)
    }

    /// Returns the next packet of the requester (`rxe_requester`).
    pub fn transmit_request(&mut self, now: Instant) -> Option<Vec<u8>> {
        self.go_back();
        if !self.has_request() {
            return None;
        }
        let op = self.wqes.get(self.req.wqe_index)?.op;
        let packet = match op.awaits_response() {
            true => self.make_read_or_atomic()?,
            false => self.make_message_packet()?,
        };
        self.retrans_timer.get_or_insert(now + self.cfg.timeout);
        Some(packet)
    }

    /// Makes the next packet of a SEND or WRITE.
    fn make_message_packet(&mut self) -> Option<Vec<u8>> {
        let mtu = self.cfg.mtu.octets();
        let wqe = self.wqes.get_mut(self.req.wqe_index)?;
        let left = wqe.len - wqe.done;
        // If all packets of the message are already acknowledged, the message starts again with an
        // empty packet.
        let (starts, ends) = (wqe.done == 0 || left == 0, left <= mtu);
        if starts {
            wqe.first_psn = self.req.psn;
            wqe.last_psn = self.req.psn + (left.div_ceil(mtu).max(1) as u32 - 1);
        }
        wqe.state = if ends { WqeState::Pending } else { WqeState::Processing };
        let ack_request = ends || self.req.noack_pkts > RXE_MAX_PKT_PER_ACK;
        self.req.noack_pkts = if ack_request { 0 } else { self.req.noack_pkts + 1 };
        let position = Position::new(starts, ends);
        let (opcode, extension) = match wqe.op {
            Op::Write(Remote { va, r_key }) if starts => {
                let reth = Reth { va: va + wqe.done as u64, r_key, len: left as u32 };
                (Opcode::write(position, false), Extension::Reth(reth))
            }
            Op::Write(_) => (Opcode::write(position, false), Extension::None),
            _ => (Opcode::send(position, SendKind::Plain), Extension::None),
        };
        let bth = Bth { ack_request, ..Bth::new(opcode, self.cfg.peer_qpn, self.req.psn) };
        let (from, payload_len) = (wqe.local + wqe.done, left.min(mtu));
        wqe.done += payload_len;
        self.req.psn = self.req.psn.next();
        self.req.wqe_index += usize::from(ends);
        Some(emit(bth, extension, &self.memory[from..from + payload_len]))
    }

    /// Makes the packet of a READ or atomic operation. A READ asks for the octets that have not
    /// arrived.
    fn make_read_or_atomic(&mut self) -> Option<Vec<u8>> {
        let mtu = self.cfg.mtu.octets();
        let wqe = self.wqes.get_mut(self.req.wqe_index)?;
        if !std::mem::replace(&mut wqe.has_rd_atomic, true) {
            self.req.rd_atomic -= 1;
        }
        let left = wqe.len - wqe.done;
        let packets = left.div_ceil(mtu).max(1) as u32;
        let atomic = |Remote { va, r_key }, [swap_or_add, compare]: [u64; 2]| {
            Extension::Atomic(AtomicEth { va, r_key, swap_or_add, compare })
        };
        let (opcode, extension) = match wqe.op {
            Op::FetchAdd(at, add) => (Opcode::FetchAdd, atomic(at, [add, 0])),
            Op::CompareSwap(at, [compare, swap]) => {
                (Opcode::CompareSwap, atomic(at, [swap, compare]))
            }
            Op::Read(Remote { va, r_key }) => {
                // `req_retry` counts whole packets.
                let va = va + (wqe.done / mtu * mtu) as u64;
                (Opcode::ReadRequest, Extension::Reth(Reth { va, r_key, len: left as u32 }))
            }
            Op::Send | Op::Write(_) => return None,
        };
        let bth = Bth { ack_request: true, ..Bth::new(opcode, self.cfg.peer_qpn, self.req.psn) };
        (wqe.first_psn, wqe.last_psn) = (self.req.psn, self.req.psn + (packets - 1));
        wqe.state = WqeState::Pending;
        self.req.psn = wqe.last_psn.next();
        self.req.wqe_index += 1;
        self.req.noack_pkts = 0;
        Some(emit(bth, extension, &[]))
    }

    /// Whether the requester goes back before it sends the next packet. It never goes back before
    /// the time of an RNR NAK has passed.
    fn may_go_back(&self) -> bool {
        self.req.need_retry && self.rnr_nak_timer.is_none()
    }

    /// Goes back to the oldest unacknowledged packet if the completer or a timer has asked for it
    /// (`req_retry`).
    pub(crate) fn go_back(&mut self) {
        if !self.may_go_back() {
            return;
        }
        self.req.need_retry = false;
        (self.req.wqe_index, self.req.psn) = (0, self.comp.psn);
        for (index, wqe) in self.wqes.iter_mut().enumerate() {
            if wqe.state == WqeState::Posted {
                break;
            }
            let acknowledged = self.comp.psn.distance(wqe.first_psn).max(0) as usize;
            wqe.done = match (index, wqe.op) {
                // The octets that have arrived are not asked for again.
                (0, Op::Read(_)) => wqe.done,
                (0, Op::Send | Op::Write(_)) => wqe.len.min(acknowledged * self.cfg.mtu.octets()),
                _ => 0,
            };
            wqe.state = WqeState::Posted;
        }
    }
}
