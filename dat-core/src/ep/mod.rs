//! Endpoints.

mod bind;
mod extended;
mod flow;
mod network;
mod params;
pub mod post;
pub mod state;
mod watermark;

use std::ffi::c_void;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dat_sys::*;

pub use self::extended::Atomic;
pub use self::flow::{Flow, Orphans};
use self::network::{Address, Shared};
use self::state::{Effect, Event, State};
pub use self::watermark::{Exceeded, Holding};
use crate::error::{Error, Result};
use crate::evd::{Evd, Feed, Order};
use crate::handle::{self, Node, Object, Ref};
use crate::ia::Ia;
use crate::mem::pz::Pz;
use crate::provider::{
    Allocated, Close, Connect, QpCfg, Queue, ReadDepth, RecvWr, Segment, Sink, Transport, Wc, WcOp, WcStatus,
};
use crate::srq::Srq;

/// An endpoint.
pub struct Ep<T: Transport> {
    /// Its adapter.
    pub ia: Ref<Ia<T>>,
    /// What is connected; NULL while the endpoint lacks a protection zone.
    link: AtomicPtr<Link<T>>,
    setup: Mutex<Setup<T>>,
    shared: Arc<Shared<T>>,
}

/// A queue pair with what is outstanding on it: one incarnation of the endpoint, from (re)configuration to reset.
struct Link<T: Transport> {
    qp: T::Qp,
    flow: Box<Flow>,
    /// `DAT_COMPLETION_UNSIGNALLED_FLAG` if requests may carry it, else 0.
    unsignalled: DAT_COMPLETION_FLAGS,
    /// The same for receives.
    recv_unsignalled: DAT_COMPLETION_FLAGS,
    max_request_iov: usize,
    max_read_iov: usize,
    max_recv_iov: usize,
    on_srq: bool,
}

/// What the consumer configured.
struct Setup<T: Transport> {
    pz: Option<Ref<Pz<T>>>,
    recv_evd: Option<Feed<T>>,
    request_evd: Option<Feed<T>>,
    srq: Option<Ref<Srq<T>>>,
    attr: DAT_EP_ATTR,
    /// The watermarks, and what the queue pair of now holds.
    holding: Arc<Holding>,
    /// Where dat_ep_connect went: dat_ep_dup_connect goes there too.
    peer: Option<(SocketAddr, DAT_CONN_QUAL)>,
    /// Receives posted while dat_ep_modify may still replace the queue pair.
    early: Vec<EarlyRecv>,
}

struct EarlyRecv {
    segments: Box<[Segment]>,
    cookie: u64,
    quiet: bool,
}

// SAFETY: the attribute pointers in `attr` are the consumer's; they are only handed back.
unsafe impl<T: Transport> Send for Setup<T> {}

/// The objects an endpoint is made of; each may be NULL.
pub struct Handles<'a, T: Transport> {
    /// Protection zone.
    pub pz: Option<&'a Node<Pz<T>>>,
    /// Event dispatcher of receives.
    pub recv: Option<&'a Node<Evd<T>>>,
    /// Event dispatcher of requests.
    pub request: Option<&'a Node<Evd<T>>>,
    /// Event dispatcher of the connection.
    pub connect: Option<&'a Node<Evd<T>>>,
    /// Shared receive queue.
    pub srq: Option<&'a Node<Srq<T>>>,
}

impl<T: Transport> Object for Ep<T> {
    const KIND: DAT_HANDLE_TYPE = DAT_HANDLE_TYPE_EP;
    const INVALID: DAT_RETURN = DAT_INVALID_HANDLE_EP;
}

