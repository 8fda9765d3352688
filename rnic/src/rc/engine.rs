//! The engine of an established connection: queue pair on one side, packets on the other.

use std::time::{Duration, Instant};

use wire::rocev2::{Bth, NakCode, Packet, PathMtu, Psn, RnrTimer};

use super::burst::Burst;
use super::messages::Message;
use super::requester::Requester;
use super::responder::Responder;
use super::rest::Rest;
use crate::qp::Work;
use crate::wr::Arrival;

/// What connection management agreed on, and the two ends' own choices.
#[derive(Clone, Copy, Debug)]
pub struct RcCfg {
    /// Octets of payload in a packet.
    pub mtu: PathMtu,
    /// The peer's queue pair.
    pub peer_qpn: u32,
    /// The partition.
    pub p_key: u16,
    /// Our first packet's number: the starting PSN that the peer told us.
    pub sq_psn: Psn,
    /// The peer's first packet's number: the starting PSN that we told the peer.
    pub rq_psn: Psn,
    /// RDMA reads and atomic operations outstanding at the peer at most. With 0 a posted one never starts.
    pub initiator_depth: u32,
    /// RDMA reads and atomic operations of the peer held here at most, until others take their place.
    pub responder_resources: u32,
    /// The local ACK timeout: 4.096 µs << n, at least 32 ms; 0: never.
    pub ack_timeout: u8,
    /// Timeouts in a row after which the requester goes on.
    pub retries: u8,
    /// RNR NAKs in a row after which the requester goes on; 7: any number.
    pub rnr_retries: u8,
    /// How long the peer shall wait when no receive is posted here.
    pub rnr_timer: RnrTimer,
    /// PSNs in flight at most, 1 to 2^20. What the peer's socket can hold is a good measure.
    pub window: u32,
}

/// The connection cannot go on (IBA: the queue pair enters the error state). The work request concerned, if
/// there is one, completes with its own status, in its turn: a receive at once, a request when [`Rc::flush`]
/// is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The peer refused a request of ours.
    #[error("the peer answered a request with a NAK: {0}")]
    Refused(NakCode),
    /// A request of the peer is refused; [`Rc::last_words`] tells it.
    #[error("a request of the peer was refused: {0}")]
    Refusing(NakCode),
    /// The peer is silent, whatever is sent again.
    #[error("the peer does not answer")]
    Silent,
    /// The peer is silent when it is [asked](Rc::challenge) whether it still has the connection.
    #[error("the peer does not answer, and its queue pair is said to be in another connection")]
    Stale,
    /// The peer has no receive posted, however long we wait.
    #[error("the peer had no receive buffer each time it was asked")]
    ReceiverNotReady,
    /// The peer's answer does not fit the request.
    #[error("the peer's response makes no sense")]
    BadResponse,
    /// Memory of a request of ours is registered no more, or a request is longer than 2^31 octets.
    #[error("a request could not be carried out on this side")]
    Local,
    /// [`Rc::flush`] was called.
    #[error("the queue pair was flushed")]
    Flushed,
}

/// Counters of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Packets put into bursts.
    pub tx_packets: u64,
    /// Of these, requests sent again.
    pub repeated: u64,
    /// Requests that have completed.
    pub tx_messages: u64,
    /// Packets taken.
    pub rx_packets: u64,
    /// Of these, requests taken before.
    pub duplicates: u64,
    /// Of these, requests behind one that is missing.
    pub out_of_order: u64,
    /// Of these, answers to nothing that is in flight.
    pub unexpected: u64,
    /// Of these, NAKs for a PSN sequence error.
    pub rx_sequence_naks: u64,
    /// Of these, RNR NAKs.
    pub rx_rnr_naks: u64,
    /// Requests of the peer that are complete.
    pub rx_messages: u64,
    /// NAKs for a PSN sequence error, made for the peer.
    pub tx_sequence_naks: u64,
    /// RNR NAKs, made for the peer.
    pub tx_rnr_naks: u64,
    /// Times nothing was heard and the oldest packet was sent again before the ACK timeout.
    pub probes: u64,
    /// ACK timeouts.
    pub timeouts: u64,
}

