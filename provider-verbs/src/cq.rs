//! Completion queues: the device's, and in front of it what was taken from it ahead of the consumer.

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use dat_core::nesting;
use dat_core::provider::{Completions, Polled, Sink, Upcall, Wc};
use dat_core::wake::{Wake, WakeReason};
use dat_core::{Error, Result};
use dat_sys::{
    DAT_INSUFFICIENT_RESOURCES, DAT_INVALID_STATE, DAT_MODEL_NOT_SUPPORTED, DAT_RESOURCE_MEMORY,
};
use rdma_core_sys::*;
use rustix::event::Timespec;

use crate::Adapter;
use crate::descriptor::{Bed, Roused, unblock};
use crate::gate::Gate;
use crate::station::Station;

/// Completion queue.
pub struct Cq(pub(crate) Arc<Queue>);

/// What the queue pairs that complete here keep.
pub(crate) struct Queue {
    pub(crate) station: Arc<Station>,
    cq: NonNull<ibv_cq>,
    channel: NonNull<ibv_comp_channel>,
    channel_fd: RawFd,
    /// The consumer polls inside of it.
    gate: Gate,
    /// Waits since giving up the processor brought a completion.
    vain_yields: AtomicU32,
    /// Taken already, and what never was the device's: comes first.
    ahead: Mutex<VecDeque<Wc>>,
    ahead_len: AtomicUsize,
    room: Mutex<Room>,
    /// Events that have come are of this wish.
    armed: AtomicBool,
    /// The station looks for events, since who wants them does not sleep here.
    pub(crate) attended: AtomicBool,
    /// There is no consumer: the station takes the completions.
    is_unheard: AtomicBool,
    /// How often it was armed since events were taken: so many may be there.
    wishes: AtomicU32,
    /// Events taken and not acknowledged, which only its end waits for.
    seen: AtomicU32,
    sink: Mutex<Option<Sink<Adapter>>>,
    /// Where a consumer sleeps, made for the first who does.
    bed: OnceLock<Bed>,
}

/// Completions that fit: the consumer's, and those of requests of the provider's own, marks mostly, of the queue pairs that complete
/// here.
struct Room {
    depth: usize,
    marks: usize,
    /// Marks for which there is room: doubled when it is used up.
    spare: usize,
}

/// After so many waits in a row before which it was in vain, the processor is given up before one wait in as many. Giving it up
/// costs about a tenth of what it saves.
const VAIN: u32 = 64;

/// Completions that are taken at a time.
const BATCH: usize = 16;

/// Room for marks in every queue.
pub(crate) const SPARE: usize = 64;

// SAFETY: the library locks what threads share.
unsafe impl Send for Queue {}
// SAFETY: as above.
unsafe impl Sync for Queue {}

impl Cq {
    pub(crate) fn new(
        station: &Arc<Station>,
        depth: usize,
        sink: Option<Sink<Adapter>>,
    ) -> Result<Cq> {
        let full = || Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
        let (verbs, context) = (&station.device.core.verbs, station.device.context.as_ptr());
        // SAFETY: an open context.
        let channel =
            NonNull::new(unsafe { (verbs.ibv_create_comp_channel)(context) }).ok_or_else(full)?;
        // SAFETY: a live channel.
        let channel_fd = unsafe { channel.as_ref() }.fd;
        let entries = i32::try_from(depth + SPARE).map_err(|_| full())?;
        // SAFETY: both are live.
        let made = unsafe {
            unblock(channel_fd);
            (verbs.ibv_create_cq)(context, entries, ptr::null_mut(), channel.as_ptr(), 0)
        };
        let Some(cq) = NonNull::new(made) else {
            // SAFETY: nothing tells there.
            unsafe { (verbs.ibv_destroy_comp_channel)(channel.as_ptr()) };
            return Err(full());
        };
        let queue = Arc::new(Queue {
            station: Arc::clone(station),
            cq,
            channel,
            channel_fd,
            gate: Gate::default(),
            vain_yields: AtomicU32::new(0),
            ahead: Mutex::default(),
            ahead_len: AtomicUsize::new(0),
            room: Mutex::new(Room { depth, marks: 0, spare: SPARE }),
            armed: AtomicBool::new(false),
            attended: AtomicBool::new(false),
            is_unheard: AtomicBool::new(false),
            wishes: AtomicU32::new(0),
            seen: AtomicU32::new(0),
            sink: Mutex::new(sink),
            bed: OnceLock::new(),
        });
        station.add_cq(&queue);
        Ok(Cq(queue))
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        // Waits for an upcall that is under way.
        *self.0.sink.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.0.station.forget_cq(&self.0);
        if self.0.attended.load(Ordering::Acquire) {
            // It listens there, and keeps it meanwhile.
            self.0.station.ring();
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let verbs = &self.station.device.core.verbs;
        // SAFETY: no queue pair completes here any more, and nobody takes events.
        unsafe {
            (verbs.ibv_ack_cq_events)(self.cq.as_ptr(), *self.seen.get_mut());
            (verbs.ibv_destroy_cq)(self.cq.as_ptr());
            (verbs.ibv_destroy_comp_channel)(self.channel.as_ptr());
        }
    }
}

// SAFETY: by the number of the promise:
// 1. What comes is what `Pair::complete` made of the device's completions and what `Queue::add` was given, in
//    order and each once, since what is taken ahead is handed out first and nobody takes while others do
//    (`gate`).
// 2. A queue pair leaves the table of numbers while nobody takes; what was taken of it until then is ahead,
//    and `ahead_len` tells of that. What the device has of it after that is nobody's.
unsafe impl Completions for Cq {
    #[inline]
    unsafe fn poll(&self, out: &mut Polled<'_>) {
        let _work = nesting::work();
        // SAFETY: the caller's promise.
        unsafe { self.0.poll(out) };
    }

