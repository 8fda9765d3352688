//! The objects of an adapter, built from rnic's queues and a provider's engine.

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
use mio::{Poll, Waker};
use rnic::key::RegisterError;
use rnic::{CqEvent, Keys, Pd};
use waiting::{Wake, WakeReason};
use work::{Access, ServiceType};

pub use self::completion::{ConcurrentCq, Cq};
pub use self::listener::Listener;
pub use self::memory::{Mr, Mw};
pub use self::queue::{Qp, QpCfg};
pub use self::receive::Srq;

use crate::adapter::{Adapter, Limits, UnusedQps};
use crate::config::Config;
use crate::connection_request::ConnectionRequest;
use crate::context::Context;
use crate::engine::Engine;
use crate::engine_shared::{EngineShared, WAKER};
use crate::engines::{EngineSet, Engines};
use crate::error::{Error, OpenError, Result, no_memory, no_resources};
use crate::event::{Event, Sink};
use crate::reactor::Reactor;

impl<E: Engine> Adapter<E> {
    /// Opens an adapter with this name. `engine` creates an engine, which may register sockets with
    /// the context already. If [`Engine::CAN_BE_SEVERAL`] is true, it may be called again while the
    /// adapter is open.
    ///
    /// # Errors
    /// The error of `engine`; [`Error::NoMemory`] if a poller cannot be created;
    /// [`Error::InvalidArgument`] if there is a capture file that cannot be written.
    pub fn open(
        name: &str,
        config: &Config,
        limits: Limits,
        engine: impl Fn(Context<E>) -> std::result::Result<E, OpenError> + Send + Sync + 'static,
    ) -> std::result::Result<Self, OpenError> {
        let capture = config.capture.as_deref().map(|file| Capture::open(file, name)).transpose();
        // The name of the capture file comes from the user.
        let no_capture = |e| OpenError::new(Error::InvalidArgument, format!("capture: {e}"));
        let capture = capture.map_err(no_capture)?;
        let (limit, spin) = (if E::CAN_BE_SEVERAL { config.engines() } else { 1 }, config.spin());
        let unused = UnusedQps::default();
        let of_engines = unused.clone();
        let create = move || create_engine(capture.clone(), spin, of_engines.clone(), &engine);
        let engines = Arc::new(Engines::new(limit, spin, Arc::new(create))?);
        let keys = Arc::new(Keys::new());
        let all = Arc::downgrade(&engines);
        let wait = move || all.upgrade().iter().for_each(|all| all.finish_accesses_of_others());
        keys.set_wait_for_other_engines(wait);
        Ok(Adapter { limits, keys, engines, unused })
    }

    /// The limits of the adapter's protocol.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// The number of queue pairs that can be connected at the same time, as far as the engine
    /// limits it.
    pub fn max_qps(&self) -> usize {
        self.engines.first().engine.lock().engine.max_qps()
    }

    /// Creates a protection domain.
    pub fn pd(&self) -> Pd {
        self.keys.pd()
    }

    /// Registers memory of `len` octets. If `zero_based` is true, the octets are addressed by
    /// offsets from 0 instead of addresses.
    ///
    /// # Safety
    /// The memory stays mapped until the region is dropped, and its owner accepts that peers write
    /// to it as `access` permits.
    pub unsafe fn mr(
        &self,
        pd: Pd,
        (addr, len): (*mut u8, usize),
        access: Access,
        zero_based: bool,
    ) -> std::result::Result<Mr<E>, RegisterError> {
        // SAFETY: the caller keeps the memory mapped until the region is dropped. `Mr::drop` waits
        // until no engine uses it.
        let mr = unsafe { rnic::Mr::new(&self.keys, pd, addr, len, access, zero_based) }?;
        Ok(Mr { mr: Some(mr), engines: Arc::clone(&self.engines) })
    }

    /// Creates an unbound memory window. If `scoped` is true, only the peer of the queue pair to
    /// which a bind is posted may use the window.
    pub fn mw(&self, pd: Pd, scoped: bool) -> Mw<E> {
        Mw { mw: Some(rnic::Mw::new(&self.keys, pd, scoped)), engines: Arc::clone(&self.engines) }
    }

