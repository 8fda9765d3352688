//! Queue pairs: posting, and what becomes of completions. How they are connected is in `link`.

use std::collections::VecDeque;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dat_core::provider::*;
use dat_core::{Error, Result, nesting};
use dat_sys::{DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_TEP};
use rdma_core_sys::*;

use crate::cm::Request;
use crate::cq::{self, Cq};
use crate::link::{End, Link};
use crate::mr::Domain;
use crate::mw::Pane;
use crate::side::{Side, Work};
use crate::srq::{self, Srq};
use crate::station::Station;
use crate::work::{MARK, RECEIVE, SHARED, operation, post_error, receive, request};
use crate::{Adapter, map};

/// Queue pair.
pub struct Qp(pub(crate) Arc<Pair>);

/// What threads share of it.
pub(crate) struct Pair {
    pub(crate) station: Arc<Station>,
    pub(crate) qp: NonNull<ibv_qp>,
    pub(crate) number: u32,
    pub(crate) on_srq: bool,
    pub(crate) link: Mutex<Link>,
    pub(crate) requests: Side,
    pub(crate) receives: Side,
    /// A request failed, or was flushed without our doing: told to the station once.
    pub(crate) failed: AtomicBool,
    /// What is flushed is of our doing.
    pub(crate) ours: AtomicBool,
    /// It may read from its peer.
    pub(crate) reads: AtomicBool,
    /// A request has completed without success.
    request_failed: AtomicBool,
    /// The device is not asked any more what became of what was posted.
    abandoned: AtomicBool,
    max_requests: usize,
    /// The queue of completions has room for what `wait_for_earlier` posts.
    waits: AtomicBool,
    /// It has room for requests whose success is told to us alone.
    hides: AtomicBool,
    /// A mark that tells how far requests have come is on its way: of so many.
    asked: AtomicU64,
    /// It never had a connection and is being dropped: what was posted is nobody's any more.
    withdrawn: AtomicBool,
    inline: usize,
    token: Token,
    pub(crate) holding: Arc<HeldBuffers>,
    sink: Mutex<Option<Sink<Adapter>>>,
    /// Nobody wants to know of requests, of which the queue holds so many: what completes is thrown away by who posts.
    mute: Option<usize>,
    /// Likewise of receives.
    deaf: Option<usize>,
    srq: Option<Arc<srq::Shared>>,
    pub(crate) send_cq: Arc<cq::Queue>,
    pub(crate) recv_cq: Arc<cq::Queue>,
    /// Binds that are queued, oldest first.
    binds: Mutex<VecDeque<Bind>>,
    domain: Arc<Domain>,
    /// Queues of nobody else's.
    _own: Option<Cq>,
}

/// A bind that is queued.
struct Bind {
    pane: Arc<Pane>,
    key: u32,
    /// The consumer wants to hear of it.
    wanted: bool,
}

// SAFETY: the library locks what threads share.
unsafe impl Send for Pair {}
// SAFETY: as above.
unsafe impl Sync for Pair {}

/// Everything that was posted before a graceful end has completed.
pub(crate) const SETTLED: u32 = 1;
/// Everything that was posted has been flushed.
pub(crate) const FLUSHED: u32 = 2;
/// Everything that was posted before somebody asked has completed.
const ASKED: u32 = 4;
/// Work requests of the provider's own in each queue: both marks.
pub(crate) const OWN: usize = 2;
/// And in the queue of requests, at a time: the mark [`ASKED`].
pub(crate) const ASKERS: usize = 1;
/// Completions of requests that are told to us alone, at most: see [`Pair::hides`], and the mark [`ASKED`].
const HIDDEN: usize = 4;

