//! The provider `mem`, inside one process: the reference for the meaning of [`Transport`], and the
//! oracle of semantic tests.
//!
//! Adapters that are opened with the same ia_params (the *fabric*) reach one another. One lock
//! guards a fabric. The thread whose call allows data to move copies the data and holds the lock
//! meanwhile. There is no concurrency and no loss. Timeouts use the clock, which [`advance`] can
//! put forward. The rules are in `objects`, the access to memory is in `memory`, and upcalls are
//! delivered in `fabric`. `contract` tests the promises of any transport.
//!
//! Where the contract permits several behaviours, this transport has the strictest: a message waits
//! for a receive buffer for any length of time, a failed request reports the error that the peer
//! found, and both ends learn that a connection broke.

#[doc(hidden)]
pub mod contract;
mod fabric;
mod memory;
mod objects;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dat_sys::*;
use waiting::{Wake, WakeReason};

use self::fabric::Fabric;
use self::objects::datagram::Outgoing;
use self::objects::{Id, Objects, QpCore};
use dat_core::error::{Error, OpenError, Result};
use dat_core::export::AnyProvider;
use dat_core::provider::{
    self, Access, Allocated, Attrs, BindState, BindWr, Close, Completions, Connect, Datagram,
    Polled, PostError, Provider, Queue, ReadDepth, Receives, RecvWr, Region, RemoteQp, SendWr,
    Sink, Transport, Window,
};

/// The provider. Its ia_params are the name of the fabric, optionally followed by `strict=on`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mem;

/// Advances the clock of a fabric. Attempts to connect whose time limit has passed then time out at
/// once.
pub fn advance(fabric: &str, by: Duration) {
    if let Some(fabric) = Fabric::find(fabric) {
        fabric.with(|objects| objects.advance(by));
    }
}

/// Returns the provider without its Rust type. It is not inlined, so that the code of dat-core for
/// this provider's transport is compiled once, with this crate.
#[inline(never)]
pub fn provider() -> AnyProvider {
    AnyProvider::of::<Mem>()
}

impl Provider for Mem {
    type Transport = Adapter;
    const NAME: &'static str = "mem";

    fn open(&self, ia: &str, params: &str) -> std::result::Result<Adapter, OpenError> {
        let fabric = params.trim_end_matches(STRICT).trim_end();
        let strict = fabric.len() < params.trim_end().len();
        Ok(Adapter { fabric: Fabric::open(fabric), attrs: Attrs { strict, ..attrs(ia, fabric) } })
    }
}

/// The parameter for a strict adapter, which is the same text as in the ia_params of other
/// providers.
const STRICT: &str = "strict=on";

const MAX_PRIVATE: usize = 256;
/// The longest datagram, as long as the largest packet of InfiniBand.
const MAX_DATAGRAM: u32 = 4096;

fn attrs(ia: &str, fabric: &str) -> Attrs {
    Attrs {
        adapter: ia.to_owned(),
        vendor: "OpenDAT".to_owned(),
        address: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
        interface: 0,
        max_eps: 1 << 16,
        max_dtos: 1 << 14,
        max_segments: 32,
        max_read_segments: 32,
        max_read_depth: 32,
        max_evds: 1 << 16,
        max_evd_depth: 1 << 20,
        max_regions: 1 << 20,
        max_windows: 1 << 20,
        window_scopes: DAT_RMR_SCOPE_ANY,
        atomics: true,
        immediate: true,
        max_region_size: u64::MAX,
        max_pds: 1 << 16,
        // A `Wc` cannot contain a greater length.
        max_message: u32::MAX,
        max_datagram: Some(MAX_DATAGRAM),
        max_private: MAX_PRIVATE,
        max_srqs: 1 << 12,
        max_srq_depth: 1 << 16,
        srq_across_pds: true,
        knows_allocated: true,
        pins: false,
        zero_based: true,
        quiet: true,
        strict: false,
        stats: false,
        optimal_alignment: 64,
        named: vec![("fabric".to_owned(), fabric.to_owned())],
    }
}

/// An adapter on a fabric.
pub struct Adapter {
    fabric: Arc<Fabric>,
    attrs: Attrs,
}

impl Adapter {
    /// Changes the limits. Only dat-core enforces them.
    pub fn with_attrs(mut self, change: impl FnOnce(&mut Attrs)) -> Self {
        change(&mut self.attrs);
        self
    }

    fn object(&self, id: Id) -> Object {
        Object { fabric: self.fabric.clone(), id }
    }
}

// SAFETY: the promises of `Transport`, by their numbers:
// 1. `Object::retire` removes the object's upcalls from the queue and waits for an upcall that is
//    being made. The adapter itself makes no upcalls.
// 2. `memory` looks up each region under the fabric's lock, which `Mr::drop` also takes. It copies
//    through raw pointers, and the fabric forgets requests and receives when they complete.
unsafe impl Transport for Adapter {
    type Pd = Pd;
    type Mr = Mr;
    type Mw = Mw;
    type Cq = Cq;
    type Srq = Srq;
    type Qp = Qp;
    type Address = IpAddr;
    type Listener = Listener;
    type ConnectionRequest = ConnectionRequest;

