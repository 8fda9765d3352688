//! What an endpoint is connected by.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use dat_sys::*;

use super::{Ep, Evds, Flow, Orphans, Setup, params};
use crate::error::Result;
use crate::handle::Ref;
use crate::provider::{QpCfg, Sink, Token, Transport};

/// A queue pair with what is outstanding on it: one incarnation of the endpoint, from (re)configuration to reset.
pub(super) struct Link<T: Transport> {
    pub(super) qp: T::Qp,
    pub(super) flow: Arc<Flow>,
    /// `DAT_COMPLETION_UNSIGNALLED_FLAG` if requests may carry it, else 0.
    pub(super) unsignalled: DAT_COMPLETION_FLAGS,
    /// The same for receives.
    pub(super) recv_unsignalled: DAT_COMPLETION_FLAGS,
    pub(super) max_send_iov: usize,
    pub(super) max_write_iov: usize,
    pub(super) max_read_iov: usize,
    pub(super) max_recv_iov: usize,
    /// Bytes of one message.
    pub(super) max_message: u64,
    /// Bytes of one RDMA operation.
    pub(super) max_rdma: u64,
    pub(super) on_srq: bool,
    /// The protection zone, by its handle.
    pub(super) pz: usize,
    /// Completions of binds may go to the request EVD, if there is one.
    pub(super) takes_binds: bool,
}

impl<T: Transport> Ep<T> {
    /// A queue pair as configured; NULL if something is missing. On an error nothing has changed.
    pub(super) fn new_link(&self, setup: &mut Setup<T>) -> Result<*mut Link<T>> {
        let Some(pz) = &setup.pz else { return Ok(std::ptr::null_mut()) };
        let mut holding = setup.holding.successor();
        let attr = &setup.attr;
        let count = |n: DAT_COUNT| usize::try_from(n).unwrap_or(0);
        let mut srq_share = setup.srq.as_ref().map(|srq| srq.counts.share());
        if setup.recv_evd.is_none() {
            holding.tell_nobody(srq_share.take());
        }
        let holding = Arc::new(holding);
        let (requests, recvs) = (count(attr.max_request_dtos), count(attr.max_recv_dtos));
        let tally = self.counters.flow();
        let ep = self.shared.ep as *mut c_void;
        let mut flow =
            Flow::new(ep, &self.ia.name, requests, recvs, srq_share, Arc::clone(&holding), tally)?;
        flow.count_only_reported(setup.request_evd.is_some(), setup.recv_evd.is_some());
        flow.expect_nothing_of_dead([setup.recv_evd.as_deref(), setup.request_evd.as_deref()]);
        // Not a box: its address is used, and a box that is moved promises that nobody else has that.
        let flow = Arc::new(flow);
        let limits = self.ia.transport.attrs();
        let (strict, request_iov) = (limits.strict, count(attr.max_request_iov));
        let write_iov = count(attr.max_rdma_write_iov);
        // Programs zero the sizes of their endpoints, and OFED's library does not look at them.
        let max_size = |of_ep: u32| u64::from(if strict { of_ep } else { limits.max_message });
        let cfg = QpCfg {
            pd: &pz.pd,
            request_cq: setup.request_evd.as_ref().and_then(|evd| evd.cq()),
            recv_cq: setup.recv_evd.as_ref().and_then(|evd| evd.cq()),
            srq: setup.srq.as_ref().map(|srq| &srq.srq),
            token: Token::new(&flow),
            holding: Arc::clone(&holding),
            sender_wakes: params::recv_stream_flags(attr) == DAT_COMPLETION_SOLICITED_WAIT_FLAG,
            max_requests: requests,
            max_recvs: recvs,
            max_request_segments: count(attr.max_request_iov)
                .max(write_iov)
                .max(count(attr.max_rdma_read_iov)),
            max_recv_segments: count(attr.max_recv_iov),
        };
        // SAFETY: `shared` is dropped after the link (`unlink` precedes the drop of the endpoint).
        let sink = unsafe { Sink::new(&*self.shared) };
        let qp = self.ia.transport.qp(cfg, sink)?;
        let link = Box::into_raw(Box::new(Link {
            qp,
            flow,
            unsignalled: params::request_stream_flags(attr) & DAT_COMPLETION_UNSIGNALLED_FLAG,
            recv_unsignalled: params::recv_stream_flags(attr) & DAT_COMPLETION_UNSIGNALLED_FLAG,
            max_send_iov: if strict { request_iov } else { request_iov.max(write_iov) },
            max_write_iov: if strict && write_iov > 0 {
                write_iov
            } else {
                request_iov.max(write_iov)
            },
            max_message: max_size(attr.max_message_size),
            max_rdma: max_size(attr.max_rdma_size),
            // Consumers of uDAPL 1.1 leave max_rdma_read_iov at 0 and mean max_request_iov.
            max_read_iov: match attr.max_rdma_read_iov {
                0 => count(attr.max_request_iov).min(self.ia.transport.attrs().max_read_segments),
                n => count(n),
            },
            max_recv_iov: count(attr.max_recv_iov),
            on_srq: setup.srq.is_some(),
            pz: pz.handle() as usize,
            takes_binds: setup
                .request_evd
                .as_ref()
                .is_none_or(|evd| evd.flags & DAT_EVD_RMR_BIND_FLAG != 0),
        }));
        setup.holding = holding;
        Ok(link)
    }

    /// Drops the queue pair; its completions, which are on `evds`, keep their flow. Called under the control lock.
    pub(super) fn unlink(&self, control: &mut Orphans, evds: Evds<T>) {
        self.relink(control, std::ptr::null_mut(), evds);
    }

    /// The same, with another one in its place.
    pub(super) fn relink(&self, control: &mut Orphans, link: *mut Link<T>, evds: Evds<T>) {
        let raw = self.link.swap(link, Ordering::AcqRel);
        if raw.is_null() {
            return;
        }
        // SAFETY: made by `new_link`, and whoever swaps it out owns it.
        let Link { qp, flow, .. } = *unsafe { Box::from_raw(raw) };
        // SAFETY: no endpoint has it any more, and nobody posts while this runs (`ep::post`).
        unsafe { flow.settle::<T>(&qp) };
        drop(qp);
        let [recv, request] = &evds;
        control.adopt(&flow, [recv.as_ref().map(Ref::node), request.as_ref().map(Ref::node)]);
    }
}

/// Drops one that was never used.
pub(super) fn discard<T: Transport>(link: *mut Link<T>) {
    if !link.is_null() {
        // SAFETY: made by `new_link`; nobody else has it, and no completion refers to its flow.
        drop(unsafe { Box::from_raw(link) });
    }
}

impl<T: Transport> Drop for Ep<T> {
    fn drop(&mut self) {
        // Only an endpoint that was never listed gets here with a link.
        discard(*self.link.get_mut());
    }
}
