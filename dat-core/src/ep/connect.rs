//! Connecting, accepting and disconnecting.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;
use std::time::Duration;

use dat_sys::ib::*;
use dat_sys::*;
use telemetry::Hex;
use tracing::{debug, warn};

use super::bound_qp::BoundQp;
use super::network::Address;
use super::state::{Effect, Event, State};
use super::{Ep, Setup, params};
use crate::addr;
use crate::conn::port;
use crate::error::{Error, Result};
use crate::log;
use crate::provider::{Close, Connect, Queue, ReadDepth, ServiceType, Transport};

/// The state and the peer of an endpoint, from which dat_ep_dup_connect connects another endpoint
/// to the same peer.
#[derive(Clone, Copy, Debug)]
pub struct DupSource {
    state: State,
    peer: Option<(SocketAddr, DAT_CONN_QUAL)>,
}

impl<T: Transport> Ep<T> {
    /// Implements dat_ep_connect. `timeout` is in microseconds.
    pub fn connect(
        &self,
        addr: SocketAddr,
        qualifier: DAT_CONN_QUAL,
        timeout: DAT_TIMEOUT,
        private: &[u8],
        qos: DAT_QOS,
        flags: DAT_CONNECT_FLAGS,
    ) -> Result<()> {
        match flags {
            DAT_CONNECT_DEFAULT_FLAG => {}
            DAT_CONNECT_MULTIPATH_REQUESTED_FLAG | DAT_CONNECT_MULTIPATH_REQUIRED_FLAG => {
                return Err(Error::of(DAT_MODEL_NOT_SUPPORTED));
            }
            _ => return Err(Error::arg(8)),
        }
        params::check_qos(qos)?;
        self.start_connect(addr, qualifier, timeout, private, 4)
    }

    /// Implements dat_ep_common_connect (uDAPL 2.0): connects to a service point that is named by
    /// an address with its port, as a socket is.
    pub fn common_connect(
        &self,
        addr: SocketAddr,
        timeout: DAT_TIMEOUT,
        private: &[u8],
    ) -> Result<()> {
        if addr.port() == 0 {
            return Err(Error::new(DAT_INVALID_ADDRESS, DAT_INVALID_ADDRESS_MALFORMED));
        }
        self.start_connect(addr, addr.port().into(), timeout, private, 3)
    }

    /// Starts to connect. `arg` is the argument position of the timeout in the standard's call. The
    /// size of the private data is at the next position.
    fn start_connect(
        &self,
        addr: SocketAddr,
        qualifier: DAT_CONN_QUAL,
        timeout: DAT_TIMEOUT,
        private: &[u8],
        arg: u32,
    ) -> Result<()> {
        let limits = self.ia.transport.attrs();
        // A timeout must be positive (uDAPL 1.2, dat_ep_connect).
        let limit = match timeout {
            DAT_TIMEOUT_INFINITE => None,
            0 => return Err(Error::arg(arg)),
            us => Some(Duration::from_micros(us.into())),
        };
        if private.len() > limits.max_private {
            return Err(Error::arg(arg + 1));
        }
        let addr = addr::with_scope(addr, limits.interface).inspect_err(|_| {
            let because = "a link-local address needs a scope: the index of a network interface";
            warn!(target: "dat::cm", to = %addr.ip(), because, "cannot connect");
        })?;
        let mut setup = self.setup();
        let bound = self.qp_if_ready(&setup)?;
        let depth = setup.read_depth();
        let to = Connect { addr, port: port(qualifier), private, timeout: limit, depth };
        if self.service() == ServiceType::Datagram {
            return self.resolve(bound, &to);
        }
        self.shared.apply(Event::Connect)?;
        self.shared.conn().remote = Address { sockaddr: addr.into(), port: qualifier };
        let (ia, ep, connection) =
            (&self.ia.name, Hex(self.shared.ep), self.assign_number(bound, Some(addr.ip())));
        let private_size = private.len();
        debug!(
            target: "dat::cm", ia, %ep, connection, to = %addr.ip(), qualifier,
            private = private_size, "connecting"
        );
        let begun = bound.qp.connect(&to).inspect_err(|_| self.retract());
        setup.peer = Some((addr, qualifier));
        begun?;
        self.counters.count(DCNT_EP_CONNECT);
        self.ia.counters.count(&[DCNT_IA_CM_REQ_TX]);
        Ok(())
    }

    /// Returns the data with which dat_ep_dup_connect connects another endpoint to the peer of this
    /// endpoint.
    pub fn dup_source(&self) -> DupSource {
        let setup = self.setup();
        DupSource { state: self.state(), peer: setup.peer }
    }

