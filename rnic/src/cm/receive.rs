//! Finds the connection that a message belongs to.

use std::net::IpAddr;
use std::time::Instant;

use wire::cm::{Answered, Drep, Dreq, Mad, MadError, Message, Reason, Rej, Rep};

use super::connection::Peer;
use super::state::{Input, State};
use super::{Cm, Transmit};

/// While this number of datagrams wait to be sent, received datagrams are dropped.
const MAX_QUEUED_DATAGRAMS: usize = 1024;

impl Cm {
    /// Handles the payload of a datagram to QP 1. IPv4 addresses must not be in IPv4-mapped form. A
    /// message that belongs to no connection is answered or ignored. Fails if the payload is not a
    /// message of connection management. While many datagrams wait to be sent, this function
    /// ignores every message, so the caller should send first.
    pub fn receive(
        &mut self,
        now: Instant,
        from: IpAddr,
        to: IpAddr,
        octets: &[u8],
    ) -> Result<(), MadError> {
        let mad = &Mad::parse(octets)?;
        if self.transmits.len() >= MAX_QUEUED_DATAGRAMS {
            return Ok(());
        }
        let route = Route { from, to };
        match &mad.message {
            Message::Req(req) => self.receive_req(now, from, to, mad, req),
            Message::Mra(mra) => match mra.answered {
                Answered::Req => self.apply_if_valid(
                    now,
                    route,
                    (mra.remote_id, mra.local_id),
                    Input::MraOfReq,
                    mad,
                ),
                Answered::Rep => self.apply_if_valid(
                    now,
                    route,
                    (mra.remote_id, mra.local_id),
                    Input::MraOfRep,
                    mad,
                ),
                Answered::Other => {}
            },
            Message::Rej(rej) => self.receive_rej(now, route, mad, rej),
            Message::Rep(rep) => self.receive_rep(now, route, mad, rep),
            Message::Rtu(rtu) => {
                self.apply_if_valid(now, route, (rtu.remote_id, rtu.local_id), Input::Rtu, mad)
            }
            Message::Dreq(dreq) => self.receive_dreq(now, route, mad, dreq),
            Message::Drep(drep) => {
                self.apply_if_valid(now, route, (drep.remote_id, drep.local_id), Input::Drep, mad)
            }
            // These messages belong to no connection.
            Message::SidrReq(_) | Message::SidrRep(_) => {}
        }
        Ok(())
    }

    /// Applies a message if it belongs to the connection. `ids` are this side's ID and the peer's
    /// ID.
    fn apply_if_valid(
        &mut self,
        now: Instant,
        route: Route,
        ids: (u32, u32),
        input: Input,
        mad: &Mad<'_>,
    ) {
        if self.belongs(route, ids, mad.transaction) {
            self.apply(now, ids.0, input, Some(mad));
        }
    }

    fn belongs(&self, route: Route, (ours, theirs): (u32, u32), transaction: u64) -> bool {
        self.conns.get(&ours).is_some_and(|conn| {
            conn.is_between(route.from, route.to)
                && match conn.state {
                    // The peer's ID is not known yet. But only a peer that has seen the REQ knows
                    // the transaction ID.
                    State::ReqSent => conn.transaction == transaction,
                    _ => conn.peer.id == theirs,
                }
        })
    }

    fn receive_rej(&mut self, now: Instant, route: Route, mad: &Mad<'_>, rej: &Rej<'_>) {
        let input = if rej.answered == Answered::Req { Input::RejOfReq } else { Input::Rej };
        // A caller that gave up before it had an answer does not know the ID of this side.
        if rej.remote_id == 0
            && rej.reason == Reason::TIMEOUT
            && let Some(guid) = rej.ari.first_chunk()
        {
            let request = (route.from, u64::from_be_bytes(*guid), rej.local_id);
            self.half_open.drop_deferred(&request);
            self.drop_deferred_by_listener(&request);
            if let Some(&id) = self.by_request.get(&request) {
                self.apply_if_valid(now, route, (id, rej.local_id), input, mad);
            }
        } else {
            self.apply_if_valid(now, route, (rej.remote_id, rej.local_id), input, mad);
        }
    }

    fn receive_rep(&mut self, now: Instant, route: Route, mad: &Mad<'_>, rep: &Rep<'_>) {
        let id = rep.remote_id;
        let Some(conn) = self.conns.get(&id) else {
            // This side gave the attempt up. The refusal keeps the peer from repeating its REP.
            self.refuse_rep(now, route, mad, rep, Reason::INVALID_COMM_ID);
            return;
        };
        if conn.state == State::ReqSent
            && conn.transaction == mad.transaction
            && conn.is_between(route.from, route.to)
        {
            let peer_qp = (route.from, rep.ca_guid, rep.qpn);
            if self.by_peer_qp.contains_key(&peer_qp) {
                if self.refuse_rep(now, route, mad, rep, Reason::STALE_CONNECTION) {
                    self.challenge(peer_qp);
                }
                return;
            }
            self.by_peer_qp.insert(peer_qp, id);
            if let Some(conn) = self.conns.get_mut(&id) {
                conn.peer = Peer { id: rep.local_id, ca_guid: rep.ca_guid, qpn: rep.qpn };
            }
        }
        self.apply_if_valid(now, route, (id, rep.local_id), Input::Rep, mad);
    }

    /// Refuses a REP. Returns false if the limit on answers to strangers is reached.
    fn refuse_rep(
        &mut self,
        now: Instant,
        route: Route,
        mad: &Mad<'_>,
        rep: &Rep<'_>,
        reason: Reason,
    ) -> bool {
        let rej = Rej {
            local_id: rep.remote_id,
            remote_id: rep.local_id,
            answered: Answered::Rep,
            reason,
            ari: &[],
            private: &[],
        };
        self.answer(now, route, Mad { transaction: mad.transaction, message: Message::Rej(rej) })
    }

    fn receive_dreq(&mut self, now: Instant, route: Route, mad: &Mad<'_>, dreq: &Dreq<'_>) {
        match self.conns.get(&dreq.remote_id) {
            Some(conn) if !conn.is_between(route.from, route.to) => {}
            Some(conn) if conn.peer.id == dreq.local_id => {
                if conn.qpn == Some(dreq.remote_qpn) {
                    self.apply(now, dreq.remote_id, Input::Dreq, Some(mad));
                }
            }
            // The peer may have missed the end of a connection that this side has removed. A DREP,
            // which says that the connection has ended, reveals no secret to a stranger.
            _ => {
                let drep =
                    Drep { local_id: dreq.remote_id, remote_id: dreq.local_id, private: &[] };
                self.answer(
                    now,
                    route,
                    Mad { transaction: mad.transaction, message: Message::Drep(drep) },
                );
            }
        }
    }

    /// Answers a message that belongs to no connection. Returns false if the limit on such answers
    /// is reached.
    fn answer(&mut self, now: Instant, Route { from, to }: Route, mad: Mad<'_>) -> bool {
        let may_answer = self.answers.take(now, from);
        if may_answer {
            self.transmits.push_back(Transmit { from: to, to: from, mad: mad.emit() });
        }
        may_answer
    }
}

/// The source and the destination address of a datagram.
#[derive(Clone, Copy)]
struct Route {
    from: IpAddr,
    to: IpAddr,
}
