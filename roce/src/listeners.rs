//! The passive side before a queue pair is involved: listeners and the
//! connection requests that arrived there.

use std::collections::HashMap;
use std::net::SocketAddr;

use adapter::Slab;
use rnic::cm::{ConnId, HandedOver, IncomingRequest};
use wire::cm::Reason;
use work::ServiceType;

use crate::owner::{DatagramRequest, LocalRequest, Owner};
use crate::resources::{EngineContext, EngineEvent, Sink};
use crate::shared_port::Service;

/// A request that the consumer has received and not yet answered.
pub enum PendingRequest {
    /// The peer wants to connect.
    Connection(ConnectionRequest),
    /// The peer wants to send datagrams.
    Datagram(DatagramRequest),
}

/// A connection request that the consumer has received and not yet answered.
pub struct ConnectionRequest {
    pub(crate) place: RequestLocation,
    pub(crate) request: Box<IncomingRequest>,
}

/// The place of a connection request.
pub(crate) enum RequestLocation {
    /// The request waits in a connection manager of this engine.
    Here(LocalRequest),
    /// Another engine of the same adapter has handed the request over, which arrived at this local
    /// address.
    HandedOver(SocketAddr, HandedOver),
    /// The peer has withdrawn the request.
    Nowhere,
}

/// The listeners of an engine.
#[derive(Default)]
pub(crate) struct Listeners {
    listeners: Slab<Listener>,
    /// The indices of the listeners, by port.
    ports: HashMap<u16, usize>,
    /// The number of the latest request.
    last_serial: u64,
}

/// A listener.
pub(crate) struct Listener {
    pub(crate) port: u16,
    pub(crate) backlog: usize,
    pub(crate) sink: Sink,
    /// The registration of the listener at each local address, with the index of the address.
    pub(crate) services: Vec<(usize, Service)>,
}

impl Listeners {
    /// Adds a listener and returns its index.
    pub(crate) fn insert(&mut self, listener: Listener) -> usize {
        let port = listener.port;
        let index = self.listeners.insert(listener);
        self.ports.insert(port, index);
        index
    }

    /// Removes a listener. Requests that have been delivered still wait for the consumer's answer.
    pub(crate) fn remove(&mut self, index: usize) -> Option<Listener> {
        let listener = self.listeners.remove(index)?;
        self.ports.remove(&listener.port);
        Some(listener)
    }

    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut Listener> {
        self.listeners.get_mut(index)
    }

    /// Whether there is a listener with this port.
    pub(crate) fn has_port(&self, port: u16) -> bool {
        self.ports.contains_key(&port)
    }

    /// The indices of all listeners.
    pub(crate) fn indices(&self) -> Vec<usize> {
        self.listeners.indices().collect()
    }

    /// The receiver of the events of the listener with this port.
    pub(crate) fn sink_of(&mut self, port: u16) -> Option<&Sink> {
        let listener = self.ports.get(&port).and_then(|&index| self.listeners.get_mut(index))?;
        Some(&listener.sink)
    }

    /// The number of a new request.
    pub(crate) fn next_serial(&mut self) -> u64 {
        self.last_serial += 1;
        self.last_serial
    }

    /// Delivers a request to the consumer.
    pub(crate) fn deliver_request(
        &mut self,
        cx: &mut EngineContext<'_>,
        local_address: usize,
        id: ConnId,
        mut request: Box<IncomingRequest>,
    ) {
        request.from = cx.local_address.with_scope(request.from);
        request.to = cx.local_address.with_scope(request.to);
        let serial = self.next_serial();
        let listener = self
            .ports
            .get(&request.to.port())
            .and_then(|&listener| self.listeners.get_mut(listener));
        let (from, to, private) = (request.from, request.to, request.private.clone());
        let place = RequestLocation::Here(LocalRequest { local_address, id, serial });
        let request = PendingRequest::Connection(ConnectionRequest { place, request });
        let (Some(listener), Ok(request)) = (listener, cx.resources.context.request(None, request))
        else {
            // The listener was closed after the request had arrived. If the rejection cannot be
            // sent, no other action is possible.
            cx.local_address.cm.reject(cx.now, id, Reason::INVALID_SERVICE_ID, &[]).ok();
            return;
        };
        cx.local_address.set_owner(id, Owner::Request(serial));
        let (service, private) = (ServiceType::Connection, &private[..]);
        listener.sink.call(EngineEvent::Request { request, service, from, to, private });
    }
}
