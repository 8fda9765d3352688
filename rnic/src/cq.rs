//! Completion queues.

mod concurrent;

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;

pub use self::concurrent::ConcurrentCq;
use crate::ring::{OutOfMemory, Ring};
use crate::spin_lock::{SpinGuard, SpinLock};
use crate::sync::atomic::{AtomicBool, AtomicU8, Ordering, fence};
use crate::wr::{Wc, WcStatus};

/// A report of a completion queue to its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CqEvent {
    /// The queue was armed and has received a completion for which it was armed. It is no longer
    /// armed.
    Ready,
    /// The queue had no room for a completion. That completion and all later ones are lost. This is
    /// reported once.
    Overflow,
}

/// The completions of any number of queue pairs. They are produced under the engine lock and
/// consumed by one thread at a time; any thread may poll a [`ConcurrentCq`]. If the queue pairs
/// belong to several engines, the queue is [shared](Cq::share), and a lock of its own makes sure
/// that there is one producer at a time.
pub struct Cq {
    ring: UnsafeCell<Ring<Wc>>,
    armed: AtomicU8,
    overrun: AtomicBool,
    unannounced: UnsafeCell<Unannounced>,
    is_shared: AtomicBool,
    /// Held by the producer if the queue is shared.
    producer: SpinLock,
    consumer: ConsumerLock,
    notify: Box<dyn Fn(CqEvent) + Send + Sync>,
}

/// A lock that is held by the consumer of a [`ConcurrentCq`], and by whoever removes completions
/// ([`Cq::remove`]). It has a pair of cache lines to itself, because each poll of a `ConcurrentCq`
/// writes to it.
#[repr(align(128))]
struct ConsumerLock(SpinLock);

/// The completions that were pushed since the last call of `announce`. Only the producer accesses
/// this record.
#[derive(Clone, Copy, Default)]
struct Unannounced {
    any: bool,
    solicited: bool,
}

/// The states of arming, in the order in which a [`ConcurrentCq`] widens them.
const DISARMED: u8 = 0;
const ARMED_SOLICITED: u8 = 1;
const ARMED_ANY: u8 = 2;

// SAFETY: `ring` is shared as its type allows. `resize` replaces `ring` only while its caller is
// both producer and consumer. `unannounced` belongs to the producer alone.
unsafe impl Send for Cq {}
// SAFETY: `ring` is shared as its type allows. `resize` replaces `ring` only while its caller is
// both producer and consumer. `unannounced` belongs to the producer alone.
unsafe impl Sync for Cq {}

impl Cq {
    /// Creates a queue for at least `depth` completions. `notify` is called under the engine lock
    /// and must not call the engine.
    pub fn new(
        depth: usize,
        notify: impl Fn(CqEvent) + Send + Sync + 'static,
    ) -> Result<Self, OutOfMemory> {
        Ok(Cq {
            ring: UnsafeCell::new(Ring::new(depth, 0)?),
            armed: AtomicU8::new(DISARMED),
            overrun: AtomicBool::new(false),
            unannounced: UnsafeCell::default(),
            is_shared: AtomicBool::new(false),
            producer: SpinLock::new(),
            consumer: ConsumerLock(SpinLock::new()),
            notify: Box::new(notify),
        })
    }

    /// Moves completions into `out`, oldest first, and returns their number.
    ///
    /// # Safety
    /// Only one thread at a time may call this function, and none may during
    /// [`Work::reset`](crate::Work::reset) of a queue pair that uses the queue.
    #[inline]
    pub unsafe fn poll(&self, out: &mut [MaybeUninit<Wc>]) -> usize {
        // SAFETY: the caller guarantees that it is the only consumer.
        unsafe {
            let mut out = out.iter_mut();
            self.poll_with(out.len(), |wc| {
                if let Some(place) = out.next() {
                    place.write(wc);
                }
            })
        }
    }

    /// Passes up to `max` completions to `take`, oldest first, and returns their number.
    ///
    /// # Safety
    /// The requirements of [`poll`](Self::poll) apply, and `take` must not call this queue.
    #[inline]
    pub unsafe fn poll_with(&self, max: usize, mut take: impl FnMut(Wc)) -> usize {
        // SAFETY: the caller guarantees that it is the only consumer; filled slots are initialised
        // and belong to the consumer.
        unsafe {
            let ring = self.ring();
            let head = ring.head();
            let mut n = 0;
            while n < max && ring.is_filled(head.wrapping_add(n)) {
                take(ring.slot(head.wrapping_add(n)).header().read());
                n += 1;
            }
            if n > 0 {
                ring.release(head.wrapping_add(n));
            }
            n
        }
    }

    /// The number of completions that a poll would return.
    ///
    /// # Safety
    /// The requirements of [`poll`](Self::poll) apply.
    #[inline]
    pub unsafe fn queued(&self) -> usize {
        self.ring().len()
    }

    /// Whether a poll would return nothing.
    ///
    /// # Safety
    /// The requirements of [`poll`](Self::poll) apply.
    #[inline]
    pub unsafe fn is_empty(&self) -> bool {
        // SAFETY: the caller guarantees that it is the only consumer.
        unsafe { !self.ring().is_filled(self.ring().head()) }
    }

