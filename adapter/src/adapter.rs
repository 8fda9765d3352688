//! The object behind an open interface adapter (IA).

use std::sync::Arc;

use dat_core::provider::Attrs;
use rnic::Keys;

use crate::engines::Engines;
use crate::progress::MakeProgress;

/// An open interface adapter: its engines, and the memory keys.
pub struct Adapter<E: MakeProgress> {
    pub(crate) attrs: Attrs,
    pub(crate) keys: Arc<Keys>,
    pub(crate) engines: Arc<Engines<E>>,
}

impl<E: MakeProgress> Drop for Adapter<E> {
    fn drop(&mut self) {
        self.engines.iter().for_each(|reactor| reactor.stop_progress_thread());
    }
}
