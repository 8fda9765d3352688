//! What a transport is asked for, and what it tells of. The transport here moves nothing: it keeps what it is asked for, and the
//! tests make its upcalls.

mod support;

use std::net::SocketAddr;
use std::sync::Mutex;

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
use dat_sys::*;
use provider_loopback::Mem;

/// What the transport was asked for.
#[derive(Debug, PartialEq)]
enum Asked {
    /// A notification object is told of a completion queue's completions, or no longer.
    Attend(bool),
    /// One upcall, at the next completion or at the next solicited one.
    Arm { solicited: bool },
}

/// See above. The objects of each kind that were made last are kept.
struct Told {
    attrs: Attrs,
    asked: &'static Mutex<Vec<Asked>>,
    qp: Mutex<Option<Sink<Told>>>,
    srq: Mutex<Option<Sink<Told>>>,
    listener: Mutex<Option<Sink<Told>>>,
}

/// Opens one.
struct Opens {
    quiet: bool,
}

struct Cq(&'static Mutex<Vec<Asked>>);
struct Nothing;

impl Provider for Opens {
    type Transport = Told;
    type Other = Told;
    const NAME: &'static str = "told";
    fn open(&self, ia: &str, params: &str) -> std::result::Result<Told, OpenError> {
        let attrs = Attrs { quiet: self.quiet, ..Mem.open(ia, params)?.attrs().clone() };
        Ok(Told {
            attrs,
            asked: Box::leak(Box::default()),
            qp: Mutex::default(),
            srq: Mutex::default(),
            listener: Mutex::default(),
        })
    }
}

// SAFETY: the tests call the sinks, and only while their objects live; no memory is touched.
unsafe impl Transport for Told {
    type Pd = Nothing;
    type Mr = Nothing;
    type Mw = std::convert::Infallible;
    type Cq = Cq;
    type Srq = Nothing;
    type Qp = Nothing;
    type Listener = Nothing;
    type Request = Nothing;

    fn attrs(&self) -> &Attrs {
        &self.attrs
    }
    fn pd(&self) -> Result<Nothing> {
        Ok(Nothing)
    }
    unsafe fn mr(&self, _: &Nothing, _: dat_core::provider::Mem, _: Access) -> Result<Nothing> {
        Ok(Nothing)
    }
    fn cq(&self, _: usize, _: Sink<Told>) -> Result<Cq> {
        Ok(Cq(self.asked))
    }
    fn srq(&self, _: &Nothing, _: usize, _: usize, sink: Sink<Told>) -> Result<Nothing> {
        *self.srq.lock().unwrap() = Some(sink);
        Ok(Nothing)
    }
    fn qp(&self, _: QpCfg<'_, Told>, sink: Sink<Told>) -> Result<Nothing> {
        *self.qp.lock().unwrap() = Some(sink);
        Ok(Nothing)
    }
    fn listen(&self, _: Port, _: usize, sink: Sink<Told>) -> Result<Nothing> {
        *self.listener.lock().unwrap() = Some(sink);
        Ok(Nothing)
    }
    fn port(&self, _: &Nothing) -> u64 {
        7
    }
    fn reject(&self, _: Nothing, _: &[u8]) -> Result<()> {
        Ok(())
    }
}

// SAFETY: there never is a completion.
unsafe impl Completions for Cq {
    unsafe fn poll(&self, _: &mut Polled<'_>) {}
    unsafe fn arm(&self, solicited: bool) -> bool {
        self.0.lock().unwrap().push(Asked::Arm { solicited });
        true
    }
    fn attend(&self, on: bool) {
        self.0.lock().unwrap().push(Asked::Attend(on));
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

// SAFETY: as above.
unsafe impl Queue<Told> for Nothing {
    unsafe fn post_send(&self, _: &SendWr<'_>) -> std::result::Result<(), PostError> {
        Ok(())
    }
    unsafe fn post_recv(&self, _: &RecvWr<'_>) -> std::result::Result<(), PostError> {
        Ok(())
    }
    fn connect(&self, _: &Connect<'_>) -> Result<()> {
        Ok(())
    }
    fn accept(&self, _: Nothing, _: &[u8], _: ReadDepth) -> Result<()> {
        Ok(())
    }
    fn disconnect(&self, _: Close) {}
    fn allocated(&self) -> Allocated {
        Allocated { buffers: 0, span: 0 }
    }
    unsafe fn carried_out(&self) -> u64 {
        0
    }
}

fn open(quiet: bool) -> &'static Node<Ia<Told>> {
    // SAFETY: no dispatcher is given.
    unsafe { ia::open(&Opens { quiet }, "told", support::entry("told"), AsyncEvd::Create(8)) }
        .unwrap()
}

impl Told {
    /// What it was asked for since the last time.
    fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }

    fn tells_qp(&self, up: Upcall<'_, Told>) {
        let sink = self.qp.lock().unwrap().expect("there is a queue pair");
        sink.call(up);
    }
}

fn address() -> SocketAddr {
    "127.0.0.1:9".parse().unwrap()
}

fn evd(ia: &Node<Ia<Told>>, flags: DAT_EVD_FLAGS) -> &'static Node<Evd<Told>> {
    evd::create(ia, 8, None, flags).unwrap()
}

/// An endpoint that sends completions to `dto`, with these flags, and connection events to the other.
fn endpoint(
    ia: &Node<Ia<Told>>,
    flags: DAT_COMPLETION_FLAGS,
    dto: &Node<Evd<Told>>,
    connect: &Node<Evd<Told>>,
) -> &'static Node<Ep<Told>> {
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

fn number(evd: &Node<Evd<Told>>) -> DAT_EVENT_NUMBER {
    // SAFETY: nobody dequeues meanwhile.
    unsafe { evd.wait(0, 1) }.unwrap().event.unwrap().event_number
}

/// The next event about this object, and why.
fn reason(evd: &Node<Evd<Told>>, about: DAT_HANDLE) -> (DAT_EVENT_NUMBER, DAT_COUNT) {
    // SAFETY: nobody dequeues meanwhile.
    let event = unsafe { evd.wait(0, 1) }.unwrap().event.unwrap();
    // SAFETY: an asynchronous error.
    let data = unsafe { event.event_data.asynch_error_event_data };
    assert_eq!(data.dat_handle, about);
    (event.event_number, data.reason)
}

#[test]
fn a_shared_queue_that_has_failed_is_told_of() {
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
fn a_completion_queue_is_attended_as_long_as_a_notification_object_wants_it() {
    let ia = open(true);
    // SAFETY: there is no agent.
    let cno = unsafe { cno::create(ia, DAT_OS_WAIT_PROXY_AGENT_NULL) }.unwrap();
    let evd = evd::create(ia, 8, Some(cno), DAT_EVD_DTO_FLAG).unwrap();
    assert_eq!(ia.transport.asked(), [Asked::Attend(true), Asked::Arm { solicited: false }]);
    // SAFETY: nobody dequeues meanwhile.
    unsafe { evd.set_cno(None) }.unwrap();
    assert_eq!(ia.transport.asked()[0], Asked::Attend(false));
    // SAFETY: nobody dequeues meanwhile.
    unsafe { evd.set_cno(Some(cno)) }.unwrap();
    assert_eq!(ia.transport.asked()[0], Asked::Attend(true));
}

/// One thread at a time uses a completion queue. An endpoint that is made beside a call on its EVD, and
/// changes which completions wake, leaves the queue alone and tells the notification object, whose consumer
/// looks then; else it arms the queue anew.
#[test]
fn a_stream_that_joins_beside_a_call_on_its_evd_does_not_touch_the_queue() {
    let entry = Entry { thread_safe: true, ..support::entry("told") };
    // SAFETY: no dispatcher is given.
    let ia =
        unsafe { ia::open(&Opens { quiet: true }, "told", entry, AsyncEvd::Create(8)) }.unwrap();
    // SAFETY: there is no agent.
    let cno = unsafe { cno::create(ia, DAT_OS_WAIT_PROXY_AGENT_NULL) }.unwrap();
    let (dto, connect) = (evd(ia, DAT_EVD_DTO_FLAG), evd(ia, DAT_EVD_CONNECTION_FLAG));
    // SAFETY: nobody dequeues meanwhile.
    unsafe { dto.set_cno(Some(cno)) }.unwrap();
    ia.transport.asked();

    let join = || endpoint(ia, DAT_COMPLETION_UNSIGNALLED_FLAG, dto, connect);
    let ep = dto.slot().locked(|| Ok(join())).unwrap();
    assert_eq!(ia.transport.asked(), []);
    assert_eq!(cno.wait(0), Ok(dto.handle()));
    // SAFETY: nobody uses it any more.
    unsafe { ep::free(ep) }.unwrap();
    assert_eq!(ia.transport.asked(), [Asked::Arm { solicited: false }]);
    join();
    assert_eq!(ia.transport.asked(), [Asked::Arm { solicited: true }]);
    assert_eq!(cno.wait(0).unwrap_err().kind(), DAT_QUEUE_EMPTY);

    // Without that lock nobody knows whether there is a call.
    let ia = open(true);
    // SAFETY: there is no agent.
    let cno = unsafe { cno::create(ia, DAT_OS_WAIT_PROXY_AGENT_NULL) }.unwrap();
    let (dto, connect) = (evd(ia, DAT_EVD_DTO_FLAG), evd(ia, DAT_EVD_CONNECTION_FLAG));
    // SAFETY: nobody dequeues meanwhile.
    unsafe { dto.set_cno(Some(cno)) }.unwrap();
    ia.transport.asked();
    endpoint(ia, DAT_COMPLETION_UNSIGNALLED_FLAG, dto, connect);
    assert_eq!(ia.transport.asked(), []);
    assert_eq!(cno.wait(0), Ok(dto.handle()));
}

/// `quiet`: the transport tells completions that were posted quiet from others, so that it can be asked for all others.
#[test]
fn a_wait_asks_for_the_completions_that_wake() {
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
            endpoint(ia, flags, dto, connect);
        }
        ia.transport.asked();
        // SAFETY: nobody dequeues meanwhile.
        unsafe { dto.wait(1, 1) }.unwrap();
        assert!(ia.transport.asked().contains(&Asked::Arm { solicited }), "{quiet} {flags:?}");
    }
    // Receives alone may have the solicited flag.
    for (quiet, others, solicited) in
        [(true, &[][..], true), (false, &[], true), (false, &[DEFAULT], false)]
    {
        let ia = open(quiet);
        let (dto, connect) = (evd(ia, DAT_EVD_DTO_FLAG), evd(ia, DAT_EVD_CONNECTION_FLAG));
        for &flags in others {
            endpoint(ia, flags, dto, connect);
        }
        let attr = DAT_EP_ATTR {
            service_type: DAT_SERVICE_TYPE_RC,
            recv_completion_flags: SOLICITED,
            ..DAT_EP_ATTR::zeroed()
        };
        let pz = Some(pz::create(ia).unwrap());
        let handles =
            Handles { pz, recv: Some(dto), request: None, connect: Some(connect), srq: None };
        ep::create(ia, handles, Some(&attr)).unwrap();
        ia.transport.asked();
        // SAFETY: nobody dequeues meanwhile.
        unsafe { dto.wait(1, 1) }.unwrap();
        assert_eq!(ia.transport.asked(), [Asked::Arm { solicited }], "{quiet} {others:?}");
    }
}

