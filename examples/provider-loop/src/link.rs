//! A queue pair and its connection.

use std::sync::Arc;

use adapter::Shared;
use dat_core::provider::{Close, ReadDepth};
use rnic::{Failure, Stream, StreamCfg, TxVec, Work};

use crate::engine::{Sink, Upcall};
use crate::inbox::{Line, Word};

/// Who has sent so many octets waits until its peer has read them.
const WINDOW: usize = 1 << 20;

// ANCHOR: state
/// A queue pair.
pub(crate) struct Link {
    sink: Sink,
    shared: Arc<Shared>,
    state: State,
    /// The side of its queues that completes. The stream has it while there is a connection.
    work: Option<Work>,
    connection: Option<Connection>,
}

/// ```text
/// Idle ─ call ────► Calling ── Accept ──► Up ─► Closing ─► Ended
///      ─ answer ──► Answered ─ Ready ───► Up
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    Calling,
    Answered,
    Up,
    /// It ends when all that was posted is done.
    Closing,
    Ended,
}

struct Connection {
    line: Line,
    stream: Stream,
    /// Octets sent of which the peer has not said that it has read them.
    unread: usize,
    /// Octets read of which this side has not said so.
    read: usize,
}
// ANCHOR_END: state

impl Link {
    pub(crate) fn new(sink: Sink, shared: Arc<Shared>, work: Work) -> Self {
        Link { sink, shared, state: State::Idle, work: Some(work), connection: None }
    }

    /// It has called.
    pub(crate) fn call(&mut self) {
        self.state = State::Calling;
    }

    /// It has been given to a caller, which may have gone.
    pub(crate) fn answer(&mut self, line: Line) {
        self.state = State::Answered;
        self.connect(line);
    }

    /// The call has come to nothing, unless it was answered before.
    pub(crate) fn give_up(&mut self, why: Upcall<'_>) {
        if self.state == State::Calling {
            self.end(why);
        }
    }

    // ANCHOR: hear
    /// Takes what another adapter has to say.
    pub(crate) fn hear(&mut self, word: Word) {
        match (self.state, word) {
            (State::Calling, Word::Accept(line, private)) => {
                line.peer.tell(Word::Ready);
                self.connect(line);
                self.come_up(&private);
            }
            (State::Calling, Word::Reject(private)) => {
                self.end(Upcall::Rejected { by_peer: true, private: &private });
            }
            (State::Calling, Word::Gone) => {
                self.end(Upcall::Rejected { by_peer: false, private: &[] })
            }
            (State::Answered, Word::Ready) => self.come_up(&[]),
            (State::Answered, Word::Gone) => self.end(Upcall::AcceptFailed),
            (State::Up | State::Closing, Word::Frames(octets)) => self.receive(&octets),
            (State::Up | State::Closing, Word::Read(octets)) => {
                if let Some(connection) = &mut self.connection {
                    connection.unread -= octets;
                }
            }
            (State::Up | State::Closing, Word::Gone) => self.end(Upcall::Disconnected),
            // Said to one that has ended meanwhile.
            _ => {}
        }
    }
    // ANCHOR_END: hear

    /// The consumer ends the connection, or the attempt at one.
    pub(crate) fn disconnect(&mut self, how: Close) {
        match (self.state, how) {
            (State::Ended, _) => {}
            (State::Up | State::Closing, Close::Graceful) => self.state = State::Closing,
            _ => self.end(Upcall::Disconnected),
        }
    }

    // ANCHOR: transmit
    /// Sends what is ready; where the connection has ended, flushes what has been posted since.
    pub(crate) fn transmit(&mut self, tx: &mut TxVec) {
        match (self.state, &mut self.connection) {
            (State::Up | State::Closing, Some(connection)) => match connection.send(tx) {
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

    /// Receive buffers that belong to it and have not completed.
    pub(crate) fn allocated(&self) -> usize {
        let in_stream = self.connection.as_ref().map(|connection| connection.stream.work());
        in_stream.or(self.work.as_ref()).map_or(0, Work::allocated)
    }

    fn connect(&mut self, line: Line) {
        let Some(work) = self.work.take() else { return };
        let ReadDepth { incoming: ird, outgoing: ord } = line.depth;
        // A message for which no receive is posted ends the connection: for one that waits there is more to be done
        // (`Stream::resume`).
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
            Some(Connection { line, stream: Stream::new(work, cfg), unread: 0, read: 0 });
    }

    fn come_up(&mut self, private: &[u8]) {
        self.state = State::Up;
        if let Some(Connection { line, .. }) = &self.connection {
            let (peer, local, depth) = (line.remote, line.local, line.depth);
            self.sink.call(Upcall::Established { private, peer, local, depth });
        }
    }

    fn receive(&mut self, octets: &[u8]) {
        let Some(connection) = &mut self.connection else { return };
        connection.read += octets.len();
        if connection.read >= WINDOW / 2 {
            connection.line.peer.tell(Word::Read(std::mem::take(&mut connection.read)));
        }
        if let Err(failure) = connection.stream.rx_bytes(octets) {
            self.fail(failure);
        }
    }

    // ANCHOR: end
    /// One side has broken the rules of the protocol.
    fn fail(&mut self, failure: Failure) {
        if let Some(connection) = &mut self.connection
            && !failure.by_peer
        {
            connection.line.peer.tell(Word::Frames(connection.stream.terminate()));
        }
        self.end(match self.state {
            State::Closing => Upcall::Disconnected,
            _ => Upcall::Broken { because: &failure },
        });
    }

    /// The connection has ended, or will never be: all that is posted completes, then the consumer is told.
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
        while self.unread < WINDOW {
            let ready = self.stream.tx(tx)?;
            if ready == 0 {
                break;
            }
            let mut octets: Vec<u8> = Vec::with_capacity(ready);
            for piece in tx.iov() {
                // SAFETY: the stream has just gathered it, from memory that stays registered as long as the
                // engine lock is held; there is room for all that is ready.
                unsafe {
                    let end = octets.as_mut_ptr().add(octets.len());
                    end.copy_from_nonoverlapping(piece.iov_base.cast(), piece.iov_len);
                    octets.set_len(octets.len() + piece.iov_len);
                }
            }
            // A wire that is full would take less.
            self.stream.tx_done(tx, ready);
            self.unread += ready;
            self.line.peer.tell(Word::Frames(octets));
        }
        Ok(())
    }
    // ANCHOR_END: send
}
