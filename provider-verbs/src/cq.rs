//! Completion queues: the device's, and in front of it what was taken from it ahead of the consumer.

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dat_core::provider::{Completions, Sink, Upcall, Wc};
use dat_core::{Error, Result};
use dat_sys::{DAT_INSUFFICIENT_RESOURCES, DAT_INVALID_STATE, DAT_RESOURCE_MEMORY};
use rdma_core_sys::*;

use crate::Adapter;
use crate::descriptor::{Bell, unblock};
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
    /// Taken already, and what never was the device's: comes first.
    ahead: Mutex<VecDeque<Wc>>,
    ahead_len: AtomicUsize,
    room: Mutex<Room>,
    /// Events that have come are of this wish.
    armed: AtomicBool,
    sink: Mutex<Option<Sink<Adapter>>>,
    /// How a sleeper on this queue is interrupted.
    pub(crate) bell: Bell,
}

/// Completions that fit: the consumer's, and the marks of the queue pairs that complete here.
struct Room {
    depth: usize,
    marks: usize,
    /// Marks for which there is room: doubled when it is used up.
    spare: usize,
}

/// Room for marks in every queue.
pub(crate) const SPARE: usize = 64;

// SAFETY: the library locks what threads share.
unsafe impl Send for Queue {}
// SAFETY: as above.
unsafe impl Sync for Queue {}

impl Cq {
    pub(crate) fn new(station: &Arc<Station>, depth: usize, sink: Option<Sink<Adapter>>) -> Result<Cq> {
        let full = || Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
        let (verbs, context) = (&station.device.core.verbs, station.device.context.as_ptr());
        let bell = Bell::new().map_err(|_| full())?;
        // SAFETY: an open context.
        let channel = NonNull::new(unsafe { (verbs.ibv_create_comp_channel)(context) }).ok_or_else(full)?;
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
            ahead: Mutex::default(),
            ahead_len: AtomicUsize::new(0),
            room: Mutex::new(Room { depth, marks: 0, spare: SPARE }),
            armed: AtomicBool::new(false),
            sink: Mutex::new(sink),
            bell,
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
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let verbs = &self.station.device.core.verbs;
        // SAFETY: no queue pair completes here any more; the events were acknowledged.
        unsafe {
            (verbs.ibv_destroy_cq)(self.cq.as_ptr());
            (verbs.ibv_destroy_comp_channel)(self.channel.as_ptr());
        }
    }
}

impl Completions for Cq {
    #[inline]
    fn poll(&self, out: &mut [MaybeUninit<Wc>]) -> usize {
        self.0.poll(out)
    }

    fn arm(&self, solicited: bool) -> bool {
        self.0.arm(solicited)
    }

    fn resize(&self, depth: usize) -> Result<()> {
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
        match unsafe { (self.station.device.core.verbs.ibv_resize_cq)(self.cq.as_ptr(), entries) } {
            0 => Ok(()),
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
            self.resize(room.depth + 2 * room.spare)?;
            room.spare *= 2;
        }
        room.marks += marks;
        Ok(())
    }

    /// Gives that back.
    pub(crate) fn release(&self, marks: usize) {
        self.room().marks -= marks;
    }

    #[inline]
    fn poll(&self, out: &mut [MaybeUninit<Wc>]) -> usize {
        let inside = self.gate.enter();
        if self.ahead_len.load(Ordering::Acquire) > 0 {
            return self.poll_ahead(out);
        }
        if inside.is_none() {
            return 0;
        }
        let mut count = 0;
        while count < out.len() {
            match self.take() {
                Some(Some(wc)) => {
                    out[count].write(wc);
                    count += 1;
                }
                Some(None) => {}
                None => break,
            }
        }
        count
    }

    #[cold]
    fn poll_ahead(&self, out: &mut [MaybeUninit<Wc>]) -> usize {
        let mut ahead = self.ahead();
        let count = out.len().min(ahead.len());
        for (place, wc) in out.iter_mut().zip(ahead.drain(..count)) {
            place.write(wc);
        }
        self.ahead_len.store(ahead.len(), Ordering::Release);
        count
    }

    /// The device's next completion, which may be nobody's. The caller is inside of the gate, or has shut it and is alone.
    #[inline]
    fn take(&self) -> Option<Option<Wc>> {
        let mut wc = MaybeUninit::<ibv_wc>::uninit();
        let verbs = &self.station.device.core.verbs;
        // SAFETY: live, and room for one.
        if unsafe { verbs.ibv_poll_cq(self.cq.as_ptr(), 1, wc.as_mut_ptr()) } <= 0 {
            return None;
        }
        // SAFETY: the device has written it.
        let wc = unsafe { wc.assume_init_ref() };
        // SAFETY: a queue pair leaves the table with the gate shut.
        Some(unsafe { self.station.numbers.get(wc.qp_num) }.and_then(|qp| qp.complete(wc)))
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
        while let Some(taken) = self.take() {
            ahead.extend(taken);
        }
        self.ahead_len.store(ahead.len(), Ordering::Release);
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

    fn arm(&self, solicited: bool) -> bool {
        if !self.armed.swap(true, Ordering::SeqCst) {
            self.station.armed.fetch_add(1, Ordering::Relaxed);
        }
        let verbs = &self.station.device.core.verbs;
        // SAFETY: live.
        unsafe { verbs.ibv_req_notify_cq(self.cq.as_ptr(), i32::from(solicited)) };
        // What came before that does not tell; what the gate hides may have been told of already.
        let inside = self.gate.enter();
        let empty = inside.is_some() && self.ahead_len.load(Ordering::SeqCst) == 0 && {
            let mut first = None;
            while let Some(taken) = self.take() {
                if taken.is_some() {
                    first = taken;
                    break;
                }
            }
            let empty = first.is_none();
            if !empty {
                let mut ahead = self.ahead();
                ahead.extend(first);
                self.ahead_len.store(ahead.len(), Ordering::Release);
            }
            empty
        };
        if !empty {
            self.disarm();
        }
        empty
    }

    fn disarm(&self) -> bool {
        let was = self.armed.swap(false, Ordering::SeqCst);
        if was {
            self.station.armed.fetch_sub(1, Ordering::Relaxed);
        }
        was
    }

    /// Tells whoever armed it that there is something.
    fn ready(&self) {
        if self.disarm() {
            self.call(Upcall::CqReady);
        }
    }

    pub(crate) fn call(&self, up: Upcall<'_, Adapter>) {
        if let Some(sink) = &*self.sink.lock().unwrap_or_else(PoisonError::into_inner) {
            sink.call(up);
        }
    }

    /// Takes the events of its channel.
    pub(crate) fn see(&self) {
        let verbs = &self.station.device.core.verbs;
        let (mut cq, mut context, mut seen) = (ptr::null_mut(), ptr::null_mut(), 0);
        // SAFETY: a live channel, which does not block; only this queue tells there.
        while unsafe { (verbs.ibv_get_cq_event)(self.channel.as_ptr(), &mut cq, &mut context) } == 0 {
            seen += 1;
        }
        if seen > 0 {
            // SAFETY: as many as were taken.
            unsafe { (verbs.ibv_ack_cq_events)(self.cq.as_ptr(), seen) };
            self.ready();
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
