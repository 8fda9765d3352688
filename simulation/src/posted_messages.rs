//! The messages that one end of a flow posts.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::Operation;

/// The messages of a flow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) operation: Operation,
    /// The number of octets of a message.
    pub(crate) size: u32,
    /// The number of messages. `None` means no limit.
    pub(crate) messages: Option<usize>,
    /// The maximum number of outstanding messages.
    pub(crate) depth: usize,
    /// The time of the first post.
    pub(crate) start: Instant,
}

/// Which messages are posted and which are completed. Messages complete in order.
#[derive(Debug)]
pub(crate) struct PostedMessages {
    pub(crate) load: Load,
    posted: usize,
    /// The time of each post that has not completed.
    outstanding: VecDeque<Instant>,
    /// The time from post to completion of each message that has completed.
    pub(crate) completed: Vec<Duration>,
    /// The time of the last completion.
    pub(crate) last_completion: Option<Instant>,
}

impl PostedMessages {
    pub(crate) fn new(load: Load) -> Self {
        PostedMessages {
            load,
            posted: 0,
            outstanding: VecDeque::new(),
            completed: Vec::new(),
            last_completion: None,
        }
    }

    /// Posts the next message, if it is time. Returns whether a message was posted.
    pub(crate) fn post(&mut self, now: Instant) -> bool {
        let is_due = now >= self.load.start
            && self.outstanding.len() < self.load.depth
            && self.load.messages.is_none_or(|messages| self.posted < messages);
        if is_due {
            self.posted += 1;
            self.outstanding.push_back(now);
        }
        is_due
    }

    /// Records that the oldest messages have completed.
    pub(crate) fn complete(&mut self, messages: usize, now: Instant) {
        for posted in self.outstanding.drain(..messages.min(self.outstanding.len())) {
            self.completed.push(now - posted);
            self.last_completion = Some(now);
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.load.messages.is_some_and(|messages| self.completed.len() >= messages)
    }

    /// The time of the first post, while it is ahead.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        (self.posted == 0).then_some(self.load.start)
    }
}
