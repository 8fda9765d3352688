//! What the table of [`state`](super::state) says, done.

use std::time::{Duration, Instant};

use wire::cm::{Mad, Message, Reason, Rej};
use wire::rocev2::PathMtu;

use super::conn::{BROKE, MAX_WAIT};
use super::manager::OFED_REJECT_PREFIX;
use super::state::{Act, Input, News, State, effect};
use super::{Accepted, Cm, ConnId, Event};

/// How long a connection is kept after its end, at least and at most.
const TIME_WAIT: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(2));
/// Refusals that are remembered at most.
pub(super) const MAX_REFUSED: usize = 1024;

impl Cm {
    /// Applies an input; `mad` is the message that it came with.
    pub(super) fn apply(&mut self, now: Instant, id: u32, input: Input, mad: Option<&Mad<'_>>) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let Some(effect) = effect(conn.state, input) else { return };
        for &act in effect.acts {
            self.act(now, id, act, mad);
        }
        self.enter(now, id, effect.to, mad);
    }

    fn act(&mut self, now: Instant, id: u32, act: Act, mad: Option<&Mad<'_>>) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let transmit = match act {
            Act::SendKept => return self.send_kept(id),
            Act::SendRtu => conn.rtu(),
            Act::SendMra => conn.mra(now),
            Act::SendDreq => conn.dreq(now, self.ids.transaction()),
            Act::SendDrep => conn.drep(mad.map_or(conn.dreq_transaction, |dreq| dreq.transaction)),
            Act::RefuseReq(reason) => conn.rej_of_req(reason, &[]),
            Act::SendRej(reason) => conn.rej(reason, self.cfg.ca_guid),
            Act::Wait => {
                if let Some(Mad { message: Message::Mra(mra), .. }) = mad {
                    conn.take_mra(now, mra.service_timeout);
                    if conn.state == State::RepSent
                        && !std::mem::replace(&mut conn.rep_is_seen, true)
                    {
                        // A caller that has received the REP is there: its time is not shortened
                        // any more, and ends after MAX_WAIT.
                        let source = conn.remote.ip();
                        conn.deadline = Some(now + MAX_WAIT);
                        self.half_open.leave(source, id);
                        self.admit_deferred(now, source);
                    }
                }
                return;
            }
            Act::Tell(news) => {
                if !conn.silent {
                    conn.silent = news.is_last();
                    let event = event(news, mad.map(|mad| &mad.message));
                    self.events.push_back((ConnId(id), event));
                }
                return;
            }
        };
        self.transmits.push_back(transmit);
    }

    /// Leaves for another state, or stays; sets the timers either way.
    fn enter(&mut self, now: Instant, id: u32, to: State, mad: Option<&Mad<'_>>) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let source = conn.remote.ip();
        let leaves_place = match conn.state {
            State::ReqRcvd => !matches!(to, State::ReqRcvd | State::RepSent),
            State::RepSent => to != State::RepSent && !conn.rep_is_seen,
            _ => false,
        };
        if to != conn.state {
            if conn.state == State::RepSent {
                self.half_open.leave(source, id);
            }
            conn.state = to;
            conn.deadline = None;
            if let Some(pending) = conn.pending.take() {
                pending.leave(&mut self.listeners);
            }
            match to {
                State::Established => {
                    conn.kept = None;
                    conn.linger = conn.ack_timeout.duration().clamp(TIME_WAIT.0, TIME_WAIT.1);
                }
                State::TimeWait => {
                    conn.kept = None;
                    conn.deadline = Some(now + conn.linger);
                }
                State::Rejected => {
                    conn.deadline = Some(now + conn.linger);
                    self.refused.push_back(id);
                }
                State::Closed => conn.kept = None,
                State::DreqRcvd => {
                    conn.kept = None;
                    conn.dreq_transaction = mad.map_or(0, |dreq| dreq.transaction);
                }
                State::RepSent => {
                    // From now on it is not kept to repeat a refusal.
                    conn.linger = conn.ack_timeout.duration().clamp(TIME_WAIT.0, TIME_WAIT.1);
                    self.half_open.enter(source, id, now);
                    if let Some(wait) = self.half_open.time_for_rtu() {
                        conn.give_up_rtu_after(now, wait);
                    }
                }
                State::ReqSent | State::ReqRcvd | State::DreqSent => {}
            }
            if matches!(to, State::TimeWait | State::Rejected | State::Closed) {
                self.leave_peer_qp(id);
            }
        }
        self.arm(id);
        if to == State::Closed {
            self.close(id);
        }
        if self.refused.len() > MAX_REFUSED
            && let Some(oldest) = self.refused.pop_front()
            && self.conns.get(&oldest).is_some_and(|conn| conn.state == State::Rejected)
        {
            self.close(oldest);
        }
        if leaves_place {
            self.admit_deferred(now, source);
        }
    }

    /// Sends what is kept for repetition.
    pub(super) fn send_kept(&mut self, id: u32) {
        if let Some(conn) = self.conns.get(&id)
            && let Some(kept) = &conn.kept
        {
            self.transmits.push_back(conn.datagram(kept.mad));
        }
    }

    /// Sets the timer to what the connection waits for.
    pub(super) fn arm(&mut self, id: u32) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let next = conn.next();
        if next != conn.armed {
            if let Some(at) = std::mem::replace(&mut conn.armed, next) {
                self.timers.remove(&(at, id));
            }
            self.timers.extend(next.map(|at| (at, id)));
        }
    }

    /// From now on the peer's queue pair may be in another connection.
    fn leave_peer_qp(&mut self, id: u32) {
        if let Some(conn) = self.conns.get(&id) {
            let key = conn.peer_qp();
            if self.by_peer_qp.get(&key) == Some(&id) {
                self.by_peer_qp.remove(&key);
            }
        }
    }

    /// Leaves no trace of a connection.
    fn close(&mut self, id: u32) {
        self.leave_peer_qp(id);
        let Some(conn) = self.conns.remove(&id) else { return };
        if let Some(at) = conn.armed {
            self.timers.remove(&(at, id));
        }
        let request = conn.request();
        if self.by_request.get(&request) == Some(&id) {
            self.by_request.remove(&request);
        }
        if let Some(qpn) = conn.qpn {
            self.events.push_back((ConnId(id), Event::Released { qpn }));
        }
    }
}

