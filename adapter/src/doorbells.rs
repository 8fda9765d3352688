//! Which queue pairs have work that nobody has looked at yet.

use std::ptr;

use crate::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// A lock-free stack of queue pairs: anyone pushes, the holder of the engine lock takes all.
#[derive(Default)]
pub(crate) struct Doorbells {
    top: AtomicPtr<Doorbell>,
}

/// A queue pair's place in the stack.
pub(crate) struct Doorbell {
    next: AtomicPtr<Doorbell>,
    set: AtomicBool,
    index: usize,
}

impl Doorbell {
    /// The mark of the queue pair with this index in the engine's table.
    pub(crate) fn new(index: usize) -> Self {
        Doorbell { next: AtomicPtr::default(), set: AtomicBool::new(false), index }
    }

    /// The queue pair's index.
    pub(crate) fn index(&self) -> usize {
        self.index
    }
}

impl Doorbells {
    /// Marks a queue pair whose work has been published. True: it is news to those who look only sometimes.
    ///
    /// # Safety
    /// The mark stays where it is until a [`Doorbells::take`] that begins after the last push of it.
    #[inline]
    pub(crate) unsafe fn push(&self, mark: &Doorbell) -> bool {
        // Even where the mark is set already this must be a write: who takes it then sees the work (see `take`).
        if mark.set.swap(true, Ordering::AcqRel) {
            return false;
        }
        let this = ptr::from_ref(mark).cast_mut();
        let mut top = self.top.load(Ordering::Relaxed);
        loop {
            mark.next.store(top, Ordering::Relaxed);
            // SeqCst: whoever is about to sleep has said so before it looks here (reactor.rs).
            match self.top.compare_exchange_weak(top, this, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => top = now,
            }
        }
    }

    /// Takes all marks; calls `found` with the index of each.
    pub(crate) fn take(&self, mut found: impl FnMut(usize)) {
        let mut next = self.top.swap(ptr::null_mut(), Ordering::SeqCst);
        // SAFETY: `push` promises that marks stay until they were taken.
        while let Some(mark) = unsafe { next.as_ref() } {
            next = mark.next.load(Ordering::Relaxed);
            let index = mark.index;
            // From here on the mark may be pushed again. Acquire: the work behind every push so far is seen by `found`.
            mark.set.swap(false, Ordering::AcqRel);
            found(index);
        }
    }

    /// Whether no queue pair is marked.
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
    fn marks_come_out_once() {
        let dirty = Doorbells::default();
        let marks: Vec<Doorbell> = (0..3).map(Doorbell::new).collect();
        // SAFETY: the marks outlive the stack's use.
        let push = |i: usize| unsafe { dirty.push(&marks[i]) };
        assert!(dirty.is_empty());
        assert!(push(0) && push(1) && !push(0) && push(2));
        assert!(!dirty.is_empty());
        let mut taken = Vec::new();
        dirty.take(|i| taken.push(i));
        assert_eq!(taken, [2, 1, 0]);
        assert!(dirty.is_empty() && push(0));
    }

    #[test]
    fn no_work_is_lost_between_pushers_and_taker() {
        const MARKS: usize = 3;
        const EACH: u64 = if cfg!(miri) { 200 } else { 200_000 };
        let dirty = Doorbells::default();
        let marks: Vec<Doorbell> = (0..MARKS).map(Doorbell::new).collect();
        let work: Vec<AtomicU64> = (0..MARKS).map(|_| AtomicU64::new(0)).collect();
        let mut done = [0; MARKS];
        std::thread::scope(|s| {
            for (mark, work) in marks.iter().zip(&work) {
                let dirty = &dirty;
                s.spawn(move || {
                    for _ in 0..EACH {
                        work.fetch_add(1, Ordering::Relaxed);
                        // SAFETY: the marks outlive the threads.
                        unsafe { dirty.push(mark) };
                    }
                });
            }
            // Ends only if no push was lost.
            while done.iter().sum::<u64>() < MARKS as u64 * EACH {
                dirty.take(|i| done[i] += work[i].swap(0, Ordering::Relaxed));
            }
        });
        assert_eq!(done, [EACH; MARKS]);
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
