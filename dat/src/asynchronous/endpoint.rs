//! Endpoints and shared receive queues whose operations are futures.

use std::any::Any;
use std::future::poll_fn;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::adapter_shared::{AdapterShared, State};
use super::connections::Connections;
use super::error::OperationError;
use super::operation_slots::Next;
use super::transfer::Transfer;
use crate::{
    Address, Close, ConnectionEvent, ConnectionRequest, Endpoint, EndpointId, EndpointState, Flags,
    MemoryRegion, RemoteSegment, Result, SharedReceiveQueue,
};

/// One end of a connection, whose operations are futures. It comes from
/// [`AsyncAdapter::create`](super::AsyncAdapter::create). Dropping it ends the connection, and its
/// operations with [`OperationError::Dropped`].
///
/// ```no_run
/// use dat::asynchronous::AsyncEndpoint;
/// use dat::{Access, ProtectionZone};
///
/// /// Sends a request, and returns the answer.
/// async fn ask(endpoint: &mut AsyncEndpoint, zone: &ProtectionZone) -> std::io::Result<Vec<u8>> {
///     // The receive is posted at once, before the peer can answer.
///     let answer = endpoint.receive(zone.register(vec![0; 64], Access::LOCAL)?, 0..64);
///     endpoint.send(zone.register(b"time?".to_vec(), Access::LOCAL)?, 0..5).await?;
///     let (answer, completion) = answer.await?;
///     Ok(answer.to_vec(0..completion.length as usize)?)
/// }
/// ```
pub struct AsyncEndpoint {
    /// `None` only while this value is dropped.
    endpoint: Option<Endpoint>,
    id: EndpointId,
    shared: Arc<AdapterShared>,
}

impl AsyncEndpoint {
    pub(super) fn new(endpoint: Endpoint, shared: &Arc<AdapterShared>) -> Self {
        let id = endpoint.id();
        shared.lock().connections.insert(id, Connections::default());
        AsyncEndpoint { endpoint: Some(endpoint), id, shared: shared.clone() }
    }

    fn endpoint(&mut self) -> &mut Endpoint {
        self.endpoint.as_mut().expect("the endpoint exists until this value is dropped")
    }

    /// Identifies this endpoint in completions.
    pub fn id(&self) -> EndpointId {
        self.id
    }

    /// The state of the endpoint.
    ///
    /// # Errors
    ///
    /// The error of the provider.
    pub fn state(&mut self) -> Result<EndpointState> {
        self.endpoint().state()
    }

    /// Connects to a connection qualifier of a peer. Returns the private data of the peer's accept.
    /// Dropping the future does not end the attempt; drop or disconnect the endpoint.
    ///
    /// # Errors
    ///
    /// [`OperationError::Refused`] with the errors of [`Endpoint::connect`], and
    /// [`OperationError::Connection`] with the reason for which there is no connection.
    pub async fn connect(
        &mut self,
        peer: Address,
        qualifier: u64,
        private_data: &[u8],
        timeout: Option<Duration>,
    ) -> Result<Vec<u8>, OperationError> {
        self.endpoint().connect(peer, qualifier, private_data, timeout)?;
        self.begin();
        self.established().await
    }

    /// Accepts a request. Returns when the connection is established.
    ///
    /// # Errors
    ///
    /// [`OperationError::Refused`] with the errors of [`ConnectionRequest::accept`], and
    /// [`OperationError::Connection`] with the reason for which there is no connection.
    pub async fn accept(
        &mut self,
        request: ConnectionRequest,
        private_data: &[u8],
    ) -> Result<(), OperationError> {
        request.accept(self.endpoint(), private_data)?;
        self.begin();
        self.established().await.map(drop)
    }

    fn begin(&self) {
        if let Some(connections) = self.shared.lock().connections.get_mut(&self.id) {
            connections.begin();
        }
    }

    async fn established(&self) -> Result<Vec<u8>, OperationError> {
        let outcome = poll_fn(|context| {
            poll_connections(&self.shared, self.id, context, |connections, waker| {
                connections.poll_outcome(waker).map(Some)
            })
        });
        match outcome.await? {
            ConnectionEvent::Established { private_data } => Ok(private_data),
            other => Err(OperationError::Connection(other)),
        }
    }

    /// Begins to end the connection. [`closed`](Self::closed) waits for its end.
    ///
    /// # Errors
    ///
    /// The errors of [`Endpoint::disconnect`].
    pub fn disconnect(&mut self, how: Close) -> Result<()> {
        self.endpoint().disconnect(how)
    }

