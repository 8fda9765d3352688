//! System calls in a directory to which no path leads any more.
//!
//! A program may change its root (chroot(2)) or its mounts after it has opened an adapter. The
//! calls that take the name of a local socket have no form with a descriptor of a directory. And a
//! change of the working directory would apply to all threads of the program. So such a call is
//! made by a thread that shares everything with the program except its directories, and that lives
//! only during the call.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::null_mut;
use std::sync::Once;

use rustix::io::Errno;
use rustix::process::{chdir, fchdir};
use tracing::warn;

/// The size of the thread's stack, which has no guard page. The calls need less than one page.
const STACK_BYTES: usize = 64 << 10;

struct Task<'a> {
    directory: BorrowedFd<'a>,
    call: &'a mut dyn FnMut(),
    entered: Result<(), Errno>,
}

/// Makes a call while the working directory is the parent of this directory. `call` must not panic,
/// and should do nothing but make one system call. If the thread cannot do its work, the callers
/// behave as if a packet were lost. So the log says it once.
pub(super) fn in_parent_of<T>(
    directory: BorrowedFd<'_>,
    mut call: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    let mut result = None;
    let mut call = || result = Some(call());
    let mut task = Task { directory, call: &mut call, entered: Ok(()) };
    if let Err(error) = run(&mut task).and_then(|()| Ok(task.entered?)) {
        static LOGGED: Once = Once::new();
        LOGGED.call_once(|| {
            warn!(
                target: "dat::ia",
                "the directory of the local sockets is outside this program's root, and no thread \
                 can enter it, so nothing is passed on to other adapters: {error}"
            );
        });
        return Err(error);
    }
    result.expect("the thread has made the call")
}

/// Runs the task in a thread of its own, and waits for its end.
fn run(task: &mut Task<'_>) -> io::Result<()> {
    const FLAGS: libc::c_int = libc::CLONE_VM
        | libc::CLONE_FILES
        | libc::CLONE_SIGHAND
        | libc::CLONE_SYSVSEM
        | libc::CLONE_THREAD
        | libc::CLONE_VFORK;
    // SAFETY: the mapping is new.
    let stack = unsafe {
        let (rights, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE);
        libc::mmap(null_mut(), STACK_BYTES, rights, kind | libc::MAP_ANONYMOUS, -1, 0)
    };
    if stack == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: with CLONE_VFORK, this thread continues only when the new one has ended. So the new
    // thread may use this thread's thread-local memory, and the task and the stack outlive it. No
    // signal handler of the program runs in the new thread, because it inherits a mask that blocks
    // all signals except two (32 and 33), which glibc never blocks. glibc sends them only to
    // threads that it has created itself, and it does not know this one.
    let cloned = unsafe {
        let (mut all, mut old) = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut old);
        let cloned =
            libc::clone(perform, stack.byte_add(STACK_BYTES), FLAGS, (&raw mut *task).cast());
        let cloned = if cloned == -1 { Err(io::Error::last_os_error()) } else { Ok(()) };
        libc::pthread_sigmask(libc::SIG_SETMASK, &old, null_mut());
        cloned
    };
    // SAFETY: the thread that used the stack has ended.
    unsafe { libc::munmap(stack, STACK_BYTES) };
    cloned
}

/// The new thread.
extern "C" fn perform(task: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `run` passes its task, and waits.
    let task = unsafe { &mut *task.cast::<Task<'_>>() };
    task.entered = fchdir(task.directory).and_then(|()| chdir(c".."));
    if task.entered.is_ok() {
        (task.call)();
    }
    0
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    use super::*;

    /// Counts the events of the log.
    struct Counter(Arc<AtomicUsize>);

    impl Subscriber for Counter {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, _: &Event<'_>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    /// What cannot be entered is here a file.
    #[test]
    fn a_directory_that_cannot_be_entered_is_logged_once() {
        let file = tempfile::tempfile().expect("a file");
        let count = Arc::new(AtomicUsize::new(0));
        tracing::subscriber::with_default(Counter(Arc::clone(&count)), || {
            for _ in 0..3 {
                let failed = in_parent_of(file.as_fd(), || Ok(()));
                assert_eq!(
                    failed.expect_err("no call is made").kind(),
                    io::ErrorKind::NotADirectory
                );
            }
        });
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }
}
