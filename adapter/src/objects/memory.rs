//! Memory regions and memory windows.

use std::sync::Arc;

use crate::engine::Engine;
use crate::engines::Engines;

/// A memory region. After its drop, no engine accesses the memory for this region.
pub struct Mr<E: Engine> {
    /// The region. `None` only inside of `drop`.
    pub(super) mr: Option<rnic::Mr>,
    pub(super) engines: Arc<Engines<E>>,
}

/// A memory window.
pub struct Mw<E: Engine> {
    /// The window. `None` only inside of `drop`.
    pub(super) mw: Option<rnic::Mw>,
    pub(super) engines: Arc<Engines<E>>,
}

impl<E: Engine> Mr<E> {
    /// The region. It is `None` only while the object is being dropped.
    pub fn region(&self) -> Option<&rnic::Mr> {
        self.mr.as_ref()
    }
}

impl<E: Engine> Drop for Mr<E> {
    fn drop(&mut self) {
        self.engines.send_posted();
        self.mr = None;
        self.engines.finish_accesses();
    }
}

impl<E: Engine> Mw<E> {
    /// The window. It is `None` only while the object is being dropped.
    pub fn window(&self) -> Option<&rnic::Mw> {
        self.mw.as_ref()
    }
}

impl<E: Engine> Drop for Mw<E> {
    fn drop(&mut self) {
        self.mw = None;
        self.engines.finish_accesses();
    }
}
