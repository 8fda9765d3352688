//! Tests of the calls that a transport gets, and of the upcalls that it makes. The transport here
//! moves no data. It records the calls that it gets, and the tests make its upcalls.

mod support;

use std::cell::Cell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use dat_core::conn::cr::{self, Cr};
use dat_core::conn::psp;
use dat_core::ep::{self, Ep, Handles};
use dat_core::error::{OpenError, Result};
use dat_core::evd::{self, Evd};
use dat_core::handle::{self, Node};
use dat_core::ia::{self, AsyncEvd, Entry, Ia};
use dat_core::mem::pz;
use dat_core::provider::*;
use dat_core::{cno, srq};
use dat_sys::ib::*;
use dat_sys::*;
use provider_mem::Mem;
use waiting::{Wake, WakeReason};

/// A request that dat-core makes to the transport.
#[derive(Debug, PartialEq)]
enum TransportCall {
    /// Says whether a CNO needs the upcalls of a completion queue.
    RequireUpcalls(bool),
    /// Arms the completion queue, which requests one upcall at the next completion or at the next
    /// solicited completion.
    Arm { solicited: bool },
}

/// A transport that records its calls and keeps the latest object of each type.
struct RecordingTransport {
    attrs: Attrs,
    calls: &'static Mutex<Vec<TransportCall>>,
    on_poll: &'static Mutex<Option<OnPoll>>,
    /// The number of passes of progress that the transport has made.
    passes: AtomicUsize,
    /// What happens in the next passes and sleeps of a waiting thread. Each takes one step.
    script: Mutex<VecDeque<Step>>,
    cq: Mutex<Option<Sink<RecordingTransport>>>,
    qp: Mutex<Option<Sink<RecordingTransport>>>,
    token: Mutex<Option<Token>>,
    srq: Mutex<Option<Sink<RecordingTransport>>>,
    listener: Mutex<Option<Sink<RecordingTransport>>>,
}

/// The provider that opens this transport.
struct RecordingProvider {
    quiet: bool,
}

struct Cq {
    calls: &'static Mutex<Vec<TransportCall>>,
    on_poll: &'static Mutex<Option<OnPoll>>,
}

/// A function that runs while a completion queue is polled. The poll finds the completion that the
/// function returns.
type OnPoll = Box<dyn FnOnce() -> Wc + Send>;

/// What happens during one pass of progress or one sleep.
type Step = Box<dyn FnOnce(&RecordingTransport) + Send>;

struct Nothing;

thread_local! {
    /// The id of the receive that was posted last.
    static POSTED: Cell<u64> = const { Cell::new(0) };
}

impl Provider for RecordingProvider {
    type Transport = RecordingTransport;
    const NAME: &'static str = "told";
    fn open(&self, ia: &str, params: &str) -> std::result::Result<RecordingTransport, OpenError> {
        let attrs = Attrs {
            quiet: self.quiet,
            knows_allocated: false,
            ..Mem.open(ia, params)?.attrs().clone()
        };
        Ok(RecordingTransport {
            attrs,
            calls: Box::leak(Box::default()),
            on_poll: Box::leak(Box::default()),
            passes: AtomicUsize::new(0),
            script: Mutex::default(),
            cq: Mutex::default(),
            qp: Mutex::default(),
            token: Mutex::default(),
            srq: Mutex::default(),
            listener: Mutex::default(),
        })
    }
}

// SAFETY: the tests call the sinks only while their objects live. No memory is accessed.
unsafe impl Transport for RecordingTransport {
    type Pd = Nothing;
    type Mr = Nothing;
    type Mw = std::convert::Infallible;
    type Cq = Cq;
    type Srq = Nothing;
    type Qp = Nothing;
    type Address = std::convert::Infallible;
    type Listener = Nothing;
    type ConnectionRequest = Nothing;

