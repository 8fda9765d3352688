//! Tells which endpoint a connection event belongs to, and whether its private data may be read.
//!
//! A connection event names its endpoint by a handle. It points to data that the provider frees
//! together with the endpoint: private data, and the address handle of a peer for datagrams. The
//! event may still be in the queue of a dispatcher after the endpoint was freed, and the provider
//! may then use the handle again, for another endpoint. A reset of the endpoint frees the private
//! data of its last connection, whose events may still be queued, too. Three rules keep a program
//! from data that were freed:
//!
//! - Each dispatcher has a list of the endpoints whose connection events it reports. What an event
//!   points to is read only if the endpoint of the event is in this list.
//! - Events of a freed endpoint may still be queued. No new endpoint with the same handle gets into
//!   the list before they are gone: before the queue was found empty after the free, or an event
//!   was taken of an endpoint that was created after the free. The provider reports the connection
//!   events of a dispatcher in the order in which they happened.
//! - The end of a connection is its last event. If an endpoint is reset before this event was
//!   taken, the private data of the endpoint's events are not read until it is taken. A provider
//!   whose queue has overflowed may have lost this event. In that case private data are not read
//!   any more.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dat_sys::DAT_EP_HANDLE;

/// The number of an endpoint. No two endpoints of a process have the same number, at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EndpointNumber(u64);

