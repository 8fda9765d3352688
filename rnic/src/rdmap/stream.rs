//! The engine of an established connection: queue pair on one side, octets of the TCP stream on the other.

use std::hash::{BuildHasher, RandomState};

use wire::iwarp::{Cause, Terminate, mpa::fpdu};

use super::answer::Answers;
use super::rx::Rx;
use super::tx::Tx;
use super::vec::{RxVec, TxVec};
use crate::qp::Work;
use crate::wr::Arrival;

/// What the setup of the connection agreed on.
#[derive(Clone, Copy, Debug)]
pub struct StreamCfg {
    /// Octets of a ULPDU at most: [`wire::iwarp::mpa::fpdu::mulpdu_for_mss`] of TCP's MSS, or more where both
    /// sides take it. Clamped to 128..=65535.
    pub mulpdu: usize,
    /// CRCs are on, in both directions.
    pub crc: bool,
    /// Both sides take the operations of RFC 7306: immediate data and atomic operations.
    pub extended: bool,
    /// RDMA reads and atomic operations of the peer held here at most.
    pub ird: u32,
    /// RDMA reads and atomic operations outstanding at the peer at most. With 0 a posted one never starts.
    pub ord: u32,
    /// The responder of the setup: sends nothing before the peer's first FPDU (RFC 5044, section 7.1.3) or
    /// [`Stream::release`].
    pub hold: bool,
    /// TCP's MSS, if no CRC is to lie across two TCP segments; 0 if that does not matter. Frames are then
    /// gathered so that it does not, as long as TCP begins a segment where [`TxVec::ends_record`] asks for
    /// it. The siw of Linux reads such a CRC wrongly (6.12: `siw_get_trailer` begins again with the second
    /// segment).
    pub segment: usize,
    /// A message for which no receive is posted waits until one is, and all that the peer has sent after it
    /// ([`Stream::is_stalled`]). Otherwise it ends the connection (RFC 5041, section 7.1).
    pub waits: bool,
}

/// The connection cannot go on. The work request concerned, if there is one, completes with its own status,
/// in its turn: a receive at once, a request when [`Stream::flush`] is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {cause}", if *by_peer { "TERMINATE received" } else { "stream error" })]
pub struct Failure {
    /// The peer sent TERMINATE. Otherwise it is to be sent one: [`Stream::terminate`].
    pub by_peer: bool,
    /// Why.
    pub cause: Cause,
}

/// Counters of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Octets given to TCP.
    pub tx_bytes: u64,
    /// Messages (of any kind but TERMINATE) given to TCP.
    pub tx_messages: u64,
    /// Octets taken from TCP.
    pub rx_bytes: u64,
    /// FPDUs taken from TCP.
    pub rx_fpdus: u64,
    /// Messages taken from TCP.
    pub rx_messages: u64,
    /// Octets of payload that TCP put to their place, without a copy.
    pub rx_direct: u64,
    /// Messages that had to wait for a receive.
    pub rx_stalls: u64,
}

impl Stats {
    /// Names and values, in the same order for all.
    pub fn list(&self) -> [(&'static str, u64); 7] {
        [
            ("octets-sent", self.tx_bytes),
            ("messages-sent", self.tx_messages),
            ("octets-received", self.rx_bytes),
            ("frames-received", self.rx_fpdus),
            ("messages-received", self.rx_messages),
            ("octets-received-in-place", self.rx_direct),
            ("messages-without-receive", self.rx_stalls),
        ]
    }
}

/// The engine's half of a connection. Under the engine lock.
///
/// ```text
/// on work or writable:  while stream.tx(&mut txvec)? > 0 { n = sendmsg(txvec.iov()); stream.tx_done(&mut txvec, n) }
/// on readable:          stream.rx(&mut rxvec)?; n = readv(rxvec.iov()); stream.rx_done(&mut rxvec, n)?
/// on EFAULT of these:   stream.tx_fault(&mut txvec)?, and the vector is sent again; stream.rx_fault()
/// on Err(failure):      if !failure.by_peer { send(stream.terminate()) }; shutdown(WR); stream.flush(); upcall
/// on FIN, reset:        stream.flush(); upcall
/// ```
///
/// While it [is stalled](Stream::is_stalled) nothing is read: [`Stream::resume`] is called when a receive has
/// been posted, and what the socket has then is read as if the poller had just told of it. Sending goes on.
///
/// `tx_done` and `rx_done` get the vector that `tx` or `rx` filled, with no other call on the same stream in between.
/// After a failure `tx` and `rx` repeat it.
pub struct Stream {
    pub(super) work: Work,
    pub(super) crc: bool,
    pub(super) extended: bool,
    pub(super) ird: usize,
    pub(super) ord: u32,
    pub(super) hold: bool,
    pub(super) waits: bool,
    pub(super) tx: Tx,
    pub(super) rx: Rx,
    /// Requests of the peer which wait for their response, the first of these perhaps half sent.
    pub(super) answers: Answers,
    pub(super) reads: Reads,
    pub(super) failure: Option<Failure>,
    /// What the peer is to be told about `failure`.
    pub(super) last_words: Option<Box<Terminate>>,
    pub(super) stats: Stats,
}

/// Our RDMA reads and atomic operations whose response has not come yet. Responses come in the order of the requests.
pub(super) struct Reads {
    pub(super) outstanding: u32,
    /// MSN of the next request to be sent.
    pub(super) next_msn: u32,
    /// Position in the send queue of the oldest one.
    pub(super) oldest: usize,
    /// Octets of a READ response to it that have been placed.
    pub(super) placed: u32,
    /// The STag that stands for any of our sinks. No region has it: a response is matched with the oldest
    /// read by a tagged offset that is used once, and with nothing else.
    pub(super) sink_stag: u32,
}

impl Reads {
    /// The tagged offset that the READ request with this MSN names as its sink.
    #[inline]
    pub(super) fn sink_to(msn: u32) -> u64 {
        u64::from(msn) << 32
    }