impl Qp {
    pub(crate) fn new(
        station: &Arc<Station>,
        cfg: QpCfg<'_, Adapter>,
        sink: Sink<Adapter>,
    ) -> Result<Qp> {
        let full = || Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_TEP);
        let receives = cfg.srq.map_or(cfg.max_recvs, Srq::slots);
        let own = match (cfg.request_cq, cfg.recv_cq) {
            (Some(_), Some(_)) => None,
            _ => Some(Cq::new(station, cfg.max_requests + receives + 2 * OWN, None)?),
        };
        let queue =
            |cq: Option<&Cq>| Arc::clone(&cq.or(own.as_ref()).expect("made where there is none").0);
        let (send_cq, recv_cq) = (queue(cfg.request_cq), queue(cfg.recv_cq));
        let srq = cfg.srq.map(|srq| Arc::clone(&srq.0));
        let mut attr = ibv_qp_init_attr {
            send_cq: send_cq.as_ptr(),
            recv_cq: recv_cq.as_ptr(),
            srq: srq.as_ref().map_or(ptr::null_mut(), |srq| srq.as_ptr()),
            qp_type: IBV_QPT_RC,
            cap: ibv_qp_cap {
                max_send_wr: (cfg.max_requests * station.device.places() + OWN + ASKERS) as u32,
                max_recv_wr: if srq.is_some() { 0 } else { (cfg.max_recvs + OWN) as u32 },
                max_send_sge: cfg.max_request_segments.max(1) as u32,
                max_recv_sge: if srq.is_some() { 0 } else { cfg.max_recv_segments.max(1) as u32 },
                max_inline_data: INLINE,
            },
            ..ibv_qp_init_attr::zeroed()
        };
        let verbs = &station.device.core.verbs;
        let domain = Arc::clone(&cfg.pd.0);
        let mut make = |inline| {
            attr.cap.max_inline_data = inline;
            // SAFETY: a live domain and live queues of the same device.
            NonNull::new(unsafe { (verbs.ibv_create_qp)(domain.pd.as_ptr(), &mut attr) })
        };
        // Not every device copies data.
        let qp = make(INLINE).or_else(|| make(0)).ok_or_else(full)?;
        let marks = if station.device.marks() { OWN } else { 0 };
        let reserved = send_cq
            .reserve(marks)
            .and_then(|()| recv_cq.reserve(marks).inspect_err(|_| send_cq.release(marks)));
        if let Err(error) = reserved {
            // SAFETY: nobody else has it.
            unsafe { (verbs.ibv_destroy_qp)(qp.as_ptr()) };
            return Err(error);
        }
        let pair = Arc::new(Pair {
            station: Arc::clone(station),
            qp,
            // SAFETY: live.
            number: unsafe { qp.as_ref() }.qp_num,
            on_srq: srq.is_some(),
            link: Mutex::default(),
            requests: Side::new(attr.cap.max_send_wr.max((cfg.max_requests + OWN + ASKERS) as u32)),
            receives: Side::new(attr.cap.max_recv_wr.max(cfg.max_recvs as u32 + OWN as u32)),
            failed: AtomicBool::new(false),
            ours: AtomicBool::new(false),
            reads: AtomicBool::new(false),
            request_failed: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
            max_requests: cfg.max_requests,
            waits: AtomicBool::new(false),
            hides: AtomicBool::new(false),
            asked: AtomicU64::new(0),
            withdrawn: AtomicBool::new(false),
            inline: attr.cap.max_inline_data as usize,
            token: cfg.token,
            holding: cfg.holding,
            sink: Mutex::new(Some(sink)),
            mute: cfg.request_cq.is_none().then_some(cfg.max_requests),
            deaf: cfg.recv_cq.is_none().then_some(cfg.max_recvs),
            srq,
            send_cq,
            recv_cq,
            binds: Mutex::default(),
            domain,
            _own: own,
        });
        let mut attr = ibv_qp_attr {
            qp_state: IBV_QPS_INIT,
            port_num: station.device.port,
            qp_access_flags: IBV_ACCESS_REMOTE_READ
                | IBV_ACCESS_REMOTE_WRITE
                | IBV_ACCESS_REMOTE_ATOMIC,
            ..ibv_qp_attr::zeroed()
        };
        if station.device.is_iwarp() {
            attr.qp_access_flags &= !IBV_ACCESS_REMOTE_ATOMIC;
        }
        let mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
        if !pair.modify(&mut attr, mask) {
            return Err(full());
        }
        if let Some(srq) = pair.srq.as_ref().filter(|_| pair.deaf.is_some()) {
            // Nobody posts here, and would find out what has completed.
            srq.add_unheard(&pair.recv_cq, receives)?;
            pair.recv_cq.leave_to_station();
        }
        station.add_pair(&pair);
        Ok(Qp(pair))
    }
}

