//! The engine of an established connection, between a queue pair and the octets of a TCP stream.

use std::hash::{BuildHasher, RandomState};

use wire::iwarp::{Cause, Terminate, mpa::fpdu};
use work::cause::Cause as Told;

use super::answer::Answers;
use super::placement::Writes;
use super::rx::Rx;
use super::tx::Tx;
use super::vec::{RxVec, TxVec};
use crate::qp::Work;
use crate::wr::{Arrival, OpSet};

/// The parameters that the setup of the connection has negotiated.
#[derive(Clone, Copy, Debug)]
pub struct StreamCfg {
    /// The maximum size of a ULPDU, in octets: [`wire::iwarp::mpa::fpdu::mulpdu_for_mss`] of TCP's
    /// MSS, or more if both sides accept larger FPDUs. The value is clamped to 128..=65535.
    pub mulpdu: usize,
    /// Whether FPDUs carry CRCs, in both directions.
    pub crc: bool,
    /// Whether the peer is an OpenDAT, too. Both sides support the operations of RFC 7306
    /// (immediate data and atomic operations), and report placed writes. A responder learns this
    /// from the peer's first frame: see [`Stream::peer_is_opendat`].
    pub extended: bool,
    /// Whether a signalled RDMA write completes when the peer has reported that it is placed. If
    /// false, or if the peer does not report that, the write completes when TCP has accepted it.
    pub completes_placed: bool,
    /// The maximum number of RDMA reads and atomic operations that this side accepts from the peer
    /// at a time.
    pub ird: u32,
    /// The maximum number of RDMA reads and atomic operations outstanding at the peer. If it is 0,
    /// a posted read or atomic operation never starts.
    pub ord: u32,
    /// Whether this side is the responder of the setup. A responder sends nothing before the peer's
    /// first FPDU (RFC 5044, section 7.1.3) or a call of [`Stream::release`].
    pub hold: bool,
    /// TCP's segment size (MSS), if frames must be gathered so that no CRC lies across two TCP
    /// segments. Otherwise 0. TCP must start a segment where [`TxVec::ends_record`] requires it.
    /// siw in Linux (6.12) misreads a CRC that lies across two segments, because `siw_get_trailer`
    /// starts again with the second segment.
    pub segment: usize,
    /// Whether a message for which no receive is posted waits for one ([`Stream::is_stalled`]). All
    /// octets that the peer has sent after this message wait, too. If false, the message ends the
    /// connection (RFC 5041, section 7.1).
    pub waits: bool,
}

impl StreamCfg {
    fn mulpdu(&self) -> usize {
        self.mulpdu.clamp(fpdu::MIN_MULPDU, fpdu::MAX_ULPDU)
    }

    /// The operations that both sides support.
    fn operations(&self) -> OpSet {
        if self.extended { OpSet::Extended } else { OpSet::Basic }
    }
}

/// The reason for which the connection cannot continue. If a work request is the cause, it
/// completes with a status of its own: a receive completes at once, and a request completes when
/// [`Stream::flush`] is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {cause}", if *by_peer { "TERMINATE received" } else { "stream error" })]
pub struct Failure {
    /// Whether the peer has sent a TERMINATE. If false, this side must send one: see
    /// [`Stream::terminate`].
    pub by_peer: bool,
    /// The cause of the failure.
    pub cause: Cause,
}

/// Counters of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// The number of octets that TCP has accepted.
    pub tx_octets: u64,
    /// The number of messages that TCP has accepted, of any kind except TERMINATE.
    pub tx_messages: u64,
    /// The number of octets received from TCP.
    pub rx_octets: u64,
    /// The number of FPDUs received.
    pub rx_fpdus: u64,
    /// The number of messages received.
    pub rx_messages: u64,
    /// The number of octets of payload that the kernel has written straight to their destination,
    /// without a copy.
    pub rx_direct: u64,
    /// The number of messages that had to wait for a receive.
    pub rx_stalls: u64,
}