    /// The MSN of the oldest one outstanding.
    #[inline]
    pub(super) fn oldest_msn(&self) -> u32 {
        self.next_msn.wrapping_sub(self.outstanding)
    }

    /// The tagged offset of its sink.
    #[inline]
    pub(super) fn oldest_sink_to(&self) -> u64 {
        Self::sink_to(self.oldest_msn())
    }
}

impl Stream {
    /// A stream in full operation, with nothing sent or received yet.
    pub fn new(work: Work, cfg: StreamCfg) -> Self {
        let reads = Reads {
            outstanding: 0,
            next_msn: 1,
            oldest: 0,
            placed: 0,
            sink_stag: RandomState::new().hash_one(0) as u32 | 1,
        };
        work.set_extended(cfg.extended);
        Stream {
            tx: Tx::new(
                work.oldest_request(),
                cfg.mulpdu.clamp(fpdu::MIN_MULPDU, fpdu::MAX_ULPDU),
                cfg.segment,
            ),
            rx: Rx::new(),
            work,
            crc: cfg.crc,
            extended: cfg.extended,
            ird: cfg.ird as usize,
            ord: cfg.ord,
            hold: cfg.hold,
            waits: cfg.waits,
            answers: Answers::default(),
            reads,
            failure: None,
            last_words: None,
            stats: Stats::default(),
        }
    }

    /// Carries out binds and gathers frames that are ready to be sent, from where the last accepted octet
    /// was; returns how many octets, 0 if nothing is ready. At most about 1 MiB.
    pub fn tx(&mut self, tx: &mut TxVec) -> Result<usize, Failure> {
        self.gather(tx)?;
        Ok(tx.bytes())
    }

    /// TCP has accepted the first `n` octets of what [`tx`](Self::tx) gathered: completes requests.
    pub fn tx_done(&mut self, tx: &mut TxVec, n: usize) {
        self.accepted(tx, n);
        self.work.retire();
        self.work.announce();
    }

    /// The kernel could not read what [`tx`](Self::tx) gathered (`EFAULT`), and has accepted nothing:
    /// registered memory is not there any more. If there is one message, that is its failure. Otherwise the
    /// first is left in the vector, to be sent alone; then `tx_done` is called as usual, or this once more.
    #[cold]
    pub fn tx_fault(&mut self, tx: &mut TxVec) -> Result<(), Failure> {
        let result = self.faulted(tx);
        self.work.announce();
        result
    }

    /// Whether [`tx`](Self::tx) would gather or bind something. Cheap.
    pub fn wants_tx(&self) -> bool {
        self.failure.is_none() && !self.hold && (self.is_half_sent() || self.has_ready())
    }

    /// Says where the next octets go: the rest of a payload to its place in registered memory, what follows to staging.
    pub fn rx(&mut self, rx: &mut RxVec) -> Result<(), Failure> {
        self.alive()?;
        let result = self.scatter(rx);
        self.work.announce();
        result
    }

