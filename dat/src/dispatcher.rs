//! Dispatchers, which queue events, and iterators over events. `notification.rs` waits for several
//! dispatchers.

use std::iter::FusedIterator;
use std::sync::Arc;
use std::time::Duration;

use bitflags::bitflags;
use dat_sys::*;

use crate::adapter::{count_to_c, timeout_to_c};
use crate::error::{Error, ErrorKind, Result};
use crate::event::Event;
use crate::notification::NotificationObject;
use crate::object::{Interface, Object, call};
use crate::owners::EventOwners;

bitflags! {
    /// The kinds of events that a dispatcher accepts. Combine them with `|`. The default is all of
    /// them.
    ///
    /// ```
    /// use dat::{Adapter, Streams};
    ///
    /// let adapter = Adapter::open("tcp-emu")?;
    /// let requests = adapter.dispatcher_for(8, Streams::REQUESTS, None)?;
    /// let others = adapter.dispatcher_for(64, Streams::COMPLETIONS | Streams::CONNECTIONS, None)?;
    /// # Ok::<(), dat::Error>(())
    /// ```
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
///
/// ```
/// let adapter = dat::Adapter::open("tcp-emu")?;
/// let (one, other) = (adapter.dispatcher(8)?, adapter.dispatcher(8)?);
/// assert_ne!(one.id(), other.id());
/// # Ok::<(), dat::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DispatcherId(pub(crate) usize);

/// A queue of events (EVD in the standard).
///
/// ```
/// let adapter = dat::Adapter::open("tcp-emu")?;
/// let mut events = adapter.dispatcher(8)?;
/// assert!(events.dequeue()?.is_none(), "nothing has happened yet");
/// # Ok::<(), dat::Error>(())
/// ```
pub struct EventDispatcher {
    pub(crate) object: Arc<Object>,
    /// The kinds of events that the dispatcher accepts.
    pub(crate) streams: Streams,
    /// The endpoints whose connection events this dispatcher reports.
    pub(crate) owners: Arc<EventOwners>,
    /// The buffer for events that the provider writes. It is always initialised.
    event: DAT_EVENT,
}

// SAFETY: the pointers in the last event are not used again.
unsafe impl Send for EventDispatcher {}
// SAFETY: the event is accessed only through `&mut`, and its pointers are not used again.
unsafe impl Sync for EventDispatcher {}

impl EventDispatcher {
    pub(crate) fn new(object: Object, streams: Streams) -> Self {
        EventDispatcher {
            object: Arc::new(object),
            streams,
            owners: Arc::default(),
            event: DAT_EVENT::zeroed(),
        }
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
        }
        .map_err(|error: Error| {
            let limit = interface.attributes.max_events;
            let exceeds = depth > limit;
            error.explained(exceeds.then(|| format!("{depth} events, and the limit is {limit}")))
        })?;
        let needs = notify.map(|cno| cno.object.clone()).into_iter().collect();
        // SAFETY: the object was just created, and only this value frees it.
        let object =
            unsafe { Object::new(interface, handle, interface.table().evd_free_func, needs) };
        Ok(Self::new(object, streams))
    }

    /// Another value for the same dispatcher, to create objects with. Only one of the two may take
    /// events.
    #[cfg(feature = "async")]
    pub(crate) fn share(&self) -> Self {
        EventDispatcher {
            object: self.object.clone(),
            streams: self.streams,
            owners: self.owners.clone(),
            event: DAT_EVENT::zeroed(),
        }
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
        let latest_free = self.owners.latest_free();
        // SAFETY: this value owns the handle, the event is writable, and `&mut` makes this thread
        // the only user.
        let status = unsafe { dequeue(self.object.handle, &mut self.event) };
        match DAT_GET_TYPE(status) {
            // SAFETY: success means that the provider has filled in the event.
            DAT_SUCCESS => Ok(Some(unsafe { self.decode() })),
            DAT_QUEUE_EMPTY => {
                self.owners.on_empty(latest_free);
                Ok(None)
            }
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
        self.wait_for(1, timeout).map(|(event, _)| event)
    }

    /// Waits until there are `threshold` events. Returns the first event and the number of
    /// remaining events.
    ///
    /// # Errors
    ///
    /// The errors of [`wait`](Self::wait), and [`InvalidParameter`](ErrorKind::InvalidParameter) if
    /// `threshold` is 0 or more than the length of the queue.
    #[inline]
    pub fn wait_for(
        &mut self,
        threshold: usize,
        timeout: Option<Duration>,
    ) -> Result<(Event, usize)> {
        let latest_free = self.owners.latest_free();
        let more = self.wait_in_place(threshold, timeout)?;
        // SAFETY: the wait has succeeded, so the provider has filled in the event.
        let event = unsafe { self.decode() };
        if more == 0 {
            self.owners.on_empty(latest_free);
        }
        Ok((event, more))
    }

    /// Converts `self.event` from C.
    ///
    /// # Safety
    ///
    /// The provider must have just filled in `self.event`.
    #[inline]
    unsafe fn decode(&self) -> Event {
        // SAFETY: the caller guarantees that the provider has just filled in the event.
        unsafe { Event::decode(&self.event, &self.object.interface, &self.owners) }
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

/// The events that a dispatcher has, from [`EventDispatcher::drain`].
///
/// ```no_run
/// # fn serve(events: &mut dat::EventDispatcher) -> dat::Result<()> {
/// for event in events.drain() {
///     println!("{}", event?);
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "an iterator takes no event before `next` is called"]
pub struct Drain<'a>(Option<&'a mut EventDispatcher>);

/// The events of a dispatcher as they arrive, from [`EventDispatcher::incoming`].
///
/// ```no_run
/// # fn serve(events: &mut dat::EventDispatcher) -> dat::Result<()> {
/// // Ends after ten seconds without an event.
/// for event in events.incoming(Some(std::time::Duration::from_secs(10))) {
///     println!("{}", event?);
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "an iterator waits for no event before `next` is called"]
pub struct Incoming<'a> {
    events: Option<&'a mut EventDispatcher>,
    timeout: Option<Duration>,
}

impl EventDispatcher {
    /// Returns an iterator over the events that are in the queue. It ends when the queue is empty,
    /// or after an error.
    pub fn drain(&mut self) -> Drain<'_> {
        Drain(Some(self))
    }

    /// Returns an iterator that waits for each event. It ends if no event arrives within `timeout`
    /// after it was asked for the next one, or after an error. With a `timeout` of `None` it waits
    /// for ever. A signal does not end it.
    pub fn incoming(&mut self, timeout: Option<Duration>) -> Incoming<'_> {
        Incoming { events: Some(self), timeout }
    }
}

impl Iterator for Drain<'_> {
    type Item = Result<Event>;

    fn next(&mut self) -> Option<Self::Item> {
        let event = self.0.as_mut()?.dequeue().transpose();
        if !matches!(event, Some(Ok(_))) {
            self.0 = None;
        }
        event
    }
}

impl FusedIterator for Drain<'_> {}

impl Iterator for Incoming<'_> {
    type Item = Result<Event>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.events.as_mut()?.wait(self.timeout) {
                Ok(event) => return Some(Ok(event)),
                Err(error) if error.kind() == ErrorKind::InterruptedCall => {}
                Err(error) => {
                    self.events = None;
                    let timed_out = error.kind() == ErrorKind::TimeoutExpired;
                    return (!timed_out).then_some(Err(error));
                }
            }
        }
    }
}

impl FusedIterator for Incoming<'_> {}