/// dat_ep_create and dat_ep_create_with_srq.
pub fn create<T: Transport>(
    ia: &Node<Ia<T>>,
    handles: Handles<'_, T>,
    attr: Option<&DAT_EP_ATTR>,
) -> Result<&'static Node<Ep<T>>> {
    let limits = ia.transport.attrs();
    let attr_arg = if handles.srq.is_some() { 7 } else { 6 };
    let attr = match attr {
        Some(attr) => *attr,
        None if handles.srq.is_some() => return Err(Error::arg(attr_arg)),
        None => params::defaults(limits),
    };
    params::check(&attr, limits, handles.srq.is_some(), attr_arg)?;
    handles.check(ia)?;
    let _control = ia.control();
    let setup = Setup {
        pz: handles.pz.map(Ref::new),
        recv_evd: feed(handles.recv, attr.recv_completion_flags).ok_or(Error::arg(attr_arg))?,
        request_evd: feed(handles.request, attr.request_completion_flags).ok_or(Error::arg(attr_arg))?,
        srq: handles.srq.map(Ref::new),
        attr,
        holding: Arc::default(),
        peer: None,
        early: Vec::new(),
    };
    setup.holding.set_soft(params::soft_watermark(&setup.attr));
    let state = if setup.pz.is_some() { State::Unconnected } else { State::UnconfiguredUnconnected };
    build(ia, setup, handles.connect.map(Ref::new), state)
}

/// A completion stream to an EVD, if there is one. `None`: the flags do not match those of its other streams.
fn feed<T: Transport>(evd: Option<&Node<Evd<T>>>, flags: DAT_COMPLETION_FLAGS) -> Option<Option<Feed<T>>> {
    match evd {
        Some(evd) => Feed::new(evd, flags).map(Some),
        None => Some(None),
    }
}

/// An endpoint that the provider makes for a connection request (PSP with `DAT_PSP_PROVIDER_FLAG`): the consumer
/// configures it before it accepts. Allowed inside upcalls.
pub fn create_tentative<T: Transport>(ia: &Node<Ia<T>>) -> Result<&'static Node<Ep<T>>> {
    let attr = params::defaults(ia.transport.attrs());
    let setup = Setup {
        pz: None,
        recv_evd: None,
        request_evd: None,
        srq: None,
        attr,
        holding: Arc::default(),
        peer: None,
        early: Vec::new(),
    };
    build(ia, setup, None, State::UnconfiguredTentative)
}

fn build<T: Transport>(
    ia: &Node<Ia<T>>,
    setup: Setup<T>,
    connect_evd: Option<Ref<Evd<T>>>,
    state: State,
) -> Result<&'static Node<Ep<T>>> {
    ia.add(|handle| {
        let ep = Ep {
            ia: Ref::new(ia),
            link: AtomicPtr::new(std::ptr::null_mut()),
            setup: Mutex::new(setup),
            shared: Arc::new(Shared::new(handle, Ref::new(ia), state, connect_evd)),
        };
        let link = ep.new_link(&mut ep.setup())?;
        ep.link.store(link, Ordering::Release);
        Ok(ep)
    })
}

/// dat_ep_free. A connection is ended abruptly; completions not yet taken stay on their EVDs.
pub fn free<T: Transport>(ep: &Node<Ep<T>>) -> Result<()> {
    let ia = ep.ia.clone();
    let mut control = ia.control();
    if ep.in_use() {
        return Err(ep.state().refusal());
    }
    let was = ep.shared.state.apply(Event::Free)?.from;
    destroy(ep, was, &mut control);
    Ok(())
}

/// Takes a tentative endpoint back from the consumer (dat_cr_reject). Called under the control lock.
pub(crate) fn retire_tentative<T: Transport>(ep: &Node<Ep<T>>, control: &mut Orphans) {
    destroy(ep, State::TentativePending, control);
}

/// Called under the control lock, by whom nobody precedes.
fn destroy<T: Transport>(ep: &Node<Ep<T>>, was: State, control: &mut Orphans) {
    let ia = ep.ia.clone();
    let live = [State::Connected, State::DisconnectPending, State::ActivePending, State::CompletionPending];
    // SAFETY: the link is ours until it is dropped below.
    if let Some(link) = unsafe { ep.link_ptr().as_ref() }
        && live.contains(&was)
    {
        // The state says Disconnected already, so no event comes of it; but what was posted is flushed.
        link.qp.disconnect(Close::Abrupt);
    }
    ia.delist(ep);
    // SAFETY: the caller made sure that nobody depends on the endpoint.
    if let Some(gone) = unsafe { handle::remove(ep) } {
        gone.unlink(control, gone.setup().evds());
        drop(gone);
    }
}

