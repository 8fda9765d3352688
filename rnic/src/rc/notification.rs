//! Congestion notifications (CNP): they tell the peer that a switch has marked its packets (IBA,
//! annex A17.9.3).
//!
//! A switch with a long queue marks packets in their IP header (RFC 3168, codepoint CE) instead of
//! dropping them. The receiver of a marked request sends a CNP to the queue pair that has sent the
//! packet, and that queue pair sends more slowly from then on. The receiver of a marked response
//! asks for less itself, because the sender of responses has no window. The receiver follows the
//! notification point of DCQCN: it sends the first CNP at once, and then at most one in
//! [`INTERVAL_MIN`]. A mark that comes sooner needs no CNP of its own, because the sender has not
//! had the time to react to the last one.

use std::time::{Duration, Instant};

use wire::rocev2::{Bth, Extension, Opcode, Psn};

use super::burst::Burst;
use super::types::Path;

/// The minimum interval between two CNPs of a connection.
const INTERVAL_MIN: Duration = Duration::from_micros(50);

/// Sends the notifications of one connection.
#[derive(Default)]
pub(super) struct Notifier {
    /// The time at which the last CNP was sent.
    last: Option<Instant>,
}

impl Notifier {
    /// Adds a CNP to the burst, because a marked packet has arrived, unless the last CNP was sent a
    /// short time ago. Returns whether it was added.
    #[cold]
    pub(super) fn note_marked(&mut self, path: &Path, now: Instant, burst: &mut Burst) -> bool {
        if self.last.is_some_and(|last| now < last + INTERVAL_MIN) {
            return false;
        }
        // A CNP has no PSN, and its only flag is BECN.
        let bth = path.bth(Opcode::CongestionNotification, Psn::new(0));
        let bth = Bth { becn: true, migrated: false, ..bth };
        let is_sent = burst.push_packet(&bth, &Extension::Reserved, 0).is_some();
        if is_sent {
            self.last = Some(now);
        }
        is_sent
    }
}
