//! The data path: posting work requests. It takes no lock and allocates no memory.

use std::sync::atomic::Ordering;

use dat_sys::ib::*;
use dat_sys::*;

use super::request_cells::Claim;
use super::state::{State, States};
use super::{BoundQp, Ep};
use crate::error::{Error, Result};
use crate::handle::Node;
use crate::operation::Constants;
use crate::provider::cause::{AccessKind, LocalUse};
use crate::provider::{
    OpFacts, PostError, Queue, RecvWr, Remote, Segment, SendOp, SendWr, ServiceType, Transport,
};

/// The maximum number of segments in one post. No adapter supports more. A post with more segments
/// is refused before any segment is read, because the segments may not exist. The limit is also the
/// size of the array that [`shorten`] needs for an RDMA read.
pub(crate) const MAX_SEGMENTS: usize = 64;

/// The flags that any request may have. Some requests may also have the unsignalled or the
/// solicited flag.
pub(super) const REQUEST_FLAGS: DAT_COMPLETION_FLAGS = DAT_COMPLETION_SUPPRESS_FLAG
    | DAT_COMPLETION_BARRIER_FENCE_FLAG
    | DAT_COMPLETION_EVD_THRESHOLD_FLAG;

/// # Safety of all posts
/// The segments' memory stays valid until the work request completes. One thread at a time posts to
/// each queue of an endpoint, and neither dat_ep_modify nor dat_ep_reset runs on the endpoint
/// during a post. The functions of a thread-safe adapter ensure both with a lock.
impl<T: Transport> Node<Ep<T>> {
    /// Implements dat_ep_post_send.
    ///
    /// # Safety
    /// The requirements of all posts apply, which this `impl` block lists.
    #[inline]
    pub unsafe fn post_send(
        &self,
        segments: &[Segment],
        cookie: u64,
        flags: DAT_COMPLETION_FLAGS,
    ) -> Result<()> {
        // SAFETY: the caller meets the requirements of all posts, which this `impl` block lists.
        unsafe { self.post_request(SendOp::Send { invalidate: None }, segments, cookie, flags, 5) }
    }

    /// Implements dat_ep_post_send_with_invalidate: when the message arrives, the peer makes its
    /// RMR context `context` invalid.
    ///
    /// # Safety
    /// The requirements of all posts apply, which this `impl` block lists.
    #[inline]
    pub unsafe fn post_send_with_invalidate(
        &self,
        segments: &[Segment],
        cookie: u64,
        flags: DAT_COMPLETION_FLAGS,
        context: Option<DAT_RMR_CONTEXT>,
    ) -> Result<()> {
        // SAFETY: the caller meets the requirements of all posts, which this `impl` block lists.
        unsafe {
            self.post_request(SendOp::Send { invalidate: context }, segments, cookie, flags, 5)
        }
    }

    /// Implements dat_ep_post_rdma_write. `room` is the length of the remote segment in bytes.
    ///
    /// # Safety
    /// The requirements of all posts apply, which this `impl` block lists.
    #[inline]
    pub unsafe fn post_rdma_write(
        &self,
        segments: &[Segment],
        cookie: u64,
        remote: Remote,
        room: u64,
        flags: DAT_COMPLETION_FLAGS,
    ) -> Result<()> {
        // The remote segment must have room for the data (uDAPL 1.2, dat_ep_post_rdma_write).
        if length(segments) > room {
            return Err(Error::of(DAT_LENGTH_ERROR));
        }
        // SAFETY: the caller meets the requirements of all posts, which this `impl` block lists.
        unsafe { self.post_request(SendOp::Write(remote), segments, cookie, flags, 6) }
    }

