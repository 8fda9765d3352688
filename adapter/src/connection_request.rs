//! Connection requests, and the backlog of a listener.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::progress::MakeProgress;
use crate::reactor::Reactor;

/// A connection request that the consumer has not answered.
pub struct ConnectionRequest<E: MakeProgress> {
    /// The engine's data about the request. `None` once the consumer has answered. The data are
    /// boxed to keep events small.
    engine_part: Option<Box<E::RequestData>>,
    /// One place in the backlog of the listener. `None` if the engine counts requests itself.
    #[expect(dead_code, reason = "the place is held until the consumer answers")]
    place: Option<Arc<()>>,
    reactor: Arc<Reactor<E>>,
}

impl<E: MakeProgress> ConnectionRequest<E> {
    /// Creates a request. If the backlog has no free place, returns the engine's data as the error.
    pub(crate) fn new(
        reactor: Arc<Reactor<E>>,
        backlog: Option<&Backlog>,
        request: E::RequestData,
    ) -> std::result::Result<Self, E::RequestData> {
        let place = match backlog.map(Backlog::place) {
            Some(None) => return Err(request),
            place => place.flatten(),
        };
        Ok(ConnectionRequest { engine_part: Some(Box::new(request)), place, reactor })
    }

    /// Returns the engine's data about a request that the consumer answers, and the reactor of
    /// that engine.
    pub(crate) fn answer(mut self) -> Result<(E::RequestData, Arc<Reactor<E>>)> {
        let request = self.engine_part.take().ok_or(Error::InvalidState)?;
        Ok((*request, Arc::clone(&self.reactor)))
    }
}

impl<E: MakeProgress> Drop for ConnectionRequest<E> {
    /// Refuses a request that was not answered. The drop may happen while an event is reported.
    /// Then this thread holds the engine lock, and finds the deferred refusal before it releases
    /// the lock.
    fn drop(&mut self) {
        if let Some(request) = self.engine_part.take() {
            self.reactor.shared.refuse(*request);
            self.reactor.engine.run_or_delegate();
        }
    }
}

/// The backlog of a listener: how many requests may wait for the consumer's answer.
pub struct Backlog {
    most: usize,
    waiting: Arc<()>,
}

impl Backlog {
    /// Creates the backlog of a listener with this many places.
    pub fn new(most: usize) -> Self {
        Backlog { most, waiting: Arc::default() }
    }

    /// Takes a place, or returns `None` if all places are taken.
    fn place(&self) -> Option<Arc<()>> {
        let taken = Arc::strong_count(&self.waiting) - 1;
        (taken < self.most).then(|| Arc::clone(&self.waiting))
    }
}

#[cfg(test)]
mod tests {
    use super::Backlog;

    #[test]
    fn a_backlog_has_so_many_places() {
        let backlog = Backlog::new(2);
        let (first, second) = (backlog.place(), backlog.place());
        assert!(first.is_some() && second.is_some() && backlog.place().is_none());
        drop(first);
        assert!(backlog.place().is_some());
    }
}
