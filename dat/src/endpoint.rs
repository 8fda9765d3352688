//! Endpoints: creating, connecting and disconnecting them. The posts are in `post.rs`.

use std::sync::Arc;
use std::time::Duration;

use dat_sys::*;

use crate::adapter::{count_to_c, timeout_to_c};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::ProtectionZone;
use crate::object::{Interface, Object, call};
use crate::owners::EndpointNumber;
use crate::post::Limits;
use crate::srq::SharedReceiveQueue;
use crate::{Adapter, Address, EventDispatcher, Streams};

/// Identifies an endpoint. Compare it with [`Endpoint::id`].
///
/// ```
/// let adapter = dat::Adapter::open("tcp-emu")?;
/// let (one, other) = (adapter.endpoint().create()?, adapter.endpoint().create()?);
/// assert_ne!(one.id(), other.id());
/// # Ok::<(), dat::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EndpointId(pub(crate) usize);

/// One end of a connection, or a sender and receiver of datagrams (EP in the standard).
///
/// ```
/// use dat::{Access, Adapter, EndpointState};
///
/// let adapter = Adapter::open("tcp-emu")?;
/// let (zone, events) = (adapter.zone()?, adapter.dispatcher(16)?);
/// let buffer = zone.register(vec![0; 64], Access::LOCAL)?;
/// let mut endpoint = adapter.endpoint().zone(&zone).events(&events).create()?;
/// // A receive may be posted before there is a connection.
/// endpoint.post_receive(&[buffer.segment(0..64)?], 1)?;
/// assert_eq!(endpoint.state()?, EndpointState::Unconnected);
/// # Ok::<(), dat::Error>(())
/// ```
pub struct Endpoint {
    pub(crate) object: Arc<Object>,
    pub(crate) number: EndpointNumber,
    pub(crate) limits: Limits,
}

/// Builds an endpoint, from [`Adapter::endpoint`]. The defaults are the adapter's limits, but at
/// most 64 requests and receives, 4 segments, and 4 RDMA reads in each direction.
///
/// ```
/// let adapter = dat::Adapter::open("tcp-emu")?;
/// let (zone, events) = (adapter.zone()?, adapter.dispatcher(1024)?);
/// let endpoint = adapter
///     .endpoint()
///     .zone(&zone)
///     .events(&events)
///     .max_receives(512)
///     .max_requests(512)
///     .create()?;
/// # Ok::<(), dat::Error>(())
/// ```
#[must_use = "only `create` creates the endpoint"]
pub struct EndpointBuilder<'a> {
    pub(crate) adapter: &'a Adapter,
    zone: Option<&'a ProtectionZone>,
    receives: Option<&'a EventDispatcher>,
    requests: Option<&'a EventDispatcher>,
    connections: Option<&'a EventDispatcher>,
    queue: Option<&'a SharedReceiveQueue>,
    pub(crate) attr: DAT_EP_ATTR,
}

impl<'a> EndpointBuilder<'a> {
    pub(crate) fn new(adapter: &'a Adapter) -> Self {
        let limits = adapter.attributes();
        let at_most = |limit: usize, wanted: usize| count_to_c(limit.min(wanted));
        let attr = DAT_EP_ATTR {
            service_type: DAT_SERVICE_TYPE_RC,
            max_message_size: limits.max_message,
            max_rdma_size: limits.max_rdma,
            qos: DAT_QOS_BEST_EFFORT,
            max_recv_dtos: at_most(limits.max_operations, 64),
            max_request_dtos: at_most(limits.max_operations, 64),
            max_recv_iov: at_most(limits.max_segments, 4),
            max_request_iov: at_most(limits.max_segments, 4),
            max_rdma_read_in: at_most(limits.max_reads_in, 4),
            max_rdma_read_out: at_most(limits.max_reads_out, 4),
            srq_soft_hw: DAT_HW_DEFAULT,
            max_rdma_read_iov: at_most(limits.max_read_segments, 4),
            max_rdma_write_iov: at_most(limits.max_write_segments, 4),
            ..DAT_EP_ATTR::zeroed()
        };
        EndpointBuilder {
            adapter,
            zone: None,
            receives: None,
            requests: None,
            connections: None,
            queue: None,
            attr,
        }
    }

    /// Sets the protection zone of the memory that the endpoint uses. An endpoint without a zone
    /// cannot connect.
    pub fn zone(self, zone: &'a ProtectionZone) -> Self {
        EndpointBuilder { zone: Some(zone), ..self }
    }

