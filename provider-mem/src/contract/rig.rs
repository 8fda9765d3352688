//! The tools of the cases: buffers, ends of a connection, a log of upcalls, and the time limit of
//! waits.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dat_core::provider::*;
use waiting::Wake;

/// The time that a case waits for an event that must happen. It is not a measure of speed, but ends
/// a case that would hang.
pub const EVENT_TIMEOUT: Duration = Duration::from_secs(60);

pub const DEPTH: ReadDepth = ReadDepth { incoming: 4, outgoing: 4 };
pub const ALL: Access = Access {
    local_read: true,
    local_write: true,
    remote_read: true,
    remote_write: true,
    remote_atomic: false,
};
/// The maximum number of requests, and of receives, at one end of a connection.
pub const QUEUE: usize = 64;

thread_local! {
    static LOSSES: Cell<bool> = const { Cell::new(false) };
    static RECEIVES_MUST_BE_THERE: Cell<bool> = const { Cell::new(false) };
    static WAITS_ARE_UNREPORTED: Cell<bool> = const { Cell::new(false) };
    /// The queue pairs of [`occupy_first_engine`].
    static OCCUPANTS: RefCell<Vec<Box<dyn Any>>> = const { RefCell::new(Vec::new()) };
}

/// Declares, for the cases that this thread runs, whether a message without a receive ends the
/// connection, as it does over iWARP. Otherwise the message waits.
pub fn expect_receives_to_be_there(yes: bool) {
    RECEIVES_MUST_BE_THERE.set(yes);
}

pub(super) fn receives_must_be_there() -> bool {
    RECEIVES_MUST_BE_THERE.get()
}

/// Declares whether the device of this thread's cases lets a message wait for its receive without
/// reporting it.
pub fn expect_unreported_waits(yes: bool) {
    WAITS_ARE_UNREPORTED.set(yes);
}

pub(super) fn waits_are_unreported() -> bool {
    WAITS_ARE_UNREPORTED.get()
}

/// Declares whether the network of this thread's cases loses packets. If it does, a requester whose
/// peer refuses an operation may only learn that the connection has ended.
pub fn expect_losses(yes: bool) {
    LOSSES.set(yes);
}

pub(super) fn losses_are_expected() -> bool {
    LOSSES.get()
}

/// The two adapters of a case.
pub struct Rig<'t, T: Transport> {
    pub a: &'t T,
    pub b: &'t T,
}

impl<'t, T: Transport> Rig<'t, T> {
    /// Makes progress on both adapters until `what` happens.
    pub fn until<R>(&self, what: &str, mut happened: impl FnMut() -> Option<R>) -> R {
        let start = Instant::now();
        loop {
            if let Some(result) = happened() {
                return result;
            }
            assert!(start.elapsed() < EVENT_TIMEOUT, "waited in vain for {what}");
            self.a.progress();
            self.b.progress();
            std::thread::yield_now();
        }
    }

    /// Waits for the next upcall to `log`.
    pub fn next(&self, what: &str, log: &Log<'t, T>) -> Event<T> {
        self.until(what, || log.take())
    }

    /// Waits for the next `n` completions.
    pub fn completions(&self, cq: &T::Cq, n: usize) -> Vec<Wc> {
        let mut all = Vec::new();
        self.until("completions", || {
            all.extend(poll::<T>(cq, n - all.len()));
            (all.len() == n).then_some(())
        });
        all
    }

    /// Creates two connected ends, of `a` and of `b`.
    pub fn pair(&self) -> (End<'t, T>, End<'t, T>) {
        let (a, b) = (End::new(self.a), End::new(self.b));
        self.join(&a, &b);
        (a, b)
    }

