//! The time limits of cases.
//!
//! A case fails if an expected event does not happen in time. With a short limit, a provider that
//! never delivers an event is detected quickly. With a long limit, a busy machine does not affect
//! the verdict. This project's own runs set a long one ([`Target::event_timeout`](crate::Target)).

use std::sync::OnceLock;
use std::time::Duration;

/// The time that a case waits for each event that must happen, unless the target sets another.
pub const DEFAULT_EVENT_TIMEOUT: Duration = Duration::from_secs(5);

/// The maximum of that time. A timeout of DAT can be at most 71 minutes.
pub const MAX_EVENT_TIMEOUT: Duration = Duration::from_secs(3600);

static EVENT_TIMEOUT: OnceLock<Duration> = OnceLock::new();

/// Sets the time for all cases of this process. Only the first call has an effect.
pub(crate) fn set_event_timeout(timeout: Duration) {
    EVENT_TIMEOUT.get_or_init(|| timeout.min(MAX_EVENT_TIMEOUT));
}

/// Returns the time that a case waits for each event that must happen.
pub(crate) fn event_timeout() -> Duration {
    EVENT_TIMEOUT.get().copied().unwrap_or(DEFAULT_EVENT_TIMEOUT)
}

/// Returns the time limit of a case, which waits for several events in sequence.
pub(crate) fn case_timeout(event_timeout: Duration) -> Duration {
    6 * event_timeout
}