    /// The first `n` octets of what [`rx`](Self::rx) asked for are there: parses, places, completes. Answers
    /// to the peer's requests then wait for [`tx`](Self::tx).
    pub fn rx_done(&mut self, rx: &mut RxVec, n: usize) -> Result<(), Failure> {
        self.alive()?;
        let result = self.scattered(rx, n);
        self.work.retire();
        self.work.announce();
        result
    }

    /// The same for octets which are already in memory.
    pub fn rx_bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.alive()?;
        self.stats.rx_bytes += bytes.len() as u64;
        let result = self.feed(bytes);
        self.work.retire();
        self.work.announce();
        result
    }

    /// Whether a read that gave `n` octets may have ended at memory that is not there any more, and not where
    /// the socket was empty.
    #[inline]
    pub fn may_fault_behind(&self, rx: &RxVec, n: usize) -> bool {
        !self.crc && n < rx.direct()
    }

    /// The kernel could not write to where [`rx`](Self::rx) said (`EFAULT`): the memory where the message in
    /// hand goes is not there any more.
    #[cold]
    pub fn rx_fault(&mut self) -> Failure {
        let failure = self.alive().err().unwrap_or_else(|| self.place_gone());
        self.work.retire();
        self.work.announce();
        failure
    }

    /// Whether the next message of the peer waits for a receive. What comes behind it is not looked at either.
    #[inline]
    pub fn is_stalled(&self) -> bool {
        self.rx.is_stalled()
    }

    /// The message that waits.
    pub fn stalled(&self) -> Option<Arrival> {
        self.rx.arrival()
    }

    /// Takes a place in the line for buffers of a shared receive queue: see [`Work::wait_for_recv`].
    pub fn wait_for_recv(&mut self, number: usize) {
        self.work.wait_for_recv(number);
    }

    /// Takes the message that waits, if there is a receive for it now, and what has come behind it. False: it waits on.
    pub fn resume(&mut self) -> Result<bool, Failure> {
        self.alive()?;
        if !self.is_stalled() || !self.work.has_recv() {
            return Ok(!self.is_stalled());
        }
        let result = self.feed_held();
        self.work.retire();
        self.work.announce();
        result.map(|()| true)
    }

    /// Queues a zero-length RDMA write without a work request: the RTR frame of an initiator (RFC 6581,
    /// section 9.1), or a nudge for a peer that seems not to have seen what came last.
    pub fn queue_rtr(&mut self) {
        self.tx.rtr += 1;
    }

    /// Whether it still waits for the peer's first FPDU before it sends.
    pub fn is_held(&self) -> bool {
        self.hold
    }

    /// Sends from now on, although no FPDU came.
    pub fn release(&mut self) {
        self.hold = false;
    }

    /// Everything is done that a graceful close waits for: no request queued or outstanding, no answer owed, no frame
    /// half sent.
    pub fn is_drained(&self) -> bool {
        !self.work.has_requests()
            && self.answers.is_empty()
            && !self.is_half_sent()
            && self.tx.rtr == 0
    }

    /// Whether the peer has RFC 7306's operations as we have them.
    pub fn is_extended(&self) -> bool {
        self.extended
    }

    /// Whether the octets received so far end inside a message: the peer was cut off.
    pub fn is_mid_message(&self) -> bool {
        self.rx.is_mid_message() || self.reads.placed > 0
    }

    /// Completes everything posted and not completed as flushed: also what is posted later, if called again then.
    /// Nothing is sent or received any more.
    pub fn flush(&mut self) {
        self.failure.get_or_insert(Failure { by_peer: false, cause: Cause::MPA_STREAM_LOST });
        self.answers = Answers::default();
        self.tx.abandon();
        self.work.flush();
    }

    /// The queue pair's half that completes work.
    pub fn work(&self) -> &Work {
        &self.work
    }

    #[cfg(test)]
    pub(super) fn work_mut(&mut self) -> &mut Work {
        &mut self.work
    }

    /// Counters.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Ends the stream; what is posted and not completed stays in the queues until [`Work::flush`].
    pub fn into_work(self) -> Work {
        self.work
    }

    #[inline]
    pub(super) fn alive(&self) -> Result<(), Failure> {
        match self.failure {
            None => Ok(()),
            Some(failure) => Err(failure),
        }
    }

    /// Ends the stream for a reason of ours.
    #[cold]
    pub(super) fn fail(&mut self, terminate: Terminate) -> Failure {
        let failure = Failure { by_peer: false, cause: terminate.cause };
        self.failure = Some(failure);
        self.last_words = Some(Box::new(terminate));
        failure
    }
}