    fn attrs(&self) -> &Attrs {
        &self.attrs
    }

    fn pd(&self) -> Result<Pd> {
        Ok(Pd(Id::new()))
    }

    unsafe fn mr(&self, pd: &Pd, mem: provider::Mem, access: Access) -> Result<Mr> {
        // SAFETY: the caller guarantees that the memory stays mapped until the region is dropped,
        // and `Mr::drop` deregisters it.
        let keys = self.fabric.with(|e| unsafe { e.memory.register(pd.0, mem, access) })?;
        Ok(Mr { fabric: self.fabric.clone(), lkey: keys.0, rkey: keys.1 })
    }

    fn mw(&self, pd: &Pd, scoped: bool) -> Result<Mw> {
        let window = memory::Window { id: Id::new(), pd: pd.0, scoped };
        self.fabric.with(|e| e.memory.open(window.id));
        Ok(Mw { fabric: self.fabric.clone(), window })
    }

    fn cq(&self, depth: usize, sink: Sink<Self>) -> Result<Cq> {
        Ok(Cq(self.object(self.fabric.with(|e| e.add_cq(depth, sink)))))
    }

    fn srq(&self, pd: &Pd, depth: usize, max_segments: usize, sink: Sink<Self>) -> Result<Srq> {
        Ok(Srq(self.object(self.fabric.with(|e| e.add_srq(pd.0, depth, max_segments, sink)))))
    }

    fn qp(&self, cfg: provider::QpCfg<'_, Self>, sink: Sink<Self>) -> Result<Qp> {
        let core = QpCore {
            pd: cfg.pd.0,
            service: cfg.service,
            request_cq: cfg.request_cq.map(|cq| cq.0.id),
            recv_cq: cfg.recv_cq.map(|cq| cq.0.id),
            srq: cfg.srq.map(|srq| srq.0.id),
            token: cfg.token,
            holding: cfg.holding,
            sender_wakes: cfg.sender_wakes,
            max_requests: cfg.max_requests,
            max_recvs: cfg.max_recvs,
            max_request_segments: cfg.max_request_segments,
            max_recv_segments: cfg.max_recv_segments,
        };
        Ok(Qp(self.object(self.fabric.with(|e| e.add_qp(core, sink)))))
    }

    fn listen(&self, port: Option<u16>, backlog: usize, sink: Sink<Self>) -> Result<Listener> {
        let (id, port) = self.fabric.with(|e| e.listen(port, backlog, sink))?;
        Ok(Listener { object: self.object(id), port })
    }

    fn port(&self, listener: &Listener) -> u16 {
        listener.port
    }

    fn reject(&self, request: ConnectionRequest, private: &[u8]) -> Result<()> {
        check_private(private)?;
        self.fabric.with(|e| e.refuse(request.0.id, true, private));
        Ok(())
    }

    fn progress(&self) {
        self.fabric.with(Objects::expire);
    }

    fn sleep(&self, wake: &Wake, deadline: Option<Instant>) -> WakeReason {
        self.fabric.sleep(wake, deadline)
    }
}

fn check_private(private: &[u8]) -> Result<()> {
    match private.len() <= MAX_PRIVATE {
        true => Ok(()),
        false => Err(Error::of(DAT_INVALID_PARAMETER)),
    }
}

/// The content of every handle: the fabric, and the number of the object.
struct Object {
    fabric: Arc<Fabric>,
    id: Id,
}

impl Object {
    fn with<R>(&self, f: impl FnOnce(&mut Objects, Id) -> R) -> R {
        self.fabric.with(|objects| f(objects, self.id))
    }

    fn retire(&self, f: impl FnOnce(&mut Objects, Id)) {
        self.fabric.retire(self.id, |objects| f(objects, self.id));
    }
}

/// A protection domain.
pub struct Pd(Id);

/// A registered memory region.
pub struct Mr {
    fabric: Arc<Fabric>,
    lkey: u32,
    rkey: u32,
}

impl Region for Mr {
    fn lkey(&self) -> u32 {
        self.lkey
    }

    fn rkey(&self) -> u32 {
        self.rkey
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        self.fabric.with(|e| e.memory.deregister(self.lkey, self.rkey));
    }
}

/// A memory window.
pub struct Mw {
    fabric: Arc<Fabric>,
    window: memory::Window,
}

impl Window for Mw {
    fn state(&self, rkey: u32) -> BindState {
        self.fabric.with(|e| e.memory.state(self.window.id, rkey))
    }
}

impl Drop for Mw {
    fn drop(&mut self) {
        self.fabric.with(|e| e.memory.close(self.window.id));
    }
}

/// A completion queue.
pub struct Cq(Object);

// SAFETY: the fabric queues completions in order, and returns all that fit, under the fabric's
// lock.
unsafe impl Completions for Cq {
    unsafe fn poll(&self, out: &mut Polled<'_>) {
        self.0.with(|e, id| e.poll(id, out));
    }