    /// Connects two ends.
    pub fn join(&self, a: &End<'t, T>, b: &End<'t, T>) {
        let service = Service::new(b.t, 8);
        a.connect(service.port(b.t), b"", None);
        let (request, ..) = service.request(self);
        b.qp.accept(request, b"", DEPTH).expect("the request is accepted");
        for end in [a, b] {
            match self.next("the connection", &end.log) {
                Event::Established { .. } => {}
                other => panic!("expected a connection, got {other:?}"),
            }
        }
    }
}

/// An end that sends and receives datagrams, with the queue pair of its peer.
pub struct DatagramEnd<'t, T: Transport> {
    pub end: End<'t, T>,
    pub peer: RemoteQp<T>,
}

impl<'t, T: Transport> Rig<'t, T> {
    /// Creates an end of `a` and an end of `b` that know each other.
    pub fn datagram_pair(&self) -> (DatagramEnd<'t, T>, DatagramEnd<'t, T>) {
        let (x, y) = (End::for_datagrams(self.a), End::for_datagrams(self.b));
        let [of_y, of_x] = self.introduce(&x, &y);
        (DatagramEnd { end: x, peer: of_y }, DatagramEnd { end: y, peer: of_x })
    }

    /// Lets two ends know each other. Returns the queue pair of `y` as `x` sees it, and the queue
    /// pair of `x` as `y` sees it.
    pub fn introduce(&self, x: &End<'t, T>, y: &End<'t, T>) -> [RemoteQp<T>; 2] {
        let (of_y, of_x) = self.resolve(x, y);
        // Some wires do not tell the side that answers the queue pair of the side that asks. Then
        // the side that has answered asks, too.
        let of_x = if of_x.qpn == 0 { self.resolve(y, x).0 } else { of_x };
        [of_y, of_x]
    }

    /// Lets `asking` resolve the address of a service that answers with `answering`. Returns the
    /// queue pair of `answering` as `asking` sees it, and the queue pair of `asking` as `answering`
    /// sees it.
    pub fn resolve(
        &self,
        asking: &End<'t, T>,
        answering: &End<'t, T>,
    ) -> (RemoteQp<T>, RemoteQp<T>) {
        let service = Service::new(answering.t, 8);
        asking.resolve(1, service.port(answering.t), b"", None).expect("the attempt begins");
        let asked = || service.log.take().map(Ok).or_else(|| asking.log.take().map(Err));
        let request = match self.until("a request for datagrams", asked) {
            Ok(Event::Request { request, service: ServiceType::Datagram, .. }) => request,
            Ok(Event::Request { .. }) => panic!("the request is for a connection"),
            Ok(event) | Err(event) => panic!("expected a request, got {event:?}"),
        };
        let passive = answering.qp.answer(request, b"").expect("the request is answered");
        match self.next("the address", &asking.log) {
            Event::Resolved { number: 1, remote, .. } => (remote, passive),
            other => panic!("expected an address, got {other:?}"),
        }
    }
}

/// A service point, and the log of its upcalls.
pub struct Service<'t, T: Transport> {
    pub listener: T::Listener,
    pub log: Arc<Log<'t, T>>,
}

impl<'t, T: Transport> Service<'t, T> {
    pub fn new(t: &'t T, backlog: usize) -> Self {
        let log = Log::new(t);
        let listener = t.listen(None, backlog, log.sink()).expect("the listener opens");
        Service { listener, log }
    }

    pub fn port(&self, t: &T) -> u16 {
        t.port(&self.listener)
    }

    /// Waits for the next request. Returns the request, its source and destination addresses, and
    /// its private data.
    pub fn request(
        &self,
        rig: &Rig<'t, T>,
    ) -> (T::ConnectionRequest, SocketAddr, SocketAddr, Vec<u8>) {
        match rig.next("a connection request", &self.log) {
            Event::Request { request, from, to, private, .. } => (request, from, to, private),
            other => panic!("expected a request, got {other:?}"),
        }
    }

