//! Calls that a signal handler makes after it has interrupted another call of its own thread.
//!
//! For example, a signal handler calls `exit`, and a function that was registered by `atexit`
//! closes an adapter. Meanwhile a wait of the same thread is interrupted. That wait continues only
//! when the handler returns, which may never happen. So all work that must wait until the thread
//! has left the interrupted call is done in another thread (`in_other_thread`). If the process ends
//! before the handler returns, that work is never done.
//!
//! Each thread records when it sleeps, and when it works in code that no second call may enter.
//! Such code is a control call or a provider's engine. The data path makes no such record. Instead,
//! each of its locks contains an address on the stack of the thread that holds it.

use std::cell::Cell;
use std::io;
use std::sync::atomic::{Ordering, compiler_fence};
use std::sync::mpsc::{Sender, channel};

use telemetry::threads::{self, Uncancellable};

thread_local! {
    /// One cell for both values. A shared library must look up the address of thread-local
    /// variables, and with one cell it does so only once for each guard.
    static ACTIVITY: Cell<ThreadActivity> = const {
        Cell::new(ThreadActivity { current: Activity::Nothing, interrupted: Activity::Nothing })
    };
}

#[derive(Clone, Copy)]
struct ThreadActivity {
    current: Activity,
    /// The value of `current` when the thread's latest control call began.
    interrupted: Activity,
}

/// What a thread is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// The thread does nothing that a call in a signal handler could disturb.
    Nothing,
    /// The thread sleeps, and holds nothing for which others may wait.
    Sleep,
    /// The thread holds something for which others may wait.
    Work,
}

/// While this value exists, its thread is marked with an activity.
pub struct Guard {
    before: ThreadActivity,
    /// The cell of this thread. It is a pointer, so that a guard cannot be sent to another thread.
    cell: *const Cell<ThreadActivity>,
    _uncancellable: Option<Uncancellable>,
}

/// What this thread was doing when a signal handler interrupted it, if the current control call is
/// made in that handler. `Activity::Nothing` means that the call is not made in such a handler.
#[inline]
pub fn interrupted_activity() -> Activity {
    ACTIVITY.get().interrupted
}

/// What this thread is doing. A call of the data path makes no record of itself. If a signal
/// handler makes such a call, the result is what the handler has interrupted.
#[inline]
pub fn activity() -> Activity {
    ACTIVITY.get().current
}

/// Marks the beginning of a control call. If the call is not `uncancellable`, it disables the
/// cancellation of the thread itself.
#[inline]
pub fn enter(uncancellable: bool) -> Guard {
    begin(uncancellable, |before| ThreadActivity {
        current: Activity::Work,
        interrupted: before.current,
    })
}

/// Marks that this thread sleeps.
#[inline]
pub fn sleep() -> Guard {
    begin(false, |before| ThreadActivity { current: Activity::Sleep, ..before })
}

/// Marks that this thread works, and disables its cancellation.
#[inline]
pub fn work() -> Guard {
    begin(true, |before| ThreadActivity { current: Activity::Work, ..before })
}

#[inline]
fn begin(uncancellable: bool, now: impl FnOnce(ThreadActivity) -> ThreadActivity) -> Guard {
    let _uncancellable = uncancellable.then(Uncancellable::new);
    ACTIVITY.with(|cell| {
        let before = cell.get();
        cell.set(now(before));
        compiler_fence(Ordering::SeqCst);
        Guard { before, cell, _uncancellable }
    })
}

impl Guard {
    /// The number of this thread: see [`thread`].
    #[inline]
    pub fn thread(&self) -> usize {
        self.cell.addr()
    }
}

impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        compiler_fence(Ordering::SeqCst);
        // SAFETY: the cell belongs to this thread, since a guard is not `Send`. It exists until the
        // thread ends, and nothing drops it before.
        unsafe { &*self.cell }.set(self.before);
    }
}

/// A number for this thread that no other living thread has. It is never 0.
#[inline]
pub fn thread() -> usize {
    ACTIVITY.with(|cell| std::ptr::from_ref(cell).addr())
}

