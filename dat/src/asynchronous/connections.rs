//! The connections of an endpoint: which of them an event is about, and which tasks wait for it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Poll, Waker};

use crate::ConnectionEvent;

/// The current connection of an endpoint, and earlier ones whose end is still waited for.
///
/// The provider may let a program reset an endpoint before the end of its connection has been taken
/// as an event. Therefore each connection has a number, and the events of the endpoint belong to
/// the oldest connection whose end was not taken yet.
#[derive(Default)]
pub(super) struct Connections {
    /// The number of the current connection.
    current: u64,
    /// The number of the connection that the next event is about.
    next: u64,
    /// Whether the current connection was requested or accepted. If so, an event reports its end.
    begun: bool,
    /// The first event of the current connection.
    outcome: Option<ConnectionEvent>,
    /// The event that has ended the current connection.
    ended: Option<ConnectionEvent>,
    /// The task that waits for the outcome.
    connecting: Option<Waker>,
    closings: Vec<Closing>,
}

/// The end of a connection, for which a future waits.
struct Closing {
    /// Unique in the process. The provider may give the handle of a freed endpoint to a new
    /// endpoint, while futures of the old one still exist. So the handle is not used as an id.
    id: u64,
    connection: u64,
    end: Option<ConnectionEvent>,
    waker: Option<Waker>,
}

impl Connections {
    /// Records that the current connection was requested or accepted.
    pub(super) fn begin(&mut self) {
        self.begun = true;
    }

    /// Records that the endpoint was prepared for another connection.
    pub(super) fn reset(&mut self) {
        if self.begun {
            self.current += 1;
            if self.ended.is_some() {
                self.next = self.current;
            }
            (self.begun, self.outcome, self.ended) = (false, None, None);
        }
    }

    /// Records an event of the endpoint. The caller wakes the tasks, without a lock.
    pub(super) fn dispatch(&mut self, event: ConnectionEvent) -> Vec<Waker> {
        let is_end = !matches!(event, ConnectionEvent::Established { .. });
        let mut wakers = Vec::new();
        if is_end {
            for closing in self.closings.iter_mut().filter(|of| of.connection == self.next) {
                closing.end = Some(event.clone());
                wakers.extend(closing.waker.take());
            }
        }
        if self.next < self.current {
            self.next += u64::from(is_end);
            return wakers;
        }
        if is_end {
            self.ended = Some(event.clone());
        }
        self.outcome.get_or_insert(event);
        wakers.extend(self.connecting.take());
        wakers
    }

    /// Returns the first event of the current connection. If there is none yet, exchanges the given
    /// waker for the stored one. The caller drops the old waker after it has released the lock.
    pub(super) fn poll_outcome(&mut self, waker: &mut Option<Waker>) -> Poll<ConnectionEvent> {
        match &self.outcome {
            Some(outcome) => Poll::Ready(outcome.clone()),
            None => {
                std::mem::swap(&mut self.connecting, waker);
                Poll::Pending
            }
        }
    }

    /// Adds a future that waits for the end of the current connection, and returns its id.
    pub(super) fn add_closing(&mut self) -> u64 {
        static LAST_ID: AtomicU64 = AtomicU64::new(0);
        let id = LAST_ID.fetch_add(1, Ordering::Relaxed);
        let (connection, end) = (self.current, self.ended.clone());
        self.closings.push(Closing { id, connection, end, waker: None });
        id
    }

    /// Returns the end of the connection that a future waits for. If the connection has not ended
    /// yet, stores the waker as [`poll_outcome`](Self::poll_outcome) does. Returns `None` if the
    /// future belongs to another endpoint, which was dropped.
    pub(super) fn poll_closing(
        &mut self,
        id: u64,
        waker: &mut Option<Waker>,
    ) -> Poll<Option<ConnectionEvent>> {
        let Some(closing) = self.closings.iter_mut().find(|closing| closing.id == id) else {
            return Poll::Ready(None);
        };
        match &closing.end {
            Some(end) => Poll::Ready(Some(end.clone())),
            None => {
                std::mem::swap(&mut closing.waker, waker);
                Poll::Pending
            }
        }
    }

