//! What the parts of the engine use in common.

use std::time::Instant;

use adapter::{Context, Counts};
use mio::Token;
use rnic::rc::{Burst, Wheel};

use super::Engine;
use crate::socket::{MAX_BATCH, MAX_SEGMENTS};

/// The kit.
pub(crate) struct Kit {
    pub(crate) context: Context<Engine>,
    /// One batch: what it was gathered into is at hand still when its ICRC is computed, and when the kernel reads it.
    pub(crate) burst: Burst,
    pub(crate) wheel: Wheel,
    /// Queue pairs that have received something in this pass.
    pub(crate) touched: Vec<usize>,
    /// Queue pairs that owe an acknowledgement.
    pub(crate) owing: Vec<usize>,
    /// Queue pairs that have more to send.
    pub(crate) again: Vec<usize>,
    /// Queue pairs whose attempt has failed, to be told of in the next pass.
    pub(crate) failing: Vec<usize>,
    /// What connections did that are over.
    pub(crate) past: Counts,
    /// Packets for a queue pair that came from elsewhere than its peer.
    pub(crate) foreign: u64,
}

impl Kit {
    pub(super) fn new(context: Context<Engine>) -> Self {
        Kit {
            context,
            burst: Burst::new(MAX_SEGMENTS, MAX_BATCH),
            wheel: Wheel::new(Instant::now()),
            touched: Vec::new(),
            owing: Vec::new(),
            again: Vec::new(),
            failing: Vec::new(),
            past: Counts::default(),
            foreign: 0,
        }
    }

    /// A queue pair goes away.
    pub(super) fn forget(&mut self, link: usize) {
        self.wheel.clear(link);
        for list in [&mut self.touched, &mut self.owing, &mut self.again, &mut self.failing] {
            list.retain(|&of| of != link);
        }
    }

    /// A queue pair's attempt has failed inside a call of the consumer's, which is to be over before it hears of it.
    pub(crate) fn fail_soon(&mut self, link: usize) {
        self.failing.push(link);
    }
}

/// Names a socket to the poller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    /// The slot's socket of a station.
    Socket(usize),
    /// The door of a station.
    Door(usize),
    /// The mailbox of a station.
    Mailbox(usize),
    /// The mailbox of a service point, at a station.
    Service { door: usize, station: usize },
    /// Where peers of a station on this host connect to see its end.
    Life(usize),
    /// One who has.
    Guest { station: usize, guest: usize },
    /// A peer of a station: what ends when the adapter does that has this slot.
    Lifeline { station: usize, number: usize },
    /// Where hosts say that nobody has the port.
    Scout(usize),
}

/// Stations at most, as far as tokens go: addresses of a host.
const STATIONS: usize = 1 << 16;

impl From<Key> for Token {
    fn from(key: Key) -> Self {
        Token(match key {
            Key::Socket(station) => station << 3,
            Key::Door(station) => station << 3 | 1,
            Key::Mailbox(station) => station << 3 | 2,
            Key::Life(station) => station << 3 | 3,
            Key::Service { door, station } => (door * STATIONS + station) << 3 | 4,
            Key::Guest { station, guest } => (guest * STATIONS + station) << 3 | 5,
            Key::Lifeline { station, number } => (number * STATIONS + station) << 3 | 6,
            Key::Scout(station) => station << 3 | 7,
        })
    }
}

impl From<Token> for Key {
    fn from(token: Token) -> Self {
        let index = token.0 >> 3;
        let (number, station) = (index / STATIONS, index % STATIONS);
        match token.0 & 7 {
            0 => Key::Socket(index),
            1 => Key::Door(index),
            2 => Key::Mailbox(index),
            3 => Key::Life(index),
            4 => Key::Service { door: number, station },
            5 => Key::Guest { station, guest: number },
            6 => Key::Lifeline { station, number },
            _ => Key::Scout(index),
        }
    }
}
