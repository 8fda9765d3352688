//! rdma_cm: the event channel, its identifiers, service points and requests.

use std::ffi::c_void;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use dat_core::provider::{Port, ReadDepth, Sink, Upcall};
use dat_core::{Error, Result};
use dat_sys::{
    DAT_CONN_QUAL_IN_USE, DAT_CONN_QUAL_UNAVAILABLE, DAT_INSUFFICIENT_RESOURCES,
    DAT_RESOURCE_MEMORY,
};
use rdma_core_sys::*;

use crate::Adapter;
use crate::descriptor::unblock;
use crate::device::{CAddr, Found};
use crate::map::{self, CmNews, REJECT_HEADER};
use crate::qp::Pair;
use crate::station::Station;

/// An event channel. Its identifiers live no longer.
pub(crate) struct Channel {
    core: &'static RdmaCore,
    channel: NonNull<rdma_event_channel>,
}

// SAFETY: the library locks what threads share.
unsafe impl Send for Channel {}
// SAFETY: as above.
unsafe impl Sync for Channel {}

/// An identifier.
pub(crate) struct Id {
    core: &'static RdmaCore,
    id: NonNull<rdma_cm_id>,
}

// SAFETY: as above.
unsafe impl Send for Id {}
// SAFETY: as above.
unsafe impl Sync for Id {}

/// Service point.
pub struct Listener {
    pub(crate) port: u16,
    // Dropped first: waits for its events.
    _id: Id,
    _point: Box<Point>,
}

/// Where its identifier's context leads.
struct Point {
    sink: Mutex<Sink<Adapter>>,
    backlog: usize,
    waiting: Arc<AtomicUsize>,
}

/// A connection request nobody has answered.
pub struct Request {
    id: Option<Id>,
    pub(crate) depth: ReadDepth,
    waiting: Arc<AtomicUsize>,
}

impl Channel {
    pub(crate) fn open(core: &'static RdmaCore) -> io::Result<Channel> {
        // SAFETY: no arguments.
        let channel = NonNull::new(unsafe { (core.cm.rdma_create_event_channel)() });
        Ok(Channel { core, channel: channel.ok_or_else(io::Error::last_os_error)? })
    }

    /// Taking an event where there is none fails from now on.
    pub(crate) fn unblock(&self) {
        // SAFETY: a live channel.
        unsafe { unblock(self.channel.as_ref().fd) }
    }

    /// The device that has a local address, and the port; none: there is no device below it.
    pub(crate) fn device_of(&self, address: SocketAddr) -> io::Result<Option<Found>> {
        let id = self.witness(address)?;
        // SAFETY: a live identifier; it was written to by the call above.
        let rdma_cm_id { verbs, port_num, .. } = unsafe { id.id.read() };
        // SAFETY: an open context as long as the identifier is bound to it.
        let context = unsafe { verbs.as_ref() };
        Ok(context.map(|context| Found { device: context.device, port: port_num, _bound: id }))
    }

    /// An identifier that is bound to the device, so that there is news if the device is removed. Its port is not one of
    /// those that connections have.
    pub(crate) fn witness(&self, address: SocketAddr) -> io::Result<Id> {
        let id = self.id_in(RDMA_PS_UDP, ptr::null_mut())?;
        id.bind(SocketAddr::new(address.ip(), 0))?;
        Ok(id)
    }

    /// A new identifier.
    pub(crate) fn id(&self, context: *mut c_void) -> io::Result<Id> {
        self.id_in(RDMA_PS_TCP, context)
    }