    /// Sets one dispatcher for all events of the endpoint.
    pub fn events(self, events: &'a EventDispatcher) -> Self {
        self.receives(events).requests(events).connections(events)
    }

    /// Whether all events of the endpoint go to this dispatcher.
    #[cfg(feature = "async")]
    pub(crate) fn reports_all_to(&self, events: &EventDispatcher) -> bool {
        let all = [self.receives, self.requests, self.connections];
        all.iter().all(|of| of.is_some_and(|of| of.id() == events.id()))
    }

    /// Sets the dispatcher for completions of receives.
    pub fn receives(self, events: &'a EventDispatcher) -> Self {
        EndpointBuilder { receives: Some(events), ..self }
    }

    /// Sets the dispatcher for completions of sends, RDMA writes and RDMA reads.
    pub fn requests(self, events: &'a EventDispatcher) -> Self {
        EndpointBuilder { requests: Some(events), ..self }
    }

    /// Sets the dispatcher for connection events. An endpoint without this dispatcher cannot
    /// connect.
    pub fn connections(self, events: &'a EventDispatcher) -> Self {
        EndpointBuilder { connections: Some(events), ..self }
    }

    /// Makes the endpoint use the receives of this queue instead of a receive queue of its own.
    pub fn shared_receive_queue(self, queue: &'a SharedReceiveQueue) -> Self {
        EndpointBuilder { queue: Some(queue), ..self }
    }

    /// Sets the maximum number of outstanding requests.
    pub fn max_requests(mut self, count: usize) -> Self {
        self.attr.max_request_dtos = count_to_c(count);
        self
    }

    /// Sets the maximum number of outstanding receives.
    pub fn max_receives(mut self, count: usize) -> Self {
        self.attr.max_recv_dtos = count_to_c(count);
        self
    }

    /// Sets the maximum number of segments of an operation.
    pub fn max_segments(mut self, count: usize) -> Self {
        let count = count_to_c(count);
        self.attr.max_recv_iov = count;
        self.attr.max_request_iov = count;
        self.attr.max_rdma_write_iov = count;
        self.attr.max_rdma_read_iov = count;
        self
    }

    /// Sets the maximum number of RDMA reads in progress: `made` by this endpoint, `served` for the
    /// peer.
    pub fn max_reads(mut self, made: usize, served: usize) -> Self {
        self.attr.max_rdma_read_out = count_to_c(made);
        self.attr.max_rdma_read_in = count_to_c(served);
        self
    }

    /// Creates the endpoint.
    ///
    /// # Errors
    ///
    /// [`InvalidParameter`](crate::ErrorKind::InvalidParameter) for attributes beyond those of the
    /// adapter, and other errors of the provider.
    pub fn create(self) -> Result<Endpoint> {
        let number = EndpointNumber::new();
        // Old events with the handles of these endpoints may still be queued. The endpoints stay
        // until one with another handle is created, because a freed handle could be used again at
        // once.
        let mut unusable = Vec::new();
        let object = loop {
            let object = self.create_object()?;
            let Some(EventDispatcher { owners, .. }) = self.connections else { break object };
            match owners.register(object.handle, number) {
                Some(registration) => break object.registered(registration),
                None => unusable.push(object),
            }
        };
        let attr = &self.attr;
        let limits = Limits {
            requests: attr.max_request_dtos,
            receives: attr.max_recv_dtos,
            request_segments: attr.max_request_iov,
            receive_segments: attr.max_recv_iov,
            message: attr.max_message_size,
            rdma: attr.max_rdma_size,
        };
        Ok(Endpoint { object: Arc::new(object), number, limits })
    }

    /// Creates the provider's object.
    fn create_object(&self) -> Result<Object> {
        let interface = &self.adapter.interface;
        let objects = [
            self.zone.map(|zone| &zone.object),
            self.receives.map(|events| &events.object),
            self.requests.map(|events| &events.object),
            self.connections.map(|events| &events.object),
            self.queue.map(|queue| &queue.object),
        ];
        let [zone, receives, requests, connections, queue] =
            objects.map(|object| object.map_or(DAT_HANDLE_NULL, |object| object.handle));
        let ia = interface.handle();
        let attr = DAT_EP_ATTR {
            recv_completion_flags: completion_flags(self.receives),
            request_completion_flags: completion_flags(self.requests),
            ..self.attr
        };
        let mut handle = DAT_HANDLE_NULL;
        // SAFETY: the IA is open, the objects are valid or null, the attributes are readable, and
        // the handle is writable.
        unsafe {
            if self.queue.is_some() {
                call!(
                    interface,
                    "dat_ep_create_with_srq",
                    ep_create_with_srq_func(
                        ia,
                        zone,
                        receives,
                        requests,
                        connections,
                        queue,
                        &attr,
                        &mut handle
                    )
                )
            } else {
                call!(
                    interface,
                    "dat_ep_create",
                    ep_create_func(ia, zone, receives, requests, connections, &attr, &mut handle)
                )
            }
        }
        .map_err(|error| self.explain(error))?;
        let needs = objects.into_iter().flatten().cloned().collect();
        // SAFETY: the object was just created, and only this value frees it.
        Ok(unsafe { Object::new(interface, handle, interface.table().ep_free_func, needs) })
    }

