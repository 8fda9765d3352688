//! Connections over the adapter's own address.

use std::ptr::null_mut;

use dat_sys::*;

use super::{Ep, Rig, soon};
use crate::case::Outcome;
use crate::check::ok;

/// A public service point with an EVD of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listener {
    /// The service point.
    pub(crate) psp: DAT_PSP_HANDLE,
    /// What it listens on.
    pub(crate) qualifier: DAT_CONN_QUAL,
    /// Where requests are reported.
    pub(crate) evd: DAT_EVD_HANDLE,
}

/// A common service point with an EVD of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommonPoint {
    /// The service point.
    pub(crate) csp: DAT_CSP_HANDLE,
    /// Where it listens, with the port; the provider's, as long as the point is there.
    pub(crate) address: DAT_IA_ADDRESS_PTR,
    /// Where requests are reported.
    pub(crate) evd: DAT_EVD_HANDLE,
}

/// A connection request, as its event tells it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// The request.
    pub(crate) cr: DAT_CR_HANDLE,
    /// The service point.
    pub(crate) sp: DAT_HANDLE,
    /// What was connected to.
    pub(crate) qualifier: DAT_CONN_QUAL,
    /// The address that was connected to.
    pub(crate) address: DAT_IA_ADDRESS_PTR,
}

/// Two connected endpoints of one adapter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    /// The side that connected.
    pub(crate) active: Ep,
    /// The side that accepted.
    pub(crate) passive: Ep,
}

impl Rig {
    /// A public service point on a free qualifier, whose endpoints the consumer makes.
    pub(crate) fn listen(&self) -> Outcome<Listener> {
        self.listen_for(DAT_PSP_CONSUMER_FLAG, super::objects::QLEN)
    }

    /// A public service point of this kind and backlog.
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

    /// A common service point at the adapter's address, on any port, where the provider has such.
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

    /// A qualifier that was free a moment ago.
    pub(crate) fn free_qualifier(&self) -> Outcome<DAT_CONN_QUAL> {
        let Listener { psp, qualifier, .. } = self.listen()?;
        ok(self.api.dat_psp_free(psp))?;
        Ok(qualifier)
    }

    /// dat_ep_connect to the adapter's own address.
    pub(crate) fn connect(
        &self,
        ep: DAT_EP_HANDLE,
        qualifier: DAT_CONN_QUAL,
        private: &[u8],
    ) -> DAT_RETURN {
        self.connect_within(ep, qualifier, private, soon())
    }

    /// The same with a time limit in microseconds.
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

    /// dat_cr_accept.
    pub(crate) fn accept(
        &self,
        cr: DAT_CR_HANDLE,
        ep: DAT_EP_HANDLE,
        private: &[u8],
    ) -> DAT_RETURN {
        let (size, data) = bytes(private);
        self.api.dat_cr_accept(cr, ep, size, data)
    }

    /// dat_cr_reject.
    pub(crate) fn reject(&self, cr: DAT_CR_HANDLE, private: &[u8]) -> DAT_RETURN {
        let (size, data) = bytes(private);
        self.api.dat_cr_reject(cr, size, data)
    }

    /// An endpoint that asks for a connection, and the request that comes of it.
    pub(crate) fn request(&self, private: &[u8]) -> Outcome<(Ep, Arrival)> {
        let listener = self.listen()?;
        let ep = self.ep()?;
        ok(self.connect(ep.ep, listener.qualifier, private))?;
        Ok((ep, self.arrival(listener.evd)?))
    }

    /// Two connected endpoints.
    pub(crate) fn pair(&self) -> Outcome<Pair> {
        self.pair_of(self.ep()?, self.ep()?)
    }

    /// Two connected endpoints with these attributes.
    pub(crate) fn pair_with(&self, attr: &DAT_EP_ATTR) -> Outcome<Pair> {
        self.pair_of(self.ep_with(attr)?, self.ep_with(attr)?)
    }

    /// Connects two endpoints.
    pub(crate) fn pair_of(&self, active: Ep, passive: Ep) -> Outcome<Pair> {
        let listener = self.listen()?;
        ok(self.connect(active.ep, listener.qualifier, b""))?;
        let arrival = self.arrival(listener.evd)?;
        ok(self.accept(arrival.cr, passive.ep, b""))?;
        self.connection(active.connect, DAT_CONNECTION_EVENT_ESTABLISHED)?;
        self.connection(passive.connect, DAT_CONNECTION_EVENT_ESTABLISHED)?;
        ok(self.api.dat_psp_free(listener.psp))?;
        Ok(Pair { active, passive })
    }

    /// All that the active side wrote before is in the memory of the other: a read behind it has come back.
    #[track_caller]
    pub(crate) fn settle(&self, pair: Pair) -> Outcome {
        const READ: u64 = 0xdead_beef;
        let (near, far) = (self.memory(1)?, self.memory(1)?);
        ok(self.read(pair.active.ep, &[near.all()], READ, &far.remote()))?;
        self.completes(pair.active.request, READ, DAT_DTO_SUCCESS).map(drop)
    }

    /// A connection that has ended: both endpoints are disconnected, and their events taken.
    pub(crate) fn ended_pair(&self) -> Outcome<Pair> {
        let pair = self.pair()?;
        ok(self.api.dat_ep_disconnect(pair.active.ep, DAT_CLOSE_ABRUPT_FLAG))?;
        self.connection(pair.active.connect, DAT_CONNECTION_EVENT_DISCONNECTED)?;
        self.connection(pair.passive.connect, DAT_CONNECTION_EVENT_DISCONNECTED)?;
        Ok(pair)
    }
}

/// Private data as C wants it: null where there is none.
pub(crate) fn bytes(private: &[u8]) -> (DAT_COUNT, DAT_PVOID) {
    match private {
        [] => (0, null_mut()),
        _ => (private.len() as DAT_COUNT, private.as_ptr().cast_mut().cast()),
    }
}
