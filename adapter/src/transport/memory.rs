//! Protection domains, memory regions, memory windows.

use std::sync::Arc;

use dat_core::provider::{BindState, Region, Window};

use crate::engine::Engine;
use crate::engines::Engines;

/// A protection domain.
pub struct Pd(pub(super) rnic::Pd);

/// A memory region.
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

impl<E: Engine> Region for Mr<E> {
    fn lkey(&self) -> u32 {
        self.mr.as_ref().map_or(0, rnic::Mr::lkey)
    }

    fn rkey(&self) -> u32 {
        self.mr.as_ref().map_or(0, rnic::Mr::rkey)
    }
}

impl<E: Engine> Drop for Mr<E> {
    fn drop(&mut self) {
        self.engines.send_posted();
        self.mr = None;
        self.engines.finish_accesses();
    }
}

impl<E: Engine> Window for Mw<E> {
    fn state(&self, rkey: u32) -> BindState {
        self.mw.as_ref().map_or(BindState::Over, |mw| mw.state(rkey))
    }
}

impl<E: Engine> Drop for Mw<E> {
    fn drop(&mut self) {
        self.mw = None;
        self.engines.finish_accesses();
    }
}
