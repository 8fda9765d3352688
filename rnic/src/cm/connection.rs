//! One connection: its two ends, its messages, and the repetition of messages.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use wire::cm::{Answered, Drep, Dreq, MAD_SIZE, Mad, Message, Mra, Reason, Rej, Rtu, Timeout};

use super::Transmit;
use super::hand_over::Adoption;
use super::incoming_req::{PeerQp, Pending, RequestKey};
use super::state::State;

/// The service timeout in the MRAs that this side sends: 65 s, as Linux uses.
const MRA_SERVICE_TIMEOUT: Timeout = Timeout::new(24);
/// The maximum extra time that an MRA gives a peer. All MRAs for one REP together give no more.
pub(super) const MAX_MRA_WAIT: Duration = Duration::from_secs(180);

/// A connection.
pub(super) struct Conn {
    pub(super) id: u32,
    pub(super) state: State,
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    /// The queue pair of this side. `None` while the passive program has not accepted.
    pub(super) qpn: Option<u32>,
    /// The peer's IDs and numbers. They are zeros until the peer has sent them.
    pub(super) peer: Peer,
    /// The transaction ID of the REQ and of the answers to it.
    pub(super) transaction: u64,
    /// The transaction ID of the DREQ that waits for its answer.
    pub(super) dreq_transaction: u64,
    /// The time to wait for an answer, including the time of one round trip.
    pub(super) interval: Duration,
    /// The number of times that a message is repeated.
    pub(super) retries: u8,
    /// The time that a requester waits for an ACK. No packet that a requester sends is under way
    /// for longer.
    pub(super) ack_timeout: Timeout,
    /// The time for which the connection is kept after its end.
    pub(super) retention: Duration,
    /// Whether no more events of the connection are reported, because the last event was reported
    /// or the program has forgotten the connection.
    pub(super) muted: bool,
    /// Whether the connection broke on this side. A DREQ tells the peer that the connection broke.
    pub(super) broke: bool,
    /// Whether an MRA has shown that the peer has received the REP.
    pub(super) rep_is_seen: bool,
    /// The request's place in the listener's backlog. `None` if the connection is not a request
    /// that waits for a decision.
    pub(super) pending: Option<Pending>,
    /// The record of the manager that handed the request over. `None` if the request was not handed
    /// over.
    pub(super) adoption: Option<Arc<Adoption>>,
    /// The time at which the REQ was last repeated. Repetitions that were ignored do not count.
    pub(super) last_repeat: Option<Instant>,
    pub(super) kept: Option<Box<KeptMessage>>,
    /// The time at which the current state ends.
    pub(super) deadline: Option<Instant>,
    /// The time at which the timer of [`Cm`](super::Cm) for this connection expires.
    pub(super) armed: Option<Instant>,
}

/// A DREQ with this private data tells the peer that the connection broke on the sender's side, so
/// that both programs get the same event. This is a convention of OpenDAT: other receivers ignore
/// the private data of a DREQ.
pub(super) const BROKEN_PRIVATE_DATA: &[u8] = b"OpenDAT: broken";
/// The time before the first repetition of a DREQ. It doubles with each repetition, up to the
/// interval of other messages. The time is short because the process that ends a connection may
/// exit soon, and a peer that has nothing to send would never learn of the end.
const FIRST_DREQ_REPEAT: Duration = Duration::from_millis(16);

/// The data about the peer that its messages contained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Peer {
    pub(super) id: u32,
    pub(super) ca_guid: u64,
    pub(super) qpn: u32,
}

/// A message that may be sent again.
pub(super) struct KeptMessage {
    pub(super) mad: [u8; MAD_SIZE],
    /// The timer that repeats the message. `None` if the message is repeated only when the peer
    /// asks for it.
    pub(super) repeat: Option<RepeatTimer>,
}

pub(super) struct RepeatTimer {
    pub(super) at: Instant,
    /// The current interval between two repetitions.
    after: Duration,
    left: u8,
    /// Whether an MRA has postponed this repetition. Only one MRA counts for each time that the
    /// message is sent, so that the peer cannot make this side wait for ever.
    mra_taken: bool,
}

impl Conn {
    /// Whether a datagram from `from` to `to` came from the other end of this connection.
    pub(super) fn is_between(&self, from: IpAddr, to: IpAddr) -> bool {
        self.remote.ip() == from && self.local.ip() == to
    }

    /// The values that identify the REQ of this connection.
    pub(super) fn request_key(&self) -> RequestKey {
        (self.remote.ip(), self.peer.ca_guid, self.peer.id)
    }

    /// The queue pair at the other end.
    pub(super) fn peer_qp(&self) -> PeerQp {
        (self.remote.ip(), self.peer.ca_guid, self.peer.qpn)
    }

