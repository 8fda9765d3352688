//! What an adapter's threads share: who has news of what, and who looks for them.
//!
//! The station's own thread sleeps on the event channel of rdma_cm, the device's asynchronous events, and the completion queues
//! that are attended: what consumers sleep on themselves it does not look at. Whoever ends a connection takes that as far as it
//! gets, one thread at a time.

use std::collections::{BTreeSet, HashMap};
use std::ffi::c_uint;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use dat_core::nesting;
use dat_core::provider::{Sink, Upcall};
use rdma_core_sys::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::cm::{Channel, Id};
use crate::cq;
use crate::descriptor::Bell;
use crate::device::Device;
use crate::link::{End, QP_FAILED};
use crate::map::{self, DeviceNews};
use crate::mw::Panes;
use crate::numbers::Numbers;
use crate::qp::Pair;
use crate::{Adapter, srq};

/// See above.
pub(crate) struct Station {
    pub(crate) device: Arc<Device>,
    /// Dropped before the channel: see [`Channel::witness`].
    _witness: Id,
    pub(crate) channel: Channel,
    /// For who polls.
    pub(crate) numbers: Numbers<Pair>,
    pub(crate) panes: Arc<Panes>,
    /// For who has a name from rdma_cm.
    pairs: Mutex<HashMap<u32, Weak<Pair>>>,
    cqs: Mutex<Vec<Weak<cq::Queue>>>,
    srqs: Mutex<Vec<Weak<srq::Shared>>>,
    /// Who hears of the whole adapter.
    sink: Mutex<Option<Sink<Adapter>>>,
    /// Pairs whose connection is about to end; and those that have failed.
    ending: Mutex<Vec<Arc<Pair>>>,
    /// There are some: for who polls.
    unfinished: AtomicBool,
    failed: Mutex<Vec<u32>>,
    deadlines: Mutex<BTreeSet<(Instant, u32)>>,
    /// Who has it handles events.
    desk: Mutex<()>,
    /// Its own thread's.
    bell: Bell,
    /// The flags of a completion that has a key which the peer has invalidated.
    pub(crate) invalidated: c_uint,
    /// Looks in vain, where those give way ([`GIVE_WAY`]).
    looks: Option<AtomicU32>,
    /// The device is of no use any more, and that has been told.
    lost: AtomicBool,
    stop: AtomicBool,
}

/// Whom an asynchronous event concerns; none: it is about to end.
enum Whom {
    Pair(Option<Arc<Pair>>),
    Queue(Option<Arc<cq::Queue>>),
    Shared(Option<Arc<srq::Shared>>),
    Device,
    Nobody,
}

/// A consumer that polls gives its processor up once in so many looks, where the kernel does the device's work and may wait for it.
const GIVE_WAY: u32 = 64;

/// How long the station waits before it looks for queue pairs that have failed, while there are connections: twice as long each
/// time that nothing has happened, up to a limit.
const TICK: Duration = Duration::from_millis(50);
const LONGEST_TICK: Duration = Duration::from_secs(1);

