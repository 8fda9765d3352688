//! The models show that no call uses an object that is being freed or was freed. The object is a
//! cell of loom. The thread that frees the object writes to the cell, and loom reports any use that
//! is concurrent with this write.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::*;

const TAG: u64 = 7;
/// The tag of objects of a second type.
const OTHER_TAG: u64 = 8;
const ALIVE: u32 = 1;
const FREED: u32 = 2;
/// The value of the object that gets the slot of the freed object.
const NEXT: u32 = 3;

/// A handle of a thread-safe adapter with its object.
struct Subject {
    lock: HandleLock,
    object: UnsafeCell<u32>,
}

// SAFETY: the models show that accesses are not concurrent. loom reports it if they are.
unsafe impl Sync for Subject {}

impl Subject {
    fn new() -> Self {
        let lock = HandleLock {
            tag: AtomicU64::new(0),
            owner: AtomicUsize::new(0),
            pins: AtomicU32::new(0),
            thread_safe: AtomicBool::new(false),
        };
        lock.make_live(TAG, true);
        Subject { lock, object: UnsafeCell::new(ALIVE) }
    }

    fn assert_alive(&self) {
        // SAFETY: loom checks the access.
        self.object.with(|object| assert_eq!(unsafe { *object }, ALIVE));
    }

    /// Puts another object behind the handle, as `insert` does. The object has one pin until the
    /// call that creates it has ended.
    fn reuse(&self, tag: u64) {
        // SAFETY: loom checks the access.
        self.object.with_mut(|object| unsafe { *object = NEXT });
        self.lock.pin();
        self.lock.make_live(tag, true);
        self.lock.unpin();
    }

    /// Models a call on an object with this tag. Returns the value of the object, or `None` if
    /// there is no such object.
    fn call_on(&self, tag: u64) -> Option<u32> {
        let called = self.lock.locked(|| {
            let open = self.lock.is_live_as(tag);
            // SAFETY: loom checks the access.
            Ok(open.then(|| self.object.with(|object| unsafe { *object })))
        });
        called.unwrap()
    }

    /// Models a call on the object. Returns whether the object existed.
    fn call(&self) -> bool {
        let called = self.lock.locked(|| {
            let open = self.lock.is_live_as(TAG);
            if open {
                self.assert_alive();
            }
            Ok(open)
        });
        called.unwrap()
    }

    /// Models a call on `subject` that names this object in another argument.
    fn named_by(&self, subject: &Subject) {
        if self.pinned() {
            let both = subject.lock.locked(|| {
                if subject.lock.is_live_as(TAG) {
                    subject.assert_alive();
                    self.assert_alive();
                }
                Ok(())
            });
            both.unwrap();
            self.lock.unpin();
        }
    }

    /// Pins the object if it exists. Returns whether it existed.
    fn pinned(&self) -> bool {
        let pinned = self.lock.locked(|| {
            let open = self.lock.is_live_as(TAG);
            if open {
                self.lock.pin();
            }
            Ok(open)
        });
        pinned.unwrap()
    }

    /// Frees the object. Returns whether this call freed it.
    fn free(&self) -> bool {
        let freed = self.lock.locked(|| {
            if !self.lock.is_live_as(TAG) {
                return Ok(false);
            }
            self.lock.await_unpinned();
            let closed = self.lock.make_stale(TAG);
            if closed {
                // SAFETY: loom checks the access.
                self.object.with_mut(|object| unsafe { *object = FREED });
            }
            Ok(closed)
        });
        freed.unwrap()
    }
}

#[test]
fn loom_a_call_finds_a_complete_object_or_none() {
    loom::model(|| {
        let subject = Arc::new(Subject::new());
        let caller = {
            let subject = Arc::clone(&subject);
            thread::spawn(move || subject.call())
        };
        assert!(subject.free());
        caller.join().unwrap();
        assert!(!subject.call());
    });
}

#[test]
fn loom_one_of_two_frees_an_object() {
    loom::model(|| {
        let subject = Arc::new(Subject::new());
        let other = {
            let subject = Arc::clone(&subject);
            thread::spawn(move || subject.free())
        };
        let freed = subject.free();
        assert_ne!(freed, other.join().unwrap());
    });
}

#[test]
fn loom_a_pinned_object_is_freed_after_the_call() {
    loom::model(|| {
        let (subject, named) = (Arc::new(Subject::new()), Arc::new(Subject::new()));
        let caller = {
            let (subject, named) = (Arc::clone(&subject), Arc::clone(&named));
            thread::spawn(move || named.named_by(&subject))
        };
        assert!(named.free());
        caller.join().unwrap();
    });
}

/// Both objects of a call are freed during the call, each by a thread of its own, and no thread
/// waits forever. The preemption bound is 2, because loom does not end with three preemptions: it
/// tries longer and longer schedules in which the two waiting threads yield to each other and the
/// third thread does not run.
#[test]
fn loom_both_objects_of_a_call_are_freed() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let (subject, named) = (Arc::new(Subject::new()), Arc::new(Subject::new()));
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

/// The slot of a freed object gets another object of the same type. A call with the stale handle
/// uses one of the two objects as a whole, or no object. The new object is freed as well.
#[test]
fn loom_a_slot_is_used_again() {
    loom::model(|| {
        let subject = Arc::new(Subject::new());
        let caller = {
            let subject = Arc::clone(&subject);
            thread::spawn(move || assert_ne!(subject.call_on(TAG), Some(FREED)))
        };
        assert!(subject.free());
        subject.reuse(TAG);
        assert!(subject.free());
        caller.join().unwrap();
        assert_eq!(subject.call_on(TAG), None);
    });
}

/// The slot of a freed object gets an object of another type. A call with the stale handle never
/// uses the new object.
#[test]
fn loom_a_slot_is_used_again_for_another_kind() {
    loom::model(|| {
        let subject = Arc::new(Subject::new());
        let caller = {
            let subject = Arc::clone(&subject);
            thread::spawn(move || {
                assert!(matches!(subject.call_on(TAG), None | Some(ALIVE)));
                assert!(matches!(subject.call_on(OTHER_TAG), None | Some(NEXT)));
            })
        };
        assert!(subject.free());
        subject.reuse(OTHER_TAG);
        caller.join().unwrap();
    });
}

/// A call pins an object by a stale handle while the slot gets a new object. The thread that frees
/// the new object waits for the pin.
#[test]
fn loom_a_pin_by_a_stale_handle_holds_the_new_object() {
    loom::model(|| {
        let subject = Arc::new(Subject::new());
        let caller = {
            let subject = Arc::clone(&subject);
            thread::spawn(move || {
                if subject.pinned() {
                    // SAFETY: loom checks the access.
                    let found = subject.object.with(|object| unsafe { *object });
                    assert_ne!(found, FREED);
                    subject.lock.unpin();
                }
            })
        };
        assert!(subject.free());
        subject.reuse(TAG);
        assert!(subject.free());
        caller.join().unwrap();
    });
}