impl Stats {
    /// Names and values, in the same order for all.
    pub fn list(&self) -> [(&'static str, u64); 14] {
        [
            ("packets-sent", self.tx_packets),
            ("packets-sent-again", self.repeated),
            ("requests-completed", self.tx_messages),
            ("packets-received", self.rx_packets),
            ("packets-received-again", self.duplicates),
            ("packets-out-of-order", self.out_of_order),
            ("answers-unexpected", self.unexpected),
            ("sequence-naks-received", self.rx_sequence_naks),
            ("rnr-naks-received", self.rx_rnr_naks),
            ("requests-served", self.rx_messages),
            ("sequence-naks-sent", self.tx_sequence_naks),
            ("rnr-naks-sent", self.tx_rnr_naks),
            ("probes", self.probes),
            ("ack-timeouts", self.timeouts),
        ]
    }
}

/// Octets of a message at most (IBA, section 9.7.4.1.6).
pub const MAX_MESSAGE: u32 = 1 << 31;

/// The engine's half of a connection. Under the engine lock.
///
/// ```text
/// on a packet:            rc.receive(now, &packet)?
/// on work, or after that: while rc.wants_tx() { rc.transmit(now, &mut burst)?; send }
/// when no packet is left: if rc.owes_ack() { rc.acknowledge(&mut burst); send }
/// at rc.deadline():       rc.expire(now)?
/// on Err(failure):        rc.last_words(&mut burst); send; rc.flush(); upcall
/// ```
///
/// An acknowledgement is not urgent: it waits for [`acknowledge`](Self::acknowledge), unless the peer has
/// asked for many. So it stays out of the way of an answer that the consumer sends first.
///
/// A READ of the peer is carried out by `transmit`, which makes its responses, other requests by `receive`:
/// so whoever wants it to find what was there before a later request calls the one before the other.
///
/// A packet that is not of this connection's window, or that has been taken before, changes nothing. After a failure
/// `receive`, `transmit` and `expire` repeat it.
pub struct Rc {
    work: Work,
    path: Path,
    requester: Requester,
    responder: Responder,
    failure: Option<Failure>,
    stats: Stats,
}

/// Where packets go, and how long they are.
#[derive(Clone, Copy)]
pub(super) struct Path {
    pub(super) mtu: PathMtu,
    pub(super) peer_qpn: u32,
    pub(super) p_key: u16,
}

impl Path {
    /// The BTH of a packet to the peer.
    #[inline]
    pub(super) fn bth(&self, opcode: wire::rocev2::Opcode, psn: Psn) -> Bth {
        // As HCAs that do not migrate paths say.
        Bth { p_key: self.p_key, migrated: true, ..Bth::new(opcode, self.peer_qpn, psn) }
    }
}

impl Rc {
    /// The engine of a connection over which nothing has been sent or received yet.
    pub fn new(work: Work, cfg: RcCfg, now: Instant) -> Self {
        // RC always knows immediate data and atomic operations.
        work.set_extended(true);
        Rc {
            path: Path { mtu: cfg.mtu, peer_qpn: cfg.peer_qpn, p_key: cfg.p_key },
            requester: Requester::new(work.oldest_request(), &cfg, now),
            responder: Responder::new(&cfg),
            work,
            failure: None,
            stats: Stats::default(),
        }
    }

