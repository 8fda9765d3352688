//! How a connection is set up, on either side.

use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use mio::Interest;
use rnic::Work;
use rnic::cm::{Accept, Accepted, Connect, IncomingRequest};
use wire::cm::{Reason, Timeout};
use wire::rocev2::{PathMtu, Psn};
use work::ReadDepth;
use work::cause::Cause;

use super::established::{Established, RNR_TIMER, Sends, Terms};
use super::{Conn, Link, Phase};
use crate::local_address::random;
use crate::owner::{LocalRequest, Owner};
use crate::resources::{EngineContext, EngineEvent, EngineResources, SocketKey};
use crate::shared_port::{LivenessConnection, slot_of};

/// The ACK timeout of a connection: 2^19 · 4.096 µs = 2.1 s. A peer on rxe sends again only when
/// this time has passed.
const ACK_TIMEOUT: Timeout = Timeout::new(19);
/// The number of consecutive ACK timeouts after which a requester still sends again. The last two
/// repetitions come after 8.6 s and 10.7 s, so a connection survives 8 s without a network. It ends
/// after 12.9 s. The protocol allows 7 retries. However, a peer on rxe (Linux 6.12) treats 7 as no
/// limit and would never notice that this process has been killed.
const ACK_TIMEOUT_RETRIES: u8 = 5;
/// The number of RNR retries. The value 7 means no limit: the requester waits for as long as the
/// peer posts no receive.
const RNR_RETRIES: u8 = 7;
/// The number of attempts to connect, each with another queue pair number, if the peer answers that
/// the queue pair is already connected.
const STALE_CONNECTION_TRIES: u8 = 3;

/// An attempt to connect.
pub(super) struct Connecting {
    pub(super) work: Work,
    pub(super) target: Target,
    /// The connection and the starting PSN. `None` if the attempt failed before a request was sent.
    pub(super) attempt: Option<(Conn, Psn)>,
    /// The local cause of a failure before a request was sent, if the cause is known.
    local_failure: Option<String>,
    stale_attempts: u8,
}

/// The peer to connect to, and the parameters of the connection.
pub(crate) struct Target {
    /// The peer's address and the connection qualifier.
    pub(crate) to: SocketAddr,
    /// The local address and port.
    pub(crate) from: SocketAddr,
    pub(crate) private: Vec<u8>,
    pub(crate) deadline: Option<Instant>,
    pub(crate) depth: ReadDepth,
    /// The path MTU that this side proposes.
    pub(crate) mtu: PathMtu,
    /// The path MTU that this side carries. It is larger than `mtu` if the peer has refused it.
    pub(crate) own_mtu: PathMtu,
}

/// The active side of a connection.
impl Link {
    /// Sends a connection request.
    pub(crate) fn connect(
        &mut self,
        cx: &mut EngineContext<'_>,
        local_address: usize,
        target: Target,
    ) {
        let Some(work) = self.phase.take_idle() else { return };
        let own = (self.index, self.number, &work);
        let attempt = send_connect_request(cx, own, local_address, &target);
        if attempt.is_none() {
            cx.resources.defer_failure(self.index);
        }
        self.phase = Phase::Connecting(Box::new(Connecting {
            work,
            target,
            attempt,
            local_failure: None,
            stale_attempts: 0,
        }));
    }

    /// Starts an attempt to connect that fails, because there is no route to the peer. The failure
    /// is reported after the consumer's call has returned.
    pub(crate) fn fail_connect(
        &mut self,
        resources: &mut EngineResources,
        target: Target,
        local_failure: String,
    ) {
        let Some(work) = self.phase.take_idle() else { return };
        resources.defer_failure(self.index);
        let connecting = Connecting {
            work,
            target,
            attempt: None,
            local_failure: Some(local_failure),
            stale_attempts: 0,
        };
        self.phase = Phase::Connecting(Box::new(connecting));
    }

    /// Reports a failure that occurred inside a call of the consumer, now that the call has
    /// returned. See [`EngineResources::defer_failure`].
    pub(crate) fn report_failure(&mut self, cx: Option<&mut EngineContext<'_>>) {
        match &self.phase {
            Phase::Connecting(connecting) if connecting.attempt.is_none() => {
                let local_failure = connecting.local_failure.clone();
                self.fail(EngineEvent::Unreachable {
                    because: local_failure.as_ref().map(|why| why as &dyn Display),
                });
            }
            Phase::Ended(_) => self.sink.call(EngineEvent::AcceptFailed),
            Phase::Established(_) | Phase::Disconnecting(_) => {
                cx.into_iter().for_each(|cx| self.on_peer_gone(cx))
            }
            _ => {}
        }
    }

