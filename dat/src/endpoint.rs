//! Endpoints: making, connecting, ending. Posting is in `post.rs`.

use std::sync::Arc;
use std::time::Duration;

use dat_sys::*;

use crate::adapter::{count_to_c, timeout_to_c};
use crate::error::Result;
use crate::memory::ProtectionZone;
use crate::object::{Object, call};
use crate::srq::SharedReceiveQueue;
use crate::{Adapter, Address, EventDispatcher};

/// Which endpoint; to be compared with [`Endpoint::id`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EndpointId(pub(crate) usize);

/// One end of a connection (EP).
pub struct Endpoint {
    pub(crate) object: Arc<Object>,
}

/// The attributes of an endpoint to be, from [`Adapter::endpoint`]. What is not set is as the adapter allows, within
/// reason: 64 requests and receives, 4 segments, 4 RDMA reads each way.
#[must_use = "`create` makes the endpoint"]
pub struct EndpointBuilder<'a> {
    adapter: &'a Adapter,
    zone: Option<&'a ProtectionZone>,
    receives: Option<&'a EventDispatcher>,
    requests: Option<&'a EventDispatcher>,
    connections: Option<&'a EventDispatcher>,
    queue: Option<&'a SharedReceiveQueue>,
    attr: DAT_EP_ATTR,
}

impl<'a> EndpointBuilder<'a> {
    pub(crate) fn new(adapter: &'a Adapter) -> Self {
        let limits = adapter.attributes();
        let least = |limit: usize, wanted: usize| count_to_c(limit.min(wanted));
        let attr = DAT_EP_ATTR {
            service_type: DAT_SERVICE_TYPE_RC,
            max_message_size: limits.max_message,
            max_rdma_size: limits.max_rdma,
            qos: DAT_QOS_BEST_EFFORT,
            max_recv_dtos: least(limits.max_operations, 64),
            max_request_dtos: least(limits.max_operations, 64),
            max_recv_iov: least(limits.max_segments, 4),
            max_request_iov: least(limits.max_segments, 4),
            max_rdma_read_in: least(limits.max_reads_in, 4),
            max_rdma_read_out: least(limits.max_reads_out, 4),
            srq_soft_hw: DAT_HW_DEFAULT,
            max_rdma_read_iov: least(limits.max_read_segments, 4),
            max_rdma_write_iov: least(limits.max_write_segments, 4),
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

    /// The zone of the memory that it uses; needed to connect.
    pub fn zone(self, zone: &'a ProtectionZone) -> Self {
        EndpointBuilder { zone: Some(zone), ..self }
    }

    /// One dispatcher for everything.
    pub fn events(self, events: &'a EventDispatcher) -> Self {
        self.receives(events).requests(events).connections(events)
    }

    /// Where receives complete.
    pub fn receives(self, events: &'a EventDispatcher) -> Self {
        EndpointBuilder { receives: Some(events), ..self }
    }

    /// Where sends, RDMA writes and RDMA reads complete.
    pub fn requests(self, events: &'a EventDispatcher) -> Self {
        EndpointBuilder { requests: Some(events), ..self }
    }

    /// Where connections are reported; needed to connect.
    pub fn connections(self, events: &'a EventDispatcher) -> Self {
        EndpointBuilder { connections: Some(events), ..self }
    }

    /// Takes receives from this queue instead of its own.
    pub fn shared_receive_queue(self, queue: &'a SharedReceiveQueue) -> Self {
        EndpointBuilder { queue: Some(queue), ..self }
    }

    /// Requests outstanding at most.
    pub fn max_requests(mut self, count: usize) -> Self {
        self.attr.max_request_dtos = count_to_c(count);
        self
    }

    /// Receives outstanding at most.
    pub fn max_receives(mut self, count: usize) -> Self {
        self.attr.max_recv_dtos = count_to_c(count);
        self
    }

    /// Segments of an operation at most.
    pub fn max_segments(mut self, count: usize) -> Self {
        let count = count_to_c(count);
        self.attr.max_recv_iov = count;
        self.attr.max_request_iov = count;
        self.attr.max_rdma_write_iov = count;
        self.attr.max_rdma_read_iov = count;
        self
    }

    /// RDMA reads in progress at most: those that it makes, and those that the peer makes.
    pub fn max_reads(mut self, made: usize, served: usize) -> Self {
        self.attr.max_rdma_read_out = count_to_c(made);
        self.attr.max_rdma_read_in = count_to_c(served);
        self
    }

    /// Makes the endpoint.
    ///
    /// # Errors
    ///
    /// [`InvalidParameter`](crate::ErrorKind::InvalidParameter) for attributes beyond those of the adapter, and what
    /// else the provider says.
    pub fn create(self) -> Result<Endpoint> {
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
        let mut handle = DAT_HANDLE_NULL;
        // SAFETY: an open IA, objects or none, attributes, and a handle to write to.
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
                        &self.attr,
                        &mut handle
                    )
                )
            } else {
                call!(
                    interface,
                    "dat_ep_create",
                    ep_create_func(
                        ia,
                        zone,
                        receives,
                        requests,
                        connections,
                        &self.attr,
                        &mut handle
                    )
                )
            }
        }?;
        let needs = objects.into_iter().flatten().cloned().collect();
        // SAFETY: just created.
        let object =
            unsafe { Object::new(interface, handle, interface.table().ep_free_func, needs) };
        Ok(Endpoint { object: Arc::new(object) })
    }
}

