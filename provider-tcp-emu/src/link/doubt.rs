//! Whether the kernel has stopped at memory that is not there any more.
//!
//! A system call that moves fewer octets than it was asked to has met the end of what the socket has, or has
//! room for; the poller tells when there is more. Or it has met memory that it cannot reach, and of that
//! nobody tells: only the next call does (`EFAULT`). A call that would only ask for this would be one more
//! for each such transfer, so a timer asks, seldom.

use std::time::{Duration, Instant};

use super::Link;
use crate::engine::Kit;
use crate::linger::Lingerers;

/// From a transfer that ends early to the look that tells why.
const DELAY: Duration = Duration::from_millis(100);

/// Whether it is to be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doubt {
    None,
    /// It is, and nobody has set the timer.
    New,
    /// Then.
    AskAt(Instant),
}

impl Doubt {
    /// A transfer has ended early.
    #[inline]
    pub(super) fn arise(&mut self) {
        if *self == Doubt::None {
            *self = Doubt::New;
        }
    }

    pub(super) fn deadline(self) -> Option<Instant> {
        match self {
            Doubt::AskAt(at) => Some(at),
            Doubt::None | Doubt::New => None,
        }
    }

    pub(super) fn is_due(self, now: Instant) -> bool {
        self.deadline().is_some_and(|at| at <= now)
    }
}

impl Link {
    /// Sets the timer.
    #[cold]
    pub(super) fn ask_later(&mut self, kit: &mut Kit) {
        if let Some(up) = self.up_mut() {
            up.doubt = Doubt::AskAt(Instant::now() + DELAY);
        }
        self.renew_timer(kit);
    }

    /// Makes the calls that tell. What they move early again is the next doubt.
    pub(super) fn ask(&mut self, kit: &mut Kit, lingerers: &mut Lingerers) {
        if let Some(up) = self.up_mut() {
            up.doubt = Doubt::None;
        }
        self.renew_timer(kit);
        self.writable(kit, lingerers);
        self.receive_until(kit, lingerers, true);
    }
}
