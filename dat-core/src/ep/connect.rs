//! Connecting, accepting, disconnecting.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use dat_sys::ib::*;
use dat_sys::*;
use tracing::debug;

use super::link::Link;
use super::network::Address;
use super::state::{Effect, Event, State};
use super::{Ep, Setup, params};
use crate::error::{Error, Result};
use crate::log::{self, Hex};
use crate::provider::{Close, Connect, Queue, ReadDepth, Transport};

/// Where an endpoint is connected, if it is.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    state: State,
    peer: Option<(SocketAddr, DAT_CONN_QUAL)>,
}

impl<T: Transport> Ep<T> {
    /// dat_ep_connect. `timeout` in microseconds.
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
        self.dial(addr, qualifier, timeout, private, 4)
    }

    /// dat_ep_common_connect (uDAPL 2.0): to a service point named as a socket is, by an address with its port.
    pub fn common_connect(
        &self,
        addr: SocketAddr,
        timeout: DAT_TIMEOUT,
        private: &[u8],
    ) -> Result<()> {
        if addr.port() == 0 {
            return Err(Error::new(DAT_INVALID_ADDRESS, DAT_INVALID_ADDRESS_MALFORMED));
        }
        self.dial(addr, addr.port().into(), timeout, private, 3)
    }

    /// `arg`: the position of the timeout in the call; the size of the private data is behind it.
    fn dial(
        &self,
        addr: SocketAddr,
        qualifier: DAT_CONN_QUAL,
        timeout: DAT_TIMEOUT,
        private: &[u8],
        arg: u32,
    ) -> Result<()> {
        let limits = self.ia.transport.attrs();
        // uDAPL 1.2, dat_ep_connect: timeout values must be positive. For OFED's library 0 means that there is no limit.
        let limit = match timeout {
            DAT_TIMEOUT_INFINITE => None,
            0 if limits.strict => return Err(Error::arg(arg)),
            0 => None,
            us => Some(Duration::from_micros(us.into())),
        };
        if private.len() > limits.max_private {
            return Err(Error::arg(arg + 1));
        }
        let mut setup = self.setup();
        let link = self.ready(&setup)?;
        self.shared.apply(Event::Connect)?;
        self.shared.conn().remote = Address { sockaddr: addr.into(), port: qualifier };
        let (ia, ep, connection) = (&self.ia.name, Hex(self.shared.ep), self.number(link));
        let private_size = private.len();
        debug!(target: "dat::cm", ia, %ep, connection, to = %addr.ip(), qualifier, private = private_size, "connecting");
        let to =
            Connect { addr, port: qualifier, private, timeout: limit, depth: setup.read_depth() };
        let begun = link.qp.connect(&to).inspect_err(|_| self.retract());
        setup.peer = Some((addr, qualifier));
        begun?;
        self.counters.count(DCNT_EP_CONNECT);
        self.ia.counters.count(&[DCNT_IA_CM_REQ_TX]);
        Ok(())
    }

    /// What another endpoint is told that shall connect to where this one is.
    pub fn model(&self) -> Model {
        let setup = self.setup();
        Model { state: self.state(), peer: setup.peer }
    }

    /// dat_ep_dup_connect: to where `model` is connected.
    pub fn dup_connect(
        &self,
        model: Model,
        timeout: DAT_TIMEOUT,
        private: &[u8],
        qos: DAT_QOS,
    ) -> Result<()> {
        match (model.state, model.peer) {
            (State::Connected, Some((addr, qualifier))) => {
                params::check_qos(qos)?;
                self.dial(addr, qualifier, timeout, private, 3)
            }
            (state, _) => Err(state.refusal()),
        }
    }

    /// dat_cr_accept on this endpoint, whose state has been checked by the caller's `Accept`.
    pub(crate) fn accept(&self, cr: Hex, request: T::Request, private: &[u8]) -> Result<()> {
        let setup = self.setup();
        let link = self.ready(&setup)?;
        let (ia, ep, connection) = (&self.ia.name, Hex(self.shared.ep), self.number(link));
        debug!(target: "dat::cm", ia, %cr, %ep, connection, private = private.len(), "accepted");
        link.qp.accept(request, private, setup.read_depth())
    }

    /// Whether it could accept: it has a protection zone and a connection EVD.
    pub(crate) fn check_ready(&self) -> Result<()> {
        self.ready(&self.setup()).map(drop)
    }

    /// A number for the connection that begins.
    fn number(&self, link: &Link<T>) -> u64 {
        let number = log::connection();
        self.shared.conn().number = number;
        link.flow.connection.store(number, Ordering::Relaxed);
        number
    }

    /// A connect or accept that failed before it began.
    pub(crate) fn retract(&self) {
        // Whatever else happened meanwhile has the last word.
        let _ = self.shared.apply(Event::Retract);
    }

    /// The parts that a connection needs (uDAPL 1.2, dat_ep_connect: otherwise an invalid state).
    fn ready<'a>(&'a self, setup: &'a Setup<T>) -> Result<&'a Link<T>> {
        if setup.pz.is_none() {
            return Err(Error::state(DAT_INVALID_STATE_EP_PZ));
        }
        if self.shared.conn().evd.is_none() {
            return Err(Error::state(DAT_INVALID_STATE_EP_EVD_CONNECT));
        }
        self.linked(setup).ok_or(Error::state(DAT_INVALID_STATE_EP_NOTREADY))
    }

    /// dat_ep_disconnect.
    pub fn disconnect(&self, flags: DAT_CLOSE_FLAGS) -> Result<()> {
        let (event, how) = match flags {
            DAT_CLOSE_ABRUPT_FLAG => (Event::DisconnectAbruptly, Close::Abrupt),
            DAT_CLOSE_GRACEFUL_FLAG => (Event::DisconnectGracefully, Close::Graceful),
            _ => return Err(Error::arg(2)),
        };
        let moved = self.shared.apply(event)?;
        self.counters.count(DCNT_EP_DISCONNECT);
        if moved.effect == Effect::Nothing {
            return Ok(());
        }
        // uDAPL 1.2, dat_ep_disconnect: unless connected, both flags mean the same.
        let how = if moved.from == State::Connected { how } else { Close::Abrupt };
        if moved.from == State::Connected {
            self.ia.counters.count(&[DCNT_IA_CM_DREQ_TX]);
        }
        if let Some(link) = self.linked(&self.setup()) {
            link.qp.disconnect(how);
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