/// How to end a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Close {
    /// Carry out what is posted first.
    Graceful,
    /// At once; what is posted is flushed.
    Abrupt,
}

/// The state of an endpoint (uDAPL 2.0, DAT_EP_STATE).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EndpointState {
    /// Ready to connect or to accept.
    Unconnected,
    /// A connection was asked for.
    ActiveConnectionPending,
    /// A request for it waits to be accepted.
    PassiveConnectionPending,
    /// A request was accepted, the connection is not up yet.
    CompletionPending,
    /// Connected.
    Connected,
    /// The connection is ending.
    DisconnectPending,
    /// The connection has ended, or did not come up.
    Disconnected,
    /// Another one.
    Other(DAT_EP_STATE),
}

impl Endpoint {
    /// Which endpoint this is.
    pub fn id(&self) -> EndpointId {
        EndpointId(self.object.handle.addr())
    }

    /// Asks for a connection to a connection qualifier of a peer. How it ends is reported as an
    /// [`Event::Connection`](crate::Event::Connection). Without a time limit the provider has its own.
    ///
    /// # Errors
    ///
    /// [`InvalidState`](crate::ErrorKind::InvalidState) unless unconnected;
    /// [`InvalidParameter`](crate::ErrorKind::InvalidParameter) for too much private data, see
    /// [`Attributes::max_private_data`](crate::Attributes::max_private_data), and a time limit of 0.
    pub fn connect(
        &mut self,
        peer: Address,
        qualifier: u64,
        private_data: &[u8],
        timeout: Option<Duration>,
    ) -> Result<()> {
        let mut address = peer.to_c();
        let (size, data) = private_data_to_c(private_data);
        // SAFETY: our handle; an address and private data, both alive for the call and only read.
        unsafe {
            call!(
                self.object.interface,
                "dat_ep_connect",
                ep_connect_func(
                    self.object.handle,
                    (&raw mut address).cast(),
                    qualifier,
                    timeout_to_c(timeout),
                    size,
                    data,
                    DAT_QOS_BEST_EFFORT,
                    DAT_CONNECT_DEFAULT_FLAG,
                )
            )
        }
    }

    /// Ends the connection, or the attempt to make one; the event says when it has ended.
    ///
    /// # Errors
    ///
    /// [`InvalidState`](crate::ErrorKind::InvalidState) where there never was one.
    pub fn disconnect(&mut self, how: Close) -> Result<()> {
        let flags = match how {
            Close::Graceful => DAT_CLOSE_GRACEFUL_FLAG,
            Close::Abrupt => DAT_CLOSE_ABRUPT_FLAG,
        };
        // SAFETY: our handle.
        unsafe {
            call!(
                self.object.interface,
                "dat_ep_disconnect",
                ep_disconnect_func(self.object.handle, flags)
            )
        }
    }

    /// Makes a disconnected endpoint ready for another connection. Completions that were not dequeued may be lost.
    ///
    /// # Errors
    ///
    /// [`InvalidState`](crate::ErrorKind::InvalidState) unless disconnected or unconnected.
    pub fn reset(&mut self) -> Result<()> {
        // SAFETY: our handle.
        unsafe { call!(self.object.interface, "dat_ep_reset", ep_reset_func(self.object.handle)) }
    }

    /// The state.
    ///
    /// # Errors
    ///
    /// What the provider says.
    pub fn state(&self) -> Result<EndpointState> {
        let (mut state, mut recv_idle, mut request_idle) = (0, 0, 0);
        // SAFETY: our handle, and variables to write to. It may be called at any time (uDAPL 1.2, MT level: safe).
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

/// Private data for C, which has no const for it but only reads it.
pub(crate) fn private_data_to_c(data: &[u8]) -> (DAT_COUNT, DAT_PVOID) {
    let start =
        if data.is_empty() { std::ptr::null_mut() } else { data.as_ptr().cast_mut().cast() };
    (count_to_c(data.len()), start)
}
