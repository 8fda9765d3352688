//! One thread at a time holds the lock, published work is done, and no waiter is forgotten.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;

use super::*;

/// Adds up what is published, in a cell that loom watches: two threads in it at a time are an error.
struct Adder {
    published: Arc<AtomicU64>,
    sum: UnsafeCell<u64>,
}

impl Deferring for Adder {
    fn run_deferred(&mut self) {
        let new = self.published.swap(0, Ordering::Relaxed);
        // SAFETY: this is what is tested.
        self.sum.with_mut(|sum| unsafe { *sum += new });
    }
    fn before_unlock(&mut self) {}
}

/// Three threads, this one included, do `work` with what they have published; then nothing is left over.
fn model(work: fn(usize, &EngineLock<Adder>)) {
    loom::model(move || {
        let published = Arc::new(AtomicU64::new(0));
        let adder = Adder { published: Arc::clone(&published), sum: UnsafeCell::new(0) };
        let lease = Arc::new(EngineLock::new(adder));
        let publish_and_work =
            move |thread: usize, published: &AtomicU64, lease: &EngineLock<Adder>| {
                published.fetch_add(1, Ordering::Relaxed);
                work(thread, lease);
            };
        let others: Vec<_> = (1..3)
            .map(|thread| {
                let (published, lease) = (Arc::clone(&published), Arc::clone(&lease));
                thread::spawn(move || publish_and_work(thread, &published, &lease))
            })
            .collect();
        publish_and_work(0, &published, &lease);
        others.into_iter().for_each(|thread| thread.join().unwrap());
        // Nothing that only the next holder would have found.
        assert_eq!(published.load(Ordering::Relaxed), 0);
        let held = lease.try_lock().expect("nobody has it or waits for it");
        // SAFETY: the other threads have ended.
        assert_eq!(held.sum.with(|sum| unsafe { *sum }), 3);
    });
}

#[test]
fn loom_what_is_published_is_served() {
    model(|_, lease| {
        lease.run_or_delegate();
    });
}

#[test]
fn loom_a_waiter_gets_the_lease() {
    model(|thread, lease| match thread {
        0 => lease.lock().run_deferred(),
        _ => {
            lease.run_or_delegate();
        }
    });
}

#[test]
fn loom_two_waiters_get_the_lease() {
    model(|thread, lease| match thread {
        2 => {
            lease.run_or_delegate();
        }
        _ => lease.lock().run_deferred(),
    });
}
