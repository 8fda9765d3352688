//! The cursors of the requester: the places in the send queue up to which packets are acknowledged
//! and sent.

use wire::rocev2::Psn;

use super::request_packets::Cursor;

/// Whether a silent peer is still there is asked with an empty WRITE that has the PSN of the last
/// acknowledged SEND or WRITE: for the peer, it repeats that packet (`challenge`, `path_check`). If
/// fewer PSNs than this lie between the last SEND or WRITE and the oldest unacknowledged packet,
/// the peer certainly takes a repetition of that SEND or WRITE for a duplicate.
const LAST_MESSAGE_DISTANCE_MAX: i32 = (Psn::COUNT / 4) as i32;

/// The cursors. All packets before *oldest* are acknowledged. All packets from *next* on have not
/// been sent, or are to be sent again. No packet from *first unsent* on has ever been sent. If only
/// some packets are sent again, *resume* is the place at which `next` then continues.
///
/// Between two events, `oldest` ≤ `next` ≤ `first unsent`, and `next` < `resume` ≤ `first unsent`.
/// A cursor moves only as this table says. `first unsent` only follows `next`.
///
/// | method | event | `oldest` | `next` | `resume` |
/// |---|---|---|---|---|
/// | `on_sent` | a packet is sent | | forward | |
/// | `on_sent_again` | it was the last of those to be sent again | | to `resume` | cleared |
/// | `acknowledge` | packets are acknowledged | forward | | |
/// | `catch_up` | `oldest` has passed `next` | | to `resume` or `oldest` | cleared |
/// | `go_back` | all packets in flight are lost | | to `oldest` | cleared |
/// | `repeat` | only some packets are lost | | to `oldest` | set |
/// | `skip_to` | packets were late and not lost | | forward | cleared |
/// | `pass_local` | a request that sends nothing is done | forward | forward | |
pub(super) struct Cursors {
    /// The oldest packet that is not acknowledged, or whose response has not arrived.
    oldest: Cursor,
    /// The packet to be sent next.
    next: Cursor,
    /// The first PSN that has never been sent.
    first_unsent: Psn,
    /// If set, only some packets at `next` are sent again.
    resume: Option<Resume>,
    /// The latest packet of a SEND or WRITE that is acknowledged.
    last_message: Psn,
}

/// The place at which the requester continues after it has sent some packets again.
#[derive(Clone, Copy)]
struct Resume {
    at: Cursor,
    /// The number of packets that are to be sent again before that.
    after: u32,
}

impl Cursors {
    /// The cursors of a connection on which nothing has been sent yet.
    pub(super) fn new(start: Cursor) -> Self {
        let (first_unsent, last_message) = (start.psn, start.psn.previous());
        Cursors { oldest: start, next: start, first_unsent, resume: None, last_message }
    }

    /// The oldest packet that is not acknowledged, or whose response has not arrived.
    #[inline]
    pub(super) fn oldest(&self) -> Cursor {
        self.oldest
    }

    /// The packet to be sent next.
    #[inline]
    pub(super) fn next(&self) -> Cursor {
        self.next
    }

    /// The first PSN that has never been sent.
    #[inline]
    pub(super) fn first_unsent(&self) -> Psn {
        self.first_unsent
    }

    /// The packet after those that have been sent. While only some packets are sent again, this is
    /// the place at which `next` continues afterwards.
    pub(super) fn end_of_sent(&self) -> Cursor {
        self.resume.map_or(self.next, |resume| resume.at)
    }

    /// Whether only some packets at `next` are sent again.
    #[inline]
    pub(super) fn repeats_some(&self) -> bool {
        self.resume.is_some()
    }

    /// Whether the next packet has been sent before.
    #[inline]
    pub(super) fn is_repeating(&self) -> bool {
        self.next.psn.is_before(self.first_unsent)
    }

    /// Whether every packet that was sent is acknowledged.
    #[inline]
    pub(super) fn all_acknowledged(&self) -> bool {
        self.oldest.psn == self.first_unsent
    }

    /// The number of PSNs between the cursors `oldest` and `next`.
    #[inline]
    pub(super) fn in_flight(&self) -> u32 {
        self.next.psn.distance(self.oldest.psn) as u32
    }

    /// Whether a PSN has been sent and is not acknowledged.
    #[inline]
    pub(super) fn is_unacknowledged(&self, psn: Psn) -> bool {
        psn.is_within(self.oldest.psn, self.first_unsent.distance(self.oldest.psn) as u32)
    }