impl Stats {
    /// The names and values of the counters, always in the same order.
    pub fn list(&self) -> [(&'static str, u64); 7] {
        [
            ("octets-sent", self.tx_octets),
            ("messages-sent", self.tx_messages),
            ("octets-received", self.rx_octets),
            ("frames-received", self.rx_fpdus),
            ("messages-received", self.rx_messages),
            ("octets-received-in-place", self.rx_direct),
            ("messages-without-receive", self.rx_stalls),
        ]
    }
}

/// The engine's half of a connection. All calls are made under the engine lock.
///
/// ```text
/// on work or writable:  while stream.tx(&mut txvec)? > 0 {
///                           n = sendmsg(txvec.iov());
///                           stream.tx_done(&mut txvec, n)
///                       }
/// on readable:          stream.rx(&mut rxvec)?;
///                       n = readv(rxvec.iov());
///                       stream.rx_done(&mut rxvec, n)?
/// on EFAULT of these:   stream.tx_fault(&mut txvec)?, and the vector is sent again;
///                       stream.rx_fault()
/// on Err(failure):      if !failure.by_peer { send(stream.terminate()) };
///                       shutdown(WR); stream.flush(); tell the program
/// on FIN, reset:        stream.flush(); tell the program
/// ```
///
/// While the stream [is stalled](Stream::is_stalled), nothing is read from the socket. The caller
/// calls [`Stream::resume`] when a receive has been posted, and then reads the socket as if the
/// poller had just reported it. Sending continues while the stream is stalled.
///
/// `tx_done` and `rx_done` take the vector that `tx` or `rx` has filled, with no other call on the
/// same stream in between. After a failure, `tx` and `rx` return the same failure again.
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
    /// Requests of the peer that wait for their response. The response to the first request may be
    /// partly sent.
    pub(super) answers: Answers,
    pub(super) reads: Reads,
    pub(super) writes: Writes,
    pub(super) failure: Option<Failure>,
    /// The TERMINATE message for `failure`, until it is sent.
    pub(super) pending_terminate: Option<Box<Terminate>>,
    pub(super) stats: Stats,
}

/// This side's RDMA reads and atomic operations whose response has not arrived yet. Responses
/// arrive in the order of the requests.
pub(super) struct Reads {
    pub(super) outstanding: u32,
    /// The MSN of the next read or atomic operation to be sent.
    pub(super) next_msn: u32,
    /// The position of the oldest outstanding read or atomic operation in the send queue.
    pub(super) oldest: usize,
    /// The number of octets of the current READ response that have been placed.
    pub(super) placed: u32,
    /// The STag that this side's READ requests name as the destination of the response. No region
    /// has this STag. The tagged offset, which is used only once, shows whether a response belongs
    /// to the oldest read.
    pub(super) sink_stag: u32,
}

impl Reads {
    /// The tagged offset that the READ request with this MSN names as the destination of its
    /// response.
    #[inline]
    pub(super) fn sink_to(msn: u32) -> u64 {
        u64::from(msn) << 32
    }

    /// The MSN of the oldest outstanding read or atomic operation.
    #[inline]
    pub(super) fn oldest_msn(&self) -> u32 {
        self.next_msn.wrapping_sub(self.outstanding)
    }

    /// The tagged offset that the oldest READ request names as the destination of its response.
    #[inline]
    pub(super) fn oldest_sink_to(&self) -> u64 {
        Self::sink_to(self.oldest_msn())
    }
}

impl Stream {
    /// Creates a stream that is ready to send and receive. Nothing has been sent or received yet.
    pub fn new(work: Work, cfg: StreamCfg) -> Self {
        let reads = Reads {
            outstanding: 0,
            next_msn: 1,
            oldest: 0,
            placed: 0,
            sink_stag: RandomState::new().hash_one(0) as u32 | 1,
        };
        work.permit(cfg.operations());
        Stream {
            tx: Tx::new(work.oldest_request(), cfg.mulpdu(), cfg.segment),
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
            writes: Writes::new(cfg.extended && cfg.completes_placed),
            failure: None,
            pending_terminate: None,
            stats: Stats::default(),
        }
    }