/// What to tell, with what the message says that it came with.
fn event(news: News, message: Option<&Message<'_>>) -> Event {
    match (news, message) {
        (News::Accepted, Some(Message::Rep(rep))) => Event::Accepted(Box::new(Accepted {
            qpn: rep.qpn,
            starting_psn: rep.starting_psn,
            responder_resources: rep.responder_resources,
            initiator_depth: rep.initiator_depth,
            target_ack_delay: rep.target_ack_delay,
            rnr_retry_count: rep.rnr_retry_count,
            srq: rep.srq,
            private: rep.private.to_vec(),
        })),
        (News::Refused, Some(Message::Rej(rej))) => refusal(rej),
        (News::Accepted | News::Refused, _) => unreachable!("{news:?} comes with a REP or a REJ"),
        (News::Established, _) => Event::Established,
        (News::AcceptFailed, _) => Event::AcceptFailed,
        (News::Withdrawn, _) => Event::Withdrawn,
        (News::Unreachable, _) => Event::Unreachable,
        (News::TimedOut, _) => Event::TimedOut,
        (News::Disconnecting, message) => {
            let broke =
                matches!(message, Some(Message::Dreq(dreq)) if dreq.private.starts_with(BROKE));
            Event::Disconnecting { broke }
        }
        (News::Disconnected, _) => Event::Disconnected,
        (News::Broken, _) => Event::Broken,
    }
}

fn refusal(rej: &Rej<'_>) -> Event {
    match rej.reason {
        Reason::CONSUMER => {
            let private = rej.private.strip_prefix(&OFED_REJECT_PREFIX).unwrap_or(rej.private);
            Event::Rejected { private: private.to_vec() }
        }
        Reason::INVALID_MTU => {
            let path_mtu = rej.ari.first().and_then(|&code| PathMtu::new(code));
            Event::Refused { reason: rej.reason, path_mtu }
        }
        reason => Event::Refused { reason, path_mtu: None },
    }
}
