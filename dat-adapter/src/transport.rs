//! An open adapter as the transport that dat-core calls.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use adapter::{ConnectionRequest, Engine, Limits, Listener, PeerAddress, QpCfg, netdev};
use dat_core::provider::{self, Access, Attrs, Mem, Sink, Transport, Upcall};
use dat_core::{Error, Result};
use dat_sys::{DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY_REGION, DAT_RMR_SCOPE_ANY};
use rnic::key::RegisterError;
use rnic::{CqEvent, Keys};
use waiting::{Wake, WakeReason};

use crate::completion::Cq;
use crate::error::error;
use crate::memory::{Mr, Mw, Pd};
use crate::params::Params;
use crate::queue::Qp;
use crate::receive::Srq;
use crate::upcall::sink;

/// An open interface adapter (IA): an adapter, and its limits as DAT reports them.
pub struct Adapter<E: Engine> {
    adapter: adapter::Adapter<E>,
    attrs: Attrs,
}

impl<E: Engine> Adapter<E> {
    /// Makes an open adapter the IA with the name `ia`. `params` are those that the adapter was
    /// opened with. `named` are the named attributes of the transport.
    pub fn new(
        ia: &str,
        adapter: adapter::Adapter<E>,
        params: &Params,
        named: Vec<(String, String)>,
    ) -> Self {
        let max_eps = adapter.max_qps().min(MAX_EPS);
        let attrs = attrs(ia, params, adapter.limits(), named, max_eps);
        Adapter { adapter, attrs }
    }
}

/// The maximum number of endpoints of an adapter.
const MAX_EPS: usize = 1 << 16;

fn attrs(
    ia: &str,
    params: &Params,
    limits: Limits,
    named: Vec<(String, String)>,
    max_eps: usize,
) -> Attrs {
    let Limits { max_read_depth, max_message, max_datagram, max_private, extended } = limits;
    Attrs {
        adapter: ia.to_owned(),
        vendor: "OpenDAT".to_owned(),
        address: params.adapter.address,
        interface: params.adapter.bind.map_or(0, netdev::interface_of),
        max_eps,
        max_dtos: 1 << 16,
        max_segments: 32,
        max_read_segments: 32,
        max_read_depth,
        max_evds: 1 << 16,
        max_evd_depth: 1 << 20,
        // All regions and windows share one table of keys. A window may occupy two keys: the valid
        // one, and the key of a bind that is still to be carried out.
        max_regions: Keys::MAX / 2,
        max_windows: Keys::MAX / 4,
        window_scopes: DAT_RMR_SCOPE_ANY,
        atomics: extended,
        immediate: extended,
        max_region_size: isize::MAX as u64,
        max_pds: 1 << 16,
        max_message,
        max_datagram,
        max_private,
        max_srqs: 1 << 16,
        max_srq_depth: 1 << 16,
        srq_across_pds: true,
        knows_allocated: true,
        pins: false,
        zero_based: true,
        quiet: true,
        strict: params.strict,
        stats: params.stats,
        optimal_alignment: 64,
        named,
    }
}

// SAFETY: the promises of `Transport`, by their numbers:
// 1. The engine has the sinks of queue pairs and listeners. Its contract forbids it to call them
//    after the object is removed, and each `drop` removes its object. The sinks of completion
//    queues and shared receive queues are called by methods of these queues, and by the engine when
//    it works for queue pairs that use them. dat-core drops such queue pairs before the queues.
// 2. rnic looks up every key at every access, under the lock of an engine. The drop of
//    `adapter::Mr` takes each of these locks after it has removed the key.
unsafe impl<E: Engine> Transport for Adapter<E> {
    type Pd = Pd;
    type Mr = Mr<E>;
    type Mw = Mw<E>;
    type Cq = Cq<E>;
    type Srq = Srq<E>;
    type Qp = Qp<E>;
    type Address = PeerAddress;
    type Listener = Listener<E>;
    type ConnectionRequest = ConnectionRequest<E>;

    fn attrs(&self) -> &Attrs {
        &self.attrs
    }

