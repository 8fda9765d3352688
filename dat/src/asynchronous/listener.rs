//! Connection requests as a stream.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use futures_core::stream::FusedStream;

use super::adapter_shared::{AdapterShared, ArrivedRequests};
use super::error::OperationError;
use crate::{ConnectionRequest, Listener, Result};

/// A listener whose connection requests are a stream, until it is dropped. The stream ends after an
/// error.
///
/// ```no_run
/// use dat::ProtectionZone;
/// use dat::asynchronous::AsyncAdapter;
///
/// async fn accept_all(adapter: &AsyncAdapter, zone: &ProtectionZone) -> std::io::Result<()> {
///     let mut listener = adapter.listen(7777)?;
///     loop {
///         let request = listener.request().await?;
///         let mut endpoint = adapter.create(adapter.endpoint().zone(zone))?;
///         endpoint.accept(request, b"welcome").await?;
///     }
/// }
/// ```
pub struct AsyncListener {
    listener: Option<Listener>,
    qualifier: u64,
    shared: Arc<AdapterShared>,
    /// Whether the stream has returned an error.
    ended: bool,
}

impl AsyncListener {
    pub(super) fn new(
        shared: &Arc<AdapterShared>,
        listen: impl FnOnce() -> Result<Listener>,
    ) -> Result<Self> {
        // A request that arrives at once waits for the lock, and finds the entry.
        let mut state = shared.lock();
        let listener = listen()?;
        let qualifier = listener.qualifier();
        state.requests.insert(qualifier, ArrivedRequests::default());
        drop(state);
        let (listener, shared) = (Some(listener), shared.clone());
        Ok(AsyncListener { listener, qualifier, shared, ended: false })
    }

    /// The connection qualifier of the listener.
    pub fn qualifier(&self) -> u64 {
        self.qualifier
    }

    /// Waits for the next request. Dropping the future loses no request.
    ///
    /// # Errors
    ///
    /// [`OperationError::Stopped`].
    pub async fn request(&mut self) -> Result<ConnectionRequest, OperationError> {
        poll_fn(|context| self.poll_request(context)).await
    }

    fn poll_request(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<ConnectionRequest, OperationError>> {
        // Cloned and dropped without the lock, because a waker is code of the runtime.
        let mut waker = Some(context.waker().clone());
        let mut state = self.shared.lock();
        let stopped = state.stopped.clone();
        let Some(requests) = state.requests.get_mut(&self.qualifier) else {
            return Poll::Ready(Err(OperationError::Dropped));
        };
        if let Some(request) = requests.arrived.pop_front() {
            return Poll::Ready(Ok(request));
        }
        if let Some(why) = stopped {
            return Poll::Ready(Err(OperationError::Stopped(why)));
        }
        std::mem::swap(&mut requests.waker, &mut waker);
        Poll::Pending
    }
}

impl Stream for AsyncListener {
    type Item = io::Result<ConnectionRequest>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let request = ready!(self.poll_request(context));
        self.ended = request.is_err();
        Poll::Ready(Some(request.map_err(io::Error::from)))
    }
}

impl FusedStream for AsyncListener {
    fn is_terminated(&self) -> bool {
        self.ended
    }
}

impl Drop for AsyncListener {
    fn drop(&mut self) {
        let requests = {
            let mut state = self.shared.lock();
            // As soon as the listener is closed, another listener may have its qualifier. The lock
            // keeps the other listener from adding its entry before this entry is removed.
            drop(self.listener.take());
            state.requests.remove(&self.qualifier)
        };
        // Dropping the requests that are left rejects them.
        drop(requests);
    }
}
