//! dat-core's contract, fulfilled by rnic's queues and this crate's engine.

mod completion;
mod memory;
mod queue;
mod receive;
mod service;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::Instant;

use dat_core::provider::{Access, Attrs, Mem, Port, QpCfg, Sink, Transport, Upcall};
use dat_core::wake::{Slept, Wake};
use dat_core::{Error, OpenError, Result};
use dat_sys::{
    DAT_INSUFFICIENT_RESOURCES, DAT_INVALID_ADDRESS, DAT_INVALID_PARAMETER, DAT_RESOURCE_MEMORY,
    DAT_RESOURCE_MEMORY_REGION,
};
use mio::{Poll, Waker};
use rnic::rdmap::setup::MAX_READ_DEPTH;
use rnic::{CqEvent, Keys};

pub use self::completion::Cq;
pub use self::memory::{Mr, Mw, Pd};
pub use self::queue::Qp;
pub use self::receive::Srq;
pub use self::service::{Listener, Request};
use crate::board::Board;
use crate::dirty::Mark;
use crate::drive::Drive;
use crate::engine::{Engine, Key};
use crate::link::{self, Link};
use crate::map;
use crate::params::Params;
use crate::socket;

/// An open adapter.
pub struct Tcp {
    attrs: Attrs,
    params: Arc<Params>,
    keys: Arc<Keys>,
    drive: Arc<Drive>,
}

impl Tcp {
    /// Opens an adapter.
    pub(crate) fn open(ia: &str, params: &str) -> std::result::Result<Self, OpenError> {
        let params = Params::parse(params, |name| std::env::var(name).ok())?;
        if let Some(cc) = &params.cc {
            socket::check_congestion_control(cc).map_err(|e| {
                let reason =
                    format!("ia_params: cc={cc}: {e}; see /proc/sys/net/ipv4/tcp_allowed_congestion_control");
                OpenError::new(Error::of(DAT_INVALID_PARAMETER), reason)
            })?;
        }
        if let Some(addr) = params.bind {
            socket::check_local(addr).map_err(|e| {
                OpenError::new(
                    Error::of(DAT_INVALID_ADDRESS),
                    format!("ia_params: binding to {}: {e}", addr.ip()),
                )
            })?;
        }
        let no_poller = |e: std::io::Error| {
            let code = Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
            OpenError::new(code, format!("making a poller: {e}"))
        };
        let poll = Poll::new().map_err(no_poller)?;
        let waker = Waker::new(poll.registry(), Key::WAKER).map_err(no_poller)?;
        let registry = poll.registry().try_clone().map_err(no_poller)?;

        let attrs = attrs(ia, &params);
        let params = Arc::new(params);
        let board = Arc::new(Board::new(waker));
        let drive = Arc::new_cyclic(|drive| {
            let engine = Engine::new(drive.clone(), Arc::clone(&board), Arc::clone(&params), registry);
            Drive::new(engine, board, poll, params.spin)
        });
        Ok(Tcp { attrs, params, keys: Arc::new(Keys::new()), drive })
    }
}

impl Drop for Tcp {
    fn drop(&mut self) {
        self.drive.stop_background();
    }
}

fn attrs(ia: &str, params: &Params) -> Attrs {
    Attrs {
        adapter: ia.to_owned(),
        vendor: "OpenDAT".to_owned(),
        address: params.address,
        max_eps: 1 << 16,
        max_dtos: 1 << 16,
        max_segments: 32,
        max_read_segments: 32,
        max_read_depth: MAX_READ_DEPTH,
        max_evds: 1 << 16,
        max_evd_depth: 1 << 20,
        // One table has room for all of them; a window may have a key that is valid and one that is about to be.
        max_regions: Keys::MAX / 2,
        max_windows: Keys::MAX / 4,
        extended: params.extended,
        max_region_size: isize::MAX as u64,
        max_pds: 1 << 16,
        max_message: u32::MAX,
        max_private: 252,
        max_srqs: 1 << 16,
        max_srq_depth: 1 << 16,
        optimal_alignment: 64,
        named: vec![
            ("transport".to_owned(), "iWARP over TCP, in user space".to_owned()),
            ("crc".to_owned(), if params.crc { "asked for" } else { "where the peer asks" }.to_owned()),
        ],
    }
}

impl Transport for Tcp {
    type Pd = Pd;
    type Mr = Mr;
    type Mw = Mw;
    type Cq = Cq;
    type Srq = Srq;
    type Qp = Qp;
    type Listener = Listener;
    type Request = Request;

    fn attrs(&self) -> &Attrs {
        &self.attrs
    }

    fn pd(&self) -> Result<Pd> {
        Ok(Pd(self.keys.pd()))
    }