    unsafe fn arm(&self, solicited: bool) -> bool {
        self.0.with(|e, id| e.arm(id, solicited))
    }

    unsafe fn resize(&self, depth: usize) -> Result<()> {
        self.0.with(|e, id| e.resize_cq(id, depth))
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        self.0.retire(Objects::remove_cq);
    }
}

/// A shared receive queue.
pub struct Srq(Object);

impl Receives for Srq {
    unsafe fn post_recv(&self, wr: &RecvWr<'_>) -> std::result::Result<(), PostError> {
        self.0.with(|e, id| e.post_srq(id, wr))
    }

    fn set_low_watermark(&self, mark: usize) {
        self.0.with(|e, id| e.set_low_watermark(id, mark));
    }

    fn resize(&self, depth: usize) -> Result<()> {
        self.0.with(|e, id| e.resize_srq(id, depth))
    }

    fn available(&self) -> usize {
        self.0.with(|e, id| e.available(id))
    }
}

impl Drop for Srq {
    fn drop(&mut self) {
        self.0.retire(Objects::remove_srq);
    }
}

/// A queue pair. When it is dropped, its completions stay in the completion queue until they are
/// polled. Its outstanding work requests never complete, and the peer sees an abrupt disconnect.
pub struct Qp(Object);

// SAFETY: the promises of `Queue`, by their numbers:
// 1. A request or receive is removed from its queue when it completes, the oldest first.
// 2. `Objects::remove_qp` removes all other requests and receives.
// 3. `carried_out` counts the successful requests up to the first request that has not succeeded.
//    `withdrawn` counts those that `remove_qp` would remove.
// 4. The fabric calls `buffer_taken` when a message takes a buffer, under the fabric's lock.
unsafe impl Queue<Adapter> for Qp {
    unsafe fn post_send(&self, wr: &SendWr<'_>) -> std::result::Result<(), PostError> {
        self.0.with(|e, id| e.post_send(id, wr))
    }

    unsafe fn post_bind(&self, wr: &BindWr<'_, Adapter>) -> std::result::Result<u32, PostError> {
        let view = wr.view.as_ref().map(|view| memory::View {
            lkey: view.region.lkey,
            addr: view.addr,
            len: view.len,
            access: view.access,
            zero_based: view.zero_based,
        });
        self.0
            .with(|e, id| e.post_bind(id, (wr.id, wr.signalled, wr.quiet), wr.window.window, view))
    }

    unsafe fn post_recv(&self, wr: &RecvWr<'_>) -> std::result::Result<(), PostError> {
        self.0.with(|e, id| e.post_recv(id, wr))
    }

    unsafe fn post_datagram(
        &self,
        wr: &Datagram<'_, Adapter>,
    ) -> std::result::Result<(), PostError> {
        let &Datagram { id, address, qpn, immediate, segments, signalled, solicited, quiet } = wr;
        let outgoing = Outgoing { id, immediate, segments, signalled, solicited, quiet };
        self.0.with(|e, id| e.post_datagram(id, (*address, qpn), &outgoing))
    }

    fn resolve(&self, number: u64, to: &Connect<'_>) -> Result<()> {
        check_private(to.private)?;
        self.0.with(|e, id| e.resolve(id, number, to))
    }

    fn answer(&self, request: ConnectionRequest, private: &[u8]) -> Result<RemoteQp<Adapter>> {
        check_private(private)?;
        let answered = self.0.with(|e, id| e.answer(id, request.0.id, private))?;
        let (address, [qpn, own_qpn]) = answered;
        Ok(RemoteQp { address, qpn, own_qpn })
    }

    fn connect(&self, to: &Connect<'_>) -> Result<()> {
        check_private(to.private)?;
        self.0.with(|e, id| e.connect(id, to))
    }

    fn accept(&self, request: ConnectionRequest, private: &[u8], depth: ReadDepth) -> Result<()> {
        check_private(private)?;
        self.0.with(|e, id| e.accept(id, request.0.id, private, depth))
    }

    fn disconnect(&self, how: Close) {
        self.0.with(|e, id| e.disconnect(id, how));
    }

    fn allocated(&self) -> Option<Allocated> {
        Some(self.0.with(|e, id| e.allocated(id)))
    }

    unsafe fn carried_out(&self) -> u64 {
        self.0.with(|e, id| e.carried_out(id))
    }

    fn withdrawn(&self) -> usize {
        self.0.with(|e, id| e.withdrawn(id))
    }
}

impl Drop for Qp {
    fn drop(&mut self) {
        self.0.retire(Objects::remove_qp);
    }
}

/// A service point.
pub struct Listener {
    object: Object,
    port: u16,
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.object.retire(Objects::close);
    }
}

/// A connection request.
pub struct ConnectionRequest(Object);

impl Drop for ConnectionRequest {
    fn drop(&mut self) {
        // If the consumer has answered the request, this call has no effect.
        self.0.with(|e, id| e.refuse(id, false, &[]));
    }
}
