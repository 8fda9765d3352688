//! How the two processes of a measurement wait for each other, and for how long.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

/// The role of one of the two processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Role {
    Client,
    Server,
}

/// The maximum time that a connection may take to be established, or to end.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum time to wait for the other process of a connection. A longer wait means that the
/// other process has failed. On a host with twenty runnable threads per processor, 10 s were too
/// short.
pub(crate) const PEER_TIMEOUT: Duration = Duration::from_secs(60);

/// The way in which a process waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Wait {
    Poll,
    Block,
}

impl Wait {
    /// Starts a time limit for a polling loop.
    #[inline]
    pub(crate) fn poll_limit(self, limit: Duration) -> PollLimit {
        PollLimit { turns: 0, since: None, limit }
    }
}

/// The time limit of a polling loop. It reads the clock only every 4096 calls.
pub(crate) struct PollLimit {
    turns: u32,
    since: Option<Instant>,
    limit: Duration,
}

impl PollLimit {
    #[inline]
    pub(crate) fn check(&mut self, what: &str) -> Result<()> {
        self.turns = self.turns.wrapping_add(1);
        if self.turns.is_multiple_of(1 << 12)
            && self.since.get_or_insert_with(Instant::now).elapsed() > self.limit
        {
            bail!("waited {} s for {what}", self.limit.as_secs());
        }
        Ok(())
    }
}