    /// Waits until the current connection has ended, whoever ends it. The result says how. A
    /// connection that begins after a [`reset`](Self::reset) is another one.
    pub fn closed(&self) -> Closed {
        let id = self.shared.lock().connections.get_mut(&self.id).map(Connections::add_closing);
        let id = id.expect("the entry exists until this value is dropped");
        Closed { shared: self.shared.clone(), endpoint: self.id, id }
    }

    /// Prepares a disconnected endpoint for another connection, as [`Endpoint::reset`] does.
    ///
    /// # Errors
    ///
    /// The errors of [`Endpoint::reset`].
    pub fn reset(&mut self) -> Result<()> {
        self.endpoint().reset()?;
        if let Some(connections) = self.shared.lock().connections.get_mut(&self.id) {
            connections.reset();
        }
        Ok(())
    }

    /// Sends a range of the buffer as one message.
    ///
    /// The result of this and the following methods is the buffer and the completion. A failure is
    /// [`OperationError::Refused`] with the errors of the methods of [`Endpoint`], or
    /// [`OperationError::Failed`] with the completion; both come with the buffer. The buffer is a
    /// [`MemoryRegion`], or an `Arc` of one that is used elsewhere, too.
    pub fn send<B>(&mut self, buffer: B, range: Range<usize>) -> Transfer<B>
    where
        B: AsRef<MemoryRegion<'static>> + Any + Send,
    {
        self.post(buffer, range, |endpoint, segment, cookie| {
            endpoint.post_send(&[segment], cookie, Flags::default())
        })
    }

    /// Receives one message into a range of the buffer. This is possible before the endpoint is
    /// connected.
    pub fn receive<B>(&mut self, buffer: B, range: Range<usize>) -> Transfer<B>
    where
        B: AsRef<MemoryRegion<'static>> + Any + Send,
    {
        self.post(buffer, range, |endpoint, segment, cookie| {
            endpoint.post_receive(&[segment], cookie)
        })
    }

    /// Writes a range of the buffer to memory of the peer.
    pub fn write<B>(&mut self, buffer: B, range: Range<usize>, remote: RemoteSegment) -> Transfer<B>
    where
        B: AsRef<MemoryRegion<'static>> + Any + Send,
    {
        self.post(buffer, range, |endpoint, segment, cookie| {
            endpoint.post_write(&[segment], remote, cookie, Flags::default())
        })
    }

    /// Reads memory of the peer into a range of the buffer.
    pub fn read<B>(&mut self, buffer: B, range: Range<usize>, remote: RemoteSegment) -> Transfer<B>
    where
        B: AsRef<MemoryRegion<'static>> + Any + Send,
    {
        self.post(buffer, range, |endpoint, segment, cookie| {
            endpoint.post_read(&[segment], remote, cookie, Flags::default())
        })
    }

    fn post<B>(
        &mut self,
        buffer: B,
        range: Range<usize>,
        post: impl FnOnce(&mut Endpoint, crate::Segment, u64) -> Result<()>,
    ) -> Transfer<B>
    where
        B: AsRef<MemoryRegion<'static>> + Any + Send,
    {
        let (shared, owner) = (self.shared.clone(), self.id.0);
        let endpoint = self.endpoint();
        Transfer::post(&shared, owner, buffer, range, |segment, cookie| {
            post(endpoint, segment, cookie)
        })
    }
}

impl Drop for AsyncEndpoint {
    fn drop(&mut self) {
        let (id, dropped) = (self.id, OperationError::Dropped);
        let (connections, next) = {
            let mut state = self.shared.lock();
            // After the endpoint was freed, the provider does not use the buffers any more. The
            // lock keeps the driver from taking the flushed completions before the operations end.
            drop(self.endpoint.take());
            let connections = state.connections.remove(&id);
            (connections, state.slots.end(|owner| owner == id.0, &dropped))
        };
        next.into_iter().for_each(Next::act);
        if let Some(mut connections) = connections {
            connections.take_wakers().into_iter().for_each(Waker::wake);
        }
    }
}

/// The end of a connection, from [`AsyncEndpoint::closed`].
///
/// ```no_run
/// # async fn serve(endpoint: dat::asynchronous::AsyncEndpoint)
/// #     -> Result<(), dat::asynchronous::OperationError> {
/// // The future does not borrow the endpoint, which other tasks can use meanwhile.
/// let closed = endpoint.closed();
/// println!("the connection has ended: {}", closed.await?);
/// # Ok(())
/// # }
/// ```
#[must_use = "a future waits for nothing before it is polled"]
pub struct Closed {
    shared: Arc<AdapterShared>,
    endpoint: EndpointId,
    /// The entry in [`Connections`].
    id: u64,
}