    /// Creates a completion queue for at least `depth` completions. `notify` is called under the
    /// lock of an engine, and must not call the adapter, except for [`Adapter::interrupt`].
    pub fn cq(
        &self,
        depth: usize,
        notify: impl Fn(CqEvent) + Send + Sync + 'static,
    ) -> Result<Cq<E>> {
        let cq = rnic::Cq::new(depth, notify).map_err(no_memory)?;
        Ok(self.cq_of(Arc::new(cq)))
    }

    /// Creates a completion queue that any thread may poll and arm at any time. The arguments are
    /// those of [`Adapter::cq`].
    pub fn concurrent_cq(
        &self,
        depth: usize,
        notify: impl Fn(CqEvent) + Send + Sync + 'static,
    ) -> Result<ConcurrentCq<E>> {
        let cq = rnic::ConcurrentCq::new(depth, notify).map_err(no_memory)?;
        let queue = self.cq_of(Arc::clone(cq.queue()));
        Ok(ConcurrentCq { cq, queue })
    }

    fn cq_of(&self, cq: Arc<rnic::Cq>) -> Cq<E> {
        let used_by = AtomicU64::new(EngineSet::EMPTY.0);
        Cq { cq, used_by, engines: Arc::clone(&self.engines) }
    }

    /// Creates a shared receive queue. `below_limit` is called under the lock of an engine when the
    /// queue has fewer buffers left than its [limit](Srq::set_limit), and must not call the
    /// adapter, except for [`Adapter::interrupt`].
    pub fn srq(
        &self,
        pd: Pd,
        depth: usize,
        max_segments: usize,
        below_limit: impl Fn() + Send + Sync + 'static,
    ) -> Result<Srq<E>> {
        let srq = rnic::Srq::new(&self.keys, pd, depth, max_segments, below_limit);
        let srq = srq.map_err(no_memory)?;
        let depth = AtomicUsize::new(depth);
        let number = self.engines.place(None, |_| {});
        let engines = Arc::clone(&self.engines);
        Ok(Srq { srq: Arc::new(srq), depth, number, engines })
    }