    /// Requests one [`CqEvent::Ready`] at the next completion, or with `solicited` at the next
    /// completion that is solicited or failed. Each call replaces the request of the previous call.
    /// Returns false without arming if the queue is not empty: the caller must poll again.
    ///
    /// # Safety
    /// The requirements of [`poll`](Self::poll) apply.
    pub unsafe fn arm(&self, solicited: bool) -> bool {
        self.armed.store(if solicited { ARMED_SOLICITED } else { ARMED_ANY }, Ordering::Relaxed);
        // There are two cases. Either the producer sees that the queue is armed (its fence is in
        // `announce`), or `is_empty` below sees the completion that the producer has pushed.
        fence(Ordering::SeqCst);
        // SAFETY: the caller guarantees that it is the only consumer.
        if unsafe { self.is_empty() } {
            return true;
        }
        // If the producer has already disarmed the queue, it sends an event, which the caller does
        // not need but which does no harm.
        self.armed.store(DISARMED, Ordering::Relaxed);
        false
    }

    /// From now on queue pairs of several engines may use the queue. Their engine locks do not
    /// exclude each other, so each producer takes a lock of the queue.
    ///
    /// # Safety
    /// The locks of all engines whose queue pairs use the queue must be held.
    pub unsafe fn share(&self) {
        // The engine locks make sure that each producer sees this store.
        self.is_shared.store(true, Ordering::Relaxed);
    }

    /// Makes the caller, which holds an engine lock, the only producer.
    #[inline]
    fn become_producer(&self) -> Option<SpinGuard<'_>> {
        self.is_shared.load(Ordering::Relaxed).then(|| self.producer.lock())
    }

    /// Changes the depth to at least `depth`. No queued completion is lost. Returns false, and
    /// changes nothing, if more than `depth` completions are queued.
    ///
    /// # Safety
    /// The locks of all engines whose queue pairs use the queue must be held, and the requirements
    /// of [`poll`](Self::poll) apply.
    pub unsafe fn resize(&self, depth: usize) -> Result<bool, OutOfMemory> {
        let ring = Ring::<Wc>::new(depth, 0)?;
        // SAFETY: the caller is producer and consumer of both rings.
        unsafe {
            if self.ring().len() > depth {
                return Ok(false);
            }
            self.poll_with(usize::MAX, |wc| {
                if let Some(slot) = ring.vacant() {
                    slot.header().write(wc);
                    ring.publish();
                }
            });
            *self.ring.get() = ring;
        }
        Ok(true)
    }

    /// Adds a completion. After one or more calls, the caller must call
    /// [`announce`](Self::announce).
    ///
    /// # Safety
    /// The engine lock must be held.
    #[inline]
    pub(crate) unsafe fn push(&self, wc: Wc, solicited: bool) {
        let producer = self.become_producer();
        // SAFETY: the caller is the only producer, and a vacant slot belongs to the producer.
        let is_queued = unsafe {
            let ring = self.ring();
            let unannounced = &mut *self.unannounced.get();
            unannounced.any = true;
            unannounced.solicited |= solicited || wc.status != WcStatus::Success;
            match ring.vacant() {
                // After a lost completion, later ones are discarded too, so that the sequence has
                // no gap.
                Some(slot) if !self.overrun.load(Ordering::Relaxed) => {
                    slot.header().write(wc);
                    ring.publish();
                    true
                }
                _ => false,
            }
        };
        drop(producer);
        if !is_queued {
            self.overrun();
        }
    }

    /// Removes all queued completions of the queue pair whose
    /// [token](crate::QpCfg::token) is `qp`.
    ///
    /// # Safety
    /// The engine lock of that queue pair must be held. Nobody may poll the queue during this call,
    /// unless it is that of a [`ConcurrentCq`].
    pub(crate) unsafe fn remove(&self, qp: u64) {
        let _consumer = self.consumer.0.lock();
        let ring = self.ring();
        // SAFETY: the caller is the only consumer, so it owns the slots that are filled now.
        unsafe {
            let (head, queued) = (ring.head(), ring.len());
            // Another engine may add completions behind those that are queued now. So the ones that
            // stay move towards that end, in their order.
            let mut oldest = head.wrapping_add(queued);
            for n in (0..queued).rev() {
                let wc = ring.slot(head.wrapping_add(n)).header().read();
                if wc.qp != qp {
                    oldest = oldest.wrapping_sub(1);
                    ring.slot(oldest).header().write(wc);
                }
            }
            ring.release(oldest);
        }
    }

    #[cold]
    fn overrun(&self) {
        if !self.overrun.swap(true, Ordering::Relaxed) {
            (self.notify)(CqEvent::Overflow);
        }
    }

    /// If the queue is armed for a completion that was pushed, notifies the owner of the queue. One
    /// fence serves a whole batch of completions.
    ///
    /// # Safety
    /// The engine lock must be held.
    #[inline]
    pub(crate) unsafe fn announce(&self) {
        let producer = self.become_producer();
        // SAFETY: `unannounced` belongs to the producer, and the caller is the only producer.
        let Unannounced { any, solicited } =
            std::mem::take(unsafe { &mut *self.unannounced.get() });
        drop(producer);
        if !any {
            return;
        }
        fence(Ordering::SeqCst);
        // Another thread may widen the request of a `ConcurrentCq` at this moment. The event is
        // then still due, because of the earlier request. So the exchange is repeated with the new
        // state.
        let is_wanted = |armed: u8| armed == ARMED_ANY || (armed == ARMED_SOLICITED && solicited);
        let disarm = |armed: u8| is_wanted(armed).then_some(DISARMED);
        if self.armed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, disarm).is_ok() {
            (self.notify)(CqEvent::Ready);
        }
    }

    fn ring(&self) -> &Ring<Wc> {
        // SAFETY: `resize` replaces the ring only while nobody else uses it.
        unsafe { &*self.ring.get() }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
