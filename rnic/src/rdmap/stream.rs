//! The engine of an established connection: queue pair on one side, bytes of the TCP stream on the other.

use wire::iwarp::Cause;

use super::vec::{RxVec, TxVec};
use crate::qp::Work;

/// What the setup of the connection agreed on.
#[derive(Clone, Copy, Debug)]
pub struct StreamCfg {
    /// Octets of a ULPDU at most: [`wire::iwarp::mpa::mulpdu_for_mss`] of TCP's MSS, or more where both sides take it.
    /// Clamped to 128..=65535.
    pub mulpdu: usize,
    /// CRCs are on, in both directions.
    pub crc: bool,
    /// RDMA reads of the peer held here at most.
    pub ird: u32,
    /// RDMA reads outstanding at the peer at most. With 0 a posted read never starts.
    pub ord: u32,
    /// The responder of the setup: sends nothing before the peer's first FPDU (RFC 5044, section 7.1.3) or
    /// [`Stream::release`].
    pub hold: bool,
}

/// The connection cannot go on. The engine has already failed the work request concerned, if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {cause}", if *by_peer { "TERMINATE received" } else { "stream error" })]
pub struct Failure {
    /// The peer sent TERMINATE. Otherwise it is to be sent one: [`Stream::terminate`].
    pub by_peer: bool,
    /// Why.
    pub cause: Cause,
}

/// Counters of a stream, both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Octets given to TCP.
    pub tx_bytes: u64,
    /// Messages (SEND, WRITE, READ request, READ response) given to TCP.
    pub tx_messages: u64,
    /// Octets taken from TCP.
    pub rx_bytes: u64,
    /// FPDUs taken from TCP.
    pub rx_fpdus: u64,
    /// Messages taken from TCP.
    pub rx_messages: u64,
    /// Octets of payload that were received to their place without a copy.
    pub rx_direct: u64,
}

/// The engine's half of a connection. Under the engine lock.
///
/// ```text
/// on work or writable:  while stream.tx(&mut txvec)? > 0 { n = sendmsg(txvec.iov()); stream.tx_done(&mut txvec, n) }
/// on readable:          stream.rx(&mut rxvec)?; n = readv(rxvec.iov()); stream.rx_done(&mut rxvec, n)?
/// on Err(failure):      if !failure.by_peer { send(stream.terminate()) }; shutdown(WR); stream.flush(); upcall
/// on FIN, reset:        stream.flush(); upcall
/// ```
///
/// Vectors must not be mixed up: `tx_done` and `rx_done` get the vector that the call before filled, with no other call
/// on the same stream in between.
pub struct Stream {
    work: Work,
}

impl Stream {
    /// A stream in full operation, with nothing sent or received yet.
    pub fn new(_work: Work, _cfg: StreamCfg) -> Self {
        todo!()
    }

    /// Gathers frames that are ready to be sent, from where the last accepted octet was; returns how many octets, 0 if
    /// nothing is ready. At most about 1 MiB.
    pub fn tx(&mut self, _tx: &mut TxVec) -> Result<usize, Failure> {
        todo!()
    }

    /// TCP has accepted the first `n` octets of what [`tx`](Self::tx) gathered: completes requests.
    pub fn tx_done(&mut self, _tx: &mut TxVec, _n: usize) {
        todo!()
    }

    /// Whether [`tx`](Self::tx) would gather something. Cheap.
    pub fn wants_tx(&mut self) -> bool {
        todo!()
    }

    /// Says where the next octets go: the rest of a payload to its place in registered memory, what follows to staging.
    pub fn rx(&mut self, _rx: &mut RxVec) -> Result<(), Failure> {
        todo!()
    }

    /// The first `n` octets of what [`rx`](Self::rx) asked for are there: parses, places, completes. Answers to RDMA reads
    /// then wait for [`tx`](Self::tx).
    pub fn rx_done(&mut self, _rx: &mut RxVec, _n: usize) -> Result<(), Failure> {
        todo!()
    }

    /// The same for octets which are already in memory.
    pub fn rx_bytes(&mut self, _bytes: &[u8]) -> Result<(), Failure> {
        todo!()
    }

    /// The octets that end this direction after a [`Failure`] not by the peer: the rest of an FPDU that is half sent, and
    /// the TERMINATE message. Best effort. Once; empty when there is none.
    pub fn terminate(&mut self) -> Vec<u8> {
        todo!()
    }

    /// Queues a zero-length RDMA write without a work request: the RTR frame of an initiator (RFC 6581, section 9.1), or
    /// a nudge for a peer that seems not to have seen what came last.
    pub fn queue_rtr(&mut self) {
        todo!()
    }

    /// Whether it still waits for the peer's first FPDU before it sends.
    pub fn is_held(&self) -> bool {
        todo!()
    }

    /// Sends from now on, although no FPDU came.
    pub fn release(&mut self) {
        todo!()
    }

    /// Everything is done that a graceful close waits for: no request queued or outstanding, no answer owed, no frame
    /// half sent.
    pub fn is_drained(&mut self) -> bool {
        todo!()
    }

    /// Whether octets received so far end inside a message: the peer was cut off.
    pub fn is_mid_message(&self) -> bool {
        todo!()
    }

    /// Completes everything posted and not completed as flushed: also what is posted later, if called again then.
    /// Nothing is sent or received any more.
    pub fn flush(&mut self) {
        self.work.flush();
    }

    /// Counters.
    pub fn stats(&self) -> Stats {
        todo!()
    }

    /// Ends the stream; what is posted and not completed stays in the queues until [`Work::flush`].
    pub fn into_work(self) -> Work {
        self.work
    }
}