    /// Enters the phase `Established`. If the peer is on this host, this side watches the peer's
    /// process from now on.
    fn enter_established(&mut self, cx: &mut EngineContext<'_>, established: Established) {
        let (local_address, (ip, slot)) = (established.conn.local_address, established.conn.peer);
        cx.local_address.read_marks_of(ip);
        cx.local_address.packet_io.prepare_connected_socket(established.peer.address);
        let context = &cx.resources.context;
        let watch = |number, liveness: &LivenessConnection| {
            // If the poller cannot watch the connection, this side notices the end of the peer's
            // process later, by timeouts.
            context
                .watch(
                    SocketKey::LivenessConnection { local_address, number },
                    liveness,
                    Interest::READABLE,
                )
                .ok();
        };
        if !cx.local_address.watch_peer(established.peer.address, slot, watch) {
            cx.resources.defer_failure(self.index);
        }
        self.phase = Phase::Established(Box::new(established));
    }

    /// Ends an attempt to connect that has failed.
    pub(super) fn fail(&mut self, why: EngineEvent<'_>) {
        let Some(connecting) = self.phase.take_connecting() else { return };
        self.phase.end(&self.shared, connecting.work);
        self.sink.call(why);
    }

    /// Handles the peer's acceptance.
    pub(super) fn on_accepted(&mut self, cx: &mut EngineContext<'_>, answer: &Accepted) {
        let Some(connecting) = self.phase.take_connecting() else { return };
        let Connecting { work, target, attempt, .. } = *connecting;
        let ((mut conn, rq_psn), mut peer) = match (attempt, cx.local_address.peer(target.to.ip()))
        {
            (Some(attempt), Some(peer)) => (attempt, peer),
            _ => {
                self.phase.end(&self.shared, work);
                return self.sink.call(EngineEvent::Unreachable { because: None });
            }
        };
        conn.peer.1 = slot_of(answer.qpn);
        cx.local_address.packet_io.choose_sender(&mut peer, [conn.qpn, answer.qpn]);
        let of_peer = match target.mtu < target.own_mtu {
            true => target.mtu.to_string(),
            // The peer has accepted this path MTU, and does not say whether it takes more.
            false => format!("{} or more", target.mtu),
        };
        log_path_mtu(target.to.ip(), target.mtu, target.own_mtu, &of_peer);
        let depth = ReadDepth {
            incoming: target.depth.incoming.min(answer.initiator_depth.into()),
            outgoing: target.depth.outgoing.min(answer.responder_resources.into()),
        };
        let terms = Terms {
            mtu: target.mtu,
            peer_qpn: answer.qpn,
            sq_psn: answer.starting_psn,
            rq_psn,
            // This side keeps the responder resources that it offered, even if the peer uses fewer.
            depth: ReadDepth { incoming: target.depth.incoming, ..depth },
            ack_timeout: cx.local_address.timeout.unwrap_or(ACK_TIMEOUT),
            retries: cx.local_address.retries.unwrap_or(ACK_TIMEOUT_RETRIES),
            rnr_retries: answer.rnr_retry_count,
            rnr_timer: RNR_TIMER,
        };
        let mut established = Established::new(self.index, work, terms, conn, peer, cx);
        established.sends = Sends::All;
        self.enter_established(cx, established);
        self.probe_path(cx);
        // The private data are padded with zeros to the length of their field.
        let private = &answer.private[..];
        let (peer, local) = (target.to, target.from);
        self.sink.call(EngineEvent::Established { private, peer, local, depth });
        self.transmit(cx);
    }

    /// Handles a refusal by the peer's adapter. Another attempt may succeed.
    pub(super) fn on_refused(
        &mut self,
        cx: &mut EngineContext<'_>,
        reason: Reason,
        takes: Option<PathMtu>,
    ) {
        let (index, number) = (self.index, self.number);
        let Phase::Connecting(connecting) = &mut self.phase else { return };
        let Connecting { work, target, attempt, stale_attempts, .. } = &mut **connecting;
        let again = match reason {
            Reason::INVALID_MTU => {
                // A peer that does not say what it takes is offered the next smaller size.
                let takes = takes.filter(|&mtu| mtu < target.mtu);
                let smaller = takes.or_else(|| target.mtu.smaller());
                target.mtu = smaller.unwrap_or(target.mtu);
                smaller.is_some()
            }
            Reason::STALE_CONNECTION => {
                *stale_attempts += 1;
                *stale_attempts < STALE_CONNECTION_TRIES
            }
            _ => false,
        };
        let local_address = attempt.map(|(conn, _)| conn.local_address);
        if let (true, Some(local_address)) = (again, local_address)
            && let Some(next) =
                self::send_connect_request(cx, (index, number, work), local_address, target)
        {
            *attempt = Some(next);
            return;
        }
        self.sink.call(EngineEvent::Cause(match reason {
            Reason::INVALID_SERVICE_ID => Cause::NoListener,
            reason => Cause::RejectedByProvider { why: Some(reason.to_string()) },
        }));
        self.fail(EngineEvent::Rejected { by_peer: false, private: &[] });
    }
}

