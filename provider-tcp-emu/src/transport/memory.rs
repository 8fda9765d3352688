//! Protection domains, registered memory, memory windows.

use std::sync::Arc;

use dat_core::provider::{BindState, Region, Window};

use crate::drive::Drive;
use crate::map;

/// Protection domain.
pub struct Pd(pub(super) rnic::Pd);

/// Registered memory.
pub struct Mr {
    /// Emptied by `drop`.
    pub(super) mr: Option<rnic::Mr>,
    pub(super) drive: Arc<Drive>,
}

/// Memory window.
pub struct Mw {
    /// Emptied by `drop`.
    pub(super) mw: Option<rnic::Mw>,
    pub(super) drive: Arc<Drive>,
}

impl Region for Mr {
    fn lkey(&self) -> u32 {
        self.mr.as_ref().map_or(0, rnic::Mr::lkey)
    }

    fn rkey(&self) -> u32 {
        self.mr.as_ref().map_or(0, rnic::Mr::rkey)
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        let _lease = self.drive.engine.lock();
        self.mr = None;
    }
}

impl Window for Mw {
    fn state(&self, rkey: u32) -> BindState {
        self.mw.as_ref().map_or(BindState::Over, |mw| map::bind_state(mw.state(rkey)))
    }
}

impl Drop for Mw {
    fn drop(&mut self) {
        let _lease = self.drive.engine.lock();
        self.mw = None;
    }
}
