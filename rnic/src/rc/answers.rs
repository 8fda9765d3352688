//! The peer's READs and atomic operations: the responses that are due, and what is kept for when the peer asks again.
//!
//! A READ is carried out when its responses are made, burst by burst, and again if they were lost. An atomic operation is
//! performed once, when it comes; what its target held is kept. Of both the last [`RcCfg::responder_resources`] are kept: a
//! peer has no more in flight.
//!
//! [`RcCfg::responder_resources`]: super::engine::RcCfg::responder_resources

use std::collections::VecDeque;

use wire::rocev2::{Aeth, AtomicAckEth, Extension, Opcode, Position, Psn, Reth, Syndrome};

use super::burst::Burst;
use super::engine::Path;
use crate::qp::Work;

/// Requests of the peer, the oldest first.
pub(super) struct Answers {
    queue: VecDeque<Answer>,
    /// As many are kept.
    max: usize,
    /// Of these, so many have responses to be sent.
    due: usize,
}

struct Answer {
    /// The request's number; its responses have this and the following ones.
    psn: Psn,
    packets: u32,
    /// All its responses have been sent once.
    answered: bool,
    body: Body,
    /// The responses to be sent, as packets of the answer: none if it is empty.
    due: Run,
}

enum Body {
    Read(Reth),
    Atomic { original: u64 },
}

/// Some packets of a READ's response.
#[derive(Clone, Copy, Default)]
struct Run {
    /// Where it began: this one is a FIRST, or ONLY.
    start: u32,
    next: u32,
    end: u32,
    /// Octets from the beginning of the READ to the end of this.
    len: u32,
}

impl Run {
    fn is_empty(&self) -> bool {
        self.next == self.end
    }
}

/// No more requests can be held: the peer has more in flight than was agreed on.
pub(super) struct Full;

/// A READ that must fail: its next response has this number.
pub(super) struct Unreadable(pub(super) Psn);

impl Answers {
    pub(super) fn new(max: u32) -> Self {
        // The depth comes from the wire, in 8 bits; the memory is taken as it is needed, once.
        Answers { queue: VecDeque::new(), max: max as usize, due: 0 }
    }

    /// Whether responses are to be sent.
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        self.due > 0
    }

    /// Adds a READ of so many packets.
    pub(super) fn add_read(&mut self, psn: Psn, reth: Reth, packets: u32) -> Result<(), Full> {
        let due = Run { start: 0, next: 0, end: packets, len: reth.len };
        self.add(Answer { psn, packets, answered: false, body: Body::Read(reth), due })
    }

    /// Adds an atomic operation that has been performed, since there was [room](Self::has_room).
    pub(super) fn add_atomic(&mut self, psn: Psn, original: u64) -> Result<(), Full> {
        let due = Run { start: 0, next: 0, end: 1, len: 0 };
        self.add(Answer { psn, packets: 1, answered: false, body: Body::Atomic { original }, due })
    }

    /// Whether another request can be held: there is place, or the oldest has been answered.
    pub(super) fn has_room(&self) -> bool {
        self.queue.len() < self.max || self.queue.front().is_some_and(|oldest| oldest.answered)
    }

    fn add(&mut self, answer: Answer) -> Result<(), Full> {
        if !self.has_room() {
            return Err(Full);
        }
        if self.queue.len() == self.max
            && let Some(oldest) = self.queue.pop_front()
        {
            // Perhaps it was to be sent again; but who has sent this request has seen the response.
            self.due -= usize::from(!oldest.due.is_empty());
        }
        self.queue.push_back(answer);
        self.due += 1;
        Ok(())
    }

    /// The peer asks for responses to a READ again, all or from the middle on. One that is not kept, or was another, is
    /// dropped.
    pub(super) fn read_again(&mut self, psn: Psn, reth: &Reth, path: &Path) {
        let Some(answer) = self.kept(psn) else { return };
        let Body::Read(first) = &answer.body else { return };
        let start = psn.distance(answer.psn) as u32;
        let offset = start * path.mtu.octets() as u32;
        let same = reth.r_key == first.r_key && reth.va == first.va.wrapping_add(offset.into());
        // No more than was asked for then.
        let (Some(len), true) =
            (offset.checked_add(reth.len).filter(|&len| len <= first.len), same)
        else {
            return;
        };
        let end = start + path.mtu.packets(reth.len);
        let due = Run { start, next: start, end, len };
        let was_due = !answer.due.is_empty();
        answer.due = due;
        self.due += usize::from(!was_due);
    }

    /// The peer asks for what an atomic operation brought again.
    pub(super) fn atomic_again(&mut self, psn: Psn) {
        let Some(answer) = self.kept(psn) else { return };
        if let (Body::Atomic { .. }, true) = (&answer.body, answer.due.is_empty()) {
            answer.due.next = 0;
            self.due += 1;
        }
    }

    fn kept(&mut self, psn: Psn) -> Option<&mut Answer> {
        self.queue.iter_mut().find(|answer| psn.is_within(answer.psn, answer.packets))
    }

    /// Adds responses that are due, but leaves room for `kept` packets in the burst. Answers the number after the last one,
    /// if an answer became complete.
    pub(super) fn transmit(
        &mut self,
        work: &Work,
        path: &Path,
        msn: u32,
        burst: &mut Burst,
        kept: usize,
    ) -> Result<Option<Psn>, Unreadable> {
        let mut complete = None;
        for answer in self.queue.iter_mut().filter(|answer| !answer.due.is_empty()) {
            if !answer.put(work, path, msn, burst, kept)? {
                break;
            }
            answer.answered = true;
            self.due -= 1;
            complete = Some(answer.psn + answer.due.end);
        }
        Ok(complete)
    }
}

impl Answer {
    /// Adds responses; whether that was all.
    fn put(
        &mut self,
        work: &Work,
        path: &Path,
        msn: u32,
        burst: &mut Burst,
        kept: usize,
    ) -> Result<bool, Unreadable> {
        let aeth = Aeth { syndrome: Syndrome::ACK, msn };
        while !self.due.is_empty() {
            if burst.room() <= kept {
                return Ok(false);
            }
            let psn = self.psn + self.due.next;
            match &self.body {
                Body::Atomic { original } => {
                    let extension =
                        Extension::AtomicAck(aeth, AtomicAckEth { original: *original });
                    if burst
                        .packet(&path.bth(Opcode::AtomicAcknowledge, psn), &extension, 0)
                        .is_none()
                    {
                        return Ok(false);
                    }
                }
                Body::Read(reth) => {
                    let Run { start, next, end, len } = self.due;
                    let offset = next * path.mtu.octets() as u32;
                    let rest = len - offset;
                    let position = Position::new(next == start, next + 1 == end);
                    let extension = match position {
                        Position::Middle => Extension::None,
                        _ => Extension::Aeth(aeth),
                    };
                    let payload_len = path.mtu.octets().min(rest as usize);
                    let bth = path.bth(Opcode::read_response(position), psn);
                    let Some(place) = burst.packet(&bth, &extension, payload_len) else {
                        return Ok(false);
                    };
                    let from = reth.va.wrapping_add(offset.into());
                    if rest > 0 && work.fetch((reth.r_key, from), rest.into(), place).is_err() {
                        burst.pop();
                        return Err(Unreadable(psn));
                    }
                }
            }
            self.due.next += 1;
        }
        Ok(true)
    }
}
