//! Loom tests: the thread that takes doorbells finds the work of every push.

use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;

use super::*;

struct SharedDoorbells {
    doorbells: Doorbells,
    rung: [Doorbell; 2],
    work: [AtomicU64; 2],
}

impl SharedDoorbells {
    fn publish(&self, index: usize) {
        self.work[index].fetch_add(1, Ordering::Relaxed);
        // SAFETY: the doorbells outlive the threads.
        unsafe { self.doorbells.push(&self.rung[index]) };
    }

    fn take(&self) -> u64 {
        let mut taken = 0;
        self.doorbells.take(|index| taken += self.work[index].swap(0, Ordering::Relaxed));
        taken
    }
}

#[test]
fn loom_published_work_is_found() {
    loom::model(|| {
        let shared = Arc::new(SharedDoorbells {
            doorbells: Doorbells::default(),
            rung: [0, 1].map(Doorbell::new),
            work: [0, 0].map(AtomicU64::new),
        });
        // Both threads push the first queue pair. The second thread also pushes the second queue
        // pair.
        let pushers = [&[0][..], &[0, 1]].map(|indices| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || indices.iter().for_each(|index| shared.publish(*index)))
        });
        let mut taken = shared.take() + shared.take();
        pushers.into_iter().for_each(|thread| thread.join().unwrap());
        taken += shared.take();
        assert_eq!(taken, 3);
        assert!(shared.doorbells.is_empty());
    });
}