    fn attrs(&self) -> &Attrs {
        &self.attrs
    }
    fn progress(&self) {
        self.passes.fetch_add(1, Relaxed);
        self.step();
    }
    fn sleep(&self, wake: &Wake, deadline: Option<Instant>) -> WakeReason {
        match self.step() {
            true => WakeReason::Woken,
            false => wake.park(deadline),
        }
    }
    fn pd(&self) -> Result<Nothing> {
        Ok(Nothing)
    }
    unsafe fn mr(&self, _: &Nothing, _: dat_core::provider::Mem, _: Access) -> Result<Nothing> {
        Ok(Nothing)
    }
    fn cq(&self, _: usize, sink: Sink<RecordingTransport>) -> Result<Cq> {
        *self.cq.lock().unwrap() = Some(sink);
        Ok(Cq { calls: self.calls, on_poll: self.on_poll })
    }
    fn srq(
        &self,
        _: &Nothing,
        _: usize,
        _: usize,
        sink: Sink<RecordingTransport>,
    ) -> Result<Nothing> {
        *self.srq.lock().unwrap() = Some(sink);
        Ok(Nothing)
    }
    fn qp(
        &self,
        cfg: QpCfg<'_, RecordingTransport>,
        sink: Sink<RecordingTransport>,
    ) -> Result<Nothing> {
        *self.token.lock().unwrap() = Some(cfg.token);
        *self.qp.lock().unwrap() = Some(sink);
        Ok(Nothing)
    }
    fn listen(&self, _: Option<u16>, _: usize, sink: Sink<RecordingTransport>) -> Result<Nothing> {
        *self.listener.lock().unwrap() = Some(sink);
        Ok(Nothing)
    }
    fn port(&self, _: &Nothing) -> u16 {
        7
    }
    fn reject(&self, _: Nothing, _: &[u8]) -> Result<()> {
        Ok(())
    }
}

// SAFETY: the only completion is that of a receive which a test has posted.
unsafe impl Completions for Cq {
    unsafe fn poll(&self, out: &mut Polled<'_>) {
        let on_poll = self.on_poll.lock().unwrap().take();
        if let Some(on_poll) = on_poll {
            out.push(on_poll());
        }
    }
    unsafe fn arm(&self, solicited: bool) -> bool {
        self.calls.lock().unwrap().push(TransportCall::Arm { solicited });
        true
    }
    fn require_upcalls(&self, on: bool) {
        self.calls.lock().unwrap().push(TransportCall::RequireUpcalls(on));
    }
    unsafe fn resize(&self, _: usize) -> Result<()> {
        Ok(())
    }
}

impl Region for Nothing {
    fn lkey(&self) -> u32 {
        1
    }
    fn rkey(&self) -> u32 {
        1
    }
}

impl Receives for Nothing {
    unsafe fn post_recv(&self, _: &RecvWr<'_>) -> std::result::Result<(), PostError> {
        Ok(())
    }
    fn set_low_watermark(&self, _: usize) {}
    fn resize(&self, _: usize) -> Result<()> {
        Ok(())
    }
    fn available(&self) -> usize {
        0
    }
}

// SAFETY: the only completion is that of a receive which a test has posted.
unsafe impl Queue<RecordingTransport> for Nothing {
    unsafe fn post_send(&self, _: &SendWr<'_>) -> std::result::Result<(), PostError> {
        Ok(())
    }
    unsafe fn post_recv(&self, wr: &RecvWr<'_>) -> std::result::Result<(), PostError> {
        POSTED.set(wr.id);
        Ok(())
    }
    fn connect(&self, _: &Connect<'_>) -> Result<()> {
        Ok(())
    }
    fn accept(&self, _: Nothing, _: &[u8], _: ReadDepth) -> Result<()> {
        Ok(())
    }
    fn disconnect(&self, _: Close) {}
    fn allocated(&self) -> Option<Allocated> {
        Some(Allocated::default())
    }
    unsafe fn carried_out(&self) -> u64 {
        0
    }
}

fn open(quiet: bool) -> &'static Node<Ia<RecordingTransport>> {
    // SAFETY: the call passes no EVD that another thread could free.
    unsafe {
        ia::open(&RecordingProvider { quiet }, "told", support::entry("told"), AsyncEvd::Create(8))
    }
    .unwrap()
}

impl RecordingTransport {
    /// Returns the requests that dat-core has made since the last call of this function.
    fn calls(&self) -> Vec<TransportCall> {
        std::mem::take(&mut *self.calls.lock().unwrap())
    }

    /// Takes the next step of the script. Returns false if there is none.
    fn step(&self) -> bool {
        let step = self.script.lock().unwrap().pop_front();
        step.map(|step| step(self)).is_some()
    }

