//! The future of a posted operation.

use std::any::Any;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use super::adapter_shared::AdapterShared;
use super::error::{OperationError, TransferError};
use crate::{Completion, MemoryRegion, Result, Segment};

/// A posted operation, from the methods of [`AsyncEndpoint`](super::AsyncEndpoint). Its result is
/// the buffer and the completion. Dropping it does not take the operation back; see the
/// [module](super).
///
/// ```no_run
/// # async fn exchange(endpoint: &mut dat::asynchronous::AsyncEndpoint,
/// #     buffers: [dat::MemoryRegion<'static>; 2]) -> std::io::Result<()> {
/// let [question, answer] = buffers;
/// // Both operations are posted at once, in this order.
/// let received = endpoint.receive(answer, 0..64);
/// let sent = endpoint.send(question, 0..5);
/// sent.await?;
/// let (answer, completion) = received.await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "the result of the operation, and its buffer, are otherwise lost"]
pub struct Transfer<B: Any + Send> {
    shared: Arc<AdapterShared>,
    /// `None` after the result was returned.
    operation: Option<(B, Posted)>,
}

enum Posted {
    /// The operation with this cookie was posted.
    As(u64),
    /// The post was refused.
    Refused(OperationError),
}

impl<B: AsRef<MemoryRegion<'static>> + Any + Send> Transfer<B> {
    /// Posts an operation of an endpoint or queue with a range of the buffer. `post` gets the
    /// segment and the cookie.
    pub(super) fn post(
        shared: &Arc<AdapterShared>,
        owner: usize,
        buffer: B,
        range: Range<usize>,
        post: impl FnOnce(Segment, u64) -> Result<()>,
    ) -> Self {
        let cookie = {
            let mut state = shared.lock();
            match &state.stopped {
                Some(why) => Err(OperationError::Stopped(why.clone())),
                None => Ok(state.slots.insert(owner)),
            }
        };
        let posted = match cookie {
            Ok(cookie) => {
                match buffer.as_ref().segment(range).and_then(|segment| post(segment, cookie)) {
                    Ok(()) => Posted::As(cookie),
                    Err(error) => {
                        shared.lock().slots.remove(cookie);
                        Posted::Refused(error.into())
                    }
                }
            }
            Err(error) => Posted::Refused(error),
        };
        Transfer { shared: shared.clone(), operation: Some((buffer, posted)) }
    }
}

// The buffer is moved in and out, and never pinned.
impl<B: Any + Send> Unpin for Transfer<B> {}

impl<B: Any + Send> Future for Transfer<B> {
    type Output = Result<(B, Completion), TransferError<B>>;

    /// # Panics
    ///
    /// Panics if the future has returned its result already.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let outcome = match &this.operation {
            Some((_, Posted::As(cookie))) => {
                // Cloned and dropped without the lock, because a waker is code of the runtime.
                let mut waker = Some(context.waker().clone());
                let outcome = this.shared.lock().slots.poll(*cookie, &mut waker);
                ready!(outcome)
            }
            Some((_, Posted::Refused(error))) => Err(error.clone()),
            None => panic!("a transfer was polled after it had returned its result"),
        };
        let (buffer, _) = this.operation.take().expect("the match has found an operation");
        Poll::Ready(match outcome {
            Ok(completion) => Ok((buffer, completion)),
            Err(error) => Err(TransferError { buffer, error }),
        })
    }
}

impl<B: Any + Send> Drop for Transfer<B> {
    fn drop(&mut self) {
        if let Some((buffer, Posted::As(cookie))) = self.operation.take() {
            let abandoned = self.shared.lock().slots.abandon(cookie, buffer);
            // The buffer or the waker is dropped without the lock.
            drop(abandoned);
        }
    }
}
