//! The doorbells, by which threads tell the engine which queue pairs have new work.

use std::ptr;

use crate::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// A lock-free stack of doorbells. Any thread may push a doorbell. The holder of the engine lock
/// takes all doorbells.
#[derive(Default)]
pub(crate) struct Doorbells {
    top: AtomicPtr<Doorbell>,
}

/// The doorbell of one queue pair. It is an entry of the stack while it rings.
pub(crate) struct Doorbell {
    next: AtomicPtr<Doorbell>,
    set: AtomicBool,
    index: usize,
}

impl Doorbell {
    /// Creates the doorbell of the queue pair with this index in the engine's table.
    pub(crate) fn new(index: usize) -> Self {
        Doorbell { next: AtomicPtr::default(), set: AtomicBool::new(false), index }
    }

    /// The index of the queue pair.
    pub(crate) fn index(&self) -> usize {
        self.index
    }
}

impl Doorbells {
    /// Pushes the doorbell of a queue pair whose work has been published. Returns true if the
    /// doorbell was not in the stack yet. In that case the caller may have to wake a sleeping
    /// thread.
    ///
    /// # Safety
    /// The doorbell stays at its address until a [`Doorbells::take`] that begins after its last
    /// push.
    #[inline]
    pub(crate) unsafe fn push(&self, doorbell: &Doorbell) -> bool {
        // The swap writes the flag even if it is set already. The thread that takes the doorbell
        // reads the flag, and therefore sees all work that was published before this write (see
        // `take`).
        if doorbell.set.swap(true, Ordering::AcqRel) {
            return false;
        }
        let this = ptr::from_ref(doorbell).cast_mut();
        let mut top = self.top.load(Ordering::Relaxed);
        loop {
            doorbell.next.store(top, Ordering::Relaxed);
            // SeqCst: a thread that is about to sleep first announces its sleep and then checks
            // this stack (engine_shared.rs).
            match self.top.compare_exchange_weak(top, this, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => top = now,
            }
        }
    }

    /// Takes all doorbells and calls `found` with the index of each queue pair.
    pub(crate) fn take(&self, mut found: impl FnMut(usize)) {
        let mut next = self.top.swap(ptr::null_mut(), Ordering::SeqCst);
        // SAFETY: the callers of `push` keep doorbells in place until they have been taken.
        while let Some(doorbell) = unsafe { next.as_ref() } {
            next = doorbell.next.load(Ordering::Relaxed);
            let index = doorbell.index;
            // From here on, other threads may push the doorbell again. Acquire: `found` sees all
            // work that was published before any of the pushes so far.
            doorbell.set.swap(false, Ordering::AcqRel);
            found(index);
        }
    }

    /// Returns whether no doorbell is in the stack.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.top.load(Ordering::SeqCst).is_null()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn each_doorbell_is_taken_once() {
        let doorbells = Doorbells::default();
        let rung: Vec<Doorbell> = (0..3).map(Doorbell::new).collect();
        // SAFETY: the doorbells outlive the use of the stack.
        let push = |i: usize| unsafe { doorbells.push(&rung[i]) };
        assert!(doorbells.is_empty());
        assert!(push(0) && push(1) && !push(0) && push(2));
        assert!(!doorbells.is_empty());
        let mut taken = Vec::new();
        doorbells.take(|i| taken.push(i));
        assert_eq!(taken, [2, 1, 0]);
        assert!(doorbells.is_empty() && push(0));
    }

    #[test]
    fn no_work_is_lost_between_pushers_and_taker() {
        const DOORBELLS: usize = 3;
        const EACH: u64 = if cfg!(miri) { 200 } else { 200_000 };
        let doorbells = Doorbells::default();
        let rung: Vec<Doorbell> = (0..DOORBELLS).map(Doorbell::new).collect();
        let work: Vec<AtomicU64> = (0..DOORBELLS).map(|_| AtomicU64::new(0)).collect();
        let mut done = [0; DOORBELLS];
        std::thread::scope(|s| {
            for (doorbell, work) in rung.iter().zip(&work) {
                let doorbells = &doorbells;
                s.spawn(move || {
                    for _ in 0..EACH {
                        work.fetch_add(1, Ordering::Relaxed);
                        // SAFETY: the doorbells outlive the threads.
                        unsafe { doorbells.push(doorbell) };
                    }
                });
            }
            // The loop ends only if no push was lost.
            while done.iter().sum::<u64>() < DOORBELLS as u64 * EACH {
                doorbells.take(|i| done[i] += work[i].swap(0, Ordering::Relaxed));
            }
        });
        assert_eq!(done, [EACH; DOORBELLS]);
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
