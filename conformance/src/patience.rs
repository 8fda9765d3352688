//! How long cases wait for what must happen.
//!
//! A case fails when that has not come in time: so a short limit tells soon of a provider that never does it, and a long one
//! judges no provider by how busy its machine is. Our own runs set a long one.

use std::sync::OnceLock;
use std::time::Duration;

/// The variable that says it, in seconds.
pub const PATIENCE: &str = "OPENDAT_CONFORMANCE_PATIENCE";

/// Without the variable.
const DEFAULT: Duration = Duration::from_secs(5);

/// The longest that a time-out of DAT can say is 71 minutes.
const LONGEST: u64 = 3600;

/// How long a case waits for each thing that must happen.
pub(crate) fn patience() -> Duration {
    static PATIENCE_OF_ALL: OnceLock<Duration> = OnceLock::new();
    *PATIENCE_OF_ALL.get_or_init(|| {
        let said = std::env::var(PATIENCE).ok().and_then(|seconds| seconds.parse().ok());
        said.map_or(DEFAULT, |seconds: u64| Duration::from_secs(seconds.clamp(1, LONGEST)))
    })
}

/// After this a case hangs: it waits for several things, one after another.
pub(crate) fn limit() -> Duration {
    6 * patience()
}
