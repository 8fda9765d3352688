//! Performs the actions of the state chart ([`state`](super::state)).

use std::time::{Duration, Instant};

use wire::cm::{Mad, Message, Reason, Rej};
use wire::rocev2::PathMtu;

use super::connection::{BROKEN_PRIVATE_DATA, MAX_MRA_WAIT};
use super::incoming_req::RequestKey;
use super::manager::OFED_REJECT_PREFIX;
use super::state::{Action, EventKind, Input, State, transition};
use super::{Accepted, Cm, ConnId, Event};
use crate::shrinking_map::remove;

/// The shortest time for which a connection is kept after its end.
const MIN_TIME_WAIT: Duration = Duration::from_millis(500);
/// The longest time for which a connection is kept after its end.
const MAX_TIME_WAIT: Duration = Duration::from_secs(2);
/// The maximum number of rejected requests that are kept so that the REJ can be repeated.
pub(super) const MAX_REJECTED: usize = 1024;

impl Cm {
    /// Applies an input to a connection. `mad` is the message that caused the input, if any.
    pub(super) fn apply(&mut self, now: Instant, id: u32, input: Input, mad: Option<&Mad<'_>>) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let Some(transition) = transition(conn.state, input) else { return };
        for &action in transition.actions {
            self.perform(now, id, action, mad);
        }
        self.enter_state(now, id, transition.to, mad);
    }

    fn perform(&mut self, now: Instant, id: u32, action: Action, mad: Option<&Mad<'_>>) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let transmit = match action {
            Action::SendKept => return self.send_kept(id),
            Action::SendRtu => conn.rtu(),
            Action::SendMra => conn.mra(now),
            Action::SendDreq => conn.dreq(now, self.ids.transaction()),
            Action::SendDrep => {
                conn.drep(mad.map_or(conn.dreq_transaction, |dreq| dreq.transaction))
            }
            Action::RefuseReq(reason) => conn.rej_of_req(reason, &[]),
            Action::SendRej(reason) => conn.rej(reason, self.cfg.ca_guid),
            Action::Wait => {
                if let Some(Mad { message: Message::Mra(mra), .. }) = mad {
                    conn.take_mra(now, mra.service_timeout);
                    if conn.state == State::RepSent
                        && !std::mem::replace(&mut conn.rep_is_seen, true)
                    {
                        // The caller has received the REP, so its address is not forged. Further
                        // acceptances no longer shorten the time of this acceptance, which ends
                        // after `MAX_MRA_WAIT`.
                        let source = conn.remote.ip();
                        conn.deadline = Some(now + MAX_MRA_WAIT);
                        self.half_open.remove(source, id);
                        self.admit_deferred(now, source);
                    }
                }
                return;
            }
            Action::Tell(kind) => {
                if !conn.muted {
                    conn.muted = kind.is_last();
                    let event = event(kind, mad.map(|mad| &mad.message));
                    self.events.push_back((ConnId(id), event));
                }
                return;
            }
        };
        self.transmits.push_back(transmit);
    }

    /// Enters a state and sets its timers. The new state may be the current state.
    fn enter_state(&mut self, now: Instant, id: u32, to: State, mad: Option<&Mad<'_>>) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let source = conn.remote.ip();
        let frees_place = match conn.state {
            State::ReqRcvd => !matches!(to, State::ReqRcvd | State::RepSent),
            State::RepSent => to != State::RepSent && !conn.rep_is_seen,
            _ => false,
        };
        let mut port_with_place = None;
        if to != conn.state {
            if conn.state == State::RepSent {
                self.half_open.remove(source, id);
            }
            conn.state = to;
            conn.deadline = None;
            if let Some(adoption) = &conn.adoption {
                adoption.set_open(to.is_open_request());
            }
            if let Some(pending) = conn.pending.take() {
                port_with_place = Some(pending.release(&mut self.listeners, source));
                self.half_open.remove_undecided(source);
            }
            match to {
                State::Established => {
                    conn.kept = None;
                    conn.retention =
                        conn.ack_timeout.duration().clamp(MIN_TIME_WAIT, MAX_TIME_WAIT);
                }
                State::TimeWait => {
                    conn.kept = None;
                    conn.deadline = Some(now + conn.retention);
                }
                State::Rejected => {
                    conn.deadline = Some(now + conn.retention);
                    self.rejected.push_back(id);
                }
                State::Closed => conn.kept = None,
                State::DreqRcvd => {
                    conn.kept = None;
                    conn.dreq_transaction = mad.map_or(0, |dreq| dreq.transaction);
                }
                State::RepSent => {
                    // Until now, `retention` was the time for which a rejected request is kept.
                    // From now on it is the time that the connection spends in `TimeWait`.
                    conn.retention =
                        conn.ack_timeout.duration().clamp(MIN_TIME_WAIT, MAX_TIME_WAIT);
                    self.half_open.insert(source, id, now);
                    if let Some(wait) = self.half_open.rtu_wait() {
                        conn.give_up_rtu_after(now, wait);
                    }
                }
                State::ReqSent | State::ReqRcvd | State::DreqSent => {}
            }
            if matches!(to, State::TimeWait | State::Rejected | State::Closed) {
                self.release_peer_qp(id);
            }
        }
        self.arm(id);
        if to == State::Closed {
            self.close(id);
        }
        if self.rejected.len() > MAX_REJECTED
            && let Some(oldest) = self.rejected.pop_front()
            && self.conns.get(&oldest).is_some_and(|conn| conn.state == State::Rejected)
        {
            self.close(oldest);
        }
        if let Some(port) = port_with_place {
            self.admit_after_decision(now, port);
        }
        if frees_place {
            self.admit_deferred(now, source);
        }
    }

    /// Sends the message that is kept for repetition, if there is one.
    pub(super) fn send_kept(&mut self, id: u32) {
        if let Some(conn) = self.conns.get(&id)
            && let Some(kept) = &conn.kept
        {
            self.transmits.push_back(conn.datagram(kept.mad));
        }
    }

    /// Sets the timer to the connection's next deadline.
    pub(super) fn arm(&mut self, id: u32) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let next = conn.next_deadline();
        if next != conn.armed {
            if let Some(at) = std::mem::replace(&mut conn.armed, next) {
                self.timers.remove(&(at, id));
            }
            self.timers.extend(next.map(|at| (at, id)));
        }
    }

    /// Allows the peer's queue pair to be in another connection from now on.
    pub(super) fn release_peer_qp(&mut self, id: u32) {
        if let Some(conn) = self.conns.get(&id) {
            let key = conn.peer_qp();
            if self.by_peer_qp.get(&key) == Some(&id) {
                remove(&mut self.by_peer_qp, &key);
            }
        }
    }

    /// From now on, treats a repetition of the REQ of a connection as a new request.
    pub(super) fn forget_request(&mut self, request: &RequestKey, id: u32) {
        if self.by_request.get(request) == Some(&id) {
            remove(&mut self.by_request, request);
        }
    }

    /// Removes a connection.
    fn close(&mut self, id: u32) {
        self.release_peer_qp(id);
        let Some(conn) = remove(&mut self.conns, &id) else { return };
        if let Some(at) = conn.armed {
            self.timers.remove(&(at, id));
        }
        self.forget_request(&conn.request_key(), id);
        if let Some(qpn) = conn.qpn {
            self.events.push_back((ConnId(id), Event::Released { qpn }));
        }
    }
}

