//! A connection: frames to the socket, frames from it.

use std::net::SocketAddr;
use std::time::Instant;

use adapter::Shared;
use dat_core::provider::ReadDepth;
use rnic::Stream;
use rnic::rdmap::setup::Gate;

use super::doubt::Doubt;
use super::stall::{Stall, Window};
use super::{End, Loss};
use crate::connection::Connection;
use crate::engine::{Kit, Sink, Upcall};
use crate::socket::Moved;

/// Gather writes of one connection before others get their turn.
const TX_BURST: usize = 16;

/// A connection.
pub(super) struct Up {
    pub(super) stream: Stream,
    pub(super) socket: Connection,
    pub(super) peer: SocketAddr,
    pub(super) local: SocketAddr,
    pub(super) depth: ReadDepth,
    pub(super) gate: Gate,
    /// The consumer knows that the connection is up.
    pub(super) announced: bool,
    /// A graceful end is under way.
    pub(super) closing: bool,
    /// The socket took all it was given last.
    pub(super) writable: bool,
    /// The peer takes nothing any more; what it has sent before is still to be read.
    pub(super) hung_up: bool,
    /// What a send was answered with then.
    pub(super) errno: Option<i32>,
    /// In the list of those that could go on at once.
    pub(super) queued: bool,
    /// Not in the poller.
    pub(super) absent: bool,
    /// What is to be known while a message of the peer waits for a receive.
    pub(super) stall: Stall,
    /// What is to be known of a peer that may make us wait.
    pub(super) window: Window,
    /// Whether the kernel may have stopped at memory that is not there any more.
    pub(super) doubt: Doubt,
    /// The end of the stream has been seen; what came elsewhere before it goes first (`Engine::end`).
    pub(super) over: Option<End>,
}

pub(super) enum Received {
    Nothing,
    /// `drained`: there was no more than that.
    Some {
        drained: bool,
    },
    /// A message waits for a receive.
    Stalled,
    /// A message that has waited has been taken.
    Resumed,
}

pub(super) enum Sent {
    All,
    More,
}

impl Up {
    pub(super) fn new(
        stream: Stream,
        socket: Connection,
        peer: SocketAddr,
        local: SocketAddr,
        depth: ReadDepth,
        gate: Gate,
    ) -> Self {
        Up {
            stream,
            socket,
            peer,
            local,
            depth,
            gate,
            announced: false,
            closing: false,
            writable: true,
            hung_up: false,
            errno: None,
            queued: false,
            absent: false,
            stall: Stall::default(),
            window: Window::Near,
            doubt: Doubt::None,
            over: None,
        }
    }

    /// When a timer is due.
    pub(super) fn deadline(&self) -> Option<Instant> {
        [self.gate.deadline(), self.stall.until, self.window.deadline(), self.doubt.deadline()]
            .into_iter()
            .flatten()
            .min()
    }

    pub(super) fn announce(&mut self, sink: &Sink, private: &[u8]) {
        self.announced = true;
        let Up { peer, local, depth, .. } = *self;
        sink.call(Upcall::Established { private, peer, local, depth });
    }

    /// One scatter read, unless a message waits.
    #[inline]
    pub(super) fn receive(
        &mut self,
        kit: &mut Kit,
        sink: &Sink,
        shared: &Shared,
    ) -> Result<Received, End> {
        if self.stream.is_stalled() {
            return self.resume(kit, shared);
        }
        self.stream.rx(&mut kit.rx).map_err(End::Protocol)?;
        // SAFETY: the stream has just said where octets may go.
        let n = match unsafe { self.socket.receive(kit.rx.iov()) } {
            Moved::Octets(n @ 1..) => n,
            Moved::Nothing if self.hung_up => return Err(End::Lost(Loss::Connection(self.errno))),
            Moved::Nothing => return Ok(Received::Nothing),
            // A write may have taken the error that ended the connection.
            Moved::Octets(0) => return Err(self.cut(self.how_it_ended())),
            Moved::Fault => return Err(End::Protocol(self.stream.rx_fault())),
            Moved::Gone(e) if is_reset(&e) => return Err(self.cut(End::Peer)),
            Moved::Gone(e) => return Err(End::Lost(Loss::Connection(e.raw_os_error()))),
        };
        if !self.announced {
            // What comes is the RTR frame, or stands for it; no completion may come before the news.
            self.announce(sink, &[]);
        }
        let drained = n < kit.rx.bytes();
        if self.stream.may_fault_behind(&kit.rx, n) {
            self.doubt.arise();
        }
        self.stream.rx_done(&mut kit.rx, n).map_err(End::Protocol)?;
        // One that stalls is looked at once more.
        Ok(Received::Some { drained: drained && !self.stream.is_stalled() })
    }

    /// The stream is over: in the middle of a message that is a loss.
    pub(super) fn cut(&self, end: End) -> End {
        if self.stream.is_mid_message() { End::Lost(Loss::Rest) } else { end }
    }

    /// Gather writes until nothing is ready or the socket is full.
    #[inline]
    pub(super) fn transmit(&mut self, kit: &mut Kit) -> Result<Sent, End> {
        for _ in 0..TX_BURST {
            if !self.writable {
                return Ok(Sent::All);
            }
            let ready = self.stream.tx(&mut kit.tx).map_err(End::Protocol)?;
            if ready == 0 {
                // While a message waits, no answer to our reads can come: nobody will post a receive for it any more.
                return match self.closing && (self.stream.is_drained() || self.stream.is_stalled())
                {
                    true => Err(End::Local),
                    false => Ok(Sent::All),
                };
            }
            let sent = match self.send(kit)? {
                Moved::Octets(n) => n,
                Moved::Nothing | Moved::Fault => 0,
                Moved::Gone(e) => {
                    self.errno = e.raw_os_error();
                    // The peer's last messages may wait to be read.
                    self.writable = false;
                    self.hung_up = true;
                    self.stream.tx_done(&mut kit.tx, 0);
                    return Ok(Sent::More);
                }
            };
            self.window.sent();
            // A socket that is full has noted that room is wanted: the poller tells.
            self.writable = sent == kit.tx.bytes();
            if sent > 0 && !self.writable {
                self.doubt.arise();
            }
            self.stream.tx_done(&mut kit.tx, sent);
        }
        Ok(Sent::More)
    }

    /// Sends what has been gathered, or the first message of it alone where the kernel cannot read all. If it
    /// cannot read that one, the connection ends.
    #[inline]
    fn send(&mut self, kit: &mut Kit) -> Result<Moved, End> {
        // SAFETY: the stream has just gathered memory that is registered.
        match unsafe { self.socket.send(kit.tx.iov(), kit.tx.ends_record()) } {
            Moved::Fault => {
                self.stream.tx_fault(&mut kit.tx).map_err(End::Protocol)?;
                // SAFETY: likewise.
                let moved = unsafe { self.socket.send(kit.tx.iov(), kit.tx.ends_record()) };
                if let Moved::Fault = moved {
                    self.stream.tx_fault(&mut kit.tx).map_err(End::Protocol)?;
                }
                Ok(moved)
            }
            moved => Ok(moved),
        }
    }
}

fn is_reset(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ECONNRESET | libc::EPIPE))
}