    /// Adds to an error the attribute that exceeds the limit of the adapter.
    #[cold]
    fn explain(&self, error: Error) -> Error {
        let (attr, limits) = (&self.attr, self.adapter.attributes());
        let pairs = [
            ("requests", attr.max_request_dtos, limits.max_operations),
            ("receives", attr.max_recv_dtos, limits.max_operations),
            ("segments", attr.max_request_iov, limits.max_segments),
            ("segments of an RDMA write", attr.max_rdma_write_iov, limits.max_write_segments),
            ("segments of an RDMA read", attr.max_rdma_read_iov, limits.max_read_segments),
            ("RDMA reads made", attr.max_rdma_read_out, limits.max_reads_out),
            ("RDMA reads served", attr.max_rdma_read_in, limits.max_reads_in),
        ];
        let exceeds = |(_, wanted, limit): &&(_, DAT_COUNT, usize)| {
            usize::try_from(*wanted).is_ok_and(|wanted| wanted > *limit)
        };
        let first = pairs.iter().find(exceeds);
        error.explained(first.map(|(what, wanted, limit)| {
            format!("{wanted} {what}, and the limit of the adapter is {limit}")
        }))
    }
}

/// The flags of completions that this dispatcher gets. Only the threshold flag is valid if the
/// dispatcher also accepts other events.
fn completion_flags(events: Option<&EventDispatcher>) -> DAT_COMPLETION_FLAGS {
    match events {
        Some(events) if events.streams != Streams::COMPLETIONS => DAT_COMPLETION_EVD_THRESHOLD_FLAG,
        _ => DAT_COMPLETION_DEFAULT_FLAG,
    }
}

/// The way in which to end a connection.
///
/// ```no_run
/// # fn end(mut endpoint: dat::Endpoint) -> dat::Result<()> {
/// endpoint.disconnect(dat::Close::Graceful)
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Close {
    /// The connection ends after all posted operations have been performed.
    Graceful,
    /// The connection ends at once. Posted operations are flushed.
    Abrupt,
}

/// The state of an endpoint (uDAPL 2.0, DAT_EP_STATE).
///
/// ```
/// let adapter = dat::Adapter::open("tcp-emu")?;
/// let (zone, events) = (adapter.zone()?, adapter.dispatcher(16)?);
/// let endpoint = adapter.endpoint().zone(&zone).events(&events).create()?;
/// assert_eq!(endpoint.state()?, dat::EndpointState::Unconnected);
/// # Ok::<(), dat::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EndpointState {
    /// The endpoint is ready to connect or to accept.
    Unconnected,
    /// The endpoint has requested a connection.
    ActiveConnectionPending,
    /// A connection request for the endpoint waits to be accepted.
    PassiveConnectionPending,
    /// A connection request was accepted, but the connection is not established yet.
    CompletionPending,
    /// The endpoint is connected.
    Connected,
    /// The connection is ending.
    DisconnectPending,
    /// The connection has ended, or was not established.
    Disconnected,
    /// The endpoint is in a state that has no variant here.
    Other(DAT_EP_STATE),
}

impl Endpoint {
    /// Identifies this endpoint in events.
    pub fn id(&self) -> EndpointId {
        EndpointId(self.object.handle.addr())
    }

