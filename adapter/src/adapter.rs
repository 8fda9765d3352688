//! The object behind an open interface adapter (IA).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use dat_core::provider::Attrs;
use rnic::Keys;

use crate::engines::Engines;
use crate::progress::MakeProgress;

/// An open interface adapter: its engines, and the memory keys.
pub struct Adapter<E: MakeProgress> {
    pub(crate) attrs: Attrs,
    pub(crate) keys: Arc<Keys>,
    pub(crate) engines: Arc<Engines<E>>,
    pub(crate) unused: UnusedEndpoints,
}

/// The number of an adapter's endpoints for connections that have no connection and are in no
/// attempt to connect. All engines of the adapter share it.
#[derive(Clone, Default)]
pub struct UnusedEndpoints(Arc<AtomicUsize>);

impl UnusedEndpoints {
    /// The number of endpoints at this moment.
    pub fn count(&self) -> usize {
        self.0.load(Relaxed)
    }

    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    pub(crate) fn remove(&self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl<E: MakeProgress> Drop for Adapter<E> {
    fn drop(&mut self) {
        self.engines.iter().for_each(|reactor| reactor.stop_progress_thread());
    }
}