    fn report_to_qp(&self, up: Upcall<'_, RecordingTransport>) {
        let sink = self.qp.lock().unwrap().expect("there is a queue pair");
        sink.call(up);
    }
}

fn address() -> SocketAddr {
    "127.0.0.1:9".parse().unwrap()
}

fn evd(
    ia: &Node<Ia<RecordingTransport>>,
    flags: DAT_EVD_FLAGS,
) -> &'static Node<Evd<RecordingTransport>> {
    evd::create(ia, 8, None, flags).unwrap()
}

/// Creates an endpoint. Its completions go to `dto`, with these flags, and its connection events go
/// to `connect`.
fn endpoint(
    ia: &Node<Ia<RecordingTransport>>,
    flags: DAT_COMPLETION_FLAGS,
    dto: &Node<Evd<RecordingTransport>>,
    connect: &Node<Evd<RecordingTransport>>,
) -> &'static Node<Ep<RecordingTransport>> {
    let pz = pz::create(ia).unwrap();
    let handles =
        Handles { pz: Some(pz), recv: None, request: Some(dto), connect: Some(connect), srq: None };
    let attr = DAT_EP_ATTR {
        service_type: DAT_SERVICE_TYPE_RC,
        request_completion_flags: flags,
        max_request_dtos: 1,
        max_request_iov: 1,
        ..DAT_EP_ATTR::zeroed()
    };
    ep::create(ia, handles, Some(&attr)).unwrap()
}

/// Creates an endpoint that only receives. Its completions go to `dto`, with these flags.
fn receiver(
    ia: &Node<Ia<RecordingTransport>>,
    flags: DAT_COMPLETION_FLAGS,
    dto: &Node<Evd<RecordingTransport>>,
    connect: &Node<Evd<RecordingTransport>>,
) -> &'static Node<Ep<RecordingTransport>> {
    let pz = Some(pz::create(ia).unwrap());
    let handles = Handles { pz, recv: Some(dto), request: None, connect: Some(connect), srq: None };
    let attr = DAT_EP_ATTR {
        service_type: DAT_SERVICE_TYPE_RC,
        recv_completion_flags: flags,
        ..DAT_EP_ATTR::zeroed()
    };
    ep::create(ia, handles, Some(&attr)).unwrap()
}

fn number(evd: &Node<Evd<RecordingTransport>>) -> DAT_EVENT_NUMBER {
    // SAFETY: no other thread takes events from the EVD during this call.
    unsafe { evd.wait(0, 1) }.unwrap().event.unwrap().event_number
}

/// Takes the next asynchronous event about this object. Returns its number and reason.
fn reason(evd: &Node<Evd<RecordingTransport>>, about: DAT_HANDLE) -> (DAT_EVENT_NUMBER, DAT_COUNT) {
    // SAFETY: no other thread takes events from the EVD during this call.
    let event = unsafe { evd.wait(0, 1) }.unwrap().event.unwrap();
    // SAFETY: this is an asynchronous error.
    let data = unsafe { event.event_data.asynch_error_event_data };
    assert_eq!(data.dat_handle, about);
    (event.event_number, data.reason)
}

/// This transport does not know for every endpoint how many receives are outstanding. Therefore the
/// provider attribute does not list these counts, and each endpoint reports them as unknown.
#[test]
fn counts_that_the_provider_attribute_does_not_list_are_unknown() {
    let ia = open(true);
    let mut provider = DAT_PROVIDER_ATTR::zeroed();
    ia.provider_attributes(&mut provider);
    assert_eq!(provider.ep_recv_info_supported, 0);
    let (dto, connect) = (evd(ia, DAT_EVD_DTO_FLAG), evd(ia, DAT_EVD_CONNECTION_FLAG));
    let ep = receiver(ia, DAT_COMPLETION_DEFAULT_FLAG, dto, connect);
    assert_eq!(ep.allocated(), [DAT_VALUE_UNKNOWN; 2]);
}