    /// Replaces the parameters `mulpdu`, `segment`, `extended`, `completes_placed` and `waits` by
    /// those for an OpenDAT, because the peer has proved to be one
    /// ([`Recognition`](super::setup::Recognition)). Nothing may have been sent or received yet.
    pub fn peer_is_opendat(&mut self, cfg: &StreamCfg) {
        self.work.permit(cfg.operations());
        self.tx.set_sizes(cfg.mulpdu(), cfg.segment);
        (self.extended, self.waits) = (cfg.extended, cfg.waits);
        self.writes = Writes::new(cfg.extended && cfg.completes_placed);
    }

    /// Carries out binds and gathers frames that are ready to be sent, from the last accepted octet
    /// on. Returns the number of octets, at most about 1 MiB, or 0 if nothing is ready.
    pub fn tx(&mut self, tx: &mut TxVec) -> Result<usize, Failure> {
        self.gather(tx)?;
        Ok(tx.octets())
    }

    /// Completes requests after TCP has accepted the first `n` octets that [`tx`](Self::tx)
    /// gathered.
    pub fn tx_done(&mut self, tx: &mut TxVec, n: usize) {
        self.accepted(tx, n);
        self.work.retire();
        self.work.announce();
    }

    /// Handles `EFAULT`: registered memory that [`tx`](Self::tx) gathered is no longer mapped, so
    /// the kernel could not read it and has accepted nothing. If the vector holds only one message,
    /// that message fails. If the vector holds several messages, only the first message stays in
    /// it. The caller sends this message, and then calls `tx_done` as usual or, after another
    /// `EFAULT`, this function again.
    #[cold]
    pub fn tx_fault(&mut self, tx: &mut TxVec) -> Result<(), Failure> {
        let result = self.faulted(tx);
        self.work.announce();
        result
    }

    /// Returns whether [`tx`](Self::tx) would gather a frame or bind a window. This check is cheap.
    pub fn wants_tx(&self) -> bool {
        self.failure.is_none() && !self.hold && (self.is_partly_sent() || self.has_ready())
    }

    /// Determines the memory into which the next octets are read. The rest of a payload goes to its
    /// destination in registered memory, and the octets after it go to the stage.
    pub fn rx(&mut self, rx: &mut RxVec) -> Result<(), Failure> {
        self.check_failure()?;
        let result = self.scatter(rx);
        self.work.announce();
        result
    }

    /// Processes the first `n` octets that were read into the memory that [`rx`](Self::rx)
    /// determined: parses frames, places payload and completes work. Answers to the peer's requests
    /// then wait for [`tx`](Self::tx).
    pub fn rx_done(&mut self, rx: &mut RxVec, n: usize) -> Result<(), Failure> {
        self.check_failure()?;
        let result = self.scattered(rx, n);
        self.work.retire();
        self.work.announce();
        result
    }

    /// Processes octets that are already in memory.
    pub fn rx_octets(&mut self, octets: &[u8]) -> Result<(), Failure> {
        self.check_failure()?;
        self.stats.rx_octets += octets.len() as u64;
        let result = self.feed(octets);
        self.work.retire();
        self.work.announce();
        result
    }

    /// Returns whether a read of `n` octets may have ended at memory that is no longer mapped, and
    /// not at the end of the socket's data.
    #[inline]
    pub fn may_fault_behind(&self, rx: &RxVec, n: usize) -> bool {
        !self.crc && n < rx.direct()
    }

    /// Handles `EFAULT` of a read: the destination of the current message is no longer mapped.
    #[cold]
    pub fn rx_fault(&mut self) -> Failure {
        let failure = self.check_failure().err().unwrap_or_else(|| self.destination_fault());
        self.work.retire();
        self.work.announce();
        failure
    }

    /// Returns whether the next message of the peer waits for a receive. All octets after the
    /// message wait, too.
    #[inline]
    pub fn is_stalled(&self) -> bool {
        self.rx.is_stalled()
    }

    /// The message that waits for a receive.
    pub fn stalled(&self) -> Option<Arrival> {
        self.is_stalled().then(|| self.rx.arrival())
    }

