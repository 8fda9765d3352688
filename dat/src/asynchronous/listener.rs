//! Connection requests as a stream.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::Stream;

use super::error::OperationError;
use super::shared::{Requests, Shared};
use crate::{ConnectionRequest, Listener, Result};

/// A listener whose connection requests are a stream, until it is dropped. The stream does not end
/// after an error. It returns the same error again.
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
    shared: Arc<Shared>,
}

impl AsyncListener {
    pub(super) fn new(
        shared: &Arc<Shared>,
        listen: impl FnOnce() -> Result<Listener>,
    ) -> Result<Self> {
        // A request that arrives at once waits for the lock, and finds the entry.
        let mut state = shared.lock();
        let listener = listen()?;
        let qualifier = listener.qualifier();
        state.requests.insert(qualifier, Requests::default());
        drop(state);
        Ok(AsyncListener { listener: Some(listener), qualifier, shared: shared.clone() })
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
        requests.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Stream for AsyncListener {
    type Item = io::Result<ConnectionRequest>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_request(context).map(|request| Some(request.map_err(io::Error::from)))
    }
}

impl Drop for AsyncListener {
    fn drop(&mut self) {
        drop(self.listener.take());
        // Dropping the requests that are left rejects them.
        let requests = self.shared.lock().requests.remove(&self.qualifier);
        drop(requests);
    }
}