/// Octets that a request carries itself, so that the device need not fetch them.
const INLINE: u32 = 64;

impl Drop for Qp {
    fn drop(&mut self) {
        let pair = &*self.0;
        // Waits for an upcall that is under way; there are none after this.
        *pair.sink.lock().unwrap_or_else(PoisonError::into_inner) = None;
        pair.withdrawn.store(!pair.has_begun(), Ordering::Release);
        // What was posted completes; a device that does not flush is not waited for longer than this.
        pair.end(End::Dropped);
        let start = Instant::now();
        while !pair.go_on() && start.elapsed() < Duration::from_secs(1) {
            std::thread::yield_now();
        }
        pair.give_up();
        while pair.bind_ended(false).is_some() {}
        pair.station.panes.forget_pair(pair.number);
        let forget = || pair.station.forget_pair(pair);
        match Arc::ptr_eq(&pair.send_cq, &pair.recv_cq) {
            true => pair.send_cq.alone(forget),
            false => pair.send_cq.alone(|| pair.recv_cq.alone(forget)),
        }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        // SAFETY: nobody posts to it any more, and its number is not in the table.
        unsafe { (self.station.device.core.verbs.ibv_destroy_qp)(self.qp.as_ptr()) };
        let marks = if self.station.device.marks() { OWN } else { 0 };
        let waits = if *self.waits.get_mut() { self.max_requests } else { 0 };
        let hidden = if *self.hides.get_mut() { HIDDEN } else { 0 };
        self.send_cq.release(marks + waits + hidden);
        self.recv_cq.release(marks);
    }
}

// SAFETY: by the number of the promise:
// 1. `Side::take` knows a request or receive until it completes; who flushes what the device keeps back
//    (`abandon`) takes it from there as well, and sees to it that the device's word on it is not heard.
//    Devices complete in order.
// 2. `drop` takes the number out of the table and out of the station.
// 3. `Side::carried_out` counts what completed with success, in order; a success that nobody wanted is not
//    handed on.
// 4. `Pair::complete` tells of each buffer that a message has taken.
unsafe impl Queue<Adapter> for Qp {
    unsafe fn post_send(&self, wr: &SendWr<'_>) -> std::result::Result<(), PostError> {
        let _work = nesting::work();
        let (pair, side) = (&*self.0, &self.0.requests);
        let (op, bytes) = (operation(&wr.op)?, wr.segments.iter().map(|s| s.len).sum());
        // SAFETY: one thread at a time posts, as the caller promises.
        let Some(_inside) = (unsafe { side.gate.enter() }) else {
            if pair.mute.is_none() {
                side.post_late(&pair.send_cq, pair.flushed(wr.id, op));
            }
            return Ok(());
        };
        pair.has_room(side, pair.mute, &pair.send_cq)?;
        let copies = !matches!(op, WcOp::Read | WcOp::FetchAdd | WcOp::CompareSwap);
        // Data are copied as they are now, and nobody looks at keys: behind a fence they may not have been read yet.
        let inline = copies
            && bytes as usize <= pair.inline
            && bytes > 0
            && !wr.fence
            && pair.lends(wr.segments);
        let unfit = !inline && pair.domain.is_unfit(wr.segments, !copies);
        let hidden = !wr.signalled && pair.mute.is_none() && pair.hides();
        let mut work = request(wr, side.fill(Work { id: wr.id, op, bytes, unfit, hidden }));
        if wr.signalled || pair.mute.is_some() || hidden {
            work.send_flags |= IBV_SEND_SIGNALED;
        }
        if inline {
            work.send_flags |= IBV_SEND_INLINE;
        }
        // SAFETY: the caller's promise.
        post_error(unsafe { pair.post(&mut work) })?;
        side.posted();
        Ok(())
    }

