//! One connection: who is at its ends, what it says, when it says it again.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use wire::cm::{Answered, Drep, Dreq, MAD_SIZE, Mad, Message, Mra, Reason, Rej, Rtu, Timeout};

use super::Transmit;
use super::request::{PeerQp, Pending, RequestKey};
use super::state::State;

/// What an MRA of ours asks for: 65 s, Linux's choice.
const SERVICE_TIMEOUT: Timeout = Timeout::new(24);
/// What an MRA of a peer gets at most; and all MRAs of a REP together.
pub(super) const MAX_WAIT: Duration = Duration::from_secs(180);

/// A connection.
pub(super) struct Conn {
    pub(super) id: u32,
    pub(super) state: State,
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    /// Ours; `None` while the passive consumer has not accepted.
    pub(super) qpn: Option<u32>,
    /// Zeros until the peer has said them.
    pub(super) peer: Peer,
    /// Of the REQ, and so of what answers to it.
    pub(super) transaction: u64,
    /// Of the DREQ that is to be answered.
    pub(super) dreq_transaction: u64,
    /// How long an answer may take, with the way there and back.
    pub(super) interval: Duration,
    /// How often a message is repeated.
    pub(super) retries: u8,
    /// How long a requester waits for an ACK: what it sends lives no longer.
    pub(super) ack_timeout: Timeout,
    /// How long the connection is kept when it is over.
    pub(super) linger: Duration,
    /// Its consumer has heard the last of it, or does not want to.
    pub(super) silent: bool,
    /// It broke here, which a DREQ says.
    pub(super) broke: bool,
    /// An MRA has shown that the peer has seen the REP.
    pub(super) rep_is_seen: bool,
    /// Passive, and not decided on.
    pub(super) pending: Option<Pending>,
    /// The time of the last repetition of its REQ that was not ignored.
    pub(super) last_repeat: Option<Instant>,
    pub(super) kept: Option<Box<Kept>>,
    /// When the time for this state is over.
    pub(super) deadline: Option<Instant>,
    /// When [`Cm`](super::Cm) will look at it.
    pub(super) armed: Option<Instant>,
}

/// Private data of the DREQ of a connection that broke at its sender, so that both sides report the same. It is a
/// convention of OpenDAT: other receivers pass over the private data of a DREQ.
pub(super) const BROKE: &[u8] = b"OpenDAT: broken";
/// A DREQ is repeated after this time, then after twice as much, up to the interval of other messages: whoever ends a
/// connection may be gone soon, and a peer that has nothing to send would never learn of it.
const DREQ_REPEAT: Duration = Duration::from_millis(16);

/// What a peer says about itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Peer {
    pub(super) id: u32,
    pub(super) ca_guid: u64,
    pub(super) qpn: u32,
}

/// A message that may be sent again.
pub(super) struct Kept {
    pub(super) mad: [u8; MAD_SIZE],
    /// When it is repeated by itself; `None`: only when asked for.
    pub(super) repeat: Option<Repeat>,
}

pub(super) struct Repeat {
    pub(super) at: Instant,
    /// The time between the last two.
    after: Duration,
    left: u8,
    /// An MRA was taken. One for each time that the message is sent: the peer cannot make us wait for ever.
    waits: bool,
}

impl Conn {
    /// Whether a datagram came from the other end.
    pub(super) fn is_between(&self, from: IpAddr, to: IpAddr) -> bool {
        self.remote.ip() == from && self.local.ip() == to
    }

    /// What makes a REQ this connection's.
    pub(super) fn request(&self) -> RequestKey {
        (self.remote.ip(), self.peer.ca_guid, self.peer.id)
    }

    /// The queue pair at the other end.
    pub(super) fn peer_qp(&self) -> PeerQp {
        (self.remote.ip(), self.peer.ca_guid, self.peer.qpn)
    }

    /// The next time at which something is to be done.
    pub(super) fn next(&self) -> Option<Instant> {
        let repeat =
            self.kept.as_ref().and_then(|kept| kept.repeat.as_ref()).map(|repeat| repeat.at);
        [repeat, self.deadline].into_iter().flatten().min()
    }

