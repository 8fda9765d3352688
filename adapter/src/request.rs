//! Connection requests.

use std::sync::Arc;

use crate::progress::MakeProgress;
use crate::reactor::Reactor;

/// A connection request that the consumer has not answered.
pub struct Request<E: MakeProgress> {
    pub(crate) call: E::RequestId,
    pub(crate) answered: bool,
    reactor: Arc<Reactor<E>>,
}

impl<E: MakeProgress> Request<E> {
    pub(crate) fn new(reactor: Arc<Reactor<E>>, call: E::RequestId) -> Self {
        Request { call, answered: false, reactor }
    }
}

impl<E: MakeProgress> Drop for Request<E> {
    /// Refuses a request that was not answered. The drop may happen inside an upcall, where this
    /// thread holds the engine lock. Then the thread finds the deferred refusal before it releases
    /// the lock.
    fn drop(&mut self) {
        if !self.answered {
            self.reactor.shared.refuse(self.call);
            self.reactor.engine.run_or_delegate();
        }
    }
}
