//! Loom tests: one thread at a time holds the lock, published work is done, and no waiter is
//! forgotten.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;

use super::*;

/// Adds up the published numbers in a cell that loom watches: concurrent access is an error.
struct Adder {
    published: Arc<AtomicU64>,
    sum: UnsafeCell<u64>,
}

impl Deferring for Adder {
    fn run_deferred(&mut self) {
        let new = self.published.swap(0, Ordering::Relaxed);
        // SAFETY: the lock makes this access exclusive. The test checks that.
        self.sum.with_mut(|sum| unsafe { *sum += new });
    }
    fn before_unlock(&mut self) {}
}

/// Runs `work` in three threads, including this one, after each has published work. Then checks
/// that no work is left.
fn model(work: fn(usize, &EngineLock<Adder>)) {
    loom::model(move || {
        let published = Arc::new(AtomicU64::new(0));
        let adder = Adder { published: Arc::clone(&published), sum: UnsafeCell::new(0) };
        let lock = Arc::new(EngineLock::new(adder));
        let publish_and_work =
            move |thread: usize, published: &AtomicU64, lock: &EngineLock<Adder>| {
                published.fetch_add(1, Ordering::Relaxed);
                work(thread, lock);
            };
        let others: Vec<_> = (1..3)
            .map(|thread| {
                let (published, lock) = (Arc::clone(&published), Arc::clone(&lock));
                thread::spawn(move || publish_and_work(thread, &published, &lock))
            })
            .collect();
        publish_and_work(0, &published, &lock);
        others.into_iter().for_each(|thread| thread.join().unwrap());
        // All published work must be done now. Otherwise the rest would have to wait for the next
        // holder of the lock.
        assert_eq!(published.load(Ordering::Relaxed), 0);
        let held = lock.try_lock().expect("no thread holds the lock or waits for it");
        // SAFETY: the other threads have ended.
        assert_eq!(held.sum.with(|sum| unsafe { *sum }), 3);
    });
}

#[test]
fn loom_published_work_is_done() {
    model(|_, lock| {
        lock.run_or_delegate();
    });
}

#[test]
fn loom_a_waiter_gets_the_lock() {
    model(|thread, lock| match thread {
        0 => lock.lock().run_deferred(),
        _ => {
            lock.run_or_delegate();
        }
    });
}

#[test]
fn loom_two_waiters_get_the_lock() {
    model(|thread, lock| match thread {
        2 => {
            lock.run_or_delegate();
        }
        _ => lock.lock().run_deferred(),
    });
}

/// An engine uses memory only if it finds the memory's key valid under its lock. After the key has
/// been made invalid and the holder was awaited, no engine uses the memory.
#[test]
fn loom_memory_is_free_when_the_holder_was_awaited() {
    loom::model(|| {
        let adder = Adder { published: Arc::default(), sum: UnsafeCell::new(0) };
        let lock = Arc::new(EngineLock::new(adder));
        let key = Arc::new(AtomicU64::new(1));
        let memory = Arc::new(UnsafeCell::new(0));
        let engine = {
            let (lock, key, memory) = (Arc::clone(&lock), Arc::clone(&key), Arc::clone(&memory));
            thread::spawn(move || {
                for _ in 0..2 {
                    let _held = lock.lock();
                    if key.load(Ordering::Acquire) != 0 {
                        // SAFETY: the test checks that nobody else uses the memory now.
                        memory.with_mut(|memory| unsafe { *memory += 1 });
                    }
                }
            })
        };
        key.store(0, Ordering::Release);
        lock.await_holder();
        // SAFETY: the test checks that nobody else uses the memory now.
        memory.with_mut(|memory| unsafe { *memory += 1 });
        engine.join().unwrap();
    });
}

/// Two engines that each make a key invalid while the other one may use its memory wait for each
/// other. Both go on, and then the other one uses the memory only if it still finds the key valid.
#[test]
fn loom_two_engines_wait_for_each_other() {
    struct Engine {
        lock: EngineLock<Adder>,
        /// The key that this engine makes invalid.
        key: AtomicU64,
        memory: UnsafeCell<u64>,
    }
    let use_memory = |engine: &Engine| {
        // SAFETY: the test checks that nobody else uses the memory now.
        engine.memory.with_mut(|memory| unsafe { *memory += 1 });
    };
    loom::model(move || {
        let engines = Arc::new([(); 2].map(|()| Engine {
            lock: EngineLock::new(Adder { published: Arc::default(), sum: UnsafeCell::new(0) }),
            key: AtomicU64::new(1),
            memory: UnsafeCell::new(0),
        }));
        let run = move |engines: &[Engine; 2], number: usize| {
            let (own, other) = (&engines[number], &engines[1 - number]);
            let _held = own.lock.lock();
            if other.key.load(Ordering::Acquire) != 0 {
                use_memory(other);
            }
            own.key.store(0, Ordering::Release);
            own.lock.begin_wait();
            other.lock.await_holder();
            own.lock.end_wait();
            use_memory(own);
            if other.key.load(Ordering::Acquire) != 0 {
                use_memory(other);
            }
        };
        let second = {
            let engines = Arc::clone(&engines);
            thread::spawn(move || run(&engines, 1))
        };
        run(&engines, 0);
        second.join().unwrap();
    });
}
