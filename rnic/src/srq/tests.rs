use std::thread;

use super::*;
use crate::Access;
use crate::wr::Segment;

#[test]
fn refusals_are_those_of_a_queue_pair() {
    let keys = Arc::new(Keys::new());
    let (pd, other) = (keys.pd(), keys.pd());
    let srq = Srq::new(&keys, pd, 2, 2, || {}).unwrap();
    let write_only = Access { local_write: true, ..Access::default() };
    let read_only = Access { local_read: true, ..Access::default() };
    let good = keys.register(pd, 100, 100, write_only, false).unwrap();
    let foreign = keys.register(other, 100, 100, write_only, false).unwrap();
    let sealed = keys.register(pd, 100, 100, read_only, false).unwrap();

    // SAFETY: no octet is ever placed in the memory.
    let post =
        |segments: &[Segment]| unsafe { srq.post_recv(&RecvWr { id: 0, segments, quiet: false }) };
    let segment = |addr, len, key| Segment { addr, len, key };
    assert_eq!(post(&[segment(100, 101, good)]), Err(PostError::Bounds));
    assert_eq!(post(&[segment(100, 1, good ^ 1)]), Err(PostError::Key));
    assert_eq!(post(&[segment(100, 1, foreign)]), Err(PostError::Domain));
    assert_eq!(post(&[segment(100, 1, sealed)]), Err(PostError::Access { write: true }));
    assert_eq!(post(&[segment(100, 1, good); 3]), Err(PostError::Unsupported));
    assert_eq!(srq.available(), 0);
    assert_eq!(
        post(&[segment(0, 0, 0), segment(100, 100, good)]),
        Ok(false),
        "the key of an empty segment is not checked"
    );
    assert_eq!(post(&[]), Ok(false));
    assert_eq!(post(&[]), Err(PostError::Full));

    let mut segments = [Segment::default(); 2];
    // SAFETY: the test runs in one thread.
    let first = unsafe { srq.take(None, &mut segments) }.unwrap();
    assert_eq!((first.len, first.segments, segments[0]), (100, 1, segment(100, 100, good)));
}

#[test]
fn many_threads_post() {
    const EACH: u64 = if cfg!(miri) { 100 } else { 20_000 };
    let keys = Arc::new(Keys::new());
    let srq = Srq::new(&keys, keys.pd(), 8, 0, || {}).unwrap();
    let mut last = [None; 3];
    thread::scope(|scope| {
        for poster in 0..3u64 {
            let srq = &srq;
            scope.spawn(move || {
                for n in 0..EACH {
                    let wr = RecvWr { id: poster << 32 | n, segments: &[], quiet: false };
                    // SAFETY: the receive has no segments, so no memory must stay valid.
                    while unsafe { srq.post_recv(&wr) } == Err(PostError::Full) {
                        thread::yield_now();
                    }
                }
            });
        }
        let mut taken = 0;
        while taken < 3 * EACH {
            // SAFETY: this thread is the only consumer.
            match unsafe { srq.take(None, &mut []) } {
                Some(rqe) => {
                    let last = &mut last[(rqe.id >> 32) as usize];
                    let n = rqe.id & 0xFFFF_FFFF;
                    assert_eq!(n, last.map_or(0, |last: u64| last + 1));
                    *last = Some(n);
                    taken += 1;
                }
                None => thread::yield_now(),
            }
        }
    });
    assert_eq!((last, srq.available()), ([Some(EACH - 1); 3], 0));
}