    /// Implements dat_ep_post_rdma_read. `size` is the length of the remote segment in bytes. The
    /// whole remote segment is read.
    ///
    /// # Safety
    /// The requirements of all posts apply, which this `impl` block lists.
    #[inline]
    pub unsafe fn post_rdma_read(
        &self,
        segments: &[Segment],
        cookie: u64,
        remote: Remote,
        size: u64,
        flags: DAT_COMPLETION_FLAGS,
    ) -> Result<()> {
        let local = length(segments);
        // The local segments must have room for the data (uDAPL 1.2, dat_ep_post_rdma_read).
        if local < size {
            return Err(Error::of(DAT_LENGTH_ERROR));
        }
        let mut shortened = [Segment::default(); MAX_SEGMENTS];
        let segments =
            if local == size { segments } else { shorten(segments, size, &mut shortened)? };
        // SAFETY: the caller meets the requirements of all posts, which this `impl` block lists.
        unsafe { self.post_request(SendOp::Read(remote), segments, cookie, flags, 6) }
    }

    /// Implements dat_ep_post_rdma_read_to_rmr: reads `size` bytes from the peer into the local
    /// memory `sink`, which is named by an RMR context.
    ///
    /// # Safety
    /// The requirements of all posts apply, which this `impl` block lists.
    pub unsafe fn post_rdma_read_to_rmr(
        &self,
        sink: Segment,
        cookie: u64,
        remote: Remote,
        size: u32,
        flags: DAT_COMPLETION_FLAGS,
    ) -> Result<()> {
        if sink.len < size {
            return Err(Error::of(DAT_LENGTH_ERROR));
        }
        let sink = [Segment { len: size, ..sink }];
        // SAFETY: the caller meets the requirements of all posts, which this `impl` block lists.
        unsafe { self.post_request(SendOp::ReadToWindow(remote), &sink, cookie, flags, 5) }
    }

    /// Posts a request. `flags_arg` is the argument position of the completion flags in the
    /// standard's prototype. This function is always inlined, so each caller knows at compile time
    /// which counters it increments. The `data_path` benchmark can then measure no cost of the
    /// counting.
    #[inline(always)]
    pub(super) unsafe fn post_request(
        &self,
        op: SendOp,
        segments: &[Segment],
        cookie: u64,
        flags: DAT_COMPLETION_FLAGS,
        flags_arg: u32,
    ) -> Result<()> {
        let facts = op.facts();
        let state = self.shared.state.check(States::POST_REQUEST)?;
        // SAFETY: the caller guarantees that no other thread replaces the queue pair during this
        // call.
        let bound = unsafe { self.qp_for_post() }?;
        if state != State::Connected && self.shared.service() != ServiceType::Connection {
            return Err(Error::handle(DAT_INVALID_HANDLE_EP));
        }
        // The unsignalled flag is legal only if the endpoint was created with it (uDAPL 1.2,
        // dat_ep_post_send).
        let known = REQUEST_FLAGS | bound.unsignalled | solicited_flag(&facts);
        if flags & !known != 0 {
            return Err(Error::arg(flags_arg));
        }
        let (max_segments, max_size) = match facts.remote {
            Some(AccessKind::Read) => (bound.max_read_iov, bound.max_rdma),
            Some(AccessKind::Write) => (bound.max_write_iov, bound.max_rdma),
            // An atomic operation is neither a message nor an RDMA, and its size is fixed.
            Some(AccessKind::Atomic) => (bound.max_send_iov, u64::MAX),
            Some(AccessKind::Invalidate) | None => (bound.max_send_iov, bound.max_message),
        };
        if segments.len() > max_segments {
            return Err(Error::arg(2));
        }
        let length = length(segments);
        if length > max_size {
            return Err(Error::of(DAT_LENGTH_ERROR));
        }
        if facts.awaits_response()
            && self.shared.read_depth.load(Ordering::Acquire) == 0
            && state == State::Connected
        {
            return Err(no_read_depth());
        }
        let flow = &*bound.flow;
        let suppressed = flags & DAT_COMPLETION_SUPPRESS_FLAG != 0;
        // SAFETY: the caller guarantees that no other thread posts requests during this call.
        let claim = unsafe { self.claim(bound, cookie, suppressed) }?;
        let wr = SendWr {
            id: claim.cell as u64,
            op,
            segments,
            signalled: !suppressed,
            solicited: flags & DAT_COMPLETION_SOLICITED_WAIT_FLAG != 0,
            fence: flags & DAT_COMPLETION_BARRIER_FENCE_FLAG != 0,
            quiet: flags & DAT_COMPLETION_UNSIGNALLED_FLAG != 0,
        };
        // SAFETY: the caller guarantees that the segments' memory stays valid until the request
        // completes, and that no other thread posts requests during this call.
        unsafe { bound.qp.post_send(&wr) }.map_err(|e| {
            flow.requests.withdraw(&claim);
            self.shared.keep_refused_post(facts.local, e);
            match facts.local {
                LocalUse::WindowSink => sink_post_error(e),
                _ => post_error(e),
            }
        })?;
        let (tally, constants) = (&*flow.tally, Constants::of(facts.completes_as));
        if let Some(posts) = constants.posts {
            tally.add(posts, 1);
        }
        if let Some(bytes) = constants.bytes {
            tally.add(bytes, length);
        }
        Ok(())
    }

