//! The connection of a queue pair: how it is established, and how it ends.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::ptr;
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dat_core::provider::{Connect, ReadDepth, ServiceType, Upcall};
use dat_core::{Error, Result};
use dat_sys::{DAT_INSUFFICIENT_RESOURCES, DAT_INVALID_STATE, DAT_RESOURCE_MEMORY};
use rdma_core_sys::*;

use crate::cm::{CmId, ConnectionRequest, RETRY_COUNT};
use crate::map::{CmEvent, REJECT_HEADER};
use crate::progress::Due;
use crate::qp::{DRAINED, FLUSHED, QpShared};

/// The connection of a queue pair.
#[derive(Default)]
pub(crate) struct Connection {
    id: Option<CmId>,
    state: State,
    /// The parameters of `connect`, which are needed until the peer answers.
    parameters: Option<ConnectParameters>,
    depth: Option<ReadDepth>,
    /// The local address and the peer's address.
    addresses: Option<[SocketAddr; 2]>,
    /// The time at which the attempt to connect times out, or at which a [`KERNEL_DRIVER_DELAY`]
    /// ends.
    deadline: Option<Instant>,
    end: Option<EndCause>,
    flushed_at: Option<Instant>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Unconnected,
    /// `connect` was called. The peer's address or route is being resolved, or the peer's answer is
    /// awaited.
    Connecting,
    /// `accept` was called. The peer has not confirmed the connection yet.
    Accepting,
    /// The connection is established. The consumer is notified after [`KERNEL_DRIVER_DELAY`].
    EstablishedDelayed,
    /// The connection is established, or the queue pair exchanges datagrams.
    Established,
    /// The peer or this side's device has ended the connection. After [`KERNEL_DRIVER_DELAY`] this
    /// provider knows which of the two it was.
    DisconnectDelayed,
    /// This side has begun a graceful close. The device still carries out the requests that were
    /// posted before the close.
    Draining,
    /// The requests that were posted before the close have been carried out. The queue pair is
    /// flushed after [`KERNEL_DRIVER_DELAY`], because the device has perhaps not acknowledged the
    /// peer's last message yet.
    FlushDelayed,
    /// The queue pair is being flushed.
    Flushing,
    Closed,
}

impl Connection {
    /// Creates the state of a queue pair that exchanges datagrams from its creation on. It ends as
    /// a connection does.
    pub(crate) fn for_datagrams() -> Connection {
        Connection { state: State::Established, ..Connection::default() }
    }
}

struct ConnectParameters {
    private: Vec<u8>,
    depth: ReadDepth,
}

/// The reason that is reported when a queue pair has failed. Completions or asynchronous events
/// give the details.
pub(crate) const QP_FAILED: &str = "the queue pair has failed";

/// Why a connection, or an attempt to connect, ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EndCause {
    /// This side disconnects once all requests have been carried out.
    Graceful,
    /// This side disconnects at once.
    Abrupt,
    /// The peer or this side has disconnected.
    Disconnected,
    /// An error has ended the connection.
    Broken(&'static str),
    /// The request was rejected: by the peer's consumer if `by_peer` is true, otherwise by the
    /// peer's provider or host.
    Rejected { by_peer: bool, private: Vec<u8> },
    /// The peer does not answer at its address.
    Unreachable,
    /// The peer did not answer in time.
    TimedOut,
    /// The request was accepted, but the connection could not be established.
    Failed,
    /// The queue pair is being dropped.
    Dropped,
}

/// A rejection by the peer's host, because no program listens.
const REJECTED_BY_HOST: EndCause = EndCause::Rejected { by_peer: false, private: Vec::new() };

/// The time that a removed device may take to flush its queue pairs.
const REMOVED_DEVICE_FLUSH_TIMEOUT: Duration = Duration::from_millis(500);

/// The time that this provider waits for the kernel's software devices, siw and rxe. Hardware needs
/// no such wait.
///
/// With siw, the consumer is notified this much later that a connection is established or has
/// ended. There are two reasons. On the calling side, siw ends a connection if the first message
/// arrives before siw has read the MPA reply (siw_recv_mpa_rr, "peer sent extra data"). When a
/// failure ends a connection, siw reports the disconnect before it reports the failure.
///
/// With rxe, a disconnect by the consumer takes effect this much later. rxe makes a completion
/// visible before it acknowledges the message, and sends no acknowledgement once the queue pair is
/// in the error state (rxe_resp.c, do_complete). Without the delay, a consumer that disconnects as
/// soon as it has received a message would make the peer's send fail.
const KERNEL_DRIVER_DELAY: Duration = Duration::from_millis(10);

