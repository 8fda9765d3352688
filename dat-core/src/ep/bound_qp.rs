//! The queue pair of an endpoint.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use dat_sys::*;

use super::{Ep, Evds, Flow, FreedFlows, Setup};
use crate::error::Result;
use crate::handle::Ref;
use crate::provider::{QpCfg, ServiceType, Sink, Token, Transport};

/// A queue pair with its limits and the data about its outstanding work. An endpoint gets a new
/// queue pair whenever it is configured, reconfigured or reset.
pub(super) struct BoundQp<T: Transport> {
    pub(super) qp: T::Qp,
    pub(super) flow: Arc<Flow>,
    /// The value is `DAT_COMPLETION_UNSIGNALLED_FLAG` if requests may carry this flag, and 0 if
    /// they may not.
    pub(super) unsignalled: DAT_COMPLETION_FLAGS,
    /// The value is `DAT_COMPLETION_UNSIGNALLED_FLAG` if receives may carry this flag, and 0 if
    /// they may not.
    pub(super) recv_unsignalled: DAT_COMPLETION_FLAGS,
    pub(super) max_send_iov: usize,
    pub(super) max_write_iov: usize,
    pub(super) max_read_iov: usize,
    pub(super) max_recv_iov: usize,
    /// The maximum length of a message in bytes.
    pub(super) max_message: u64,
    /// The maximum length of an RDMA operation in bytes.
    pub(super) max_rdma: u64,
    pub(super) on_srq: bool,
    /// The handle of the protection zone.
    pub(super) pz: usize,
    /// Whether completions of binds may go to the request EVD. Also true if there is no request
    /// EVD.
    pub(super) takes_binds: bool,
}

impl<T: Transport> Ep<T> {
    /// Creates a queue pair for the configuration. Returns NULL if the endpoint has no protection
    /// zone. An error leaves the endpoint unchanged.
    pub(super) fn new_bound_qp(&self, setup: &mut Setup<T>) -> Result<*mut BoundQp<T>> {
        let Some(pz) = &setup.pz else { return Ok(std::ptr::null_mut()) };
        let mut holding = setup.holding.for_next_qp();
        let attr = &setup.attr;
        let count = |n: DAT_COUNT| usize::try_from(n).unwrap_or(0);
        let mut srq_share = setup.srq.as_ref().map(|srq| srq.counts.share());
        if setup.recv_evd.is_none() {
            holding.set_unreported(srq_share.take());
        }
        let holding = Arc::new(holding);
        let depths = [count(attr.max_request_dtos), count(attr.max_recv_dtos)];
        let tally = self.counters.flow();
        let ep = self.shared.ep as *mut c_void;
        let (held, last_cause) = (Arc::clone(&holding), Arc::clone(&self.shared.last_cause));
        let mut flow = Flow::new(ep, &self.ia.name, depths, srq_share, held, tally, last_cause)?;
        flow.is_datagram = self.service() == ServiceType::Datagram;
        flow.lift_unreported_limits(setup.request_evd.is_some(), setup.recv_evd.is_some());
        flow.mark_lost([setup.recv_evd.as_deref(), setup.request_evd.as_deref()]);
        // The flow is in an `Arc` and not in a `Box`, because other code keeps its address: moving
        // a `Box` would assert that nobody else accesses its content.
        let flow = Arc::new(flow);
        let limits = self.ia.transport.attrs();
        // Consumers of uDAPL 1.1 leave max_rdma_write_iov and max_rdma_read_iov at 0 and mean
        // max_request_iov.
        let or_request_iov =
            |iov: DAT_COUNT| count(if iov == 0 { attr.max_request_iov } else { iov });
        let service = self.service();
        let longest_message = match service {
            ServiceType::Connection => limits.max_message,
            ServiceType::Datagram => limits.max_datagram.unwrap_or(0),
        };
        let max_message = match limits.permits_longer_messages() {
            true => longest_message,
            false => attr.max_message_size.min(longest_message),
        };
        let max_rdma = match limits.permits_longer_rdma() {
            true => limits.max_message,
            false => attr.max_rdma_size,
        };
        let cfg = QpCfg {
            pd: &pz.pd,
            request_cq: setup.request_evd.as_ref().and_then(|evd| evd.cq()),
            recv_cq: setup.recv_evd.as_ref().and_then(|evd| evd.cq()),
            srq: setup.srq.as_ref().map(|srq| &srq.srq),
            service,
            token: Token::new(&flow),
            holding: Arc::clone(&holding),
            sender_wakes: attr.recv_completion_flags == DAT_COMPLETION_SOLICITED_WAIT_FLAG,
            max_requests: depths[0],
            max_recvs: depths[1],
            max_request_segments: count(attr.max_request_iov)
                .max(count(attr.max_rdma_write_iov))
                .max(count(attr.max_rdma_read_iov)),
            max_recv_segments: count(attr.max_recv_iov),
        };
        // SAFETY: `shared` is dropped after the queue pair (`drop_bound_qp` precedes the drop of
        // the endpoint).
        let sink = unsafe { Sink::new(&*self.shared) };
        let qp = self.ia.transport.qp(cfg, sink)?;
        let bound = Box::into_raw(Box::new(BoundQp {
            qp,
            flow,
            unsignalled: attr.request_completion_flags & DAT_COMPLETION_UNSIGNALLED_FLAG,
            recv_unsignalled: attr.recv_completion_flags & DAT_COMPLETION_UNSIGNALLED_FLAG,
            max_send_iov: count(attr.max_request_iov),
            max_write_iov: or_request_iov(attr.max_rdma_write_iov),
            max_message: max_message.into(),
            max_rdma: max_rdma.into(),
            max_read_iov: or_request_iov(attr.max_rdma_read_iov).min(limits.max_read_segments),
            max_recv_iov: count(attr.max_recv_iov),
            on_srq: setup.srq.is_some(),
            pz: pz.handle() as usize,
            takes_binds: setup
                .request_evd
                .as_ref()
                .is_none_or(|evd| evd.flags & DAT_EVD_RMR_BIND_FLAG != 0),
        }));
        setup.holding = holding;
        Ok(bound)
    }