    unsafe fn arm(&self, solicited: bool) -> bool {
        let _work = nesting::work();
        // SAFETY: the caller's promise.
        unsafe { self.0.arm(solicited) }
    }

    fn require_upcalls(&self, on: bool) {
        if self.0.attended.swap(on, Ordering::AcqRel) != on {
            self.0.station.ring();
        }
    }

    unsafe fn resize(&self, depth: usize) -> Result<()> {
        let mut room = self.0.room();
        // The device would count the room for marks as well.
        if self.0.gather() > depth {
            return Err(Error::of(DAT_INVALID_STATE));
        }
        self.0.resize(depth + room.spare)?;
        room.depth = depth;
        Ok(())
    }
}

impl Queue {
    pub(crate) fn as_ptr(&self) -> *mut ibv_cq {
        self.cq.as_ptr()
    }

    fn resize(&self, entries: usize) -> Result<()> {
        let _shut = self.gate.shut();
        let entries = i32::try_from(entries).map_err(|_| Error::of(DAT_INVALID_STATE))?;
        // SAFETY: live.
        match unsafe { (self.station.device.core.verbs.ibv_resize_cq)(self.cq.as_ptr(), entries) }
            .abs()
        {
            0 => Ok(()),
            libc::EOPNOTSUPP | libc::ENOSYS => Err(Error::of(DAT_MODEL_NOT_SUPPORTED)),
            libc::EINVAL => Err(Error::of(DAT_INVALID_STATE)),
            _ => Err(Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY)),
        }
    }

    fn room(&self) -> MutexGuard<'_, Room> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes room for so many marks more: they must not be what makes it overrun.
    pub(crate) fn reserve(&self, marks: usize) -> Result<()> {
        let mut room = self.room();
        if room.marks + marks > room.spare {
            let spare = (2 * room.spare).max(room.marks + marks);
            self.resize(room.depth + spare)?;
            room.spare = spare;
        }
        room.marks += marks;
        Ok(())
    }

    /// Makes it so much longer.
    pub(crate) fn widen(&self, by: usize) -> Result<()> {
        let mut room = self.room();
        self.resize(room.depth + by + room.spare)?;
        room.depth += by;
        Ok(())
    }

    /// Gives back what was reserved.
    pub(crate) fn release(&self, marks: usize) {
        self.room().marks -= marks;
    }

    /// # Safety
    /// The caller is the one who takes completions.
    #[inline]
    unsafe fn poll(&self, out: &mut Polled<'_>) {
        // SAFETY: the caller's promise.
        let inside = unsafe { self.gate.enter() };
        if self.ahead_len.load(Ordering::Acquire) > 0 {
            return self.poll_ahead(out);
        }
        if inside.is_none() {
            return;
        }
        while out.room() > 0 {
            let mut batch = [const { MaybeUninit::uninit() }; BATCH];
            let wanted = BATCH.min(out.room());
            let taken = self.take(&mut batch[..wanted]);
            taken.iter().filter_map(|wc| self.complete(wc)).for_each(|wc| out.push(wc));
            if taken.len() < wanted {
                break;
            }
        }
    }

