//! Tests of datagram endpoints, over softroce and over the provider mem.

use std::time::Duration;

use dat::{
    Access, Adapter, Address, ConnectionEvent, DatagramPeer, Endpoint, EndpointId, ErrorKind,
    Event, EventDispatcher, Flags, Listener, MemoryRegion, Operation, ProtectionZone, Registry,
    Status,
};
use dat_core::export::{AnyProvider, register};
use registry::{Api, Builtin, Builtins, FNS};

/// A time limit that suffices on a busy machine.
const TIME_LIMIT: Option<Duration> = Some(Duration::from_secs(60));
/// The size of a receive, for messages of up to 64 octets.
const RECEIVE: usize = Endpoint::DATAGRAM_HEADER + 64;
/// The size of the memory of each end.
const MEMORY: usize = 16 << 10;
/// The position of outgoing messages in the memory.
const OUTGOING: usize = MEMORY / 2;

/// The registry of the provider mem, whose adapters reach one another inside the process.
static LOOPBACK: Registry = Registry::new(Builtins {
    adapters: &[&[Builtin {
        name: "mem",
        params: "",
        table: |info, params| register(AnyProvider::of::<provider_mem::Mem>(), FNS, info, params),
        discover: None,
    }]],
    api: Api::U2_0,
    threadsafe: &[false],
});

fn loopback() -> Address {
    "127.0.0.1".parse().expect("an address")
}

fn over_softroce() -> Adapter {
    Adapter::open("softroce").expect("softroce opens without any configuration")
}

fn over_loopback() -> Adapter {
    Adapter::open_in(&LOOPBACK, "mem").expect("the provider mem opens")
}