    /// Waits for the next request for datagrams. Returns the same data as [`Service::request`].
    pub fn datagram_request(
        &self,
        rig: &Rig<'t, T>,
    ) -> (T::ConnectionRequest, SocketAddr, SocketAddr, Vec<u8>) {
        match rig.next("a request for datagrams", &self.log) {
            Event::Request { request, service: ServiceType::Datagram, from, to, private } => {
                (request, from, to, private)
            }
            other => panic!("expected a request for datagrams, got {other:?}"),
        }
    }
}

/// One end of a connection, with all its objects. The fields are dropped in the order of
/// declaration.
pub struct End<'t, T: Transport> {
    pub qp: T::Qp,
    pub requests: T::Cq,
    pub recvs: T::Cq,
    pub mem: Buffer<T>,
    pub pd: Arc<T::Pd>,
    pub log: Arc<Log<'t, T>>,
    pub requests_log: Arc<Log<'t, T>>,
    pub recvs_log: Arc<Log<'t, T>>,
    pub t: &'t T,
}

/// The token in every completion of an end.
// SAFETY: the cases poll their queues themselves.
pub const TOKEN: Token = unsafe { Token::from_bits(0xfeed_0000_0000_0001) };

impl<'t, T: Transport> End<'t, T> {
    pub fn new(t: &'t T) -> Self {
        Self::with(t, 2 * QUEUE, 1 << 16)
    }

    /// Creates an end with completion queues of `depth` and `len` bytes of registered memory.
    pub fn with(t: &'t T, depth: usize, len: usize) -> Self {
        Self::in_pd(Arc::new(t.pd().expect("protection domain")), t, depth, len)
    }

    /// Creates another end in the same protection domain.
    pub fn in_domain_of(end: &Self) -> Self {
        Self::in_pd(Arc::clone(&end.pd), end.t, 2 * QUEUE, 1 << 16)
    }

    /// Creates an end that sends and receives datagrams.
    pub fn for_datagrams(t: &'t T) -> Self {
        let pd = Arc::new(t.pd().expect("protection domain"));
        Self::of_service(ServiceType::Datagram, pd, t, (2 * QUEUE, 1 << 16))
    }

    fn in_pd(pd: Arc<T::Pd>, t: &'t T, depth: usize, len: usize) -> Self {
        Self::of_service(ServiceType::Connection, pd, t, (depth, len))
    }

    fn of_service(
        service: ServiceType,
        pd: Arc<T::Pd>,
        t: &'t T,
        (depth, len): (usize, usize),
    ) -> Self {
        let (log, requests_log, recvs_log) = (Log::new(t), Log::new(t), Log::new(t));
        let requests = t.cq(depth, requests_log.sink()).expect("completion queue");
        let recvs = t.cq(depth, recvs_log.sink()).expect("completion queue");
        // The thread that arms the queues does not sleep on them, except in `a_sleeper_is_woken`.
        requests.require_upcalls(true);
        recvs.require_upcalls(true);
        let cfg = QpCfg { service, ..cfg::<T>(&pd, &requests, &recvs, None) };
        let qp = t.qp(cfg, log.sink()).expect("queue pair");
        let mem = Buffer::new(t, &pd, len, ALL);
        End { qp, requests, recvs, mem, pd, log, requests_log, recvs_log, t }
    }

    pub fn connect(&self, port: u16, private: &[u8], timeout: Option<Duration>) {
        let addr = SocketAddr::new(self.t.attrs().address.ip(), 0);
        self.qp
            .connect(&Connect { addr, port, private, timeout, depth: DEPTH })
            .expect("the attempt to connect begins");
    }

    /// Starts to resolve the address of a service at this port of the own host.
    pub fn resolve(
        &self,
        number: u64,
        port: u16,
        private: &[u8],
        timeout: Option<Duration>,
    ) -> dat_core::Result<()> {
        let addr = SocketAddr::new(self.t.attrs().address.ip(), 0);
        self.qp.resolve(number, &Connect { addr, port, private, timeout, depth: DEPTH })
    }