const ENDS: [fn(&Told); 2] = [
    |transport| transport.tells_qp(Upcall::Disconnected),
    |transport| transport.tells_qp(Upcall::Broken { because: &"the test says so" }),
];

#[test]
fn a_connection_that_is_lost_while_it_is_made_or_ended_ends_with_one_event() {
    for (end, tell) in ENDS.into_iter().enumerate() {
        // While it is called.
        let ia = open(true);
        let (dto, connect) = (evd(ia, DAT_EVD_DTO_FLAG), evd(ia, DAT_EVD_CONNECTION_FLAG));
        let ep = endpoint(ia, DAT_COMPLETION_DEFAULT_FLAG, dto, connect);
        let call = |ep: &Node<Ep<Told>>| {
            let (limit, flags) = (DAT_TIMEOUT_INFINITE, DAT_CONNECT_DEFAULT_FLAG);
            ep.connect(address(), 7, limit, b"", DAT_QOS_BEST_EFFORT, flags).unwrap();
        };
        call(ep);
        tell(&ia.transport);
        assert_eq!(number(connect), DAT_CONNECTION_EVENT_NON_PEER_REJECTED);

        // While this side ends it in order.
        let ep = endpoint(ia, DAT_COMPLETION_DEFAULT_FLAG, dto, connect);
        call(ep);
        let depth = ReadDepth { incoming: 0, outgoing: 0 };
        let [peer, local] = [address(); 2];
        ia.transport.tells_qp(Upcall::Established { private: b"", peer, local, depth });
        assert_eq!(number(connect), DAT_CONNECTION_EVENT_ESTABLISHED);
        ep.disconnect(DAT_CLOSE_GRACEFUL_FLAG).unwrap();
        tell(&ia.transport);
        assert_eq!(number(connect), DAT_CONNECTION_EVENT_DISCONNECTED);

        // When it is up.
        let ep = endpoint(ia, DAT_COMPLETION_DEFAULT_FLAG, dto, connect);
        call(ep);
        ia.transport.tells_qp(Upcall::Established { private: b"", peer, local, depth });
        assert_eq!(number(connect), DAT_CONNECTION_EVENT_ESTABLISHED);
        tell(&ia.transport);
        let expected = [DAT_CONNECTION_EVENT_DISCONNECTED, DAT_CONNECTION_EVENT_BROKEN][end];
        assert_eq!(number(connect), expected);

        // While it is accepted.
        let ep = endpoint(ia, DAT_COMPLETION_DEFAULT_FLAG, dto, connect);
        let requests = evd(ia, DAT_EVD_CR_FLAG);
        psp::create(ia, Port::Qualifier(7), requests, DAT_PSP_CONSUMER_FLAG).unwrap();
        let listener = ia.transport.listener.lock().unwrap().unwrap();
        let (from, to) = (address(), address());
        listener.call(Upcall::Request { request: Nothing, from, to, private: b"" });
        // SAFETY: nobody dequeues meanwhile.
        let event = unsafe { requests.wait(0, 1) }.unwrap().event.unwrap();
        // SAFETY: a connection request that nobody has answered.
        let request: &Node<Cr<Told>> =
            unsafe { handle::get(event.event_data.cr_arrival_event_data.cr_handle) }.unwrap();
        // SAFETY: nobody uses the request any more.
        unsafe { cr::accept(request, Some(ep), b"") }.unwrap();
        tell(&ia.transport);
        assert_eq!(number(connect), DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR);
        // SAFETY: nobody dequeues meanwhile.
        assert!(unsafe { connect.wait(0, 1) }.unwrap().event.is_err(), "one event");
    }
}
