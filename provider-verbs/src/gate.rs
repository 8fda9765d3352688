//! A door that one thread goes through often and for next to nothing, and that others can shut.
//!
//! Whoever polls a completion queue or posts to a queue is one thread at a time, and must not pay for a lock. When a connection
//! ends, another thread has to get in between: it shuts the gate and waits until nobody is inside. This is Dekker's algorithm
//! with all of its cost on the rare side: instead of a fence in every [`Gate::enter`], [`Gate::shut`] has the kernel run one on
//! every processor where this process is (membarrier(2), Linux 4.14).

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, compiler_fence};

use dat_core::barrier;

/// See above.
#[derive(Debug, Default)]
pub struct Gate {
    inside: AtomicBool,
    shut: AtomicU32,
}

/// The one thread is inside; it leaves when this is dropped.
#[derive(Debug)]
pub struct Inside<'a>(&'a Gate);

/// Nobody is inside, and nobody gets in until this is dropped.
#[derive(Debug)]
pub struct Shut<'a>(&'a Gate);

impl Gate {
    /// Goes in; none: it is shut.
    ///
    /// # Safety
    /// One thread at a time calls this and is inside. (A second one that leaves would let others in while the
    /// first is inside.)
    #[inline]
    pub unsafe fn enter(&self) -> Option<Inside<'_>> {
        self.inside.store(true, Ordering::Relaxed);
        // On this processor: `barrier::fence_all_threads`.
        compiler_fence(Ordering::SeqCst);
        let inside = Inside(self);
        (self.shut.load(Ordering::Acquire) == 0).then_some(inside)
    }

    /// Shuts it and waits until nobody is inside. Several may have it shut at a time.
    pub fn shut(&self) -> Shut<'_> {
        self.shut.fetch_add(1, Ordering::SeqCst);
        assert!(
            barrier::fence_all_threads(),
            "membarrier(2) was there when the adapter was opened"
        );
        while self.inside.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        Shut(self)
    }
}

impl Drop for Inside<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.inside.store(false, Ordering::Release);
    }
}

impl Drop for Shut<'_> {
    fn drop(&mut self) {
        self.0.shut.fetch_sub(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::UnsafeCell;

    use super::*;

    #[test]
    fn a_shut_gate_lets_nobody_in() {
        let gate = Gate::default();
        // SAFETY: one thread.
        let enter = || unsafe { gate.enter() };
        drop(enter().expect("it is open"));
        let (first, second) = (gate.shut(), gate.shut());
        assert!(enter().is_none());
        drop(first);
        assert!(enter().is_none());
        drop(second);
        assert!(enter().is_some());
    }

    #[test]
    fn who_shuts_it_is_alone() {
        struct Shared(Gate, UnsafeCell<u64>);
        // SAFETY: the cell is used inside of the gate, or while it is shut.
        unsafe impl Sync for Shared {}
        let shared = Shared(Gate::default(), UnsafeCell::new(0));
        let add = |shared: &Shared| {
            // SAFETY: as above; were two here at a time, an addition would be lost.
            unsafe { *shared.1.get() = std::hint::black_box(*shared.1.get()) + 1 }
        };
        const TIMES: u64 = 20_000;
        std::thread::scope(|s| {
            let shared = &shared;
            s.spawn(move || {
                let mut done = 0;
                while done < TIMES {
                    // SAFETY: this thread alone goes in.
                    if let Some(_inside) = unsafe { shared.0.enter() } {
                        add(shared);
                        done += 1;
                    }
                }
            });
            s.spawn(move || {
                for _ in 0..TIMES / 10 {
                    let _shut = shared.0.shut();
                    add(shared);
                }
            });
        });
        assert_eq!(shared.1.into_inner(), TIMES + TIMES / 10);
    }
}
