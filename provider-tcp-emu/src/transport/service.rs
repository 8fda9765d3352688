//! Service points and connection requests.

use std::sync::Arc;

use crate::call::CallId;
use crate::drive::Drive;
use crate::engine::Engine;

/// Service point.
pub struct Listener {
    pub(super) index: usize,
    pub(super) port: u16,
    pub(super) drive: Arc<Drive>,
}

/// A connection request nobody has answered.
pub struct Request {
    pub(super) call: CallId,
    pub(super) answered: bool,
    pub(super) drive: Arc<Drive>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut engine = self.drive.engine.lock();
        let Engine { kit, calls, .. } = &mut *engine;
        calls.close(kit, self.index);
    }
}

impl Request {
    pub(crate) fn new(drive: Arc<Drive>, call: CallId) -> Self {
        Request { call, answered: false, drive }
    }
}

impl Drop for Request {
    /// May happen inside an upcall, where this very thread has the lease: then it looks again before it lets go.
    fn drop(&mut self) {
        if !self.answered {
            self.drive.board.refuse(self.call);
            self.drive.engine.serve();
        }
    }
}
