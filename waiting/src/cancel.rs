//! The end of a thread that waits: by pthread_cancel(3), or by pthread_exit(3) in a signal handler.
//!
//! Both end a thread by unwinding its stack, from the function that the thread is in. Such an
//! unwinding must not pass frames of Rust that have destructors, and no frame that catches panics.
//! So a call that waits for an event ends a thread in these steps:
//!
//! 1. The thread can be cancelled only in the system call in which it sleeps (`sleep`). Otherwise
//!    its cancellation is disabled (`Uncancellable`) while it is in the library. No cancellation
//!    that has begun during the sleep takes effect later.
//! 2. The unwinding stops in the frame that has made that system call (`catch_end`).
//! 3. The call leaves the list of waiters and releases what it holds, as after an error. It takes
//!    no event.
//! 4. The outermost function of the call, whose frame has no destructors, continues the unwinding
//!    (`cancellation_point`).
//!
//! Steps 2 and 4 use the functions that pthread_cleanup_push(3) of the GNU C library calls in
//! programs. On other systems a thread is cancelled only before or after its wait.

use std::cell::Cell;
use std::ffi::{c_long, c_void};
use std::io;
use std::time::Duration;

use telemetry::threads::Uncancellable;

use crate::nesting;

/// What a thread must do when it is cancelled.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// The thread is in no call that may end it.
    NotWaiting,
    /// The thread is in a call that may end it. It can be cancelled only if the consumer permits
    /// that.
    Waiting { cancellable: bool },
    /// The thread ends as soon as it has left the call.
    Ending,
}

thread_local! {
    static STATE: Cell<State> = const { Cell::new(State::NotWaiting) };
}

/// Runs a call that is a cancellation point, and returns its result. A result other than `success`
/// means that the call has taken no event. If the thread is cancelled or exits in the call, this
/// function does not return, but unwinds the stack of the caller.
///
/// # Safety
/// `call` captures nothing that has a destructor. The frames of the caller, and of all functions of
/// Rust through which the consumer has called the caller, contain nothing that has a destructor,
/// and an unwinding may pass them (`extern "C-unwind"`).
#[inline]
pub unsafe fn cancellation_point<R: Copy + PartialEq>(success: R, call: impl FnOnce() -> R) -> R {
    #[cfg(not(miri))]
    // SAFETY: if the thread is cancelled, this unwinds only the frame of this function and, as the
    // caller guarantees, frames that contain nothing that has a destructor.
    unsafe {
        pthread_testcancel()
    };
    // A signal handler may make this call after it has interrupted a call in which the thread is
    // ending.
    let interrupted_call_ends = is_ending();
    let result = call();
    if result != success && is_ending() && !interrupted_call_ends {
        // Cleanup handlers of the consumer may wait, too.
        STATE.set(State::NotWaiting);
        continue_to_end();
    }
    result
}

/// Whether this thread was cancelled or has called pthread_exit(3) while it slept. It then returns
/// from its call and takes no event.
#[inline]
pub fn is_ending() -> bool {
    STATE.get() == State::Ending
}

/// While this value exists, the thread is in a call that may end it. All of this call except its
/// sleep is uncancellable.
pub struct Wait {
    before: State,
    _uncancellable: Uncancellable,
}

/// Begins a wait of this thread. The caller is called by [`cancellation_point`].
pub fn begin_wait() -> Wait {
    let uncancellable = Uncancellable::new();
    let before = STATE.replace(State::Waiting { cancellable: uncancellable.was_cancellable() });
    Wait { before, _uncancellable: uncancellable }
}

impl Drop for Wait {
    fn drop(&mut self) {
        if !is_ending() {
            STATE.set(self.before);
        }
    }
}

/// The function of the C library by which a thread makes the system call in which it sleeps.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// A function that is a cancellation point.
    CancellationPoint,
    /// The function that makes any system call. It is no cancellation point.
    Syscall,
}

