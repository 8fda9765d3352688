//! The part of this crate that uses rdma_cm: the event channel, its identifiers, listeners and
//! connection requests.

use std::ffi::c_void;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use dat_core::provider::{ReadDepth, ServiceType, Sink, Upcall};
use dat_core::{Error, Result};
use dat_sys::{
    DAT_CONN_QUAL_IN_USE, DAT_CONN_QUAL_UNAVAILABLE, DAT_INSUFFICIENT_RESOURCES,
    DAT_INVALID_PARAMETER, DAT_RESOURCE_MEMORY,
};
use rdma_core_sys::*;
use wire::cm::sidr_trailer::{self, DatagramQp};
use wire::cm::{SidrRep, SidrReq};

use crate::Adapter;
use crate::descriptor::set_nonblocking;
use crate::device::{BoundDevice, CAddr};
use crate::map::{self, CmEvent, REJECT_HEADER};
use crate::progress::ProgressContext;
use crate::qp::QpShared;
use crate::resolution::{AttemptEvent, AttemptKey, EndedAttempt};

/// An event channel of rdma_cm. It is dropped after all identifiers whose events it reports.
pub(crate) struct Channel {
    core: &'static RdmaCore,
    channel: NonNull<rdma_event_channel>,
}

// SAFETY: several threads may call librdmacm with this object, because librdmacm locks what they
// share.
unsafe impl Send for Channel {}
// SAFETY: several threads may call librdmacm with this object, because librdmacm locks what they
// share.
unsafe impl Sync for Channel {}

/// An identifier of rdma_cm (`rdma_cm_id`).
pub(crate) struct CmId {
    core: &'static RdmaCore,
    id: NonNull<rdma_cm_id>,
}

// SAFETY: several threads may call librdmacm with this object, because librdmacm locks what they
// share.
unsafe impl Send for CmId {}
// SAFETY: several threads may call librdmacm with this object, because librdmacm locks what they
// share.
unsafe impl Sync for CmId {}

/// A listening identifier: the service point of a connection qualifier.
pub struct Listener {
    pub(crate) port: u16,
    // The identifiers are declared before `_context`, so that they are dropped first. Dropping an
    // identifier waits until its events, which use `_context`, are acknowledged.
    _for_connections: CmId,
    /// `None` if the device has no datagrams.
    _for_datagrams: Option<CmId>,
    _context: Box<ListenerContext>,
}

/// The context of the listening identifiers of a service point.
struct ListenerContext {
    sink: Mutex<Sink<Adapter>>,
    backlog: usize,
    waiting: Arc<AtomicUsize>,
}

/// A connection request that has not been answered.
pub struct ConnectionRequest {
    id: Option<CmId>,
    pub(crate) service: ServiceType,
    /// The read depths that the peer has proposed for a connection.
    pub(crate) depth: ReadDepth,
    /// The queue pair of a peer that wants to send datagrams. `None` if the peer has not told it.
    pub(crate) caller: Option<DatagramQp>,
    /// The local address and the peer's address.
    pub(crate) addresses: [SocketAddr; 2],
    waiting: Arc<AtomicUsize>,
}

impl Channel {
    pub(crate) fn open(core: &'static RdmaCore) -> io::Result<Channel> {
        // SAFETY: rdma_create_event_channel takes no arguments.
        let channel = NonNull::new(unsafe { (core.cm.rdma_create_event_channel)() });
        Ok(Channel { core, channel: channel.ok_or_else(io::Error::last_os_error)? })
    }

    /// Puts the channel into non-blocking mode. Taking an event then fails if there is no event.
    pub(crate) fn set_nonblocking(&self) {
        // SAFETY: the channel is live.
        unsafe { set_nonblocking(self.channel.as_ref().fd) }
    }

    /// Returns the device and the port to which this local address belongs, or `None` if no device
    /// has the address.
    pub(crate) fn find_device(&self, address: SocketAddr) -> io::Result<Option<BoundDevice>> {
        let id = self.bind_to_device(address)?;
        // SAFETY: the identifier is live, and the call above has initialized it.
        let rdma_cm_id { verbs, port_num, .. } = unsafe { id.id.read() };
        // SAFETY: the context is open as long as the identifier is bound to it.
        let context = unsafe { verbs.as_ref() };
        Ok(context.map(|context| BoundDevice {
            device: context.device,
            port: port_num,
            _bound: id,
        }))
    }

