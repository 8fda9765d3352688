//! Creates and queries zones, event dispatchers, endpoints and shared receive queues.

use std::ptr::{from_ref, null, null_mut};

use dat_sys::*;

use super::adapter::Rig;
use crate::check::{Outcome, ensure_equal, ok, supported, unsupported};

/// The minimum length of the queue of each EVD that a rig creates.
pub(crate) const EVD_QUEUE_LENGTH: DAT_COUNT = 64;
/// The maximum number of receives, and of requests, of each EP that a rig creates.
pub(crate) const MAX_DTOS: DAT_COUNT = 16;

/// An endpoint whose EVDs no other object uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ep {
    /// The endpoint.
    pub(crate) ep: DAT_EP_HANDLE,
    /// The EVD for the completions of receives.
    pub(crate) recv: DAT_EVD_HANDLE,
    /// The EVD for the completions of requests.
    pub(crate) request: DAT_EVD_HANDLE,
    /// The EVD for the connection events.
    pub(crate) connect: DAT_EVD_HANDLE,
}

impl Rig {
    /// Returns the rig's zone, which all objects have that are not created in another zone.
    pub(crate) fn pz(&self) -> Outcome<DAT_PZ_HANDLE> {
        if let Some(pz) = self.pz.get() {
            return Ok(*pz);
        }
        let pz = self.new_pz()?;
        Ok(*self.pz.get_or_init(|| pz))
    }

    /// Creates a zone that is different from the rig's zone.
    pub(crate) fn new_pz(&self) -> Outcome<DAT_PZ_HANDLE> {
        self.pz_of(self.ia)
    }

    /// Creates a zone that belongs to this open of the adapter.
    pub(crate) fn pz_of(&self, ia: DAT_IA_HANDLE) -> Outcome<DAT_PZ_HANDLE> {
        let mut pz = null_mut();
        ok(self.api.dat_pz_create(ia, &mut pz))?;
        Ok(pz)
    }

    /// Creates an EVD for these event streams.
    pub(crate) fn evd(&self, flags: DAT_EVD_FLAGS) -> Outcome<DAT_EVD_HANDLE> {
        self.evd_of(self.ia, EVD_QUEUE_LENGTH, flags)
    }

    /// Creates an EVD for at least this many events, which belongs to this open of the adapter.
    pub(crate) fn evd_of(
        &self,
        ia: DAT_IA_HANDLE,
        qlen: DAT_COUNT,
        flags: DAT_EVD_FLAGS,
    ) -> Outcome<DAT_EVD_HANDLE> {
        self.evd_with(ia, qlen, DAT_HANDLE_NULL, flags)
    }

    /// Creates an EVD that triggers a CNO.
    pub(crate) fn evd_with(
        &self,
        ia: DAT_IA_HANDLE,
        qlen: DAT_COUNT,
        cno: DAT_CNO_HANDLE,
        flags: DAT_EVD_FLAGS,
    ) -> Outcome<DAT_EVD_HANDLE> {
        let mut evd = null_mut();
        ok(self.api.dat_evd_create(ia, qlen, cno, flags, &mut evd))?;
        Ok(evd)
    }

    /// Creates a CNO without an agent.
    pub(crate) fn cno(&self) -> Outcome<DAT_CNO_HANDLE> {
        let mut cno = null_mut();
        ok(self.api.dat_cno_create(self.ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &mut cno))?;
        Ok(cno)
    }

    /// Returns attributes of an endpoint that any provider can satisfy.
    pub(crate) fn ep_attr(&self) -> DAT_EP_ATTR {
        let reads_in = self.attr.max_rdma_read_per_ep_in.min(4);
        let reads_out = self.attr.max_rdma_read_per_ep_out.min(4);
        DAT_EP_ATTR {
            service_type: DAT_SERVICE_TYPE_RC,
            max_message_size: self.attr.max_message_size.min(1 << 28),
            max_rdma_size: self.attr.max_rdma_size.min(1 << 28),
            qos: DAT_QOS_BEST_EFFORT,
            max_recv_dtos: MAX_DTOS,
            max_request_dtos: MAX_DTOS,
            max_recv_iov: 2,
            max_request_iov: 2,
            max_rdma_read_in: reads_in,
            max_rdma_read_out: reads_out,
            srq_soft_hw: DAT_HW_DEFAULT,
            max_rdma_read_iov: self.attr.max_iov_segments_per_rdma_read.min(2),
            max_rdma_write_iov: self.attr.max_iov_segments_per_rdma_write.min(2),
            ..DAT_EP_ATTR::zeroed()
        }
    }

    /// Creates an unconnected endpoint.
    pub(crate) fn ep(&self) -> Outcome<Ep> {
        self.ep_with(&self.ep_attr())
    }

    /// Creates an unconnected endpoint with these attributes.
    pub(crate) fn ep_with(&self, attr: &DAT_EP_ATTR) -> Outcome<Ep> {
        self.ep_in(self.pz()?, Some(attr))
    }