    unsafe fn post_bind(&self, wr: &BindWr<'_, Adapter>) -> std::result::Result<u32, PostError> {
        let _work = nesting::work();
        let (pair, side) = (&*self.0, &self.0.requests);
        let pane = wr.window.pane();
        pane.check(&pair.domain, wr.view.as_ref())?;
        // SAFETY: one thread at a time posts, as the caller promises.
        let Some(_inside) = (unsafe { side.gate.enter() }) else {
            if pair.mute.is_none() {
                side.post_late(&pair.send_cq, pair.flushed(wr.id, WcOp::Bind));
            }
            return Ok(pane.lost(wr.view.is_none()));
        };
        pair.has_room(side, pair.mute, &pair.send_cq)?;
        pair.wait_for_earlier()?;
        let at =
            side.fill(Work { id: wr.id, op: WcOp::Bind, bytes: 0, unfit: false, hidden: false });
        // Held meanwhile: it may complete at once.
        let mut binds = pair.binds();
        // SAFETY: no memory of the consumer's.
        let key = pane.post(wr, (at, pair.qp), |work| unsafe { pair.post(work) });
        let key = key.map_err(|errno| post_error(errno).expect_err("it failed"))?;
        binds.push_back(Bind { pane: Arc::clone(pane), key, wanted: wr.signalled });
        drop(binds);
        side.posted();
        Ok(key)
    }

    unsafe fn post_recv(&self, wr: &RecvWr<'_>) -> std::result::Result<(), PostError> {
        let _work = nesting::work();
        let (pair, side) = (&*self.0, &self.0.receives);
        // SAFETY: one thread at a time posts, as the caller promises.
        let Some(_inside) = (unsafe { side.gate.enter() }) else {
            if pair.deaf.is_none() {
                side.post_late(&pair.recv_cq, pair.flushed(wr.id, WcOp::Recv));
            }
            return Ok(());
        };
        pair.has_room(side, pair.deaf, &pair.recv_cq)?;
        let unfit = pair.domain.is_unfit(wr.segments, true);
        let at = side.fill(Work { id: wr.id, op: WcOp::Recv, bytes: 0, unfit, hidden: false });
        let mut work = receive(wr, at | RECEIVE, pair.station.device.software);
        // SAFETY: the caller's promise.
        post_error(unsafe { pair.post_receive(&mut work) })?;
        side.posted();
        Ok(())
    }

    fn connect(&self, to: &Connect<'_>) -> Result<()> {
        self.0.connect(to)
    }

    fn accept(&self, request: Request, private: &[u8], depth: ReadDepth) -> Result<()> {
        self.0.accept(request, private, depth)
    }

    fn disconnect(&self, how: Close) {
        let pair = &self.0;
        let called = pair.end(match how {
            Close::Graceful => End::Graceful,
            Close::Abrupt => End::Abrupt,
        });
        if called {
            pair.hang_up();
        }
        pair.station.settle(pair);
    }

    fn allocated(&self) -> Allocated {
        let buffers = if self.0.on_srq { 0 } else { self.0.receives.outstanding() };
        Allocated { buffers, span: buffers }
    }

    unsafe fn carried_out(&self) -> u64 {
        let _work = nesting::work();
        let (pair, side) = (&*self.0, &self.0.requests);
        if side.carried_out() < side.count() {
            pair.send_cq.pump();
            // SAFETY: the caller's promise.
            unsafe { pair.ask() };
        }
        side.carried_out()
    }