/// Makes a system call in which the thread sleeps, and returns its result. If the thread must end,
/// returns the error `Interrupted`.
///
/// # Safety
/// `call` makes a system call by a function of `extern "C-unwind"`, returns the result of that
/// function, and does nothing else. `by` says which kind of function it is. The system call has no
/// effect that would be lost if the thread is cancelled just before `call` returns.
pub unsafe fn sleep(by: By, mut call: impl FnMut() -> c_long) -> io::Result<c_long> {
    let result = match STATE.get() {
        State::NotWaiting => call(),
        // SAFETY: the caller fulfils the contract of this function.
        State::Waiting { cancellable } => match unsafe { end_or_return(by, cancellable, call) } {
            Some(result) => result,
            None => {
                STATE.set(State::Ending);
                return Err(io::ErrorKind::Interrupted.into());
            }
        },
        State::Ending => return Err(io::ErrorKind::Interrupted.into()),
    };
    match result {
        -1 => Err(io::Error::last_os_error()),
        result => Ok(result),
    }
}

/// Sleeps until a descriptor is readable, without limit if `limit` is `None`. A signal without a
/// handler, such as SIGCONT, does not end the sleep: ppoll(2) continues by itself, unlike
/// epoll_wait(2). The limit of ppoll(2) is also precise to the nanosecond. Returns the number of
/// descriptors that are readable.
pub fn poll(fds: &mut [libc::pollfd], limit: Option<Duration>) -> io::Result<usize> {
    let limit = limit.map(|limit| libc::timespec {
        tv_sec: limit.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: limit.subsec_nanos().into(),
    });
    let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let (fds, count) = (fds.as_mut_ptr(), fds.len() as libc::nfds_t);
    let _asleep = nesting::sleep();
    // SAFETY: the call gets the slice of pollfds, and one timespec or none, which are alive during
    // the call, and no signal mask. Polling has no effect that could be lost.
    let ready = unsafe {
        sleep(By::CancellationPoint, || ppoll(fds, count, limit, std::ptr::null()).into())
    };
    ready.map(|ready| ready as usize)
}

#[cfg(miri)]
use libc::ppoll;
/// The function that makes any system call.
#[cfg(miri)]
pub(crate) use libc::syscall;

#[cfg(not(miri))]
unsafe extern "C-unwind" {
    /// The function that makes any system call.
    #[cfg(not(loom))]
    pub(crate) fn syscall(number: c_long, ...) -> c_long;
    fn pthread_testcancel();
    fn ppoll(
        fds: *mut libc::pollfd,
        count: libc::nfds_t,
        limit: *const libc::timespec,
        mask: *const libc::sigset_t,
    ) -> std::ffi::c_int;
}

#[cfg(all(
    target_os = "linux",
    target_env = "gnu",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(miri)
))]
mod unwinding {
    use std::arch::naked_asm;
    use std::ffi::c_int;

    use super::*;

    /// A record of `pthread_cleanup_push` (`__pthread_unwind_buf_t` in pthread.h). It takes 104
    /// octets on x86-64 and 224 on AArch64.
    #[repr(C, align(16))]
    struct CleanupRecord([u8; 256]);

    // States and types of the cancellation (pthread.h).
    const PTHREAD_CANCEL_ENABLE: c_int = 0;
    const PTHREAD_CANCEL_DISABLE: c_int = 1;
    const PTHREAD_CANCEL_DEFERRED: c_int = 0;
    const PTHREAD_CANCEL_ASYNCHRONOUS: c_int = 1;

    unsafe extern "C-unwind" {
        fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
        fn pthread_setcanceltype(of: c_int, before: *mut c_int) -> c_int;
        fn __sigsetjmp(record: *mut CleanupRecord, with_mask: c_int) -> c_int;
        fn __pthread_register_cancel(record: *mut CleanupRecord);
        fn __pthread_unregister_cancel(record: *mut CleanupRecord);
        fn __pthread_unwind_next(record: *mut CleanupRecord) -> !;
    }

