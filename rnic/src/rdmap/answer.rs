//! The peer's RDMA reads and atomic operations, which are answered in the order of their arrival.
//!
//! A read is carried out when its answer is sent. An atomic operation is performed only once. If no
//! read precedes it, it is performed when it arrives. Otherwise it is performed after these reads
//! have been answered, so that they return the memory as it was before the operation. The answer to
//! the operation then waits here until all earlier answers have been sent.

use std::collections::VecDeque;

use wire::iwarp::{
    AtomicRequest, AtomicResponse, Cause, Header, Queue, ReadRequest, Terminate, UntaggedOpcode,
};
use work::cause::{Access, AccessKind, Refusal};

use crate::cause::{access, atomic_access, octets};
use crate::key::{KeyError, Keys, Scope};
use crate::memory::{AtomicError, update};

/// The peer's requests, the oldest first.
#[derive(Default)]
pub(super) struct Answers {
    queue: VecDeque<Answer>,
    /// The number of atomic operations that have been performed.
    performed: u32,
}

/// A request of the peer. `msn` is the MSN of its message.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    /// An RDMA read.
    Read { request: ReadRequest, msn: u32 },
    /// An atomic operation that waits for an earlier read.
    Atomic { request: AtomicRequest, msn: u32 },
    /// An atomic operation that has been performed. `response_msn` is the MSN of the response.
    Performed { response: AtomicResponse, response_msn: u32 },
    /// An atomic operation that is not permitted.
    Refused { request: AtomicRequest, error: AtomicError, msn: u32 },
}

impl Answers {
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns the request at position `at` of the queue. Returns `None` if there is no request at
    /// that position, or if the request is an atomic operation that still waits for earlier reads.
    #[inline]
    pub(super) fn ready(&self, at: usize) -> Option<&Answer> {
        self.queue.get(at).filter(|answer| !matches!(answer, Answer::Atomic { .. }))
    }

    #[inline]
    pub(super) fn add_read(&mut self, request: ReadRequest, msn: u32) {
        self.queue.push_back(Answer::Read { request, msn });
    }

    /// Adds an atomic operation of a peer that accesses memory with the scope `by`. Performs it,
    /// unless it has to wait for earlier reads.
    pub(super) fn add_atomic(&mut self, request: AtomicRequest, msn: u32, keys: &Keys, by: Scope) {
        self.queue.push_back(Answer::Atomic { request, msn });
        self.perform(keys, by);
    }

    /// Removes the oldest request, which has been answered.
    #[inline]
    pub(super) fn remove_oldest(&mut self, keys: &Keys, by: Scope) {
        self.queue.pop_front();
        if let Some(Answer::Atomic { .. }) = self.queue.front() {
            self.perform(keys, by);
        }
    }

    /// Performs atomic operations in the order of the queue, up to the first request that must be
    /// answered before the operations after it are performed.
    fn perform(&mut self, keys: &Keys, by: Scope) {
        for answer in &mut self.queue {
            match *answer {
                Answer::Performed { .. } => {}
                Answer::Read { .. } | Answer::Refused { .. } => return,
                Answer::Atomic { request, msn } => {
                    *answer = match perform(&request, keys, by) {
                        Ok(original) => {
                            self.performed = self.performed.wrapping_add(1);
                            let response = AtomicResponse { id: request.id, original };
                            Answer::Performed { response, response_msn: self.performed }
                        }
                        Err(error) => Answer::Refused { request, error, msn },
                    };
                }
            }
        }
    }

    /// The access of the oldest request, and the reason for which it is refused. `why` is that
    /// reason if the request is a read.
    pub(super) fn refused_access(&self, why: Refusal) -> Option<(Access, Refusal)> {
        match *self.queue.front()? {
            Answer::Read { request: ReadRequest { source_stag, source_to, len, .. }, .. } => {
                let len = octets(len.into(), true);
                Some((access(AccessKind::Read, (source_stag, source_to), len), why))
            }
            Answer::Refused { request: AtomicRequest { stag, to, .. }, error, .. } => {
                Some((atomic_access((stag, to)), error.into()))
            }
            Answer::Atomic { .. } | Answer::Performed { .. } => None,
        }
    }

    /// Returns the TERMINATE message if the oldest request cannot be answered.
    pub(super) fn refusal(&self, error: KeyError) -> Option<Terminate> {
        let (cause, header, len, read_request) = match *self.queue.front()? {
            Answer::Read { request, msn } => {
                let header = request_header(UntaggedOpcode::ReadRequest, msn);
                (protection(error), header, ReadRequest::SIZE, Some(request))
            }
            // RFC 7306, section 8.1: the TERMINATE does not include the body of an atomic request.
            Answer::Refused { error, msn, .. } => (
                atomic_error(error),
                request_header(UntaggedOpcode::AtomicRequest, msn),
                AtomicRequest::SIZE,
                None,
            ),
            Answer::Atomic { .. } | Answer::Performed { .. } => return None,
        };
        let segment_len = Some((header.len() + len) as u16);
        Some(Terminate { cause, segment_len, header: Some(header.into()), read_request })
    }
}

/// Performs an atomic operation and returns the previous value of its target.
fn perform(request: &AtomicRequest, keys: &Keys, by: Scope) -> Result<u64, AtomicError> {
    update(keys, by, (request.stag, request.to), |original| request.op.apply(original))
}

/// Converts the error of an atomic operation.
fn atomic_error(error: AtomicError) -> Cause {
    match error {
        AtomicError::Key(error) => protection(error),
        // RFC 7306, section 8.2, defines this error for a target that is not aligned.
        AtomicError::Misaligned => Cause::STREAM_CATASTROPHIC,
    }
}

/// Converts the error of a request that names memory which the peer must not access.
fn protection(error: KeyError) -> Cause {
    match error {
        KeyError::Invalid => Cause::PROTECTION_STAG,
        KeyError::Bounds => Cause::PROTECTION_BOUNDS,
        KeyError::Access => Cause::PROTECTION_ACCESS,
        KeyError::Domain => Cause::PROTECTION_NOT_ASSOCIATED,
        KeyError::Wrap => Cause::PROTECTION_TO_WRAP,
    }
}

/// Creates the header of a READ or atomic request.
#[inline]
pub(super) fn request_header(opcode: UntaggedOpcode, msn: u32) -> Header {
    Header::Untagged { last: true, opcode, invalidate: 0, qn: Queue::Request.number(), msn, mo: 0 }
}

/// Creates the header of an atomic response.
pub(super) fn response_header(msn: u32) -> Header {
    let (opcode, qn) = (UntaggedOpcode::AtomicResponse, Queue::AtomicResponse.number());
    Header::Untagged { last: true, opcode, invalidate: 0, qn, msn, mo: 0 }
}
