//! The object behind an open interface adapter (IA).

use std::sync::Arc;

use dat_core::provider::Attrs;
use rnic::Keys;

use crate::progress::MakeProgress;
use crate::reactor::Reactor;

/// An open interface adapter: the reactor, which owns the engine, and the memory keys.
pub struct Adapter<E: MakeProgress> {
    pub(crate) attrs: Attrs,
    pub(crate) keys: Arc<Keys>,
    pub(crate) reactor: Arc<Reactor<E>>,
}

impl<E: MakeProgress> Drop for Adapter<E> {
    fn drop(&mut self) {
        self.reactor.stop_progress_thread();
    }
}