/// Sends a connection request. Returns the connection and the starting PSN for the peer, or `None`
/// if no queue pair number is free.
fn send_connect_request(
    cx: &mut EngineContext<'_>,
    (link, number, work): (usize, Option<u32>, &Work),
    index: usize,
    target: &Target,
) -> Option<(Conn, Psn)> {
    let EngineContext { local_address, now, .. } = cx;
    let qpn = local_address.qpns.assign_for_use(link, number)?;
    let rq_psn = Psn::new(random() as u32);
    let connect = Connect {
        local: target.from,
        remote: target.to,
        qpn,
        starting_psn: rq_psn,
        path_mtu: target.mtu,
        responder_resources: target.depth.incoming as u8,
        initiator_depth: target.depth.outgoing as u8,
        ack_timeout: local_address.timeout.unwrap_or(ACK_TIMEOUT),
        retry_count: local_address.retries.unwrap_or(ACK_TIMEOUT_RETRIES),
        rnr_retry_count: RNR_RETRIES,
        srq: work.has_srq(),
        private: &target.private,
        deadline: target.deadline,
    };
    match local_address.cm.connect(*now, &connect) {
        Ok(id) => {
            local_address.set_owner(id, Owner::Link(link));
            let (id, peer) = (Some(id), (target.to.ip(), 0));
            Some((Conn { local_address: index, id, qpn, peer }, rq_psn))
        }
        Err(_) => {
            local_address.qpns.release(qpn);
            None
        }
    }
}

/// The passive side of a connection.
impl Link {
    /// Accepts a request.
    pub(crate) fn accept(
        &mut self,
        cx: &mut EngineContext<'_>,
        LocalRequest { local_address: index, id, .. }: LocalRequest,
        request: &IncomingRequest,
        private: &[u8],
        depth: ReadDepth,
    ) {
        let EngineContext { local_address, now, .. } = cx;
        let ip = request.from.ip();
        let (Some(mut peer), Some(qpn)) =
            (local_address.peer(ip), local_address.qpns.assign_for_use(self.index, self.number))
        else {
            local_address.cm.reject(*now, id, Reason::NO_QP, &[]).ok();
            return self.fail_accept(cx.resources);
        };
        let rq_psn = Psn::new(random() as u32);
        let depth = ReadDepth {
            incoming: depth.incoming.min(request.initiator_depth.into()),
            outgoing: depth.outgoing.min(request.responder_resources.into()),
        };
        let accept = Accept {
            qpn,
            starting_psn: rq_psn,
            responder_resources: depth.incoming as u8,
            initiator_depth: depth.outgoing as u8,
            rnr_retry_count: RNR_RETRIES,
            srq: matches!(&self.phase, Phase::Idle(work) if work.has_srq()),
            private,
        };
        if local_address.cm.accept(*now, id, &accept).is_err() {
            local_address.qpns.release(qpn);
            return self.fail_accept(cx.resources);
        }
        local_address.set_owner(id, Owner::Link(self.index));
        local_address.packet_io.choose_sender(&mut peer, [qpn, request.qpn]);
        let asked = (request.ack_timeout, request.retry_count);
        let (ack_timeout, retries) = match (local_address.timeout, local_address.retries) {
            (None, None) => at_least_default(asked),
            (timeout, retries) => (timeout.unwrap_or(asked.0), retries.unwrap_or(asked.1)),
        };
        let own_mtu = local_address.cm.max_path_mtu(ip, request.to.ip());
        log_path_mtu(ip, request.path_mtu, own_mtu, &request.path_mtu.to_string());
        // The consumer accepts a request only with a queue pair that is idle.
        let Some(work) = self.phase.take_idle() else { return };
        let terms = Terms {
            mtu: request.path_mtu,
            peer_qpn: request.qpn,
            sq_psn: request.starting_psn,
            rq_psn,
            depth,
            ack_timeout,
            retries,
            rnr_retries: request.rnr_retry_count,
            rnr_timer: RNR_TIMER,
        };
        let mut established = Established::new(
            self.index,
            work,
            terms,
            Conn { local_address: index, id: Some(id), qpn, peer: (ip, slot_of(request.qpn)) },
            peer,
            cx,
        );
        established.addresses = Some((request.from, request.to));
        self.enter_established(cx, established);
    }

