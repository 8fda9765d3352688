//! A runtime of threads: each task has a thread, and each watched descriptor, too.

use std::io::{self, PipeWriter};
use std::os::fd::{AsRawFd, OwnedFd};
use std::pin::pin;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, JoinHandle, Thread};

use dat::asynchronous::{Runtime, Task, Watch};

#[derive(Default)]
pub(crate) struct Threads {
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl Threads {
    /// Waits for all tasks.
    pub(crate) fn join(self) {
        for task in self.tasks.into_inner().expect("no task has panicked with the lock") {
            task.join().expect("the task ends without a panic");
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future to its end.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let waker = Arc::new(Unpark(thread::current())).into();
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(result) => return result,
            Poll::Pending => thread::park(),
        }
    }
}

impl Runtime for Threads {
    fn watch(&self, descriptor: OwnedFd) -> io::Result<Box<dyn Watch>> {
        let (end, ended) = io::pipe()?;
        let (waits, receiver) = mpsc::channel();
        let state = Arc::new(Mutex::new(State::Idle));
        let watched = state.clone();
        // The thread sleeps in poll(2) while somebody waits, and ends with the watch.
        thread::spawn(move || {
            for () in receiver {
                let record = |fd: i32| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
                let mut records = [record(descriptor.as_raw_fd()), record(end.as_raw_fd())];
                // SAFETY: there are two records, which are writable.
                unsafe { libc::poll(records.as_mut_ptr(), 2, -1) };
                let before =
                    std::mem::replace(&mut *watched.lock().expect("no panic"), State::Readable);
                if let State::Waiting(waker) = before {
                    waker.wake();
                }
            }
        });
        Ok(Box::new(Descriptor { state, waits, _end: ended }))
    }

    fn spawn(&self, task: Task) -> io::Result<()> {
        let task = thread::spawn(move || block_on(task));
        self.tasks.lock().expect("no panic").push(task);
        Ok(())
    }
}

enum State {
    Idle,
    Waiting(Waker),
    Readable,
}

struct Descriptor {
    state: Arc<Mutex<State>>,
    waits: Sender<()>,
    _end: PipeWriter,
}

impl Watch for Descriptor {
    fn poll_readable(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.state.lock().expect("no panic");
        let waiting = State::Waiting(context.waker().clone());
        match std::mem::replace(&mut *state, waiting) {
            State::Readable => {
                *state = State::Idle;
                return Poll::Ready(Ok(()));
            }
            State::Idle => self.waits.send(()).map_err(io::Error::other)?,
            State::Waiting(_) => {}
        }
        Poll::Pending
    }
}
