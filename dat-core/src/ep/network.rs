//! The changes that the network makes to an endpoint: each transition of its state, and the event
//! that reports the transition.

use std::ffi::c_void;
use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dat_sys::describe::event_name;
use dat_sys::ib::*;
use dat_sys::*;
use telemetry::Hex;
use tracing::field::display;
use tracing::{debug, info, warn};

use super::datagram::Peers;
use super::state::{Effect, Event, State, StateCell, Transition};
use crate::addr::SockAddr;
use crate::cause::{self, Cause, LastCause};
use crate::error::Result;
use crate::evd::{Evd, Order};
use crate::handle::Ref;
use crate::ia::Ia;
use crate::provider::cause::{LocalUse, Octets};
use crate::provider::{PostError, Receiver, ServiceType, Transport, Upcall};

/// The part of an endpoint that the network can change.
pub(super) struct EpShared<T: Transport> {
    pub(super) ep: usize,
    pub(super) ia: Ref<Ia<T>>,
    /// Whether the endpoint uses a shared receive queue.
    on_srq: bool,
    /// The peers of a datagram endpoint. Other endpoints have none.
    pub(super) peers: Option<Arc<Mutex<Peers>>>,
    pub(super) state: StateCell,
    /// The maximum number of RDMA reads and atomic operations that may be outstanding, as agreed
    /// with the peer of the latest connection.
    pub(super) read_depth: AtomicU32,
    /// Whether the hard watermark is exceeded. The end of the connection is then reported as a
    /// broken connection, whatever its cause is.
    breaking: AtomicBool,
    pub(super) last_cause: Arc<LastCause>,
    pub(super) conn: Mutex<Conn<T>>,
}

pub(super) struct Conn<T: Transport> {
    pub(super) evd: Option<Ref<Evd<T>>>,
    /// The peer's private data. It is valid until the endpoint is reset or freed (uDAPL 1.2,
    /// dat_evd_wait).
    private: Vec<u8>,
    pub(super) local: Address,
    pub(super) remote: Address,
    /// The number of the connection: see [`crate::log::next_connection_number`].
    pub(super) number: u64,
}

/// An address with its port, as dat_ep_query reports them.
pub(super) struct Address {
    pub(super) sockaddr: SockAddr,
    pub(super) port: u64,
}

impl Address {
    const fn none() -> Self {
        Address { sockaddr: SockAddr::none(), port: 0 }
    }
}

impl From<SocketAddr> for Address {
    fn from(addr: SocketAddr) -> Self {
        Address { sockaddr: addr.into(), port: addr.port().into() }
    }
}

impl<T: Transport> Conn<T> {
    /// Discards the data of the last connection.
    pub(super) fn clear(&mut self) {
        self.private = Vec::new();
        self.local = Address::none();
        self.remote = Address::none();
        self.number = 0;
    }
}

impl<T: Transport> EpShared<T> {
    pub(super) fn new(
        ep: *mut c_void,
        ia: Ref<Ia<T>>,
        (service, on_srq): (ServiceType, bool),
        state: State,
        evd: Option<Ref<Evd<T>>>,
    ) -> Self {
        let (local, remote) = (Address::none(), Address::none());
        let conn = Conn { evd, private: Vec::new(), local, remote, number: 0 };
        EpShared {
            ep: ep as usize,
            ia,
            on_srq,
            peers: (service == ServiceType::Datagram).then(Arc::default),
            state: StateCell::new(state),
            read_depth: AtomicU32::new(0),
            breaking: AtomicBool::new(false),
            last_cause: Arc::default(),
            conn: Mutex::new(conn),
        }
    }

    /// The service of the endpoint, which never changes.
    #[inline]
    pub(super) fn service(&self) -> ServiceType {
        match self.peers {
            Some(_) => ServiceType::Datagram,
            None => ServiceType::Connection,
        }
    }

