//! Shared receive queues.

use std::sync::Arc;

use dat_sys::*;

use crate::adapter::count_to_c;
use crate::error::Result;
use crate::memory::{ProtectionZone, Segment, iov};
use crate::object::{Object, call};

/// Receives that several endpoints take from (SRQ). Their completions name the endpoint.
pub struct SharedReceiveQueue {
    pub(crate) object: Arc<Object>,
}

impl ProtectionZone {
    /// A queue for at least `depth` receives of at most `max_segments` segments.
    ///
    /// # Errors
    ///
    /// What the provider says; see [`Attributes::shared_receive_queues`](crate::Attributes::shared_receive_queues).
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
        // SAFETY: an open IA, a zone of it, attributes, and a handle to write to.
        unsafe {
            call!(
                interface,
                "dat_srq_create",
                srq_create_func(interface.handle(), self.object.handle, &mut attr, &mut handle)
            )
        }?;
        let free = interface.table().srq_free_func;
        // SAFETY: just created.
        let object = unsafe { Object::new(interface, handle, free, vec![self.object.clone()]) };
        Ok(SharedReceiveQueue { object: Arc::new(object) })
    }
}

impl SharedReceiveQueue {
    /// Gives the segments for one message to come, to whichever endpoint of the queue.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::post_receive`](crate::Endpoint::post_receive).
    #[inline]
    pub fn post_receive(&mut self, local: &[Segment], cookie: u64) -> Result<()> {
        let (count, iov) = iov(local);
        let cookie = DAT_CONTEXT { as_64: cookie };
        // SAFETY: our handle, used by this thread alone (`&mut`), and segments, which are only read.
        unsafe {
            call!(
                self.object.interface,
                "dat_srq_post_recv",
                srq_post_recv_func(self.object.handle, count, iov, cookie)
            )
        }
    }
}
