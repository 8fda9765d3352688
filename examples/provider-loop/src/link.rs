//! A queue pair and its connection.

use std::sync::Arc;

use adapter::{LinkPhase, QpShared};
use rnic::{Failure, Stream, StreamCfg, TxVec, Work};
use work::{Close, ReadDepth};

use crate::engine::{EngineEvent, Sink};
use crate::message::{ConnectionEnd, Message};

/// A sender that has sent this number of octets waits until the peer has received some of them.
const WINDOW_BYTES: usize = 1 << 20;

/// A queue pair and the phase of its connection.
///
/// ```text
/// Idle ─ connecting ──► Connecting ── Accept ──► Established ──► Ended
///      ─ accept ───────────────────────────────► Established
/// ```
pub(crate) struct Link {
    sink: Sink,
    shared: Arc<QpShared>,
    phase: LinkPhase<Work, Connection>,
}

/// An established connection. Its stream takes posted requests and receives from the queues, and
/// completes them.
struct Connection {
    end: ConnectionEnd,
    stream: Stream,
    /// Whether the consumer was notified of the connection. The accepting side waits for `Ready`
    /// first.
    reported: bool,
    /// Whether the connection ends when all posted requests are done.
    closing: bool,
    /// Octets sent for which the peer has not returned credit.
    uncredited: usize,
    /// Octets received for which no credit was returned.
    to_credit: usize,
}

impl Link {
    pub(crate) fn new(sink: Sink, shared: Arc<QpShared>, work: Work) -> Self {
        Link { sink, shared, phase: LinkPhase::Idle(work) }
    }

    /// The consumer has requested a connection.
    pub(crate) fn connecting(&mut self) {
        if let Some(work) = self.phase.take_idle() {
            self.phase = LinkPhase::Connecting(work);
        }
    }

    /// The consumer has accepted a connection request, whose sender may be gone already.
    pub(crate) fn accept(&mut self, end: ConnectionEnd) {
        if let Some(work) = self.phase.take_idle() {
            self.phase = LinkPhase::Established(Connection::new(end, work));
        }
    }

    /// Ends the connection attempt, unless it was answered before.
    pub(crate) fn abort_connect(&mut self, why: EngineEvent<'_>) {
        if let LinkPhase::Connecting(_) = self.phase {
            self.end(why);
        }
    }

    // ANCHOR: on_message
    /// Handles a message from another adapter.
    pub(crate) fn on_message(&mut self, message: Message) {
        match (&mut self.phase, message) {
            (LinkPhase::Connecting(_), Message::Accept(end, private)) => {
                end.peer.send(Message::Ready);
                let Some(work) = self.phase.take_connecting() else { return };
                self.phase = LinkPhase::Established(Connection::new(end, work));
                self.report(&private);
            }
            (LinkPhase::Connecting(_), Message::Reject(private)) => {
                self.end(EngineEvent::Rejected { by_peer: true, private: &private });
            }
            (LinkPhase::Connecting(_), Message::Closed) => {
                self.end(EngineEvent::Rejected { by_peer: false, private: &[] })
            }
            (LinkPhase::Established(_), Message::Ready) => self.report(&[]),
            (LinkPhase::Established(connection), Message::Frames(octets)) => {
                if let Err(failure) = connection.receive(&octets) {
                    self.fail(failure);
                }
            }
            (LinkPhase::Established(connection), Message::Credit(octets)) => {
                connection.uncredited -= octets;
            }
            (LinkPhase::Established(connection), Message::Closed) if !connection.reported => {
                self.end(EngineEvent::AcceptFailed)
            }
            (LinkPhase::Established(_), Message::Closed) => self.end(EngineEvent::Disconnected),
            // The message arrived after the link had changed its phase.
            _ => {}
        }
    }
    // ANCHOR_END: on_message

