//! Dispatchers, which queue events, and notification objects, which wait for several dispatchers.

use std::sync::Arc;
use std::time::Duration;

use bitflags::bitflags;
use dat_sys::*;

use crate::adapter::{count_to_c, timeout_to_c};
use crate::error::{Error, ErrorKind, Result};
use crate::event::Event;
use crate::object::{Interface, Object, call};

bitflags! {
    /// The kinds of events that a dispatcher accepts. Combine them with `|`. The default is all of
    /// them.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Streams: DAT_EVD_FLAGS {
        /// Completions.
        const COMPLETIONS = DAT_EVD_DTO_FLAG;
        /// Connections that are established or end.
        const CONNECTIONS = DAT_EVD_CONNECTION_FLAG;
        /// Connection requests.
        const REQUESTS = DAT_EVD_CR_FLAG;
    }
}

impl Default for Streams {
    fn default() -> Self {
        Streams::all()
    }
}

/// Identifies a dispatcher. Compare it with [`EventDispatcher::id`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DispatcherId(usize);

/// A queue of events (EVD in the standard).
pub struct EventDispatcher {
    pub(crate) object: Arc<Object>,
    /// The buffer for events that the provider writes. It is always initialised.
    event: DAT_EVENT,
}

// SAFETY: the pointers in the last event are not used again.
unsafe impl Send for EventDispatcher {}
// SAFETY: the event is accessed only through `&mut`, and its pointers are not used again.
unsafe impl Sync for EventDispatcher {}

impl EventDispatcher {
    pub(crate) fn new(object: Object) -> Self {
        EventDispatcher { object: Arc::new(object), event: DAT_EVENT::zeroed() }
    }

    pub(crate) fn create(
        interface: &Arc<Interface>,
        depth: usize,
        streams: Streams,
        notify: Option<&NotificationObject>,
    ) -> Result<Self> {
        let mut handle = DAT_HANDLE_NULL;
        let cno = notify.map_or(DAT_HANDLE_NULL, |cno| cno.object.handle);
        // SAFETY: the IA is open, the notification object is valid or null, and the handle is
        // writable.
        unsafe {
            call!(
                interface,
                "dat_evd_create",
                evd_create_func(
                    interface.handle(),
                    count_to_c(depth),
                    cno,
                    streams.bits(),
                    &mut handle
                )
            )
        }?;
        let needs = notify.map(|cno| cno.object.clone()).into_iter().collect();
        // SAFETY: the object was just created, and only this value frees it.
        Ok(Self::new(unsafe {
            Object::new(interface, handle, interface.table().evd_free_func, needs)
        }))
    }

    /// Identifies this dispatcher in events.
    pub fn id(&self) -> DispatcherId {
        DispatcherId(self.object.handle.addr())
    }

    /// Returns the next event, if there is one. Use this method to poll. The call also makes
    /// progress if the provider has no thread of its own.
    ///
    /// # Errors
    ///
    /// The error of the provider. An empty queue is no error: the result is `None`.
    #[inline]
    pub fn dequeue(&mut self) -> Result<Option<Event>> {
        let interface = &self.object.interface;
        let Some(dequeue) = interface.table().evd_dequeue_func else {
            return Err(crate::error::not_implemented("dat_evd_dequeue"));
        };
        // SAFETY: this value owns the handle, the event is writable, and `&mut` makes this thread
        // the only user.
        let status = unsafe { dequeue(self.object.handle, &mut self.event) };
        match DAT_GET_TYPE(status) {
            // SAFETY: success means that the provider has filled in the event.
            DAT_SUCCESS => Ok(Some(unsafe { Event::decode(&self.event, interface) })),
            DAT_QUEUE_EMPTY => Ok(None),
            _ => Err(Error::new("dat_evd_dequeue", status)),
        }
    }