    pub(super) fn conn(&self) -> MutexGuard<'_, Conn<T>> {
        self.conn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies an event to the state of the endpoint: see [`StateCell::apply`].
    pub(super) fn apply(&self, event: Event) -> Result<Transition> {
        let transition = self.state.apply(event)?;
        if let Effect::To(to) = transition.effect {
            let ia = &self.ia.name;
            debug!(
                target: "dat::ep", ia, ep = %Hex(self.ep), from = ?transition.from, ?to,
                because = ?event, "state"
            );
        }
        Ok(transition)
    }

    /// Reports a connection event. The endpoint keeps `private` for the consumer until it is reset
    /// or freed.
    fn report(&self, number: DAT_EVENT_NUMBER, private: &[u8], order: Order) {
        let mut data = DAT_CONNECTION_EVENT_DATA {
            ep_handle: self.ep as *mut c_void,
            ..DAT_CONNECTION_EVENT_DATA::zeroed()
        };
        let evd = {
            let mut conn = self.conn();
            if !private.is_empty() {
                conn.private = private.to_vec();
                data.private_data_size = private.len() as DAT_COUNT;
                data.private_data = conn.private.as_ptr().cast_mut().cast();
            }
            conn.evd.clone()
        };
        if let Some(evd) = evd {
            evd.post_or_report(number, DAT_EVENT_DATA { connect_event_data: data }, order);
        }
    }

    /// Handles the end of a connection or of an attempt to connect. Exactly one event reports it.
    fn ended(
        &self,
        event: Event,
        private: &[u8],
        detail: Option<&dyn Display>,
        number: impl FnOnce(State) -> DAT_EVENT_NUMBER,
    ) {
        if let Ok(Transition { from, effect: Effect::To(_) }) = self.apply(event) {
            let number = number(from);
            self.count_end(from, number);
            self.last_cause.keep_end(cause_of_end(from, number, detail));
            self.log_end(number, detail);
            self.report(number, private, Order::AfterCompletions);
            if self.on_srq && matches!(from, State::Connected | State::DisconnectPending) {
                self.report_srq_left();
            }
        }
    }

    /// Reports that the endpoint takes no more buffers from its shared receive queue. An endpoint
    /// with its own queue shows this by flushing its receives, but no receive of a shared queue is
    /// flushed. OFED's providers send this event, and programs wait for it (docs/compatibility.md).
    fn report_srq_left(&self) {
        self.ia.report(DAT_ASYNC_ERROR_EP_BROKEN, self.ep as *mut c_void, DAT_EP_TRANSFER_TO_ERROR);
    }

    /// Keeps a cause, and logs it if a message waits. The cause of a failure is logged with the
    /// operation that fails and with the end of the connection.
    fn keep_cause(&self, cause: Cause) {
        let logs = || tracing::enabled!(target: "dat::dto", tracing::Level::INFO);
        if cause.connection_goes_on() && logs() {
            let (ia, ep, connection) = (&self.ia.name, Hex(self.ep), self.conn().number);
            let because = cause::about(&cause, self.last_cause.peer()).to_string();
            info!(target: "dat::dto", ia, %ep, connection, because, "waits");
        }
        self.last_cause.keep(cause);
    }

    /// Keeps and logs the cause of a refused post.
    #[cold]
    pub(super) fn keep_refused_post(&self, usage: LocalUse, error: PostError) {
        if let Some(cause) = self.last_cause.keep_refused_post(usage, error)
            && tracing::enabled!(target: "dat::dto", tracing::Level::DEBUG)
        {
            let (ia, ep, because) =
                (&self.ia.name, Hex(self.ep), cause::about(&cause, None).to_string());
            debug!(target: "dat::dto", ia, %ep, because, "refused");
        }
    }