    /// The consumer ends the connection or the connection attempt.
    pub(crate) fn disconnect(&mut self, how: Close) {
        match (&mut self.phase, how) {
            (LinkPhase::Ended(_), _) => {}
            (LinkPhase::Established(connection), Close::Graceful) if connection.reported => {
                connection.closing = true;
            }
            _ => self.end(EngineEvent::Disconnected),
        }
    }

    /// Sends the data that are ready. After the end of the connection, flushes operations that were
    /// posted since.
    pub(crate) fn transmit(&mut self, tx: &mut TxVec) {
        match &mut self.phase {
            LinkPhase::Established(connection) if connection.reported => {
                match connection.send(tx) {
                    Err(failure) => self.fail(failure),
                    Ok(()) if connection.closing && connection.stream.is_drained() => {
                        self.end(EngineEvent::Disconnected);
                    }
                    Ok(()) => {}
                }
            }
            LinkPhase::Ended(work) => work.flush(),
            _ => {}
        }
    }

    /// Returns the number of the queue pair's receive buffers that have not completed.
    pub(crate) fn allocated(&self) -> usize {
        match &self.phase {
            LinkPhase::Idle(work) | LinkPhase::Connecting(work) | LinkPhase::Ended(work) => {
                work.allocated()
            }
            LinkPhase::Established(connection) => connection.stream.work().allocated(),
            LinkPhase::Disconnecting(_) | LinkPhase::Transition => 0,
        }
    }

    /// Notifies the consumer that the connection is established.
    fn report(&mut self, private: &[u8]) {
        if let LinkPhase::Established(connection) = &mut self.phase {
            connection.reported = true;
            let ConnectionEnd { remote: peer, local, depth, .. } = connection.end;
            self.sink.call(EngineEvent::Established { private, peer, local, depth });
        }
    }

    /// Ends the connection because one side has violated the protocol.
    fn fail(&mut self, failure: Failure) {
        let LinkPhase::Established(connection) = &mut self.phase else { return };
        if !failure.by_peer {
            connection.end.peer.send(Message::Frames(connection.stream.terminate()));
        }
        let closing = connection.closing;
        self.end(if closing {
            EngineEvent::Disconnected
        } else {
            EngineEvent::Broken { because: Some(&failure) }
        });
    }

    /// Ends the connection or the connection attempt: all posted requests complete, then the
    /// consumer is notified.
    fn end(&mut self, why: EngineEvent<'_>) {
        let work = match std::mem::take(&mut self.phase) {
            LinkPhase::Established(Connection { mut stream, .. }) => {
                stream.flush();
                stream.into_work()
            }
            LinkPhase::Idle(work) | LinkPhase::Connecting(work) | LinkPhase::Ended(work) => work,
            LinkPhase::Disconnecting(_) | LinkPhase::Transition => return,
        };
        self.phase.end(&self.shared, work);
        self.sink.call(why);
    }
}

impl Connection {
    fn new(end: ConnectionEnd, work: Work) -> Self {
        let ReadDepth { incoming: ird, outgoing: ord } = end.depth;
        // A message without a posted receive ends the connection. Waiting for a receive would need
        // more code (`Stream::resume`).
        let (mulpdu, segment, waits) = (65535, 0, false);
        let cfg = StreamCfg {
            mulpdu,
            crc: false,
            extended: true,
            completes_placed: false,
            ird,
            ord,
            hold: false,
            segment,
            waits,
        };
        let stream = Stream::new(work, cfg);
        Connection { end, stream, reported: false, closing: false, uncredited: 0, to_credit: 0 }
    }

    fn receive(&mut self, octets: &[u8]) -> Result<(), Failure> {
        self.to_credit += octets.len();
        if self.to_credit >= WINDOW_BYTES / 2 {
            self.end.peer.send(Message::Credit(std::mem::take(&mut self.to_credit)));
        }
        self.stream.rx_octets(octets)
    }

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
            // The peer's message queue accepts all octets. A socket could accept fewer.
            self.stream.tx_done(tx, ready);
            self.uncredited += ready;
            self.end.peer.send(Message::Frames(octets));
        }
        Ok(())
    }
}