impl EndpointNumber {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        EndpointNumber(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// The endpoints whose connection events a dispatcher reports.
#[derive(Default)]
pub(crate) struct EventOwners {
    /// The number of the latest free of an endpoint whose events may still be queued, or 0.
    latest_free: AtomicU64,
    owners: Mutex<Owners>,
}

#[derive(Default)]
struct Owners {
    by_handle: HashMap<usize, Owner>,
    /// The freed endpoints whose events may still be queued, in the order of their frees: the
    /// number of the free, and the handle.
    freed: VecDeque<(u64, usize)>,
    /// The number of frees of endpoints with events so far. The latest free has this number.
    frees: u64,
}

/// Whose events name a handle.
struct Owner {
    /// The number of the latest free before the endpoint was created.
    after_free: u64,
    /// The endpoint, unless it was freed, is being freed, or could not be freed.
    endpoint: Option<Registered>,
}

/// An endpoint that exists.
struct Registered {
    number: EndpointNumber,
    /// Whether a connection of the endpoint was ever requested or accepted. If not, it has no
    /// events.
    has_events: bool,
    /// Whether a connection was requested or accepted since the endpoint was created or reset. If
    /// so, exactly one event reports the end of this connection.
    is_used: bool,
    /// Whether that event was taken.
    end_taken: bool,
    /// The number of connections before the last reset whose ends were not taken yet.
    old_ends: u64,
}

/// The place of an endpoint in the list of a dispatcher.
pub(crate) struct Registration {
    owners: Arc<EventOwners>,
    handle: usize,
}

impl EventOwners {
    /// Adds an endpoint that was just created. Returns `None` if events of an earlier endpoint with
    /// this handle may be queued.
    pub(crate) fn register(
        self: &Arc<Self>,
        handle: DAT_EP_HANDLE,
        number: EndpointNumber,
    ) -> Option<Registration> {
        let handle = handle.addr();
        let mut owners = self.lock();
        if owners.by_handle.contains_key(&handle) {
            return None;
        }
        let endpoint =
            Registered { number, has_events: false, is_used: false, end_taken: false, old_ends: 0 };
        let owner = Owner { after_free: owners.frees, endpoint: Some(endpoint) };
        owners.by_handle.insert(handle, owner);
        Some(Registration { owners: Arc::clone(self), handle })
    }

    /// Calls `read` with the endpoint of an event that was just taken, or with `None` if the
    /// endpoint is not in the list. During the call the endpoint is not freed.
    pub(crate) fn with_owner<R>(
        &self,
        handle: DAT_EP_HANDLE,
        read: impl FnOnce(Option<EndpointNumber>) -> R,
    ) -> R {
        self.taken(handle, |endpoint| read(endpoint.map(|endpoint| endpoint.number)))
    }

    /// Calls `read` for a connection event that was just taken. The argument of `read` says whether
    /// the private data of the event may be read. During the call the endpoint is neither freed nor
    /// reset. `is_end` says whether the event reports the end of the connection.
    pub(crate) fn with_connection<R>(
        &self,
        handle: DAT_EP_HANDLE,
        is_end: bool,
        read: impl FnOnce(bool) -> R,
    ) -> R {
        self.taken(handle, |endpoint| {
            let Some(endpoint) = endpoint else { return read(false) };
            let is_old = endpoint.old_ends > 0;
            match (is_end, is_old) {
                (true, true) => endpoint.old_ends -= 1,
                (true, false) => endpoint.end_taken = true,
                (false, _) => {}
            }
            read(!is_old)
        })
    }

    /// Calls `read`, under the lock, with the endpoint of an event that was just taken.
    fn taken<R>(
        &self,
        handle: DAT_EP_HANDLE,
        read: impl FnOnce(Option<&mut Registered>) -> R,
    ) -> R {
        let mut owners = self.lock();
        let Some(owner) = owners.by_handle.get_mut(&handle.addr()) else { return read(None) };
        let after_free = owner.after_free;
        let result = read(owner.endpoint.as_mut());
        self.forget_freed(&mut owners, after_free);
        result
    }

    /// The number of the latest free of an endpoint whose events may still be queued, or 0. If the
    /// queue is found empty after this call, the caller passes the number to
    /// [`on_empty`](Self::on_empty).
    #[inline]
    pub(crate) fn latest_free(&self) -> u64 {
        // Acquire: what the freed endpoint has queued is in the queue when this thread looks next.
        self.latest_free.load(Ordering::Acquire)
    }

    /// Takes note that no event of the endpoints with a free of at most this number is queued.
    #[inline]
    pub(crate) fn on_empty(&self, latest_free: u64) {
        if latest_free != 0 {
            self.on_empty_after_free(latest_free);
        }
    }

    #[cold]
    fn on_empty_after_free(&self, latest_free: u64) {
        self.forget_freed(&mut self.lock(), latest_free);
    }

    /// Forgets the endpoints with a free of at most this number, because none of their events is
    /// queued.
    fn forget_freed(&self, owners: &mut Owners, latest_free: u64) {
        while let Some((_, handle)) = owners.freed.pop_front_if(|(free, _)| *free <= latest_free) {
            owners.by_handle.remove(&handle);
            if owners.freed.is_empty() {
                self.latest_free.store(0, Ordering::Relaxed);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Owners> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Registration {
    /// Requests or accepts a connection with `begin`, which returns whether it was successful.
    pub(crate) fn begin<E>(&self, begin: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        self.update(|endpoint| endpoint.has_events = true);
        begin()?;
        self.update(|endpoint| endpoint.is_used = true);
        Ok(())
    }

    /// Resets the endpoint with `reset`. Meanwhile nobody reads the private data of an event.
    pub(crate) fn reset<E>(&self, reset: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        self.update(|endpoint| {
            reset()?;
            if endpoint.is_used && !endpoint.end_taken {
                endpoint.old_ends += 1;
            }
            (endpoint.is_used, endpoint.end_taken) = (false, false);
            Ok(())
        })
    }

    /// Calls `update` under the lock.
    fn update<R>(&self, update: impl FnOnce(&mut Registered) -> R) -> R {
        let mut owners = self.owners.lock();
        let owner = owners.by_handle.get_mut(&self.handle);
        let endpoint = owner.and_then(|owner| owner.endpoint.as_mut());
        update(endpoint.expect("the endpoint is in the list until `end`"))
    }

    /// Removes the endpoint from the list, and frees it with `free`, which returns whether it was
    /// successful.
    pub(crate) fn end(self, free: impl FnOnce() -> bool) -> bool {
        let Registration { owners: shared, handle } = self;
        let endpoint =
            shared.lock().by_handle.get_mut(&handle).and_then(|owner| owner.endpoint.take());
        let is_freed = free();
        if is_freed {
            let mut owners = shared.lock();
            if endpoint.is_some_and(|endpoint| endpoint.has_events) {
                owners.frees += 1;
                let number = owners.frees;
                owners.freed.push_back((number, handle));
                shared.latest_free.store(number, Ordering::Release);
            } else {
                owners.by_handle.remove(&handle);
            }
        }
        is_freed
    }
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    const HANDLE: DAT_EP_HANDLE = ptr::without_provenance_mut(64);

    fn owner(owners: &EventOwners) -> Option<EndpointNumber> {
        owners.with_owner(HANDLE, |owner| owner)
    }

    /// Adds an endpoint.
    fn register(owners: &Arc<EventOwners>, handle: DAT_EP_HANDLE) -> Option<Registration> {
        owners.register(handle, EndpointNumber::new())
    }

    /// Adds an endpoint that has requested a connection.
    fn connecting(owners: &Arc<EventOwners>, handle: DAT_EP_HANDLE) -> Registration {
        let endpoint = register(owners, handle).expect("a new handle");
        connect(&endpoint);
        endpoint
    }

    fn connect(endpoint: &Registration) {
        endpoint.begin(|| Ok::<(), ()>(())).expect("the attempt begins");
    }

    fn reset(endpoint: &Registration) {
        endpoint.reset(|| Ok::<(), ()>(())).expect("the endpoint is reset");
    }

    /// Takes an event, and returns whether its private data may be read.
    fn take(owners: &EventOwners, is_end: bool) -> bool {
        owners.with_connection(HANDLE, is_end, |is_readable| is_readable)
    }

    #[test]
    fn an_event_belongs_to_its_endpoint_until_the_free_begins() {
        let owners = Arc::new(EventOwners::default());
        assert_eq!(owner(&owners), None);
        let endpoint = EndpointNumber::new();
        let registration = owners.register(HANDLE, endpoint).expect("a new handle");
        assert_eq!(owner(&owners), Some(endpoint));
        registration.end(|| {
            assert_eq!(owner(&owners), None);
            true
        });
        assert_eq!(owner(&owners), None);
    }

    #[test]
    fn a_handle_is_used_again_when_no_event_of_it_is_queued() {
        let owners = Arc::new(EventOwners::default());
        let register = || register(&owners, HANDLE);
        let first = connecting(&owners, HANDLE);
        let before_the_free = owners.latest_free();
        assert_eq!(before_the_free, 0, "a look at the queue costs nothing without a free");
        first.end(|| {
            assert!(register().is_none(), "the provider has freed the handle, but still queues");
            true
        });
        owners.on_empty(before_the_free);
        assert!(register().is_none(), "events may have been queued after this look");
        owners.on_empty(owners.latest_free());
        assert_eq!(owners.latest_free(), 0);
        assert!(register().is_some());
    }

    #[test]
    fn a_handle_that_was_not_freed_is_never_used_again() {
        let owners = Arc::new(EventOwners::default());
        let first = owners.register(HANDLE, EndpointNumber::new()).expect("a new handle");
        first.end(|| false);
        owners.on_empty(owners.latest_free());
        assert!(owners.register(HANDLE, EndpointNumber::new()).is_none());
    }

    #[test]
    fn a_later_free_stays_noted() {
        let owners = Arc::new(EventOwners::default());
        let other: DAT_EP_HANDLE = ptr::without_provenance_mut(128);
        connecting(&owners, HANDLE).end(|| true);
        let after_the_first = owners.latest_free();
        connecting(&owners, other).end(|| true);
        owners.on_empty(after_the_first);
        assert!(register(&owners, HANDLE).is_some());
        assert!(register(&owners, other).is_none());
        assert_ne!(owners.latest_free(), 0);
    }

    #[test]
    fn the_handle_of_an_endpoint_without_events_is_used_again_at_once() {
        let owners = Arc::new(EventOwners::default());
        register(&owners, HANDLE).expect("a new handle").end(|| true);
        assert_eq!(owners.latest_free(), 0);
        // A provider might report an event of an attempt that fails at once.
        let failed = register(&owners, HANDLE).expect("a handle without events");
        failed.begin(|| Err(())).expect_err("the attempt fails");
        failed.end(|| true);
        assert!(register(&owners, HANDLE).is_none());
    }

    #[test]
    fn an_event_of_a_later_endpoint_shows_that_earlier_events_were_taken() {
        let owners = Arc::new(EventOwners::default());
        let [before, after, other]: [DAT_EP_HANDLE; 3] =
            [128, 192, 256].map(ptr::without_provenance_mut);
        let take = |handle| owners.with_connection(handle, false, |_| ());
        let _before = connecting(&owners, before);
        connecting(&owners, HANDLE).end(|| true);
        let _after = connecting(&owners, after);
        connecting(&owners, other).end(|| true);
        take(before);
        take(HANDLE);
        assert!(register(&owners, HANDLE).is_none());
        take(after);
        assert!(register(&owners, other).is_none(), "it was freed later");
        // The later endpoint may be freed as well.
        connecting(&owners, HANDLE).end(|| true);
        take(HANDLE);
        assert!(register(&owners, other).is_some());
        assert!(register(&owners, HANDLE).is_none(), "it may have more events");
    }

    #[test]
    fn private_data_are_not_read_after_a_reset_until_the_end_was_taken() {
        let owners = Arc::new(EventOwners::default());
        let endpoint = connecting(&owners, HANDLE);
        assert!(take(&owners, false));
        reset(&endpoint);
        connect(&endpoint);
        reset(&endpoint);
        connect(&endpoint);
        // Two connections have ended.
        assert!(!take(&owners, true));
        assert!(!take(&owners, false));
        assert!(!take(&owners, true));
        // This event belongs to the third connection, which ends before the reset.
        assert!(take(&owners, false));
        assert!(take(&owners, true));
        reset(&endpoint);
        connect(&endpoint);
        assert!(take(&owners, true));
    }

    #[test]
    fn a_reset_without_effect_makes_no_event_old() {
        let owners = Arc::new(EventOwners::default());
        let endpoint = register(&owners, HANDLE).expect("a new handle");
        reset(&endpoint);
        endpoint.begin(|| Err(())).expect_err("the attempt fails");
        reset(&endpoint);
        connect(&endpoint);
        let refused = endpoint.reset(|| {
            assert!(owners.owners.try_lock().is_err(), "nobody reads an event meanwhile");
            Err(())
        });
        refused.expect_err("the endpoint waits for its peer");
        assert!(take(&owners, false));
        assert!(take(&owners, true));
        reset(&endpoint);
        reset(&endpoint);
        connect(&endpoint);
        assert!(take(&owners, true));
    }
}
