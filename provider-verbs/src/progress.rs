//! The state that all threads of an adapter share, and the progress thread.
//!
//! The progress thread sleeps on the event channel of rdma_cm, on the device's asynchronous events,
//! and on the channels of completion queues that no consumer sleeps on. A thread that ends a
//! connection does as much of that work as is possible at once, and the progress thread does the
//! rest. Only one thread at a time does this work.

use std::collections::{BTreeSet, HashMap};
use std::ffi::c_uint;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use dat_core::provider::{Sink, Upcall};
use rdma_core_sys::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use waiting::nesting;

use crate::address::AddressHandle;
use crate::cm::{Channel, CmId};
use crate::connection::{EndCause, QP_FAILED};
use crate::cq;
use crate::descriptor::EventFd;
use crate::device::Device;
use crate::map::{self, DeviceEvent};
use crate::mr::Domain;
use crate::mw::WindowTable;
use crate::qp::QpShared;
use crate::qp_table::QpTable;
use crate::resolution::{AttemptKey, Attempts};
use crate::{Adapter, srq};

/// The state that all threads of an adapter share.
pub(crate) struct ProgressContext {
    pub(crate) device: Arc<Device>,
    /// An identifier that is bound to the device, so that rdma_cm reports the removal of the
    /// device: see [`Channel::bind_to_device`]. This field is declared before `channel`, so that
    /// the identifier is dropped before the channel.
    _removal_watch: CmId,
    pub(crate) channel: Channel,
    /// Queue pairs by number, for threads that poll.
    pub(crate) qps: QpTable<QpShared>,
    pub(crate) windows: Arc<WindowTable>,
    /// Queue pairs by number, for events of rdma_cm and the device.
    pairs: Mutex<HashMap<u32, Weak<QpShared>>>,
    cqs: Mutex<Vec<Weak<cq::CqShared>>>,
    srqs: Mutex<Vec<Weak<srq::SrqShared>>>,
    /// The sink for the events of the whole adapter.
    sink: Mutex<Option<Sink<Adapter>>>,
    /// Queue pairs whose connection is ending.
    ending: Mutex<Vec<Arc<QpShared>>>,
    /// Whether `ending` contains queue pairs. Threads that poll read this flag.
    has_ending: AtomicBool,
    failed: Mutex<Vec<u32>>,
    deadlines: Mutex<BTreeSet<(Instant, Due)>>,
    /// The attempts of datagram queue pairs to resolve addresses.
    pub(crate) attempts: Mutex<Attempts>,
    /// Address handles that the consumer has freed and that posted datagrams may still use, each
    /// with the time at which it is destroyed at the latest.
    retired: Mutex<Vec<(Instant, AddressHandle)>>,
    /// The lock whose holder handles events.
    handling: Mutex<()>,
    /// The descriptor that wakes the progress thread.
    wakeup: EventFd,
    /// The bits of a completion's flags that mean that the peer has invalidated a key.
    pub(crate) invalidated: c_uint,
    /// The number of polls: see [`POLLS_PER_YIELD`]. `None` if the device does not need the
    /// consumer's processor.
    polls: Option<AtomicU32>,
    /// Whether the device has failed or was removed. The sink was notified of this.
    lost: AtomicBool,
    stop: AtomicBool,
}

/// What has a deadline.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Due {
    /// The connection of the queue pair with this number.
    Pair(u32),
    Attempt(AttemptKey),
}

/// The object that an asynchronous event concerns. `None` if the object is about to be dropped.
enum EventSubject {
    Qp(Option<Arc<QpShared>>),
    Cq(Option<Arc<cq::CqShared>>),
    Srq(Option<Arc<srq::SrqShared>>),
    Device,
    Nobody,
}

/// A consumer yields the processor once in this number of polls if the kernel does the device's
/// work, because that work may need the processor.
const POLLS_PER_YIELD: u32 = 64;

/// The time that the progress thread waits before it searches for failed queue pairs again, while
/// there are connections. The time doubles after each search if no event has happened, up to
/// [`FAILURE_CHECK_INTERVAL_MAX`].
const FAILURE_CHECK_INTERVAL_MIN: Duration = Duration::from_millis(50);
const FAILURE_CHECK_INTERVAL_MAX: Duration = Duration::from_secs(1);

/// The time that the progress thread waits at first before it again tries to end connections. The
/// time doubles up to [`FAILURE_CHECK_INTERVAL_MIN`].
const END_RETRY_INTERVAL_MIN: Duration = Duration::from_millis(1);