    /// Removes a future that waits for the end of a connection. The caller drops the waker without
    /// a lock.
    pub(super) fn remove_closing(&mut self, id: u64) -> Option<Waker> {
        let at = self.closings.iter().position(|closing| closing.id == id)?;
        self.closings.swap_remove(at).waker
    }

    /// Takes the wakers of all waiting tasks.
    pub(super) fn take_wakers(&mut self) -> Vec<Waker> {
        let closings = self.closings.iter_mut().filter_map(|closing| closing.waker.take());
        closings.chain(self.connecting.take()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::task::Wake;

    use super::*;

    struct Nobody;

    impl Wake for Nobody {
        fn wake(self: Arc<Self>) {}
    }

    fn established() -> ConnectionEvent {
        ConnectionEvent::Established { private_data: Vec::new() }
    }

    #[test]
    fn a_late_end_of_the_old_connection_does_not_end_the_next_one() {
        let mut connections = Connections::default();
        connections.begin();
        connections.dispatch(established());
        let old = connections.add_closing();
        let mut waker = Some(Waker::from(Arc::new(Nobody)));
        assert!(connections.poll_closing(old, &mut waker).is_pending());
        // The end of the first connection is still in the queue of events.
        connections.reset();
        connections.begin();
        let new = connections.add_closing();
        assert_eq!(connections.dispatch(ConnectionEvent::Broken).len(), 1, "the old end is told");
        assert_eq!(
            connections.poll_closing(old, &mut None),
            Poll::Ready(Some(ConnectionEvent::Broken))
        );
        assert!(connections.poll_outcome(&mut None).is_pending(), "the next one goes on");
        assert!(connections.poll_closing(new, &mut None).is_pending());
        connections.dispatch(established());
        assert_eq!(connections.poll_outcome(&mut None), Poll::Ready(established()));
        connections.dispatch(ConnectionEvent::Disconnected);
        assert_eq!(
            connections.poll_closing(new, &mut None),
            Poll::Ready(Some(ConnectionEvent::Disconnected))
        );
    }

    #[test]
    fn events_of_several_old_connections_are_told_apart() {
        let mut connections = Connections::default();
        let mut closings = Vec::new();
        for _ in 0..3 {
            connections.begin();
            closings.push(connections.add_closing());
            connections.reset();
        }
        let ends =
            [ConnectionEvent::TimedOut, ConnectionEvent::Broken, ConnectionEvent::Unreachable];
        for end in ends.clone() {
            connections.dispatch(established());
            connections.dispatch(end);
        }
        for (closing, end) in closings.into_iter().zip(ends) {
            assert_eq!(connections.poll_closing(closing, &mut None), Poll::Ready(Some(end)));
        }
        assert!(connections.poll_outcome(&mut None).is_pending());
    }

    #[test]
    fn an_end_that_was_taken_before_the_reset_is_not_waited_for() {
        let mut connections = Connections::default();
        connections.begin();
        connections.dispatch(ConnectionEvent::NonPeerRejected);
        connections.reset();
        connections.reset();
        connections.begin();
        connections.dispatch(established());
        assert_eq!(connections.poll_outcome(&mut None), Poll::Ready(established()));
    }

    #[test]
    fn a_future_of_a_dropped_endpoint_does_not_belong_to_the_next_one() {
        let old = Connections::default().add_closing();
        // The next endpoint has the same handle.
        let mut next = Connections::default();
        let own = next.add_closing();
        assert_eq!(next.poll_closing(old, &mut None), Poll::Ready(None));
        assert!(next.remove_closing(old).is_none());
        assert!(next.poll_closing(own, &mut None).is_pending());
    }

    #[test]
    fn a_dropped_future_leaves_no_waker() {
        let mut connections = Connections::default();
        let task = Arc::new(Nobody);
        for _ in 0..3 {
            let id = connections.add_closing();
            let mut waker = Some(Waker::from(task.clone()));
            assert!(connections.poll_closing(id, &mut waker).is_pending());
            drop(connections.remove_closing(id));
        }
        assert_eq!(Arc::strong_count(&task), 1);
        assert!(connections.closings.is_empty());
    }
}
