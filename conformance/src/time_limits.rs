//! The time limits of cases.
//!
//! A case fails if an expected event does not happen in time. With a short limit, a provider that
//! never delivers an event is detected quickly. With a long limit, a busy machine does not affect
//! the verdict. This project's own runs set a long one.

use std::sync::OnceLock;
use std::time::Duration;

/// The variable that sets the limit, in seconds.
pub const TIMEOUT_VARIABLE: &str = "OPENDAT_CONFORMANCE_PATIENCE";

/// The limit without the variable.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);

/// The maximum value of the variable. A timeout of DAT can be at most 71 minutes.
const MAX_SECONDS: u64 = 3600;

/// Returns the time that a case waits for each event that must happen.
pub(crate) fn event_timeout() -> Duration {
    static EVENT_TIMEOUT: OnceLock<Duration> = OnceLock::new();
    *EVENT_TIMEOUT.get_or_init(|| {
        let value = std::env::var(TIMEOUT_VARIABLE).ok().and_then(|seconds| seconds.parse().ok());
        value.map_or(DEFAULT_TIMEOUT, |seconds: u64| {
            Duration::from_secs(seconds.clamp(1, MAX_SECONDS))
        })
    })
}

/// Returns the time limit of a case, which waits for several events in sequence.
pub(crate) fn case_timeout() -> Duration {
    6 * event_timeout()
}
