//! Waiting for events: dispatchers, and objects that notify of several of them.

use std::ops::BitOr;
use std::sync::Arc;
use std::time::Duration;

use dat_sys::*;

use crate::adapter::{count_to_c, timeout_to_c};
use crate::error::{Error, ErrorKind, Result};
use crate::event::Event;
use crate::object::{Interface, Object, call};

/// Which events a dispatcher takes; combine with `|`. The default is all of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Streams(DAT_EVD_FLAGS);

impl Streams {
    /// Completions.
    pub const COMPLETIONS: Streams = Streams(DAT_EVD_DTO_FLAG);
    /// Connections coming up and ending.
    pub const CONNECTIONS: Streams = Streams(DAT_EVD_CONNECTION_FLAG);
    /// Connection requests.
    pub const REQUESTS: Streams = Streams(DAT_EVD_CR_FLAG);
}

impl Default for Streams {
    fn default() -> Self {
        Streams::COMPLETIONS | Streams::CONNECTIONS | Streams::REQUESTS
    }
}

impl BitOr for Streams {
    type Output = Streams;

    fn bitor(self, other: Streams) -> Streams {
        Streams(self.0 | other.0)
    }
}

/// Which dispatcher; to be compared with [`EventDispatcher::id`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DispatcherId(usize);

/// A queue of events (EVD).
pub struct EventDispatcher {
    pub(crate) object: Arc<Object>,
    /// Written by the provider, never left uninitialised.
    event: DAT_EVENT,
}

// SAFETY: the pointers of the last event are not used again.
unsafe impl Send for EventDispatcher {}
// SAFETY: as above; through a shared reference nothing is done with the event.
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
        // SAFETY: an open IA, a notification object or none, and a handle to write to.
        unsafe {
            call!(
                interface,
                "dat_evd_create",
                evd_create_func(interface.handle(), count_to_c(depth), cno, streams.0, &mut handle)
            )
        }?;
        let needs = notify.map(|cno| cno.object.clone()).into_iter().collect();
        // SAFETY: just created.
        Ok(Self::new(unsafe {
            Object::new(interface, handle, interface.table().evd_free_func, needs)
        }))
    }

    /// Which dispatcher this is.
    pub fn id(&self) -> DispatcherId {
        DispatcherId(self.object.handle.addr())
    }

    /// The next event, if there is one. The way to poll: it makes progress where the provider needs the program's time.
    ///
    /// # Errors
    ///
    /// What the provider says; not that the queue is empty, which is `None`.
    #[inline]
    pub fn dequeue(&mut self) -> Result<Option<Event>> {
        let interface = &self.object.interface;
        let Some(dequeue) = interface.table().evd_dequeue_func else {
            return Err(crate::error::not_implemented("dat_evd_dequeue"));
        };
        // SAFETY: our handle, and an event to write to; `&mut` makes this thread the only one.
        let status = unsafe { dequeue(self.object.handle, &mut self.event) };
        match DAT_GET_TYPE(status) {
            // SAFETY: the provider says that it filled in the event.
            DAT_SUCCESS => Ok(Some(unsafe { Event::decode(&self.event, interface) })),
            DAT_QUEUE_EMPTY => Ok(None),
            _ => Err(Error::new("dat_evd_dequeue", status)),
        }
    }

    /// Waits for the next event; `None` waits for ever.
    ///
    /// # Errors
    ///
    /// [`TimeoutExpired`](ErrorKind::TimeoutExpired), [`InterruptedCall`](ErrorKind::InterruptedCall), and what else
    /// the provider says.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<Event> {
        Ok(self.wait_for(1, timeout)?.0)
    }

    /// Waits until `threshold` events are there; returns the first and how many are left.
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait), and [`InvalidParameter`](ErrorKind::InvalidParameter) for a threshold of 0 or more
    /// than the queue holds.
    pub fn wait_for(
        &mut self,
        threshold: usize,
        timeout: Option<Duration>,
    ) -> Result<(Event, usize)> {
        let interface = &self.object.interface;
        let mut more = 0;
        // SAFETY: our handle, an event and a count to write to; `&mut` makes this thread the only one.
        unsafe {
            call!(
                interface,
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
        // SAFETY: the provider says that it filled in the event.
        Ok((unsafe { Event::decode(&self.event, interface) }, usize::try_from(more).unwrap_or(0)))
    }
}

/// Is triggered by events of any of its dispatchers (CNO).
pub struct NotificationObject {
    object: Arc<Object>,
}

impl NotificationObject {
    pub(crate) fn create(interface: &Arc<Interface>) -> Result<Self> {
        let mut handle = DAT_HANDLE_NULL;
        // SAFETY: an open IA, no agent, and a handle to write to.
        unsafe {
            call!(
                interface,
                "dat_cno_create",
                cno_create_func(interface.handle(), DAT_OS_WAIT_PROXY_AGENT_NULL, &mut handle)
            )
        }?;
        // SAFETY: just created.
        let object =
            unsafe { Object::new(interface, handle, interface.table().cno_free_func, Vec::new()) };
        Ok(NotificationObject { object: Arc::new(object) })
    }

    /// Waits until a dispatcher triggers it; `None` waits for ever. Which dispatcher is a hint: look for events there
    /// first, and expect none.
    ///
    /// # Errors
    ///
    /// [`TimeoutExpired`](ErrorKind::TimeoutExpired), [`InterruptedCall`](ErrorKind::InterruptedCall), and what else
    /// the provider says.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<DispatcherId> {
        const CALL: &str = "dat_cno_wait";
        let mut evd = DAT_HANDLE_NULL;
        // SAFETY: our handle, and a handle to write to.
        unsafe {
            call!(
                self.object.interface,
                "dat_cno_wait",
                cno_wait_func(self.object.handle, timeout_to_c(timeout), &mut evd)
            )
        }
        .map_err(|error| match error.kind() {
            // uDAPL 1.2, dat_cno_wait: an empty queue is how it reports a time-out, unlike dat_evd_wait.
            ErrorKind::QueueEmpty => {
                Error::new(CALL, DAT_ERROR(DAT_TIMEOUT_EXPIRED, DAT_NO_SUBTYPE))
            }
            _ => error,
        })?;
        Ok(DispatcherId(evd.addr()))
    }
}