    /// The next time at which the connection needs attention.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let repeat =
            self.kept.as_ref().and_then(|kept| kept.repeat.as_ref()).map(|repeat| repeat.at);
        [repeat, self.deadline].into_iter().flatten().min()
    }

    /// Keeps a message and repeats it until the state changes.
    pub(super) fn keep_repeating(&mut self, now: Instant, mad: [u8; MAD_SIZE]) {
        self.repeat_after(now, self.interval, mad);
    }

    fn repeat_after(&mut self, now: Instant, after: Duration, mad: [u8; MAD_SIZE]) {
        let repeat = RepeatTimer { at: now + after, after, left: self.retries, mra_taken: false };
        self.kept = Some(Box::new(KeptMessage { mad, repeat: Some(repeat) }));
    }

    /// Limits the time for which this side waits for the answer to its REP. Shortens the interval
    /// of repetitions, so that several REPs are sent within this time.
    pub(super) fn give_up_rtu_after(&mut self, now: Instant, wait: Duration) {
        self.deadline = Some(now + wait);
        if let Some(repeat) = self.kept.as_mut().and_then(|kept| kept.repeat.as_mut()) {
            repeat.after = repeat.after.min(wait / 4);
            repeat.at = repeat.at.min(now + repeat.after);
        }
    }

    /// Keeps a message, to be sent again when the peer asks for it.
    pub(super) fn keep(&mut self, mad: [u8; MAD_SIZE]) {
        self.kept = Some(Box::new(KeptMessage { mad, repeat: None }));
    }

    /// Repeats the kept message. Returns `None` if it has been repeated as often as allowed.
    /// Repetitions at shorter intervals than usual do not count.
    pub(super) fn repeat(&mut self, now: Instant) -> Option<Transmit> {
        let interval = self.interval;
        let kept = self.kept.as_mut()?;
        let mad = kept.mad;
        let repeat = kept.repeat.as_mut()?;
        let left = match repeat.after < interval {
            true => repeat.left,
            false => repeat.left.checked_sub(1)?,
        };
        let after = (2 * repeat.after).min(interval);
        *repeat = RepeatTimer { at: now + after, after, left, mra_taken: false };
        Some(self.datagram(mad))
    }

    /// Postpones the next repetition by the time that the peer's MRA requests.
    pub(super) fn take_mra(&mut self, now: Instant, service: Timeout) {
        if let Some(repeat) = self.kept.as_mut().and_then(|kept| kept.repeat.as_mut())
            && !repeat.mra_taken
        {
            repeat.at = now + service.duration().min(MAX_MRA_WAIT) + self.interval;
            repeat.mra_taken = true;
        }
    }

    pub(super) fn datagram(&self, mad: [u8; MAD_SIZE]) -> Transmit {
        Transmit { from: self.local.ip(), to: self.remote.ip(), mad }
    }

    pub(super) fn rtu(&self) -> Transmit {
        self.message(
            self.transaction,
            Message::Rtu(Rtu { local_id: self.id, remote_id: self.peer.id, private: &[] }),
        )
    }

    /// Makes an MRA, which asks the peer to wait for the decision. Gives the program of this side
    /// the same time to decide.
    pub(super) fn mra(&mut self, now: Instant) -> Transmit {
        self.deadline = Some(now + MRA_SERVICE_TIMEOUT.duration() + 2 * self.interval);
        let mra = Mra {
            local_id: self.id,
            remote_id: self.peer.id,
            answered: Answered::Req,
            service_timeout: MRA_SERVICE_TIMEOUT,
            private: &[],
        };
        self.message(self.transaction, Message::Mra(mra))
    }

    /// Makes a DREQ, and keeps it for repetition.
    pub(super) fn dreq(&mut self, now: Instant, transaction: u64) -> Transmit {
        let private = if self.broke { BROKEN_PRIVATE_DATA } else { &[] };
        let dreq =
            Dreq { local_id: self.id, remote_id: self.peer.id, remote_qpn: self.peer.qpn, private };
        let dreq = self.message(transaction, Message::Dreq(dreq));
        self.repeat_after(now, FIRST_DREQ_REPEAT.min(self.interval), dreq.mad);
        dreq
    }

    /// Makes the answer to a DREQ.
    pub(super) fn drep(&self, transaction: u64) -> Transmit {
        self.message(
            transaction,
            Message::Drep(Drep { local_id: self.id, remote_id: self.peer.id, private: &[] }),
        )
    }

    /// Makes a REJ that rejects the REQ. Like Linux's REJ, it contains no ID of this side.
    pub(super) fn rej_of_req(&self, reason: Reason, private: &[u8]) -> Transmit {
        let rej = Rej {
            local_id: 0,
            remote_id: self.peer.id,
            answered: Answered::Req,
            reason,
            ari: &[],
            private,
        };
        self.message(self.transaction, Message::Rej(rej))
    }

    /// Makes a REJ that ends the connection. If it is possible that the peer has not sent its ID,
    /// the REJ contains the CA GUID, by which the peer finds the connection.
    pub(super) fn rej(&self, reason: Reason, ca_guid: u64) -> Transmit {
        let ari = ca_guid.to_be_bytes();
        let rej = Rej {
            local_id: self.id,
            remote_id: self.peer.id,
            answered: Answered::Other,
            reason,
            ari: if reason == Reason::TIMEOUT { &ari } else { &[] },
            private: &[],
        };
        self.message(self.transaction, Message::Rej(rej))
    }

    fn message(&self, transaction: u64, message: Message<'_>) -> Transmit {
        self.datagram(Mad { transaction, message }.emit())
    }
}