#[test]
fn a_failed_shared_queue_is_reported() {
    let ia = open(true);
    let pz = pz::create(ia).unwrap();
    let attr =
        DAT_SRQ_ATTR { max_recv_dtos: 4, max_recv_iov: 1, low_watermark: DAT_SRQ_LW_DEFAULT };
    let srq = srq::create(ia, pz, &attr).unwrap();
    let sink = ia.transport.srq.lock().unwrap().unwrap();
    let errors = ia.async_evd().unwrap();
    sink.call(Upcall::LowWatermark);
    sink.call(Upcall::Failed);
    for expected in [DAT_SRQ_LOW_WATERMARK_EVENT, DAT_SRQ_TRANSFER_TO_ERROR] {
        let told = reason(&errors, srq.handle());
        assert_eq!(told, (DAT_ASYNC_ERROR_PROVIDER_INTERNAL_ERROR, expected as DAT_COUNT));
    }
}

#[test]
fn a_completion_queue_makes_upcalls_while_a_cno_needs_them() {
    let ia = open(true);
    // SAFETY: the CNO has no agent, so no function of the consumer is called.
    let cno = unsafe { cno::create(ia, DAT_OS_WAIT_PROXY_AGENT_NULL) }.unwrap();
    let evd = evd::create(ia, 8, Some(cno), DAT_EVD_DTO_FLAG).unwrap();
    assert_eq!(
        ia.transport.calls(),
        [TransportCall::RequireUpcalls(true), TransportCall::Arm { solicited: false }]
    );
    // SAFETY: no other thread takes events from the EVD during this call.
    unsafe { evd.set_cno(None) }.unwrap();
    assert_eq!(ia.transport.calls()[0], TransportCall::RequireUpcalls(false));
    // SAFETY: no other thread takes events from the EVD during this call.
    unsafe { evd.set_cno(Some(cno)) }.unwrap();
    assert_eq!(ia.transport.calls()[0], TransportCall::RequireUpcalls(true));
}

/// One thread at a time uses a completion queue. A new endpoint may change which completions wake a
/// waiter. If the endpoint is created while another thread is in a call on its EVD, the creating
/// thread does not touch the queue. Instead it notifies the CNO, whose consumer then dequeues and
/// arms the queue. If no thread is in such a call, the creating thread arms the queue again.
#[test]
fn a_stream_added_during_a_call_on_its_evd_does_not_touch_the_queue() {
    let entry = Entry { thread_safe: true, ..support::entry("told") };
    // SAFETY: the call passes no EVD that another thread could free.
    let ia =
        unsafe { ia::open(&RecordingProvider { quiet: true }, "told", entry, AsyncEvd::Create(8)) }
            .unwrap();
    // SAFETY: the CNO has no agent, so no function of the consumer is called.
    let cno = unsafe { cno::create(ia, DAT_OS_WAIT_PROXY_AGENT_NULL) }.unwrap();
    let (dto, connect) = (evd(ia, DAT_EVD_DTO_FLAG), evd(ia, DAT_EVD_CONNECTION_FLAG));
    // SAFETY: no other thread takes events from the EVD during this call.
    unsafe { dto.set_cno(Some(cno)) }.unwrap();
    ia.transport.calls();

    let join = || endpoint(ia, DAT_COMPLETION_UNSIGNALLED_FLAG, dto, connect);
    let ep = dto.slot().locked(|| Ok(join())).unwrap();
    assert_eq!(ia.transport.calls(), []);
    assert_eq!(cno.wait(0), Ok(dto.handle()));
    // SAFETY: after this call nobody uses a reference to the endpoint.
    unsafe { ep::free(ep) }.unwrap();
    assert_eq!(ia.transport.calls(), [TransportCall::Arm { solicited: false }]);
    join();
    assert_eq!(ia.transport.calls(), [TransportCall::Arm { solicited: true }]);
    assert_eq!(cno.wait(0).unwrap_err().kind(), DAT_QUEUE_EMPTY);

    // If the adapter is not thread-safe, the library does not know whether a call is in progress.
    let ia = open(true);
    // SAFETY: the CNO has no agent, so no function of the consumer is called.
    let cno = unsafe { cno::create(ia, DAT_OS_WAIT_PROXY_AGENT_NULL) }.unwrap();
    let (dto, connect) = (evd(ia, DAT_EVD_DTO_FLAG), evd(ia, DAT_EVD_CONNECTION_FLAG));
    // SAFETY: no other thread takes events from the EVD during this call.
    unsafe { dto.set_cno(Some(cno)) }.unwrap();
    ia.transport.calls();
    endpoint(ia, DAT_COMPLETION_UNSIGNALLED_FLAG, dto, connect);
    assert_eq!(ia.transport.calls(), []);
    assert_eq!(cno.wait(0), Ok(dto.handle()));
}