    /// Makes a system call, in which the thread can be cancelled if `cancellable` is true. Returns
    /// its result, or `None` if the thread ends.
    ///
    /// # Safety
    /// The requirements of [`sleep`] apply.
    pub(super) unsafe fn end_or_return<F: FnMut() -> c_long>(
        by: By,
        cancellable: bool,
        call: F,
    ) -> Option<c_long> {
        struct Sleep<F> {
            by: By,
            call: F,
            cancellable: bool,
            result: c_long,
        }
        unsafe extern "C-unwind" fn make<F: FnMut() -> c_long>(sleep: *mut c_void) {
            // SAFETY: `sleep` leads to the local variable below. The calls write only to their
            // second argument.
            unsafe {
                let sleep = &mut *sleep.cast::<Sleep<F>>();
                let mut state = 0;
                if sleep.cancellable {
                    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &raw mut state);
                }
                sleep.result = match sleep.by {
                    By::Syscall if sleep.cancellable => cancellable_syscall(&mut sleep.call),
                    _ => (sleep.call)(),
                };
                if sleep.cancellable {
                    pthread_setcancelstate(state, &raw mut state);
                }
            }
        }
        let mut sleep = Sleep { by, call, cancellable, result: -1 };
        // SAFETY: the frames of `make` and, as the caller guarantees, of the system call contain
        // nothing that has a destructor.
        let ended = unsafe { catch_end(make::<F>, (&raw mut sleep).cast()) };
        if ended {
            // The thread may have been unwound before the type of the cancellation was restored.
            let mut before = 0;
            // SAFETY: the calls write only to their second argument. A thread that ends is not
            // cancelled again.
            unsafe {
                pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &raw mut before);
                pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &raw mut before);
            }
        }
        (!ended).then_some(sleep.result)
    }

    /// Makes a system call by a function that is no cancellation point. The thread can be cancelled
    /// meanwhile. In such a function the signal of the C library unwinds a cancelled thread from
    /// any instruction. That does no harm, because the function only makes calls, and holds nothing
    /// that has a destructor.
    ///
    /// pthread_cancel(3) decides by the type of the cancellation to send a signal, and sends the
    /// signal later. In the GNU C library 2.31 to 2.33 and 2.36 to 2.40, that signal ends the
    /// thread at any later cancellation point, even if the cancellation is disabled by then. So
    /// this function ends with a cancellation point, which waits for a signal that is still to
    /// come.
    ///
    /// # Safety
    /// The requirements of [`sleep`] apply. The cancellation is enabled.
    unsafe fn cancellable_syscall(call: &mut impl FnMut() -> c_long) -> c_long {
        let mut kind = PTHREAD_CANCEL_DEFERRED;
        let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the calls write only to `kind` and to the number of the last error.
        unsafe {
            pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &raw mut kind);
            let result = call();
            pthread_setcanceltype(kind, &raw mut kind);
            let error = *libc::__errno_location();
            ppoll(std::ptr::null_mut(), 0, &raw const at_once, std::ptr::null());
            *libc::__errno_location() = error;
            result
        }
    }

    /// Calls `function`. Returns false if the function returns, and true if the thread ends in the
    /// function: if it is cancelled, or calls pthread_exit(3). In that case the caller continues to
    /// end the thread by [`continue_to_end`].
    ///
    /// # Safety
    /// `function` may be called with `argument`. The frames of the function, and of all functions
    /// of Rust that it calls, contain nothing that has a destructor when the thread ends.
    #[cfg(target_arch = "x86_64")]
    #[unsafe(naked)]
    pub(super) unsafe extern "C-unwind" fn catch_end(
        function: unsafe extern "C-unwind" fn(*mut c_void),
        argument: *mut c_void,
    ) -> bool {
        // The record is at RSP. As in pthread_cleanup_push, `__sigsetjmp` returns a second time if
        // the thread ends.
        naked_asm!(
            ".cfi_startproc",
            "push rbp",
            ".cfi_def_cfa_offset 16",
            ".cfi_offset rbp, -16",
            "mov rbp, rsp",
            ".cfi_def_cfa_register rbp",
            "push rbx",
            ".cfi_offset rbx, -24",
            "push r12",
            ".cfi_offset r12, -32",
            "sub rsp, 256",
            "mov rbx, rdi",
            "mov r12, rsi",
            "mov rdi, rsp",
            "xor esi, esi",
            "call {sigsetjmp}",
            "test eax, eax",
            "jne 2f",
            "mov rdi, rsp",
            "call {register}",
            "mov rdi, r12",
            "call rbx",
            "xor ebx, ebx",
            "jmp 3f",
            "2:",
            "mov ebx, 1",
            "3:",
            "mov rdi, rsp",
            "call {unregister}",
            "mov eax, ebx",
            "add rsp, 256",
            "pop r12",
            "pop rbx",
            "pop rbp",
            ".cfi_def_cfa rsp, 8",
            "ret",
            ".cfi_endproc",
            sigsetjmp = sym __sigsetjmp,
            register = sym __pthread_register_cancel,
            unregister = sym __pthread_unregister_cancel,
        )
    }

    /// The same for AArch64.
    ///
    /// # Safety
    /// As on x86-64.
    #[cfg(target_arch = "aarch64")]
    #[unsafe(naked)]
    pub(super) unsafe extern "C-unwind" fn catch_end(
        function: unsafe extern "C-unwind" fn(*mut c_void),
        argument: *mut c_void,
    ) -> bool {
        // The record is at SP + 32.
        naked_asm!(
            ".cfi_startproc",
            "stp x29, x30, [sp, #-288]!",
            ".cfi_def_cfa_offset 288",
            ".cfi_offset 29, -288",
            ".cfi_offset 30, -280",
            "mov x29, sp",
            "stp x19, x20, [sp, #16]",
            ".cfi_offset 19, -272",
            ".cfi_offset 20, -264",
            "mov x19, x0",
            "mov x20, x1",
            "add x0, sp, #32",
            "mov w1, #0",
            "bl {sigsetjmp}",
            "cbnz w0, 2f",
            "add x0, sp, #32",
            "bl {register}",
            "mov x0, x20",
            "blr x19",
            "mov w19, #0",
            "b 3f",
            "2:",
            "mov w19, #1",
            "3:",
            "add x0, sp, #32",
            "bl {unregister}",
            "mov w0, w19",
            "ldp x19, x20, [sp, #16]",
            "ldp x29, x30, [sp], #288",
            ".cfi_restore 19",
            ".cfi_restore 20",
            ".cfi_restore 29",
            ".cfi_restore 30",
            ".cfi_def_cfa_offset 0",
            "ret",
            ".cfi_endproc",
            sigsetjmp = sym __sigsetjmp,
            register = sym __pthread_register_cancel,
            unregister = sym __pthread_unregister_cancel,
        )
    }

    /// Continues to end a thread whose end [`catch_end`] has caught, by unwinding the stack of the
    /// caller.
    #[cold]
    pub(super) fn continue_to_end() -> ! {
        let mut record = CleanupRecord([0; 256]);
        // SAFETY: the first call fills the record. The second call reads from it which record of
        // the consumer comes next, unwinds this frame and those of the callers up to that record,
        // and does not return. These frames contain nothing that has a destructor
        // (`cancellation_point`).
        unsafe {
            __pthread_register_cancel(&raw mut record);
            __pthread_unwind_next(&raw mut record)
        }
    }
}

