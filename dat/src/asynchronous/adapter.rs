//! An adapter whose events wake futures.

use std::io;
use std::sync::Arc;

use dat_sys::{
    DAT_ERROR, DAT_INVALID_ARG1, DAT_INVALID_PARAMETER, DAT_MODEL_NOT_SUPPORTED, DAT_NO_SUBTYPE,
};

use super::adapter_shared::{AdapterShared, Driver};
use super::endpoint::{AsyncEndpoint, AsyncSharedReceiveQueue};
use super::listener::AsyncListener;
use super::runtime::Runtime;
use super::stream::EventStream;
use crate::{Adapter, EndpointBuilder, Error, EventDispatcher, ProtectionZone, Result, Streams};

/// An adapter whose endpoints and listeners are used with futures.
///
/// ```no_run
/// use dat::asynchronous::{AsyncAdapter, Runtime};
/// use dat::{Access, Adapter};
///
/// async fn greet(runtime: &dyn Runtime) -> std::io::Result<()> {
///     let adapter = AsyncAdapter::new(Adapter::open("tcp-emu")?, 256, runtime)?;
///     let zone = adapter.adapter().zone()?;
///     let greeting = zone.register(b"hello".to_vec(), Access::LOCAL)?;
///     let mut endpoint = adapter.create(adapter.endpoint().zone(&zone))?;
///     endpoint.connect("192.0.2.7".parse().unwrap(), 7777, b"", None).await?;
///     let (_greeting, completion) = endpoint.send(greeting, 0..5).await?;
///     assert_eq!(completion.length, 5);
///     Ok(())
/// }
/// ```
pub struct AsyncAdapter {
    adapter: Adapter,
    /// The dispatcher of the driver, as a second value with which objects are created. Only the
    /// driver takes events.
    events: EventDispatcher,
    shared: Arc<AdapterShared>,
}

impl AsyncAdapter {
    /// Spawns a task that takes the events of the adapter. `depth` is the maximum number of
    /// operations in progress, and of connection requests that were not taken, on all endpoints
    /// and listeners together. If there are more, the queue of events overflows, and all futures of
    /// the adapter end with [`OperationError::Stopped`](super::OperationError::Stopped).
    ///
    /// The futures do not report failures of the adapter itself. A program that wants to know of
    /// them takes [`Adapter::take_asynchronous_events`] first.
    ///
    /// # Errors
    ///
    /// The errors of [`EventStream::new`], and those of the runtime.
    pub fn new(adapter: Adapter, depth: usize, runtime: &dyn Runtime) -> io::Result<Self> {
        let stream = EventStream::new(&adapter, depth, Streams::default(), runtime)?;
        let events = stream.dispatcher().share();
        let shared = Arc::new(AdapterShared::new());
        runtime.spawn(Box::pin(Driver::new(stream, &shared)))?;
        Ok(AsyncAdapter { adapter, events, shared })
    }

    /// The adapter, for its attributes, and to create zones.
    pub fn adapter(&self) -> &Adapter {
        &self.adapter
    }

    /// Returns a builder for an endpoint, for [`create`](Self::create). The events of the endpoint
    /// go to the futures.
    pub fn endpoint(&self) -> EndpointBuilder<'_> {
        self.adapter.endpoint().events(&self.events)
    }

    /// Creates an endpoint. The builder must be from [`endpoint`](Self::endpoint), and must not
    /// have got other dispatchers.
    ///
    /// # Errors
    ///
    /// [`InvalidParameter`](crate::ErrorKind::InvalidParameter) for a builder with other
    /// dispatchers, [`ModelNotSupported`](crate::ErrorKind::ModelNotSupported) for
    /// [datagrams](EndpointBuilder::datagrams), and the errors of [`EndpointBuilder::create`].
    pub fn create(&self, builder: EndpointBuilder<'_>) -> Result<AsyncEndpoint> {
        if !builder.reports_all_to(&self.events) {
            let status = DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG1);
            let detail = "the endpoint's events do not go to the dispatcher of this adapter";
            return Err(Error::new("AsyncAdapter::create", status).explained(Some(detail.into())));
        }
        if builder.is_for_datagrams() {
            let status = DAT_ERROR(DAT_MODEL_NOT_SUPPORTED, DAT_NO_SUBTYPE);
            let detail = "there are no futures for datagrams: create the endpoint with `create` of \
                          the builder, and give it dispatchers of its own";
            return Err(Error::new("AsyncAdapter::create", status).explained(Some(detail.into())));
        }
        Ok(AsyncEndpoint::new(builder.create()?, &self.shared))
    }

    /// Creates a queue of receives that several endpoints share, as
    /// [`ProtectionZone::shared_receive_queue`] does.
    ///
    /// # Errors
    ///
    /// The errors of [`ProtectionZone::shared_receive_queue`].
    pub fn shared_receive_queue(
        &self,
        zone: &ProtectionZone,
        depth: usize,
        max_segments: usize,
    ) -> Result<AsyncSharedReceiveQueue> {
        let queue = zone.shared_receive_queue(depth, max_segments)?;
        Ok(AsyncSharedReceiveQueue::new(queue, &self.shared))
    }

    /// Listens on a connection qualifier.
    ///
    /// # Errors
    ///
    /// The errors of [`Adapter::listen`].
    pub fn listen(&self, qualifier: u64) -> Result<AsyncListener> {
        AsyncListener::new(&self.shared, || self.adapter.listen(qualifier, &self.events))
    }

    /// Listens on any free qualifier, which [`AsyncListener::qualifier`] returns.
    ///
    /// # Errors
    ///
    /// The errors of [`Adapter::listen_any`].
    pub fn listen_any(&self) -> Result<AsyncListener> {
        AsyncListener::new(&self.shared, || self.adapter.listen_any(&self.events))
    }
}
