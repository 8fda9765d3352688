//! The time limits of cases.
//!
//! A case fails if an expected event does not happen in time. With a short limit, a provider that
//! never delivers an event is detected quickly. With a long limit, a busy machine does not affect
//! the verdict. This project's own test runs set a long limit
//! ([`Target::event_timeout`](crate::Target)).

use std::sync::OnceLock;
use std::time::Duration;

/// The default of the time that a case waits for each event that must happen. A target can set
/// another time.
pub const DEFAULT_EVENT_TIMEOUT: Duration = Duration::from_secs(5);

/// The maximum time that a target can set for an event. A time limit of DAT can be at most 71
/// minutes.
pub const MAX_EVENT_TIMEOUT: Duration = Duration::from_secs(3600);

static EVENT_TIMEOUT: OnceLock<Duration> = OnceLock::new();

/// Sets the time that cases of this process wait for an event. Only the first call has an effect.
pub(crate) fn set_event_timeout(timeout: Duration) {
    EVENT_TIMEOUT.get_or_init(|| timeout.min(MAX_EVENT_TIMEOUT));
}

/// Returns the time that a case waits for each event that must happen.
pub(crate) fn event_timeout() -> Duration {
    EVENT_TIMEOUT.get().copied().unwrap_or(DEFAULT_EVENT_TIMEOUT)
}

/// Returns the time limit of a whole case. A case waits for several events, one after the other.
pub(crate) fn case_timeout(event_timeout: Duration) -> Duration {
    6 * event_timeout
}