    /// Takes a packet of this queue pair, whose ICRC is right and which came from the peer's address: places,
    /// completes. What is to be answered waits for [`transmit`](Self::transmit) or
    /// [`acknowledge`](Self::acknowledge).
    #[inline]
    pub fn receive(&mut self, now: Instant, packet: &Packet<'_>) -> Result<(), Failure> {
        self.alive()?;
        if !Bth::same_partition(packet.bth.p_key, self.path.p_key) {
            return Ok(());
        }
        self.stats.rx_packets += 1;
        let opcode = packet.bth.opcode;
        let Rc { work, path, requester, responder, stats, .. } = self;
        let result = if opcode.is_response() {
            let result = requester.receive(work, path, now, packet, stats);
            stats.tx_messages += work.retire();
            result
        } else if opcode.is_request() {
            responder.receive(work, path, packet, stats)
        } else {
            // Datagrams, and congestion notifications: the window heeds losses alone.
            Ok(())
        };
        self.work.announce();
        result.map_err(|failure| self.fail(failure))
    }

    /// Whether a message of the peer has come in part.
    #[inline]
    pub fn is_mid_message(&self) -> bool {
        !matches!(self.responder.message, Message::None)
    }

    /// A message for which there was no receive, the first time that the peer is told to send it again.
    pub fn take_stalled(&mut self) -> Option<Arrival> {
        self.responder.take_stalled()
    }

    /// Adds what may be sent now to a burst: responses first, then requests, until the burst is full or the window is.
    /// Carries out binds. The burst was made for this MTU or a larger one.
    pub fn transmit(&mut self, now: Instant, burst: &mut Burst) -> Result<(), Failure> {
        self.alive()?;
        let before = burst.len();
        let Rc { work, path, requester, responder, stats, .. } = self;
        let mut result = Ok(());
        if responder.is_ready() {
            // A peer that reads all the time leaves some room for our own requests.
            let kept = if requester.is_ready(work) { burst.room() / 4 } else { 0 };
            result = responder.transmit(work, path, burst, kept);
        }
        let result = result.and_then(|()| requester.transmit(work, path, now, burst, stats));
        stats.tx_packets += (burst.len() - before) as u64;
        result.map_err(|failure| self.fail(failure))
    }

    /// Adds the acknowledgement that is owed, if there is one and it may be sent: not before the responses to
    /// earlier READs.
    #[inline]
    pub fn acknowledge(&mut self, burst: &mut Burst) {
        if self.failure.is_none() && self.responder.acknowledge(&self.path, burst) {
            self.stats.tx_packets += 1;
        }
    }

    /// After a [`Failure`]: adds the NAK that tells the peer, if it is to be told. Once, and before
    /// [`flush`](Self::flush).
    pub fn last_words(&mut self, burst: &mut Burst) {
        if self.failure.is_some() && self.responder.last_words(&self.path, burst) {
            self.stats.tx_packets += 1;
        }
    }

    /// Whether [`transmit`](Self::transmit) would add or bind something. Cheap.
    #[inline]
    pub fn wants_tx(&self) -> bool {
        self.failure.is_none() && (self.responder.is_ready() || self.requester.is_ready(&self.work))
    }

    /// Whether [`acknowledge`](Self::acknowledge) would add something.
    #[inline]
    pub fn owes_ack(&self) -> bool {
        self.failure.is_none() && self.responder.owes_ack()
    }

    /// When [`expire`](Self::expire) is to be called. Changes with each call; may be earlier than needed.
    #[inline]
    pub fn deadline(&self) -> Option<Instant> {
        if self.failure.is_some() { None } else { self.requester.deadline() }
    }

    /// A deadline may have passed: what is to be sent again then waits for [`transmit`](Self::transmit).
    pub fn expire(&mut self, now: Instant) -> Result<(), Failure> {
        self.alive()?;
        let Rc { work, requester, stats, .. } = self;
        requester.expire(work, now, stats).map_err(|failure| self.fail(failure))
    }

    /// The peer's queue pair is said to be in another connection: asks the peer whether it still has this
    /// one. It is asked again by [`ask_again`](Self::ask_again). If it does not answer,
    /// [`expire`](Self::expire) fails with [`Failure::Stale`].
    pub fn challenge(&mut self, now: Instant, burst: &mut Burst) {
        if self.failure.is_none() {
            self.requester.challenge(now);
            self.ask_again(now, burst);
        }
    }

