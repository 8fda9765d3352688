//! How the two processes of a measurement wait for each other, and for how long.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

/// The role of one of the two processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Role {
    /// The process that connects, and that measures.
    Client,
    /// The process that accepts connections.
    Server,
}

/// The maximum time that a connection may take to be established, or to end.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum time to wait for the other process of a connection. A longer wait means that the
/// other process has failed. On a host with twenty runnable threads per processor, 10 s were too
/// short.
pub const PEER_TIMEOUT: Duration = Duration::from_secs(60);

/// The way in which a process waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WaitMode {
    /// The process asks again and again, and uses a processor.
    Poll,
    /// The process sleeps.
    Block,
}

impl WaitMode {
    /// Starts a time limit for a polling loop.
    #[inline]
    pub fn poll_limit(self, limit: Duration) -> PollLimit {
        PollLimit { turns: 0, since: None, limit }
    }
}

/// The time limit of a polling loop. It reads the clock only every 4096 calls.
pub struct PollLimit {
    turns: u32,
    since: Option<Instant>,
    limit: Duration,
}

impl PollLimit {
    /// Fails if the time is over while the caller waits for `what`.
    #[inline]
    pub fn check(&mut self, what: &str) -> Result<()> {
        self.turns = self.turns.wrapping_add(1);
        if self.turns.is_multiple_of(1 << 12)
            && self.since.get_or_insert_with(Instant::now).elapsed() > self.limit
        {
            bail!("waited {} s for {what}", self.limit.as_secs());
        }
        Ok(())
    }
}

/// Runs `count` round trips: the client sends and receives, the server receives and sends. Returns
/// half of each round trip's time at the client, in seconds.
#[inline]
pub fn round_trips<E>(
    role: Role,
    count: usize,
    end: &mut E,
    mut send: impl FnMut(&mut E) -> Result<()>,
    mut receive: impl FnMut(&mut E) -> Result<()>,
) -> Result<Vec<f64>> {
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        match role {
            Role::Client => {
                let start = Instant::now();
                send(end)?;
                receive(end)?;
                times.push(start.elapsed().as_secs_f64() / 2.0);
            }
            Role::Server => {
                receive(end)?;
                send(end)?;
            }
        }
    }
    Ok(times)
}
