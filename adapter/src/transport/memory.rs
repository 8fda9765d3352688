//! Protection domains, memory regions, memory windows.

use std::sync::Arc;

use dat_core::provider::{BindState, Region, Window};

use crate::engine::Engine;
use crate::reactor::Reactor;

/// A protection domain.
pub struct Pd(pub(super) rnic::Pd);

/// A memory region.
pub struct Mr<E: Engine> {
    /// The region. `None` only inside of `drop`.
    pub(super) mr: Option<rnic::Mr>,
    pub(super) reactor: Arc<Reactor<E>>,
}

/// A memory window.
pub struct Mw<E: Engine> {
    /// The window. `None` only inside of `drop`.
    pub(super) mw: Option<rnic::Mw>,
    pub(super) reactor: Arc<Reactor<E>>,
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
        let _lock = self.reactor.engine.lock();
        self.mr = None;
    }
}

impl<E: Engine> Window for Mw<E> {
    fn state(&self, rkey: u32) -> BindState {
        self.mw.as_ref().map_or(BindState::Over, |mw| mw.state(rkey))
    }
}

impl<E: Engine> Drop for Mw<E> {
    fn drop(&mut self) {
        let _lock = self.reactor.engine.lock();
        self.mw = None;
    }
}
