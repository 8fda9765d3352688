//! Posts, which are the data path. Each function is one call through the provider's table.
//!
//! The posts are safe. A segment names memory by a key, which the provider checks, and safe code
//! accesses registered memory only by copies.

use bitflags::bitflags;
use dat_sys::*;

use crate::endpoint::Endpoint;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::{RemoteSegment, Segment, iov};
use crate::object::call;

bitflags! {
    /// Flags for the way in which an operation completes and notifies. Combine values with `|`. The
    /// default reports every completion.
    ///
    /// ```no_run
    /// use dat::Flags;
    ///
    /// # fn post(endpoint: &mut dat::Endpoint, data: dat::Segment, flag: dat::Segment,
    /// #     at: [dat::RemoteSegment; 2]) -> dat::Result<()> {
    /// // The second completion says that both writes are done.
    /// endpoint.post_write(&[data], at[0], 1, Flags::SUPPRESS)?;
    /// endpoint.post_write(&[flag], at[1], 2, Flags::default())?;
    /// # Ok(())
    /// # }
    /// ```
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
        .map_err(|error| self.limits.explain(error, Posted::Request, local, None))
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
        .map_err(|error| self.limits.explain(error, Posted::Receive, local, None))
    }

    /// Writes the segments to memory of the peer, without notifying it.
    ///
    /// # Errors
    ///
    /// The errors that are listed above for all posts, and [`Length`](crate::ErrorKind::Length) if
    /// the segments are longer than the adapter permits. If the peer's memory is shorter than the
    /// segments, some providers refuse the post in the same way.
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
        .map_err(|error| self.limits.explain(error, Posted::Request, local, Some(remote)))
    }

    /// Reads memory of the peer into the segments, without notifying the peer.
    ///
    /// # Errors
    ///
    /// The errors that are listed above for all posts, and [`Length`](crate::ErrorKind::Length) if
    /// the peer's memory is longer than the adapter permits. If the segments are shorter than the
    /// peer's memory, some providers refuse the post in the same way.
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
        .map_err(|error| self.limits.explain(error, Posted::Request, local, Some(remote)))
    }
}

/// The limits of an endpoint or a shared receive queue. They explain why a post was refused.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) requests: DAT_COUNT,
    pub(crate) receives: DAT_COUNT,
    pub(crate) request_segments: DAT_COUNT,
    pub(crate) receive_segments: DAT_COUNT,
    /// The maximum size of a message in bytes.
    pub(crate) message: u32,
    /// The maximum size of an RDMA operation in bytes.
    pub(crate) rdma: u32,
}

/// What was posted.
#[derive(Clone, Copy)]
pub(crate) enum Posted {
    Request,
    Receive,
}

impl Limits {
    /// Adds the numbers to the error of a post.
    #[cold]
    pub(crate) fn explain(
        &self,
        error: Error,
        posted: Posted,
        local: &[Segment],
        remote: Option<RemoteSegment>,
    ) -> Error {
        let (what, operations, segments) = match posted {
            Posted::Request => ("requests", self.requests, self.request_segments),
            Posted::Receive => ("receives", self.receives, self.receive_segments),
        };
        let bytes: u64 = local.iter().map(|segment| u64::from(segment.length())).sum();
        let too_many = usize::try_from(segments).is_ok_and(|segments| local.len() > segments);
        let detail = match (error.kind(), remote) {
            (ErrorKind::InvalidParameter | ErrorKind::InsufficientResources, _) if too_many => {
                Some(format!("{} segments, and the limit is {segments}", local.len()))
            }
            (ErrorKind::Length, Some(remote)) => Some(format!(
                "{bytes} bytes in the local segments, and {} bytes at the peer; the limit is {}",
                remote.length(),
                self.rdma
            )),
            (ErrorKind::Length, None) => {
                Some(format!("{bytes} bytes, and the limit is {}", self.message))
            }
            (ErrorKind::InsufficientResources, _) => {
                Some(format!("at most {operations} {what} can be outstanding"))
            }
            _ => None,
        };
        error.explained(detail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_post_tells_the_numbers() {
        let limits = Limits {
            requests: 8,
            receives: 16,
            request_segments: 1,
            receive_segments: 2,
            message: 1000,
            rdma: 2000,
        };
        let local = Segment(DAT_LMR_TRIPLET { segment_length: 600, ..DAT_LMR_TRIPLET::zeroed() });
        let remote =
            RemoteSegment(DAT_RMR_TRIPLET { segment_length: 50, ..DAT_RMR_TRIPLET::zeroed() });
        let detail = |kind, posted, local: &[Segment], remote| {
            let error = Error::new("x", DAT_ERROR(kind, DAT_NO_SUBTYPE));
            limits.explain(error, posted, local, remote).detail().map(str::to_owned)
        };
        let tells = |text: &str| Some(text.to_owned());
        assert_eq!(
            detail(DAT_LENGTH_ERROR, Posted::Request, &[local; 2], None),
            tells("1200 bytes, and the limit is 1000")
        );
        assert_eq!(
            detail(DAT_LENGTH_ERROR, Posted::Request, &[local], Some(remote)),
            tells("600 bytes in the local segments, and 50 bytes at the peer; the limit is 2000")
        );
        assert_eq!(
            detail(DAT_INVALID_PARAMETER, Posted::Receive, &[local; 3], None),
            tells("3 segments, and the limit is 2")
        );
        assert_eq!(
            detail(DAT_INSUFFICIENT_RESOURCES, Posted::Receive, &[local], None),
            tells("at most 16 receives can be outstanding")
        );
        assert_eq!(detail(DAT_INVALID_STATE, Posted::Request, &[local], None), None);
    }
}
