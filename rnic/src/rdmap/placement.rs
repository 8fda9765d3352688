//! Which RDMA writes are placed in the memory of their target.
//!
//! TCP accepts the octets of a write long before they reach the target's memory. A signalled write
//! of an OpenDAT to another one completes when it is placed, as over InfiniBand, so its program can
//! announce it in any way. The sender marks such a write ([`Placement::Wanted`]), and the target
//! reports how many marked writes it has placed ([`Placement::Reported`]). One report can be for
//! many writes.
//!
//! [`Placement::Wanted`]: wire::iwarp::Placement::Wanted
//! [`Placement::Reported`]: wire::iwarp::Placement::Reported

use wire::iwarp::{Cause, Header, TaggedOpcode, Terminate};

use super::stream::{Failure, Stream};
use crate::wqe::Wqe;
use crate::wr::WcStatus;

/// The marked writes of both sides.
pub(super) struct Writes {
    /// Whether this side marks its signalled writes.
    marks: bool,
    /// The number of marked writes of this side that the peer has reported.
    reported: u64,
    /// The number of marked writes that TCP has accepted and that the peer has not reported.
    outstanding: u64,
    /// The position of the oldest outstanding write in the send queue, if there is one.
    oldest: usize,
    /// The number of marked writes of the peer that are placed.
    pub(super) placed: u64,
    /// The number of placed writes of the peer that this side has reported.
    pub(super) told: u64,
}

impl Writes {
    pub(super) fn new(marks: bool) -> Self {
        Writes { marks, reported: 0, outstanding: 0, oldest: 0, placed: 0, told: 0 }
    }

    /// Whether this side must report writes of the peer.
    #[inline]
    pub(super) fn owes_report(&self) -> bool {
        self.told != self.placed
    }

    /// Whether a write of this side waits for a report.
    pub(super) fn has_outstanding(&self) -> bool {
        self.outstanding > 0
    }

    /// Returns whether a request is a write that completes when the peer has reported it.
    #[inline]
    pub(super) fn awaits_report(&self, wqe: &Wqe) -> bool {
        self.marks && wqe.has(Wqe::SIGNALLED) && wqe.op.facts().is_write()
    }
}

impl Stream {
    /// Handles the write of the request at [`Tx::next`](super::tx::Tx::next), which TCP has
    /// accepted completely. Returns whether the request waits for the peer's report.
    #[inline]
    pub(super) fn await_report(&mut self) -> bool {
        let next = self.tx.next;
        let awaits = self.work.request(next).is_some_and(|(wqe, _)| self.writes.awaits_report(wqe));
        if awaits {
            if self.writes.outstanding == 0 {
                self.writes.oldest = next;
            }
            self.writes.outstanding += 1;
        }
        awaits
    }

    /// Returns whether the write of the request at [`Tx::next`](super::tx::Tx::next), which is the
    /// newest one, waits for the peer's report.
    pub(super) fn is_next_unreported(&self) -> bool {
        let next = self.work.request(self.tx.next);
        self.writes.outstanding > 0 && next.is_some_and(|(wqe, _)| self.writes.awaits_report(wqe))
    }

    /// Handles a report of the peer: `placed` marked writes are placed.
    pub(super) fn take_report(&mut self, last: bool, placed: u64) -> Result<(), Failure> {
        match self.rx.has_payload_left() || !self.take_early_report(last, placed) {
            true => Err(self.refuse(Cause::TAGGED_BOUNDS)),
            false => Ok(()),
        }
    }

    /// Handles a report of the peer, perhaps before its turn. Returns false if the report is not
    /// valid.
    pub(super) fn take_early_report(&mut self, last: bool, placed: u64) -> bool {
        // A report of fewer writes has been overtaken by one that was handled before its turn.
        let new = placed.saturating_sub(self.writes.reported);
        if !last || new > self.writes.outstanding {
            return false;
        }
        for _ in 0..new {
            let at = self.writes.oldest;
            // A write with immediate data is done when its immediate data have been sent, too.
            if at != self.tx.next {
                self.work.done(at);
            }
            self.writes.reported += 1;
            self.writes.outstanding -= 1;
            // Look for the next write now, before the requests up to it can complete and other
            // requests take their slots.
            if self.writes.outstanding > 0 {
                self.writes.oldest = self.next_marked_write(at.wrapping_add(1));
            }
        }
        true
    }

    /// The position of the first marked write from `at` on. There must be one.
    #[inline]
    fn next_marked_write(&self, mut at: usize) -> usize {
        while self.work.request(at).is_some_and(|(wqe, _)| !self.writes.awaits_report(wqe)) {
            at = at.wrapping_add(1);
        }
        at
    }

    /// Fails the write of which the peer has refused a segment, if the TERMINATE message names the
    /// segment and the write has not completed. Returns false if there is no such write.
    #[cold]
    pub(super) fn fail_write(&mut self, terminate: &Terminate) -> bool {
        let header = terminate.header.map(|header| Header::parse(header.as_bytes()));
        let Some(Ok(Some((Header::Tagged { opcode: TaggedOpcode::Write, stag, to, .. }, _)))) =
            header
        else {
            return false;
        };
        let names = |wqe: &Wqe| {
            self.writes.awaits_report(wqe)
                && wqe.remote_key == stag
                && to.wrapping_sub(wqe.remote_addr) < wqe.len.into()
        };
        let mut at = self.work.oldest_request();
        while let Some((wqe, _)) = self.work.request(at) {
            if !wqe.is_done() && names(wqe) {
                self.work.fail(at, WcStatus::RemoteAccess);
                return true;
            }
            if at == self.tx.next {
                break;
            }
            at = at.wrapping_add(1);
        }
        false
    }
}