    /// Creates an identifier that is bound to the device with this address. An event of the
    /// identifier reports when the device is removed. The identifier uses the port space of
    /// datagrams, so that it takes no port number from connections.
    pub(crate) fn bind_to_device(&self, address: SocketAddr) -> io::Result<CmId> {
        let id = self.id_in(RDMA_PS_UDP, ptr::null_mut())?;
        let mut address = address;
        address.set_port(0);
        id.bind(address)?;
        Ok(id)
    }

    /// Creates an identifier for a connection or a listener.
    pub(crate) fn id(&self, context: *mut c_void) -> io::Result<CmId> {
        self.id_in(RDMA_PS_TCP, context)
    }

    /// Creates an identifier that resolves the address of a datagram service.
    pub(crate) fn datagram_id(&self, context: usize) -> io::Result<CmId> {
        self.id_in(RDMA_PS_UDP, ptr::without_provenance_mut(context))
    }

    fn id_in(&self, ports: rdma_port_space, context: *mut c_void) -> io::Result<CmId> {
        let mut id = ptr::null_mut();
        // SAFETY: the channel is live, and `id` has room for the result.
        let made = unsafe {
            (self.core.cm.rdma_create_id)(self.channel.as_ptr(), &mut id, context, ports)
        };
        match NonNull::new(id) {
            Some(id) if made == 0 => Ok(CmId { core: self.core, id }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Listens on the adapter's own address, as libdaplofa does. If `has_datagrams`, one service
    /// point takes requests for both services. Each service has its own port numbers, so this
    /// function binds one identifier for each service to the same number.
    pub(crate) fn listen(
        &self,
        at: SocketAddr,
        port: Option<u16>,
        backlog: usize,
        has_datagrams: bool,
        sink: Sink<Adapter>,
    ) -> Result<Listener> {
        let listen_error = |e: io::Error| match e.raw_os_error() {
            Some(libc::EADDRINUSE) => Error::of(DAT_CONN_QUAL_IN_USE),
            Some(libc::EACCES) => Error::of(DAT_CONN_QUAL_UNAVAILABLE),
            _ => Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY),
        };
        let waiting = Arc::default();
        let context = Box::new(ListenerContext { sink: Mutex::new(sink), backlog, waiting });
        let bound = |ports, port| {
            let id = self.id_in(ports, ptr::from_ref(&*context).cast_mut().cast())?;
            id.bind(SocketAddr::new(at.ip(), port))?;
            Ok(id)
        };
        // Identifiers whose numbers are free for connections and taken for datagrams. They are kept
        // until the end of the search, so that the kernel chooses other numbers.
        let mut refused = Vec::new();
        let (connections, datagrams) = loop {
            let connections = bound(RDMA_PS_TCP, port.unwrap_or(0)).map_err(listen_error)?;
            if !has_datagrams {
                break (connections, None);
            }
            match bound(RDMA_PS_UDP, connections.local_port()) {
                Ok(datagrams) => break (connections, Some(datagrams)),
                Err(e)
                    if e.kind() == io::ErrorKind::AddrInUse
                        && port.is_none()
                        && refused.len() < PORT_SEARCH_MAX =>
                {
                    refused.push(connections)
                }
                Err(e) => return Err(listen_error(e)),
            }
        };
        for id in [&connections].into_iter().chain(&datagrams) {
            // The kernel's backlog counts only the requests that this process has not taken yet. It
            // is large, because `handle` enforces the consumer's backlog.
            // SAFETY: the identifier is live.
            check(unsafe { (self.core.cm.rdma_listen)(id.id.as_ptr(), 1024) })
                .map_err(listen_error)?;
        }
        Ok(Listener {
            port: connections.local_port(),
            _for_connections: connections,
            _for_datagrams: datagrams,
            _context: context,
        })
    }

    /// Handles the oldest event of the channel. Returns false if there is no event.
    pub(crate) fn handle_next(&self, progress: &ProgressContext) -> bool {
        let mut event = ptr::null_mut();
        // SAFETY: the channel is live and does not block.
        if unsafe { (self.core.cm.rdma_get_cm_event)(self.channel.as_ptr(), &mut event) } != 0 {
            return false;
        }
        // SAFETY: the event has not been acknowledged, so its identifiers stay live.
        let owner = unsafe { self.handle(progress, &*event) };
        // SAFETY: the event is acknowledged once. An identifier can be destroyed only after that.
        unsafe { (self.core.cm.rdma_ack_cm_event)(event) };
        drop(owner);
        true
    }

    /// Handles an event. The caller drops the result after it has acknowledged the event: the
    /// result may own an identifier, and dropping an identifier waits until its events are
    /// acknowledged.
    ///
    /// # Safety
    /// The event is not acknowledged yet.
    unsafe fn handle(
        &self,
        progress: &ProgressContext,
        event: &rdma_cm_event,
    ) -> Option<EventOwner> {
        let id = NonNull::new(event.id)?;
        // SAFETY: the caller guarantees that the identifier is live.
        let is_datagram = unsafe { (*id.as_ptr()).ps == RDMA_PS_UDP };
        let mut depth = ReadDepth { incoming: 0, outgoing: 0 };
        let (mut service, mut address) = (DatagramQp { qpn: 0, q_key: 0 }, ibv_ah_attr::zeroed());
        let (data, length) = if is_datagram {
            // SAFETY: the events of an identifier for datagrams use `ud`.
            let ud = unsafe { event.param.ud };
            service = DatagramQp { qpn: ud.qp_num, q_key: ud.qkey };
            address = ud.ah_attr;
            (ud.private_data, ud.private_data_len)
        } else {
            // SAFETY: the events of all other identifiers use `conn`.
            let conn = unsafe { event.param.conn };
            depth.incoming = conn.responder_resources.into();
            depth.outgoing = conn.initiator_depth.into();
            (conn.private_data, conn.private_data_len)
        };
        let private = match data.is_null() {
            true => &[],
            // SAFETY: the private data have this length as long as the event is not acknowledged.
            false => unsafe { std::slice::from_raw_parts(data.cast::<u8>(), length.into()) },
        };
        let kind = map::cm_event(event.event, event.status, private);
        // SAFETY: the caller guarantees that the identifier is live. No thread writes its addresses
        // any more.
        let addr = unsafe { &(*id.as_ptr()).route.addr };
        // SAFETY: the caller guarantees that the identifier is live.
        let context = unsafe { context(id) };
        if kind == CmEvent::Request {
            // The request's identifier has inherited the context of the listener's identifier.
            // Clear the context, because the request has no queue pair yet.
            context.store(ptr::null_mut(), Ordering::Relaxed);
            // SAFETY: the context of a listening identifier points to its `ListenerContext`, which
            // outlives the identifier.
            let listener = unsafe { &*(*event.listen_id).context.cast::<ListenerContext>() };
            listener.waiting.fetch_add(1, Ordering::Relaxed);
            let (service, private, caller) = match is_datagram {
                true => {
                    let (private, caller) = sidr_trailer::parse_req(private);
                    (ServiceType::Datagram, private, caller)
                }
                false => (ServiceType::Connection, private, None),
            };
            let [local, peer] = addresses(addr);
            let request = ConnectionRequest {
                id: Some(CmId { core: self.core, id }),
                service,
                depth,
                caller,
                addresses: [local, peer],
                waiting: Arc::clone(&listener.waiting),
            };
            if listener.waiting.load(Ordering::Relaxed) > listener.backlog {
                return Some(EventOwner::Refused(request));
            }
            let sink = listener.sink.lock().unwrap_or_else(PoisonError::into_inner);
            sink.call(Upcall::Request { request, service, from: peer, to: local, private });
            return None;
        }
        if kind == CmEvent::DeviceRemoved {
            progress.device_lost();
        }
        let owner = context.load(Ordering::Relaxed).addr();
        if let Some(key) = AttemptKey::from_context(owner) {
            let (event, status) = (event.event, event.status);
            let event = AttemptEvent { event, status, private, service, address };
            return progress.on_attempt_event(key, &event).map(EventOwner::Attempt);
        }
        // The context of a connection's identifier is the number of its queue pair.
        let number = u32::try_from(owner).ok().filter(|&number| number != 0);
        let pair = progress.pair(number?)?;
        pair.on_cm_event(kind, private, depth, addresses(addr));
        Some(EventOwner::QpShared(pair))
    }
}

/// A reference to the object that an event concerned. It may be the last reference.
#[expect(dead_code, reason = "held, not looked at")]
enum EventOwner {
    Refused(ConnectionRequest),
    Attempt(EndedAttempt),
    QpShared(Arc<QpShared>),
}

/// The context of an identifier: a pointer or number that its events carry. It is atomic because
/// one thread may take a connection request while another thread handles an event of the request's
/// identifier.
///
/// # Safety
/// The identifier stays live while the result is used.
unsafe fn context<'i>(id: NonNull<rdma_cm_id>) -> &'i AtomicPtr<c_void> {
    // SAFETY: the caller keeps the identifier live. Once there are events, the field is accessed
    // only as an atomic.
    unsafe { AtomicPtr::from_ptr(&raw mut (*id.as_ptr()).context) }
}

/// Returns the local address and the peer's address.
fn addresses(route: &rdma_addr) -> [SocketAddr; 2] {
    let rdma_addr { src_storage, dst_storage, .. } = route;
    [src_storage, dst_storage].map(|storage| match i32::from(storage.ss_family) {
        libc::AF_INET6 => {
            // SAFETY: the address family says that this is a `sockaddr_in6`.
            let sin6 = unsafe { ptr::from_ref(storage).cast::<libc::sockaddr_in6>().read() };
            let ip = Ipv6Addr::from(sin6.sin6_addr.s6_addr);
            let port = u16::from_be(sin6.sin6_port);
            ::address::normalized(SocketAddrV6::new(ip, port, 0, sin6.sin6_scope_id).into())
        }
        _ => {
            // SAFETY: the address family says that this is a `sockaddr_in`. An address that is not
            // set reads as 0.0.0.0.
            let sin = unsafe { ptr::from_ref(storage).cast::<libc::sockaddr_in>().read() };
            (Ipv4Addr::from(u32::from_be(sin.sin_addr.s_addr)), u16::from_be(sin.sin_port)).into()
        }
    })
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as the channel.
        unsafe { BorrowedFd::borrow_raw(self.channel.as_ref().fd) }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: no identifier of the channel is left.
        unsafe { (self.core.cm.rdma_destroy_event_channel)(self.channel.as_ptr()) }
    }
}

impl CmId {
    fn bind(&self, address: SocketAddr) -> io::Result<()> {
        let c = CAddr::new(address);
        // SAFETY: the identifier is live, and the address is as long as its family says.
        check(unsafe { (self.core.cm.rdma_bind_addr)(self.id.as_ptr(), c.as_mut_ptr()) })
    }