    /// Implements dat_ep_post_recv.
    ///
    /// # Safety
    /// The requirements of all posts apply, which this `impl` block lists.
    #[inline]
    pub unsafe fn post_recv(
        &self,
        segments: &[Segment],
        cookie: u64,
        flags: DAT_COMPLETION_FLAGS,
    ) -> Result<()> {
        let state = self.shared.state.check(States::POST_RECV)?;
        // SAFETY: the caller guarantees that no other thread replaces the queue pair during this
        // call.
        let bound = unsafe { self.qp_for_post() }?;
        // Receive buffers cannot be posted to an endpoint on an SRQ (uDAPL 1.2,
        // dat_ep_create_with_srq).
        if bound.on_srq {
            return Err(Error::state(DAT_INVALID_STATE_SRQ_IN_USE));
        }
        // A receive can be neither suppressed nor fenced (uDAPL 1.2, dat_ep_post_recv).
        let known = DAT_COMPLETION_EVD_THRESHOLD_FLAG | bound.recv_unsignalled;
        if flags & !known != 0 {
            return Err(Error::arg(5));
        }
        if segments.len() > bound.max_recv_iov {
            return Err(Error::arg(2));
        }
        let quiet = flags & DAT_COMPLETION_UNSIGNALLED_FLAG != 0;
        let Some(seq) = bound.flow.receives.next() else {
            return Err(Error::of(DAT_INSUFFICIENT_RESOURCES));
        };
        bound.flow.receives.posted(seq + 1);
        // SAFETY: the caller guarantees that the segments' memory stays valid until the receive
        // completes, and that no other thread posts receives during this call.
        unsafe { bound.qp.post_recv(&RecvWr { id: cookie, segments, quiet }) }.map_err(|e| {
            bound.flow.receives.posted(seq);
            self.shared.keep_refused_post(LocalUse::Receive, e);
            post_error(e)
        })?;
        bound.flow.tally.add(DCNT_EP_POST_RECV, 1);
        bound.flow.tally.add(DCNT_EP_POST_RECV_DATA, length(segments));
        if state.may_be_modified() {
            self.keep_movable_recv(segments, cookie, quiet);
        }
        Ok(())
    }

    /// Claims a cell for a request in the request queue.
    ///
    /// # Safety
    /// No other thread posts requests to the endpoint during this call.
    #[inline(always)]
    pub(super) unsafe fn claim(
        &self,
        bound: &BoundQp<T>,
        cookie: u64,
        suppressed: bool,
    ) -> Result<Claim> {
        let carried_out = |progress| {
            if progress {
                self.ia.transport.progress();
            }
            // SAFETY: the caller guarantees that no other thread posts requests during this call.
            unsafe { bound.qp.carried_out() }
        };
        let claim = bound.flow.requests.claim(cookie, suppressed, carried_out);
        claim.ok_or(Error::of(DAT_INSUFFICIENT_RESOURCES))
    }