    fn id_in(&self, ports: rdma_port_space, context: *mut c_void) -> io::Result<Id> {
        let mut id = ptr::null_mut();
        // SAFETY: a live channel, and room for the answer.
        let made = unsafe {
            (self.core.cm.rdma_create_id)(self.channel.as_ptr(), &mut id, context, ports)
        };
        match NonNull::new(id) {
            Some(id) if made == 0 => Ok(Id { core: self.core, id }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Listens on the adapter's own address, as libdaplofa does.
    pub(crate) fn listen(
        &self,
        at: SocketAddr,
        port: Port,
        backlog: usize,
        sink: Sink<Adapter>,
    ) -> Result<Listener> {
        let number = match port {
            Port::Qualifier(qualifier) => adapter::port(qualifier),
            Port::Any => 0,
        };
        let taken = |e: io::Error| match e.raw_os_error() {
            Some(libc::EADDRINUSE) => Error::of(DAT_CONN_QUAL_IN_USE),
            Some(libc::EACCES) => Error::of(DAT_CONN_QUAL_UNAVAILABLE),
            _ => Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY),
        };
        let waiting = Arc::default();
        let point = Box::new(Point { sink: Mutex::new(sink), backlog, waiting });
        let id = self.id(ptr::from_ref(&*point).cast_mut().cast()).map_err(taken)?;
        id.bind(SocketAddr::new(at.ip(), number)).map_err(taken)?;
        // The kernel's own backlog is of those that we have not seen; the rest is counted here.
        // SAFETY: a live identifier.
        let port = unsafe {
            if (self.core.cm.rdma_listen)(id.id.as_ptr(), 1024) != 0 {
                return Err(taken(io::Error::last_os_error()));
            }
            u16::from_be((self.core.cm.rdma_get_src_port)(id.id.as_ptr()))
        };
        Ok(Listener { port, _id: id, _point: point })
    }

    /// Handles the first event, if there is one.
    pub(crate) fn take(&self, station: &Station) -> bool {
        let mut event = ptr::null_mut();
        // SAFETY: a live channel that does not block.
        if unsafe { (self.core.cm.rdma_get_cm_event)(self.channel.as_ptr(), &mut event) } != 0 {
            return false;
        }
        // SAFETY: an event that is not acknowledged yet, so that its identifiers stay.
        let kept = unsafe { self.handle(station, &*event) };
        // SAFETY: once. An identifier may go only when its events have.
        unsafe { (self.core.cm.rdma_ack_cm_event)(event) };
        drop(kept);
        true
    }

    /// What may end now comes back: its end waits for the event to be acknowledged.
    ///
    /// # Safety
    /// The event is not acknowledged.
    unsafe fn handle(&self, station: &Station, event: &rdma_cm_event) -> Option<Kept> {
        // SAFETY: of reliable connections only.
        let conn = unsafe { event.param.conn };
        let private = match conn.private_data.is_null() {
            true => &[],
            // SAFETY: as long as it says.
            false => unsafe {
                std::slice::from_raw_parts(
                    conn.private_data.cast::<u8>(),
                    conn.private_data_len.into(),
                )
            },
        };
        let depth = ReadDepth {
            incoming: conn.responder_resources.into(),
            outgoing: conn.initiator_depth.into(),
        };
        let news = map::cm_news(event.event, event.status, private);
        let id = NonNull::new(event.id)?;
        // SAFETY: as the caller promised, live; nobody writes there any more.
        let addr = unsafe { &(*id.as_ptr()).route.addr };
        // SAFETY: as above.
        let context = unsafe { context(id) };
        if news == CmNews::Request {
            // Not a connection's yet.
            context.store(ptr::null_mut(), Ordering::Relaxed);
            // SAFETY: a listener's context leads to its point, which stays as long as the listener's identifier.
            let point = unsafe { &*(*event.listen_id).context.cast::<Point>() };
            point.waiting.fetch_add(1, Ordering::Relaxed);
            let request = Request {
                id: Some(Id { core: self.core, id }),
                depth,
                waiting: Arc::clone(&point.waiting),
            };
            if point.waiting.load(Ordering::Relaxed) > point.backlog {
                return Some(Kept::Refused(request));
            }
            let [local, peer] = addresses(addr);
            let sink = point.sink.lock().unwrap_or_else(PoisonError::into_inner);
            sink.call(Upcall::Request { request, from: peer, to: local, private });
            return None;
        }
        if news == CmNews::Gone {
            station.lose_device();
        }
        // A listener's leads to its point.
        let number = u32::try_from(context.load(Ordering::Relaxed).addr())
            .ok()
            .filter(|&number| number != 0);
        let pair = station.pair(number?)?;
        pair.news(news, private, depth, addresses(addr));
        Some(Kept::Pair(pair))
    }
}

/// What an event was about. Dropped, it may be the last that there is of it.
#[expect(dead_code, reason = "held, not looked at")]
enum Kept {
    Refused(Request),
    Pair(Arc<Pair>),
}

/// Where an identifier's events lead. One thread may take a request while another looks at an event of it.
///
/// # Safety
/// The identifier is live as long as the answer is used.
unsafe fn context<'i>(id: NonNull<rdma_cm_id>) -> &'i AtomicPtr<c_void> {
    // SAFETY: as the caller promised; nobody reads or writes it in another way once there are events.
    unsafe { AtomicPtr::from_ptr(&raw mut (*id.as_ptr()).context) }
}

/// The local address and the peer's.
fn addresses(addr: &rdma_addr) -> [SocketAddr; 2] {
    let rdma_addr { src_storage, dst_storage, .. } = addr;
    [src_storage, dst_storage].map(|storage| match i32::from(storage.ss_family) {
        libc::AF_INET6 => {
            // SAFETY: the family says what it is.
            let sin6 = unsafe { ptr::from_ref(storage).cast::<libc::sockaddr_in6>().read() };
            let ip = Ipv6Addr::from(sin6.sin6_addr.s6_addr);
            SocketAddrV6::new(ip, u16::from_be(sin6.sin6_port), 0, sin6.sin6_scope_id).into()
        }
        _ => {
            // SAFETY: as above; an address that is not set is 0.0.0.0.
            let sin = unsafe { ptr::from_ref(storage).cast::<libc::sockaddr_in>().read() };
            (Ipv4Addr::from(u32::from_be(sin.sin_addr.s_addr)), u16::from_be(sin.sin_port)).into()
        }
    })
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: open as long as the channel.
        unsafe { BorrowedFd::borrow_raw(self.channel.as_ref().fd) }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: no identifier of it is left.
        unsafe { (self.core.cm.rdma_destroy_event_channel)(self.channel.as_ptr()) }
    }
}

impl Id {
    fn bind(&self, address: SocketAddr) -> io::Result<()> {
        let c = CAddr::new(address);
        // SAFETY: a live identifier, and an address that is as long as its family says.
        done(unsafe { (self.core.cm.rdma_bind_addr)(self.id.as_ptr(), c.as_mut_ptr()) })
    }

