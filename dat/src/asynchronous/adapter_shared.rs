//! The state that the futures of an adapter share with the task that takes the events.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker, ready};

use futures_core::Stream;

use super::connections::Connections;
use super::error::OperationError;
use super::operation_slots::{Next, OperationSlots};
use super::stream::EventStream;
use crate::{ConnectionRequest, EndpointId, Event};

/// What is waited for, and what has happened.
pub(super) struct AdapterShared {
    state: Mutex<State>,
    /// Tells the driver that the last user of the state is gone.
    end: Arc<End>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) slots: OperationSlots,
    pub(super) connections: HashMap<EndpointId, Connections>,
    /// The requests for each listener, by its connection qualifier.
    pub(super) requests: HashMap<u64, ArrivedRequests>,
    /// The reason for which the driver has stopped.
    pub(super) stopped: Option<String>,
}

/// The requests that a listener has not returned yet.
#[derive(Default)]
pub(super) struct ArrivedRequests {
    pub(super) arrived: VecDeque<ConnectionRequest>,
    pub(super) waker: Option<Waker>,
}

impl AdapterShared {
    pub(super) fn new() -> Self {
        AdapterShared { state: Mutex::default(), end: Arc::default() }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands an event over to the future that waits for it.
    fn dispatch(&self, event: Event) {
        let mut wakers = Vec::new();
        let mut next = None;
        let mut unclaimed = None;
        {
            let mut state = self.lock();
            match event {
                Event::Completion(completion) => next = state.slots.complete(completion),
                Event::Connection { endpoint, event } => {
                    // An event of an endpoint that was dropped has no entry.
                    if let Some(connections) = state.connections.get_mut(&endpoint) {
                        wakers = connections.dispatch(event);
                    }
                }
                Event::ConnectionRequest(request) => {
                    match state.requests.get_mut(&request.qualifier()) {
                        Some(requests) => {
                            requests.arrived.push_back(request);
                            wakers.extend(requests.waker.take());
                        }
                        // The listener was dropped. Dropping the request rejects it.
                        None => unclaimed = Some(request),
                    }
                }
                _ => {}
            }
        }
        // Wakers and buffers run code of others, which may need the lock.
        drop(unclaimed);
        next.into_iter().for_each(Next::act);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Ends all futures, because no more events can be taken.
    fn stop(&self, why: String) {
        let mut wakers = Vec::new();
        let next = {
            let mut state = self.lock();
            let next = state.slots.end(|_| true, &OperationError::Stopped(why.clone()));
            for connections in state.connections.values_mut() {
                wakers.append(&mut connections.take_wakers());
            }
            for requests in state.requests.values_mut() {
                wakers.extend(requests.waker.take());
            }
            state.stopped = Some(why);
            next
        };
        next.into_iter().for_each(Next::act);
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Drop for AdapterShared {
    fn drop(&mut self) {
        self.end.reach();
    }
}

/// The end of the driver.
#[derive(Default)]
struct End(Mutex<(bool, Option<Waker>)>);

impl End {
    fn reach(&self) {
        let waker = {
            let mut end = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            end.0 = true;
            end.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn poll(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut end = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if end.0 {
            return Poll::Ready(());
        }
        end.1 = Some(context.waker().clone());
        Poll::Pending
    }
}

/// The task that takes the events of an adapter. It ends when nothing uses the adapter any more, or
/// when no more events can be taken.
pub(super) struct Driver {
    events: EventStream,
    shared: Weak<AdapterShared>,
    end: Arc<End>,
}

/// The number of events after which the driver lets other tasks run.
const MAX_EVENTS_PER_POLL: usize = 64;

impl Driver {
    pub(super) fn new(events: EventStream, shared: &Arc<AdapterShared>) -> Self {
        Driver { events, shared: Arc::downgrade(shared), end: shared.end.clone() }
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        for _ in 0..MAX_EVENTS_PER_POLL {
            if self.end.poll(context).is_ready() {
                return Poll::Ready(());
            }
            let event = ready!(Pin::new(&mut self.events).poll_next(context));
            let Some(shared) = self.shared.upgrade() else { return Poll::Ready(()) };
            match event {
                Some(Ok(event)) => shared.dispatch(event),
                Some(Err(error)) => {
                    shared.stop(error.to_string());
                    return Poll::Ready(());
                }
                None => return Poll::Ready(()),
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Drop for Driver {
    /// Ends all futures, because a runtime that shuts down drops its tasks, and the driver with
    /// them.
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade()
            && shared.lock().stopped.is_none()
        {
            shared.stop("the runtime has dropped the task that takes them".to_owned());
        }
    }
}