    fn log_end(&self, number: DAT_EVENT_NUMBER, detail: Option<&dyn Display>) {
        let (ia, ep, event) = (&self.ia.name, Hex(self.ep), event_name(number));
        let (connection, detail) = (self.conn().number, detail.map(display));
        let because = self.last_cause.sentence().map(display);
        match number {
            DAT_CONNECTION_EVENT_DISCONNECTED => {
                info!(target: "dat::cm", ia, %ep, connection, event, because, detail, "ended")
            }
            _ => warn!(target: "dat::cm", ia, %ep, connection, event, because, detail, "ended"),
        }
    }

    /// Increments the counter for the event `number`, with which a connection or an attempt to
    /// connect ended.
    fn count_end(&self, from: State, number: DAT_EVENT_NUMBER) {
        let counter = match number {
            DAT_CONNECTION_EVENT_PEER_REJECTED => DCNT_IA_CM_USER_REJ_RX,
            DAT_CONNECTION_EVENT_DISCONNECTED if from == State::Connected => DCNT_IA_CM_DREQ_RX,
            DAT_CONNECTION_EVENT_DISCONNECTED => return,
            DAT_CONNECTION_EVENT_NON_PEER_REJECTED => DCNT_IA_CM_ERR_REFUSED,
            DAT_CONNECTION_EVENT_TIMED_OUT => DCNT_IA_CM_ERR_TIMEOUT,
            DAT_CONNECTION_EVENT_BROKEN => DCNT_IA_CM_ERR_RESET,
            _ => DCNT_IA_CM_ERR,
        };
        self.ia.counters.count(&[counter]);
    }
}

impl<T: Transport> Receiver<T> for EpShared<T> {
    /// Handles every report of the transport about this endpoint and its connection.
    fn upcall(&self, up: Upcall<'_, T>) {
        match up {
            Upcall::Established { private, peer, local, depth } => {
                // A post checks the depth if it finds the endpoint connected.
                self.read_depth.store(depth.outgoing, Ordering::Release);
                let Ok(Transition { from, effect: Effect::To(_) }) = self.apply(Event::Established)
                else {
                    return;
                };
                let passive = from == State::CompletionPending;
                let (ia, ep, connection) = (&self.ia.name, Hex(self.ep), self.conn().number);
                info!(
                    target: "dat::cm", ia, %ep, connection, %local, %peer, passive, "established"
                );
                self.last_cause.set_peer(peer.ip());
                {
                    let mut conn = self.conn();
                    conn.local = local.into();
                    conn.remote.sockaddr = peer.into();
                    if passive {
                        conn.remote.port = peer.port().into();
                    }
                }
                self.ia.counters.count(match passive {
                    true => &[DCNT_IA_CM_PASSIVE_EST],
                    false => &[DCNT_IA_CM_REP_RX, DCNT_IA_CM_ACTIVE_EST],
                });
                // On the passive side the event has no private data (uDAPL 1.2, dat_evd_wait).
                let private = if passive { &[] } else { private };
                self.report(DAT_CONNECTION_EVENT_ESTABLISHED, private, Order::Now);
            }
            Upcall::Resolved { number, remote, peer, private } => {
                self.on_resolved(number, remote, peer, private)
            }
            Upcall::Unresolved { number, why } => self.on_unresolved(number, why),
            Upcall::Rejected { by_peer, private } => {
                self.ended(Event::Failed, private, None, |from| match (from, by_peer) {
                    (State::DisconnectPending, _) => DAT_CONNECTION_EVENT_DISCONNECTED,
                    (_, true) => DAT_CONNECTION_EVENT_PEER_REJECTED,
                    (_, false) => DAT_CONNECTION_EVENT_NON_PEER_REJECTED,
                })
            }
            Upcall::Unreachable { because } => {
                self.report_failure(DAT_CONNECTION_EVENT_UNREACHABLE, because)
            }
            Upcall::TimedOut => self.report_failure(DAT_CONNECTION_EVENT_TIMED_OUT, None),
            Upcall::AcceptFailed => {
                self.report_failure(DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR, None)
            }
            Upcall::Disconnected => self.report_loss(DAT_CONNECTION_EVENT_DISCONNECTED, None),
            Upcall::Broken { because } => self.report_loss(DAT_CONNECTION_EVENT_BROKEN, because),
            Upcall::HighWatermark => self.exceeds_soft_watermark(),
            Upcall::ReceiverNotReady { octets, whole } => self.keep_cause(Cause::NoReceive {
                octets: Octets { count: octets.into(), whole },
                on_srq: self.on_srq,
                waits: true,
            }),
            Upcall::Cause(cause) => self.keep_cause(cause),
            Upcall::Failed => self.ia.report(
                DAT_ASYNC_ERROR_EP_BROKEN,
                self.ep as *mut c_void,
                DAT_EP_OTHER_ERROR,
            ),
            Upcall::CqReady
            | Upcall::CqOverflow
            | Upcall::Request { .. }
            | Upcall::LowWatermark
            | Upcall::PortDown => {}
        }
    }
}

