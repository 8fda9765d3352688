//! The transport that dat-core calls, built from rnic's queues and a provider's engine.

mod completion;
mod listener;
mod memory;
mod queue;
mod receive;

use std::borrow::Cow;
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use capture::Capture;
use dat_core::error::no_memory;
use dat_core::provider::{Access, Attrs, Mem, QpCfg, ServiceType, Transport};
use dat_core::{Error, OpenError, Result};
use dat_sys::{
    DAT_INSUFFICIENT_RESOURCES, DAT_INVALID_PARAMETER, DAT_RESOURCE_MEMORY_REGION,
    DAT_RMR_SCOPE_ANY,
};
use mio::{Poll, Waker};
use rnic::{CqEvent, Keys};
use waiting::{Wake, WakeReason};

pub use self::completion::Cq;
pub use self::listener::Listener;
pub use self::memory::{Mr, Mw, Pd};
pub use self::queue::Qp;
pub use self::receive::Srq;

use crate::adapter::{Adapter, UnusedEndpoints};
use crate::context::Context;
use crate::engine::{Engine, PeerAddress, Sink, Upcall};
use crate::engines::{EngineSet, Engines};
use crate::local_failure::no_resources;
use crate::netdev;
use crate::params::Params;
use crate::reactor::Reactor;
use crate::request::Request;
use crate::shared::{SharedState, WAKER};

/// The limits and names that depend on the wire protocol; see [`Attrs`].
#[derive(Clone, Debug)]
pub struct Wire {
    /// The maximum number of RDMA reads in flight for each endpoint, in either direction.
    pub max_read_depth: u32,
    /// The maximum size of a message or RDMA operation, in octets.
    pub max_message: u32,
    /// The maximum size of a datagram, in octets. `None` if the protocol has no datagrams.
    pub max_datagram: Option<u32>,
    /// The maximum size of private data, in octets.
    pub max_private: usize,
    /// Whether immediate data and atomic operations can be used with peers that support them.
    pub extended: bool,
    /// Named attributes of the transport.
    pub named: Vec<(String, String)>,
}

impl<E: Engine> Adapter<E> {
    /// Opens an adapter. `engine` creates an engine, which may register sockets with the context
    /// already. If [`Engine::CAN_BE_SEVERAL`] is true, it may be called again while the adapter is
    /// open.
    ///
    /// # Errors
    /// The error of `engine`; `DAT_INSUFFICIENT_RESOURCES` if a poller cannot be created;
    /// `DAT_INVALID_PARAMETER` if there is a capture file that cannot be written.
    pub fn open(
        ia: &str,
        params: &Params,
        wire: Wire,
        engine: impl Fn(Context<E>) -> std::result::Result<E, OpenError> + Send + Sync + 'static,
    ) -> std::result::Result<Self, OpenError> {
        let capture = params.capture.as_deref().map(|file| Capture::open(file, ia)).transpose();
        // The name of the capture file comes from ia_params or from OPENDAT_PARAMS.
        let no_capture =
            |e| OpenError::new(Error::of(DAT_INVALID_PARAMETER), format!("capture: {e}"));
        let capture = capture.map_err(no_capture)?;
        let (limit, spin) = (if E::CAN_BE_SEVERAL { params.engines() } else { 1 }, params.spin());
        let unused = UnusedEndpoints::default();
        let of_engines = unused.clone();
        let create = move || create_engine(capture.clone(), spin, of_engines.clone(), &engine);
        let engines = Arc::new(Engines::new(limit, spin, Arc::new(create))?);
        let keys = Arc::new(Keys::new());
        let all = Arc::downgrade(&engines);
        let wait = move || all.upgrade().iter().for_each(|all| all.finish_accesses_of_others());
        keys.set_wait_for_other_engines(wait);
        let max_eps = engines.first().engine.lock().engine.max_qps().min(MAX_EPS);
        Ok(Adapter { attrs: attrs(ia, params, wire, max_eps), keys, engines, unused })
    }
}