    fn pd(&self) -> Result<Pd> {
        Ok(Pd(self.adapter.pd()))
    }

    unsafe fn mr(&self, pd: &Pd, mem: Mem, access: Access) -> Result<Mr<E>> {
        // SAFETY: the caller keeps the memory mapped until the region is dropped.
        let mr = unsafe { self.adapter.mr(pd.0, (mem.addr, mem.len), access, mem.zero_based) };
        mr.map(Mr).map_err(|e| match e {
            // The region is the third argument of dat_lmr_create.
            RegisterError::Range => Error::arg(3),
            RegisterError::Exhausted => {
                Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY_REGION)
            }
        })
    }

    fn mw(&self, pd: &Pd, scoped: bool) -> Result<Mw<E>> {
        Ok(Mw(self.adapter.mw(pd.0, scoped)))
    }

    fn cq(&self, depth: usize, sink: Sink<Self>) -> Result<Cq<E>> {
        let notify = move |event| {
            sink.call(match event {
                CqEvent::Ready => Upcall::CqReady,
                CqEvent::Overflow => Upcall::CqOverflow,
            });
        };
        self.adapter.cq(depth, notify).map(Cq).map_err(error)
    }

    fn srq(&self, pd: &Pd, depth: usize, max_segments: usize, sink: Sink<Self>) -> Result<Srq<E>> {
        let notify = move || sink.call(Upcall::LowWatermark);
        let srq = self.adapter.srq(pd.0, depth, max_segments, notify).map_err(error)?;
        Ok(Srq { srq, sink })
    }

    fn qp(&self, cfg: provider::QpCfg<'_, Self>, sink: Sink<Self>) -> Result<Qp<E>> {
        let holding = Arc::clone(&cfg.holding);
        let cfg = QpCfg {
            pd: cfg.pd.0,
            request_cq: cfg.request_cq.map(|cq| &cq.0),
            recv_cq: cfg.recv_cq.map(|cq| &cq.0),
            srq: cfg.srq.map(|srq| &srq.srq),
            service: cfg.service,
            token: cfg.token.to_bits(),
            solicits_all_receives: !cfg.sender_wakes,
            max_requests: cfg.max_requests,
            max_recvs: cfg.max_recvs,
            max_request_segments: cfg.max_request_segments,
            max_recv_segments: cfg.max_recv_segments,
        };
        let take_buffer = move || {
            let exceeded = holding.buffer_taken();
            if exceeded.soft {
                sink.call(Upcall::HighWatermark);
            }
            !exceeded.hard
        };
        self.adapter.qp(cfg, self::sink(sink), take_buffer).map(Qp).map_err(error)
    }

    fn listen(&self, port: Option<u16>, backlog: usize, sink: Sink<Self>) -> Result<Listener<E>> {
        self.adapter.listen(port, backlog, self::sink(sink)).map_err(error)
    }

    fn port(&self, listener: &Listener<E>) -> u16 {
        listener.port()
    }

    fn reject(&self, request: ConnectionRequest<E>, private: &[u8]) -> Result<()> {
        self.adapter.reject(request, private).map_err(error)
    }

    fn counters(&self) -> Vec<(Cow<'static, str>, u64)> {
        self.adapter.counters()
    }

    #[inline]
    fn progress(&self) {
        self.adapter.progress();
    }

    #[inline]
    fn progress_on(&self, cq: &Cq<E>) {
        self.adapter.progress_on(&cq.0);
    }

    #[inline]
    fn note_ready_wait(&self, cq: &Cq<E>) {
        self.adapter.note_ready_wait(&cq.0);
    }

    fn sleep(&self, wake: &Wake, deadline: Option<Instant>) -> WakeReason {
        self.adapter.sleep(wake, deadline)
    }

    fn sleep_on(&self, cq: &Cq<E>, wake: &Wake, deadline: Option<Instant>) -> WakeReason {
        self.adapter.sleep_on(&cq.0, wake, deadline)
    }

    fn require_progress(&self, on: bool) {
        self.adapter.require_progress(on);
    }

    fn interrupt(&self) {
        self.adapter.interrupt();
    }
}