/// Makes an event of the given kind, with the data of the message that caused the event.
fn event(kind: EventKind, message: Option<&Message<'_>>) -> Event {
    match (kind, message) {
        (EventKind::Accepted, Some(Message::Rep(rep))) => Event::Accepted(Box::new(Accepted {
            qpn: rep.qpn,
            starting_psn: rep.starting_psn,
            responder_resources: rep.responder_resources,
            initiator_depth: rep.initiator_depth,
            target_ack_delay: rep.target_ack_delay,
            rnr_retry_count: rep.rnr_retry_count,
            srq: rep.srq,
            private: rep.private.to_vec(),
        })),
        (EventKind::Refused, Some(Message::Rej(rej))) => refusal(rej),
        (EventKind::Accepted | EventKind::Refused, _) => {
            unreachable!("{kind:?} comes with a REP or a REJ")
        }
        (EventKind::Established, _) => Event::Established,
        (EventKind::AcceptFailed, _) => Event::AcceptFailed,
        (EventKind::Withdrawn, _) => Event::Withdrawn,
        (EventKind::Unreachable, _) => Event::Unreachable,
        (EventKind::TimedOut, _) => Event::TimedOut,
        (EventKind::Disconnecting, message) => {
            let broke = matches!(
                message,
                Some(Message::Dreq(dreq)) if dreq.private.starts_with(BROKEN_PRIVATE_DATA)
            );
            Event::Disconnecting { broke }
        }
        (EventKind::Disconnected, _) => Event::Disconnected,
        (EventKind::Broken, _) => Event::Broken,
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
