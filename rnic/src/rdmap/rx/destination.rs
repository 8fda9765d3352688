//! The destination of payload in memory.

use std::ptr::with_exposed_provenance_mut;

use wire::iwarp::{Cause, Header, TaggedOpcode, Terminate, UntaggedOpcode};
use work::cause::{AccessKind, LocalUse, Octets, Refusal};

use super::super::stream::{Failure, Stream};
use crate::cause::{access, octets};
use crate::key::{KeyError, Right};
use crate::memory::{pieces, place};
use crate::wqe::Received;
use crate::wr::WcStatus;

impl Stream {
    /// Copies payload to its destination.
    #[inline]
    pub(super) fn copy_to_destination(&mut self, mut payload: &[u8]) -> Result<(), Failure> {
        self.for_each_destination(payload.len(), |at, len| {
            let (piece, rest) = payload.split_at(len);
            // SAFETY: `at` is registered memory that was checked to be writable for this use. The
            // stage is not part of it.
            unsafe { place(at, piece.as_ptr(), piece.len()) };
            payload = rest;
        })
    }

    /// Checks that the next `len` octets of the current payload may be written, and passes their
    /// memory to the closure.
    #[inline]
    pub(super) fn for_each_destination(
        &mut self,
        len: usize,
        mut place: impl FnMut(*mut u8, usize),
    ) -> Result<(), Failure> {
        let failed = match self.rx.frame.header {
            Header::Tagged { opcode: TaggedOpcode::Write, .. } => {
                if let Some(addr) = self.check_write()? {
                    place(with_exposed_provenance_mut(addr as usize), len);
                }
                return Ok(());
            }
            Header::Tagged { opcode: TaggedOpcode::ReadResponse, .. } => {
                let read = self.work.request(self.reads.oldest);
                let placed = self.reads.placed as usize;
                let (segments, right) = match read {
                    Some((wqe, segments)) => (segments, wqe.op.facts().local.into()),
                    None => (&[][..], Right::LocalWrite),
                };
                pieces(
                    self.work.keys(),
                    (self.work.scope(), right),
                    segments,
                    placed,
                    len,
                    &mut place,
                )
            }
            Header::Untagged { .. } => {
                let (by, segments) = self.work.recv_segments();
                let placed = self.rx.send_placed as usize;
                pieces(self.work.keys(), (by, Right::LocalWrite), segments, placed, len, &mut place)
            }
        };
        failed.map_err(|error| self.fail_local_protection(error))
    }

    /// Places the response to this side's oldest atomic operation: the previous value of the
    /// target.
    pub(super) fn place_original(&mut self, original: u64) -> Result<(), Failure> {
        let segments =
            self.work.request(self.reads.oldest).map_or(&[][..], |(_, segments)| segments);
        let by = (self.work.scope(), Right::LocalWrite);
        let placed = self.work.scatter(by, segments, 0, &original.to_ne_bytes());
        placed.map_err(|error| self.fail_local_protection(error))
    }

    /// The number of octets of the current segment that have not been placed.
    fn octets_left(&self) -> Octets {
        octets(self.rx.frame.left as u64, self.rx.frame.header.last())
    }

    /// Handles a fault: the destination of the current payload is no longer accessible.
    #[cold]
    pub(in super::super) fn destination_fault(&mut self) -> Failure {
        match self.rx.frame.header {
            Header::Tagged { opcode: TaggedOpcode::Write, stag, to, .. } => {
                let left = self.octets_left();
                let access = access(AccessKind::Write, (stag, to), left);
                self.work.report_refused(access, Refusal::Unmapped);
                self.refuse(Cause::TAGGED_STAG)
            }
            _ => self.fail_local_protection(Refusal::Unmapped),
        }
    }

    /// Fails the work request of the current message, because its local memory is no longer
    /// registered.
    #[cold]
    fn fail_local_protection(&mut self, why: impl Into<Refusal>) -> Failure {
        let usage = match self.rx.frame.header {
            Header::Untagged { opcode, .. } if opcode != UntaggedOpcode::AtomicResponse => {
                LocalUse::Receive
            }
            _ => LocalUse::Sink,
        };
        self.work.report_local(usage, why);
        match self.rx.frame.header {
            Header::Tagged { .. } => self.work.fail(self.reads.oldest, WcStatus::LocalProtection),
            Header::Untagged { opcode: UntaggedOpcode::AtomicResponse, .. } => {
                self.work.fail(self.reads.oldest, WcStatus::LocalProtection);
            }
            Header::Untagged { .. } => {
                let received = Received::octets(self.rx.send_placed);
                self.work.finish_recv(received, WcStatus::LocalProtection, true);
            }
        }
        self.fail(Terminate::new(Cause::RDMAP_CATASTROPHIC))
    }

    /// Records that `n` octets of payload have been placed.
    #[inline]
    pub(super) fn placed(&mut self, n: usize) {
        self.rx.frame.left -= n;
        match self.rx.frame.header {
            Header::Tagged { opcode: TaggedOpcode::Write, .. } => {
                if let Some((_, to)) = &mut self.rx.write {
                    *to = to.wrapping_add(n as u64);
                }
            }
            Header::Tagged { opcode: TaggedOpcode::ReadResponse, .. } => {
                self.reads.placed += n as u32
            }
            Header::Untagged { .. } => self.rx.send_placed += n as u32,
        }
    }

    /// Checks that the rest of a WRITE segment may be placed. Returns its address, or `None` if no
    /// octets remain.
    #[inline]
    pub(super) fn check_write(&mut self) -> Result<Option<u64>, Failure> {
        let left = self.rx.frame.left as u64;
        let Some((stag, to)) = self.rx.write.filter(|_| left > 0) else { return Ok(None) };
        let checked = self.work.keys().check(stag, self.work.scope(), to, left, Right::RemoteWrite);
        checked.map(Some).map_err(|error| {
            let access = access(AccessKind::Write, (stag, to), self.octets_left());
            self.work.report_refused(access, error);
            self.refuse(match error {
                KeyError::Invalid | KeyError::Access => Cause::TAGGED_STAG,
                KeyError::Domain => Cause::TAGGED_NOT_ASSOCIATED,
                KeyError::Bounds => Cause::TAGGED_BOUNDS,
                KeyError::Wrap => Cause::TAGGED_TO_WRAP,
            })
        })
    }
}
