//! The completer (rxe_comp.c).

use std::time::{Duration, Instant};

use wire::rocev2::{Extension, NakCode, Opcode, Operation, Packet, Psn, RnrTimer, Syndrome};

use crate::{Op, Rxe, RxeCfg, WqeState};

/// The retry count that stands for any number of retries.
const RETRY_CNT_INFINITE: u8 = 7;
/// The unit of kernel timers with 250 interrupts per second.
const JIFFY: Duration = Duration::from_millis(4);

/// The state of the completer.
#[derive(Debug)]
pub(crate) struct Comp {
    pub(crate) psn: Psn,
    /// The opcode of the last response to a READ that is not complete.
    opcode: Option<Opcode>,
    retry_cnt: u8,
    started_retry: bool,
}

impl Comp {
    pub(crate) fn new(cfg: &RxeCfg) -> Comp {
        let (psn, retry_cnt) = (cfg.sq_psn, cfg.retry_cnt);
        Comp { psn, opcode: None, retry_cnt, started_retry: false }
    }
}

impl Rxe {
    /// `rxe_completer`: processes a response.
    pub(crate) fn run_completer(&mut self, now: Instant, packet: &Packet<'_>) {
        self.check_psn(now, packet);
        if self.rnr_nak_timer.is_none() {
            self.reset_retry_timer(now);
        }
    }

    /// `reset_retry_timer`
    pub(crate) fn reset_retry_timer(&mut self, now: Instant) {
        if self.req.psn.is_after(self.comp.psn) {
            self.retrans_timer = Some(now + self.cfg.timeout);
        }
    }

    /// `check_psn`
    fn check_psn(&mut self, now: Instant, packet: &Packet<'_>) {
        let psn = packet.bth.psn;
        while let Some(wqe) = self.wqes.front() {
            if wqe.state == WqeState::Posted {
                return;
            }
            if psn.is_after(wqe.last_psn) {
                if wqe.state != WqeState::Pending {
                    return;
                }
                if wqe.op.awaits_response() {
                    return self.error_retry(false);
                }
                self.reset_retry_counters();
                self.complete_wqe();
                continue;
            }
            let ahead = psn.distance(self.comp.psn);
            if ahead < 0 {
                if psn == wqe.last_psn {
                    return self.complete_ack(packet);
                }
                let may_refuse_read = packet.bth.opcode == Opcode::Acknowledge;
                if !may_refuse_read || self.comp.opcode.is_none() {
                    return;
                }
            } else if ahead > 0 && wqe.op.awaits_response() {
                return;
            }
            return self.check_ack(now, packet);
        }
    }

    /// `check_ack`, `do_read`, `do_atomic`
    fn check_ack(&mut self, now: Instant, packet: &Packet<'_>) {
        let (opcode, psn) = (packet.bth.opcode, packet.bth.psn);
        let Some(wqe) = self.wqes.front_mut() else { return };
        let continues = matches!(opcode, Opcode::ReadResponseMiddle | Opcode::ReadResponseLast);
        let is_expected = match self.comp.opcode {
            None => !continues,
            Some(_) => {
                let is_single = wqe.first_psn == wqe.last_psn;
                continues
                    || opcode == Opcode::Acknowledge
                    || opcode == Opcode::ReadResponseFirst && psn == wqe.first_psn
                    || opcode == Opcode::ReadResponseOnly && is_single
            }
        };
        if !is_expected {
            self.failure = Some("the peer's response has an unexpected opcode");
            return;
        }
        let syndrome = match packet.extension {
            Extension::Aeth(aeth) | Extension::AtomicAck(aeth, _) => aeth.syndrome,
            _ => Syndrome::ACK,
        };
        match (opcode.operation(), syndrome, packet.extension) {
            (Operation::ReadResponse, Syndrome::Ack { .. }, _) => {
                let payload = packet.payload;
                let at = wqe.local + wqe.done;
                wqe.done += payload.len();
                if !matches!(wqe.op, Op::Read(_)) || wqe.done > wqe.len {
                    self.failure = Some("the peer's response does not fit its request");
                    return;
                }
                self.memory[at..at + payload.len()].copy_from_slice(payload);
                let is_done = wqe.done == wqe.len && opcode.position().ends();
                self.reset_retry_counters();
                match is_done {
                    true => self.complete_ack(packet),
                    false => self.update_comp(packet),
                }
            }
            (_, Syndrome::Ack { .. }, Extension::AtomicAck(_, answer)) => {
                if !matches!(wqe.op, Op::FetchAdd(..) | Op::CompareSwap(..)) {
                    self.failure = Some("the peer's response does not fit its request");
                    return;
                }
                let at = wqe.local;
                self.memory[at..at + 8].copy_from_slice(&answer.original.to_ne_bytes());
                self.reset_retry_counters();
                self.complete_ack(packet);
            }
            (Operation::Acknowledge, Syndrome::Ack { .. }, _) => {
                // `COMPST_WRITE_SEND`: the kind of the request does not matter.
                let completes = wqe.state == WqeState::Pending && wqe.last_psn == psn;
                self.reset_retry_counters();
                match completes {
                    true => self.complete_ack(packet),
                    false => self.update_comp(packet),
                }
            }
            (Operation::Acknowledge, Syndrome::Nak(NakCode::SequenceError), _) => {
                if psn.is_after(self.comp.psn) {
                    self.comp.psn = psn;
                }
                self.error_retry(false);
            }
            (Operation::Acknowledge, Syndrome::Rnr(timer), _) => self.rnr_retry(now, timer),
            _ => self.failure = Some("the peer refused a request"),
        }
    }

    /// `COMPST_RNR_RETRY`, without a limit of retries.
    fn rnr_retry(&mut self, now: Instant, timer: RnrTimer) {
        let jiffies = timer.duration().as_nanos().div_ceil(JIFFY.as_nanos()).max(1);
        self.rnr_nak_timer = Some(now + JIFFY * jiffies as u32);
    }

    /// `reset_retry_counters`
    fn reset_retry_counters(&mut self) {
        (self.comp.retry_cnt, self.comp.started_retry) = (self.cfg.retry_cnt, false);
    }

    /// `complete_wqe`
    fn complete_wqe(&mut self) {
        let Some(wqe) = self.wqes.front() else { return };
        if !wqe.last_psn.is_before(self.comp.psn) {
            (self.comp.psn, self.comp.opcode) = (wqe.last_psn.next(), None);
        }
        self.do_complete();
    }

    /// `complete_ack`
    fn complete_ack(&mut self, packet: &Packet<'_>) {
        if self.wqes.front().is_some_and(|wqe| wqe.has_rd_atomic) {
            self.req.rd_atomic += 1;
        }
        self.do_complete();
        if !packet.bth.psn.is_before(self.comp.psn) {
            self.update_comp(packet);
        }
    }

    /// `do_complete`
    fn do_complete(&mut self) {
        self.wqes.pop_front();
        self.req.wqe_index = self.req.wqe_index.saturating_sub(1);
        self.completed += 1;
    }

    /// `COMPST_UPDATE_COMP`
    fn update_comp(&mut self, packet: &Packet<'_>) {
        let (opcode, psn) = (packet.bth.opcode, packet.bth.psn);
        self.comp.opcode = (!opcode.position().ends()).then_some(opcode);
        if !psn.is_before(self.comp.psn) {
            self.comp.psn = psn.next();
        }
    }

    /// `COMPST_ERROR_RETRY`
    pub(crate) fn error_retry(&mut self, timeout_retry: bool) {
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
}