    /// Drops the queue pair. Its flow is kept while `evds` contain completions of the queue pair.
    /// The caller holds the control lock.
    pub(super) fn drop_bound_qp(&self, control: &mut FreedFlows, evds: Evds<T>) {
        self.replace_bound_qp(control, std::ptr::null_mut(), evds);
    }

    /// Replaces the queue pair by `bound`, and drops the former queue pair as [`Ep::drop_bound_qp`]
    /// does.
    pub(super) fn replace_bound_qp(
        &self,
        control: &mut FreedFlows,
        bound: *mut BoundQp<T>,
        evds: Evds<T>,
    ) {
        let raw = self.bound_qp.swap(bound, Ordering::AcqRel);
        if raw.is_null() {
            return;
        }
        // SAFETY: `new_bound_qp` made the box, and the thread that swaps the pointer out owns it.
        let BoundQp { qp, flow, .. } = *unsafe { Box::from_raw(raw) };
        // SAFETY: the endpoint does not refer to the queue pair any more, and no thread posts while
        // this function runs (`ep::post`).
        unsafe { flow.set_expected::<T>(&qp) };
        drop(qp);
        let [recv, request] = &evds;
        control.adopt(&flow, [recv.as_ref().map(Ref::node), request.as_ref().map(Ref::node)]);
    }
}

/// Drops a queue pair that was never used.
pub(super) fn discard<T: Transport>(bound: *mut BoundQp<T>) {
    if !bound.is_null() {
        // SAFETY: `new_bound_qp` made the box, nobody else has it, and no completion refers to its
        // flow.
        drop(unsafe { Box::from_raw(bound) });
    }
}

impl<T: Transport> Drop for Ep<T> {
    fn drop(&mut self) {
        // A queue pair is left here only if the endpoint was never added to the list of the
        // adapter's objects.
        discard(*self.bound_qp.get_mut());
    }
}
