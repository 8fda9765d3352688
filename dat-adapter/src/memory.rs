//! Protection domains, memory regions, memory windows.

use adapter::Engine;
use dat_core::provider::{BindState, Region, Window};

/// A protection domain.
pub struct Pd(pub(crate) rnic::Pd);

/// A memory region.
pub struct Mr<E: Engine>(pub(crate) adapter::Mr<E>);

/// A memory window.
pub struct Mw<E: Engine>(pub(crate) adapter::Mw<E>);

impl<E: Engine> Region for Mr<E> {
    fn lkey(&self) -> u32 {
        self.0.region().map_or(0, rnic::Mr::lkey)
    }

    fn rkey(&self) -> u32 {
        self.0.region().map_or(0, rnic::Mr::rkey)
    }
}

impl<E: Engine> Window for Mw<E> {
    fn state(&self, rkey: u32) -> BindState {
        self.0.window().map_or(BindState::Over, |window| window.state(rkey))
    }
}