/// The time limit to resolve an address or a route, in milliseconds.
const RESOLVE_TIMEOUT_MS: i32 = 5000;

impl QpShared {
    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn connect(&self, to: &Connect<'_>) -> Result<()> {
        if self.is_datagram {
            return Err(Error::of(DAT_INVALID_STATE));
        }
        let full = |_| Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
        let id = self
            .progress
            .channel
            .id(ptr::without_provenance_mut(self.number as usize))
            .map_err(full)?;
        let deadline = to.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let peer = to.peer();
        let mut connection = self.connection();
        let resolved = id.resolve(self.progress.device.address, peer, RESOLVE_TIMEOUT_MS);
        *connection = Connection {
            id: Some(id),
            state: State::Connecting,
            parameters: Some(ConnectParameters { private: to.private.to_vec(), depth: to.depth }),
            deadline,
            ..Connection::default()
        };
        drop(connection);
        if let Some(at) = deadline {
            self.progress.set_deadline(Due::Pair(self.number), at);
        }
        if resolved.is_err() {
            self.end_later(EndCause::Unreachable);
        }
        Ok(())
    }

    pub(crate) fn accept(
        &self,
        request: ConnectionRequest,
        private: &[u8],
        depth: ReadDepth,
    ) -> Result<()> {
        if self.is_datagram || request.service != ServiceType::Connection {
            return Err(Error::of(DAT_INVALID_STATE));
        }
        let full = || Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
        let depth = ReadDepth {
            incoming: depth.incoming.min(request.depth.incoming),
            outgoing: depth.outgoing.min(request.depth.outgoing),
        };
        let id = request.into_id().ok_or_else(full)?;
        let mut connection = self.connection();
        id.set_queue_pair(self.number);
        let accepted = self
            .move_to_rts(&id, depth)
            .and_then(|()| id.accept(private, depth, self.number, self.on_srq));
        *connection = Connection {
            id: Some(id),
            state: State::Accepting,
            depth: Some(depth),
            ..Connection::default()
        };
        drop(connection);
        if accepted.is_err() {
            self.end_later(EndCause::Failed);
        }
        Ok(())
    }

    /// Moves the queue pair to RTS with the parameters that rdma_cm has negotiated.
    fn move_to_rts(&self, id: &CmId, depth: ReadDepth) -> std::io::Result<()> {
        if self.progress.device.is_iwarp() {
            // Over iWARP the kernel moves the queue pair to RTS while it establishes the
            // connection.
            return Ok(());
        }
        self.can_read.store(depth.outgoing > 0, Ordering::Relaxed);
        for state in [IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS] {
            let (mut attr, mask) = id.attributes(state)?;
            match state {
                IBV_QPS_RTR => attr.max_dest_rd_atomic = depth.incoming as u8,
                IBV_QPS_RTS => {
                    attr.max_rd_atomic = depth.outgoing as u8;
                    if self.progress.device.is_rxe() {
                        attr.retry_cnt = attr.retry_cnt.min(RETRY_COUNT);
                    }
                }
                _ => {}
            }
            if !self.modify(&mut attr, mask) {
                return Err(std::io::Error::last_os_error());
            }
        }
        Ok(())
    }