/// Creates an engine, its poller and its reactor.
fn create_engine<E: Engine>(
    capture: Option<Capture>,
    spin: Duration,
    unused: UnusedEndpoints,
    engine: impl Fn(Context<E>) -> std::result::Result<E, OpenError>,
) -> std::result::Result<Arc<Reactor<E>>, OpenError> {
    let no_poller = |e: io::Error| {
        let reason = format!("creating a poller: {e}");
        OpenError::new(no_resources(e), reason)
    };
    let poll = Poll::new().map_err(no_poller)?;
    let waker = Waker::new(poll.registry(), WAKER).map_err(no_poller)?;
    let registry = poll.registry().try_clone().map_err(no_poller)?;
    let shared = Arc::new(SharedState::new(waker));
    let own_reactor = Arc::new(OnceLock::new());
    let reactor_cell = Arc::clone(&own_reactor);
    let engine =
        engine(Context::new(Arc::clone(&shared), registry, capture, reactor_cell, unused))?;
    let reactor = Arc::new(Reactor::new(engine, shared, poll, spin));
    own_reactor.set(Arc::downgrade(&reactor)).ok();
    if E::STARTS_PROGRESS_THREAD {
        reactor.start_progress_thread().map_err(|e| {
            let reason = format!("starting a thread: {e}");
            OpenError::new(no_resources(e), reason)
        })?;
    }
    Ok(reactor)
}

/// The maximum number of endpoints of an adapter.
const MAX_EPS: usize = 1 << 16;