/// `quiet` says whether the transport distinguishes completions of requests that were posted quiet.
/// If it does, dat-core can arm the queue for all other completions.
#[test]
fn a_wait_arms_for_the_completions_that_wake() {
    use DAT_COMPLETION_DEFAULT_FLAG as DEFAULT;
    use DAT_COMPLETION_SOLICITED_WAIT_FLAG as SOLICITED;
    use DAT_COMPLETION_UNSIGNALLED_FLAG as UNSIGNALLED;
    for (quiet, flags, solicited) in [
        (true, &[DEFAULT][..], false),
        (true, &[UNSIGNALLED], true),
        (true, &[DEFAULT, UNSIGNALLED], true),
        (false, &[DEFAULT], false),
        (false, &[UNSIGNALLED], false),
        (false, &[DEFAULT, UNSIGNALLED], false),
    ] {
        let ia = open(quiet);
        let (dto, connect) = (evd(ia, DAT_EVD_DTO_FLAG), evd(ia, DAT_EVD_CONNECTION_FLAG));
        for &flags in flags {
            match flags {
                UNSIGNALLED => endpoint(ia, flags, dto, connect),
                _ => receiver(ia, flags, dto, connect),
            };
        }
        ia.transport.calls();
        // SAFETY: no other thread takes events from the EVD during this call.
        unsafe { dto.wait(1, 1) }.unwrap();
        assert!(
            ia.transport.calls().contains(&TransportCall::Arm { solicited }),
            "{quiet} {flags:?}"
        );
    }
    // Only receives may have the solicited flag.
    for quiet in [true, false] {
        let ia = open(quiet);
        let (dto, connect) = (evd(ia, DAT_EVD_DTO_FLAG), evd(ia, DAT_EVD_CONNECTION_FLAG));
        receiver(ia, SOLICITED, dto, connect);
        ia.transport.calls();
        // SAFETY: no other thread takes events from the EVD during this call.
        unsafe { dto.wait(1, 1) }.unwrap();
        assert_eq!(ia.transport.calls(), [TransportCall::Arm { solicited: true }], "{quiet}");
    }
}

/// A pass of progress would send what the consumer has posted since the last pass. So a consumer
/// that posts a request after each event would send each request alone.
#[test]
fn a_wait_makes_a_pass_only_if_events_are_lacking() {
    let ia = open(false);
    let evd = evd(ia, DAT_EVD_SOFTWARE_FLAG);
    for _ in 0..3 {
        evd.post_software(&DAT_EVENT { event_number: DAT_SOFTWARE_EVENT, ..DAT_EVENT::zeroed() })
            .unwrap();
    }
    for (threshold, found, left, passes) in
        [(3, true, 2, 0), (1, true, 1, 0), (2, false, 1, 1), (1, true, 0, 1), (1, false, 0, 2)]
    {
        // SAFETY: no other thread takes events from the EVD during this call.
        let outcome = unsafe { evd.wait(0, threshold) }.unwrap();
        let now = (outcome.event.is_ok(), outcome.more, ia.transport.passes.load(Relaxed));
        assert_eq!(now, (found, left, passes));
    }
}

const CONNECTION_ENDS: [fn(&RecordingTransport); 2] = [
    |transport| transport.report_to_qp(Upcall::Disconnected),
    |transport| transport.report_to_qp(Upcall::Broken { because: Some(&"the test says so") }),
];