    /// Handles an event of rdma_cm.
    pub(crate) fn on_cm_event(
        &self,
        event: CmEvent,
        private: &[u8],
        theirs: ReadDepth,
        [local, peer]: [SocketAddr; 2],
    ) {
        let mut connection = self.connection();
        if connection.state == State::EstablishedDelayed {
            // The consumer must learn of the connection before it learns of this event.
            self.report_established(connection);
            connection = self.connection();
        }
        let Connection { id: Some(id), state, parameters, depth, .. } = &mut *connection else {
            return;
        };
        let end = match (event, *state) {
            (CmEvent::AddressResolved, State::Connecting) => match id.route(RESOLVE_TIMEOUT_MS) {
                Ok(()) => return,
                Err(_) => EndCause::Unreachable,
            },
            (CmEvent::RouteResolved, State::Connecting) => {
                let Some(parameters) = parameters else { return };
                match id.connect(&parameters.private, parameters.depth, self.number, self.on_srq) {
                    Ok(()) => return,
                    // siw connects the TCP socket in this call. The refusal shows that the peer's
                    // host exists.
                    Err(e) if e.kind() == ErrorKind::ConnectionRefused => REJECTED_BY_HOST,
                    Err(_) => EndCause::Unreachable,
                }
            }
            (CmEvent::Response | CmEvent::Established, State::Connecting) => {
                let Some(flush_requested) = parameters.take().map(|parameters| parameters.depth)
                else {
                    return;
                };
                let agreed = ReadDepth {
                    incoming: flush_requested.incoming.min(theirs.incoming),
                    outgoing: flush_requested.outgoing.min(theirs.outgoing),
                };
                let made = match event {
                    CmEvent::Response => self.move_to_rts(id, agreed).and_then(|()| id.establish()),
                    _ => Ok(()),
                };
                match made {
                    Ok(()) => {
                        *state = State::Established;
                        drop(connection);
                        return self.call(Upcall::Established {
                            private,
                            peer,
                            local,
                            depth: agreed,
                        });
                    }
                    // The peer has accepted, but this side cannot complete the connection.
                    // libdaplofa also reports this case as unreachable.
                    Err(_) => EndCause::Unreachable,
                }
            }
            (CmEvent::Established, State::Accepting) => {
                *state = State::EstablishedDelayed;
                depth.get_or_insert(theirs);
                connection.addresses = Some([local, peer]);
                return match self.progress.device.is_siw() {
                    true => self.delay(connection),
                    false => self.report_established(connection),
                };
            }
            (CmEvent::Rejected, State::Connecting) => REJECTED_BY_HOST,
            (CmEvent::RejectedByPeer, State::Connecting) => {
                let private = private[REJECT_HEADER.len()..].to_vec();
                EndCause::Rejected { by_peer: true, private }
            }
            (CmEvent::Unreachable, State::Connecting) => EndCause::Unreachable,
            (_, State::Accepting)
                if matches!(
                    event,
                    CmEvent::Unreachable
                        | CmEvent::Failed
                        | CmEvent::Rejected
                        | CmEvent::Disconnected
                ) =>
            {
                EndCause::Failed
            }
            (CmEvent::Failed, State::Connecting) => EndCause::Unreachable,
            (CmEvent::Disconnected, State::Established) if self.is_broken() => {
                EndCause::Broken(QP_FAILED)
            }
            (CmEvent::Disconnected, State::Established) if self.progress.device.is_siw() => {
                *state = State::DisconnectDelayed;
                return self.delay(connection);
            }
            (CmEvent::Disconnected, State::Established | State::Draining | State::FlushDelayed) => {
                EndCause::Disconnected
            }
            (CmEvent::DeviceRemoved, State::Connecting) => EndCause::Unreachable,
            (CmEvent::DeviceRemoved, State::Accepting) => EndCause::Failed,
            (CmEvent::DeviceRemoved, _) => EndCause::Broken("the device is gone"),
            _ => return,
        };
        drop(connection);
        self.end_later(end);
    }

    /// Starts [`KERNEL_DRIVER_DELAY`]. [`on_deadline`](Self::on_deadline) continues after the
    /// delay.
    fn delay(&self, mut connection: MutexGuard<'_, Connection>) {
        let at = Instant::now() + KERNEL_DRIVER_DELAY;
        connection.deadline = Some(at);
        drop(connection);
        self.progress.set_deadline(Due::Pair(self.number), at);
    }

    /// Reports to the consumer of the accepting side that the connection is established.
    fn report_established(&self, mut connection: MutexGuard<'_, Connection>) {
        let (Some([local, peer]), Some(depth)) = (connection.addresses, connection.depth) else {
            return;
        };
        connection.state = State::Established;
        drop(connection);
        self.call(Upcall::Established { private: &[], peer, local, depth });
    }

