//! The requester: which requests of the send queue are acknowledged, which are in flight, which come next.
//!
//! Two cursors go through the send queue, packet by packet. Before the *oldest* all is acknowledged; from the *next* on
//! nothing has been sent, or all is to be sent again: a loss just sets it back (go-back-N). Nothing is kept of a packet in
//! flight, since it can be made again from its request. The PSNs of a READ's responses count like packets sent.
//!
//! A long READ is asked for in parts of some packets each, so that its responses stay within the window: to the responder
//! these are separate READs.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use wire::rocev2::{PathMtu, Psn};

use super::challenge::Challenge;
use super::engine::{Failure, RcCfg, Stats};
use super::pace::{Clocks, Overdue, Window};
use crate::qp::{self, Work, Wqe};
use crate::wr::{WcOp, WcStatus};

/// PSNs in flight at most: far from where PSNs come around.
const WINDOW_MAX: u32 = 1 << 20;
/// [`RcCfg::rnr_retries`]: any number.
const FOR_EVER: u8 = 7;

/// The requester's state.
pub(super) struct Requester {
    /// The oldest packet that is not acknowledged, or whose response has not come.
    pub(super) oldest: Cursor,
    /// The packet to be sent next.
    pub(super) next: Cursor,
    /// PSNs from here on have never been sent.
    pub(super) fresh: Psn,
    /// READ requests (each part of one counts) and atomic operations between `oldest` and `next`: the PSNs behind their
    /// responses.
    pub(super) awaited: VecDeque<Psn>,
    /// Of these at most.
    depth: usize,
    /// Packets of a READ that are asked for at once: always the same, since what is asked for again must be within what was
    /// asked for at first.
    part: u32,
    /// Packets sent since one asked for an acknowledgement.
    pub(super) unasked: u32,
    /// The request that cannot be carried out here. It fails when those before it are done.
    pub(super) unable: Option<(usize, WcStatus)>,
    /// The peer had no receive buffer: until when to wait.
    pub(super) rnr_wait: Option<Instant>,
    rnr_retries: u8,
    rnr_left: u8,
    pub(super) window: Window,
    pub(super) clocks: Clocks,
    loss: Option<Loss>,
    leave: Leave,
    pub(super) challenge: Option<Challenge>,
    /// When the last one was answered.
    pub(super) answered_at: Option<Instant>,
}

/// Whether the peer takes its leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leave {
    No,
    /// It has taken what it will take. That is asked for.
    Takes,
    /// It has had time enough to answer.
    Taken,
}

/// A packet of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cursor {
    /// The request's position in the send queue.
    pub(super) at: usize,
    /// Packets of it before this one.
    pub(super) index: u32,
    /// The packet's number.
    pub(super) psn: Psn,
}

impl Cursor {
    /// Moves on by packets of this request, of which there are `packets` in all.
    #[inline]
    pub(super) fn step(&mut self, by: u32, packets: u32) {
        self.psn = self.psn + by;
        self.index += by;
        if self.index >= packets {
            (self.at, self.index) = (self.at.wrapping_add(1), 0);
        }
    }
}

/// The last time that packets were sent again because one was lost.
struct Loss {
    /// The lost one.
    psn: Psn,
    /// The latest packet that showed it.
    shown_by: Psn,
    at: Instant,
}

/// What may be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A packet, or more, of a SEND or WRITE.
    Message,
    /// A READ request, for a part of it.
    Read,
    Atomic,
    Bind,
    /// [`Requester::unable`].
    Fail,
}

impl Requester {
    pub(super) fn new(at: usize, cfg: &RcCfg, now: Instant) -> Self {
        let window = cfg.window.clamp(1, WINDOW_MAX);
        let start = Cursor { at, index: 0, psn: cfg.sq_psn };
        Requester {
            oldest: start,
            next: start,
            fresh: start.psn,
            awaited: VecDeque::new(),
            depth: cfg.initiator_depth as usize,
            part: (window / 4).max(1),
            unasked: 0,
            unable: None,
            rnr_wait: None,
            rnr_retries: cfg.rnr_retries,
            rnr_left: cfg.rnr_retries,
            window: Window::new(window),
            clocks: Clocks::new(cfg.ack_timeout, cfg.retries, now),
            loss: None,
            leave: Leave::No,
            challenge: None,
            answered_at: None,
        }
    }