    unsafe fn mr(&self, pd: &Pd, mem: Mem, access: Access) -> Result<Mr> {
        // SAFETY: the caller's promise; `Mr::drop` holds the lease.
        let mr = unsafe {
            rnic::Mr::new(&self.keys, pd.0, mem.addr, mem.len, map::access(access), mem.zero_based)
        };
        let mr = mr.map_err(|e| match e {
            rnic::key::RegisterError::Range => Error::arg(3),
            rnic::key::RegisterError::Exhausted => {
                Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY_REGION)
            }
        })?;
        Ok(Mr { mr: Some(mr), drive: Arc::clone(&self.drive) })
    }

    fn mw(&self, pd: &Pd, scoped: bool) -> Result<Mw> {
        Ok(Mw { mw: Some(rnic::Mw::new(&self.keys, pd.0, scoped)), drive: Arc::clone(&self.drive) })
    }

    fn cq(&self, depth: usize, sink: Sink<Self>) -> Result<Cq> {
        let notify = move |event| {
            sink.call(match event {
                CqEvent::Ready => Upcall::CqReady,
                CqEvent::Overflow => Upcall::CqOverflow,
            });
        };
        let cq = rnic::Cq::new(depth, notify).map_err(no_memory)?;
        Ok(Cq { cq: Arc::new(cq), drive: Arc::clone(&self.drive) })
    }

    fn srq(&self, pd: &Pd, depth: usize, max_segments: usize, sink: Sink<Self>) -> Result<Srq> {
        let notify = move || sink.call(Upcall::LowWatermark);
        let srq = rnic::Srq::new(&self.keys, pd.0, depth, max_segments, notify).map_err(no_memory)?;
        let depth = AtomicUsize::new(depth);
        Ok(Srq { srq: Arc::new(srq), depth, sink, drive: Arc::clone(&self.drive) })
    }

    fn qp(&self, cfg: QpCfg<'_, Self>, sink: Sink<Self>) -> Result<Qp> {
        let (holding, sender_wakes) = (Arc::clone(&cfg.holding), cfg.sender_wakes);
        let cfg = rnic::QpCfg {
            keys: Arc::clone(&self.keys),
            pd: cfg.pd.0,
            request_cq: cfg.request_cq.map(|cq| Arc::clone(&cq.cq)),
            recv_cq: cfg.recv_cq.map(|cq| Arc::clone(&cq.cq)),
            srq: cfg.srq.map(|srq| Arc::clone(&srq.srq)),
            token: cfg.token,
            max_requests: cfg.max_requests,
            max_recvs: cfg.max_recvs,
            max_request_segments: cfg.max_request_segments,
            max_recv_segments: cfg.max_recv_segments,
        };
        // SAFETY: the engine lock is the adapter's lease; queues of other adapters are not of this type's values.
        let (qp, mut work) = unsafe { rnic::Qp::new(cfg) }.map_err(no_memory)?;
        work.watch_receives(move || {
            let exceeded = holding.took();
            if exceeded.soft {
                sink.call(Upcall::HighWatermark);
            }
            !exceeded.hard
        });
        if !sender_wakes {
            work.let_poster_wake();
        }
        let mut engine = self.drive.engine.lock();
        let index = engine.links.next_index();
        let shared = Arc::new(link::Shared { mark: Mark::new(index), ended: AtomicBool::new(false) });
        engine.links.insert(Link::new(index, sink, Arc::clone(&shared), work));
        drop(engine);
        Ok(Qp { qp, shared, index, batch: queue::Batch::default(), drive: Arc::clone(&self.drive) })
    }

    fn listen(&self, port: Port, backlog: usize, sink: Sink<Self>) -> Result<Listener> {
        let socket = socket::listen(self.params.bind, port)?;
        let address = socket.local_addr().ok().and_then(|a| a.as_socket());
        let port = address.map_or(0, |address: SocketAddr| address.port());
        let index = {
            let mut engine = self.drive.engine.lock();
            let Engine { kit, calls, .. } = &mut *engine;
            calls.open(kit, socket, backlog, sink).map_err(no_resources)?
        };
        let listener = Listener { index, port, drive: Arc::clone(&self.drive) };
        self.drive.start_background().map_err(no_resources)?;
        Ok(listener)
    }

    fn port(&self, listener: &Listener) -> u64 {
        listener.port.into()
    }

    fn reject(&self, mut request: Request, private: &[u8]) -> Result<()> {
        request.answered = true;
        let mut engine = self.drive.engine.lock();
        let Engine { kit, calls, lingerers, .. } = &mut *engine;
        calls.reject(kit, lingerers, request.call, private)
    }

    fn progress(&self) {
        self.drive.poll();
    }

    fn sleep(&self, wake: &Wake, deadline: Option<Instant>) -> Slept {
        self.drive.sleep(wake, deadline)
    }

    fn attend(&self, on: bool) {
        self.drive.attend(on);
    }

    fn interrupt(&self) {
        self.drive.interrupt();
    }
}

fn no_memory(_: rnic::OutOfMemory) -> Error {
    Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY)
}

/// No file descriptor, no thread.
fn no_resources(_: std::io::Error) -> Error {
    Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY)
}