impl Future for Closed {
    type Output = Result<ConnectionEvent, OperationError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        poll_connections(&self.shared, self.endpoint, context, |connections, waker| {
            connections.poll_closing(self.id, waker)
        })
    }
}

impl Drop for Closed {
    fn drop(&mut self) {
        let waker = {
            let mut state = self.shared.lock();
            let connections = state.connections.get_mut(&self.endpoint);
            connections.and_then(|connections| connections.remove_closing(self.id))
        };
        // Dropped without the lock.
        drop(waker);
    }
}

fn poll_connections(
    shared: &AdapterShared,
    endpoint: EndpointId,
    context: &mut Context<'_>,
    poll: impl FnOnce(&mut Connections, &mut Option<Waker>) -> Poll<Option<ConnectionEvent>>,
) -> Poll<Result<ConnectionEvent, OperationError>> {
    // Cloned and dropped without the lock, because a waker is code of the runtime.
    let mut waker = Some(context.waker().clone());
    let mut state = shared.lock();
    let State { connections, stopped, .. } = &mut *state;
    let Some(connections) = connections.get_mut(&endpoint) else {
        return Poll::Ready(Err(OperationError::Dropped));
    };
    match (poll(connections, &mut waker), stopped) {
        (Poll::Ready(Some(event)), _) => Poll::Ready(Ok(event)),
        (Poll::Ready(None), _) => Poll::Ready(Err(OperationError::Dropped)),
        (Poll::Pending, Some(why)) => Poll::Ready(Err(OperationError::Stopped(why.clone()))),
        (Poll::Pending, None) => Poll::Pending,
    }
}

/// A queue of receives that several endpoints share. It comes from
/// [`AsyncAdapter::shared_receive_queue`](super::AsyncAdapter::shared_receive_queue). The
/// completion of a receive names the endpoint that has used it.
///
/// Drop the endpoints of the queue first. Dropping the queue ends its receives with
/// [`OperationError::Dropped`].
///
/// ```no_run
/// use dat::asynchronous::AsyncAdapter;
/// use dat::{Access, ProtectionZone};
///
/// async fn receive_one(adapter: &AsyncAdapter, zone: &ProtectionZone) -> std::io::Result<()> {
///     let mut queue = adapter.shared_receive_queue(zone, 8, 1)?;
///     let received = queue.receive(zone.register(vec![0; 64], Access::LOCAL)?, 0..64);
///     let builder = adapter.endpoint().zone(zone);
///     let mut endpoint = adapter.create(builder.shared_receive_queue(queue.as_queue()))?;
///     let request = adapter.listen(7777)?.request().await?;
///     endpoint.accept(request, b"").await?;
///     let (buffer, completion) = received.await?;
///     assert_eq!(completion.endpoint, endpoint.id());
///     Ok(())
/// }
/// ```
pub struct AsyncSharedReceiveQueue {
    /// `None` only while this value is dropped.
    queue: Option<SharedReceiveQueue>,
    owner: usize,
    shared: Arc<AdapterShared>,
}

impl AsyncSharedReceiveQueue {
    pub(super) fn new(queue: SharedReceiveQueue, shared: &Arc<AdapterShared>) -> Self {
        let owner = queue.object.handle.addr();
        AsyncSharedReceiveQueue { queue: Some(queue), owner, shared: shared.clone() }
    }

    fn queue(&mut self) -> &mut SharedReceiveQueue {
        self.queue.as_mut().expect("the queue exists until this value is dropped")
    }

    /// The queue, for [`EndpointBuilder::shared_receive_queue`].
    ///
    /// [`EndpointBuilder::shared_receive_queue`]: crate::EndpointBuilder::shared_receive_queue
    pub fn as_queue(&self) -> &SharedReceiveQueue {
        self.queue.as_ref().expect("the queue exists until this value is dropped")
    }

    /// Receives one message of any endpoint of the queue into a range of the buffer.
    pub fn receive<B>(&mut self, buffer: B, range: Range<usize>) -> Transfer<B>
    where
        B: AsRef<MemoryRegion<'static>> + Any + Send,
    {
        let (shared, owner) = (self.shared.clone(), self.owner);
        let queue = self.queue();
        Transfer::post(&shared, owner, buffer, range, |segment, cookie| {
            queue.post_receive(&[segment], cookie)
        })
    }
}

impl Drop for AsyncSharedReceiveQueue {
    fn drop(&mut self) {
        let owner = self.owner;
        let next = {
            let mut state = self.shared.lock();
            drop(self.queue.take());
            state.slots.end(|of| of == owner, &OperationError::Dropped)
        };
        next.into_iter().for_each(Next::act);
    }
}