    /// What may be done next, if anything.
    #[inline]
    pub(super) fn choose(&self, work: &Work) -> Option<Step> {
        if self.rnr_wait.is_some() || !self.may_send() {
            return None;
        }
        let (wqe, _) = work.request(self.next.at)?;
        let alone = self.oldest.at == self.next.at;
        if self.unable.is_some_and(|(at, _)| at == self.next.at) {
            return alone.then_some(Step::Fail);
        }
        let starts = self.next.index == 0;
        if starts && wqe.flags & qp::FENCE != 0 && !self.awaited.is_empty() {
            return None;
        }
        match wqe.op {
            WcOp::Bind => alone.then_some(Step::Bind),
            op if op.awaits_response() && self.awaited.len() >= self.depth => None,
            WcOp::Read => Some(Step::Read),
            WcOp::FetchAdd | WcOp::CompareSwap => Some(Step::Atomic),
            WcOp::Send | WcOp::Write | WcOp::WriteImm | WcOp::Recv => Some(Step::Message),
        }
    }

    /// Whether the next packet may leave: the window is open, and the peer takes it, or has perhaps taken it.
    #[inline]
    pub(super) fn may_send(&self) -> bool {
        let taken = self.leave == Leave::No || self.next.psn.is_before(self.fresh);
        taken && self.in_flight() < self.window.size()
    }

    /// Whether there is anything to be done.
    #[inline]
    pub(super) fn is_ready(&self, work: &Work) -> bool {
        self.choose(work).is_some()
    }

    /// PSNs between the cursors.
    #[inline]
    pub(super) fn in_flight(&self) -> u32 {
        self.next.psn.distance(self.oldest.psn) as u32
    }

    /// Whether a PSN is one that has been sent and is not acknowledged.
    #[inline]
    pub(super) fn is_awaited(&self, psn: Psn) -> bool {
        psn.is_within(self.oldest.psn, self.fresh.distance(self.oldest.psn) as u32)
    }

    /// A packet, or READ request, takes `psns` PSNs of a request of `packets`, and leaves.
    #[inline]
    pub(super) fn sent(
        &mut self,
        psns: u32,
        packets: u32,
        asks: bool,
        now: Instant,
        stats: &mut Stats,
    ) {
        let psn = self.next.psn;
        let fresh = !psn.is_before(self.fresh);
        self.clocks.sent(psn, fresh, asks, now);
        self.next.step(psns, packets);
        if self.next.psn.is_after(self.fresh) {
            self.fresh = self.next.psn;
        }
        self.unasked = if asks { 0 } else { self.unasked + 1 };
        stats.repeated += u64::from(!fresh);
    }

    /// All before `until` is acknowledged. False: that is too much, since the response to a READ or atomic operation before
    /// it has not come.
    #[inline]
    pub(super) fn acknowledged(
        &mut self,
        work: &mut Work,
        mtu: PathMtu,
        until: Psn,
        now: Instant,
    ) -> bool {
        let mut whole = true;
        let before = self.oldest.psn;
        loop {
            let more = until.distance(self.oldest.psn);
            if more <= 0 {
                break;
            }
            let Some((wqe, _)) =
                work.request(self.oldest.at).filter(|(wqe, _)| !wqe.op.awaits_response())
            else {
                whole = false;
                break;
            };
            let packets = packets(wqe, mtu);
            let left = packets - self.oldest.index;
            if left <= more as u32 {
                work.done(self.oldest.at);
            }
            self.oldest.step(left.min(more as u32), packets);
        }
        let packets = self.oldest.psn.distance(before) as u32;
        if packets > 0 {
            self.progress(packets, now);
        }
        whole
    }

    /// The oldest cursor has moved on by so many packets.
    #[inline]
    pub(super) fn progress(&mut self, packets: u32, now: Instant) {
        if self.oldest.psn.is_after(self.next.psn) {
            // What was to be sent again has arrived.
            self.next = self.oldest;
            if self.oldest.psn == self.fresh {
                self.window.restore();
            }
        }
        while self.awaited.pop_front_if(|end| !end.is_after(self.oldest.psn)).is_some() {}
        (self.rnr_wait, self.rnr_left, self.loss) = (None, self.rnr_retries, None);
        self.window.acknowledged(packets, self.oldest.psn);
        self.clocks.acknowledged(self.oldest.psn, self.oldest.psn == self.fresh, now);
    }

    /// The oldest packet is lost, as `shown_by` shows, a later one or itself: sends all from there on again, unless that has
    /// been done and what shows it is older.
    pub(super) fn lost(&mut self, shown_by: Psn, now: Instant) {
        let psn = self.oldest.psn;
        if self.rnr_wait.is_some() {
            return;
        }
        if let Some(loss) = self.loss.as_mut().filter(|loss| loss.psn == psn) {
            // Packets that were under way come one after another; the first of those sent again starts over.
            let goes_on = shown_by.is_after(loss.shown_by);
            loss.shown_by = shown_by;
            if goes_on || now < loss.at + self.clocks.shortest_answer() || self.next == self.oldest
            {
                return;
            }
        }
        self.loss = Some(Loss { psn, shown_by, at: now });
        self.window.lost(self.fresh);
        self.go_back();
    }