/// A thread sleeps uncancellably, and a function of the consumer must not end its thread.
#[cfg(not(all(
    target_os = "linux",
    target_env = "gnu",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(miri)
)))]
mod unwinding {
    use super::*;

    pub(super) unsafe fn end_or_return<F: FnMut() -> c_long>(
        _: By,
        _: bool,
        mut call: F,
    ) -> Option<c_long> {
        Some(call())
    }

    pub(super) unsafe fn catch_end(
        function: unsafe extern "C-unwind" fn(*mut c_void),
        argument: *mut c_void,
    ) -> bool {
        // SAFETY: the caller fulfils the contract of this function.
        unsafe { function(argument) };
        false
    }

    pub(super) fn continue_to_end() {}
}
use self::unwinding::{catch_end, continue_to_end, end_or_return};

/// A function of the consumer with two arguments.
pub type Callback = unsafe extern "C" fn(*mut c_void, *mut c_void);
type UnwindingCallback = unsafe extern "C-unwind" fn(*mut c_void, *mut c_void);

/// Calls a function of the consumer in a thread that belongs to the library. If the function calls
/// pthread_exit(3), only this call ends, and not the thread.
///
/// # Safety
/// The function may be called with these arguments.
pub unsafe fn call_back(function: Callback, first: *mut c_void, second: *mut c_void) {
    struct Call {
        function: UnwindingCallback,
        first: *mut c_void,
        second: *mut c_void,
    }
    unsafe extern "C-unwind" fn make(call: *mut c_void) {
        // SAFETY: `call` leads to the local variable below, whose function may be called.
        unsafe {
            let call = &*call.cast::<Call>();
            (call.function)(call.first, call.second);
        }
    }
    // SAFETY: the two types differ only in whether an unwinding may pass the function.
    let function = unsafe { std::mem::transmute::<Callback, UnwindingCallback>(function) };
    let mut call = Call { function, first, second };
    // SAFETY: `make` may be called with `call`. Its frame contains nothing that has a destructor.
    unsafe { catch_end(make, (&raw mut call).cast()) };
}