    /// Starts to resolve the peer's address. The connection will use the local address `from`.
    pub(crate) fn resolve(
        &self,
        from: SocketAddr,
        to: SocketAddr,
        timeout_ms: i32,
    ) -> io::Result<()> {
        let [from, to] = [from, to].map(CAddr::new);
        let id = self.id.as_ptr();
        // SAFETY: the identifier is live, and the addresses are as long as their families say.
        check(unsafe {
            (self.core.cm.rdma_resolve_addr)(id, from.as_mut_ptr(), to.as_mut_ptr(), timeout_ms)
        })
    }

    /// Starts to resolve the route to the peer.
    pub(crate) fn route(&self, timeout_ms: i32) -> io::Result<()> {
        // SAFETY: the identifier is live.
        check(unsafe { (self.core.cm.rdma_resolve_route)(self.id.as_ptr(), timeout_ms) })
    }

    pub(crate) fn connect(
        &self,
        private: &[u8],
        depth: ReadDepth,
        number: u32,
        srq: bool,
    ) -> io::Result<()> {
        let mut param = parameters(private, depth, number, srq);
        // SAFETY: the identifier is live. The library copies the private data.
        check(unsafe { (self.core.cm.rdma_connect)(self.id.as_ptr(), &mut param) })
    }

    pub(crate) fn accept(
        &self,
        private: &[u8],
        depth: ReadDepth,
        number: u32,
        srq: bool,
    ) -> io::Result<()> {
        let mut param = parameters(private, depth, number, srq);
        // SAFETY: the identifier is live. The library copies the private data.
        check(unsafe { (self.core.cm.rdma_accept)(self.id.as_ptr(), &mut param) })
    }

