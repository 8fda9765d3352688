//! Tells which endpoint a connection event belongs to.
//!
//! A connection event names its endpoint by a handle. It points to data that the provider frees
//! together with the endpoint: private data, and the address handle of a peer for datagrams. The
//! event may still be in the queue of a dispatcher after the endpoint was freed, and the provider
//! may then use the handle again, for another endpoint. Two rules keep a program from the data of a
//! freed endpoint:
//!
//! - Each dispatcher has a list of the endpoints whose connection events it reports. What an event
//!   points to is read only if the endpoint of the event is in this list.
//! - No endpoint gets into the list with a handle of which events of a freed endpoint may be
//!   queued. They cannot be queued any more when the queue was found empty after the free.

use std::collections::HashMap;
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
    /// How many endpoints were freed. This is the number of the latest free.
    frees: u64,
}

/// Whose events name a handle.
#[derive(Clone, Copy)]
enum Owner {
    Endpoint(EndpointNumber),
    /// The endpoint is being freed, or could not be freed.
    BeingFreed,
    /// The endpoint was freed, with the number of this free.
    Freed(u64),
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
        endpoint: EndpointNumber,
    ) -> Option<Registration> {
        let handle = handle.addr();
        let mut owners = self.lock();
        if owners.by_handle.contains_key(&handle) {
            return None;
        }
        owners.by_handle.insert(handle, Owner::Endpoint(endpoint));
        Some(Registration { owners: Arc::clone(self), handle })
    }

    /// Calls `read` with the endpoint of an event, or with `None` if the endpoint is not in the
    /// list. During the call the endpoint is not freed.
    pub(crate) fn with_owner<R>(
        &self,
        handle: DAT_EP_HANDLE,
        read: impl FnOnce(Option<EndpointNumber>) -> R,
    ) -> R {
        let owners = self.lock();
        match owners.by_handle.get(&handle.addr()) {
            Some(Owner::Endpoint(endpoint)) => read(Some(*endpoint)),
            _ => read(None),
        }
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
            self.forget_freed(latest_free);
        }
    }

    #[cold]
    fn forget_freed(&self, latest_free: u64) {
        let mut owners = self.lock();
        owners.by_handle.retain(|_, owner| !matches!(owner, Owner::Freed(n) if *n <= latest_free));
        if owners.frees <= latest_free {
            self.latest_free.store(0, Ordering::Relaxed);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Owners> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Registration {
    /// Removes the endpoint from the list, and frees it with `free`, which returns whether it was
    /// successful.
    pub(crate) fn end(self, free: impl FnOnce() -> bool) -> bool {
        let Registration { owners: shared, handle } = self;
        shared.lock().by_handle.insert(handle, Owner::BeingFreed);
        let is_freed = free();
        if is_freed {
            let mut owners = shared.lock();
            owners.frees += 1;
            let number = owners.frees;
            owners.by_handle.insert(handle, Owner::Freed(number));
            shared.latest_free.store(number, Ordering::Release);
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
        let register = || owners.register(HANDLE, EndpointNumber::new());
        let first = register().expect("a new handle");
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
        let free = |handle| {
            let endpoint = owners.register(handle, EndpointNumber::new()).expect("a new handle");
            endpoint.end(|| true);
        };
        free(HANDLE);
        let after_the_first = owners.latest_free();
        free(other);
        owners.on_empty(after_the_first);
        assert!(owners.register(HANDLE, EndpointNumber::new()).is_some());
        assert!(owners.register(other, EndpointNumber::new()).is_none());
        assert_ne!(owners.latest_free(), 0);
    }
}
