//! The passive side before a queue pair is involved: service points, and the requests that came there.

use std::collections::HashMap;

use adapter::Table;
use rnic::cm::{ConnId, Request};
use wire::cm::Reason;

use crate::engine::{Sink, Upcall};
use crate::link::Tools;
use crate::port::Service;
use crate::station::Owner;

/// Names a request that was passed on; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId {
    pub(crate) station: usize,
    pub(crate) id: ConnId,
    serial: u64,
}

/// Service points and requests.
#[derive(Default)]
pub(crate) struct Calls {
    doors: Table<Door>,
    /// Service points by port.
    ports: HashMap<u16, usize>,
    callers: HashMap<RequestId, Box<Request>>,
    last_serial: u64,
}

/// A service point.
pub(crate) struct Door {
    pub(crate) port: u16,
    pub(crate) backlog: usize,
    pub(crate) sink: Sink,
    /// Its name at each address in use, by station.
    pub(crate) services: Vec<(usize, Service)>,
}

impl Calls {
    /// Opens a service point.
    pub(crate) fn open(&mut self, door: Door) -> usize {
        let port = door.port;
        let index = self.doors.insert(door);
        self.ports.insert(port, index);
        index
    }

    /// Closes one. Requests that the consumer has wait on for its answer.
    pub(crate) fn close(&mut self, index: usize) -> Option<Door> {
        let door = self.doors.remove(index)?;
        self.ports.remove(&door.port);
        Some(door)
    }

    pub(crate) fn door(&mut self, index: usize) -> Option<&mut Door> {
        self.doors.get_mut(index)
    }

    /// Whether there is a service point with this port.
    pub(crate) fn has(&self, port: u16) -> bool {
        self.ports.contains_key(&port)
    }

    /// All ports, with the backlogs.
    pub(crate) fn all(&self) -> Vec<usize> {
        self.doors.indices().collect()
    }

    /// Hands a request to the consumer.
    pub(crate) fn pass_on(
        &mut self,
        tools: &mut Tools<'_>,
        station: usize,
        id: ConnId,
        request: Box<Request>,
    ) {
        let door = self.ports.get(&request.to.port()).and_then(|&door| self.doors.get_mut(door));
        self.last_serial += 1;
        let call = RequestId { station, id, serial: self.last_serial };
        let (Some(door), Some(handed)) = (door, tools.kit.context.request(call)) else {
            // Closed meanwhile. There is nothing to be told that could not be done.
            tools.station.cm.reject(tools.now, id, Reason::INVALID_SERVICE_ID, &[]).ok();
            return;
        };
        let (from, to, sink) = (request.from, request.to, door.sink);
        let private = request.private.clone();
        self.callers.insert(call, request);
        tools.station.owners.insert(id, Owner::Call(call));
        sink.call(Upcall::Request { request: handed, from, to, private: &private });
    }

    /// The consumer answers, or the caller is not interested any more: takes the request out. None: it is not known.
    pub(crate) fn take(&mut self, call: RequestId) -> Option<Box<Request>> {
        self.callers.remove(&call)
    }
}
