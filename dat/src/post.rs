//! Posts, which are the data path. Each function is one call through the provider's table.
//!
//! The posts are safe. A segment names memory by a key, which the provider checks, and safe code
//! accesses registered memory only by copies.

use bitflags::bitflags;
use dat_sys::*;

use crate::endpoint::Endpoint;
use crate::error::Result;
use crate::memory::{RemoteSegment, Segment, iov};
use crate::object::call;

bitflags! {
    /// Flags for the way in which an operation completes and notifies. Combine values with `|`. The
    /// default reports every completion.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Flags: DAT_COMPLETION_FLAGS {
        /// Success is not reported, but a failure is. The operation counts as outstanding until a
        /// later reported operation completes.
        const SUPPRESS = DAT_COMPLETION_SUPPRESS_FLAG;
        /// The message wakes a peer that waits for solicited receives only.
        const SOLICITED_WAIT = DAT_COMPLETION_SOLICITED_WAIT_FLAG;
        /// The operation starts after earlier RDMA reads have completed.
        const BARRIER_FENCE = DAT_COMPLETION_BARRIER_FENCE_FLAG;
    }
}

/// Posts. The [`Completion`](crate::Completion) returns the `cookie`. An operation posted to a
/// disconnected endpoint completes as [`Flushed`](crate::Status::Flushed). Errors of all posts:
///
/// - [`InvalidState`](crate::ErrorKind::InvalidState): the endpoint is not connected.
/// - [`InsufficientResources`](crate::ErrorKind::InsufficientResources): the maximum number of
///   operations is outstanding.
/// - [`InvalidParameter`](crate::ErrorKind::InvalidParameter): there are too many segments, or a
///   segment's memory is not registered any more.
/// - [`ProtectionViolation`](crate::ErrorKind::ProtectionViolation): the memory belongs to another
///   zone.
/// - [`PrivilegesViolation`](crate::ErrorKind::PrivilegesViolation): the memory does not grant the
///   access.
impl Endpoint {
    /// Sends the concatenated segments as one message.
    ///
    /// # Errors
    ///
    /// The errors that are listed above for all posts.
    #[inline]
    pub fn post_send(&mut self, local: &[Segment], cookie: u64, flags: Flags) -> Result<()> {
        let (count, iov) = iov(local);
        let cookie = DAT_CONTEXT { as_64: cookie };
        // SAFETY: this value owns the handle, `&mut` makes this thread its only user, and the
        // segments are only read.
        unsafe {
            call!(
                self.object.interface,
                "dat_ep_post_send",
                ep_post_send_func(self.object.handle, count, iov, cookie, flags.bits())
            )
        }
    }

    /// Posts the segments to receive one message. This is possible before the endpoint is
    /// connected.
    ///
    /// # Errors
    ///
    /// The errors that are listed above for all posts.
    #[inline]
    pub fn post_receive(&mut self, local: &[Segment], cookie: u64) -> Result<()> {
        let (count, iov) = iov(local);
        let cookie = DAT_CONTEXT { as_64: cookie };
        // SAFETY: this value owns the handle, `&mut` makes this thread its only user, and the
        // segments are only read.
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

    /// Writes the segments to memory of the peer, without notifying it.
    ///
    /// # Errors
    ///
    /// The errors that are listed above for all posts, and [`Length`](crate::ErrorKind::Length) if
    /// the peer's memory is shorter than the segments.
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
        // SAFETY: this value owns the handle, `&mut` makes this thread its only user, and the
        // segments are only read, during the call.
        unsafe {
            call!(
                self.object.interface,
                "dat_ep_post_rdma_write",
                ep_post_rdma_write_func(
                    self.object.handle,
                    count,
                    iov,
                    cookie,
                    &remote.0,
                    flags.bits()
                )
            )
        }
    }

    /// Reads memory of the peer into the segments, without notifying the peer.
    ///
    /// # Errors
    ///
    /// The errors that are listed above for all posts, and [`Length`](crate::ErrorKind::Length) if
    /// the segments are shorter than the peer's memory segment.
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
        // SAFETY: this value owns the handle, `&mut` makes this thread its only user, and the
        // segments are only read, during the call.
        unsafe {
            call!(
                self.object.interface,
                "dat_ep_post_rdma_read",
                ep_post_rdma_read_func(
                    self.object.handle,
                    count,
                    iov,
                    cookie,
                    &remote.0,
                    flags.bits()
                )
            )
        }
    }
}