    pub fn post_datagram(&self, id: u64, to: &RemoteQp<T>, segments: &[Segment]) {
        self.try_post_datagram((id, true), to, None, segments).expect("the post succeeds");
    }

    pub fn try_post_datagram(
        &self,
        (id, signalled): (u64, bool),
        to: &RemoteQp<T>,
        immediate: Option<u32>,
        segments: &[Segment],
    ) -> Result<(), PostError> {
        let wr = Datagram {
            id,
            address: &to.address,
            qpn: to.qpn,
            immediate,
            segments,
            signalled,
            solicited: false,
            quiet: false,
        };
        // SAFETY: the cases keep their buffers until the requests are done.
        unsafe { self.qp.post_datagram(&wr) }
    }

    pub fn post(&self, id: u64, op: SendOp, segments: &[Segment]) {
        self.post_wr(&signalled(id, op, segments));
    }

    pub fn try_post(&self, id: u64, op: SendOp, segments: &[Segment]) -> Result<(), PostError> {
        self.try_post_wr(&signalled(id, op, segments))
    }

    pub fn post_wr(&self, wr: &SendWr<'_>) {
        self.try_post_wr(wr).expect("the post succeeds");
    }

    fn try_post_wr(&self, wr: &SendWr<'_>) -> Result<(), PostError> {
        // SAFETY: the cases keep their buffers until the requests are done.
        unsafe { self.qp.post_send(wr) }
    }

    pub fn send(&self, id: u64, segments: &[Segment]) {
        self.post(id, SEND, segments);
    }

    pub fn bind(&self, id: u64, window: &T::Mw, view: Option<View<'_, T>>) -> u32 {
        self.try_bind(id, window, view).expect("the bind is accepted")
    }

    pub fn try_bind(
        &self,
        id: u64,
        window: &T::Mw,
        view: Option<View<'_, T>>,
    ) -> Result<u32, PostError> {
        // SAFETY: only one thread uses an end.
        unsafe { self.qp.post_bind(&BindWr { id, window, view, signalled: true, quiet: false }) }
    }

    /// Creates an unbound window of this end.
    pub fn window(&self, scoped: bool) -> T::Mw {
        self.t.mw(&self.pd, scoped).expect("memory window")
    }

    pub fn recv(&self, id: u64, segments: &[Segment]) {
        // SAFETY: the cases keep their buffers until the receives are done.
        unsafe { self.qp.post_recv(&RecvWr { id, segments, quiet: false }) }.expect("post_recv");
    }
}

pub const SEND: SendOp = SendOp::Send { invalidate: None };

/// Returns a request whose success is reported, without other flags.
pub fn signalled(id: u64, op: SendOp, segments: &[Segment]) -> SendWr<'_> {
    SendWr { id, op, segments, signalled: true, solicited: false, fence: false, quiet: false }
}

pub fn cfg<'c, T: Transport>(
    pd: &'c T::Pd,
    requests: &'c T::Cq,
    recvs: &'c T::Cq,
    srq: Option<&'c T::Srq>,
) -> QpCfg<'c, T> {
    QpCfg {
        pd,
        service: ServiceType::Connection,
        request_cq: Some(requests),
        recv_cq: Some(recvs),
        srq,
        token: TOKEN,
        holding: Arc::default(),
        sender_wakes: true,
        max_requests: QUEUE,
        max_recvs: QUEUE,
        max_request_segments: 4,
        max_recv_segments: 4,
    }
}

