//! The data path: posting work requests. One screen; no lock, no allocation.

use dat_sys::ib::*;
use dat_sys::*;

use super::requests::Claim;
use super::state::Event;
use super::{Ep, Link};
use crate::error::{Error, Result};
use crate::handle::Node;
use crate::provider::{PostError, Queue, RecvWr, Remote, Segment, SendOp, SendWr, Transport};

/// Segments of one post at most; adapters offer no more. A larger count is refused before anybody looks at the segments,
/// which may not be there, and an RDMA read of so many can be shortened (see [`trim`]).
pub(crate) const MAX_SEGMENTS: usize = 64;

const REQUEST_FLAGS: DAT_COMPLETION_FLAGS = DAT_COMPLETION_SUPPRESS_FLAG
    | DAT_COMPLETION_SOLICITED_WAIT_FLAG
    | DAT_COMPLETION_UNSIGNALLED_FLAG
    | DAT_COMPLETION_BARRIER_FENCE_FLAG
    | DAT_COMPLETION_EVD_THRESHOLD_FLAG;

/// # Safety of all posts
/// The segments' memory stays valid until the work request completes. One thread at a time posts to each
/// queue of an endpoint, and neither dat_ep_modify nor dat_ep_reset runs on it meanwhile (thread-safe tables
/// see to it).
impl<T: Transport> Node<Ep<T>> {
    /// dat_ep_post_send.
    ///
    /// # Safety
    /// As above.
    #[inline]
    pub unsafe fn post_send(
        &self,
        segments: &[Segment],
        cookie: u64,
        flags: DAT_COMPLETION_FLAGS,
    ) -> Result<()> {
        // SAFETY: as the caller promised.
        unsafe { self.post_request(SendOp::Send { invalidate: None }, segments, cookie, flags, 5) }
    }

    /// dat_ep_post_send_with_invalidate: the peer loses the access that `context` named.
    ///
    /// # Safety
    /// As above.
    #[inline]
    pub unsafe fn post_send_with_invalidate(
        &self,
        segments: &[Segment],
        cookie: u64,
        flags: DAT_COMPLETION_FLAGS,
        context: Option<DAT_RMR_CONTEXT>,
    ) -> Result<()> {
        // SAFETY: as the caller promised.
        unsafe {
            self.post_request(SendOp::Send { invalidate: context }, segments, cookie, flags, 5)
        }
    }

    /// dat_ep_post_rdma_write. `room`: bytes of the remote segment.
    ///
    /// # Safety
    /// As above.
    #[inline]
    pub unsafe fn post_rdma_write(
        &self,
        segments: &[Segment],
        cookie: u64,
        remote: Remote,
        room: u64,
        flags: DAT_COMPLETION_FLAGS,
    ) -> Result<()> {
        if length(segments) > room {
            self.refuse_if_strict()?;
        }
        // SAFETY: as the caller promised.
        unsafe { self.post_request(SendOp::Write(remote), segments, cookie, flags, 6) }
    }