    /// Finds the peer's address; from this one.
    pub(crate) fn resolve(
        &self,
        from: SocketAddr,
        to: SocketAddr,
        patience: i32,
    ) -> io::Result<()> {
        let [from, to] = [from, to].map(CAddr::new);
        let id = self.id.as_ptr();
        // SAFETY: as above.
        done(unsafe {
            (self.core.cm.rdma_resolve_addr)(id, from.as_mut_ptr(), to.as_mut_ptr(), patience)
        })
    }

    /// Finds the way.
    pub(crate) fn route(&self, patience: i32) -> io::Result<()> {
        // SAFETY: a live identifier.
        done(unsafe { (self.core.cm.rdma_resolve_route)(self.id.as_ptr(), patience) })
    }

    pub(crate) fn connect(
        &self,
        private: &[u8],
        depth: ReadDepth,
        number: u32,
        srq: bool,
    ) -> io::Result<()> {
        let mut param = parameters(private, depth, number, srq);
        // SAFETY: a live identifier; the private data are copied.
        done(unsafe { (self.core.cm.rdma_connect)(self.id.as_ptr(), &mut param) })
    }

    pub(crate) fn accept(
        &self,
        private: &[u8],
        depth: ReadDepth,
        number: u32,
        srq: bool,
    ) -> io::Result<()> {
        let mut param = parameters(private, depth, number, srq);
        // SAFETY: as above.
        done(unsafe { (self.core.cm.rdma_accept)(self.id.as_ptr(), &mut param) })
    }

    pub(crate) fn establish(&self) -> io::Result<()> {
        // SAFETY: a live identifier.
        done(unsafe { (self.core.cm.rdma_establish)(self.id.as_ptr()) })
    }

    fn reject(&self, private: &[u8]) -> io::Result<()> {
        // SAFETY: as above.
        done(unsafe {
            (self.core.cm.rdma_reject)(
                self.id.as_ptr(),
                private.as_ptr().cast(),
                private.len() as u8,
            )
        })
    }

    /// Ends the connection, or answers the peer who has. There may be none any more.
    pub(crate) fn disconnect(&self) {
        // SAFETY: as above.
        unsafe { (self.core.cm.rdma_disconnect)(self.id.as_ptr()) };
    }

    /// What to set to get to a state.
    pub(crate) fn attributes(
        &self,
        state: ibv_qp_state,
    ) -> io::Result<(ibv_qp_attr, ibv_qp_attr_mask)> {
        let (mut attr, mut mask) = (ibv_qp_attr { qp_state: state, ..ibv_qp_attr::zeroed() }, 0);
        // SAFETY: as above, and room for the answers.
        done(unsafe { (self.core.cm.rdma_init_qp_attr)(self.id.as_ptr(), &mut attr, &mut mask) })?;
        Ok((attr, mask))
    }

    /// Its events are a queue pair's from now on.
    pub(crate) fn belongs_to(&self, number: u32) {
        let to = ptr::without_provenance_mut(number as usize);
        // SAFETY: a live identifier.
        unsafe { context(self.id) }.store(to, Ordering::Relaxed);
    }
}

impl Drop for Id {
    fn drop(&mut self) {
        // SAFETY: none of its events is unacknowledged by this thread.
        unsafe { (self.core.cm.rdma_destroy_id)(self.id.as_ptr()) };
    }
}

/// One less than there can be: to rxe 7 is for ever (`retransmit_timer`, `rxe_completer` in Linux 6.12), and a peer whose process is
/// killed would never be missed.
pub(crate) const RETRIES: u8 = 6;

fn done(result: i32) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// As libdaplofa has them, but for the retries.
fn parameters(private: &[u8], depth: ReadDepth, qp_num: u32, srq: bool) -> rdma_conn_param {
    let most = |n: u32| u8::try_from(n).unwrap_or(u8::MAX);
    rdma_conn_param {
        private_data: private.as_ptr().cast(),
        private_data_len: private.len() as u8,
        responder_resources: most(depth.incoming),
        initiator_depth: most(depth.outgoing),
        flow_control: 1,
        retry_count: RETRIES,
        rnr_retry_count: 7,
        srq: srq.into(),
        qp_num,
    }
}

impl Request {
    /// Refuses it with a consumer's private data.
    pub(crate) fn refuse(mut self, private: &[u8]) {
        let message = [&REJECT_HEADER, private].concat();
        // A peer that has given up needs no answer.
        let _ = self.id.take().map(|id| id.reject(&message));
    }

    /// Its identifier, which is answered by somebody else.
    pub(crate) fn into_id(mut self) -> Option<Id> {
        self.id.take()
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        if let Some(id) = self.id.take() {
            // Without the header: no consumer has said so. The peer may be gone.
            let _ = id.reject(&[]);
        }
    }
}