    /// Where the part of a READ ends that a packet belongs to.
    #[inline]
    pub(super) fn part_end(&self, index: u32, packets: u32) -> u32 {
        (index + 1).next_multiple_of(self.part).min(packets)
    }

    /// Counts an RNR NAK; false: there have been too many.
    pub(super) fn bears_rnr(&mut self) -> bool {
        if self.rnr_retries == FOR_EVER {
            return true;
        }
        let left = self.rnr_left > 0;
        self.rnr_left = self.rnr_left.saturating_sub(1);
        left
    }

    /// Sends all again that is not acknowledged.
    pub(super) fn go_back(&mut self) {
        (self.next, self.unasked) = (self.oldest, 0);
        self.awaited.clear();
        self.clocks.forget_sample();
    }

    /// The peer takes its leave: asks, at once, for what may have arrived, and sends nothing new.
    pub(super) fn wind_up(&mut self, work: &Work, mtu: PathMtu, now: Instant, stats: &mut Stats) {
        if self.leave != Leave::No {
            return;
        }
        self.leave = Leave::Takes;
        self.challenge = None;
        self.clocks.part(now);
        if !self.is_wound_up(work, mtu) {
            stats.probes += 1;
            self.window.silent(self.fresh);
            self.go_back();
        }
    }

    /// Whether nothing that is posted can succeed any more, since the peer takes its leave: it has no receive buffer for the
    /// oldest request, or not all of that was ever sent, or the peer is silent.
    pub(super) fn is_wound_up(&self, work: &Work, mtu: PathMtu) -> bool {
        let all_sent = |(wqe, _): (&Wqe, _)| {
            let left = packets(wqe, mtu) - self.oldest.index;
            wqe.op != WcOp::Bind && !(self.oldest.psn + left).is_after(self.fresh)
        };
        match self.leave {
            Leave::No => false,
            Leave::Takes => {
                self.rnr_wait.is_some() || !work.request(self.oldest.at).is_some_and(all_sent)
            }
            Leave::Taken => true,
        }
    }

    /// For how long the peer has not answered to what is in flight or, if nothing is, to what it was asked.
    pub(super) fn quiet_for(&self, now: Instant) -> Option<Duration> {
        self.clocks.quiet_for(now).or_else(|| Some(self.challenge.as_ref()?.age(now)))
    }

    /// The peer does not answer, but is known to live.
    pub(super) fn peer_lives(&mut self, now: Instant) {
        self.clocks.peer_lives(now);
        if let Some(challenge) = &mut self.challenge {
            challenge.peer_lives();
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let requests = self.rnr_wait.or_else(|| self.clocks.deadline());
        match &self.challenge {
            None => requests,
            Some(challenge) => Some(requests.map_or(challenge.due(), |at| at.min(challenge.due()))),
        }
    }

    /// A deadline may have passed.
    pub(super) fn expire(
        &mut self,
        work: &mut Work,
        now: Instant,
        stats: &mut Stats,
    ) -> Result<(), Failure> {
        if self.challenge.as_ref().is_some_and(|challenge| challenge.is_lost(now)) {
            return Err(Failure::Stale);
        }
        if let Some(until) = self.rnr_wait {
            if now >= until {
                self.rnr_wait = None;
                self.clocks.restart(now);
            }
            return Ok(());
        }
        match self.clocks.expire(now) {
            None => return Ok(()),
            Some(Overdue::Parted) => {
                self.leave = Leave::Taken;
                return Ok(());
            }
            // As much as there is to be had of a peer that leaves.
            Some(Overdue::Exhausted) if self.leave != Leave::No => {
                self.leave = Leave::Taken;
                return Ok(());
            }
            Some(Overdue::Exhausted) => {
                work.fail(self.oldest.at, WcStatus::Transport);
                return Err(Failure::Silent);
            }
            Some(Overdue::Probe) => stats.probes += 1,
            Some(Overdue::Retry) => stats.timeouts += 1,
        }
        self.window.silent(self.fresh);
        self.go_back();
        Ok(())
    }
}

/// Packets of a request, or of its response: PSNs that it takes.
#[inline]
pub(super) fn packets(wqe: &Wqe, mtu: PathMtu) -> u32 {
    match wqe.op {
        WcOp::Bind => 0,
        WcOp::FetchAdd | WcOp::CompareSwap => 1,
        _ => mtu.packets(wqe.len),
    }
}
