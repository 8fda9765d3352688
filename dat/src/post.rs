//! Posting: the data path. Each function is one call through the provider's table.
//!
//! None of them is unsafe: a segment names memory by a key, which the provider checks, and memory that is registered is
//! reached by safe code through copies only.

use std::ops::BitOr;

use dat_sys::*;

use crate::endpoint::Endpoint;
use crate::error::Result;
use crate::memory::{RemoteSegment, Segment, iov};
use crate::object::call;

/// How an operation completes and notifies; combine with `|`. The default reports every completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(DAT_COMPLETION_FLAGS);

impl Flags {
    /// Success is not reported; failure is. A later operation that is reported says that this one is done too; until
    /// then it counts as outstanding.
    pub const SUPPRESS: Flags = Flags(DAT_COMPLETION_SUPPRESS_FLAG);
    /// Wakes a peer that waits for solicited receives only.
    pub const SOLICITED_WAIT: Flags = Flags(DAT_COMPLETION_SOLICITED_WAIT_FLAG);
    /// Does not start before earlier RDMA reads have ended.
    pub const BARRIER_FENCE: Flags = Flags(DAT_COMPLETION_BARRIER_FENCE_FLAG);

    pub(crate) fn bits(self) -> DAT_COMPLETION_FLAGS {
        self.0
    }
}

impl BitOr for Flags {
    type Output = Flags;

    fn bitor(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

/// In each, `cookie` comes back in the [`Completion`](crate::Completion). An operation that is posted to a disconnected
/// endpoint completes as [`Flushed`](crate::Status::Flushed). Errors that all of them have:
/// [`InvalidState`](crate::ErrorKind::InvalidState) for an endpoint that is not connected,
/// [`InsufficientResources`](crate::ErrorKind::InsufficientResources) when as many are outstanding as it was created for,
/// [`InvalidParameter`](crate::ErrorKind::InvalidParameter) for too many segments or one of memory that is not
/// registered any more, [`ProtectionViolation`](crate::ErrorKind::ProtectionViolation) for memory of another zone,
/// [`PrivilegesViolation`](crate::ErrorKind::PrivilegesViolation) for memory without the access needed.
impl Endpoint {
    /// Sends the segments, one after the other, as one message.
    ///
    /// # Errors
    ///
    /// As above.
    #[inline]
    pub fn post_send(&mut self, local: &[Segment], cookie: u64, flags: Flags) -> Result<()> {
        let (count, iov) = iov(local);
        let cookie = DAT_CONTEXT { as_64: cookie };
        // SAFETY: our handle, used by this thread alone (`&mut`), and segments, which are only read.
        unsafe {
            call!(
                self.object.interface,
                "dat_ep_post_send",
                ep_post_send_func(self.object.handle, count, iov, cookie, flags.0)
            )
        }
    }

    /// Gives the segments for one message to come. This is possible before the endpoint is connected.
    ///
    /// # Errors
    ///
    /// As above.
    #[inline]
    pub fn post_receive(&mut self, local: &[Segment], cookie: u64) -> Result<()> {
        let (count, iov) = iov(local);
        let cookie = DAT_CONTEXT { as_64: cookie };
        // SAFETY: as in `post_send`.
        unsafe {
            call!(
                self.object.interface,
                "dat_ep_post_recv",
                ep_post_recv_func(
                    self.object.handle,
                    count,
                    iov,
                    cookie,
                    DAT_COMPLETION_DEFAULT_FLAG
                )
            )
        }
    }

    /// Writes the segments to memory of the peer, who is not told.
    ///
    /// # Errors
    ///
    /// As above, and [`Length`](crate::ErrorKind::Length) where the peer's memory is shorter.
    #[inline]
    pub fn post_write(
        &mut self,
        local: &[Segment],
        remote: RemoteSegment,
        cookie: u64,
        flags: Flags,
    ) -> Result<()> {
        let (count, iov) = iov(local);
        let cookie = DAT_CONTEXT { as_64: cookie };
        // SAFETY: as in `post_send`; the remote segment is read during the call.
        unsafe {
            call!(
                self.object.interface,
                "dat_ep_post_rdma_write",
                ep_post_rdma_write_func(self.object.handle, count, iov, cookie, &remote.0, flags.0)
            )
        }
    }

    /// Reads memory of the peer, who is not told, into the segments.
    ///
    /// # Errors
    ///
    /// As above, and [`Length`](crate::ErrorKind::Length) where the segments are shorter.
    #[inline]
    pub fn post_read(
        &mut self,
        local: &[Segment],
        remote: RemoteSegment,
        cookie: u64,
        flags: Flags,
    ) -> Result<()> {
        let (count, iov) = iov(local);
        let cookie = DAT_CONTEXT { as_64: cookie };
        // SAFETY: as in `post_send`; the remote segment is read during the call.
        unsafe {
            call!(
                self.object.interface,
                "dat_ep_post_rdma_read",
                ep_post_rdma_read_func(self.object.handle, count, iov, cookie, &remote.0, flags.0)
            )
        }
    }
}