    /// Waits for the next event. A `timeout` of `None` waits for ever.
    ///
    /// # Errors
    ///
    /// [`TimeoutExpired`](ErrorKind::TimeoutExpired),
    /// [`InterruptedCall`](ErrorKind::InterruptedCall), and other errors of the provider.
    #[inline]
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<Event> {
        self.wait_in_place(1, timeout)?;
        // SAFETY: the wait has succeeded, so the provider has filled in the event.
        Ok(unsafe { Event::decode(&self.event, &self.object.interface) })
    }

    /// Waits until there are `threshold` events. Returns the first event and the number of
    /// remaining events.
    ///
    /// # Errors
    ///
    /// The errors of [`wait`](Self::wait), and [`InvalidParameter`](ErrorKind::InvalidParameter) if
    /// `threshold` is 0 or more than the length of the queue.
    pub fn wait_for(
        &mut self,
        threshold: usize,
        timeout: Option<Duration>,
    ) -> Result<(Event, usize)> {
        let more = self.wait_in_place(threshold, timeout)?;
        // SAFETY: the wait has succeeded, so the provider has filled in the event.
        Ok((unsafe { Event::decode(&self.event, &self.object.interface) }, more))
    }

    /// Waits until there are `threshold` events. Writes the first one to `self.event` and returns
    /// the number of remaining events.
    fn wait_in_place(&mut self, threshold: usize, timeout: Option<Duration>) -> Result<usize> {
        let mut more = 0;
        // SAFETY: this value owns the handle, event and count are writable, and `&mut` makes this
        // thread the only user.
        unsafe {
            call!(
                self.object.interface,
                "dat_evd_wait",
                evd_wait_func(
                    self.object.handle,
                    timeout_to_c(timeout),
                    count_to_c(threshold),
                    &mut self.event,
                    &mut more
                )
            )
        }?;
        Ok(usize::try_from(more).unwrap_or(0))
    }
}

/// An object that is triggered by events of any of its dispatchers (CNO in the standard).
pub struct NotificationObject {
    object: Arc<Object>,
}

impl NotificationObject {
    pub(crate) fn create(interface: &Arc<Interface>) -> Result<Self> {
        let mut handle = DAT_HANDLE_NULL;
        // SAFETY: the IA is open, there is no agent, and the handle is writable.
        unsafe {
            call!(
                interface,
                "dat_cno_create",
                cno_create_func(interface.handle(), DAT_OS_WAIT_PROXY_AGENT_NULL, &mut handle)
            )
        }?;
        // SAFETY: the object was just created, and only this value frees it.
        let object =
            unsafe { Object::new(interface, handle, interface.table().cno_free_func, Vec::new()) };
        Ok(NotificationObject { object: Arc::new(object) })
    }

    /// Waits until a dispatcher triggers the object. A `timeout` of `None` waits for ever. The
    /// returned dispatcher is a hint: look for events there first, but it may have no event.
    ///
    /// # Errors
    ///
    /// [`TimeoutExpired`](ErrorKind::TimeoutExpired),
    /// [`InterruptedCall`](ErrorKind::InterruptedCall), and other errors of the provider.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<DispatcherId> {
        const CALL: &str = "dat_cno_wait";
        let mut evd = DAT_HANDLE_NULL;
        // SAFETY: this value owns the handle, and the returned handle is writable.
        unsafe {
            call!(
                self.object.interface,
                "dat_cno_wait",
                cno_wait_func(self.object.handle, timeout_to_c(timeout), &mut evd)
            )
        }
        .map_err(|error| match error.kind() {
            // Unlike dat_evd_wait, dat_cno_wait reports a time-out as an empty queue (uDAPL 1.2,
            // dat_cno_wait).
            ErrorKind::QueueEmpty => {
                Error::new(CALL, DAT_ERROR(DAT_TIMEOUT_EXPIRED, DAT_NO_SUBTYPE))
            }
            _ => error,
        })?;
        Ok(DispatcherId(evd.addr()))
    }
}