    /// Creates an unconnected endpoint in a zone. If `attr` is `None`, the endpoint gets the
    /// defaults of the provider.
    pub(crate) fn ep_in(&self, pz: DAT_PZ_HANDLE, attr: Option<&DAT_EP_ATTR>) -> Outcome<Ep> {
        let mut ep = self.evds_of_an_ep()?;
        let attr = attr.map_or(null(), from_ref);
        ok(self.api.dat_ep_create(self.ia, pz, ep.recv, ep.request, ep.connect, attr, &mut ep.ep))?;
        Ok(ep)
    }

    /// Creates the EVDs of an endpoint. The case creates the endpoint itself later.
    pub(crate) fn evds_of_an_ep(&self) -> Outcome<Ep> {
        Ok(Ep {
            ep: null_mut(),
            recv: self.evd(DAT_EVD_DTO_FLAG)?,
            request: self.evd(DAT_EVD_DTO_FLAG | DAT_EVD_RMR_BIND_FLAG)?,
            connect: self.evd(DAT_EVD_CONNECTION_FLAG)?,
        })
    }

    /// Creates an SRQ for this many receives in the rig's zone.
    pub(crate) fn srq(&self, max_recv_dtos: DAT_COUNT) -> Outcome<DAT_SRQ_HANDLE> {
        self.srq_in(self.pz()?, max_recv_dtos)
    }

    /// Creates an SRQ in a zone.
    pub(crate) fn srq_in(
        &self,
        pz: DAT_PZ_HANDLE,
        max_recv_dtos: DAT_COUNT,
    ) -> Outcome<DAT_SRQ_HANDLE> {
        if self.provider.srq_supported == DAT_FALSE {
            return unsupported("the provider attribute srq_supported is false");
        }
        let mut srq = null_mut();
        let mut attr =
            DAT_SRQ_ATTR { max_recv_dtos, max_recv_iov: 2, low_watermark: DAT_SRQ_LW_DEFAULT };
        supported(self.api.dat_srq_create(self.ia, pz, &mut attr, &mut srq))?;
        Ok(srq)
    }

    /// Creates an unconnected endpoint that takes its receives from an SRQ.
    pub(crate) fn ep_on(&self, srq: DAT_SRQ_HANDLE) -> Outcome<Ep> {
        self.ep_on_with(srq, self.pz()?, &self.ep_attr())
    }

    /// Creates an unconnected endpoint that takes its receives from an SRQ, in this zone and with
    /// these attributes.
    pub(crate) fn ep_on_with(
        &self,
        srq: DAT_SRQ_HANDLE,
        pz: DAT_PZ_HANDLE,
        attr: &DAT_EP_ATTR,
    ) -> Outcome<Ep> {
        let mut ep = self.evds_of_an_ep()?;
        let Ep { recv, request, connect, .. } = ep;
        ok(self
            .api
            .dat_ep_create_with_srq(self.ia, pz, recv, request, connect, srq, attr, &mut ep.ep))?;
        Ok(ep)
    }

    /// Creates an RMR in the rig's zone.
    pub(crate) fn rmr(&self) -> Outcome<DAT_RMR_HANDLE> {
        let mut rmr = null_mut();
        supported(self.api.dat_rmr_create(self.pz()?, &mut rmr))?;
        Ok(rmr)
    }

    /// Returns all parameters that dat_ep_query returns.
    pub(crate) fn query(&self, ep: DAT_EP_HANDLE) -> Outcome<DAT_EP_PARAM> {
        let mut param = DAT_EP_PARAM::zeroed();
        ok(self.api.dat_ep_query(ep, DAT_EP_FIELD_ALL, &mut param))?;
        Ok(param)
    }

    /// Returns all parameters that dat_srq_query returns.
    pub(crate) fn query_srq(&self, srq: DAT_SRQ_HANDLE) -> Outcome<DAT_SRQ_PARAM> {
        let mut param = DAT_SRQ_PARAM::zeroed();
        ok(self.api.dat_srq_query(srq, DAT_SRQ_FIELD_ALL, &mut param))?;
        Ok(param)
    }

    /// Returns all parameters that dat_evd_query returns.
    pub(crate) fn query_evd(&self, evd: DAT_EVD_HANDLE) -> Outcome<DAT_EVD_PARAM> {
        let mut param = DAT_EVD_PARAM::zeroed();
        ok(self.api.dat_evd_query(evd, DAT_EVD_FIELD_ALL, &mut param))?;
        Ok(param)
    }

    /// Returns the state of an endpoint.
    pub(crate) fn state(&self, ep: DAT_EP_HANDLE) -> Outcome<DAT_EP_STATE> {
        let (mut state, mut recv_idle, mut request_idle) = (0, 0, 0);
        ok(self.api.dat_ep_get_status(ep, &mut state, &mut recv_idle, &mut request_idle))?;
        Ok(state)
    }

    /// Checks that an endpoint is in this state.
    #[track_caller]
    pub(crate) fn state_is(&self, ep: DAT_EP_HANDLE, state: DAT_EP_STATE) -> Outcome {
        let is = self.state(ep)?;
        ensure_equal("the state of the EP", is, state)
    }
}