/// Creates a queue pair that lives until this thread ends. An adapter with several engines gives
/// the next queue pair to another engine than that of its listeners.
pub fn occupy_first_engine<T: Transport>(t: &T) {
    struct NoUpcalls;
    impl<T: Transport> Receiver<T> for NoUpcalls {
        fn upcall(&self, _: Upcall<'_, T>) {}
    }
    let pd = t.pd().expect("protection domain");
    let cfg = QpCfg {
        pd: &pd,
        service: ServiceType::Connection,
        request_cq: None,
        recv_cq: None,
        srq: None,
        token: TOKEN,
        holding: Arc::default(),
        sender_wakes: true,
        max_requests: 1,
        max_recvs: 1,
        max_request_segments: 1,
        max_recv_segments: 1,
    };
    // SAFETY: the receiver lives as long as the process.
    let sink = unsafe { Sink::new(&raw const *(&NoUpcalls as &'static NoUpcalls)) };
    let occupant = t.qp(cfg, sink).expect("queue pair");
    OCCUPANTS.with_borrow_mut(|occupants| occupants.push(Box::new(occupant)));
}

/// Polls up to `n` completions. Does not wait.
pub fn poll<T: Transport>(cq: &T::Cq, n: usize) -> Vec<Wc> {
    let mut places = vec![MaybeUninit::uninit(); n];
    let mut polled = Polled::new(&mut places);
    // SAFETY: only one thread at a time uses a queue in a case.
    unsafe { cq.poll(&mut polled) };
    polled.completions().to_vec()
}

/// Arms a queue: see [`Completions::arm`].
pub fn arm<T: Transport>(cq: &T::Cq, solicited: bool) -> bool {
    // SAFETY: only one thread at a time uses a queue in a case.
    unsafe { cq.arm(solicited) }
}

/// Resizes a queue: see [`Completions::resize`].
pub fn resize<T: Transport>(cq: &T::Cq, depth: usize) -> dat_core::Result<()> {
    // SAFETY: only one thread at a time uses a queue in a case.
    unsafe { cq.resize(depth) }
}

/// The ids and statuses of completions, for comparisons.
pub fn outcomes(wcs: &[Wc]) -> Vec<(u64, WcStatus)> {
    wcs.iter().map(|wc| (wc.id, wc.status)).collect()
}

/// Registered memory that the transport may write while the case runs.
pub struct Buffer<T: Transport> {
    pub mr: T::Mr,
    memory: Memory,
}

/// Memory behind a raw pointer, because the transport writes to it.
struct Memory {
    addr: *mut u8,
    layout: Layout,
}

// SAFETY: the type is plain memory. The cases determine which thread writes to which part.
unsafe impl Send for Memory {}
// SAFETY: the type is plain memory. The cases determine which thread writes to which part.
unsafe impl Sync for Memory {}

impl Memory {
    fn new(len: usize) -> Self {
        let layout = Layout::from_size_align(len.max(1), 64).expect("layout");
        // SAFETY: the size is not 0.
        let addr = unsafe { alloc_zeroed(layout) };
        assert!(!addr.is_null(), "the memory of the test cannot be allocated");
        Memory { addr, layout }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: `new` allocated the memory with this layout, and the region over it was dropped
        // before.
        unsafe { dealloc(self.addr, self.layout) };
    }
}

impl<T: Transport> Buffer<T> {
    pub fn new(t: &T, pd: &T::Pd, len: usize, access: Access) -> Self {
        Self::with(t, pd, len, access, false)
    }

    pub fn with(t: &T, pd: &T::Pd, len: usize, access: Access, zero_based: bool) -> Self {
        let memory = Memory::new(len);
        // SAFETY: `mr` is dropped before `memory`.
        let mr = unsafe { t.mr(pd, Mem { addr: memory.addr, len, zero_based }, access) }
            .expect("the memory can be registered");
        Buffer { mr, memory }
    }

    pub fn at(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(offset + len <= self.memory.layout.size(), "the segment is outside the buffer");
        // SAFETY: the offset is inside the allocation.
        unsafe { self.memory.addr.add(offset) }
    }

    pub fn segment(&self, offset: usize, len: usize) -> Segment {
        Segment { addr: self.at(offset, len) as u64, len: len as u32, key: self.mr.lkey() }
    }

    /// Returns the view of a part of the buffer, for a window that permits all accesses.
    pub fn view(&self, offset: usize, len: usize) -> View<'_, T> {
        let addr = self.at(offset, len) as u64;
        View { region: &self.mr, addr, len: len as u64, access: ALL, zero_based: false }
    }

    pub fn remote(&self, offset: usize) -> Remote {
        Remote { addr: self.at(offset, 0) as u64, key: self.mr.rkey() }
    }

    pub fn write(&self, offset: usize, bytes: &[u8]) {
        // SAFETY: the target is inside the allocation, and `bytes` is not.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at(offset, bytes.len()), bytes.len())
        };
    }

    pub fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        // SAFETY: the source is inside the allocation. No reference to it is created, because peers
        // may write to it.
        unsafe { self.at(offset, len).copy_to_nonoverlapping(bytes.as_mut_ptr(), len) };
        bytes
    }
}

/// `len` pseudo-random bytes, which differ for different seeds.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 32) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// A [`ResolveFailure`] that owns its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    Rejected(Vec<u8>),
    Refused,
    Unreachable,
    TimedOut,
}