    /// dat_ep_post_rdma_read. `size`: bytes of the remote segment, all of which are read if the local segments have room for
    /// them.
    ///
    /// # Safety
    /// As above.
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
        if local < size {
            self.refuse_if_strict()?;
        }
        let mut shortened = [Segment::default(); MAX_SEGMENTS];
        let segments = if local <= size { segments } else { trim(segments, size, &mut shortened)? };
        // SAFETY: as the caller promised.
        unsafe { self.post_request(SendOp::Read(remote), segments, cookie, flags, 6) }
    }

    /// dat_ep_post_rdma_read_to_rmr. `sink` names memory of this side by an RMR context; `size` bytes are read into it.
    ///
    /// # Safety
    /// As above.
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
        // SAFETY: as the caller promised.
        unsafe { self.post_request(SendOp::ReadToWindow(remote), &sink, cookie, flags, 5) }
    }

    /// `flags_arg`: the position of the completion flags in the standard's prototype. Always inline: what is counted is then
    /// known where it is posted, and costs nothing that the `data_path` benchmark can tell.
    #[inline(always)]
    pub(super) unsafe fn post_request(
        &self,
        op: SendOp,
        segments: &[Segment],
        cookie: u64,
        flags: DAT_COMPLETION_FLAGS,
        flags_arg: u32,
    ) -> Result<()> {
        self.shared.state.check(Event::PostRequest)?;
        // SAFETY: as the caller promised.
        let link = unsafe { self.link() }?;
        // uDAPL 1.2, dat_ep_post_send: unsignalled only if the endpoint was made for it.
        let known = REQUEST_FLAGS & !DAT_COMPLETION_UNSIGNALLED_FLAG | link.unsignalled;
        let flags =
            if flags & !known == 0 { flags } else { self.known_flags(known, flags, flags_arg)? };
        let (max_segments, max_size) = match op {
            SendOp::Read(_) | SendOp::ReadToWindow(_) => (link.max_read_iov, link.max_rdma),
            SendOp::Write(_) | SendOp::WriteImm { .. } => (link.max_write_iov, link.max_rdma),
            SendOp::Send { .. } => (link.max_send_iov, link.max_message),
            // It is no message and no RDMA, and its size is given.
            SendOp::FetchAdd { .. } | SendOp::CompareSwap { .. } => (link.max_send_iov, u64::MAX),
        };
        if segments.len() > max_segments {
            return Err(Error::arg(2));
        }
        if length(segments) > max_size {
            return Err(Error::of(DAT_LENGTH_ERROR));
        }
        let suppressed = flags & DAT_COMPLETION_SUPPRESS_FLAG != 0;
        // SAFETY: as the caller promised.
        let claim = unsafe { self.claim(link, cookie, suppressed) }?;
        let wr = SendWr {
            id: claim.cell as u64,
            op,
            segments,
            signalled: !suppressed,
            solicited: flags & DAT_COMPLETION_SOLICITED_WAIT_FLAG != 0,
            fence: flags & DAT_COMPLETION_BARRIER_FENCE_FLAG != 0,
            quiet: flags & DAT_COMPLETION_UNSIGNALLED_FLAG != 0,
        };
        // SAFETY: as the caller promised.
        unsafe { link.qp.post_send(&wr) }.map_err(|e| {
            link.flow.requests.withdraw(&claim);
            if let SendOp::ReadToWindow(_) = op { sink_refused(e) } else { refused(e) }
        })?;
        let (posts, bytes) = match op {
            SendOp::Send { .. } => (DCNT_EP_POST_SEND, Some(DCNT_EP_POST_SEND_DATA)),
            SendOp::Write(_) => (DCNT_EP_POST_WRITE, Some(DCNT_EP_POST_WRITE_DATA)),
            SendOp::WriteImm { .. } => (DCNT_EP_POST_WRITE_IMM, Some(DCNT_EP_POST_WRITE_IMM_DATA)),
            SendOp::Read(_) | SendOp::ReadToWindow(_) => {
                (DCNT_EP_POST_READ, Some(DCNT_EP_POST_READ_DATA))
            }
            SendOp::FetchAdd { .. } => (DCNT_EP_POST_FETCH_ADD, None),
            SendOp::CompareSwap { .. } => (DCNT_EP_POST_CMP_SWAP, None),
        };
        link.flow.tally.add(posts, 1);
        if let Some(bytes) = bytes {
            link.flow.tally.add(bytes, length(segments));
        }
        Ok(())
    }

    /// dat_ep_post_recv.
    ///
    /// # Safety
    /// As above.
    #[inline]
    pub unsafe fn post_recv(
        &self,
        segments: &[Segment],
        cookie: u64,
        flags: DAT_COMPLETION_FLAGS,
    ) -> Result<()> {
        let state = self.shared.state.check(Event::PostRecv)?;
        // SAFETY: as the caller promised.
        let link = unsafe { self.link() }?;
        // uDAPL 1.2, dat_ep_create_with_srq: receive buffers cannot be posted to such an endpoint.
        if link.on_srq {
            return Err(Error::state(DAT_INVALID_STATE_SRQ_IN_USE));
        }
        // uDAPL 1.2, dat_ep_post_recv: neither suppression nor fence.
        let known = DAT_COMPLETION_EVD_THRESHOLD_FLAG | link.recv_unsignalled;
        let flags = if flags & !known == 0 { flags } else { self.known_flags(known, flags, 5)? };
        if segments.len() > link.max_recv_iov {
            return Err(Error::arg(2));
        }
        let quiet = flags & DAT_COMPLETION_UNSIGNALLED_FLAG != 0;
        let Some(seq) = link.flow.receives.next() else {
            return Err(Error::of(DAT_INSUFFICIENT_RESOURCES));
        };
        link.flow.receives.posted(seq + 1);
        // SAFETY: as the caller promised.
        unsafe { link.qp.post_recv(&RecvWr { id: cookie, segments, quiet }) }.map_err(|e| {
            link.flow.receives.posted(seq);
            refused(e)
        })?;
        link.flow.tally.add(DCNT_EP_POST_RECV, 1);
        link.flow.tally.add(DCNT_EP_POST_RECV_DATA, length(segments));
        if state.may_be_modified() {
            self.remember(segments, cookie, quiet);
        }
        Ok(())
    }

    /// The remote segment and the local ones differ in length in a way that the standard forbids (uDAPL 1.2,
    /// dat_ep_post_rdma_write and dat_ep_post_rdma_read: `DAT_LENGTH_ERROR`). OFED's library never looks at the length of
    /// the remote segment: the local segments say how much is transferred, and the peer's region limits it.
    #[cold]
    pub(super) fn refuse_if_strict(&self) -> Result<()> {
        if self.ia.transport.attrs().strict { Err(Error::of(DAT_LENGTH_ERROR)) } else { Ok(()) }
    }

    /// The completion flags without those that mean nothing here: OFED's library does not look at these, and programs give
    /// them. `DAT_INVALID_PARAMETER`: the adapter is strict.
    #[cold]
    pub(super) fn known_flags(
        &self,
        known: DAT_COMPLETION_FLAGS,
        flags: DAT_COMPLETION_FLAGS,
        arg: u32,
    ) -> Result<DAT_COMPLETION_FLAGS> {
        if self.ia.transport.attrs().strict { Err(Error::arg(arg)) } else { Ok(flags & known) }
    }

    /// A place in the request queue.
    ///
    /// # Safety
    /// No other thread posts requests to the endpoint meanwhile.
    #[inline(always)]
    pub(super) unsafe fn claim(
        &self,
        link: &Link<T>,
        cookie: u64,
        suppressed: bool,
    ) -> Result<Claim> {
        let carried_out = |progress| {
            if progress {
                self.ia.transport.progress();
            }
            // SAFETY: the caller's promise.
            unsafe { link.qp.carried_out() }
        };
        let claim = link.flow.requests.claim(cookie, suppressed, carried_out);
        claim.ok_or(Error::of(DAT_INSUFFICIENT_RESOURCES))
    }

    /// # Safety
    /// As above.
    #[inline]
    pub(super) unsafe fn link(&self) -> Result<&Link<T>> {
        // SAFETY: dat_ep_modify and dat_ep_reset alone replace it.
        unsafe { self.link_ptr().as_ref() }.ok_or(Error::state(DAT_INVALID_STATE_EP_UNCONFIGURED))
    }
}

#[inline]
pub(super) fn length(segments: &[Segment]) -> u64 {
    segments.iter().map(|s| u64::from(s.len)).sum()
}

/// The first `size` bytes of `segments`.
fn trim<'a>(
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

/// What a post that the transport refused answers (uDAPL 1.2, dat_ep_post_send: return values).
#[cold]
pub fn refused(error: PostError) -> Error {
    match error {
        PostError::Full => Error::of(DAT_INSUFFICIENT_RESOURCES),
        // uDAPL 1.2, dat_ep_post_rdma_write: an invalid LMR is a privileges violation. No privilege is the missing one.
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

/// The same for a sink that is named by an RMR context, at position 2: it takes the right that peers would need.
#[cold]
fn sink_refused(error: PostError) -> Error {
    match error {
        PostError::Bounds => Error::arg(2),
        PostError::Access { .. } => Error::new(DAT_PRIVILEGES_VIOLATION, DAT_PRIVILEGES_RDMA_WRITE),
        other => refused(other),
    }
}