    fn withdrawn(&self) -> usize {
        if self.0.has_begun() || self.0.on_srq { 0 } else { self.0.receives.outstanding() }
    }
}

impl Pair {
    /// All data are where the segments say, and may be sent.
    #[inline]
    fn lends(&self, segments: &[Segment]) -> bool {
        let (keys, domain) = (&self.domain.device.keys, self.domain.name());
        segments.iter().all(|segment| keys.lend(segment, domain))
    }

    /// # Safety
    /// The memory of the list stays valid until it completes.
    unsafe fn post(&self, work: &mut ibv_send_wr) -> i32 {
        let mut bad = ptr::null_mut();
        // SAFETY: live; as the caller promised.
        unsafe { self.station.device.core.verbs.ibv_post_send(self.qp.as_ptr(), work, &mut bad) }
    }

    /// # Safety
    /// As above.
    unsafe fn post_receive(&self, work: &mut ibv_recv_wr) -> i32 {
        let mut bad = ptr::null_mut();
        // SAFETY: live; as the caller promised.
        unsafe { self.station.device.core.verbs.ibv_post_recv(self.qp.as_ptr(), work, &mut bad) }
    }

    /// Where nobody takes completions, those who post make room: in the queue, and in that of completions, of which a device may not
    /// keep as many back.
    #[inline]
    fn has_room(
        &self,
        side: &Side,
        most: Option<usize>,
        cq: &cq::Queue,
    ) -> std::result::Result<(), PostError> {
        let Some(most) = most else { return Ok(()) };
        if side.outstanding() >= most {
            cq.pump();
        }
        if side.outstanding() < most { Ok(()) } else { Err(PostError::Full) }
    }

    /// The next request, which is fenced, starts when all before it have completed. Devices see to that where it matters, but rxe
    /// (6.12): there a bind starts at once, and again when a request before it has to be repeated, which breaks the connection
    /// (`req_retry`). An empty read ends after all before it, if reads were agreed on.
    fn wait_for_earlier(&self) -> std::result::Result<(), PostError> {
        if !self.station.device.is_rxe()
            || !self.reads.load(Ordering::Relaxed)
            || !self.requests.is_busy()
        {
            return Ok(());
        }
        self.reserve_for_waits()?;
        // If it fails, what comes after it is flushed, which tells.
        let mut work =
            ibv_send_wr { wr_id: MARK, opcode: IBV_WR_RDMA_READ, ..ibv_send_wr::zeroed() };
        // SAFETY: no memory.
        post_error(unsafe { self.post(&mut work) })
    }

    /// A device forgets a request that completes in silence only with a later one that does not: now and then one of them
    /// completes, which is told to us alone. Where there is no room for that, they wait for the consumer's own.
    #[inline]
    fn hides(&self) -> bool {
        let one_in = (self.max_requests as u32 / 2).max(1);
        self.requests.hides(one_in)
            && (self.hides.load(Ordering::Relaxed) || self.reserve_for_hidden())
    }

    #[cold]
    fn reserve_for_hidden(&self) -> bool {
        let new = !self.hides.swap(true, Ordering::Relaxed);
        let reserved = !new || self.send_cq.reserve(HIDDEN).is_ok();
        if !reserved {
            self.hides.store(false, Ordering::Relaxed);
        }
        reserved
    }

