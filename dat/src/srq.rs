//! Shared receive queues.

use std::sync::Arc;

use dat_sys::*;

use crate::adapter::count_to_c;
use crate::error::Result;
use crate::memory::{ProtectionZone, Segment, iov};
use crate::object::{Object, call};
use crate::post::{Limits, Posted};

/// A queue of receives that several endpoints share (SRQ in the standard). A completion names the
/// endpoint that has used the receive.
///
/// ```
/// use dat::{Access, Adapter};
///
/// let adapter = Adapter::open("tcp-emu")?;
/// let (zone, events) = (adapter.zone()?, adapter.dispatcher(64)?);
/// let buffers = zone.register(vec![0; 32 * 64], Access::LOCAL)?;
/// let mut queue = zone.shared_receive_queue(32, 1)?;
/// for number in 0..32 {
///     let start = number * 64;
///     queue.post_receive(&[buffers.segment(start..start + 64)?], number as u64)?;
/// }
/// let builder = adapter.endpoint().zone(&zone).events(&events);
/// let endpoint = builder.shared_receive_queue(&queue).create()?;
/// # Ok::<(), dat::Error>(())
/// ```
pub struct SharedReceiveQueue {
    pub(crate) object: Arc<Object>,
    limits: Limits,
}

impl ProtectionZone {
    /// Creates a queue for at least `depth` receives of at most `max_segments` segments each.
    ///
    /// # Errors
    ///
    /// The error of the provider; see
    /// [`Attributes::shared_receive_queues`](crate::Attributes::shared_receive_queues).
    pub fn shared_receive_queue(
        &self,
        depth: usize,
        max_segments: usize,
    ) -> Result<SharedReceiveQueue> {
        let interface = &self.object.interface;
        let mut attr = DAT_SRQ_ATTR {
            max_recv_dtos: count_to_c(depth),
            max_recv_iov: count_to_c(max_segments),
            low_watermark: DAT_SRQ_LW_DEFAULT,
        };
        let mut handle = DAT_HANDLE_NULL;
        // SAFETY: the IA is open, the zone belongs to it, the attributes are readable, and the
        // handle is writable.
        unsafe {
            call!(
                interface,
                "dat_srq_create",
                srq_create_func(interface.handle(), self.object.handle, &mut attr, &mut handle)
            )
        }?;
        let free = interface.table().srq_free_func;
        // SAFETY: the object was just created, and only this value frees it.
        let object = unsafe { Object::new(interface, handle, free, vec![self.object.clone()]) };
        let limits = Limits {
            requests: 0,
            receives: count_to_c(depth),
            request_segments: 0,
            receive_segments: count_to_c(max_segments),
            message: interface.attributes.max_message,
            rdma: 0,
        };
        Ok(SharedReceiveQueue { object: Arc::new(object), limits })
    }
}

impl SharedReceiveQueue {
    /// Posts the segments to receive one message of any endpoint of the queue.
    ///
    /// # Errors
    ///
    /// The errors of [`Endpoint::post_receive`](crate::Endpoint::post_receive).
    #[inline]
    pub fn post_receive(&mut self, local: &[Segment], cookie: u64) -> Result<()> {
        let (count, iov) = iov(local);
        let cookie = DAT_CONTEXT { as_64: cookie };
        // SAFETY: this value owns the handle, `&mut` makes this thread its only user, and the
        // segments are only read.
        unsafe {
            call!(
                self.object.interface,
                "dat_srq_post_recv",
                srq_post_recv_func(self.object.handle, count, iov, cookie)
            )
        }
        .map_err(|error| self.limits.explain(error, Posted::Receive, local, None))
    }
}