impl<T: Transport> Handles<'_, T> {
    /// All of one adapter, and each EVD fed by the stream it is named for.
    fn check(&self, ia: &Node<Ia<T>>) -> Result<()> {
        check_evd(ia, self.recv, DAT_EVD_DTO_FLAG, DAT_INVALID_HANDLE_EVD_RECV)?;
        check_evd(ia, self.request, DAT_EVD_DTO_FLAG, DAT_INVALID_HANDLE_EVD_REQUEST)?;
        check_evd(ia, self.connect, DAT_EVD_CONNECTION_FLAG, DAT_INVALID_HANDLE_EVD_CONN)?;
        if self.pz.is_some_and(|pz| pz.ia.handle() != ia.handle()) {
            return Err(Error::handle(DAT_INVALID_HANDLE_PZ));
        }
        if self.srq.is_some_and(|srq| srq.ia.handle() != ia.handle()) {
            return Err(Error::handle(DAT_INVALID_HANDLE_SRQ));
        }
        Ok(())
    }
}

fn check_evd<T: Transport>(
    ia: &Node<Ia<T>>,
    evd: Option<&Node<Evd<T>>>,
    stream: DAT_EVD_FLAGS,
    invalid: DAT_RETURN,
) -> Result<()> {
    match evd {
        Some(evd) if evd.flags & stream == 0 || evd.ia.handle() != ia.handle() => Err(Error::handle(invalid)),
        _ => Ok(()),
    }
}

impl<T: Transport> Ep<T> {
    #[inline]
    fn link_ptr(&self) -> *const Link<T> {
        self.link.load(Ordering::Acquire)
    }

    fn setup(&self) -> MutexGuard<'_, Setup<T>> {
        self.setup.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state now.
    pub fn state(&self) -> State {
        self.shared.state.get()
    }

    /// Applies what a service point or connection request does to the endpoint.
    pub(crate) fn apply(&self, event: Event) -> Result<()> {
        self.shared.state.apply(event).map(drop)
    }

