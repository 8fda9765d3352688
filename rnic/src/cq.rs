//! Completion queue.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;

use crate::ring::{OutOfMemory, Ring};
use crate::sync::atomic::{AtomicBool, AtomicU8, Ordering, fence};
use crate::wr::{Wc, WcStatus};

/// What a completion queue tells its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CqEvent {
    /// It was armed and has a completion that counts; it is armed no more.
    Ready,
    /// It had no room for a completion, which is lost, and so are all that follow. Told once.
    Overflow,
}

/// Completions of any number of queue pairs: produced under the engine lock, consumed by one thread at a time.
pub struct Cq {
    ring: UnsafeCell<Ring<Wc>>,
    armed: AtomicU8,
    overrun: AtomicBool,
    fresh: UnsafeCell<Fresh>,
    notify: Box<dyn Fn(CqEvent) + Send + Sync>,
}

/// What was pushed since the last look at `armed`; the producer's.
#[derive(Clone, Copy, Default)]
struct Fresh {
    any: bool,
    solicited: bool,
}

const DISARMED: u8 = 0;
const ANY: u8 = 1;
const SOLICITED: u8 = 2;

// SAFETY: `ring` is shared as its type allows and replaced only while both its sides rest (`resize`); `fresh` is the
// producer's alone.
unsafe impl Send for Cq {}
// SAFETY: as above.
unsafe impl Sync for Cq {}

impl Cq {
    /// A queue for at least `depth` completions. `notify` is called under the engine lock and must not call the engine.
    pub fn new(
        depth: usize,
        notify: impl Fn(CqEvent) + Send + Sync + 'static,
    ) -> Result<Self, OutOfMemory> {
        Ok(Cq {
            ring: UnsafeCell::new(Ring::new(depth, 0)?),
            armed: AtomicU8::new(DISARMED),
            overrun: AtomicBool::new(false),
            fresh: UnsafeCell::default(),
            notify: Box::new(notify),
        })
    }

    /// Moves completions out, oldest first; returns how many.
    ///
    /// # Safety
    /// One thread at a time.
    #[inline]
    pub unsafe fn poll(&self, out: &mut [MaybeUninit<Wc>]) -> usize {
        // SAFETY: the caller is the only consumer.
        unsafe {
            let mut out = out.iter_mut();
            self.poll_with(out.len(), |wc| {
                if let Some(place) = out.next() {
                    place.write(wc);
                }
            })
        }
    }

    /// Hands up to `max` completions to `take`, oldest first; returns how many.
    ///
    /// # Safety
    /// One thread at a time; `take` does not call this queue.
    #[inline]
    pub unsafe fn poll_with(&self, max: usize, mut take: impl FnMut(Wc)) -> usize {
        // SAFETY: the caller is the only consumer; filled slots are initialised and the consumer's.
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

    /// Whether a poll would find nothing.
    ///
    /// # Safety
    /// As [`poll`](Self::poll).
    #[inline]
    pub unsafe fn is_empty(&self) -> bool {
        // SAFETY: the caller is the only consumer.
        unsafe { !self.ring().is_filled(self.ring().head()) }
    }

    /// Asks for one [`CqEvent::Ready`] at the next completion (`solicited`: the next solicited or failed one); of two wishes the last one holds. False:
    /// the queue is not empty, poll again; nothing was armed.
    ///
    /// # Safety
    /// As [`poll`](Self::poll).
    pub unsafe fn arm(&self, solicited: bool) -> bool {
        self.armed.store(if solicited { SOLICITED } else { ANY }, Ordering::Relaxed);
        // Either the producer sees the mark (its fence is in `announce`) or the look below sees its completion.
        fence(Ordering::SeqCst);
        // SAFETY: the caller is the only consumer.
        if unsafe { self.is_empty() } {
            return true;
        }
        // Already taken: the event is on its way, which does no harm.
        self.armed.store(DISARMED, Ordering::Relaxed);
        false
    }

    /// Changes the depth to at least `depth`; nothing queued is lost. False: more is queued than that, nothing changed.
    ///
    /// # Safety
    /// Under the engine lock, and as [`poll`](Self::poll).
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

    /// Adds a completion; [`announce`](Self::announce) must follow, after any number of them.
    ///
    /// # Safety
    /// Under the engine lock.
    #[inline]
    pub(crate) unsafe fn push(&self, wc: Wc, solicited: bool) {
        // SAFETY: the caller is the only producer, and a vacant slot is the producer's.
        unsafe {
            let ring = self.ring();
            match ring.vacant() {
                // Behind a gap nothing makes sense any more.
                Some(slot) if !self.overrun.load(Ordering::Relaxed) => {
                    slot.header().write(wc);
                    ring.publish();
                }
                _ => self.overrun(),
            }
            let fresh = &mut *self.fresh.get();
            fresh.any = true;
            fresh.solicited |= solicited || wc.status != WcStatus::Success;
        }
    }

    #[cold]
    fn overrun(&self) {
        if !self.overrun.swap(true, Ordering::Relaxed) {
            (self.notify)(CqEvent::Overflow);
        }
    }

    /// Tells the owner about what was pushed, if it wants to know. One fence for a batch of completions.
    ///
    /// # Safety
    /// Under the engine lock.
    #[inline]
    pub(crate) unsafe fn announce(&self) {
        // SAFETY: `fresh` is the producer's, and the caller is the only one.
        let Fresh { any, solicited } = std::mem::take(unsafe { &mut *self.fresh.get() });
        if !any {
            return;
        }
        fence(Ordering::SeqCst);
        let armed = self.armed.load(Ordering::Relaxed);
        if (armed == ANY || (armed == SOLICITED && solicited))
            && self
                .armed
                .compare_exchange(armed, DISARMED, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        {
            (self.notify)(CqEvent::Ready);
        }
    }

    fn ring(&self) -> &Ring<Wc> {
        // SAFETY: replaced only while nobody else uses it (`resize`).
        unsafe { &*self.ring.get() }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
