//! Checks whether a system call has stopped at memory that is no longer mapped.
//!
//! There are two reasons why a call moves fewer octets than requested:
//!
//! - The socket is empty or full. The poller reports when that changes.
//! - The call has met memory that the kernel cannot access. Only the next call reports that
//!   (`EFAULT`); the poller does not.
//!
//! A second call after each short transfer would be expensive. So a timer makes the second call, at
//! most once per [`FAULT_CHECK_DELAY`].

use std::time::{Duration, Instant};

use super::Link;
use crate::linger::LingeringSockets;
use crate::resources::EngineResources;

/// The time from a short transfer to the check.
const FAULT_CHECK_DELAY: Duration = Duration::from_millis(100);

/// The state of the check: whether and when it is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FaultCheck {
    None,
    /// A check is needed, but the timer is not set yet.
    Requested,
    /// The timer is set to this time.
    At(Instant),
}

impl FaultCheck {
    /// Requests a check after a short transfer.
    #[inline]
    pub(super) fn request(&mut self) {
        if *self == FaultCheck::None {
            *self = FaultCheck::Requested;
        }
    }

    pub(super) fn deadline(self) -> Option<Instant> {
        match self {
            FaultCheck::At(at) => Some(at),
            FaultCheck::None | FaultCheck::Requested => None,
        }
    }

    pub(super) fn is_due(self, now: Instant) -> bool {
        self.deadline().is_some_and(|at| at <= now)
    }
}

impl Link {
    /// Sets the timer for the check.
    #[cold]
    pub(super) fn schedule_fault_check(&mut self, resources: &mut EngineResources) {
        if let Some(conn) = self.established_mut() {
            conn.fault_check = FaultCheck::At(Instant::now() + FAULT_CHECK_DELAY);
        }
        self.renew_timer(resources);
    }

    /// Repeats the system calls. If a call again moves fewer octets than requested, another check
    /// is requested.
    pub(super) fn run_fault_check(
        &mut self,
        resources: &mut EngineResources,
        lingering: &mut LingeringSockets,
    ) {
        if let Some(conn) = self.established_mut() {
            conn.fault_check = FaultCheck::None;
        }
        self.renew_timer(resources);
        self.writable(resources, lingering);
        self.receive_until(resources, lingering, true);
    }
}