    /// A queue pair as configured; NULL if something is missing.
    fn new_link(&self, setup: &mut Setup<T>) -> Result<*mut Link<T>> {
        let Some(pz) = &setup.pz else { return Ok(std::ptr::null_mut()) };
        setup.holding = Arc::new(setup.holding.successor());
        let attr = &setup.attr;
        let count = |n: DAT_COUNT| usize::try_from(n).unwrap_or(0);
        let srq_share = setup.srq.as_ref().map(|srq| srq.counts.share());
        let (requests, recvs) = (count(attr.max_request_dtos), count(attr.max_recv_dtos));
        let holding = Arc::clone(&setup.holding);
        let mut flow =
            Box::new(Flow::new(self.shared.ep as *mut c_void, requests, recvs, srq_share, holding));
        flow.count_only_reported(setup.request_evd.is_some(), setup.recv_evd.is_some());
        let write_iov = count(attr.max_rdma_write_iov);
        let cfg = QpCfg {
            pd: &pz.pd,
            request_cq: setup.request_evd.as_ref().and_then(|evd| evd.cq()),
            recv_cq: setup.recv_evd.as_ref().and_then(|evd| evd.cq()),
            srq: setup.srq.as_ref().map(|srq| &srq.srq),
            token: std::ptr::from_ref(&*flow) as u64,
            holding: Arc::clone(&setup.holding),
            sender_wakes: attr.recv_completion_flags == DAT_COMPLETION_SOLICITED_WAIT_FLAG,
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
        Ok(Box::into_raw(Box::new(Link {
            qp,
            flow,
            unsignalled: attr.request_completion_flags & DAT_COMPLETION_UNSIGNALLED_FLAG,
            recv_unsignalled: attr.recv_completion_flags & DAT_COMPLETION_UNSIGNALLED_FLAG,
            max_request_iov: count(attr.max_request_iov).max(write_iov),
            // Consumers of uDAPL 1.1 leave max_rdma_read_iov at 0 and mean max_request_iov.
            max_read_iov: match attr.max_rdma_read_iov {
                0 => count(attr.max_request_iov).min(self.ia.transport.attrs().max_read_segments),
                n => count(n),
            },
            max_recv_iov: count(attr.max_recv_iov),
            on_srq: setup.srq.is_some(),
        })))
    }

    /// Drops the queue pair; its completions, which are on `evds`, keep their flow. Called under the control lock.
    fn unlink(&self, control: &mut Orphans, evds: Evds<T>) {
        let raw = self.link.swap(std::ptr::null_mut(), Ordering::AcqRel);
        if raw.is_null() {
            return;
        }
        // SAFETY: made by `new_link`, and whoever swaps it out owns it.
        let Link { qp, flow, .. } = *unsafe { Box::from_raw(raw) };
        drop(qp);
        control.adopt(flow, evds.iter().flatten().map(Ref::node));
    }

    /// dat_ep_get_status: the state, and whether each queue is idle.
    pub fn status(&self) -> (DAT_EP_STATE, bool, bool) {
        // SAFETY: control calls do not run beside one another on one endpoint (MT level).
        let link = unsafe { self.link_ptr().as_ref() };
        let idle = |f: fn(&Flow) -> bool| link.is_none_or(|link| f(&link.flow));
        (self.state() as DAT_EP_STATE, idle(Flow::receives_idle), idle(|f| f.requests.is_idle()))
    }

    /// dat_ep_recv_query: the buffers allocated to the endpoint and not completed, and their span.
    pub fn allocated(&self) -> Allocated {
        // SAFETY: control calls do not run beside one another on one endpoint (MT level).
        unsafe { self.link_ptr().as_ref() }.map_or(Allocated::default(), |link| link.qp.allocated())
    }

    /// dat_ep_set_watermark; legal in every state. What is exceeded already is for [`Ep::exceeds`].
    pub fn set_watermarks(&self, soft: DAT_COUNT, hard: DAT_COUNT) -> Result<Exceeded> {
        for (mark, arg) in [(soft, 2), (hard, 3)] {
            if !watermark::is_valid(mark) {
                return Err(Error::arg(arg));
            }
        }
        let holding = {
            let mut setup = self.setup();
            setup.attr.srq_soft_hw = soft;
            setup.holding.set_soft(soft);
            setup.holding.set_hard(hard);
            Arc::clone(&setup.holding)
        };
        // SAFETY: control calls do not run beside one another on one endpoint (MT level).
        let Some(link) = (unsafe { self.link_ptr().as_ref() }) else { return Ok(Exceeded::default()) };
        // The transport looks under its own lock: a message either took its buffer before, and is counted below, or
        // finds the new watermarks.
        link.qp.allocated();
        Ok(holding.test())
    }

    /// The other half of dat_ep_set_watermark: reports the soft watermark, breaks the connection for the hard one. Apart
    /// because upcalls follow, in which the consumer's CNO agent may use the endpoint.
    pub fn exceeds(&self, exceeded: Exceeded) {
        if exceeded.soft {
            self.shared.exceeds_soft_watermark();
        }
        if exceeded.hard && matches!(self.state(), State::Connected | State::DisconnectPending) {
            self.shared.break_off();
            // SAFETY: control calls do not run beside one another on one endpoint (MT level).
            if let Some(link) = unsafe { self.link_ptr().as_ref() } {
                link.qp.disconnect(Close::Abrupt);
            }
        }
    }

    /// dat_ep_query. Addresses point into the endpoint.
    pub fn query(&self, param: &mut DAT_EP_PARAM) {
        fn raw<O: Object>(object: &Option<impl Deref<Target = Node<O>>>) -> *mut c_void {
            object.as_ref().map_or(std::ptr::null_mut(), |o| o.handle())
        }
        let setup = self.setup();
        let conn = self.shared.conn();
        *param = DAT_EP_PARAM {
            ia_handle: self.ia.consumer_handle(),
            ep_state: self.state() as DAT_EP_STATE,
            local_ia_address_ptr: conn.local.sockaddr.as_ptr(),
            local_port_qual: conn.local.port,
            remote_ia_address_ptr: conn.remote.sockaddr.as_ptr(),
            remote_port_qual: conn.remote.port,
            pz_handle: raw(&setup.pz),
            recv_evd_handle: raw(&setup.recv_evd),
            request_evd_handle: raw(&setup.request_evd),
            connect_evd_handle: raw(&conn.evd),
            srq_handle: raw(&setup.srq),
            ep_attr: setup.attr,
            ..DAT_EP_PARAM::zeroed()
        };
    }

    /// dat_ep_modify.
    ///
    /// # Safety
    /// As [`handle::get`] for the handles in `param`.
    pub unsafe fn modify(&self, mask: DAT_EP_PARAM_MASK, param: &DAT_EP_PARAM) -> Result<()> {
        let mut control = self.ia.control();
        let state = self.state();
        params::check_modify(mask, state, !self.setup().early.is_empty())?;
        // SAFETY: as the caller promised.
        let (pz, recv, request, connect) = unsafe {
            let evd = |bit, handle, invalid| {
                handle::get_or_null::<Evd<T>>(param_handle(mask, bit, handle))
                    .map_err(|_| Error::handle(invalid))
            };
            (
                handle::get_or_null::<Pz<T>>(param_handle(mask, DAT_EP_FIELD_PZ_HANDLE, param.pz_handle))?,
                evd(DAT_EP_FIELD_RECV_EVD_HANDLE, param.recv_evd_handle, DAT_INVALID_HANDLE_EVD_RECV)?,
                evd(
                    DAT_EP_FIELD_REQUEST_EVD_HANDLE,
                    param.request_evd_handle,
                    DAT_INVALID_HANDLE_EVD_REQUEST,
                )?,
                evd(DAT_EP_FIELD_CONNECT_EVD_HANDLE, param.connect_evd_handle, DAT_INVALID_HANDLE_EVD_CONN)?,
            )
        };
        Handles { pz, recv, request, connect, srq: None }.check(&self.ia)?;
        let mut attr = self.setup().attr;
        params::merge(&mut attr, &param.ep_attr, mask);
        params::check(&attr, self.ia.transport.attrs(), self.setup().srq.is_some(), 3)?;
        if mask & DAT_EP_FIELD_CONNECT_EVD_HANDLE != 0 {
            self.shared.conn().evd = connect.map(Ref::new);
        }
        if mask & !DAT_EP_FIELD_CONNECT_EVD_HANDLE == 0 {
            return Ok(());
        }
        let mut setup = self.setup();
        let old = setup.evds();
        setup.feed(
            if mask & DAT_EP_FIELD_RECV_EVD_HANDLE != 0 { recv } else { old[0].as_deref() },
            if mask & DAT_EP_FIELD_REQUEST_EVD_HANDLE != 0 { request } else { old[1].as_deref() },
            attr,
        )?;
        self.unlink(&mut control, old);
        if mask & DAT_EP_FIELD_EP_ATTR_SRQ_SOFT_HW != 0 {
            setup.holding.set_soft(params::soft_watermark(&attr));
        }
        if mask & DAT_EP_FIELD_PZ_HANDLE != 0 {
            setup.pz = pz.map(Ref::new);
        }
        let link = self.new_link(&mut setup)?;
        self.link.store(link, Ordering::Release);
        let configured = if setup.pz.is_some() { Event::Configure } else { Event::Unconfigure };
        self.shared.state.apply(configured)?;
        self.repost(&setup);
        Ok(())
    }

    /// Keeps an early receive for [`Ep::repost`].
    #[cold]
    fn remember(&self, segments: &[Segment], cookie: u64, quiet: bool) {
        self.setup().early.push(EarlyRecv { segments: segments.into(), cookie, quiet });
    }

    /// Moves the early receives to the new queue pair. One that does not fit the new protection zone fails (uDAPL 1.2,
    /// dat_ep_modify, protection zone).
    fn repost(&self, setup: &Setup<T>) {
        // SAFETY: made by the caller, who holds the control lock.
        let Some(link) = (unsafe { self.link_ptr().as_ref() }) else { return };
        for early in &setup.early {
            let Some(seq) = link.flow.receives.next() else { return };
            link.flow.receives.posted(seq + 1);
            let EarlyRecv { segments, cookie, quiet } = early;
            // SAFETY: the consumer leaves the memory alone until the receive completes.
            let posted = unsafe { link.qp.post_recv(&RecvWr { id: *cookie, segments, quiet: *quiet }) };
            if posted.is_err()
                && let Some(evd) = &setup.recv_evd
            {
                let failed = Wc {
                    id: early.cookie,
                    qp: 0,
                    bytes: 0,
                    invalidated: None,
                    immediate: None,
                    op: WcOp::Recv,
                    status: WcStatus::LocalProtection,
                };
                link.flow.holding.count();
                let data = DAT_EVENT_DATA { dto_completion_event_data: link.flow.retire(&failed) };
                evd.post_or_report(DAT_DTO_COMPLETION_EVENT, data, Order::Now);
            }
        }
    }

    /// dat_ep_connect. `timeout` in microseconds.
    pub fn connect(
        &self,
        addr: SocketAddr,
        qualifier: DAT_CONN_QUAL,
        timeout: DAT_TIMEOUT,
        private: &[u8],
        qos: DAT_QOS,
        flags: DAT_CONNECT_FLAGS,
    ) -> Result<()> {
        match flags {
            DAT_CONNECT_DEFAULT_FLAG => {}
            DAT_CONNECT_MULTIPATH_REQUESTED_FLAG | DAT_CONNECT_MULTIPATH_REQUIRED_FLAG => {
                return Err(Error::of(DAT_MODEL_NOT_SUPPORTED));
            }
            _ => return Err(Error::arg(8)),
        }
        params::check_qos(qos)?;
        self.dial(addr, qualifier, timeout, private, 4)
    }

    /// dat_ep_common_connect (uDAPL 2.0): to a service point named as a socket is, by an address with its port.
    pub fn common_connect(&self, addr: SocketAddr, timeout: DAT_TIMEOUT, private: &[u8]) -> Result<()> {
        if addr.port() == 0 {
            return Err(Error::new(DAT_INVALID_ADDRESS, DAT_INVALID_ADDRESS_MALFORMED));
        }
        self.dial(addr, addr.port().into(), timeout, private, 3)
    }

    /// `arg`: the position of the timeout in the call; the size of the private data is behind it.
    fn dial(
        &self,
        addr: SocketAddr,
        qualifier: DAT_CONN_QUAL,
        timeout: DAT_TIMEOUT,
        private: &[u8],
        arg: u32,
    ) -> Result<()> {
        // uDAPL 1.2, dat_ep_connect: timeout values must be positive.
        if timeout == 0 {
            return Err(Error::arg(arg));
        }
        if private.len() > self.ia.transport.attrs().max_private {
            return Err(Error::arg(arg + 1));
        }
        let mut setup = self.setup();
        let link = self.ready(&setup)?;
        self.shared.state.apply(Event::Connect)?;
        setup.peer = Some((addr, qualifier));
        self.shared.conn().remote = Address { sockaddr: addr.into(), port: qualifier };
        let timeout = (timeout != DAT_TIMEOUT_INFINITE).then(|| Duration::from_micros(timeout.into()));
        let to = Connect { addr, port: qualifier, private, timeout, depth: setup.read_depth() };
        link.qp.connect(&to).inspect_err(|_| self.retract())
    }

    /// dat_ep_dup_connect: to where `model` is connected.
    pub fn dup_connect(
        &self,
        model: &Ep<T>,
        timeout: DAT_TIMEOUT,
        private: &[u8],
        qos: DAT_QOS,
    ) -> Result<()> {
        let peer = model.setup().peer;
        match (model.state(), peer) {
            (State::Connected, Some((addr, qualifier))) => {
                params::check_qos(qos)?;
                self.dial(addr, qualifier, timeout, private, 3)
            }
            (state, _) => Err(state.refusal()),
        }
    }

    /// dat_cr_accept on this endpoint, whose state has been checked by the caller's `Accept`.
    pub(crate) fn accept(&self, request: T::Request, private: &[u8]) -> Result<()> {
        let setup = self.setup();
        let link = self.ready(&setup)?;
        link.qp.accept(request, private, setup.read_depth())
    }

    /// Whether it could accept: it has a protection zone and a connection EVD.
    pub(crate) fn check_ready(&self) -> Result<()> {
        self.ready(&self.setup()).map(drop)
    }

    /// A connect or accept that failed before it began.
    pub(crate) fn retract(&self) {
        // Whatever else happened meanwhile has the last word.
        let _ = self.shared.state.apply(Event::Retract);
    }

    /// The parts that a connection needs (uDAPL 1.2, dat_ep_connect: otherwise an invalid state).
    fn ready(&self, setup: &Setup<T>) -> Result<&Link<T>> {
        if setup.pz.is_none() {
            return Err(Error::state(DAT_INVALID_STATE_EP_PZ));
        }
        if self.shared.conn().evd.is_none() {
            return Err(Error::state(DAT_INVALID_STATE_EP_EVD_CONNECT));
        }
        // SAFETY: control calls do not run beside one another on one endpoint (MT level).
        unsafe { self.link_ptr().as_ref() }.ok_or(Error::state(DAT_INVALID_STATE_EP_NOTREADY))
    }

    /// dat_ep_disconnect.
    pub fn disconnect(&self, flags: DAT_CLOSE_FLAGS) -> Result<()> {
        let (event, how) = match flags {
            DAT_CLOSE_ABRUPT_FLAG => (Event::DisconnectAbruptly, Close::Abrupt),
            DAT_CLOSE_GRACEFUL_FLAG => (Event::DisconnectGracefully, Close::Graceful),
            _ => return Err(Error::arg(2)),
        };
        let moved = self.shared.state.apply(event)?;
        if moved.effect == Effect::Nothing {
            return Ok(());
        }
        // uDAPL 1.2, dat_ep_disconnect: unless connected, both flags mean the same.
        let how = if moved.from == State::Connected { how } else { Close::Abrupt };
        // SAFETY: an endpoint in any of these states has a link, and only reset and free take it.
        if let Some(link) = unsafe { self.link_ptr().as_ref() } {
            link.qp.disconnect(how);
        }
        Ok(())
    }

    /// dat_ep_reset: ready for the next connection.
    pub fn reset(&self) -> Result<()> {
        let mut control = self.ia.control();
        match effect_of_reset(self.state())? {
            Effect::To(_) => {}
            _ => return Ok(()),
        }
        let mut setup = self.setup();
        self.unlink(&mut control, setup.evds());
        setup.early.clear();
        let link = self.new_link(&mut setup)?;
        self.link.store(link, Ordering::Release);
        self.shared.renew();
        self.shared.state.apply(Event::Reset).map(drop)
    }
}

fn effect_of_reset(state: State) -> Result<Effect> {
    match state::effect(state, Event::Reset) {
        Effect::Refuse => Err(state.refusal()),
        effect => Ok(effect),
    }
}

/// The handle if the mask names it, else NULL.
fn param_handle(mask: DAT_EP_PARAM_MASK, bit: DAT_EP_PARAM_MASK, handle: *mut c_void) -> *mut c_void {
    if mask & bit != 0 { handle } else { std::ptr::null_mut() }
}

impl<T: Transport> Drop for Ep<T> {
    fn drop(&mut self) {
        let raw = *self.link.get_mut();
        if !raw.is_null() {
            // SAFETY: made by `new_link`; nobody else has it. Only an endpoint that was never listed gets here with
            // a link, so no completion refers to its flow.
            drop(unsafe { Box::from_raw(raw) });
        }
    }
}

/// The EVDs of receives and of requests.
type Evds<T> = [Option<Ref<Evd<T>>>; 2];

impl<T: Transport> Setup<T> {
    fn evds(&self) -> Evds<T> {
        [&self.recv_evd, &self.request_evd].map(|feed| feed.as_ref().map(Feed::evd))
    }

