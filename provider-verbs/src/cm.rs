//! rdma_cm: the event channel and its identifiers.

use std::io;
use std::net::SocketAddr;
use std::ptr::{self, NonNull};

use rdma_core_sys::*;

use crate::device::{CAddr, Found};

/// An event channel. Its identifiers live no longer.
pub(crate) struct Channel {
    core: &'static RdmaCore,
    channel: NonNull<rdma_event_channel>,
}

/// An identifier.
pub(crate) struct Id {
    core: &'static RdmaCore,
    id: NonNull<rdma_cm_id>,
}

impl Channel {
    pub(crate) fn open(core: &'static RdmaCore) -> io::Result<Channel> {
        // SAFETY: no arguments.
        let channel = NonNull::new(unsafe { (core.cm.rdma_create_event_channel)() });
        Ok(Channel { core, channel: channel.ok_or_else(io::Error::last_os_error)? })
    }

    /// The device that has a local address, and the port; none: there is no device below it.
    pub(crate) fn device_of(&self, address: SocketAddr) -> io::Result<Option<Found>> {
        let id = self.id()?;
        let c = CAddr::new(SocketAddr::new(address.ip(), 0));
        // SAFETY: a live identifier, and an address that is as long as its family says.
        if unsafe { (self.core.cm.rdma_bind_addr)(id.id.as_ptr(), c.as_mut_ptr()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a live identifier; it was written to by the call above.
        let rdma_cm_id { verbs, port_num, .. } = unsafe { id.id.read() };
        // SAFETY: an open context as long as the identifier is bound to it.
        let context = unsafe { verbs.as_ref() };
        Ok(context.map(|context| Found { device: context.device, port: port_num, _bound: id }))
    }

    fn id(&self) -> io::Result<Id> {
        let mut id = ptr::null_mut();
        // SAFETY: a live channel, and room for the answer.
        let made = unsafe {
            (self.core.cm.rdma_create_id)(self.channel.as_ptr(), &mut id, ptr::null_mut(), RDMA_PS_TCP)
        };
        match NonNull::new(id) {
            Some(id) if made == 0 => Ok(Id { core: self.core, id }),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: no identifier of it is left.
        unsafe { (self.core.cm.rdma_destroy_event_channel)(self.channel.as_ptr()) }
    }
}

impl Drop for Id {
    fn drop(&mut self) {
        // SAFETY: none of its events is unacknowledged by this thread.
        unsafe { (self.core.cm.rdma_destroy_id)(self.id.as_ptr()) };
    }
}