/// An [`Upcall`] that owns its data.
pub enum Event<T: Transport> {
    CqReady,
    CqOverflow,
    Request {
        request: T::ConnectionRequest,
        service: ServiceType,
        from: SocketAddr,
        to: SocketAddr,
        private: Vec<u8>,
    },
    Resolved {
        number: u64,
        remote: RemoteQp<T>,
        peer: SocketAddr,
        private: Vec<u8>,
    },
    Unresolved {
        number: u64,
        why: Failure,
    },
    Established {
        private: Vec<u8>,
        peer: SocketAddr,
        local: SocketAddr,
        depth: ReadDepth,
    },
    Rejected {
        by_peer: bool,
        private: Vec<u8>,
    },
    Unreachable,
    TimedOut,
    AcceptFailed,
    Disconnected,
    Broken,
    LowWatermark,
    HighWatermark,
}

impl<T: Transport> std::fmt::Debug for Event<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Event::CqReady => "CqReady",
            Event::CqOverflow => "CqOverflow",
            Event::Request { .. } => "Request",
            Event::Resolved { .. } => "Resolved",
            Event::Unresolved { why: Failure::Rejected(_), .. } => "Unresolved, rejected",
            Event::Unresolved { why: Failure::Refused, .. } => "Unresolved, refused",
            Event::Unresolved { why: Failure::Unreachable, .. } => "Unresolved, unreachable",
            Event::Unresolved { why: Failure::TimedOut, .. } => "Unresolved, timed out",
            Event::Established { .. } => "Established",
            Event::Rejected { by_peer: true, .. } => "Rejected by the peer",
            Event::Rejected { by_peer: false, .. } => "Rejected, not by the peer",
            Event::Unreachable => "Unreachable",
            Event::TimedOut => "TimedOut",
            Event::AcceptFailed => "AcceptFailed",
            Event::Disconnected => "Disconnected",
            Event::Broken => "Broken",
            Event::LowWatermark => "LowWatermark",
            Event::HighWatermark => "HighWatermark",
        })
    }
}

/// Records upcalls, and wakes a thread that sleeps for them.
pub struct Log<'t, T: Transport> {
    t: &'t T,
    events: Mutex<VecDeque<Event<T>>>,
    /// The messages that have waited for a receive: the number of octets of each message, and
    /// whether the message consists of these octets only.
    waits: Mutex<Vec<(u32, bool)>>,
    causes: Mutex<Vec<Cause>>,
    pub wake: Wake,
    /// Whether the object was dropped. An upcall after the drop breaks promise 3 of a transport.
    closed: AtomicBool,
    late: AtomicUsize,
}

impl<'t, T: Transport> Log<'t, T> {
    pub fn new(t: &'t T) -> Arc<Self> {
        let (events, waits, causes, wake, closed, late) = Default::default();
        Arc::new(Log { t, events, waits, causes, wake, closed, late })
    }

