//! Calls in a signal handler that has interrupted another call of its own thread.
//!
//! A handler that ends the process (`exit`, and what is registered with `atexit`) closes adapters while dat_evd_wait of its own thread
//! sleeps below it, and that wait goes on only when the handler returns, which may be never. So what must wait for the thread to
//! leave is done by `later`, in a thread of its own: at once if the handler returns, or never if the process ends first.
//!
//! Each thread says when it sleeps, and when it is at work in something that no second call may enter: a control call, or a provider's
//! engine. What it holds on the data path is known by its place on the stack.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{Ordering, compiler_fence};
use std::sync::mpsc::{Sender, channel};

use dat_sys::{DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY};

use crate::error::{Error, Result};
use crate::threads;

thread_local! {
    /// One cell, so that a shared library, which has to ask where its thread's variables are, asks once for each guard.
    static MARKS: Cell<Marks> = const { Cell::new(Marks { doing: Doing::Nothing, below: Doing::Nothing }) };
}

#[derive(Clone, Copy)]
struct Marks {
    doing: Doing,
    /// What the thread did when its last control call began.
    below: Doing,
}

/// What a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// Nothing that another call could meet.
    Nothing,
    /// It sleeps, and holds nothing.
    Sleep,
    /// It holds what others wait for.
    Work,
}

/// While it exists, the thread does what it was made for.
pub struct Guard {
    before: Marks,
    /// The thread's own, so that a guard does not leave its thread.
    marks: *const Cell<Marks>,
}

/// What this thread does below the handler that the control call is made in. Nothing: in no handler.
pub(crate) fn below() -> Doing {
    MARKS.get().below
}

/// A control call begins.
pub(crate) fn enter() -> Guard {
    begin(|before| Marks { doing: Doing::Work, below: before.doing })
}

/// This thread sleeps now.
pub fn sleep() -> Guard {
    begin(|before| Marks { doing: Doing::Sleep, ..before })
}

/// This thread is at work now.
#[inline]
pub fn work() -> Guard {
    begin(|before| Marks { doing: Doing::Work, ..before })
}

#[inline]
fn begin(now: impl FnOnce(Marks) -> Marks) -> Guard {
    MARKS.with(|marks| {
        let before = marks.get();
        marks.set(now(before));
        compiler_fence(Ordering::SeqCst);
        Guard { before, marks }
    })
}

impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        compiler_fence(Ordering::SeqCst);
        // SAFETY: it is of this thread, since a guard is not `Send`, and is there until the thread ends: nothing drops it before.
        unsafe { &*self.marks }.set(self.before);
    }
}

/// A number of this thread that no other living one has; never 0.
pub fn thread() -> usize {
    MARKS.with(|marks| std::ptr::from_ref(marks).addr())
}

/// Does `f` in another thread. What `f` is given it may drop: the caller, if its thread sleeps below the handler that it is called in,
/// waits for that. `DAT_INSUFFICIENT_RESOURCES`: there is no thread.
pub(crate) fn later(f: impl FnOnce(Sender<()>) + Send + 'static) -> Result<()> {
    keep_this_library();
    let (dropped, told) = channel();
    let no_thread = |_| Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
    threads::spawn("dat-later", move || f(dropped)).map_err(no_thread)?;
    if below() == Doing::Sleep {
        let dropped = told.recv();
        debug_assert!(dropped.is_err(), "nothing is ever sent");
    }
    Ok(())
}

/// Frees or closes what the handle stands for: later, if this thread is at work below the handler that this is called in.
pub(crate) fn unless_at_work(
    handle: *mut c_void,
    f: impl FnOnce(*mut c_void) -> Result<()> + Send + 'static,
) -> Result<()> {
    if below() != Doing::Work {
        return f(handle);
    }
    let handle = handle as usize;
    // Nobody is left to hear that it is refused.
    later(move |_| {
        let _ = f(handle as *mut c_void);
    })
}

/// Whether an address is of this thread's stack.
pub(crate) fn is_on_this_stack(address: usize) -> bool {
    if cfg!(miri) {
        return false;
    }
    // SAFETY: all zeroes are a value of it; it is filled in, asked and given back.
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

/// The calls below the handler return into this library, so it stays when the last adapter is closed.
fn keep_this_library() {
    if cfg!(miri) {
        return;
    }
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    let here = keep_this_library as fn() as *const c_void;
    // SAFETY: dladdr takes any address, and fills `info` if it knows it; the name is a string that the linker keeps. Nothing new
    // is loaded.
    unsafe {
        if libc::dladdr(here, info.as_mut_ptr()) != 0 && !(*info.as_ptr()).dli_fname.is_null() {
            libc::dlopen(
                (*info.as_ptr()).dli_fname,
                libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE,
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_knows_what_its_thread_did_before() {
        assert_eq!(below(), Doing::Nothing);
        let outer = enter();
        assert_eq!(below(), Doing::Nothing, "no handler");
        {
            let _inner = enter();
            assert_eq!(below(), Doing::Work);
        }
        assert_eq!(below(), Doing::Nothing);
        {
            let _asleep = sleep();
            let _inner = enter();
            assert_eq!(below(), Doing::Sleep);
            let of_another = std::thread::spawn(|| {
                let _call = enter();
                (below(), thread())
            });
            let (below_of_another, another) = of_another.join().unwrap();
            assert_eq!(below_of_another, Doing::Nothing);
            assert_ne!(another, thread());
        }
        drop(outer);
        let _call = enter();
        assert_eq!(below(), Doing::Nothing);
    }

    #[test]
    fn who_sleeps_waits_for_the_first_part() {
        let (go, wait) = channel::<()>();
        let (say, hear) = channel();
        let _asleep = sleep();
        let _call = enter();
        later(move |told| {
            say.send("first").unwrap();
            drop(told);
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
    fn a_stack_is_known() {
        let here = 0u8;
        let address = (&raw const here).addr();
        assert!(is_on_this_stack(address));
        assert!(!std::thread::spawn(move || is_on_this_stack(address)).join().unwrap());
        assert!(!is_on_this_stack(Box::into_raw(Box::new(0u8)).addr()));
    }
}