    pub(crate) fn establish(&self) -> io::Result<()> {
        // SAFETY: the identifier is live.
        check(unsafe { (self.core.cm.rdma_establish)(self.id.as_ptr()) })
    }

    /// Asks the datagram service to which the route leads for its queue pair.
    pub(crate) fn ask(&self, private: &[u8; SidrReq::MAX_CONSUMER_PRIVATE]) -> io::Result<()> {
        self.connect(private, NO_READS, 0, false)
    }

    /// Answers a request for datagrams with the number of a queue pair.
    pub(crate) fn answer(
        &self,
        private: &[u8; SidrRep::MAX_PRIVATE],
        number: u32,
    ) -> io::Result<()> {
        self.accept(private, NO_READS, number, false)
    }

    /// Returns the local port.
    fn local_port(&self) -> u16 {
        // SAFETY: the identifier is live.
        u16::from_be(unsafe { (self.core.cm.rdma_get_src_port)(self.id.as_ptr()) })
    }

    fn reject(&self, private: &[u8]) -> io::Result<()> {
        // SAFETY: the identifier is live. The library copies the private data.
        check(unsafe {
            (self.core.cm.rdma_reject)(
                self.id.as_ptr(),
                private.as_ptr().cast(),
                private.len() as u8,
            )
        })
    }