    /// The PSN of the latest packet of a SEND or WRITE that is acknowledged. If very many PSNs of
    /// READs follow it, returns the PSN before the oldest unacknowledged one.
    pub(super) fn last_acknowledged(&self) -> Psn {
        let before_oldest = self.oldest.psn.previous();
        match before_oldest.distance(self.last_message) {
            0..LAST_MESSAGE_DISTANCE_MAX => self.last_message,
            _ => before_oldest,
        }
    }

    /// Whether an acknowledgement of this PSN repeats the last one. Responders repeat the PSN of
    /// the last SEND or WRITE, or that of the last request of any kind.
    pub(super) fn repeats_last(&self, psn: Psn) -> bool {
        psn == self.last_acknowledged() || psn == self.oldest.psn.previous()
    }

    /// Records that a packet or READ request has been sent. The packet uses `psns` PSNs of its
    /// request, which has `packets` packets in total. A call of
    /// [`on_sent_again`](Self::on_sent_again) follows if the packet had been sent before.
    #[inline]
    pub(super) fn on_sent(&mut self, psns: u32, packets: u32) {
        self.next.step(psns, packets);
        if self.next.psn.is_after(self.first_unsent) {
            self.first_unsent = self.next.psn;
        }
    }

    /// Counts a packet that has been sent again. If it was the last one, continues at `resume` and
    /// returns true.
    #[inline]
    pub(super) fn on_sent_again(&mut self) -> bool {
        let Some(Resume { at, after }) = &mut self.resume else { return false };
        *after -= 1;
        let is_reached = !at.psn.is_after(self.next.psn);
        let is_last = *after == 0 || is_reached;
        if is_last {
            self.next = if is_reached { self.next } else { *at };
            self.resume = None;
        }
        self.check();
        is_last
    }

    /// Records that `by` packets of the oldest request, which has `packets` packets in total, are
    /// acknowledged, or that their responses have arrived. [`catch_up`](Self::catch_up) follows.
    #[inline]
    pub(super) fn acknowledge(&mut self, by: u32, packets: u32) {
        self.oldest.step(by, packets);
    }

    /// Records that the packet before `oldest` belongs to a SEND or WRITE.
    #[inline]
    pub(super) fn note_message(&mut self) {
        self.last_message = self.oldest.psn.previous();
    }

    /// Whether packets that were to be sent again have been acknowledged.
    #[inline]
    pub(super) fn is_overtaken(&self) -> bool {
        self.oldest.psn.is_after(self.next.psn)
    }

    /// Continues at `resume` if `oldest` has not reached it, and else at `oldest`.
    pub(super) fn catch_up(&mut self) {
        let resume = self.resume.take().map(|resume| resume.at);
        self.next = resume.filter(|at| at.psn.is_after(self.oldest.psn)).unwrap_or(self.oldest);
        self.check();
    }

    /// Sends all unacknowledged packets again.
    pub(super) fn go_back(&mut self) {
        (self.next, self.resume) = (self.oldest, None);
    }

    /// Sends this number of packets again, from `oldest` on, and then continues at `at`.
    pub(super) fn repeat(&mut self, packets: u32, at: Cursor) {
        (self.next, self.resume) = (self.oldest, Some(Resume { at, after: packets }));
        self.check();
    }

    /// Does not send the packets before `at` again, because they had arrived. Returns false if
    /// there are none.
    pub(super) fn skip_to(&mut self, at: Cursor) -> bool {
        let skips = at.psn.is_after(self.next.psn);
        if skips {
            (self.next, self.resume) = (at, None);
            self.check();
        }
        skips
    }

    /// Records that the oldest request, which is also the next one, sends nothing and is done.
    pub(super) fn pass_local(&mut self) {
        debug_assert_eq!(self.oldest, self.next);
        self.next.step(0, 0);
        self.oldest = self.next;
    }

    /// Checks the order of the cursors.
    #[inline]
    fn check(&self) {
        debug_assert!(!self.next.psn.is_before(self.oldest.psn));
        debug_assert!(!self.next.psn.is_after(self.first_unsent));
        debug_assert!(self.resume.is_none_or(|Resume { at, .. }| {
            at.psn.is_after(self.next.psn) && !at.psn.is_after(self.first_unsent)
        }));
    }
}