/// How long it waits before it looks again at connections that end; likewise, up to a tick.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Station {
    pub(crate) fn new(device: Arc<Device>, channel: Channel, witness: Id, bell: Bell) -> Station {
        channel.unblock();
        device.unblock();
        // rxe hands on the kernel's flag, which for who counts in verbs' way is one of datagrams.
        let invalidated =
            if device.is_rxe() { IBV_WC_WITH_INV | IBV_WC_IP_CSUM_OK } else { IBV_WC_WITH_INV };
        let looks = device.software.map(|_| AtomicU32::default());
        Station {
            device,
            _witness: witness,
            channel,
            numbers: Numbers::new(),
            panes: Arc::default(),
            pairs: Mutex::default(),
            cqs: Mutex::default(),
            srqs: Mutex::default(),
            sink: Mutex::default(),
            ending: Mutex::default(),
            unfinished: AtomicBool::new(false),
            failed: Mutex::default(),
            deadlines: Mutex::default(),
            desk: Mutex::default(),
            bell,
            invalidated,
            looks,
            lost: AtomicBool::new(false),
            stop: AtomicBool::new(false),
        }
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.bell.ring();
    }

    /// Nobody handles anything any more: what was left to end ends with its owners.
    pub(crate) fn clear(&self) {
        let left = std::mem::take(&mut *lock(&self.ending));
        drop(left);
    }

    pub(crate) fn add_pair(&self, pair: &Arc<Pair>) {
        let mut pairs = lock(&self.pairs);
        pairs.insert(pair.number, Arc::downgrade(pair));
        self.numbers.insert(pair.number, Arc::as_ptr(pair));
    }

    pub(crate) fn forget_pair(&self, pair: &Pair) {
        let mut pairs = lock(&self.pairs);
        pairs.remove(&pair.number);
        self.numbers.remove(pair.number);
        drop(pairs);
        lock(&self.ending).retain(|other| other.number != pair.number);
    }

    pub(crate) fn pair(&self, number: u32) -> Option<Arc<Pair>> {
        lock(&self.pairs).get(&number)?.upgrade()
    }

    pub(crate) fn add_cq(&self, queue: &Arc<cq::Queue>) {
        lock(&self.cqs).push(Arc::downgrade(queue));
    }

    pub(crate) fn forget_cq(&self, queue: &Arc<cq::Queue>) {
        lock(&self.cqs).retain(|other| other.as_ptr() != Arc::as_ptr(queue));
    }

    pub(crate) fn add_srq(&self, queue: &Arc<srq::Shared>) {
        let mut srqs = lock(&self.srqs);
        srqs.retain(|other| other.strong_count() > 0);
        srqs.push(Arc::downgrade(queue));
    }

    pub(crate) fn watch(&self, sink: Option<Sink<Adapter>>) {
        *lock(&self.sink) = sink;
    }

    fn cqs(&self) -> Vec<Arc<cq::Queue>> {
        lock(&self.cqs).iter().filter_map(Weak::upgrade).collect()
    }

    /// Its own thread looks again at what there is to do.
    pub(crate) fn ring(&self) {
        self.bell.ring();
    }

    /// A pair has failed.
    pub(crate) fn broken(&self, number: u32) {
        lock(&self.failed).push(number);
        self.bell.ring();
    }

    pub(crate) fn remind(&self, number: u32, at: Instant) {
        lock(&self.deadlines).insert((at, number));
        self.bell.ring();
    }

    /// The end of a pair's connection has begun: brings it as far as it gets at once.
    pub(crate) fn settle(&self, pair: &Arc<Pair>) {
        {
            let mut ending = lock(&self.ending);
            ending.push(Arc::clone(pair));
            self.unfinished.store(true, Ordering::Release);
        }
        self.handle();
        self.bell.ring();
    }

    /// Handles what there is, unless another thread does.
    pub(crate) fn handle(&self) {
        let Ok(_desk) = self.desk.try_lock() else { return };
        while self.channel.take(self) {}
        let failed = std::mem::take(&mut *lock(&self.failed));
        // A number may be another's by now.
        let failed = failed.into_iter().filter_map(|number| self.pair(number));
        for pair in failed.filter(|pair| pair.failed.load(Ordering::Acquire)) {
            pair.end(End::Broken(QP_FAILED));
            lock(&self.ending).push(pair);
        }
        let now = Instant::now();
        loop {
            let first = lock(&self.deadlines).first().copied().filter(|(at, _)| *at <= now);
            let Some(due) = first else { break };
            lock(&self.deadlines).remove(&due);
            if let Some(pair) = self.pair(due.1)
                && let Some(end) = pair.on_deadline(now)
            {
                let called = pair.end(end);
                if called {
                    pair.hang_up();
                }
                lock(&self.ending).push(pair);
                self.bell.ring();
            }
        }
        let ending = std::mem::take(&mut *lock(&self.ending));
        let left: Vec<_> = ending.into_iter().filter(|pair| !pair.go_on()).collect();
        let mut ending = lock(&self.ending);
        ending.extend(left);
        // Under the lock: nobody's addition is overlooked.
        self.unfinished.store(!ending.is_empty(), Ordering::Release);
    }

    /// The kernel does the device's work, and may wait for a consumer's processor.
    pub(crate) fn gives_way(&self) -> bool {
        self.looks.is_some()
    }

    /// Looks for news without waiting.
    pub(crate) fn look(&self) {
        let _work = nesting::work();
        if self.unfinished.load(Ordering::Relaxed) {
            self.handle();
        }
        if let Some(looks) = &self.looks {
            // Of several threads that poll some count for nothing.
            let count = looks.load(Ordering::Relaxed).wrapping_add(1);
            looks.store(count, Ordering::Relaxed);
            if count % GIVE_WAY == 0 {
                std::thread::yield_now();
            }
        }
    }

    /// The station's own thread.
    pub(crate) fn run(&self) {
        let (mut tick, mut looked, mut pause) = (TICK, Instant::now(), SHORTEST_PAUSE);
        // A device that was taken away has nothing to tell any more, and its descriptors are ready for ever.
        let is_over = |revents: PollFlags| {
            revents.intersects(PollFlags::ERR | PollFlags::HUP) && !revents.contains(PollFlags::IN)
        };
        let mut tells = true;
        while !self.stop.load(Ordering::Acquire) {
            let mut queues = self.cqs();
            queues.retain(|queue| queue.attended.load(Ordering::Acquire));
            let mut fds = vec![
                PollFd::new(&self.bell, PollFlags::IN),
                PollFd::new(&self.channel, PollFlags::IN),
            ];
            fds.extend(queues.iter().map(|queue| PollFd::new(queue, PollFlags::IN)));
            fds.extend(
                tells.then(|| PollFd::from_borrowed_fd(self.device.async_fd(), PollFlags::IN)),
            );
            let limit = self.limit(looked + tick, pause);
            // What there is to do is looked at whatever this says.
            let _ = poll(&mut fds, limit.as_ref());
            let revents: Vec<_> = fds.iter().map(PollFd::revents).collect();
            drop(fds);
            // An end may wait for a peer, which may take its time.
            pause = (2 * pause).min(TICK);
            if !revents[0].is_empty() {
                self.bell.settle();
                pause = SHORTEST_PAUSE;
            }
            if !revents[1].is_empty() {
                tick = TICK;
            }
            let (of_queues, of_device) = revents[2..].split_at(queues.len());
            for &revents in of_device.iter().filter(|revents| !revents.is_empty()) {
                self.take_async();
                tells = !is_over(revents);
            }
            for (queue, &revents) in
                queues.iter().zip(of_queues).filter(|(_, revents)| !revents.is_empty())
            {
                queue.serve();
                if is_over(revents) {
                    queue.attended.store(false, Ordering::Release);
                }
            }
            if looked.elapsed() >= tick {
                tick = if self.look_for_news() { TICK } else { (2 * tick).min(LONGEST_TICK) };
                looked = Instant::now();
            }
            self.handle();
        }
    }

    /// No device tells of a request that has failed but by its completion, and the consumer may wait for the news before it takes
    /// that; so it may for a watermark. True: something has happened since the last time, or there is a watermark.
    fn look_for_news(&self) -> bool {
        let mut stirred = false;
        for pair in self.pairs().iter().filter(|pair| pair.is_up()) {
            let [[posted, sent], [_, received]] =
                [&pair.requests, &pair.receives].map(|side| side.stirred());
            stirred |= posted || sent || received;
            if pair.holding.is_limited() {
                // Buffers are counted as their completions are taken, and the consumer may leave them there.
                pair.recv_cq.pump();
                stirred = true;
            }
            if !sent && pair.requests.is_busy() {
                pair.send_cq.pump();
            }
            // What was wrong with a message: rxe tells of it by the receive alone.
            if self.device.is_rxe() && !sent && !received && pair.is_in_error() {
                pair.fail();
            }
        }
        stirred
    }

    fn pairs(&self) -> Vec<Arc<Pair>> {
        lock(&self.pairs).values().filter_map(Weak::upgrade).collect()
    }

    /// How long nothing happens by itself. `look`: when to look for failures, while there are connections; `pause`: how long to
    /// leave those alone that end.
    fn limit(&self, look: Instant, pause: Duration) -> Option<Timespec> {
        // Who is at the desk may have taken both lists there, and tells nobody what is left of them.
        let desk = self.desk.try_lock();
        let taken = desk.is_err();
        let unfinished = taken || !lock(&self.ending).is_empty() || !lock(&self.failed).is_empty();
        drop(desk);
        // What is due is who is at the desk's.
        if taken {
            return Timespec::try_from(pause).ok();
        }
        let look = self.pairs().iter().any(|pair| pair.is_up()).then_some(look);
        let due = lock(&self.deadlines).first().map(|(at, _)| *at);
        let due = due
            .into_iter()
            .chain(look)
            .min()
            .map(|at| at.saturating_duration_since(Instant::now()));
        let limit = unfinished.then_some(pause).into_iter().chain(due).min()?;
        Timespec::try_from(limit).ok()
    }

    /// Those who sleep on a queue look again.
    pub(crate) fn interrupt(&self) {
        self.cqs().iter().for_each(|queue| queue.interrupt());
    }

    /// Asynchronous events of the device.
    fn take_async(&self) {
        let verbs = &self.device.core.verbs;
        let mut event = ibv_async_event::zeroed();
        // SAFETY: an open context whose descriptor does not block.
        while unsafe { (verbs.ibv_get_async_event)(self.device.context.as_ptr(), &mut event) } == 0
        {
            let news = map::device_news(event.event_type);
            let whom = self.whom(news, &event.element);
            // Before anything is done: who is concerned may end here, and its end waits for this.
            // SAFETY: taken above.
            unsafe { (verbs.ibv_ack_async_event)(&mut event) };
            self.tell(news, whom);
        }
    }

    /// Whom an event concerns, while that waits for it to be acknowledged.
    fn whom(&self, news: DeviceNews, element: &ibv_async_element) -> Whom {
        match news {
            DeviceNews::QpBroken | DeviceNews::QpDrained => {
                // SAFETY: the type says which member.
                Whom::Pair(self.pair(unsafe { (*element.qp).qp_num }))
            }
            DeviceNews::CqOverflow => {
                // SAFETY: as above.
                let cq = unsafe { element.cq };
                Whom::Queue(self.cqs().into_iter().find(|queue| queue.as_ptr() == cq))
            }
            DeviceNews::SrqLimit | DeviceNews::SrqBroken => {
                // SAFETY: as above.
                let srq = unsafe { element.srq };
                let srqs = lock(&self.srqs);
                Whom::Shared(
                    srqs.iter().filter_map(Weak::upgrade).find(|queue| queue.as_ptr() == srq),
                )
            }
            // SAFETY: as above.
            DeviceNews::PortDown if unsafe { element.port_num } != i32::from(self.device.port) => {
                Whom::Nobody
            }
            _ => Whom::Device,
        }
    }

    fn tell(&self, news: DeviceNews, whom: Whom) {
        match (news, whom) {
            (DeviceNews::QpBroken, Whom::Pair(Some(pair))) => pair.break_down(),
            // It takes nothing from its shared queue: that is the error state.
            (DeviceNews::QpDrained, Whom::Pair(Some(pair))) if pair.is_up() => pair.fail(),
            (DeviceNews::CqOverflow, Whom::Queue(Some(queue))) => queue.call(Upcall::CqOverflow),
            (DeviceNews::SrqLimit, Whom::Shared(Some(queue))) => queue.call(Upcall::LowWatermark),
            (DeviceNews::SrqBroken, Whom::Shared(Some(queue))) => queue.call(Upcall::Failed),
            (DeviceNews::DeviceFatal, Whom::Device) => self.lose_device(),
            (DeviceNews::PortDown, Whom::Device) => self.call(Upcall::PortDown),
            _ => {}
        }
    }

    /// The device is of no use any more; the kernel may wait for its users to let go of it.
    pub(crate) fn lose_device(&self) {
        if !self.lost.swap(true, Ordering::AcqRel) {
            self.call(Upcall::Failed);
        }
        for pair in self.pairs().iter().filter(|pair| pair.is_up()) {
            pair.fail();
        }
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    fn call(&self, up: Upcall<'_, Adapter>) {
        if let Some(sink) = &*lock(&self.sink) {
            sink.call(up);
        }
    }
}
