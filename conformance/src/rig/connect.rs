//! Connections between two endpoints of the adapter, through the adapter's own address.

use std::ptr::null_mut;

use dat_sys::*;

use super::adapter::{Rig, event_timeout_us};
use super::objects::{EVD_QUEUE_LENGTH, Ep};
use crate::check::{Outcome, ok};

/// A public service point with an EVD of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listener {
    /// The service point.
    pub(crate) psp: DAT_PSP_HANDLE,
    /// The connection qualifier on which the service point listens.
    pub(crate) qualifier: DAT_CONN_QUAL,
    /// The EVD that reports the connection requests of the service point.
    pub(crate) evd: DAT_EVD_HANDLE,
}

/// A common service point with an EVD of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommonPoint {
    /// The service point.
    pub(crate) csp: DAT_CSP_HANDLE,
    /// The address at which the service point listens, with its port. The provider owns the address
    /// as long as the service point exists.
    pub(crate) address: DAT_IA_ADDRESS_PTR,
    /// The EVD that reports the connection requests of the service point.
    pub(crate) evd: DAT_EVD_HANDLE,
}

/// The event of a connection request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestEvent {
    /// The request.
    pub(crate) cr: DAT_CR_HANDLE,
    /// The service point.
    pub(crate) sp: DAT_HANDLE,
    /// The connection qualifier of the request.
    pub(crate) qualifier: DAT_CONN_QUAL,
    /// The address at which the request arrived.
    pub(crate) address: DAT_IA_ADDRESS_PTR,
}

/// Two connected endpoints of one adapter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    /// The endpoint that has called dat_ep_connect.
    pub(crate) active: Ep,
    /// The endpoint with which the connection request was accepted.
    pub(crate) passive: Ep,
}

impl Rig {
    /// Creates a public service point on a free qualifier. The consumer creates the endpoints for
    /// its requests.
    pub(crate) fn listen(&self) -> Outcome<Listener> {
        self.listen_for(DAT_PSP_CONSUMER_FLAG, EVD_QUEUE_LENGTH)
    }

    /// Creates a public service point with these flags and this backlog.
    pub(crate) fn listen_for(&self, flags: DAT_PSP_FLAGS, backlog: DAT_COUNT) -> Outcome<Listener> {
        let evd = self.evd_of(self.ia, backlog, DAT_EVD_CR_FLAG)?;
        let (mut psp, mut qualifier) = (null_mut(), 0);
        crate::check::supported(self.api.dat_psp_create_any(
            self.ia,
            &mut qualifier,
            evd,
            flags,
            &mut psp,
        ))?;
        Ok(Listener { psp, qualifier, evd })
    }

