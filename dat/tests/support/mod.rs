//! Two connected endpoints in one process, each on its own adapter.

use std::time::Duration;

use dat::{
    Access, Adapter, Address, Completion, ConnectionEvent, Endpoint, Event, EventDispatcher,
    MemoryRegion, ProtectionZone,
};

/// A time limit that suffices on a busy machine.
pub(crate) const TIME_LIMIT: Option<Duration> = Some(Duration::from_secs(60));

pub(crate) struct Peer {
    pub(crate) endpoint: Endpoint,
    pub(crate) events: EventDispatcher,
    pub(crate) memory: MemoryRegion<'static>,
    pub(crate) zone: ProtectionZone,
    pub(crate) adapter: Adapter,
}

impl Peer {
    pub(crate) fn new() -> Self {
        let adapter = Adapter::open("tcp-emu").expect("tcp-emu opens without any configuration");
        let zone = adapter.zone().expect("a zone");
        let events = adapter.dispatcher(32).expect("a dispatcher");
        let memory = zone.register(vec![0; 4096], Access::ALL).expect("memory");
        let endpoint =
            adapter.endpoint().zone(&zone).events(&events).create().expect("an endpoint");
        Peer { endpoint, events, memory, zone, adapter }
    }

    pub(crate) fn completion(&mut self) -> Completion {
        match self.events.wait(TIME_LIMIT).expect("an event") {
            Event::Completion(completion) => completion,
            other => panic!("expected a completion, got {other:?}"),
        }
    }

    pub(crate) fn connection(&mut self) -> ConnectionEvent {
        match self.events.wait(TIME_LIMIT).expect("an event") {
            Event::Connection { endpoint, event } => {
                assert_eq!(endpoint, self.endpoint.id());
                event
            }
            other => panic!("expected a connection event, got {other:?}"),
        }
    }

    pub(crate) fn request(&mut self) -> dat::ConnectionRequest {
        match self.events.wait(TIME_LIMIT).expect("an event") {
            Event::ConnectionRequest(request) => request,
            other => panic!("expected a connection request, got {other:?}"),
        }
    }
}

pub(crate) fn loopback() -> Address {
    "127.0.0.1".parse().expect("an address")
}

/// A connected client and server, with one receive posted at the server.
pub(crate) fn connected() -> (Peer, Peer) {
    let (mut client, mut server) = (Peer::new(), Peer::new());
    let listener = server.adapter.listen_any(&server.events).expect("the listener opens");
    let buffer = server.memory.segment(0..1024).expect("the segment is inside the region");
    server.endpoint.post_receive(&[buffer], 100).expect("a receive before the connection");
    client
        .endpoint
        .connect(loopback(), listener.qualifier(), b"", TIME_LIMIT)
        .expect("the attempt to connect begins");
    server.request().accept(&mut server.endpoint, b"").expect("the request is accepted");
    assert_eq!(server.connection(), ConnectionEvent::Established { private_data: Vec::new() });
    assert_eq!(client.connection(), ConnectionEvent::Established { private_data: Vec::new() });
    (client, server)
}