#[test]
fn a_connection_lost_while_connecting_or_disconnecting_causes_one_event() {
    for (end, report) in CONNECTION_ENDS.into_iter().enumerate() {
        // The connection fails while it is being established.
        let ia = open(true);
        let (dto, connect) = (evd(ia, DAT_EVD_DTO_FLAG), evd(ia, DAT_EVD_CONNECTION_FLAG));
        let ep = endpoint(ia, DAT_COMPLETION_DEFAULT_FLAG, dto, connect);
        let call = |ep: &Node<Ep<RecordingTransport>>| {
            let (limit, flags) = (DAT_TIMEOUT_INFINITE, DAT_CONNECT_DEFAULT_FLAG);
            ep.connect(address(), 7, limit, b"", DAT_QOS_BEST_EFFORT, flags).unwrap();
        };
        call(ep);
        report(&ia.transport);
        assert_eq!(number(connect), DAT_CONNECTION_EVENT_NON_PEER_REJECTED);

        // The connection fails while this side disconnects gracefully.
        let ep = endpoint(ia, DAT_COMPLETION_DEFAULT_FLAG, dto, connect);
        call(ep);
        let depth = ReadDepth { incoming: 0, outgoing: 0 };
        let [peer, local] = [address(); 2];
        ia.transport.report_to_qp(Upcall::Established { private: b"", peer, local, depth });
        assert_eq!(number(connect), DAT_CONNECTION_EVENT_ESTABLISHED);
        ep.disconnect(DAT_CLOSE_GRACEFUL_FLAG).unwrap();
        report(&ia.transport);
        assert_eq!(number(connect), DAT_CONNECTION_EVENT_DISCONNECTED);

        // The connection fails after it was established.
        let ep = endpoint(ia, DAT_COMPLETION_DEFAULT_FLAG, dto, connect);
        call(ep);
        ia.transport.report_to_qp(Upcall::Established { private: b"", peer, local, depth });
        assert_eq!(number(connect), DAT_CONNECTION_EVENT_ESTABLISHED);
        report(&ia.transport);
        let expected = [DAT_CONNECTION_EVENT_DISCONNECTED, DAT_CONNECTION_EVENT_BROKEN][end];
        assert_eq!(number(connect), expected);

        // The connection fails while the request is being accepted.
        let ep = endpoint(ia, DAT_COMPLETION_DEFAULT_FLAG, dto, connect);
        let requests = evd(ia, DAT_EVD_CR_FLAG);
        psp::create(ia, dat_core::conn::Qualifier::Exactly(7), requests, DAT_PSP_CONSUMER_FLAG)
            .unwrap();
        let listener = ia.transport.listener.lock().unwrap().unwrap();
        let (from, to) = (address(), address());
        listener.call(Upcall::Request {
            request: Nothing,
            service: ServiceType::Connection,
            from,
            to,
            private: b"",
        });
        // SAFETY: no other thread takes events from the EVD during this call.
        let event = unsafe { requests.wait(0, 1) }.unwrap().event.unwrap();
        // SAFETY: this is a connection request that was not answered.
        let request: &Node<Cr<RecordingTransport>> =
            unsafe { handle::get(event.event_data.cr_arrival_event_data.cr_handle) }.unwrap();
        // SAFETY: after this call nobody uses a reference to the request.
        unsafe { cr::accept(request, Some(ep), b"") }.unwrap();
        report(&ia.transport);
        assert_eq!(number(connect), DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR);
        // SAFETY: no other thread takes events from the EVD during this call.
        let second = unsafe { connect.wait(0, 1) }.unwrap().event;
        assert!(second.is_err(), "there must be only one event");
    }
}