    /// Somebody wants to know how far requests have come, and the last ones complete in silence: a mark
    /// behind them tells.
    ///
    /// # Safety
    /// No other thread posts requests meanwhile.
    #[cold]
    unsafe fn ask(&self) {
        let side = &self.requests;
        let count = side.count();
        if count <= side.carried_out() || !side.is_busy() || !self.is_up() {
            return;
        }
        // SAFETY: the caller's promise.
        let Some(_inside) = (unsafe { side.gate.enter() }) else { return };
        let free =
            self.asked.compare_exchange(0, count, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if free && !(self.reserve_for_hidden() && self.mark_requests(ASKED)) {
            self.asked.store(0, Ordering::Release);
        }
    }

    /// Those reads complete when they are flushed.
    #[cold]
    fn reserve_for_waits(&self) -> std::result::Result<(), PostError> {
        if !self.waits.swap(true, Ordering::Relaxed)
            && self.send_cq.reserve(self.max_requests).is_err()
        {
            self.waits.store(false, Ordering::Relaxed);
            return Err(PostError::Full);
        }
        Ok(())
    }

    /// Posts a request that does nothing: when it completes, all before it have. False: there was no room.
    pub(crate) fn mark_requests(&self, mark: u32) -> bool {
        let mut work = ibv_send_wr {
            wr_id: MARK | u64::from(mark),
            opcode: IBV_WR_RDMA_WRITE,
            send_flags: IBV_SEND_SIGNALED,
            ..ibv_send_wr::zeroed()
        };
        // SAFETY: no memory.
        unsafe { self.post(&mut work) == 0 }
    }

    /// The same for receives, without a buffer; in the error state soon.
    pub(crate) fn mark_receives(&self) -> bool {
        let mut work =
            ibv_recv_wr { wr_id: MARK | RECEIVE | u64::from(FLUSHED), ..ibv_recv_wr::zeroed() };
        // SAFETY: no memory.
        unsafe { self.post_receive(&mut work) == 0 }
    }

    pub(crate) fn modify(&self, attr: &mut ibv_qp_attr, mask: ibv_qp_attr_mask) -> bool {
        // SAFETY: live.
        unsafe { (self.station.device.core.verbs.ibv_modify_qp)(self.qp.as_ptr(), attr, mask) == 0 }
    }

    /// The device has put it into the error state.
    pub(crate) fn is_in_error(&self) -> bool {
        let (mut attr, mut init) = (ibv_qp_attr::zeroed(), ibv_qp_init_attr::zeroed());
        let query = self.station.device.core.verbs.ibv_query_qp;
        // SAFETY: live, and room for the answers.
        unsafe {
            query(self.qp.as_ptr(), &mut attr, IBV_QP_STATE, &mut init) == 0
                && attr.qp_state == IBV_QPS_ERR
        }
    }

    fn flushed(&self, id: u64, op: WcOp) -> Wc {
        let status = WcStatus::Flushed;
        Wc { id, qp: self.token, bytes: 0, invalidated: None, immediate: None, op, status }
    }

    /// What the device has not completed is flushed without it.
    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Release);
        let sides = [
            (&self.requests, &self.send_cq, self.mute),
            (&self.receives, &self.recv_cq, self.deaf),
        ];
        for (side, queue, unheard) in sides {
            let mut pending = Vec::new();
            queue.alone(|| pending = side.pending());
            for (id, op) in pending {
                if op == WcOp::Bind {
                    self.bind_ended(false);
                }
                if unheard.is_none() {
                    queue.add(self.flushed(id, op));
                }
            }
        }
    }

    /// A completion of the device's, in dat-core's words; none: it is a mark.
    #[inline]
    pub(crate) fn complete(&self, wc: &ibv_wc) -> Option<Wc> {
        if wc.wr_id & MARK != 0 {
            let side = if wc.wr_id & RECEIVE != 0 { &self.receives } else { &self.requests };
            if wc.wr_id as u32 == ASKED {
                let count = self.asked.swap(0, Ordering::AcqRel);
                if map::status(wc.status) == WcStatus::Success {
                    self.requests.succeeded_up_to(count);
                }
                return None;
            }
            side.marks.fetch_or(wc.wr_id as u32, Ordering::Release);
            return None;
        }
        let status = map::status(wc.status);
        if status != WcStatus::Success {
            // Over iWARP the device flushes when the peer leaves, and of that there is news.
            if status != WcStatus::Flushed || !self.station.device.is_iwarp() {
                self.fail();
            }
            if self.abandoned.load(Ordering::Acquire) {
                return None;
            }
        }
        let with =
            |flag| (wc.wc_flags & flag != 0 && status == WcStatus::Success).then_some(wc.imm_data);
        // The shared queue's slots are not marked as receives.
        let from_srq =
            self.srq.as_ref().filter(|_| wc.wr_id & RECEIVE == 0 && wc.wr_id & SHARED != 0);
        if wc.wr_id & RECEIVE != 0 || from_srq.is_some() {
            let at = (wc.wr_id & !(RECEIVE | SHARED)) as usize;
            let (id, unfit) = match from_srq {
                Some(srq) => srq.took(at),
                None => self.receives.take(at).map(|work| (work.id, work.unfit))?,
            };
            let status = match status {
                WcStatus::Success => status,
                _ => map::receive(self.station.device.software, wc.status, unfit),
            };
            // Of a shared queue's buffers each is counted back.
            if status != WcStatus::Flushed || from_srq.is_some() {
                self.took();
            }
            let immediate = with(IBV_WC_WITH_IMM);
            let invalidated = with(self.station.invalidated);
            invalidated.iter().for_each(|&key| self.station.panes.invalidated(key));
            if self.deaf.is_some() || self.withdrawn.load(Ordering::Acquire) {
                return None;
            }
            let bytes = if status == WcStatus::Success { wc.byte_len } else { 0 };
            return Some(Wc {
                id,
                qp: self.token,
                bytes,
                invalidated,
                immediate,
                op: WcOp::Recv,
                status,
            });
        }
        let Work { id, op, bytes, unfit, hidden } = self.requests.take(wc.wr_id as usize)?;
        if status == WcStatus::Success || self.mute.is_some() {
            self.requests.succeeded(wc.wr_id as usize);
        }
        let status = match status {
            WcStatus::Success => status,
            _ => {
                let others = self.request_failed.swap(true, Ordering::Relaxed);
                let first = !others && !self.ours.load(Ordering::Acquire);
                map::request(self.station.device.software, wc.status, op, unfit, first)
            }
        };
        if op == WcOp::Bind {
            let wanted = self.bind_ended(status == WcStatus::Success)?;
            if !wanted && status == WcStatus::Success {
                return None;
            }
        }
        if self.mute.is_some() || hidden && status == WcStatus::Success {
            return None;
        }
        let bytes = if status == WcStatus::Success { bytes } else { 0 };
        Some(Wc { id, qp: self.token, bytes, invalidated: None, immediate: None, op, status })
    }

    fn binds(&self) -> MutexGuard<'_, VecDeque<Bind>> {
        self.binds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The oldest bind has ended: whether the consumer wants to hear of it. None: there is none.
    #[cold]
    fn bind_ended(&self, done: bool) -> Option<bool> {
        let bind = self.binds().pop_front()?;
        bind.pane.ended(bind.key, done);
        Some(bind.wanted)
    }

    fn took(&self) {
        let exceeded = self.holding.buffer_taken();
        if exceeded.soft {
            self.call(Upcall::HighWatermark);
        }
        if exceeded.hard {
            self.fail();
        }
    }

    /// The device says that it has failed.
    pub(crate) fn break_down(&self) {
        self.call(Upcall::Failed);
        self.fail();
    }

    /// It is in the error state, or has to be.
    #[cold]
    pub(crate) fn fail(&self) {
        if !self.failed.swap(true, Ordering::AcqRel) {
            self.station.broken(self.number);
        }
    }

    pub(crate) fn call(&self, up: Upcall<'_, Adapter>) {
        if let Some(sink) = &*self.sink.lock().unwrap_or_else(PoisonError::into_inner) {
            sink.call(up);
        }
    }
}