    /// Keeps a message and repeats it until the state changes.
    pub(super) fn keep_repeating(&mut self, now: Instant, mad: [u8; MAD_SIZE]) {
        self.repeat_after(now, self.interval, mad);
    }

    fn repeat_after(&mut self, now: Instant, after: Duration, mad: [u8; MAD_SIZE]) {
        let repeat = Repeat { at: now + after, after, left: self.retries, waits: false };
        self.kept = Some(Box::new(Kept { mad, repeat: Some(repeat) }));
    }

    /// The answer to the REP is waited for no longer than this. A message that is lost is repeated in time.
    pub(super) fn give_up_rtu_after(&mut self, now: Instant, wait: Duration) {
        self.deadline = Some(now + wait);
        if let Some(repeat) = self.kept.as_mut().and_then(|kept| kept.repeat.as_mut()) {
            repeat.after = repeat.after.min(wait / 4);
            repeat.at = repeat.at.min(now + repeat.after);
        }
    }

    /// Keeps a message for when the peer asks again.
    pub(super) fn keep(&mut self, mad: [u8; MAD_SIZE]) {
        self.kept = Some(Box::new(Kept { mad, repeat: None }));
    }

    /// Repeats what is due. `None`: it has been repeated as often as it may, not counting what came sooner than usual.
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
        *repeat = Repeat { at: now + after, after, left, waits: false };
        Some(self.datagram(mad))
    }

    /// Takes an MRA.
    pub(super) fn take_mra(&mut self, now: Instant, service: Timeout) {
        if let Some(repeat) = self.kept.as_mut().and_then(|kept| kept.repeat.as_mut())
            && !repeat.waits
        {
            repeat.at = now + service.duration().min(MAX_WAIT) + self.interval;
            repeat.waits = true;
        }
    }

    pub(super) fn datagram(&self, mad: [u8; MAD_SIZE]) -> Transmit {
        Transmit { from: self.local.ip(), to: self.remote.ip(), mad }
    }

    pub(super) fn rtu(&self) -> Transmit {
        self.say(
            self.transaction,
            Message::Rtu(Rtu { local_id: self.id, remote_id: self.peer.id, private: &[] }),
        )
    }

    /// Asks the peer to wait for the decision, which is waited for as long here.
    pub(super) fn mra(&mut self, now: Instant) -> Transmit {
        self.deadline = Some(now + SERVICE_TIMEOUT.duration() + 2 * self.interval);
        let mra = Mra {
            local_id: self.id,
            remote_id: self.peer.id,
            answered: Answered::Req,
            service_timeout: SERVICE_TIMEOUT,
            private: &[],
        };
        self.say(self.transaction, Message::Mra(mra))
    }

    /// A DREQ, to be repeated.
    pub(super) fn dreq(&mut self, now: Instant, transaction: u64) -> Transmit {
        let private = if self.broke { BROKE } else { &[] };
        let dreq =
            Dreq { local_id: self.id, remote_id: self.peer.id, remote_qpn: self.peer.qpn, private };
        let dreq = self.say(transaction, Message::Dreq(dreq));
        self.repeat_after(now, DREQ_REPEAT.min(self.interval), dreq.mad);
        dreq
    }

    /// The answer to a DREQ.
    pub(super) fn drep(&self, transaction: u64) -> Transmit {
        self.say(
            transaction,
            Message::Drep(Drep { local_id: self.id, remote_id: self.peer.id, private: &[] }),
        )
    }

    /// Of the REQ, which the sender answers without an ID of its own (as Linux does).
    pub(super) fn rej_of_req(&self, reason: Reason, private: &[u8]) -> Transmit {
        let rej = Rej {
            local_id: 0,
            remote_id: self.peer.id,
            answered: Answered::Req,
            reason,
            ari: &[],
            private,
        };
        self.say(self.transaction, Message::Rej(rej))
    }

    /// This is the end. By the GUID, a peer finds the connection also if it has not told us its ID.
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
        self.say(self.transaction, Message::Rej(rej))
    }

    fn say(&self, transaction: u64, message: Message<'_>) -> Transmit {
        self.datagram(Mad { transaction, message }.emit())
    }
}