    /// Creates an unconnected queue pair, whose events go to `sink`. `take_buffer` is called under
    /// the lock of an engine for each receive buffer that a message takes, and must not call the
    /// adapter, except for [`Adapter::interrupt`]. If it returns false, the buffer is flushed and
    /// the connection ends.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if a queue of `cfg` belongs to another adapter,
    /// [`Error::NoMemory`], and the errors of the engine.
    pub fn qp(
        &self,
        cfg: QpCfg<'_, E>,
        sink: Sink<E>,
        take_buffer: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Result<Qp<E>> {
        let (service, solicits_all) = (cfg.service, cfg.solicits_all_receives);
        let (queues, srq) = ([cfg.recv_cq, cfg.request_cq], cfg.srq.map(|srq| srq.number));
        let is_foreign = |engines: &Arc<Engines<E>>| !Arc::ptr_eq(engines, &self.engines);
        if queues.iter().flatten().any(|cq| is_foreign(&cq.engines))
            || cfg.srq.is_some_and(|srq| is_foreign(&srq.engines))
        {
            return Err(Error::InvalidArgument);
        }
        let cfg = rnic::QpCfg {
            keys: Arc::clone(&self.keys),
            pd: cfg.pd,
            request_cq: cfg.request_cq.map(|cq| Arc::clone(&cq.cq)),
            recv_cq: cfg.recv_cq.map(|cq| Arc::clone(&cq.cq)),
            srq: cfg.srq.map(|srq| Arc::clone(&srq.srq)),
            token: cfg.token,
            max_requests: cfg.max_requests,
            max_recvs: cfg.max_recvs,
            max_request_segments: cfg.max_request_segments,
            max_recv_segments: cfg.max_recv_segments,
        };
        // SAFETY: the contract of `Engine` keeps `work` under the lock of one engine. The queues
        // belong to this adapter. All queue pairs of a shared receive queue have the same engine,
        // and so have those of a completion queue, unless `Cq::prepare_for` has shared it.
        let (qp, mut work) = unsafe { rnic::Qp::new(cfg) }.map_err(no_memory)?;
        work.watch_receives(take_buffer);
        let causes = sink.clone();
        work.watch_causes(move |cause| causes.call(Event::Cause(cause)));
        if solicits_all {
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
        let max_read_depth = self.limits.max_read_depth;
        let unused = (service == ServiceType::Connection).then(|| self.unused.clone());
        unused.iter().for_each(UnusedQps::add);
        Ok(Qp { qp, shared, index, batch, max_read_depth, begun, unused, number, reactor, engines })
    }

    /// Listens for connection requests on a port, which no other listener may have. `None` stands
    /// for any free, unprivileged port. At most `backlog` requests wait for an answer. Further
    /// requests are refused.
    ///
    /// # Errors
    /// [`Error::PortTaken`], [`Error::PortUnavailable`], and [`Error::NoMemory`] if a socket or the
    /// progress thread cannot be created.
    pub fn listen(&self, port: Option<u16>, backlog: usize, sink: Sink<E>) -> Result<Listener<E>> {
        let reactor = self.engines.first();
        let (index, port) = reactor.engine.lock().engine.listen(port, backlog, sink)?;
        let listener = Listener { index, port, reactor: Arc::clone(reactor) };
        reactor.start_progress_thread().map_err(no_resources)?;
        Ok(listener)
    }

    /// Refuses a connection request and sends private data with the refusal.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the private data are too long.
    pub fn reject(&self, request: ConnectionRequest<E>, private: &[u8]) -> Result<()> {
        let (request, reactor) = request.answer()?;
        reactor.engine.lock().engine.reject(request, private)
    }

    /// The number of engines, and the counters of network traffic since the adapter was opened. Any
    /// thread may call this at any time.
    pub fn counters(&self) -> Vec<(Cow<'static, str>, u64)> {
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

    /// Makes one non-blocking pass of progress. A thread that waits for another event than a
    /// completion calls this.
    #[inline]
    pub fn progress(&self) {
        self.engines.poll(EngineSet::EMPTY);
    }

    /// Makes progress as [`Adapter::progress`] does. The thread has found this completion queue
    /// empty.
    #[inline]
    pub fn progress_on(&self, cq: &Cq<E>) {
        self.engines.poll(cq.used_by());
    }

    /// Records that a wait has found completions in this queue and makes no pass of progress. The
    /// waiting thread takes the completions first, and makes a pass when it finds the queue empty.
    #[inline]
    pub fn note_ready_wait(&self, cq: &Cq<E>) {
        cq.used_by().iter().for_each(|number| {
            self.engines.get(number).shared.count_ready_wait();
        });
    }

    /// Sleeps until `wake` is signalled or the deadline has passed. Makes progress during the
    /// sleep.
    pub fn sleep(&self, wake: &Wake, deadline: Option<Instant>) -> WakeReason {
        self.engines.sleep(EngineSet::EMPTY, wake, deadline)
    }

    /// Sleeps as [`Adapter::sleep`] does. The thread most likely waits for a completion in the
    /// given completion queue.
    pub fn sleep_on(&self, cq: &Cq<E>, wake: &Wake, deadline: Option<Instant>) -> WakeReason {
        self.engines.sleep(cq.used_by(), wake, deadline)
    }

    /// Requires that the adapter makes progress even if the consumer makes no calls, because the
    /// consumer sleeps on a file descriptor. Progress starts at once. It continues until the method
    /// was called with `false` as often as with `true`.
    pub fn require_progress(&self, on: bool) {
        self.engines.require_progress(on);
    }

    /// Makes threads that sleep in [`Adapter::sleep`] check their [`Wake`] again. The caller of
    /// [`Wake::signal`] calls this if the result says that the sleeper is in a poller.
    pub fn interrupt(&self) {
        self.engines.interrupt();
    }
}

/// Creates an engine, its poller and its reactor.
fn create_engine<E: Engine>(
    capture: Option<Capture>,
    spin: Duration,
    unused: UnusedQps,
    engine: impl Fn(Context<E>) -> std::result::Result<E, OpenError>,
) -> std::result::Result<Arc<Reactor<E>>, OpenError> {
    let no_poller = |e: io::Error| {
        let reason = format!("creating a poller: {e}");
        OpenError::new(no_resources(e), reason)
    };
    let poll = Poll::new().map_err(no_poller)?;
    let waker = Waker::new(poll.registry(), WAKER).map_err(no_poller)?;
    let registry = poll.registry().try_clone().map_err(no_poller)?;
    let shared = Arc::new(EngineShared::new(waker));
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