    #[cold]
    fn poll_ahead(&self, out: &mut Polled<'_>) {
        let mut ahead = self.ahead();
        let count = out.room().min(ahead.len());
        ahead.drain(..count).for_each(|wc| out.push(wc));
        self.ahead_len.store(ahead.len(), Ordering::Release);
    }

    /// The device's next completions. The caller is inside of the gate, or has shut it and is alone.
    #[inline]
    fn take<'a>(&self, room: &'a mut [MaybeUninit<ibv_wc>]) -> &'a [ibv_wc] {
        let verbs = &self.station.device.core.verbs;
        // SAFETY: live, and there is room.
        let count = unsafe {
            verbs.ibv_poll_cq(self.cq.as_ptr(), room.len() as i32, room.as_mut_ptr().cast())
        };
        let taken = &room[..count.max(0) as usize];
        // SAFETY: the device has written these.
        unsafe { taken.assume_init_ref() }
    }

    /// One of them in dat-core's words; none: it is nobody's.
    #[inline]
    fn complete(&self, wc: &ibv_wc) -> Option<Wc> {
        // SAFETY: a queue pair leaves the table with the gate shut.
        unsafe { self.station.numbers.get(wc.qp_num) }.and_then(|qp| qp.complete(wc))
    }

    /// Moves all that the device has to `ahead`.
    fn gather_into(&self, ahead: &mut VecDeque<Wc>) {
        let mut batch = [const { MaybeUninit::uninit() }; BATCH];
        loop {
            let taken = self.take(&mut batch);
            ahead.extend(taken.iter().filter_map(|wc| self.complete(wc)));
            if taken.len() < BATCH {
                break;
            }
        }
        self.ahead_len.store(ahead.len(), Ordering::Release);
    }

    /// Takes all the device has, ahead of the consumer.
    pub(crate) fn pump(&self) {
        if self.gather() > 0 {
            self.ready();
        }
    }

    /// The same, in silence: how many there are ahead.
    fn gather(&self) -> usize {
        let _shut = self.gate.shut();
        let mut ahead = self.ahead();
        self.gather_into(&mut ahead);
        ahead.len()
    }

    /// Does something while nobody takes completions.
    pub(crate) fn alone(&self, what: impl FnOnce()) {
        let _shut = self.gate.shut();
        let _ahead = self.ahead();
        what();
    }

    /// A completion that never was the device's.
    pub(crate) fn add(&self, wc: Wc) {
        {
            let mut ahead = self.ahead();
            ahead.push_back(wc);
            self.ahead_len.store(ahead.len(), Ordering::Release);
        }
        self.ready();
    }

    /// # Safety
    /// As [`Queue::poll`].
    unsafe fn arm(&self, solicited: bool) -> bool {
        // SAFETY: the caller's promise.
        if self.station.gives_way() && unsafe { self.yield_pays() } {
            return false;
        }
        self.armed.store(true, Ordering::SeqCst);
        self.wishes.store(self.wishes.load(Ordering::Relaxed).saturating_add(1), Ordering::Relaxed);
        let verbs = &self.station.device.core.verbs;
        // SAFETY: live.
        unsafe { verbs.ibv_req_notify_cq(self.cq.as_ptr(), i32::from(solicited)) };
        // What came before that does not tell; what the gate hides may have been told of already.
        // SAFETY: the caller's promise.
        let empty = unsafe { self.is_empty() };
        if !empty {
            self.disarm();
        }
        empty
    }

    /// Whose processor the device's work waits for has it done before it sleeps, for less than arming and sleeping cost. Not
    /// tried each time where it did not help: then the work is another processor's, or there is too much of it.
    ///
    /// # Safety
    /// As [`Queue::poll`].
    unsafe fn yield_pays(&self) -> bool {
        let vain = self.vain_yields.load(Ordering::Relaxed);
        let paid = (vain < VAIN || vain.is_multiple_of(VAIN)) && {
            std::thread::yield_now();
            // SAFETY: the caller's promise.
            !unsafe { self.is_empty() }
        };
        self.vain_yields.store(if paid { 0 } else { vain.wrapping_add(1) }, Ordering::Relaxed);
        paid
    }

    /// Nothing is there to be taken. What the device has it takes.
    ///
    /// # Safety
    /// As [`Queue::poll`].
    unsafe fn is_empty(&self) -> bool {
        // SAFETY: the caller's promise.
        let inside = unsafe { self.gate.enter() };
        inside.is_some() && self.ahead_len.load(Ordering::SeqCst) == 0 && {
            let mut batch = [const { MaybeUninit::uninit() }; BATCH];
            let taken = self.take(&mut batch);
            taken.is_empty() || {
                let mut ahead = self.ahead();
                ahead.extend(taken.iter().filter_map(|wc| self.complete(wc)));
                self.ahead_len.store(ahead.len(), Ordering::Release);
                // Marks alone: the caller looks again.
                false
            }
        }
    }

    fn disarm(&self) -> bool {
        self.armed.swap(false, Ordering::SeqCst)
    }

    /// Tells whoever armed it that there is something.
    fn ready(&self) {
        if self.disarm() {
            self.call(Upcall::CqReady);
        }
    }

    /// A consumer that has armed it sleeps until something has come.
    pub(crate) fn sleep(&self, wake: &Wake, deadline: Option<Instant>) -> WakeReason {
        let bed = match self.bed.get() {
            Some(bed) => bed,
            None => match Bed::new() {
                Ok(bed) => self.bed.get_or_init(|| bed),
                // Without descriptors it looks again and again.
                Err(_) => return WakeReason::Woken,
            },
        };
        if !wake.enter_poller() {
            return WakeReason::Woken;
        }
        let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        let roused = bed.sleep(self, left.and_then(|left| Timespec::try_from(left).ok()).as_ref());
        let signalled = wake.leave_poller();
        match roused {
            Roused::News => {
                self.see();
                WakeReason::Woken
            }
            Roused::TimedOut if !signalled => WakeReason::TimedOut,
            Roused::Signal if !signalled => WakeReason::Interrupted,
            _ => WakeReason::Woken,
        }
    }

    /// Who sleeps looks again.
    pub(crate) fn interrupt(&self) {
        self.bed.get().iter().for_each(|bed| bed.interrupt());
    }

    pub(crate) fn call(&self, up: Upcall<'_, Adapter>) {
        if let Some(sink) = &*self.sink.lock().unwrap_or_else(PoisonError::into_inner) {
            sink.call(up);
        }
    }

    /// Takes the events of its channel.
    pub(crate) fn see(&self) -> bool {
        let verbs = &self.station.device.core.verbs;
        let (mut cq, mut context, mut seen) = (ptr::null_mut(), ptr::null_mut(), 0);
        let wishes = self.wishes.swap(0, Ordering::Relaxed);
        // SAFETY: a live channel, which does not block; only this queue tells there.
        while unsafe { (verbs.ibv_get_cq_event)(self.channel.as_ptr(), &mut cq, &mut context) } == 0
        {
            seen += 1;
            // The only one, mostly.
            if wishes == 1 {
                break;
            }
        }
        self.seen.fetch_add(seen, Ordering::Relaxed);
        seen > 0
    }

    /// The same, for who armed it and does not sleep here.
    pub(crate) fn serve(&self) {
        if self.see() {
            match self.is_unheard.load(Ordering::Acquire) {
                true => self.discard(),
                false => self.ready(),
            }
        }
    }

    /// No consumer takes completions here: the station does, for the buffers that they free. Before there are any.
    pub(crate) fn leave_to_station(&self) {
        self.is_unheard.store(true, Ordering::Release);
        // SAFETY: nobody has begun to take any.
        unsafe { self.arm(false) };
        self.attended.store(true, Ordering::Release);
        self.station.ring();
    }

    /// Takes all there is until nothing more comes.
    fn discard(&self) {
        loop {
            self.gather();
            debug_assert!(self.ahead().is_empty(), "nobody would take it");
            // SAFETY: without a consumer the station's thread takes them, which calls this.
            if unsafe { self.arm(false) } {
                break;
            }
        }
    }

    fn ahead(&self) -> MutexGuard<'_, VecDeque<Wc>> {
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: open as long as the channel.
        unsafe { BorrowedFd::borrow_raw(self.channel_fd) }
    }
}