    /// Feeds these EVDs with these attributes from now on; as before, if the attributes' completion flags do not match
    /// those of the EVDs' other streams.
    fn feed(
        &mut self,
        recv: Option<&Node<Evd<T>>>,
        request: Option<&Node<Evd<T>>>,
        attr: DAT_EP_ATTR,
    ) -> Result<()> {
        let feeds = |[recv, request]: [Option<&Node<Evd<T>>>; 2], attr: &DAT_EP_ATTR| {
            let recv = feed(recv, attr.recv_completion_flags)?;
            Some((recv, feed(request, attr.request_completion_flags)?))
        };
        let old = self.evds();
        // The endpoint's own streams are none of the others.
        (self.recv_evd, self.request_evd) = (None, None);
        match feeds([recv, request], &attr) {
            Some(new) => {
                (self.recv_evd, self.request_evd) = new;
                self.attr = attr;
                Ok(())
            }
            None => {
                let [recv, request] = &old;
                // Nobody else has come under the control lock.
                if let Some(old) = feeds([recv.as_deref(), request.as_deref()], &self.attr) {
                    (self.recv_evd, self.request_evd) = old;
                }
                Err(Error::arg(3))
            }
        }
    }

    fn read_depth(&self) -> ReadDepth {
        ReadDepth {
            incoming: u32::try_from(self.attr.max_rdma_read_in).unwrap_or(0),
            outgoing: u32::try_from(self.attr.max_rdma_read_out).unwrap_or(0),
        }
    }
}