    /// Ends the connection, or confirms that the peer has ended it. If there is no connection any
    /// more, the call has no effect.
    pub(crate) fn disconnect(&self) {
        // SAFETY: the identifier is live.
        unsafe { (self.core.cm.rdma_disconnect)(self.id.as_ptr()) };
    }

    /// Returns the attributes, and their mask, for the transition of a queue pair to `state`.
    pub(crate) fn attributes(
        &self,
        state: ibv_qp_state,
    ) -> io::Result<(ibv_qp_attr, ibv_qp_attr_mask)> {
        let (mut attr, mut mask) = (ibv_qp_attr { qp_state: state, ..ibv_qp_attr::zeroed() }, 0);
        // SAFETY: the identifier is live, and there is room for the results.
        check(unsafe { (self.core.cm.rdma_init_qp_attr)(self.id.as_ptr(), &mut attr, &mut mask) })?;
        Ok((attr, mask))
    }

    /// Assigns the identifier to the queue pair with this number. That queue pair then gets the
    /// events of the identifier.
    pub(crate) fn set_queue_pair(&self, number: u32) {
        let to = ptr::without_provenance_mut(number as usize);
        // SAFETY: the identifier is live.
        unsafe { context(self.id) }.store(to, Ordering::Relaxed);
    }
}

impl Drop for CmId {
    fn drop(&mut self) {
        // SAFETY: this thread holds no unacknowledged event of the identifier.
        unsafe { (self.core.cm.rdma_destroy_id)(self.id.as_ptr()) };
    }
}

/// The retry count, which is one less than the maximum. With the maximum of 7, rxe would retry
/// forever (`retransmit_timer`, `rxe_completer` in Linux 6.12), and this side would never notice
/// that the peer's process was killed.
pub(crate) const RETRY_COUNT: u8 = 6;

/// The number of port numbers that are tried to find one that is free for both services.
const PORT_SEARCH_MAX: usize = 64;

/// Messages about datagrams contain no read depths. This value takes their place.
const NO_READS: ReadDepth = ReadDepth { incoming: 0, outgoing: 0 };

fn check(result: i32) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns the connection parameters that libdaplofa uses, except for the retry count.
fn parameters(private: &[u8], depth: ReadDepth, qp_num: u32, srq: bool) -> rdma_conn_param {
    let saturating_u8 = |n: u32| u8::try_from(n).unwrap_or(u8::MAX);
    rdma_conn_param {
        private_data: private.as_ptr().cast(),
        private_data_len: private.len() as u8,
        responder_resources: saturating_u8(depth.incoming),
        initiator_depth: saturating_u8(depth.outgoing),
        flow_control: 1,
        retry_count: RETRY_COUNT,
        rnr_retry_count: 7,
        srq: srq.into(),
        qp_num,
    }
}

impl ConnectionRequest {
    /// Rejects the request with a consumer's private data.
    pub(crate) fn refuse(mut self, private: &[u8]) -> Result<()> {
        let message = match self.service {
            ServiceType::Connection => [&REJECT_HEADER, private].concat(),
            ServiceType::Datagram if private.len() > sidr_trailer::MAX_REP_DATA => {
                return Err(Error::of(DAT_INVALID_PARAMETER));
            }
            ServiceType::Datagram => sidr_trailer::emit_rep(private).to_vec(),
        };
        // The call fails if the peer has given up. Such a peer needs no answer, so the error is
        // ignored.
        let _ = self.id.take().map(|id| id.reject(&message));
        Ok(())
    }

    /// Returns the identifier of the request, for a caller that answers the request.
    pub(crate) fn into_id(mut self) -> Option<CmId> {
        self.id.take()
    }
}

impl Drop for ConnectionRequest {
    fn drop(&mut self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        if let Some(id) = self.id.take() {
            // The rejection has neither `REJECT_HEADER` nor a trailer, because no consumer has
            // rejected the request.
            // An error is ignored, because the peer may no longer exist.
            let _ = id.reject(&[]);
        }
    }
}