    /// Queues this stream for buffers of a shared receive queue: see [`Work::wait_for_recv`].
    pub fn wait_for_recv(&mut self, number: usize) {
        self.work.wait_for_recv(number);
    }

    /// If there now is a receive for the waiting message, processes the message and the octets that
    /// have arrived after it. Returns false if the message still waits.
    pub fn resume(&mut self) -> Result<bool, Failure> {
        self.check_failure()?;
        if !self.is_stalled() || !self.work.has_recv() {
            return Ok(!self.is_stalled());
        }
        let result = self.feed_backlog();
        self.work.retire();
        self.work.announce();
        result.map(|()| true)
    }

    /// Returns whether a report of placed writes is due.
    #[inline]
    pub fn owes_report(&self) -> bool {
        self.writes.owes_report()
    }

    /// Returns whether a report of placed writes is all that [`tx`](Self::tx) would gather. It can
    /// wait a moment for a message that this side sends anyway.
    #[inline]
    pub fn owes_only_report(&self) -> bool {
        self.writes.owes_report() && !self.is_partly_sent() && !self.has_ready_beside_report()
    }

    /// Queues a zero-length RDMA write without a work request: the RTR frame of an initiator (RFC
    /// 6581, section 9.1), or a probe of a peer that may have missed the latest data. If both sides
    /// are OpenDATs, it begins with the [`SIGNATURE`](super::setup::SIGNATURE).
    pub fn queue_rtr(&mut self) {
        self.tx.rtr += 1;
    }

    /// Returns whether this side still waits for the peer's first FPDU before it sends.
    pub fn is_held(&self) -> bool {
        self.hold
    }

    /// Lets this side send although no FPDU of the peer has arrived.
    pub fn release(&mut self) {
        self.hold = false;
    }

    /// Returns whether a graceful close can finish: no request is queued or outstanding, no answer
    /// or report is due, and no frame is partly sent.
    pub fn is_drained(&self) -> bool {
        !self.work.has_requests()
            && self.answers.is_empty()
            && !self.is_partly_sent()
            && self.tx.rtr == 0
            && !self.writes.owes_report()
    }

    /// Returns whether the operations of RFC 7306 are supported by both the peer and this side.
    pub fn is_extended(&self) -> bool {
        self.extended
    }

    /// Returns whether the octets received so far end inside a message. If the stream ends there,
    /// the peer was cut off.
    pub fn is_mid_message(&self) -> bool {
        self.rx.is_mid_message() || self.reads.placed > 0
    }

    /// Completes all outstanding work with the status "flushed". From now on no octet is sent or
    /// received. Call this again for work that is posted later.
    pub fn flush(&mut self) {
        self.failure.get_or_insert(Failure { by_peer: false, cause: Cause::MPA_STREAM_LOST });
        self.answers = Answers::default();
        self.tx.abandon();
        self.work.flush();
    }

    /// The half of the queue pair that completes work.
    pub fn work(&self) -> &Work {
        &self.work
    }

    #[cfg(test)]
    pub(super) fn work_mut(&mut self) -> &mut Work {
        &mut self.work
    }

    /// The counters of the stream.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Ends the stream. Posted work that has not completed stays in the queues until
    /// [`Work::flush`].
    pub fn into_work(self) -> Work {
        self.work
    }

    #[inline]
    pub(super) fn check_failure(&self) -> Result<(), Failure> {
        match self.failure {
            None => Ok(()),
            Some(failure) => Err(failure),
        }
    }

    /// Ends the stream because of a failure that this side has detected. Keeps the TERMINATE
    /// message to be sent.
    #[cold]
    pub(super) fn fail(&mut self, terminate: Terminate) -> Failure {
        let failure = Failure { by_peer: false, cause: terminate.cause };
        // If the reason was a mistake of a program, it has been reported before.
        self.work.report(Told::Protocol { by_peer: false, what: terminate.cause.to_string() });
        self.failure = Some(failure);
        self.pending_terminate = Some(Box::new(terminate));
        failure
    }
}