    /// Handles the acceptance of a request that no longer exists. After the consumer's call has
    /// returned, the consumer learns that accepting has failed.
    pub(crate) fn fail_accept(&mut self, resources: &mut EngineResources) {
        if let Some(work) = self.phase.take_idle() {
            self.phase.end(&self.shared, work);
            resources.defer_failure(self.index);
        }
    }

    /// Handles the peer's confirmation of the acceptance.
    pub(super) fn on_established(&mut self, cx: &mut EngineContext<'_>) {
        let Phase::Established(established) = &mut self.phase else { return };
        if std::mem::replace(&mut established.sends, Sends::All) != Sends::Nothing {
            return;
        }
        let (peer, local) =
            established.addresses.unwrap_or((established.peer.address, cx.local_address.address()));
        self.sink.call(EngineEvent::Established {
            private: &[],
            peer,
            local,
            depth: established.depth,
        });
        self.probe_path(cx);
        self.transmit(cx);
    }
}

/// Logs the path MTU of a connection in octets of payload: the agreed one, the one that this side
/// carries, and the one that the peer carries.
fn log_path_mtu(peer: IpAddr, agreed: PathMtu, own: PathMtu, of_peer: &str) {
    tracing::info!(
        target: "dat::cm", %peer, path_mtu = %agreed, own_mtu = %own, peer_mtu = %of_peer,
        "path MTU"
    );
}

/// The ACK timeout and the number of retries of the side that is called, if the caller asks for the
/// values `asked`. A caller that gives up early, as a program on rxe may, does not make this side
/// give up early: a connection survives the same outages, whoever calls.
fn at_least_default(asked: (Timeout, u8)) -> (Timeout, u8) {
    let total = |(timeout, retries): (Timeout, u8)| (u64::from(retries) + 1) << timeout.code();
    let default = (ACK_TIMEOUT, ACK_TIMEOUT_RETRIES);
    if total(asked) > total(default) { asked } else { default }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use wire::cm::Timeout;

    use super::super::established::divided;
    use super::{ACK_TIMEOUT, ACK_TIMEOUT_RETRIES, at_least_default};
    use crate::local_address::OUTAGE_MAX;

    /// A silent peer is waited for at least 8 s and at most 15 s, whether or not its host is known
    /// to be up. A peer that sends again only when the ACK timeout expires, as rxe does, still
    /// sends again after 8 s.
    #[test]
    fn default_times() {
        let timeout = Duration::from_nanos(4096 << ACK_TIMEOUT.code());
        let repeats = timeout * u32::from(ACK_TIMEOUT_RETRIES);
        let waits = 8..=15;
        assert!(repeats >= Duration::from_secs(8));
        assert!(waits.contains(&(repeats + timeout).as_secs()));
        assert!(waits.contains(&OUTAGE_MAX.as_secs()));
        const { assert!(ACK_TIMEOUT_RETRIES < 7, "rxe would never give up") };
        // The requester of this side. The tests of `rnic` use the same values.
        assert_eq!(divided(ACK_TIMEOUT, ACK_TIMEOUT_RETRIES), (Timeout::new(17), 23));
    }

    #[test]
    fn a_side_that_is_called_is_at_least_as_patient_as_a_caller() {
        let default = (ACK_TIMEOUT, ACK_TIMEOUT_RETRIES);
        for (code, retries, expected) in [
            // libdaplofa on rxe
            (17, 7, default),
            (0, 7, default),
            (19, 5, default),
            (19, 6, (Timeout::new(19), 6)),
            (31, 0, (Timeout::new(31), 0)),
        ] {
            assert_eq!(at_least_default((Timeout::new(code), retries)), expected, "{code}");
        }
    }

    #[test]
    fn a_long_timeout_is_divided_without_changing_the_time_that_a_peer_has() {
        for (code, retries, expected) in [
            (0, 7, (0, 7)),
            (1, 7, (1, 7)),
            (17, 6, (17, 6)),
            (18, 0, (17, 1)),
            (19, 7, (17, 31)),
            (20, 7, (17, 63)),
            (31, 7, (17, (8 << 14) - 1)),
        ] {
            let (timeout, retries) = divided(Timeout::new(code), retries);
            assert_eq!((timeout.code(), retries), expected, "{code}");
        }
    }
}