    /// Requests a connection to a connection qualifier of a peer. The result is reported as an
    /// [`Event::Connection`](crate::Event::Connection). Without a time limit, the provider's own
    /// limit applies.
    ///
    /// A [datagram endpoint](EndpointBuilder::datagrams) finds out a peer in this way, and may call
    /// this method again for other peers, also while it waits for the results of earlier calls. If
    /// the peer is found, the result is an [`Event::Peer`](crate::Event::Peer).
    ///
    /// # Errors
    ///
    /// [`InvalidState`](crate::ErrorKind::InvalidState) unless the endpoint is unconnected or a
    /// datagram endpoint, and [`InvalidParameter`](crate::ErrorKind::InvalidParameter) for too much
    /// private data (see [`Attributes::max_private_data`](crate::Attributes::max_private_data)) and
    /// for a time limit of 0.
    pub fn connect(
        &mut self,
        peer: Address,
        qualifier: u64,
        private_data: &[u8],
        timeout: Option<Duration>,
    ) -> Result<()> {
        let address = peer.to_c();
        let (size, data) = private_data_to_c(private_data);
        let begin = || {
            // SAFETY: this value owns the handle. The address and the private data exist during the
            // call and are only read.
            unsafe {
                call!(
                    self.object.interface,
                    "dat_ep_connect",
                    ep_connect_func(
                        self.object.handle,
                        address.as_ptr(),
                        qualifier,
                        timeout_to_c(timeout),
                        size,
                        data,
                        DAT_QOS_BEST_EFFORT,
                        DAT_CONNECT_DEFAULT_FLAG,
                    )
                )
            }
        };
        self.object
            .begin(begin)
            .map_err(|error| too_much_private_data(error, &self.object.interface, private_data))
    }

    /// Ends the connection or the connection attempt. An event reports the end.
    ///
    /// # Errors
    ///
    /// [`InvalidState`](crate::ErrorKind::InvalidState) if there never was a connection.
    pub fn disconnect(&mut self, how: Close) -> Result<()> {
        let flags = match how {
            Close::Graceful => DAT_CLOSE_GRACEFUL_FLAG,
            Close::Abrupt => DAT_CLOSE_ABRUPT_FLAG,
        };
        // SAFETY: this value owns the handle.
        unsafe {
            call!(
                self.object.interface,
                "dat_ep_disconnect",
                ep_disconnect_func(self.object.handle, flags)
            )
        }
    }

    /// Prepares a disconnected endpoint for another connection. Completions that were not dequeued
    /// may be lost. Connection events that were not dequeued have no private data any more.
    ///
    /// # Errors
    ///
    /// [`InvalidState`](crate::ErrorKind::InvalidState) unless the endpoint is disconnected or
    /// unconnected.
    pub fn reset(&mut self) -> Result<()> {
        let Object { interface, handle, .. } = &*self.object;
        self.object.reset(|| {
            // SAFETY: this value owns the handle. The provider frees the private data of earlier
            // connection events. Nobody reads them during this call or afterwards (`owners.rs`).
            unsafe { call!(interface, "dat_ep_reset", ep_reset_func(*handle)) }
        })
    }

    /// The state of the endpoint.
    ///
    /// # Errors
    ///
    /// The error of the provider.
    pub fn state(&self) -> Result<EndpointState> {
        let (mut state, mut recv_idle, mut request_idle) = (0, 0, 0);
        // SAFETY: this value owns the handle, and the variables are writable. The call is permitted
        // at any time (uDAPL 1.2, MT level: safe).
        unsafe {
            call!(
                self.object.interface,
                "dat_ep_get_status",
                ep_get_status_func(
                    self.object.handle,
                    &mut state,
                    &mut recv_idle,
                    &mut request_idle
                )
            )
        }?;
        Ok(match state {
            DAT_EP_STATE_UNCONNECTED => EndpointState::Unconnected,
            DAT_EP_STATE_ACTIVE_CONNECTION_PENDING => EndpointState::ActiveConnectionPending,
            DAT_EP_STATE_PASSIVE_CONNECTION_PENDING => EndpointState::PassiveConnectionPending,
            DAT_EP_STATE_COMPLETION_PENDING => EndpointState::CompletionPending,
            DAT_EP_STATE_CONNECTED => EndpointState::Connected,
            DAT_EP_STATE_DISCONNECT_PENDING => EndpointState::DisconnectPending,
            DAT_EP_STATE_DISCONNECTED => EndpointState::Disconnected,
            other => EndpointState::Other(other),
        })
    }
}

/// Adds the lengths to the error of a call that was given too much private data.
#[cold]
pub(crate) fn too_much_private_data(error: Error, interface: &Interface, data: &[u8]) -> Error {
    let limit = interface.attributes.max_private_data;
    let exceeds = error.kind() == ErrorKind::InvalidParameter && data.len() > limit;
    error.explained(
        exceeds.then(|| format!("{} bytes of private data, and the limit is {limit}", data.len())),
    )
}

/// Converts private data to C, where they are not declared const but are only read.
pub(crate) fn private_data_to_c(data: &[u8]) -> (DAT_COUNT, DAT_PVOID) {
    let start =
        if data.is_empty() { std::ptr::null_mut() } else { data.as_ptr().cast_mut().cast() };
    (count_to_c(data.len()), start)
}
