//! The wire: an open adapter has an inbox, and whoever has something to tell it puts a letter in.
//!
//! Letters are read in the order in which they were put in, and none is lost. So nothing has to be acknowledged, and
//! what a peer did before it ended a connection is seen before the end.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};

use dat_core::provider::ReadDepth;
use rustix::event::{EventfdFlags, eventfd};

// ANCHOR: word
/// What adapters say to each other.
pub(crate) enum Word {
    /// To a service point: a queue pair calls, with private data.
    Call(Line, Vec<u8>),
    /// To the caller: the consumer accepts, with private data.
    Accept(Line, Vec<u8>),
    /// To the caller: the consumer refuses, with private data.
    Reject(Vec<u8>),
    /// To who has accepted: the caller knows.
    Ready,
    /// Frames of iWARP.
    Frames(Vec<u8>),
    /// So many octets of frames have been read.
    Read(usize),
    /// There is nobody, or nobody any more.
    Gone,
}

/// One end of a connection, or of an attempt at one. Wherever it is dropped, the other end is told.
pub(crate) struct Line {
    pub(crate) peer: Address,
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    pub(crate) depth: ReadDepth,
}

impl Drop for Line {
    fn drop(&mut self) {
        self.peer.tell(Word::Gone);
    }
}
// ANCHOR_END: word

/// Where an adapter hears from others.
pub(crate) struct Inbox {
    letters: Mutex<Vec<(usize, Word)>>,
    /// Rung as long as there are letters: it wakes whoever sleeps in the adapter's poller.
    pub(crate) bell: File,
}

/// Of a queue pair or a service point, in any adapter of the process.
#[derive(Clone)]
pub(crate) struct Address {
    pub(crate) inbox: Weak<Inbox>,
    pub(crate) number: usize,
}

// ANCHOR: tell
impl Address {
    pub(crate) fn tell(&self, word: Word) {
        // Without an inbox the adapter has been closed. The word is dropped, and a line with it.
        let Some(inbox) = self.inbox.upgrade() else { return };
        let mut letters = lock(&inbox.letters);
        if letters.is_empty() {
            // Its counter is never full: it is read with the letters.
            (&inbox.bell).write_all(&1_u64.to_ne_bytes()).ok();
        }
        letters.push((self.number, word));
    }
}

impl Inbox {
    pub(crate) fn new() -> io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Inbox { letters: Mutex::default(), bell: bell.into() })
    }

    /// Takes what is there: words, and whom they are for.
    pub(crate) fn take(&self) -> Vec<(usize, Word)> {
        let mut letters = lock(&self.letters);
        if !letters.is_empty() {
            (&self.bell).read_exact(&mut [0; 8]).ok();
        }
        std::mem::take(&mut letters)
    }
}
// ANCHOR_END: tell

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