    /// Creates a common service point at the adapter's address, on any port. If the provider does
    /// not support common service points, the case is unsupported.
    pub(crate) fn common_point(&self) -> Outcome<CommonPoint> {
        const TCP: DAT_COMM = DAT_COMM { domain: 2, r#type: 1, protocol: 6 };
        let (evd, mut csp, mut comm) = (self.evd(DAT_EVD_CR_FLAG)?, null_mut(), TCP);
        let answer =
            self.api.dat_csp_create(self.ia, &mut comm, self.attr.ia_address_ptr, evd, &mut csp);
        if DAT_GET_TYPE(answer) == DAT_COMM_NOT_SUPPORTED {
            return crate::check::unsupported("the provider answers DAT_COMM_NOT_SUPPORTED");
        }
        crate::check::supported(answer)?;
        let mut param = DAT_CSP_PARAM::zeroed();
        ok(self.api.dat_csp_query(csp, DAT_CSP_FIELD_ALL, &mut param))?;
        Ok(CommonPoint { csp, address: param.address_ptr, evd })
    }

    /// Returns a connection qualifier that was free a moment ago. Another process may take it at
    /// any time.
    pub(crate) fn free_qualifier(&self) -> Outcome<DAT_CONN_QUAL> {
        let Listener { psp, qualifier, .. } = self.listen()?;
        ok(self.api.dat_psp_free(psp))?;
        Ok(qualifier)
    }

    /// Calls dat_ep_connect with the adapter's own address.
    pub(crate) fn connect(
        &self,
        ep: DAT_EP_HANDLE,
        qualifier: DAT_CONN_QUAL,
        private: &[u8],
    ) -> DAT_RETURN {
        self.connect_within(ep, qualifier, private, event_timeout_us())
    }

    /// Calls dat_ep_connect like [`connect`](Self::connect), with a time limit in microseconds.
    pub(crate) fn connect_within(
        &self,
        ep: DAT_EP_HANDLE,
        qualifier: DAT_CONN_QUAL,
        private: &[u8],
        timeout: DAT_TIMEOUT,
    ) -> DAT_RETURN {
        let (size, data) = bytes(private);
        let address = self.attr.ia_address_ptr;
        let (qos, flags) = (DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG);
        self.api.dat_ep_connect(ep, address, qualifier, timeout, size, data, qos, flags)
    }

    /// Calls dat_cr_accept.
    pub(crate) fn accept(
        &self,
        cr: DAT_CR_HANDLE,
        ep: DAT_EP_HANDLE,
        private: &[u8],
    ) -> DAT_RETURN {
        let (size, data) = bytes(private);
        self.api.dat_cr_accept(cr, ep, size, data)
    }

    /// Calls dat_cr_reject.
    pub(crate) fn reject(&self, cr: DAT_CR_HANDLE, private: &[u8]) -> DAT_RETURN {
        let (size, data) = bytes(private);
        self.api.dat_cr_reject(cr, size, data)
    }

    /// Calls dat_ep_connect on a new endpoint. Returns the endpoint and the event of its connection
    /// request.
    pub(crate) fn request(&self, private: &[u8]) -> Outcome<(Ep, RequestEvent)> {
        let listener = self.listen()?;
        let ep = self.ep()?;
        ok(self.connect(ep.ep, listener.qualifier, private))?;
        Ok((ep, self.request_event(listener.evd)?))
    }

    /// Returns two connected endpoints.
    pub(crate) fn pair(&self) -> Outcome<Pair> {
        self.pair_of(self.ep()?, self.ep()?)
    }

    /// Returns two connected endpoints with these attributes.
    pub(crate) fn pair_with(&self, attr: &DAT_EP_ATTR) -> Outcome<Pair> {
        self.pair_of(self.ep_with(attr)?, self.ep_with(attr)?)
    }

    /// Connects two endpoints.
    pub(crate) fn pair_of(&self, active: Ep, passive: Ep) -> Outcome<Pair> {
        let listener = self.listen()?;
        ok(self.connect(active.ep, listener.qualifier, b""))?;
        let arrival = self.request_event(listener.evd)?;
        ok(self.accept(arrival.cr, passive.ep, b""))?;
        self.connection(active.connect, DAT_CONNECTION_EVENT_ESTABLISHED)?;
        self.connection(passive.connect, DAT_CONNECTION_EVENT_ESTABLISHED)?;
        ok(self.api.dat_psp_free(listener.psp))?;
        Ok(Pair { active, passive })
    }

    /// Waits until all data that the active side has written are in the memory of the passive side.
    /// To find that out, posts an RDMA read, which is executed after the writes.
    #[track_caller]
    pub(crate) fn wait_for_writes(&self, pair: Pair) -> Outcome {
        const READ: u64 = 0xdead_beef;
        let (near, far) = (self.memory(1)?, self.memory(1)?);
        ok(self.read(pair.active.ep, &[near.all()], READ, &far.remote()))?;
        self.completes(pair.active.request, READ, DAT_DTO_SUCCESS).map(drop)
    }

    /// Returns a connection that has ended: both endpoints are disconnected, and the events of the
    /// disconnect have been dequeued.
    pub(crate) fn ended_pair(&self) -> Outcome<Pair> {
        let pair = self.pair()?;
        ok(self.api.dat_ep_disconnect(pair.active.ep, DAT_CLOSE_ABRUPT_FLAG))?;
        self.connection(pair.active.connect, DAT_CONNECTION_EVENT_DISCONNECTED)?;
        self.connection(pair.passive.connect, DAT_CONNECTION_EVENT_DISCONNECTED)?;
        Ok(pair)
    }
}

/// Converts private data to the arguments of a C function. Empty data become a null pointer.
pub(crate) fn bytes(private: &[u8]) -> (DAT_COUNT, DAT_PVOID) {
    match private {
        [] => (0, null_mut()),
        _ => (private.len() as DAT_COUNT, private.as_ptr().cast_mut().cast()),
    }
}
