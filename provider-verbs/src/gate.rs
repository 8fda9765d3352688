//! A gate that one thread enters often and at almost no cost, and that other threads can close.
//!
//! One thread at a time polls a completion queue or posts to a work queue, and it must not pay for
//! a lock. When a connection ends, another thread must exclude the polling or posting thread: the
//! other thread closes the gate and waits until no thread is inside. This is Dekker's algorithm,
//! with its whole cost moved to the thread that closes the gate, which happens rarely.
//! [`Gate::enter`] has no memory fence. Instead [`Gate::close`] makes the kernel execute a fence on
//! every processor that runs this process (membarrier(2), Linux 4.14).

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, compiler_fence};

use waiting::barrier;

/// A gate: see the module's documentation.
#[derive(Debug, Default)]
pub struct Gate {
    inside: AtomicBool,
    closers: AtomicU32,
}

/// Proof that a thread is inside the gate. Dropping this value leaves the gate.
#[derive(Debug)]
pub struct GateHolder<'a>(&'a Gate);

/// Proof that no thread is inside the gate. No thread can enter until this value is dropped.
#[derive(Debug)]
pub struct GateClosed<'a>(&'a Gate);

impl Gate {
    /// Enters the gate. Returns `None` if it is closed.
    ///
    /// # Safety
    /// Only one thread at a time calls this and is inside. (If a second thread were inside and
    /// left, a closing thread would assume that no thread is inside although the first still is.)
    #[inline]
    pub unsafe fn enter(&self) -> Option<GateHolder<'_>> {
        self.inside.store(true, Ordering::Relaxed);
        // A compiler fence suffices here. A thread that closes the gate calls
        // `barrier::fence_all_threads`, which executes the processor's fence for this thread too.
        compiler_fence(Ordering::SeqCst);
        let inside = GateHolder(self);
        (self.closers.load(Ordering::Acquire) == 0).then_some(inside)
    }

    /// Closes the gate and waits until no thread is inside. Several threads may keep the gate
    /// closed at the same time.
    pub fn close(&self) -> GateClosed<'_> {
        self.closers.fetch_add(1, Ordering::SeqCst);
        assert!(barrier::fence_all_threads(), "membarrier(2) worked when the adapter was opened");
        while self.inside.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        GateClosed(self)
    }
}

impl Drop for GateHolder<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.inside.store(false, Ordering::Release);
    }
}

impl Drop for GateClosed<'_> {
    fn drop(&mut self) {
        self.0.closers.fetch_sub(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::UnsafeCell;

    use super::*;

    #[test]
    fn nobody_enters_a_closed_gate() {
        let gate = Gate::default();
        // SAFETY: the test has one thread.
        let enter = || unsafe { gate.enter() };
        drop(enter().expect("the gate is open"));
        let (first, second) = (gate.close(), gate.close());
        assert!(enter().is_none());
        drop(first);
        assert!(enter().is_none());
        drop(second);
        assert!(enter().is_some());
    }

    #[test]
    fn a_closer_is_alone() {
        struct Guarded(Gate, UnsafeCell<u64>);
        // SAFETY: the cell is accessed only inside of the gate or while it is closed.
        unsafe impl Sync for Guarded {}
        let shared = Guarded(Gate::default(), UnsafeCell::new(0));
        let add = |shared: &Guarded| {
            // SAFETY: the access is exclusive. If it were not, an addition would be lost.
            unsafe { *shared.1.get() = std::hint::black_box(*shared.1.get()) + 1 }
        };
        const TIMES: u64 = 20_000;
        std::thread::scope(|s| {
            let shared = &shared;
            s.spawn(move || {
                let mut done = 0;
                while done < TIMES {
                    // SAFETY: only this thread enters.
                    if let Some(_inside) = unsafe { shared.0.enter() } {
                        add(shared);
                        done += 1;
                    }
                }
            });
            s.spawn(move || {
                for _ in 0..TIMES / 10 {
                    let _closed = shared.0.close();
                    add(shared);
                }
            });
        });
        assert_eq!(shared.1.into_inner(), TIMES + TIMES / 10);
    }
}