impl<T: Transport> EpShared<T> {
    /// Reports that the endpoint holds more receive buffers than its soft watermark.
    pub(super) fn exceeds_soft_watermark(&self) {
        let ep = self.ep as *mut c_void;
        // The standard defines a reason for an exceeded watermark, but no event number for this
        // event. The handle in the event names the endpoint.
        self.ia.report(
            DAT_ASYNC_ERROR_PROVIDER_INTERNAL_ERROR,
            ep,
            DAT_SRQ_SOFT_HIGH_WATERMARK_EVENT,
        );
    }

    /// Records that the connection is about to be ended because the hard watermark is exceeded.
    pub(super) fn mark_breaking(&self) {
        self.breaking.store(true, Ordering::Release);
        self.last_cause.keep(Cause::ReceiveDeclined);
    }

    /// Prepares the endpoint for its next connection.
    pub(super) fn prepare_reconnect(&self) {
        self.breaking.store(false, Ordering::Release);
        self.forget_calls();
        self.conn().clear();
    }

    fn report_failure(&self, number: DAT_EVENT_NUMBER, because: Option<&dyn Display>) {
        self.ended(Event::Failed, &[], because, |from| match from {
            State::DisconnectPending => DAT_CONNECTION_EVENT_DISCONNECTED,
            _ => number,
        });
    }

    fn report_loss(&self, number: DAT_EVENT_NUMBER, because: Option<&dyn Display>) {
        self.ended(Event::Ended, &[], because, |from| match from {
            _ if self.service() == ServiceType::Datagram => number,
            // The consumer has requested the disconnect, so the event is the same for every cause.
            State::DisconnectPending => DAT_CONNECTION_EVENT_DISCONNECTED,
            State::ActivePending => DAT_CONNECTION_EVENT_NON_PEER_REJECTED,
            State::CompletionPending => DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR,
            _ if self.breaking.load(Ordering::Acquire) => DAT_CONNECTION_EVENT_BROKEN,
            _ => number,
        });
    }
}

/// The cause of an end that the transport has not explained. `from` is the state before the end,
/// and `number` the event that reports it.
fn cause_of_end(from: State, number: DAT_EVENT_NUMBER, detail: Option<&dyn Display>) -> Cause {
    let why = detail.map(ToString::to_string);
    match number {
        DAT_CONNECTION_EVENT_PEER_REJECTED => Cause::Rejected,
        DAT_CONNECTION_EVENT_NON_PEER_REJECTED => Cause::RejectedByProvider { why },
        DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR => Cause::AcceptFailed,
        DAT_CONNECTION_EVENT_DISCONNECTED => {
            Cause::Disconnected { by_peer: from == State::Connected }
        }
        DAT_CONNECTION_EVENT_TIMED_OUT => Cause::ConnectTimedOut,
        DAT_CONNECTION_EVENT_UNREACHABLE => Cause::Unreachable { why },
        _ => Cause::Broken { why },
    }
}
