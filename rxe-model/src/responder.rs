//! The responder (rxe_resp.c).

use std::collections::VecDeque;

use wire::rocev2::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Extension, NakCode, Opcode, Operation, Packet, Position,
    Psn, Reth, Syndrome,
};

use crate::{R_KEY, Rxe, RxeCfg, emit};

/// The state of the responder.
#[derive(Debug)]
pub(crate) struct Resp {
    psn: Psn,
    /// The PSN after the last SEND, WRITE or atomic operation. rxe does not count READs, and starts
    /// with 0 whatever the first PSN is.
    ack_psn: Psn,
    sent_psn_nak: bool,
    msn: u32,
    /// The octets of the SEND that has arrived in part.
    message: Vec<u8>,
    /// The address of the next octet of the WRITE that has arrived in part.
    va: u64,
    /// The last READs and atomic operations, the newest one last.
    resources: VecDeque<Res>,
}

/// `struct resp_res`
#[derive(Clone, Debug)]
struct Res {
    first_psn: Psn,
    last_psn: Psn,
    kind: ResKind,
}

#[derive(Clone, Debug)]
enum ResKind {
    /// `va_org`, `length` and `rkey`.
    Read(Reth),
    Atomic {
        original: u64,
    },
}

impl Resp {
    pub(crate) fn new(cfg: &RxeCfg) -> Resp {
        Resp {
            psn: cfg.rq_psn,
            ack_psn: Psn::default(),
            sent_psn_nak: false,
            msn: 0,
            message: Vec::new(),
            va: 0,
            resources: VecDeque::new(),
        }
    }
}

/// The error of an access outside the memory, or without its key.
struct RkeyViolation;

impl Rxe {
    /// `rxe_responder`
    pub(crate) fn run_responder(&mut self, packet: &Packet<'_>) {
        match packet.bth.psn.distance(self.resp.psn) {
            1.. => {
                if !std::mem::replace(&mut self.resp.sent_psn_nak, true) {
                    self.answer(self.resp.psn, Syndrome::Nak(NakCode::SequenceError));
                }
            }
            0 => {
                self.resp.sent_psn_nak = false;
                if self.execute(packet).is_err() {
                    self.answer(packet.bth.psn, Syndrome::Nak(NakCode::RemoteAccess));
                    self.failure = Some("a request of the peer was refused");
                }
            }
            _ => self.duplicate_request(packet),
        }
    }

    /// `execute`
    fn execute(&mut self, packet: &Packet<'_>) -> Result<(), RkeyViolation> {
        let (psn, position) = (packet.bth.psn, packet.bth.opcode.position());
        match (packet.bth.opcode.operation(), packet.extension) {
            (Operation::ReadRequest, Extension::Reth(reth)) => return self.read(psn, reth),
            (Operation::Send, _) => {
                self.resp.message.extend_from_slice(packet.payload);
                if position.ends() {
                    self.received.push_back(std::mem::take(&mut self.resp.message));
                }
            }
            (_, Extension::Atomic(atomic)) => self.atomic(packet, atomic)?,
            (_, extension) => {
                if let Extension::Reth(Reth { va, r_key, len }) = extension {
                    self.check_access(va, r_key, len as usize)?;
                    self.resp.va = va;
                }
                let (at, len) = (self.resp.va as usize, packet.payload.len());
                let to = self.memory.get_mut(at..at + len).ok_or(RkeyViolation)?;
                to.copy_from_slice(packet.payload);
                self.resp.va += len as u64;
            }
        }
        self.resp.msn += u32::from(position.ends());
        (self.resp.psn, self.resp.ack_psn) = (psn.next(), psn.next());
        let is_atomic = matches!(packet.extension, Extension::Atomic(_));
        if packet.bth.ack_request && !is_atomic {
            self.answer(psn, Syndrome::ACK);
        }
        Ok(())
    }

    /// `check_rkey`. An access to no octet needs no key.
    fn check_access(&self, va: u64, r_key: u32, len: usize) -> Result<(), RkeyViolation> {
        let is_inside =
            va.checked_add(len as u64).is_some_and(|end| end <= self.memory.len() as u64);
        if len == 0 || r_key == R_KEY && is_inside { Ok(()) } else { Err(RkeyViolation) }
    }

    /// Carries out a new READ.
    fn read(&mut self, psn: Psn, reth: Reth) -> Result<(), RkeyViolation> {
        self.check_access(reth.va, reth.r_key, reth.len as usize)?;
        self.resp.msn += 1;
        let last_psn = psn + (self.cfg.mtu.packets(reth.len) - 1);
        self.prepare_res(Res { first_psn: psn, last_psn, kind: ResKind::Read(reth) });
        self.read_reply(psn, reth, true);
        Ok(())
    }

