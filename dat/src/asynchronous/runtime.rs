//! What a runtime does for this crate: it watches file descriptors and runs tasks.

use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A task that a [`Runtime`] runs to its end.
///
/// ```
/// use dat::asynchronous::Task;
///
/// let task: Task = Box::pin(async { println!("hello") });
/// ```
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// An asynchronous runtime.
///
/// ```
/// use std::io;
/// use std::os::fd::OwnedFd;
/// use std::task::{Context, Poll};
///
/// use dat::asynchronous::{Runtime, Task, Watch};
///
/// /// A runtime without a reactor: it asks for events again and again.
/// struct Busy;
///
/// impl Runtime for Busy {
///     fn watch(&self, _descriptor: OwnedFd) -> io::Result<Box<dyn Watch>> {
///         Ok(Box::new(Busy))
///     }
///
///     fn spawn(&self, task: Task) -> io::Result<()> {
///         # fn block_on(_task: Task) {}
///         std::thread::Builder::new().spawn(move || block_on(task)).map(drop)
///     }
/// }
///
/// impl Watch for Busy {
///     fn poll_readable(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
///         // The task looks for events each time that it runs, which it does again at once.
///         context.waker().wake_by_ref();
///         Poll::Pending
///     }
/// }
/// ```
pub trait Runtime {
    /// Begins to watch a file descriptor, which the result owns. The descriptor must be neither
    /// read nor written.
    ///
    /// # Errors
    ///
    /// The runtime cannot watch the descriptor.
    fn watch(&self, descriptor: OwnedFd) -> io::Result<Box<dyn Watch>>;

    /// Runs a task in the background.
    ///
    /// # Errors
    ///
    /// The runtime does not run, or takes no more tasks.
    fn spawn(&self, task: Task) -> io::Result<()>;
}

/// A file descriptor that a [`Runtime`] watches.
///
/// ```no_run
/// use std::future::poll_fn;
///
/// use dat::asynchronous::Watch;
///
/// async fn readable(watch: &mut dyn Watch) -> std::io::Result<()> {
///     poll_fn(|context| watch.poll_readable(context)).await
/// }
/// ```
pub trait Watch: Send {
    /// Waits until the descriptor is readable. The caller looks for events after each result, so
    /// the function may return although the descriptor is not readable. A runtime that reports
    /// changes of readiness (epoll's edge-triggered mode) must report each change after the
    /// previous result.
    ///
    /// # Errors
    ///
    /// The runtime cannot watch the descriptor any more.
    fn poll_readable(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>>;
}

/// The runtime tokio (feature `tokio`). The functions must be called in the context of a runtime.
/// Elsewhere they return an error. [`watch`](Runtime::watch) panics if the runtime has not enabled
/// I/O.
///
/// ```
/// use dat::asynchronous::{AsyncAdapter, Tokio};
///
/// # tokio::runtime::Builder::new_current_thread().enable_io().build()?.block_on(async {
/// let adapter = AsyncAdapter::new(dat::Adapter::open("tcp-emu")?, 256, &Tokio)?;
/// println!("peers can call {}", adapter.listen_any()?.qualifier());
/// # Ok::<(), std::io::Error>(())
/// # })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[cfg(feature = "tokio")]
#[derive(Clone, Copy, Debug, Default)]
pub struct Tokio;

#[cfg(feature = "tokio")]
mod tokio_runtime {
    use std::io;
    use std::os::fd::OwnedFd;
    use std::task::{Context, Poll, ready};

    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;
    use tokio::runtime::Handle;

    use super::{Runtime, Task, Tokio, Watch};

    impl Runtime for Tokio {
        fn watch(&self, descriptor: OwnedFd) -> io::Result<Box<dyn Watch>> {
            let _context = Handle::try_current().map_err(io::Error::other)?;
            // SAFETY: the result owns the descriptor, which is open until the result is dropped.
            let watch = unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) }?;
            Ok(Box::new(watch))
        }

        fn spawn(&self, task: Task) -> io::Result<()> {
            Handle::try_current().map_err(io::Error::other)?.spawn(task);
            Ok(())
        }
    }

    impl Watch for AsyncFd<OwnedFd> {
        fn poll_readable(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            // The caller takes all triggers before it waits again, so the next trigger is a change.
            ready!(self.poll_read_ready(context))?.clear_ready();
            Poll::Ready(Ok(()))
        }
    }
}