/// Runs each case over each transport.
macro_rules! cases {
    ($($case:ident)*) => {
        mod softroce {
            $(#[test] fn $case() { super::$case(super::over_softroce) })*
        }

        mod loopback {
            $(#[test] fn $case() { super::$case(super::over_loopback) })*
        }
    };
}

cases! {
    datagrams_go_both_ways
    the_length_is_that_of_the_datagram
    one_endpoint_sends_to_many_peers
    several_segments_are_one_datagram
    a_datagram_that_finds_no_receive_or_a_short_one_is_lost
    a_rejected_request_finds_no_peer
    nothing_listens_there
    only_the_endpoint_of_a_peer_sends_to_it
    a_peer_outlives_its_endpoint
    a_peer_is_forgotten_and_found_out_again
    an_event_outlives_its_endpoint
    the_peer_is_closed
    a_message_that_is_too_long_is_refused
    datagram_endpoints_and_others_refuse_each_other
    datagrams_need_a_datagram_endpoint
    a_peer_and_its_event_are_printed
}

/// A datagram endpoint with all that it needs.
struct End {
    endpoint: Endpoint,
    completions: EventDispatcher,
    connections: EventDispatcher,
    memory: MemoryRegion<'static>,
    zone: ProtectionZone,
    adapter: Adapter,
}

impl End {
    fn new(open: fn() -> Adapter) -> Self {
        let adapter = open();
        let zone = adapter.zone().expect("a zone");
        let completions = adapter.dispatcher(32).expect("a dispatcher");
        let connections = adapter.dispatcher(32).expect("a dispatcher");
        let memory = zone.register(vec![0; MEMORY], Access::LOCAL).expect("memory");
        let endpoint = adapter
            .endpoint()
            .datagrams()
            .zone(&zone)
            .events(&completions)
            .connections(&connections)
            .create()
            .expect("an endpoint");
        End { endpoint, completions, connections, memory, zone, adapter }
    }

    fn another_endpoint(&self) -> Endpoint {
        let builder = self.adapter.endpoint().datagrams().zone(&self.zone);
        builder
            .events(&self.completions)
            .connections(&self.connections)
            .create()
            .expect("an endpoint")
    }

    fn listen(&self) -> Listener {
        self.adapter.listen_any(&self.connections).expect("the listener opens")
    }

    fn call(&mut self, listener: &Listener, private_data: &[u8]) {
        self.endpoint
            .connect(loopback(), listener.qualifier(), private_data, TIME_LIMIT)
            .expect("the attempt begins");
    }

    /// Posts a receive of `size` bytes at the start of the memory.
    fn post_receive(&mut self, size: usize, cookie: u64) {
        let room = self.memory.segment(0..size).expect("the segment is inside the region");
        self.endpoint.post_receive(&[room], cookie).expect("the post succeeds");
    }

    fn post(&mut self, to: &DatagramPeer, cookie: u64, text: &[u8]) -> dat::Result<()> {
        self.memory.store(OUTGOING, text).expect("the data fit in the region");
        let data = OUTGOING..OUTGOING + text.len();
        let data = self.memory.segment(data).expect("the segment is inside the region");
        self.endpoint.post_datagram(&[data], to, cookie, Flags::default())
    }

    /// Sends a datagram, and waits until the adapter has sent it.
    fn send(&mut self, to: &DatagramPeer, text: &[u8]) {
        self.post(to, 10, text).expect("the post succeeds");
        let sent = self.completion();
        assert_eq!((sent.operation, sent.cookie), (Operation::SendDatagram, 10));
        assert_eq!((sent.status, sent.endpoint), (Status::Success, self.endpoint.id()));
    }

    /// Waits for a datagram. Returns the cookie of the receive and the message.
    fn received(&mut self) -> (u64, Vec<u8>) {
        let received = self.completion();
        assert_eq!(
            (received.operation, received.status),
            (Operation::ReceiveDatagram, Status::Success)
        );
        assert_eq!(received.immediate, None);
        let message = Endpoint::DATAGRAM_HEADER..received.length as usize;
        (received.cookie, self.memory.to_vec(message).expect("the range is inside the region"))
    }

    fn completion(&mut self) -> dat::Completion {
        let event = self.completions.wait(TIME_LIMIT).expect("an event");
        event.completion().expect("a completion")
    }

    fn event(&mut self) -> Event {
        self.connections.wait(TIME_LIMIT).expect("an event")
    }

    fn peer(&mut self) -> DatagramPeer {
        self.event().peer().expect("a peer")
    }
}

/// A client that has found out a server, and the peer of each of them.
fn introduced(open: fn() -> Adapter) -> (End, DatagramPeer, End, DatagramPeer) {
    let (mut client, mut server) = (End::new(open), End::new(open));
    let (to_server, to_client) = introduce(&mut client, &mut server);
    (client, to_server, server, to_client)
}

fn introduce(client: &mut End, server: &mut End) -> (DatagramPeer, DatagramPeer) {
    let listener = server.listen();
    client.call(&listener, b"hello");
    let request = server.event().request().expect("a request");
    assert_eq!(request.private_data().expect("private data"), b"hello");
    request.accept(&mut server.endpoint, b"welcome").expect("the request is accepted");
    let (to_client, to_server) = (server.peer(), client.peer());
    assert_eq!(to_client.endpoint(), server.endpoint.id());
    assert_eq!(to_server.endpoint(), client.endpoint.id());
    assert_eq!(to_client.private_data(), b"hello");
    assert_eq!(to_server.private_data(), b"welcome");
    (to_server, to_client)
}

fn datagrams_go_both_ways(open: fn() -> Adapter) {
    let (mut client, to_server, mut server, to_client) = introduced(open);
    server.post_receive(RECEIVE, 1);
    client.post_receive(RECEIVE, 2);
    client.send(&to_server, b"question");
    assert_eq!(server.received(), (1, b"question".to_vec()));
    server.send(&to_client, b"answer");
    assert_eq!(client.received(), (2, b"answer".to_vec()));
}

fn the_length_is_that_of_the_datagram(open: fn() -> Adapter) {
    let (mut client, to_server, mut server, _) = introduced(open);
    for size in [0, 1, 3, 64] {
        server.post_receive(RECEIVE, size as u64);
        client.send(&to_server, &vec![size as u8; size]);
        let received = server.completion();
        assert_eq!(received.cookie, size as u64);
        assert_eq!(received.length as usize, Endpoint::DATAGRAM_HEADER + size);
        let message = Endpoint::DATAGRAM_HEADER..Endpoint::DATAGRAM_HEADER + size;
        let message = server.memory.to_vec(message).expect("the range is inside the region");
        assert_eq!(message, vec![size as u8; size]);
    }
}

fn several_segments_are_one_datagram(open: fn() -> Adapter) {
    let (mut client, to_server, mut server, _) = introduced(open);
    server.post_receive(RECEIVE, 1);
    client.memory.store(OUTGOING, b"one and another").expect("the data fit in the region");
    let segment = |range| client.memory.segment(range).expect("a segment in the region");
    let parts = [segment(OUTGOING..OUTGOING + 3), segment(OUTGOING + 8..OUTGOING + 15)];
    let flags = Flags::SUPPRESS;
    client.endpoint.post_datagram(&parts, &to_server, 1, flags).expect("the post succeeds");
    assert_eq!(server.received(), (1, b"oneanother".to_vec()));
    assert!(client.completions.dequeue().expect("no error").is_none(), "success is not reported");
    let too_many = [parts[0]; 33];
    let refused = client.endpoint.post_datagram(&too_many, &to_server, 2, Flags::default());
    let refused = refused.expect_err("too many segments");
    assert_eq!(refused.detail(), Some("33 segments, and the limit is 4"));
}

fn one_endpoint_sends_to_many_peers(open: fn() -> Adapter) {
    let mut client = End::new(open);
    let mut servers: Vec<End> = (0..8).map(|_| End::new(open)).collect();
    let introduce = |server| introduce(&mut client, server).0;
    let peers: Vec<DatagramPeer> = servers.iter_mut().map(introduce).collect();
    for (number, (server, peer)) in servers.iter_mut().zip(&peers).enumerate() {
        server.post_receive(RECEIVE, number as u64);
        client.send(peer, &[number as u8]);
    }
    for (number, server) in servers.iter_mut().enumerate() {
        assert_eq!(server.received(), (number as u64, vec![number as u8]));
        assert!(server.completions.dequeue().expect("no error").is_none());
    }
}

fn a_datagram_that_finds_no_receive_or_a_short_one_is_lost(open: fn() -> Adapter) {
    let (mut client, to_server, mut server, _) = introduced(open);
    client.send(&to_server, b"no receive");
    // The server takes what has arrived, and finds nothing.
    assert!(server.completions.dequeue().expect("no error").is_none());
    server.post_receive(Endpoint::DATAGRAM_HEADER + 4, 1);
    client.send(&to_server, b"12345");
    client.send(&to_server, b"1234");
    assert_eq!(server.received(), (1, b"1234".to_vec()), "the receive waits for one that fits");
}

fn a_rejected_request_finds_no_peer(open: fn() -> Adapter) {
    let (mut client, mut server) = (End::new(open), End::new(open));
    let listener = server.listen();
    client.call(&listener, b"");
    server.event().request().expect("a request").reject(b"no").expect("the request is rejected");
    let rejected = client.event();
    let error = match rejected {
        Event::Connection { endpoint, ref event } => {
            assert_eq!(endpoint, client.endpoint.id());
            assert_eq!(*event, ConnectionEvent::PeerRejected { private_data: b"no".to_vec() });
            rejected.peer().expect_err("a rejection is no peer")
        }
        other => panic!("expected a rejection, got {other:?}"),
    };
    let text = client.endpoint.explain(error).to_string();
    assert!(
        text.starts_with("expected a peer for datagrams, but got: rejected by the peer"),
        "{text}"
    );
    introduce(&mut client, &mut server);
}

fn nothing_listens_there(open: fn() -> Adapter) {
    let mut client = End::new(open);
    client.endpoint.connect(loopback(), 1, b"", TIME_LIMIT).expect("the attempt begins");
    match client.event() {
        Event::Connection { endpoint, event: ConnectionEvent::Unreachable } => {
            assert_eq!(endpoint, client.endpoint.id());
        }
        other => panic!("expected a failure, got {other:?}"),
    }
    let cause = client.endpoint.last_cause().expect("a cause");
    assert!(cause.contains("127.0.0.1"), "{cause}");
}

#[track_caller]
fn assert_belongs_to_another(result: dat::Result<()>) {
    let error = result.expect_err("a peer of another endpoint");
    assert_eq!(error.kind(), ErrorKind::InvalidParameter);
    assert!(error.to_string().contains("use a peer from an event of this endpoint"), "{error}");
}

fn only_the_endpoint_of_a_peer_sends_to_it(open: fn() -> Adapter) {
    let (mut client, to_server, mut server, to_client) = introduced(open);
    assert_belongs_to_another(server.post(&to_server, 1, b"x"));
    assert_belongs_to_another(client.post(&to_client, 1, b"x"));
    let mut another = client.another_endpoint();
    assert_belongs_to_another(another.forget(to_server));
    server.endpoint.forget(to_client).expect("the peer is forgotten");
}

fn a_peer_outlives_its_endpoint(open: fn() -> Adapter) {
    let (mut client, to_server, _server, _) = introduced(open);
    let first = client.endpoint.id();
    // One of these endpoints may have the handle of the first one.
    client.endpoint = client.another_endpoint();
    assert_eq!(to_server.endpoint(), first);
    for _ in 0..100 {
        assert_belongs_to_another(client.post(&to_server, 1, b"x"));
        client.endpoint = client.another_endpoint();
    }
    assert_belongs_to_another(client.endpoint.forget(to_server));
}

fn a_peer_is_forgotten_and_found_out_again(open: fn() -> Adapter) {
    let (mut client, to_server, mut server, to_client) = introduced(open);
    client.endpoint.forget(to_server).expect("the peer is forgotten");
    server.endpoint.forget(to_client).expect("the peer is forgotten");
    let (to_server, _) = introduce(&mut client, &mut server);
    server.post_receive(RECEIVE, 1);
    client.send(&to_server, b"again");
    assert_eq!(server.received(), (1, b"again".to_vec()));
}

fn an_event_outlives_its_endpoint(open: fn() -> Adapter) {
    let (mut client, mut server) = (End::new(open), End::new(open));
    let listener = server.listen();
    client.call(&listener, b"hello");
    let request = server.event().request().expect("a request");
    request.accept(&mut server.endpoint, b"welcome").expect("the request is accepted");
    let first: EndpointId = server.endpoint.id();
    server.endpoint = server.another_endpoint();
    let to_client = server.peer();
    assert_eq!(to_client.endpoint(), first);
    assert_eq!(to_client.private_data(), b"", "the provider has freed them");
    assert_belongs_to_another(server.post(&to_client, 1, b"x"));
    assert_belongs_to_another(server.endpoint.forget(to_client));
}

fn the_peer_is_closed(open: fn() -> Adapter) {
    let (mut client, to_server, server, _) = introduced(open);
    drop(server);
    client.send(&to_server, b"lost");
    assert!(client.completions.dequeue().expect("no error").is_none());
    client.endpoint.forget(to_server).expect("the peer is forgotten");
}

fn a_message_that_is_too_long_is_refused(open: fn() -> Adapter) {
    let (mut client, to_server, mut server, _) = introduced(open);
    let longest = client.adapter.attributes().max_datagram.expect("the adapter has datagrams");
    let message = vec![7; longest as usize];
    let refused = client.post(&to_server, 1, &[&message[..], &[8]].concat());
    let refused = refused.expect_err("the message is too long");
    assert_eq!(refused.kind(), ErrorKind::Length);
    let numbers = format!("{} bytes, and the limit is {longest}", longest + 1);
    assert_eq!(refused.detail(), Some(&numbers[..]));
    server.post_receive(Endpoint::DATAGRAM_HEADER + message.len(), 1);
    client.send(&to_server, &message);
    assert_eq!(server.received(), (1, message));
}

fn datagram_endpoints_and_others_refuse_each_other(open: fn() -> Adapter) {
    let (mut client, mut server) = (End::new(open), End::new(open));
    let listener = server.listen();
    client.call(&listener, b"");
    let mut connected = server
        .adapter
        .endpoint()
        .zone(&server.zone)
        .events(&server.connections)
        .create()
        .expect("an endpoint");
    let request = server.event().request().expect("a request");
    let refused = request.accept(&mut connected, b"").expect_err("an endpoint for connections");
    assert_eq!(refused.kind(), ErrorKind::InvalidHandle);
    match client.event() {
        Event::Connection { event: ConnectionEvent::PeerRejected { .. }, .. } => {}
        other => panic!("expected a rejection, got {other:?}"),
    }
}

fn datagrams_need_a_datagram_endpoint(open: fn() -> Adapter) {
    let mut client = End::new(open);
    let data = client.memory.segment(0..1).expect("a segment in the region");
    let refused = client.endpoint.post_send(&[data], 1, Flags::default());
    assert_eq!(refused.map_err(|error| error.kind()), Err(ErrorKind::InvalidState));
}

fn a_peer_and_its_event_are_printed(open: fn() -> Adapter) {
    let (_client, to_server, _server, _) = introduced(open);
    let text = format!("{to_server:?}");
    assert!(text.starts_with("DatagramPeer { endpoint: EndpointId("), "{text}");
    assert!(text.contains("queue_pair: "), "{text}");
    assert_eq!(Event::Peer(to_server).to_string(), "peer for datagrams");
}

#[test]
fn an_adapter_without_datagrams_refuses_the_endpoint() {
    let adapter = Adapter::open("tcp-emu").expect("tcp-emu opens without any configuration");
    assert_eq!(adapter.attributes().max_datagram, None);
    let created = adapter.endpoint().datagrams().create();
    assert_eq!(created.err().map(|error| error.kind()), Some(ErrorKind::ModelNotSupported));
}
