//! No call uses an object that is being freed or was freed. The object is a cell of loom's, which reports any
//! use beside a write; who frees it writes.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::*;

const TAG: u64 = 7;
const ALIVE: u32 = 1;
const FREED: u32 = 2;

/// A handle of a thread-safe adapter with its object.
struct Place {
    gate: Gate,
    object: UnsafeCell<u32>,
}

// SAFETY: what the models show; loom reports a mistake.
unsafe impl Sync for Place {}

impl Place {
    fn new() -> Self {
        let gate = Gate {
            tag: AtomicU64::new(0),
            lock: AtomicUsize::new(0),
            pins: AtomicU32::new(0),
            shared: AtomicBool::new(false),
        };
        gate.open(TAG, true);
        Place { gate, object: UnsafeCell::new(ALIVE) }
    }

    fn look(&self) {
        // SAFETY: loom sees to it.
        self.object.with(|object| assert_eq!(unsafe { *object }, ALIVE));
    }

    /// A call on the object. Whether it was there.
    fn call(&self) -> bool {
        let called = self.gate.locked(|| {
            let open = self.gate.is_open_for(TAG);
            if open {
                self.look();
            }
            Ok(open)
        });
        called.unwrap()
    }

    /// A call on `subject` that names this object, too.
    fn named_by(&self, subject: &Place) {
        if self.pinned() {
            let both = subject.gate.locked(|| {
                if subject.gate.is_open_for(TAG) {
                    subject.look();
                    self.look();
                }
                Ok(())
            });
            both.unwrap();
            self.gate.unpin();
        }
    }

    /// One more pin, if the object is there.
    fn pinned(&self) -> bool {
        let pinned = self.gate.locked(|| {
            let open = self.gate.is_open_for(TAG);
            if open {
                self.gate.pin();
            }
            Ok(open)
        });
        pinned.unwrap()
    }

    /// Frees the object. Whether this was the one to do so.
    fn free(&self) -> bool {
        let freed = self.gate.locked(|| {
            if !self.gate.is_open_for(TAG) {
                return Ok(false);
            }
            self.gate.await_unpinned();
            let closed = self.gate.close(TAG);
            if closed {
                // SAFETY: loom sees to it.
                self.object.with_mut(|object| unsafe { *object = FREED });
            }
            Ok(closed)
        });
        freed.unwrap()
    }
}

#[test]
fn loom_a_call_finds_the_object_whole_or_gone() {
    loom::model(|| {
        let place = Arc::new(Place::new());
        let caller = {
            let place = Arc::clone(&place);
            thread::spawn(move || place.call())
        };
        assert!(place.free());
        caller.join().unwrap();
        assert!(!place.call());
    });
}

#[test]
fn loom_one_of_two_frees_an_object() {
    loom::model(|| {
        let place = Arc::new(Place::new());
        let other = {
            let place = Arc::clone(&place);
            thread::spawn(move || place.free())
        };
        let freed = place.free();
        assert_ne!(freed, other.join().unwrap());
    });
}

#[test]
fn loom_a_pinned_object_is_freed_after_the_call() {
    loom::model(|| {
        let (subject, named) = (Arc::new(Place::new()), Arc::new(Place::new()));
        let caller = {
            let (subject, named) = (Arc::clone(&subject), Arc::clone(&named));
            thread::spawn(move || named.named_by(&subject))
        };
        assert!(named.free());
        caller.join().unwrap();
    });
}

/// Both objects of a call are freed under it, each by a thread of its own: nobody waits for ever. With three
/// pre-emptions loom does not end: it tries longer and longer schedules in which the two who wait yield to
/// each other, and the third does not run.
#[test]
fn loom_both_objects_of_a_call_are_freed() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let (subject, named) = (Arc::new(Place::new()), Arc::new(Place::new()));
        let caller = {
            let (subject, named) = (Arc::clone(&subject), Arc::clone(&named));
            thread::spawn(move || named.named_by(&subject))
        };
        let other = {
            let subject = Arc::clone(&subject);
            thread::spawn(move || assert!(subject.free()))
        };
        assert!(named.free());
        other.join().unwrap();
        caller.join().unwrap();
    });
}