fn attrs(ia: &str, params: &Params, wire: Wire, max_eps: usize) -> Attrs {
    let Wire { max_read_depth, max_message, max_datagram, max_private, extended, named } = wire;
    Attrs {
        adapter: ia.to_owned(),
        vendor: "OpenDAT".to_owned(),
        address: params.address,
        interface: params.bind.map_or(0, netdev::interface_of),
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
// 2. rnic looks up every key at every access, under the lock of an engine. `Mr::drop` takes each of
//    these locks after it has removed the key.
unsafe impl<E: Engine> Transport for Adapter<E> {
    type Pd = Pd;
    type Mr = Mr<E>;
    type Mw = Mw<E>;
    type Cq = Cq<E>;
    type Srq = Srq<E>;
    type Qp = Qp<E>;
    type Address = PeerAddress;
    type Listener = Listener<E>;
    type Request = Request<E>;

    fn attrs(&self) -> &Attrs {
        &self.attrs
    }

    fn pd(&self) -> Result<Pd> {
        Ok(Pd(self.keys.pd()))
    }

    unsafe fn mr(&self, pd: &Pd, mem: Mem, access: Access) -> Result<Mr<E>> {
        // SAFETY: the caller keeps the memory mapped until the region is dropped. `Mr::drop` waits
        // until no engine uses it.
        let mr =
            unsafe { rnic::Mr::new(&self.keys, pd.0, mem.addr, mem.len, access, mem.zero_based) };
        let mr = mr.map_err(|e| match e {
            rnic::key::RegisterError::Range => Error::arg(3),
            rnic::key::RegisterError::Exhausted => {
                Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY_REGION)
            }
        })?;
        Ok(Mr { mr: Some(mr), engines: Arc::clone(&self.engines) })
    }

    fn mw(&self, pd: &Pd, scoped: bool) -> Result<Mw<E>> {
        Ok(Mw {
            mw: Some(rnic::Mw::new(&self.keys, pd.0, scoped)),
            engines: Arc::clone(&self.engines),
        })
    }

    fn cq(&self, depth: usize, sink: Sink<E>) -> Result<Cq<E>> {
        let notify = move |event| {
            sink.call(match event {
                CqEvent::Ready => Upcall::<E>::CqReady,
                CqEvent::Overflow => Upcall::<E>::CqOverflow,
            });
        };
        let cq = rnic::Cq::new(depth, notify).map_err(no_memory)?;
        let (cq, used_by) = (Arc::new(cq), AtomicU64::new(EngineSet::EMPTY.0));
        Ok(Cq { cq, used_by, engines: Arc::clone(&self.engines) })
    }

    fn srq(&self, pd: &Pd, depth: usize, max_segments: usize, sink: Sink<E>) -> Result<Srq<E>> {
        let notify = move || sink.call(Upcall::<E>::LowWatermark);
        let srq =
            rnic::Srq::new(&self.keys, pd.0, depth, max_segments, notify).map_err(no_memory)?;
        let depth = AtomicUsize::new(depth);
        let number = self.engines.place(None, |_| {});
        let engines = Arc::clone(&self.engines);
        Ok(Srq { srq: Arc::new(srq), depth, sink, number, engines })
    }

    fn qp(&self, cfg: QpCfg<'_, Self>, sink: Sink<E>) -> Result<Qp<E>> {
        let (holding, sender_wakes) = (Arc::clone(&cfg.holding), cfg.sender_wakes);
        let service = cfg.service;
        let (queues, srq) = ([cfg.recv_cq, cfg.request_cq], cfg.srq.map(|srq| srq.number));
        let cfg = rnic::QpCfg {
            keys: Arc::clone(&self.keys),
            pd: cfg.pd.0,
            request_cq: cfg.request_cq.map(|cq| Arc::clone(&cq.cq)),
            recv_cq: cfg.recv_cq.map(|cq| Arc::clone(&cq.cq)),
            srq: cfg.srq.map(|srq| Arc::clone(&srq.srq)),
            token: cfg.token.to_bits(),
            max_requests: cfg.max_requests,
            max_recvs: cfg.max_recvs,
            max_request_segments: cfg.max_request_segments,
            max_recv_segments: cfg.max_recv_segments,
        };
        // SAFETY: the contract of `Engine` keeps `work` under the lock of one engine. All queue
        // pairs of a shared receive queue have the same engine, and so have those of a completion
        // queue, unless `Cq::prepare_for` has shared it.
        let (qp, mut work) = unsafe { rnic::Qp::new(cfg) }.map_err(no_memory)?;
        work.watch_receives(move || {
            let exceeded = holding.buffer_taken();
            if exceeded.soft {
                sink.call(Upcall::<E>::HighWatermark);
            }
            !exceeded.hard
        });
        work.watch_causes(move |cause| sink.call(Upcall::<E>::Cause(cause)));
        if !sender_wakes {
            work.solicit_all_receives();
        }
        let queues = queues.into_iter().flatten();
        let bound = srq.or_else(|| queues.clone().find_map(|cq| cq.used_by().first()));
        let prepare = |number| queues.for_each(|cq| cq.prepare_for(number));
        let number = self.engines.place(bound, prepare);
        let (engines, reactor) = (Arc::clone(&self.engines), Arc::clone(self.engines.get(number)));
        let mut locked = reactor.engine.lock();
        let added = match service {
            ServiceType::Connection => locked.engine.add_qp(sink, work),
            ServiceType::Datagram => locked.engine.add_datagram_qp(sink, work),
        };
        drop(locked);
        let shared = added.inspect_err(|_| engines.leave(number))?;
        let index = shared.index();
        let (batch, begun) = Default::default();
        let max_read_depth = self.attrs.max_read_depth;
        let unused = (service == ServiceType::Connection).then(|| self.unused.clone());
        unused.iter().for_each(UnusedEndpoints::add);
        Ok(Qp { qp, shared, index, batch, max_read_depth, begun, unused, number, reactor, engines })
    }

    fn listen(&self, port: Option<u16>, backlog: usize, sink: Sink<E>) -> Result<Listener<E>> {
        let reactor = self.engines.first();
        let (index, port) = reactor.engine.lock().engine.listen(port, backlog, sink)?;
        let listener = Listener { index, port, reactor: Arc::clone(reactor) };
        reactor.start_progress_thread().map_err(no_resources)?;
        Ok(listener)
    }

    fn port(&self, listener: &Listener<E>) -> u16 {
        listener.port
    }

    fn reject(&self, request: Request<E>, private: &[u8]) -> Result<()> {
        let (request, reactor) = request.answer()?;
        reactor.engine.lock().engine.reject(request, private)
    }

    fn counters(&self) -> Vec<(Cow<'static, str>, u64)> {
        let engines = self.engines.iter().count() as u64;
        let mut sums: Vec<(Cow<'static, str>, u64)> = vec![("engines".into(), engines)];
        for (name, n) in self.engines.iter().flat_map(|of| of.engine.lock().engine.counters()) {
            match sums.iter_mut().find(|(other, _)| other == name) {
                Some((_, sum)) => *sum += n,
                None => sums.push((name.into(), n)),
            }
        }
        sums
    }

    #[inline]
    fn progress(&self) {
        self.engines.poll(EngineSet::EMPTY);
    }

    #[inline]
    fn progress_on(&self, cq: &Cq<E>) {
        self.engines.poll(cq.used_by());
    }

    #[inline]
    fn note_ready_wait(&self, cq: &Cq<E>) {
        cq.used_by().iter().for_each(|number| {
            self.engines.get(number).shared.count_ready_wait();
        });
    }

    fn sleep(&self, wake: &Wake, deadline: Option<Instant>) -> WakeReason {
        self.engines.sleep(EngineSet::EMPTY, wake, deadline)
    }

    fn sleep_on(&self, cq: &Cq<E>, wake: &Wake, deadline: Option<Instant>) -> WakeReason {
        self.engines.sleep(cq.used_by(), wake, deadline)
    }

    fn require_progress(&self, on: bool) {
        self.engines.require_progress(on);
    }

    fn interrupt(&self) {
        self.engines.interrupt();
    }
}
