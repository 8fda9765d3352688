//! A queue pair and its connection.

use std::sync::Arc;

use adapter::Shared;
use dat_core::provider::{Close, ReadDepth};
use rnic::{Failure, Stream, StreamCfg, TxVec, Work};

use crate::engine::{Sink, Upcall};
use crate::message::{ConnectionEnd, Message};

/// A sender that has sent this number of octets waits until the peer has received some of them.
const WINDOW_BYTES: usize = 1 << 20;

// ANCHOR: state
/// A queue pair.
pub(crate) struct Link {
    sink: Sink,
    shared: Arc<Shared>,
    state: State,
    /// The completing side of its queues. While there is a connection, the stream has it.
    work: Option<Work>,
    connection: Option<Connection>,
}

/// ```text
/// Idle ─ connecting ──► Connecting ── Accept ──► Established ──► Closing ──► Ended
///      ─ accept ──────► Accepted ──── Ready ───► Established
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    Connecting,
    Accepted,
    Established,
    /// The connection ends when all posted requests are done.
    Closing,
    Ended,
}

struct Connection {
    end: ConnectionEnd,
    stream: Stream,
    /// Octets sent for which the peer has not returned credit.
    uncredited: usize,
    /// Octets received for which no credit was returned.
    to_credit: usize,
}
// ANCHOR_END: state

impl Link {
    pub(crate) fn new(sink: Sink, shared: Arc<Shared>, work: Work) -> Self {
        Link { sink, shared, state: State::Idle, work: Some(work), connection: None }
    }

    /// The consumer has requested a connection.
    pub(crate) fn connecting(&mut self) {
        self.state = State::Connecting;
    }

    /// The consumer has accepted a connection request, whose sender may be gone already.
    pub(crate) fn accept(&mut self, end: ConnectionEnd) {
        self.state = State::Accepted;
        self.connect(end);
    }

    /// Ends the connection attempt, unless it was answered before.
    pub(crate) fn abort_connect(&mut self, why: Upcall<'_>) {
        if self.state == State::Connecting {
            self.end(why);
        }
    }

    // ANCHOR: on_message
    /// Handles a message from another adapter.
    pub(crate) fn on_message(&mut self, message: Message) {
        match (self.state, message) {
            (State::Connecting, Message::Accept(end, private)) => {
                end.peer.send(Message::Ready);
                self.connect(end);
                self.establish(&private);
            }
            (State::Connecting, Message::Reject(private)) => {
                self.end(Upcall::Rejected { by_peer: true, private: &private });
            }
            (State::Connecting, Message::Closed) => {
                self.end(Upcall::Rejected { by_peer: false, private: &[] })
            }
            (State::Accepted, Message::Ready) => self.establish(&[]),
            (State::Accepted, Message::Closed) => self.end(Upcall::AcceptFailed),
            (State::Established | State::Closing, Message::Frames(octets)) => self.receive(&octets),
            (State::Established | State::Closing, Message::Credit(octets)) => {
                if let Some(connection) = &mut self.connection {
                    connection.uncredited -= octets;
                }
            }
            (State::Established | State::Closing, Message::Closed) => {
                self.end(Upcall::Disconnected)
            }
            // The message arrived after the link had changed its state.
            _ => {}
        }
    }
    // ANCHOR_END: on_message

    /// The consumer ends the connection or the connection attempt.
    pub(crate) fn disconnect(&mut self, how: Close) {
        match (self.state, how) {
            (State::Ended, _) => {}
            (State::Established | State::Closing, Close::Graceful) => self.state = State::Closing,
            _ => self.end(Upcall::Disconnected),
        }
    }

