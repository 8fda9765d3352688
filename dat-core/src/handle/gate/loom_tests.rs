//! No call uses an object that is being freed or was freed. The object is a cell of loom's, which reports any
//! use beside a write; who frees it writes.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::*;

const TAG: u64 = 7;
/// Of an object of another kind.
const OTHER_TAG: u64 = 8;
const ALIVE: u32 = 1;
const FREED: u32 = 2;
/// Another object, in the same memory.
const NEXT: u32 = 3;

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

    /// Puts another object behind the handle, as `insert` does: with a pin, until the call that makes it is over.
    fn reuse(&self, tag: u64) {
        // SAFETY: loom sees to it.
        self.object.with_mut(|object| unsafe { *object = NEXT });
        self.gate.pin();
        self.gate.open(tag, true);
        self.gate.unpin();
    }

    /// A call on an object of this tag. What it was; none: there was no such object.
    fn call_on(&self, tag: u64) -> Option<u32> {
        let called = self.gate.locked(|| {
            let open = self.gate.is_open_for(tag);
            // SAFETY: loom sees to it.
            Ok(open.then(|| self.object.with(|object| unsafe { *object })))
        });
        called.unwrap()
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

/// The slot of a freed object gets another one of the same kind: a call by the stale handle is on one of them
/// as a whole, or on none. The new one is freed in turn.
#[test]
fn loom_a_slot_is_used_again() {
    loom::model(|| {
        let place = Arc::new(Place::new());
        let caller = {
            let place = Arc::clone(&place);
            thread::spawn(move || assert_ne!(place.call_on(TAG), Some(FREED)))
        };
        assert!(place.free());
        place.reuse(TAG);
        assert!(place.free());
        caller.join().unwrap();
        assert_eq!(place.call_on(TAG), None);
    });
}

/// The same with one of another kind: a call by the stale handle never takes it for its own.
#[test]
fn loom_a_slot_is_used_again_for_another_kind() {
    loom::model(|| {
        let place = Arc::new(Place::new());
        let caller = {
            let place = Arc::clone(&place);
            thread::spawn(move || {
                assert!(matches!(place.call_on(TAG), None | Some(ALIVE)));
                assert!(matches!(place.call_on(OTHER_TAG), None | Some(NEXT)));
            })
        };
        assert!(place.free());
        place.reuse(OTHER_TAG);
        caller.join().unwrap();
    });
}

/// A call pins the object by a stale handle while the slot is used again: who frees the new one waits for it.
#[test]
fn loom_a_pin_by_a_stale_handle_holds_the_new_object() {
    loom::model(|| {
        let place = Arc::new(Place::new());
        let caller = {
            let place = Arc::clone(&place);
            thread::spawn(move || {
                if place.pinned() {
                    // SAFETY: loom sees to it.
                    let found = place.object.with(|object| unsafe { *object });
                    assert_ne!(found, FREED);
                    place.gate.unpin();
                }
            })
        };
        assert!(place.free());
        place.reuse(TAG);
        assert!(place.free());
        caller.join().unwrap();
    });
}