/// Runs `f` in another thread: see [`OtherThread::run`].
///
/// # Errors
/// The error of the system if no thread can be started.
pub fn in_other_thread(f: impl FnOnce(Sender<()>) + Send + 'static) -> io::Result<()> {
    OtherThread::start()?.run(f);
    Ok(())
}

/// A thread that waits for the function that it runs. A call starts the thread before it does
/// something that cannot be undone, because the start may fail. If this value is dropped, the
/// thread ends.
pub struct OtherThread(Sender<Box<dyn FnOnce() + Send>>);

impl OtherThread {
    /// Starts a thread.
    ///
    /// # Errors
    /// The error of the system if no thread can be started.
    pub fn start() -> io::Result<OtherThread> {
        let (sender, receiver) = channel::<Box<dyn FnOnce() + Send>>();
        threads::spawn("deferred-call", move || receiver.recv().map(|f| f()))?;
        Ok(OtherThread(sender))
    }

    /// Runs `f` in the thread. `f` gets a sender. A call from a signal handler that has interrupted
    /// a sleep waits until `f` drops this sender.
    pub fn run(self, f: impl FnOnce(Sender<()>) + Send + 'static) {
        let (sender, receiver) = channel();
        let sent = self.0.send(Box::new(move || f(sender)));
        debug_assert!(sent.is_ok(), "the thread waits for the function");
        if interrupted_activity() == Activity::Sleep {
            let dropped = receiver.recv();
            debug_assert!(dropped.is_err(), "nothing is ever sent");
        }
    }
}

/// Whether an address is on the stack of this thread.
pub fn is_on_this_stack(address: usize) -> bool {
    if cfg!(miri) {
        return false;
    }
    // SAFETY: all zeroes are a valid value of `attr`. It is initialized, read and destroyed here.
    unsafe {
        let mut attr: libc::pthread_attr_t = std::mem::zeroed();
        if libc::pthread_getattr_np(libc::pthread_self(), &mut attr) != 0 {
            return false;
        }
        let (mut start, mut size) = (std::ptr::null_mut(), 0);
        libc::pthread_attr_getstack(&attr, &mut start, &mut size);
        libc::pthread_attr_destroy(&mut attr);
        (start.addr()..start.addr() + size).contains(&address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_knows_what_its_thread_did_before() {
        assert_eq!(interrupted_activity(), Activity::Nothing);
        let outer = enter(true);
        assert_eq!(
            interrupted_activity(),
            Activity::Nothing,
            "no handler runs, so no activity is interrupted"
        );
        {
            let _inner = enter(true);
            assert_eq!(interrupted_activity(), Activity::Work);
        }
        assert_eq!(interrupted_activity(), Activity::Nothing);
        {
            let _asleep = sleep();
            let _inner = enter(true);
            assert_eq!(interrupted_activity(), Activity::Sleep);
            let of_another = std::thread::spawn(|| {
                let _call = enter(true);
                (interrupted_activity(), thread())
            });
            let (below_of_another, another) = of_another.join().unwrap();
            assert_eq!(below_of_another, Activity::Nothing);
            assert_ne!(another, thread());
        }
        drop(outer);
        let _call = enter(true);
        assert_eq!(interrupted_activity(), Activity::Nothing);
    }

    #[test]
    fn a_sleeping_thread_waits_until_the_sender_is_dropped() {
        let (go, wait) = channel::<()>();
        let (say, hear) = channel();
        let _asleep = sleep();
        let _call = enter(true);
        in_other_thread(move |done| {
            say.send("first").unwrap();
            drop(done);
            wait.recv().unwrap();
            say.send("second").unwrap();
        })
        .unwrap();
        assert_eq!(hear.try_iter().collect::<Vec<_>>(), ["first"]);
        go.send(()).unwrap();
        assert_eq!(hear.recv().unwrap(), "second");
    }

    #[test]
    #[cfg_attr(miri, ignore = "not a test: Miri cannot tell where a stack is")]
    fn an_address_on_the_stack_is_recognised() {
        let here = 0u8;
        let address = (&raw const here).addr();
        assert!(is_on_this_stack(address));
        assert!(!std::thread::spawn(move || is_on_this_stack(address)).join().unwrap());
        assert!(!is_on_this_stack(Box::into_raw(Box::new(0u8)).addr()));
    }
}