    /// At [`deadline`](Self::deadline): adds the question of [`challenge`](Self::challenge), if it is to be
    /// asked again; whether it was.
    pub fn ask_again(&mut self, now: Instant, burst: &mut Burst) -> bool {
        let asks = self.failure.is_none() && self.requester.send_challenge(&self.path, now, burst);
        self.stats.tx_packets += u64::from(asks);
        asks
    }

    /// For how long nothing new has been acknowledged, if something is in flight; else for how long a
    /// [question](Self::challenge) has not been answered, if there is one.
    pub fn quiet_for(&self, now: Instant) -> Option<Duration> {
        self.requester.quiet_for(now)
    }

    /// Whether the next ACK timeout ends the connection if nothing is heard until then.
    pub fn is_last_try(&self) -> bool {
        self.requester.clocks.is_last_try()
    }

    /// The peer does not answer, but is known to live: it is stopped, or the network is down for a while. For
    /// two ACK timeouts the connection does not fail for its silence, whatever the retries.
    pub fn peer_lives(&mut self, now: Instant) {
        self.requester.peer_lives(now);
    }

    /// Whether a packet shows by its number that it is the peer's: the next one of its requests, the answer to one in
    /// flight, or that to [`challenge`](Self::challenge) as adapters give it. Who has not seen the connection's packets
    /// has to guess the number.
    pub fn proves_peer(&self, packet: &Packet<'_>) -> bool {
        let (opcode, psn) = (packet.bth.opcode, packet.bth.psn);
        match opcode.is_response() {
            true => self.requester.is_awaited(psn) || self.requester.answers_challenge(psn),
            false => opcode.is_request() && psn == self.responder.expected,
        }
    }

    /// The peer takes its leave: it takes nothing new, but may have taken what it has not acknowledged. That
    /// is sent again until it is acknowledged, or the peer has been silent for 50 ms (16 round trips, where
    /// these are longer), or 2 s are over, or the retries are used up. What was never sent stays unsent. When
    /// [`is_wound_up`](Self::is_wound_up): [`flush`](Self::flush).
    pub fn wind_up(&mut self, now: Instant) {
        let Rc { work, path, requester, stats, .. } = self;
        requester.wind_up(work, path.mtu, now, stats);
    }

    /// After [`wind_up`](Self::wind_up): whether nothing that is posted can complete any more but as flushed.
    pub fn is_wound_up(&self) -> bool {
        self.requester.is_wound_up(&self.work, self.path.mtu)
    }

    /// Everything is done that a graceful close waits for: no request queued or in flight, no answer owed.
    pub fn is_drained(&self) -> bool {
        let answered = !self.responder.is_ready() && !self.responder.owes_ack();
        !self.work.has_requests() && answered
    }

    /// Completes everything posted and not completed as flushed: also what is posted later, if called again then.
    /// Nothing is sent or received any more.
    pub fn flush(&mut self) {
        self.failure.get_or_insert(Failure::Flushed);
        self.responder.abandon();
        self.work.flush();
    }

    /// The queue pair's half that completes work.
    pub fn work(&self) -> &Work {
        &self.work
    }

    /// Counters.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Ends the engine; what is posted and not completed stays in the queues until [`Work::flush`].
    pub fn into_work(self) -> Work {
        self.work
    }

    /// Ends the engine, and completes everything posted as flushed; but what the peer has been told it is
    /// told again if it asks.
    pub fn into_rest(self) -> Rest {
        Rest::new(self.work, self.path, self.responder)
    }

    #[inline]
    fn alive(&self) -> Result<(), Failure> {
        match self.failure {
            None => Ok(()),
            Some(failure) => Err(failure),
        }
    }

    #[cold]
    fn fail(&mut self, failure: Failure) -> Failure {
        self.failure = Some(failure);
        failure
    }
}