/// A message with immediate data, which a peer of another make may send, is told apart from a write
/// with immediate data.
#[test]
fn a_receive_tells_what_its_immediate_data_came_with() {
    let ia = open(true);
    let (dto, pz) = (evd(ia, DAT_EVD_DTO_FLAG), Some(pz::create(ia).unwrap()));
    let handles = Handles { pz, recv: Some(dto), request: None, connect: None, srq: None };
    let ep = ep::create(ia, handles, None).unwrap();
    let (message, write) = (DAT_IB_RECV_IMMED_DATA, DAT_IB_RDMA_WRITE_IMMED_DATA);
    for (op, immediate, expected) in [
        (WcOp::Recv, None, (DAT_DTO_COMPLETION_EVENT, DAT_DTO_RECEIVE, None)),
        (WcOp::Recv, Some(7), (DAT_IB_DTO_EVENT, DAT_IB_DTO_RECV_IMMED, Some((write, 7)))),
        (
            WcOp::RecvMessageImm,
            Some(8),
            (DAT_IB_DTO_EVENT, DAT_IB_DTO_RECV_MSG_IMMED, Some((message, 8))),
        ),
    ] {
        // SAFETY: the receive has no segments, so no memory must stay valid.
        unsafe { ep.post_recv(&[], 5, DAT_COMPLETION_DEFAULT_FLAG) }.unwrap();
        let (id, qp) = (POSTED.get(), ia.transport.token.lock().unwrap().unwrap());
        *ia.transport.on_poll.lock().unwrap() = Some(Box::new(move || {
            let (invalidated, status) = (None, WcStatus::Success);
            Wc { id, qp, bytes: 3, invalidated, immediate, op, status }
        }));
        // SAFETY: nobody else dequeues.
        let event = unsafe { dto.dequeue() }.unwrap();
        // SAFETY: both kinds of events have these data, and the cookie was posted as a number.
        let (data, cookie) = unsafe {
            let data = event.event_data.dto_completion_event_data;
            (data, data.user_cookie.as_64)
        };
        assert_eq!((cookie, data.transfered_length), (5, 3));
        let extension = immediate.map(|_| {
            // SAFETY: an extended event has extension data, and these have immediate data.
            unsafe {
                let data = (&raw const event.event_extension_data)
                    .cast::<DAT_IB_EXTENSION_EVENT_DATA>()
                    .read();
                (data.r#type, data.val.immed.data)
            }
        });
        assert_eq!((event.event_number, data.operation, extension), expected, "{op:?}");
    }
}

/// While a consumer dequeues, the transport reports a connection and then pushes the completion of
/// a message. This happens after the consumer has found no event and before it polls the completion
/// queue.
#[test]
fn a_connection_comes_before_its_first_message() {
    let ia = open(true);
    let all = evd(ia, DAT_EVD_DTO_FLAG | DAT_EVD_CONNECTION_FLAG);
    let pz = pz::create(ia).unwrap();
    let handles =
        Handles { pz: Some(pz), recv: Some(all), request: None, connect: Some(all), srq: None };
    let ep = ep::create(ia, handles, None).unwrap();
    // SAFETY: the receive has no segments, so no memory must stay valid.
    unsafe { ep.post_recv(&[], 5, DAT_COMPLETION_DEFAULT_FLAG) }.unwrap();
    let (limit, flags) = (DAT_TIMEOUT_INFINITE, DAT_CONNECT_DEFAULT_FLAG);
    ep.connect(address(), 7, limit, b"", DAT_QOS_BEST_EFFORT, flags).unwrap();
    let sink = ia.transport.qp.lock().unwrap().unwrap();
    let (id, qp) = (POSTED.get(), ia.transport.token.lock().unwrap().unwrap());
    *ia.transport.on_poll.lock().unwrap() = Some(Box::new(move || {
        let depth = ReadDepth { incoming: 0, outgoing: 0 };
        let [peer, local] = [address(); 2];
        sink.call(Upcall::Established { private: b"", peer, local, depth });
        let (op, status) = (WcOp::Recv, WcStatus::Success);
        Wc { id, qp, bytes: 0, invalidated: None, immediate: None, op, status }
    }));
    // SAFETY: nobody else dequeues.
    let next = || unsafe { all.dequeue() }.map(|event| event.event_number);
    assert_eq!(next(), Ok(DAT_CONNECTION_EVENT_ESTABLISHED));
    assert_eq!(next(), Ok(DAT_DTO_COMPLETION_EVENT));
    assert_eq!(next(), Err(dat_core::Error::of(DAT_QUEUE_EMPTY)));
}

/// Creates an endpoint whose receives complete on an EVD, which is returned as well, with these
/// completion flags.
fn receiving_endpoint(
    flags: DAT_COMPLETION_FLAGS,
) -> (&'static Node<Ep<RecordingTransport>>, &'static Node<Evd<RecordingTransport>>) {
    let ia = open(true);
    let (dto, connect) = (evd(ia, DAT_EVD_DTO_FLAG), evd(ia, DAT_EVD_CONNECTION_FLAG));
    let pz = Some(pz::create(ia).unwrap());
    let handles = Handles { pz, recv: Some(dto), request: None, connect: Some(connect), srq: None };
    let attr = DAT_EP_ATTR {
        service_type: DAT_SERVICE_TYPE_RC,
        recv_completion_flags: flags,
        max_recv_dtos: 2,
        max_recv_iov: 1,
        ..DAT_EP_ATTR::zeroed()
    };
    (ep::create(ia, handles, Some(&attr)).unwrap(), dto)
}

/// Posts a receive, and returns the step in which it completes.
fn completes(ep: &Node<Ep<RecordingTransport>>) -> Step {
    // SAFETY: the receive has no segments, so no memory must stay valid.
    unsafe { ep.post_recv(&[], 5, DAT_COMPLETION_DEFAULT_FLAG) }.unwrap();
    let (id, qp) = (POSTED.get(), ep.ia.transport.token.lock().unwrap().unwrap());
    let (op, status) = (WcOp::Recv, WcStatus::Success);
    let wc = Wc { id, qp, bytes: 0, invalidated: None, immediate: None, op, status };
    Box::new(move |transport: &RecordingTransport| {
        *transport.on_poll.lock().unwrap() = Some(Box::new(move || wc));
    })
}

/// Posts a receive, and returns the step in which it completes and the transport announces that.
fn completes_and_wakes(ep: &Node<Ep<RecordingTransport>>) -> Step {
    let completes = completes(ep);
    Box::new(move |transport: &RecordingTransport| {
        completes(transport);
        let sink = transport.cq.lock().unwrap().unwrap();
        sink.call(Upcall::CqReady);
    })
}

/// A waiting thread may leave its sleep for other reasons than an event, and its own pass of
/// progress may bring completions. A completion that must not wake does not end the wait then.
#[test]
fn only_a_completion_that_wakes_ends_a_wait() {
    for (flags, wakes) in [
        (DAT_COMPLETION_UNSIGNALLED_FLAG, false),
        (DAT_COMPLETION_SOLICITED_WAIT_FLAG, false),
        (DAT_COMPLETION_DEFAULT_FLAG, true),
    ] {
        let (ep, dto) = receiving_endpoint(flags);
        let script = || dto.ia.transport.script.lock().unwrap();
        script().extend([
            completes(ep),
            Box::new(|_: &RecordingTransport| {}),
            completes_and_wakes(ep),
        ]);
        // SAFETY: no other thread takes events from the EVD during this call.
        let outcome = unsafe { dto.wait(DAT_TIMEOUT_INFINITE, 1) }.unwrap();
        outcome.event.expect("an event");
        assert_eq!(outcome.more, usize::from(!wakes), "{flags:#x}");
        assert_eq!(script().is_empty(), !wakes, "{flags:#x}");

        // A completion that is already queued ends the next wait at once.
        if !wakes {
            // SAFETY: no other thread takes events from the EVD during this call.
            unsafe { dto.wait(DAT_TIMEOUT_INFINITE, 1) }.unwrap().event.expect("an event");
        }
    }
}

/// Another thread changes the CNO of an EVD on which a thread waits. That announces no event, so a
/// completion that must not wake does not end the wait. The new CNO is notified of what is left
/// when the wait has ended.
#[test]
fn a_change_of_the_cno_ends_no_wait() {
    for change in 0..4 {
        let (ep, dto) = receiving_endpoint(DAT_COMPLETION_UNSIGNALLED_FLAG);
        // SAFETY: the CNO has no agent, so no function of the consumer is called.
        let cno = unsafe { cno::create(&dto.ia, DAT_OS_WAIT_PROXY_AGENT_NULL) }.unwrap();
        let script = || dto.ia.transport.script.lock().unwrap();
        script().extend([
            completes(ep),
            Box::new(move |_: &RecordingTransport| {
                // SAFETY: a thread waits on the EVD.
                unsafe {
                    match change {
                        0 => dto.set_enabled(false),
                        1 => dto.set_enabled(true),
                        2 => dto.set_cno(None).unwrap(),
                        _ => dto.set_cno(Some(cno)).unwrap(),
                    }
                }
            }),
            completes_and_wakes(ep),
        ]);
        // SAFETY: no other thread takes events from the EVD during this call.
        let outcome = unsafe { dto.wait(DAT_TIMEOUT_INFINITE, 1) }.unwrap();
        outcome.event.expect("an event");
        assert_eq!((outcome.more, script().is_empty()), (1, true), "change {change}");
        assert_eq!(cno.wait(0).is_ok(), change == 3, "change {change}");
    }
}