    // ANCHOR: transmit
    /// Sends what is ready. After the end of the connection, flushes what has been posted since.
    pub(crate) fn transmit(&mut self, tx: &mut TxVec) {
        match (self.state, &mut self.connection) {
            (State::Established | State::Closing, Some(connection)) => match connection.send(tx) {
                Err(failure) => self.fail(failure),
                Ok(()) if self.state == State::Closing && connection.stream.is_drained() => {
                    self.end(Upcall::Disconnected);
                }
                Ok(()) => {}
            },
            (State::Ended, _) => self.flush(),
            _ => {}
        }
    }
    // ANCHOR_END: transmit

    /// The number of its receive buffers that have not completed.
    pub(crate) fn allocated(&self) -> usize {
        let in_stream = self.connection.as_ref().map(|connection| connection.stream.work());
        in_stream.or(self.work.as_ref()).map_or(0, Work::allocated)
    }

    fn connect(&mut self, end: ConnectionEnd) {
        let Some(work) = self.work.take() else { return };
        let ReadDepth { incoming: ird, outgoing: ord } = end.depth;
        // A message without a posted receive ends the connection. Waiting for a receive would need
        // more code (`Stream::resume`).
        let waits = false;
        let cfg = StreamCfg {
            mulpdu: 65535,
            crc: false,
            extended: true,
            ird,
            ord,
            hold: false,
            segment: 0,
            waits,
        };
        self.connection =
            Some(Connection { end, stream: Stream::new(work, cfg), uncredited: 0, to_credit: 0 });
    }

    fn establish(&mut self, private: &[u8]) {
        self.state = State::Established;
        if let Some(Connection { end, .. }) = &self.connection {
            let (peer, local, depth) = (end.remote, end.local, end.depth);
            self.sink.call(Upcall::Established { private, peer, local, depth });
        }
    }

    fn receive(&mut self, octets: &[u8]) {
        let Some(connection) = &mut self.connection else { return };
        connection.to_credit += octets.len();
        if connection.to_credit >= WINDOW_BYTES / 2 {
            connection.end.peer.send(Message::Credit(std::mem::take(&mut connection.to_credit)));
        }
        if let Err(failure) = connection.stream.rx_bytes(octets) {
            self.fail(failure);
        }
    }

    // ANCHOR: end
    /// One side has violated the protocol.
    fn fail(&mut self, failure: Failure) {
        if let Some(connection) = &mut self.connection
            && !failure.by_peer
        {
            connection.end.peer.send(Message::Frames(connection.stream.terminate()));
        }
        self.end(match self.state {
            State::Closing => Upcall::Disconnected,
            _ => Upcall::Broken { because: &failure },
        });
    }

    /// Ends the connection or the connection attempt: all posted requests complete, then the
    /// consumer is notified.
    fn end(&mut self, why: Upcall<'_>) {
        self.state = State::Ended;
        if let Some(mut connection) = self.connection.take() {
            connection.stream.flush();
            self.work = Some(connection.stream.into_work());
        }
        self.shared.end();
        self.flush();
        self.sink.call(why);
    }

    fn flush(&mut self) {
        if let Some(work) = &mut self.work {
            work.flush();
        }
    }
    // ANCHOR_END: end
}

impl Connection {
    // ANCHOR: send
    fn send(&mut self, tx: &mut TxVec) -> Result<(), Failure> {
        while self.uncredited < WINDOW_BYTES {
            let ready = self.stream.tx(tx)?;
            if ready == 0 {
                break;
            }
            let mut octets: Vec<u8> = Vec::with_capacity(ready);
            for piece in tx.iov() {
                // SAFETY: the stream has just gathered the piece from memory that stays registered
                // as long as the engine lock is held, and the capacity suffices for all that is
                // ready.
                unsafe {
                    let end = octets.as_mut_ptr().add(octets.len());
                    end.copy_from_nonoverlapping(piece.iov_base.cast(), piece.iov_len);
                    octets.set_len(octets.len() + piece.iov_len);
                }
            }
            // A full wire would accept fewer octets.
            self.stream.tx_done(tx, ready);
            self.uncredited += ready;
            self.end.peer.send(Message::Frames(octets));
        }
        Ok(())
    }
    // ANCHOR_END: send
}