    pub fn sink(&self) -> Sink<T> {
        // SAFETY: the log is boxed, and is dropped after the object to which the sink is given.
        unsafe { Sink::new(std::ptr::from_ref(self)) }
    }

    pub fn take(&self) -> Option<Event<T>> {
        self.events.lock().expect("no case panics in an upcall").pop_front()
    }

    /// Returns the messages that were reported to wait for a receive: the number of octets of each
    /// message, and whether the message consists of these octets only.
    pub fn waits(&self) -> Vec<(u32, bool)> {
        self.waits.lock().expect("no case panics in an upcall").clone()
    }

    /// Returns the causes of failures that were reported.
    pub fn causes(&self) -> Vec<Cause> {
        self.causes.lock().expect("no case panics in an upcall").clone()
    }

    pub fn assert_silent(&self) {
        if let Some(event) = self.take() {
            panic!("unexpected {event:?}");
        }
    }

    /// Records that the object was dropped. Call this after the drop.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    pub fn late(&self) -> usize {
        self.late.load(Ordering::SeqCst)
    }
}

impl<T: Transport> Receiver<T> for Log<'_, T> {
    fn upcall(&self, up: Upcall<'_, T>) {
        if self.closed.load(Ordering::SeqCst) {
            self.late.fetch_add(1, Ordering::SeqCst);
        }
        let event = match up {
            Upcall::CqReady => Event::CqReady,
            Upcall::CqOverflow => Event::CqOverflow,
            Upcall::Request { request, service, from, to, private } => {
                Event::Request { request, service, from, to, private: private.to_vec() }
            }
            Upcall::Resolved { number, remote, peer, private } => {
                Event::Resolved { number, remote, peer, private: private.to_vec() }
            }
            Upcall::Unresolved { number, why } => Event::Unresolved {
                number,
                why: match why {
                    ResolveFailure::Rejected { private } => Failure::Rejected(private.to_vec()),
                    ResolveFailure::Refused { .. } => Failure::Refused,
                    ResolveFailure::Unreachable { .. } => Failure::Unreachable,
                    ResolveFailure::TimedOut => Failure::TimedOut,
                },
            },
            Upcall::Established { private, peer, local, depth } => {
                Event::Established { private: private.to_vec(), peer, local, depth }
            }
            Upcall::Rejected { by_peer, private } => {
                Event::Rejected { by_peer, private: private.to_vec() }
            }
            Upcall::Unreachable { .. } => Event::Unreachable,
            Upcall::TimedOut => Event::TimedOut,
            Upcall::AcceptFailed => Event::AcceptFailed,
            Upcall::Disconnected => Event::Disconnected,
            Upcall::Broken { .. } => Event::Broken,
            Upcall::LowWatermark => Event::LowWatermark,
            Upcall::HighWatermark => Event::HighWatermark,
            // `ReceiverNotReady` is only for diagnosis, so it is recorded separately.
            Upcall::ReceiverNotReady { octets, whole } => {
                return self
                    .waits
                    .lock()
                    .expect("no case panics in an upcall")
                    .push((octets, whole));
            }
            // `Cause` is only for diagnosis, too.
            Upcall::Cause(cause) => {
                return self.causes.lock().expect("no case panics in an upcall").push(cause);
            }
            // These upcalls do not occur, because no case can make a device fail.
            Upcall::Failed | Upcall::PortDown => return,
        };
        self.events.lock().expect("no case panics in an upcall").push_back(event);
        if self.wake.signal() {
            self.t.interrupt();
        }
    }
}

/// Checks that private data arrived as it was sent. A wire whose field for private data has a fixed
/// length may append zeros.
pub fn assert_arrived(private: &[u8], sent: &[u8]) {
    assert!(private.starts_with(sent), "{private:?}: not {sent:?}");
    assert!(
        private[sent.len()..].iter().all(|&octet| octet == 0),
        "{private:?}: more data than {sent:?}"
    );
}