    /// Returns the queue pair to which a work request is posted.
    ///
    /// # Safety
    /// The requirements of all posts apply, which this `impl` block lists.
    #[inline]
    pub(super) unsafe fn qp_for_post(&self) -> Result<&BoundQp<T>> {
        // SAFETY: only dat_ep_modify and dat_ep_reset replace the queue pair. The caller guarantees
        // that neither runs during this call.
        unsafe { self.bound_qp_ptr().as_ref() }
            .ok_or(Error::state(DAT_INVALID_STATE_EP_UNCONFIGURED))
    }
}

/// The flag for a solicited wait if the operation completes a receive of the peer, and otherwise 0
/// (uDAPL 1.2, dat_ep_post_send, dat_ep_post_rdma_write, dat_ep_post_rdma_read). For atomic
/// operations, which the standard does not define, OFED's extension lists no flags, so this flag is
/// permitted.
#[inline]
const fn solicited_flag(facts: &OpFacts) -> DAT_COMPLETION_FLAGS {
    match facts.takes_receive || facts.is_atomic() {
        true => DAT_COMPLETION_SOLICITED_WAIT_FLAG,
        false => 0,
    }
}

/// The error of a read or atomic operation on a connection that permits none of them: the two ends
/// have agreed on 0 outstanding operations. The operation could never start, and no request behind
/// it could either (docs/compatibility.md).
#[cold]
fn no_read_depth() -> Error {
    Error::of(DAT_INSUFFICIENT_RESOURCES)
}

#[inline]
pub(super) fn length(segments: &[Segment]) -> u64 {
    segments.iter().map(|s| u64::from(s.len)).sum()
}

/// Returns segments that describe only the first `size` bytes of `segments`.
fn shorten<'a>(
    segments: &[Segment],
    size: u64,
    into: &'a mut [Segment; MAX_SEGMENTS],
) -> Result<&'a [Segment]> {
    let mut left = size;
    let mut used = 0;
    for segment in segments.iter().take_while(|_| size > 0) {
        let take = left.min(u64::from(segment.len));
        let slot = into.get_mut(used).ok_or(Error::arg(2))?;
        *slot = Segment { len: take as u32, ..*segment };
        used += 1;
        left -= take;
        if left == 0 {
            break;
        }
    }
    Ok(&into[..used])
}

/// Converts the transport's reason for refusing a post to the standard's error (uDAPL 1.2,
/// dat_ep_post_send: return values).
#[cold]
pub fn post_error(error: PostError) -> Error {
    match error {
        PostError::Full => Error::of(DAT_INSUFFICIENT_RESOURCES),
        // An invalid LMR context is a privileges violation (uDAPL 1.2, dat_ep_post_rdma_write). The
        // error has no subtype, because the subtypes name missing privileges.
        PostError::Key => Error::of(DAT_PRIVILEGES_VIOLATION),
        PostError::Bounds => Error::arg(3),
        PostError::Domain => Error::of(DAT_PROTECTION_VIOLATION),
        PostError::Access { write: false } => {
            Error::new(DAT_PRIVILEGES_VIOLATION, DAT_PRIVILEGES_READ)
        }
        PostError::Access { write: true } => {
            Error::new(DAT_PRIVILEGES_VIOLATION, DAT_PRIVILEGES_WRITE)
        }
        PostError::Unsupported => Error::of(DAT_MODEL_NOT_SUPPORTED),
    }
}

/// Converts an error as [`post_error`] does, for a sink that is named by an RMR context. The sink
/// is the argument at position 2. A read into the sink requires the privilege that lets peers write
/// to it.
#[cold]
fn sink_post_error(error: PostError) -> Error {
    match error {
        PostError::Bounds => Error::arg(2),
        PostError::Access { .. } => Error::new(DAT_PRIVILEGES_VIOLATION, DAT_PRIVILEGES_RDMA_WRITE),
        other => post_error(other),
    }
}