    /// Implements dat_ep_dup_connect: connects to the peer of the endpoint that `source` describes.
    pub fn dup_connect(
        &self,
        source: DupSource,
        timeout: DAT_TIMEOUT,
        private: &[u8],
        qos: DAT_QOS,
    ) -> Result<()> {
        match (source.state, source.peer) {
            (State::Connected, Some((addr, qualifier))) => {
                params::check_qos(qos)?;
                self.start_connect(addr, qualifier, timeout, private, 3)
            }
            (state, _) => Err(state.refusal()),
        }
    }

    /// Implements dat_cr_accept for this endpoint. The caller has already applied
    /// [`Event::Accept`], which checks the state.
    pub(crate) fn accept(
        &self,
        cr: Hex,
        request: T::ConnectionRequest,
        private: &[u8],
    ) -> Result<()> {
        let mut setup = self.setup();
        // The peer's address names its end of the connection, and not a service point to which
        // another endpoint could connect.
        setup.peer = None;
        let bound = self.qp_if_ready(&setup)?;
        let (ia, ep, connection) =
            (&self.ia.name, Hex(self.shared.ep), self.assign_number(bound, None));
        debug!(target: "dat::cm", ia, %cr, %ep, connection, private = private.len(), "accepted");
        bound.qp.accept(request, private, setup.read_depth())
    }

    /// Checks whether the endpoint can accept a connection, for which it needs a protection zone
    /// and a connection EVD.
    pub(crate) fn check_ready(&self) -> Result<()> {
        self.qp_if_ready(&self.setup()).map(drop)
    }

    /// Assigns a number to the connection that is about to begin. `peer` is its peer, if it is
    /// known yet.
    fn assign_number(&self, bound: &BoundQp<T>, peer: Option<IpAddr>) -> u64 {
        let number = log::next_connection_number();
        self.shared.last_cause.begin(peer);
        self.shared.conn().number = number;
        bound.flow.connection.store(number, Ordering::Relaxed);
        number
    }

    /// Records the addresses of a connection request that belongs to the endpoint, or that it is
    /// about to accept.
    pub(crate) fn set_addresses(&self, local: SocketAddr, remote: SocketAddr) {
        let mut conn = self.shared.conn();
        (conn.local, conn.remote) = (local.into(), remote.into());
    }

    /// Makes the endpoint unconnected again, after a connect or accept that has failed at once or
    /// when its connection request is withdrawn.
    pub(crate) fn retract(&self) {
        // The lock keeps a new connection from setting its addresses before the old ones are
        // discarded. If another event has changed the state in the meantime, that change stays.
        let mut conn = self.shared.conn();
        if self.shared.apply(Event::Retract).is_ok() {
            conn.clear();
        }
    }

    /// Returns the queue pair if the endpoint has all objects that a connection needs. If one is
    /// missing, the error is `DAT_INVALID_STATE` (uDAPL 1.2, dat_ep_connect).
    pub(super) fn qp_if_ready<'a>(&'a self, setup: &'a Setup<T>) -> Result<&'a BoundQp<T>> {
        if setup.pz.is_none() {
            return Err(Error::state(DAT_INVALID_STATE_EP_PZ));
        }
        if self.shared.conn().evd.is_none() {
            return Err(Error::state(DAT_INVALID_STATE_EP_EVD_CONNECT));
        }
        self.current_qp(setup).ok_or(Error::state(DAT_INVALID_STATE_EP_NOTREADY))
    }

    /// Implements dat_ep_disconnect.
    pub fn disconnect(&self, flags: DAT_CLOSE_FLAGS) -> Result<()> {
        let (event, how) = match flags {
            DAT_CLOSE_ABRUPT_FLAG => (Event::DisconnectAbruptly, Close::Abrupt),
            DAT_CLOSE_GRACEFUL_FLAG => (Event::DisconnectGracefully, Close::Graceful),
            _ => return Err(Error::arg(2)),
        };
        // A datagram endpoint is never connected, so there is nothing to end. As in OFED's library,
        // the call succeeds.
        if self.service() == ServiceType::Datagram {
            self.counters.count(DCNT_EP_DISCONNECT);
            return Ok(());
        }
        let transition = self.shared.apply(event)?;
        self.counters.count(DCNT_EP_DISCONNECT);
        if transition.effect == Effect::Nothing {
            return Ok(());
        }
        // If the endpoint is not connected, both close flags have the same effect (uDAPL 1.2,
        // dat_ep_disconnect).
        let how = if transition.from == State::Connected { how } else { Close::Abrupt };
        if transition.from == State::Connected {
            self.ia.counters.count(&[DCNT_IA_CM_DREQ_TX]);
        }
        if let Some(bound) = self.current_qp(&self.setup()) {
            bound.qp.disconnect(how);
        }
        Ok(())
    }
}

impl<T: Transport> Setup<T> {
    fn read_depth(&self) -> ReadDepth {
        ReadDepth {
            incoming: u32::try_from(self.attr.max_rdma_read_in).unwrap_or(0),
            outgoing: u32::try_from(self.attr.max_rdma_read_out).unwrap_or(0),
        }
    }
}