    /// Handles the deadline of the connection, if it has passed. Returns the reason if the
    /// connection must end.
    pub(crate) fn on_deadline(&self, now: Instant) -> Option<EndCause> {
        let mut connection = self.connection();
        if connection.deadline.is_none_or(|at| at > now) {
            return None;
        }
        match connection.state {
            State::Connecting => Some(EndCause::TimedOut),
            State::DisconnectDelayed => {
                drop(connection);
                // Take all completions. They show whether a request has failed whose completion the
                // consumer has not taken.
                self.prefetch_completions();
                Some(match self.failed.load(Ordering::Acquire) {
                    true => EndCause::Broken(QP_FAILED),
                    false => EndCause::Disconnected,
                })
            }
            State::EstablishedDelayed => {
                self.report_established(connection);
                None
            }
            State::FlushDelayed => {
                self.flush(&mut connection);
                None
            }
            _ => None,
        }
    }

    /// Returns whether this side's device has ended the connection. Over RoCE and InfiniBand, the
    /// queue pair is then in the error state, which may be all that the device reports after it has
    /// refused an access by the peer. Over iWARP, every end of a connection leads to the error
    /// state, so only a failure that was recorded before counts.
    fn is_broken(&self) -> bool {
        match self.progress.device.is_iwarp() {
            true => self.failed.load(Ordering::Acquire),
            false => self.is_in_error(),
        }
    }

    /// Starts to end the connection and continues as far as possible. The event handling does the
    /// rest.
    fn end_later(&self, end: EndCause) {
        self.end(end);
        if let Some(pair) = self.progress.pair(self.number) {
            self.progress.advance_end(&pair);
        }
    }

    pub(crate) fn is_established(&self) -> bool {
        self.connection().state == State::Established
    }

    /// Starts to end the connection or the attempt to connect. From now on the device gets no work
    /// requests of the consumer. `advance_end` continues to end the connection.
    ///
    /// Returns true if this side has called the peer and the peer has not answered. The caller then
    /// calls `destroy_id`, which notifies the peer. A caller that handles an event of the
    /// connection's identifier must not call `destroy_id`, which would wait for that event.
    pub(crate) fn end(&self, end: EndCause) -> bool {
        let mut connection = self.connection();
        let was_connecting = connection.state == State::Connecting;
        match connection.state {
            State::Flushing | State::Closed => return false,
            // A second graceful close has no effect. Any other cause replaces the cause of the
            // close.
            State::Draining | State::FlushDelayed if end == EndCause::Graceful => return false,
            State::Draining | State::FlushDelayed => {}
            _ => {
                self.failed.store(true, Ordering::Release);
                // If the connection is broken, the device has flushed the queue pair by itself.
                self.flush_requested.store(!matches!(end, EndCause::Broken(_)), Ordering::Release);
                // The gates stay closed for ever, because the guards are not dropped.
                std::mem::forget(self.send_queue.gate.close());
                std::mem::forget(self.receive_queue.gate.close());
            }
        }
        let wanted = matches!(end, EndCause::Graceful | EndCause::Abrupt)
            && connection.state == State::Established;
        let graceful = wanted
            && end == EndCause::Graceful
            && !self.is_datagram
            && self.post_send_marker(DRAINED);
        let end = match (end, connection.state) {
            (EndCause::Graceful | EndCause::Abrupt, _) => EndCause::Disconnected,
            // The consumer was not notified that the connection is established. So the attempt has
            // failed for the consumer.
            (EndCause::Broken(_), State::EstablishedDelayed) => EndCause::Failed,
            (end, _) => end,
        };
        connection.end = Some(end);
        match wanted {
            _ if graceful => connection.state = State::Draining,
            true => self.close(connection),
            false => self.flush(&mut connection),
        }
        was_connecting
    }

    /// Flushes the queue pair in order to end the connection. On rxe, the flush starts after
    /// [`KERNEL_DRIVER_DELAY`].
    fn close(&self, mut connection: MutexGuard<'_, Connection>) {
        // Datagrams are not acknowledged.
        match self.progress.device.is_rxe() && !self.is_datagram {
            true => {
                connection.state = State::FlushDelayed;
                self.delay(connection);
            }
            false => self.flush(&mut connection),
        }
    }