/// The time after which an address handle that the consumer has freed is destroyed, even if the
/// consumer has not taken the completions of its datagrams. A device sends datagrams at once,
/// because they wait for no peer.
const HANDLE_RETIREMENT_MAX: Duration = Duration::from_secs(1);

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ProgressContext {
    pub(crate) fn new(
        device: Arc<Device>,
        channel: Channel,
        removal_watch: CmId,
        wakeup: EventFd,
    ) -> ProgressContext {
        channel.set_nonblocking();
        device.set_nonblocking();
        // rxe passes the kernel's flag for an invalidated key on unchanged. In verbs, the flag with
        // this value is `IBV_WC_IP_CSUM_OK`, which is used for datagrams only.
        let invalidated =
            if device.is_rxe() { IBV_WC_WITH_INV | IBV_WC_IP_CSUM_OK } else { IBV_WC_WITH_INV };
        let polls = device.kernel_driver.map(|_| AtomicU32::default());
        ProgressContext {
            device,
            _removal_watch: removal_watch,
            channel,
            qps: QpTable::new(),
            windows: Arc::default(),
            pairs: Mutex::default(),
            cqs: Mutex::default(),
            srqs: Mutex::default(),
            sink: Mutex::default(),
            ending: Mutex::default(),
            has_ending: AtomicBool::new(false),
            failed: Mutex::default(),
            deadlines: Mutex::default(),
            attempts: Mutex::default(),
            retired: Mutex::default(),
            handling: Mutex::default(),
            wakeup,
            invalidated,
            polls,
            lost: AtomicBool::new(false),
            stop: AtomicBool::new(false),
        }
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wakeup.signal();
    }

    /// Releases the queue pairs whose connections have not ended yet. The owners of the queue pairs
    /// end the connections. No thread handles events any more.
    pub(crate) fn drop_ending(&self) {
        let left = std::mem::take(&mut *lock(&self.ending));
        drop(left);
    }

    pub(crate) fn add_pair(&self, pair: &Arc<QpShared>) {
        let mut pairs = lock(&self.pairs);
        pairs.insert(pair.number, Arc::downgrade(pair));
        self.qps.insert(pair.number, Arc::as_ptr(pair));
    }

    pub(crate) fn remove_pair(&self, pair: &QpShared) {
        let mut pairs = lock(&self.pairs);
        pairs.remove(&pair.number);
        self.qps.remove(pair.number);
        drop(pairs);
        lock(&self.ending).retain(|other| other.number != pair.number);
    }

    pub(crate) fn pair(&self, number: u32) -> Option<Arc<QpShared>> {
        lock(&self.pairs).get(&number)?.upgrade()
    }

    pub(crate) fn add_cq(&self, queue: &Arc<cq::CqShared>) {
        lock(&self.cqs).push(Arc::downgrade(queue));
    }

    pub(crate) fn remove_cq(&self, queue: &Arc<cq::CqShared>) {
        lock(&self.cqs).retain(|other| other.as_ptr() != Arc::as_ptr(queue));
    }

    pub(crate) fn add_srq(&self, queue: &Arc<srq::SrqShared>) {
        let mut srqs = lock(&self.srqs);
        srqs.retain(|other| other.strong_count() > 0);
        srqs.push(Arc::downgrade(queue));
    }

    pub(crate) fn set_sink(&self, sink: Option<Sink<Adapter>>) {
        *lock(&self.sink) = sink;
    }

    fn cqs(&self) -> Vec<Arc<cq::CqShared>> {
        lock(&self.cqs).iter().filter_map(Weak::upgrade).collect()
    }

    /// Wakes the progress thread, which then checks again everything that it waits for.
    pub(crate) fn wake(&self) {
        self.wakeup.signal();
    }

    /// Reports that a queue pair has failed.
    pub(crate) fn report_failed(&self, number: u32) {
        lock(&self.failed).push(number);
        self.wakeup.signal();
    }

    pub(crate) fn set_deadline(&self, of: Due, at: Instant) {
        lock(&self.deadlines).insert((at, of));
        self.wakeup.signal();
    }

    pub(crate) fn forget_deadline(&self, of: Due, at: Instant) {
        lock(&self.deadlines).remove(&(at, of));
    }

    /// Destroys an address handle that the consumer has freed, as soon as no posted datagram uses
    /// it.
    pub(crate) fn retire_handle(&self, handle: AddressHandle) {
        if self.sends_datagrams(&handle.domain) {
            lock(&self.retired).push((Instant::now() + HANDLE_RETIREMENT_MAX, handle));
            self.wakeup.signal();
        }
    }

    /// Returns whether a datagram is posted that may use an address handle of this domain.
    fn sends_datagrams(&self, domain: &Arc<Domain>) -> bool {
        self.pairs().iter().any(|pair| pair.sends_datagrams(domain))
    }

    /// Destroys the retired address handles that no posted datagram uses.
    pub(crate) fn destroy_retired_handles(&self) {
        let mut retired = lock(&self.retired);
        if retired.is_empty() {
            return;
        }
        let now = Instant::now();
        let unused: Vec<_> = retired
            .extract_if(.., |(at, handle)| *at <= now || !self.sends_datagrams(&handle.domain))
            .collect();
        drop(retired);
        drop(unused);
    }

    /// Handles the end of a connection as far as possible, after `QpShared::end` has started it.
    pub(crate) fn advance_end(&self, pair: &Arc<QpShared>) {
        {
            let mut ending = lock(&self.ending);
            ending.push(Arc::clone(pair));
            self.has_ending.store(true, Ordering::Release);
        }
        self.handle();
        self.wakeup.signal();
    }

    /// Handles all pending work, unless another thread is handling it at the moment.
    pub(crate) fn handle(&self) {
        let Ok(_handling) = self.handling.try_lock() else { return };
        while self.channel.handle_next(self) {}
        let failed = std::mem::take(&mut *lock(&self.failed));
        // `failed` is checked, because another queue pair may have the number by now.
        let failed = failed.into_iter().filter_map(|number| self.pair(number));
        for pair in failed.filter(|pair| pair.failed.load(Ordering::Acquire)) {
            pair.end(EndCause::Broken(QP_FAILED));
            lock(&self.ending).push(pair);
        }
        let now = Instant::now();
        loop {
            let first = lock(&self.deadlines).first().copied().filter(|(at, _)| *at <= now);
            let Some(due) = first else { break };
            lock(&self.deadlines).remove(&due);
            let number = match due.1 {
                Due::Pair(number) => number,
                Due::Attempt(key) => {
                    self.end_due_attempt(key);
                    continue;
                }
            };
            if let Some(pair) = self.pair(number)
                && let Some(end) = pair.on_deadline(now)
            {
                let was_connecting = pair.end(end);
                if was_connecting {
                    pair.destroy_id();
                }
                lock(&self.ending).push(pair);
                self.wakeup.signal();
            }
        }
        self.destroy_retired_handles();
        let ending = std::mem::take(&mut *lock(&self.ending));
        let left: Vec<_> = ending.into_iter().filter(|pair| !pair.advance_end()).collect();
        let mut ending = lock(&self.ending);
        ending.extend(left);
        // The flag is stored while the lock is held, so that it includes a queue pair that another
        // thread adds.
        self.has_ending.store(!ending.is_empty(), Ordering::Release);
    }

    /// Returns whether the kernel does the device's work and may need a consumer's processor.
    pub(crate) fn yields_processor(&self) -> bool {
        self.polls.is_some()
    }

    /// Continues to end connections, without waiting. If the kernel does the device's work, also
    /// yields the processor now and then.
    pub(crate) fn make_progress(&self) {
        let _work = nesting::work();
        if self.has_ending.load(Ordering::Relaxed) {
            self.handle();
        }
        if let Some(polls) = &self.polls {
            // If several threads poll at the same time, an increment may be lost, which does no
            // harm.
            let count = polls.load(Ordering::Relaxed).wrapping_add(1);
            polls.store(count, Ordering::Relaxed);
            if count % POLLS_PER_YIELD == 0 {
                std::thread::yield_now();
            }
        }
    }

    /// The body of the progress thread.
    pub(crate) fn run(&self) {
        let (mut check_interval, mut last_check, mut retry) =
            (FAILURE_CHECK_INTERVAL_MIN, Instant::now(), END_RETRY_INTERVAL_MIN);
        // The descriptors of a removed device report an error for ever and have no events.
        let is_hung_up = |revents: PollFlags| {
            revents.intersects(PollFlags::ERR | PollFlags::HUP) && !revents.contains(PollFlags::IN)
        };
        let mut has_async_events = true;
        while !self.stop.load(Ordering::Acquire) {
            let mut queues = self.cqs();
            queues.retain(|queue| queue.watched.load(Ordering::Acquire));
            let mut fds = vec![
                PollFd::new(&self.wakeup, PollFlags::IN),
                PollFd::new(&self.channel, PollFlags::IN),
            ];
            fds.extend(queues.iter().map(|queue| PollFd::new(queue, PollFlags::IN)));
            fds.extend(
                has_async_events
                    .then(|| PollFd::from_borrowed_fd(self.device.async_fd(), PollFlags::IN)),
            );
            let limit = self.poll_timeout(last_check + check_interval, retry);
            // The result is ignored, because the loop checks all descriptors.
            let _ = poll(&mut fds, limit.as_ref());
            let revents: Vec<_> = fds.iter().map(PollFd::revents).collect();
            drop(fds);
            // Ending a connection may have to wait for the peer, so the interval between attempts
            // grows.
            retry = (2 * retry).min(FAILURE_CHECK_INTERVAL_MIN);
            if !revents[0].is_empty() {
                self.wakeup.clear();
                retry = END_RETRY_INTERVAL_MIN;
            }
            if !revents[1].is_empty() {
                check_interval = FAILURE_CHECK_INTERVAL_MIN;
            }
            let (of_queues, of_device) = revents[2..].split_at(queues.len());
            for &revents in of_device.iter().filter(|revents| !revents.is_empty()) {
                self.handle_async_events();
                has_async_events = !is_hung_up(revents);
            }
            for (queue, &revents) in
                queues.iter().zip(of_queues).filter(|(_, revents)| !revents.is_empty())
            {
                queue.handle_notifications();
                if is_hung_up(revents) {
                    queue.watched.store(false, Ordering::Release);
                }
            }
            if last_check.elapsed() >= check_interval {
                check_interval = if self.find_failed_pairs() {
                    FAILURE_CHECK_INTERVAL_MIN
                } else {
                    (2 * check_interval).min(FAILURE_CHECK_INTERVAL_MAX)
                };
                last_check = Instant::now();
            }
            self.handle();
        }
    }

    /// Searches for queue pairs that have failed and for watermarks that are reached. This is
    /// necessary because a device reports a failed request only by its completion, and the consumer
    /// may wait for the connection event before it polls. A watermark, too, is noticed only when
    /// completions are taken. Returns true if work requests were posted or have completed since the
    /// previous call, or if a queue pair has a watermark.
    fn find_failed_pairs(&self) -> bool {
        let mut active = false;
        for pair in self.pairs().iter().filter(|pair| pair.is_established()) {
            let [[posted, sent], [_, received]] = [&pair.send_queue, &pair.receive_queue]
                .map(|work_queue| work_queue.take_activity());
            active |= posted || sent || received;
            if pair.holding.is_limited() {
                // Held buffers are counted when their completions are taken. The consumer may leave
                // completions in the queue, so take them here.
                pair.recv_cq.prefetch_and_notify();
                active = true;
            }
            if !sent && pair.send_queue.is_busy() {
                pair.send_cq.prefetch_and_notify();
            }
            // If an incoming message causes an error, rxe reports the error only in the completion
            // of the receive, which the consumer has perhaps not taken. So check the state of the
            // queue pair.
            if self.device.is_rxe() && !sent && !received && pair.is_in_error() {
                pair.fail();
            }
        }
        active
    }

    fn pairs(&self) -> Vec<Arc<QpShared>> {
        lock(&self.pairs).values().filter_map(Weak::upgrade).collect()
    }

    /// Returns the time limit of the next poll(2).
    ///
    /// - `check_at`: the time of the next search for failed queue pairs, if there are connections.
    /// - `retry`: the time to wait before the next attempt to end connections.
    fn poll_timeout(&self, check_at: Instant, retry: Duration) -> Option<Timespec> {
        // Another thread may be handling events at this moment. It has emptied `ending` and
        // `failed`, and may put queue pairs back into `ending` without waking this thread.
        let handling = self.handling.try_lock();
        let taken = handling.is_err();
        let has_ending = taken || !lock(&self.ending).is_empty() || !lock(&self.failed).is_empty();
        drop(handling);
        // Another thread handles events and deadlines now, so only the retry interval counts.
        if taken {
            return Timespec::try_from(retry).ok();
        }
        let check_at = self.pairs().iter().any(|pair| pair.is_established()).then_some(check_at);
        let due = lock(&self.deadlines).first().map(|(at, _)| *at);
        let retired = lock(&self.retired).iter().map(|(at, _)| *at).min();
        let due = due
            .into_iter()
            .chain(check_at)
            .chain(retired)
            .min()
            .map(|at| at.saturating_duration_since(Instant::now()));
        let limit = has_ending.then_some(retry).into_iter().chain(due).min()?;
        Timespec::try_from(limit).ok()
    }

    /// Wakes the threads that sleep on completion queues.
    pub(crate) fn interrupt(&self) {
        self.cqs().iter().for_each(|queue| queue.interrupt());
    }

    /// Takes and handles the asynchronous events of the device.
    fn handle_async_events(&self) {
        let verbs = &self.device.core.verbs;
        let mut event = ibv_async_event::zeroed();
        // SAFETY: the context is open, and its descriptor does not block.
        while unsafe { (verbs.ibv_get_async_event)(self.device.context.as_ptr(), &mut event) } == 0
        {
            let kind = map::device_event(event.event_type);
            let subject = self.subject(kind, &event.element);
            // Acknowledge the event before it is handled. Handling the event may drop its object,
            // and that drop waits for the acknowledgement.
            // SAFETY: the event was taken above.
            unsafe { (verbs.ibv_ack_async_event)(&mut event) };
            self.handle_async_event(kind, subject);
        }
    }

    /// Finds the object that an event concerns. The object stays alive until the event is
    /// acknowledged.
    fn subject(&self, kind: DeviceEvent, element: &ibv_async_element) -> EventSubject {
        match kind {
            DeviceEvent::QpBroken | DeviceEvent::QpDrained => {
                // SAFETY: the type of the event says that this member of the union is valid.
                EventSubject::Qp(self.pair(unsafe { (*element.qp).qp_num }))
            }
            DeviceEvent::CqOverflow => {
                // SAFETY: the type of the event says that this member of the union is valid.
                let cq = unsafe { element.cq };
                EventSubject::Cq(self.cqs().into_iter().find(|queue| queue.as_ptr() == cq))
            }
            DeviceEvent::SrqLimit | DeviceEvent::SrqBroken => {
                // SAFETY: the type of the event says that this member of the union is valid.
                let srq = unsafe { element.srq };
                let srqs = lock(&self.srqs);
                EventSubject::Srq(
                    srqs.iter().filter_map(Weak::upgrade).find(|queue| queue.as_ptr() == srq),
                )
            }
            // SAFETY: the type of the event says that this member of the union is valid.
            DeviceEvent::PortDown if unsafe { element.port_num } != i32::from(self.device.port) => {
                EventSubject::Nobody
            }
            _ => EventSubject::Device,
        }
    }

    fn handle_async_event(&self, kind: DeviceEvent, subject: EventSubject) {
        match (kind, subject) {
            (DeviceEvent::QpBroken, EventSubject::Qp(Some(pair))) => pair.handle_device_failure(),
            // A queue pair that takes no more buffers from its shared queue is in the error state.
            (DeviceEvent::QpDrained, EventSubject::Qp(Some(pair))) if pair.is_established() => {
                pair.fail()
            }
            (DeviceEvent::CqOverflow, EventSubject::Cq(Some(queue))) => {
                queue.call(Upcall::CqOverflow)
            }
            (DeviceEvent::SrqLimit, EventSubject::Srq(Some(queue))) => {
                queue.call(Upcall::LowWatermark)
            }
            (DeviceEvent::SrqBroken, EventSubject::Srq(Some(queue))) => queue.call(Upcall::Failed),
            (DeviceEvent::DeviceFatal, EventSubject::Device) => self.device_lost(),
            (DeviceEvent::PortDown, EventSubject::Device) => self.call(Upcall::PortDown),
            _ => {}
        }
    }

    /// Handles a failure or the removal of the device. Breaks all connections, because the kernel
    /// may wait until all users have released the device.
    pub(crate) fn device_lost(&self) {
        if !self.lost.swap(true, Ordering::AcqRel) {
            self.call(Upcall::Failed);
        }
        for pair in self.pairs().iter().filter(|pair| pair.is_established()) {
            pair.fail();
        }
    }

    pub(crate) fn is_device_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    fn call(&self, up: Upcall<'_, Adapter>) {
        if let Some(sink) = &*lock(&self.sink) {
            sink.call(up);
        }
    }
}