    /// `read_reply`: sends the octets of a READ, from the response with this PSN on. Only a
    /// response that `starts` the READ is a FIRST or ONLY packet.
    fn read_reply(&mut self, from: Psn, reth: Reth, starts: bool) {
        let (mtu, len) = (self.cfg.mtu.octets(), reth.len as usize);
        for index in 0..self.cfg.mtu.packets(reth.len) {
            let offset = index as usize * mtu;
            let position = Position::new(starts && index == 0, len - offset <= mtu);
            let extension = match position {
                Position::Middle => Extension::None,
                _ => Extension::Aeth(Aeth { syndrome: Syndrome::ACK, msn: self.resp.msn }),
            };
            let (at, len) = (reth.va as usize + offset, (len - offset).min(mtu));
            let opcode = Opcode::read_response(position);
            let bth = Bth::new(opcode, self.cfg.peer_qpn, from + index);
            let payload = if len == 0 { &[] } else { &self.memory[at..at + len] };
            let packet = emit(bth, extension, payload);
            self.responses.push_back(packet);
        }
        // A repeated READ may be longer than the original READ, because `duplicate_request`
        // compares its end with a start that has moved. If so, the expected PSN moves to the end of
        // the repeated READ.
        let end = from + self.cfg.mtu.packets(reth.len);
        if end.is_after(self.resp.psn) {
            self.resp.psn = end;
        }
    }

    /// Carries out a new atomic operation (`atomic_reply`).
    fn atomic(&mut self, packet: &Packet<'_>, atomic: AtomicEth) -> Result<(), RkeyViolation> {
        let AtomicEth { va, r_key, swap_or_add, compare } = atomic;
        self.check_access(va, r_key, 8)?;
        let at = va as usize;
        let octets = self.memory[at..].first_chunk_mut().ok_or(RkeyViolation)?;
        let original = u64::from_ne_bytes(*octets);
        let value = match packet.bth.opcode == Opcode::CompareSwap {
            true if original == compare => swap_or_add,
            true => original,
            false => original.wrapping_add(swap_or_add),
        };
        *octets = value.to_ne_bytes();
        let psn = packet.bth.psn;
        self.prepare_res(Res { first_psn: psn, last_psn: psn, kind: ResKind::Atomic { original } });
        self.answer_atomic(psn, original);
        Ok(())
    }

    /// `rxe_prepare_res`
    fn prepare_res(&mut self, res: Res) {
        if self.resp.resources.len() == self.cfg.rd_atomic {
            self.resp.resources.pop_front();
        }
        self.resp.resources.push_back(res);
    }

    /// `duplicate_request`
    fn duplicate_request(&mut self, packet: &Packet<'_>) {
        let psn = packet.bth.psn;
        let is_message =
            matches!(packet.bth.opcode.operation(), Operation::Send | Operation::Write);
        if is_message {
            return self.answer(self.resp.ack_psn.previous(), Syndrome::ACK);
        }
        let contains =
            |res: &&mut Res| !psn.is_before(res.first_psn) && !psn.is_after(res.last_psn);
        let Some(res) = self.resp.resources.iter_mut().find(contains) else { return };
        match (&mut res.kind, packet.extension) {
            (ResKind::Read(first), Extension::Reth(reth)) => {
                let end = |reth: &Reth| reth.va + u64::from(reth.len);
                let is_part =
                    reth.va >= first.va && reth.len <= first.len && end(&reth) <= end(first);
                if !is_part || reth.r_key != first.r_key {
                    return;
                }
                first.va = reth.va;
                let starts = psn == res.first_psn;
                self.read_reply(psn, reth, starts);
            }
            (ResKind::Atomic { original }, Extension::Atomic(_)) => {
                let original = *original;
                self.answer_atomic(psn, original);
            }
            _ => {}
        }
    }

    fn answer(&mut self, psn: Psn, syndrome: Syndrome) {
        let aeth = Aeth { syndrome, msn: self.resp.msn };
        let bth = Bth::new(Opcode::Acknowledge, self.cfg.peer_qpn, psn);
        self.responses.push_back(emit(bth, Extension::Aeth(aeth), &[]));
    }

    fn answer_atomic(&mut self, psn: Psn, original: u64) {
        let aeth = Aeth { syndrome: Syndrome::ACK, msn: self.resp.msn };
        let extension = Extension::AtomicAck(aeth, AtomicAckEth { original });
        let bth = Bth::new(Opcode::AtomicAcknowledge, self.cfg.peer_qpn, psn);
        self.responses.push_back(emit(bth, extension, &[]));
    }
}