    fn flush(&self, connection: &mut Connection) {
        connection.state = State::Flushing;
        connection.flushed_at = Some(Instant::now());
        let mut markers = 0;
        let uses_markers = self.needs_markers();
        if uses_markers && !self.on_srq && self.post_receive_marker() {
            markers |= 1;
        }
        let mut attr = ibv_qp_attr { qp_state: IBV_QPS_ERR, ..ibv_qp_attr::zeroed() };
        self.modify(&mut attr, IBV_QP_STATE);
        if uses_markers && self.post_send_marker(FLUSHED) {
            markers |= 2;
        }
        // If the marker of a work queue cannot be posted, the queue counts as flushed, so that the
        // end does not wait for the marker.
        if uses_markers && markers & 1 == 0 {
            self.receive_queue.markers.fetch_or(FLUSHED, Ordering::Release);
        }
        if uses_markers && markers & 2 == 0 {
            self.send_queue.markers.fetch_or(FLUSHED, Ordering::Release);
        }
        if let Some(id) = &connection.id {
            id.disconnect();
        }
    }

    /// Returns whether there is or was a connection or an attempt to connect.
    pub(crate) fn has_begun(&self) -> bool {
        self.connection().state != State::Unconnected
    }

    /// Prefetches the completions of the send queue and of the receive queue.
    fn prefetch_completions(&self) {
        self.send_cq.prefetch_and_notify();
        if !std::sync::Arc::ptr_eq(&self.send_cq, &self.recv_cq) {
            self.recv_cq.prefetch_and_notify();
        }
    }

    /// Continues to end the connection as far as possible now. Returns true when the connection has
    /// ended and the end was reported.
    pub(crate) fn advance_end(&self) -> bool {
        let flushing = !self.needs_markers() && self.connection().state == State::Flushing;
        self.prefetch_completions();
        // Over iWARP, the transition to the error state flushes all work requests before it
        // returns. So `prefetch_completions` has taken every flushed completion. Every work request
        // of a datagram queue pair leaves a completion, so the completions can be counted.
        let work_queues = [&self.send_queue, &self.receive_queue];
        if flushing && !(self.is_datagram && work_queues.iter().any(|q| q.outstanding() > 0)) {
            self.send_queue.markers.fetch_or(FLUSHED, Ordering::Release);
            self.receive_queue.markers.fetch_or(FLUSHED, Ordering::Release);
        }
        let mut connection = self.connection();
        let requests = self.send_queue.markers.load(Ordering::Acquire);
        let receives = self.receive_queue.markers.load(Ordering::Acquire);
        if connection.state == State::Draining && requests & DRAINED != 0 {
            self.close(connection);
            connection = self.connection();
        }
        match connection.state {
            State::Closed => return true,
            State::Flushing if requests & receives & FLUSHED != 0 => {}
            // A removed device may never complete its work requests. After a time limit, this
            // provider flushes them itself.
            State::Flushing
                if self.progress.is_device_lost()
                    && connection
                        .flushed_at
                        .is_some_and(|at| at.elapsed() >= REMOVED_DEVICE_FLUSH_TIMEOUT) =>
            {
                self.abandon();
            }
            _ => return false,
        }
        connection.state = State::Closed;
        self.send_queue.release_late(&self.send_cq);
        self.receive_queue.release_late(&self.recv_cq);
        let end = connection.end.take();
        drop(connection);
        match end.unwrap_or(EndCause::Dropped) {
            EndCause::Graceful | EndCause::Abrupt | EndCause::Disconnected => {
                self.call(Upcall::Disconnected)
            }
            EndCause::Broken(because) => self.call(Upcall::Broken { because: Some(&because) }),
            EndCause::Rejected { by_peer, private } => {
                self.call(Upcall::Rejected { by_peer, private: &private })
            }
            EndCause::Unreachable => self.call(Upcall::Unreachable { because: None }),
            EndCause::TimedOut => self.call(Upcall::TimedOut),
            EndCause::Failed => self.call(Upcall::AcceptFailed),
            EndCause::Dropped => {}
        }
        true
    }

    /// Ends a queue pair that is being dropped, even if the device has not flushed it yet.
    pub(crate) fn abandon_connection(&self) {
        self.connection().state = State::Closed;
        self.destroy_id();
    }

    /// Destroys the identifier of the connection.
    pub(crate) fn destroy_id(&self) {
        let id = self.connection().id.take();
        // Drop the identifier without the lock. Its destruction waits until its events are handled,
        // and the handlers take this lock.
        drop(id);
    }
}
