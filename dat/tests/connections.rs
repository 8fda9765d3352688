//! Tests of opening, connecting, rejecting, waiting and dropping.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dat::{
    Access, Adapter, ConnectionEvent, EndpointState, Error, ErrorKind, Event, Flags, Operation,
    Registry, Status, Streams,
};
use support::{Peer, TIME_LIMIT, connected, loopback};

mod support;

#[test]
fn an_unknown_name_says_which_there_are() {
    let error = Adapter::open("no-such-adapter").expect_err("an unknown adapter must not open");
    assert_eq!((error.kind(), error.call()), (ErrorKind::ProviderNotFound, "dat_ia_open"));
    let text = error.to_string();
    assert!(text.contains("\"no-such-adapter\"") && text.contains("`dat list`"), "{text}");
    assert!(error.open_error().is_some());
}

#[test]
fn a_registry_of_ones_own_is_asked() {
    static NONE: Registry = Registry::new(registry::Builtins::NONE);
    let error = Adapter::open_in(&NONE, "opendat-test")
        .expect_err("the registry must have no such adapter");
    assert_eq!(error.kind(), ErrorKind::ProviderNotFound);
}

#[test]
fn attributes_tell_what_there_is() {
    let adapter = Adapter::open("tcp-emu").expect("the adapter opens");
    let attributes = adapter.attributes();
    assert_eq!(attributes.provider, "tcp-emu");
    assert!(attributes.address.is_some());
    assert!(attributes.max_private_data >= 64, "uDAPL 1.2, dat_ep_connect: at least 64 bytes");
    assert!(
        attributes.max_message >= 16 << 20 && attributes.max_operations >= 512,
        "{attributes:?}"
    );
}

#[test]
fn private_data_goes_both_ways() {
    let (mut client, mut server) = (Peer::new(), Peer::new());
    let listener = server.adapter.listen_any(&server.events).expect("the listener opens");
    client
        .endpoint
        .connect(loopback(), listener.qualifier(), b"question", TIME_LIMIT)
        .expect("the attempt to connect begins");
    assert_eq!(client.endpoint.state().expect("a state"), EndpointState::ActiveConnectionPending);
    let request = server.request();
    assert_eq!(request.qualifier(), listener.qualifier());
    assert_eq!(request.private_data().expect("the request can be queried"), b"question");
    assert_eq!(request.peer().expect("the request can be queried"), Some(loopback()));
    request.accept(&mut server.endpoint, b"answer").expect("the request is accepted");
    assert_eq!(
        client.connection(),
        ConnectionEvent::Established { private_data: b"answer".to_vec() }
    );
    assert_eq!(server.connection(), ConnectionEvent::Established { private_data: Vec::new() });
    assert_eq!(client.endpoint.state().expect("a state"), EndpointState::Connected);
    let error = client
        .endpoint
        .connect(loopback(), 1, b"", TIME_LIMIT)
        .expect_err("a connected endpoint cannot connect again");
    assert_eq!(error.kind(), ErrorKind::InvalidState);
    assert!(error.to_string().contains("disconnect the endpoint first"), "{error}");
}

#[test]
fn a_request_is_rejected_or_dropped() {
    let (mut client, mut server) = (Peer::new(), Peer::new());
    let listener = server.adapter.listen_any(&server.events).expect("the listener opens");
    client
        .endpoint
        .connect(loopback(), listener.qualifier(), b"", TIME_LIMIT)
        .expect("the attempt to connect begins");
    server.request().reject(b"not today").expect("the request is rejected");
    assert_eq!(
        client.connection(),
        ConnectionEvent::PeerRejected { private_data: b"not today".to_vec() }
    );
    client.endpoint.reset().expect("the endpoint can be reset");
    client
        .endpoint
        .connect(loopback(), listener.qualifier(), b"", TIME_LIMIT)
        .expect("the attempt to connect begins");
    drop(server.request());
    assert_eq!(client.connection(), ConnectionEvent::PeerRejected { private_data: Vec::new() });
    // An accept that fails also rejects the request.
    client.endpoint.reset().expect("the endpoint can be reset");
    client
        .endpoint
        .connect(loopback(), listener.qualifier(), b"", TIME_LIMIT)
        .expect("the attempt to connect begins");
    let error = server
        .request()
        .accept(&mut server.endpoint, &[0; 1 << 16])
        .expect_err("private data of that size must be refused");
    assert_eq!(error.kind(), ErrorKind::InvalidParameter);
    assert_eq!(client.connection(), ConnectionEvent::PeerRejected { private_data: Vec::new() });
}

#[test]
fn an_event_has_no_private_data_after_a_reset() {
    let (mut client, mut server) = (Peer::new(), Peer::new());
    let listener = server.adapter.listen_any(&server.events).expect("the listener opens");
    let call = |client: &mut Peer| {
        client
            .endpoint
            .connect(loopback(), listener.qualifier(), b"", TIME_LIMIT)
            .expect("the attempt to connect begins");
    };
    call(&mut client);
    server.request().reject(b"not today").expect("the request is rejected");
    while client.endpoint.state().expect("a state") != EndpointState::Disconnected {
        std::thread::sleep(Duration::from_millis(1));
    }
    client.endpoint.reset().expect("the endpoint can be reset");
    // The provider has freed the private data of the reject.
    call(&mut client);
    server.request().accept(&mut server.endpoint, b"answer").expect("the request is accepted");
    assert_eq!(client.connection(), ConnectionEvent::PeerRejected { private_data: Vec::new() });
    let answer = b"answer".to_vec();
    assert_eq!(client.connection(), ConnectionEvent::Established { private_data: answer });
}

#[test]
fn where_nobody_listens_the_connection_is_refused() {
    let mut client = Peer::new();
    let qualifier =
        client.adapter.listen_any(&client.events).expect("the listener opens").qualifier();
    client
        .endpoint
        .connect(loopback(), qualifier, b"", TIME_LIMIT)
        .expect("the attempt to connect begins");
    assert_eq!(client.connection(), ConnectionEvent::NonPeerRejected);
    assert_eq!(client.endpoint.state().expect("a state"), EndpointState::Disconnected);
}

#[test]
fn a_qualifier_is_listened_on_once() {
    let side = Peer::new();
    let listener = side.adapter.listen_any(&side.events).expect("the listener opens");
    let error = side
        .adapter
        .listen(listener.qualifier(), &side.events)
        .err()
        .expect("a qualifier in use must not be opened again");
    assert_eq!(error.kind(), ErrorKind::ConnectionQualifierInUse);
    let qualifier = listener.qualifier();
    drop(listener);
    assert_eq!(
        side.adapter
            .listen(qualifier, &side.events)
            .expect("the service is free again")
            .qualifier(),
        qualifier
    );
}

#[test]
fn waiting_ends_when_its_time_is_over() {
    let mut side = Peer::new();
    let kind = |result: Result<Event, Error>| {
        result.expect_err("the wait must end without an event").kind()
    };
    assert_eq!(kind(side.events.wait(Some(Duration::ZERO))), ErrorKind::TimeoutExpired);
    assert_eq!(kind(side.events.wait(Some(Duration::from_micros(500)))), ErrorKind::TimeoutExpired);
    let error = side
        .events
        .wait_for(1000, TIME_LIMIT)
        .expect_err("the EVD cannot wait for more events than it holds");
    assert_eq!(error.kind(), ErrorKind::InvalidParameter);
    let mut notify = side.adapter.notification_object().expect("a notification object");
    let error = notify
        .wait(Some(Duration::from_micros(500)))
        .expect_err("the wait must end without an event");
    assert_eq!(error.kind(), ErrorKind::TimeoutExpired, "{error}");
}

#[test]
fn a_threshold_is_waited_for() {
    let (mut client, mut server) = connected();
    let data = client.memory.segment(0..8).expect("the segment is inside the region");
    for cookie in 0..3 {
        let target =
            server.memory.remote().segment(0..8).expect("the segment is inside the region");
        client
            .endpoint
            .post_write(&[data], target, cookie, Flags::default())
            .expect("the post succeeds");
    }
    let (first, left) = client.events.wait_for(3, TIME_LIMIT).expect("three events");
    assert!(matches!(first, Event::Completion(c) if c.cookie == 0 && c.status == Status::Success));
    assert_eq!(left, 2);
    server.endpoint.disconnect(dat::Close::Abrupt).expect("the disconnect begins");
}

#[test]
fn a_notification_object_tells_which_dispatcher() {
    let (mut client, mut server) = (Peer::new(), Peer::new());
    let mut notify = server.adapter.notification_object().expect("a notification object");
    let mut requests =
        server.adapter.dispatcher_for(4, Streams::REQUESTS, Some(&notify)).expect("a dispatcher");
    let quiet = server
        .adapter
        .dispatcher_for(4, Streams::COMPLETIONS, Some(&notify))
        .expect("a dispatcher");
    assert_ne!(requests.id(), quiet.id());
    let listener = server.adapter.listen_any(&requests).expect("the listener opens");
    client
        .endpoint
        .connect(loopback(), listener.qualifier(), b"", TIME_LIMIT)
        .expect("the attempt to connect begins");
    assert_eq!(notify.wait(TIME_LIMIT).expect("a trigger"), requests.id());
    let Some(Event::ConnectionRequest(request)) =
        requests.dequeue().expect("the EVD can be polled")
    else {
        panic!("expected the connection request");
    };
    request.accept(&mut server.endpoint, b"").expect("the request is accepted");
    assert!(matches!(client.connection(), ConnectionEvent::Established { .. }));
}

#[test]
fn objects_are_dropped_in_any_order() {
    let (client, server) = connected();
    let Peer { mut endpoint, events, memory, zone, mut adapter } = client;
    let mut asynchronous =
        adapter.take_asynchronous_events().expect("the asynchronous events can be taken once");
    assert!(adapter.take_asynchronous_events().is_none());
    drop(adapter);
    drop(zone);
    drop(events);
    // The endpoint keeps all the dropped objects alive.
    let data = memory.segment(0..4).expect("the segment is inside the region");
    endpoint.post_send(&[data], 1, Flags::default()).expect("the post succeeds");
    assert!(asynchronous.dequeue().expect("the EVD can be polled").is_none());
    drop(endpoint);
    drop(memory);
    drop(asynchronous);
    let Peer { endpoint, mut events, .. } = server;
    assert!(matches!(events.wait(TIME_LIMIT).expect("an event"), Event::Completion(_)));
    drop(events);
    drop(endpoint);
}

#[test]
fn an_adapter_outlives_its_handle() {
    let adapter = Adapter::open("tcp-emu").expect("the adapter opens");
    let zone = adapter.zone().expect("a zone");
    let region = zone.register(vec![0; 16], Access::LOCAL).expect("the memory can be registered");
    drop(adapter);
    drop(zone);
    assert_eq!(
        region
            .deregister()
            .expect("the region can be deregistered")
            .expect("the region owned a buffer")
            .len(),
        16
    );
}

#[test]
fn endpoints_work_in_threads_of_their_own() {
    let (mut client, mut server) = connected();
    std::thread::scope(|scope| {
        let echo = scope.spawn(|| {
            let buffer = server.memory.segment(0..8).expect("the segment is inside the region");
            for round in 0..500 {
                // Each round has the completion of a receive. All rounds but the first also have
                // the completion of the send of the round before.
                let operations: Vec<_> =
                    (0..1 + round.min(1)).map(|_| server.completion().operation).collect();
                assert!(operations.contains(&Operation::Receive));
                server.endpoint.post_receive(&[buffer], 0).expect("the post succeeds");
                server
                    .endpoint
                    .post_send(&[buffer], 0, Flags::default())
                    .expect("the post succeeds");
            }
        });
        let buffer = client.memory.segment(0..8).expect("the segment is inside the region");
        for cookie in 0..500 {
            client.endpoint.post_receive(&[buffer], cookie).expect("the post succeeds");
            client
                .endpoint
                .post_send(&[buffer], cookie, Flags::default())
                .expect("the post succeeds");
            for completion in [client.completion(), client.completion()] {
                assert_eq!((completion.cookie, completion.status), (cookie, Status::Success));
            }
        }
        echo.join().expect("the echo ends well");
    });
}

#[test]
fn endpoints_go_while_another_thread_takes_their_events() {
    let mut side = Peer::new();
    let endpoints: Vec<_> = (0..100)
        .map(|cookie| {
            let builder = side.adapter.endpoint().zone(&side.zone).events(&side.events);
            let mut endpoint = builder.create().expect("an endpoint");
            let buffer = side.memory.segment(0..8).expect("the segment is inside the region");
            endpoint.post_receive(&[buffer], cookie).expect("the post succeeds");
            endpoint
        })
        .collect();
    let gone = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            drop(endpoints);
            gone.store(true, Ordering::Release);
        });
        while !gone.load(Ordering::Acquire) {
            if let Some(event) = side.events.dequeue().expect("the EVD can be polled") {
                assert!(
                    matches!(event, Event::Completion(c) if c.status == Status::Flushed),
                    "{event:?}"
                );
            }
        }
    });
}

#[test]
fn an_event_outlives_its_endpoint() {
    let (client, mut server) = (Peer::new(), Peer::new());
    let mut notification = client.adapter.notification_object().expect("a notification object");
    let mut events = client
        .adapter
        .dispatcher_for(8, Streams::CONNECTIONS, Some(&notification))
        .expect("a dispatcher");
    let builder = || client.adapter.endpoint().zone(&client.zone).connections(&events);
    let mut endpoint = builder().create().expect("an endpoint");
    let listener = server.adapter.listen_any(&server.events).expect("the listener opens");
    endpoint
        .connect(loopback(), listener.qualifier(), b"", TIME_LIMIT)
        .expect("the attempt to connect begins");
    server.request().accept(&mut server.endpoint, b"answer").expect("the request is accepted");
    notification.wait(TIME_LIMIT).expect("an event");
    let first = endpoint.id();
    drop(endpoint);
    let second = builder().create().expect("an endpoint");
    assert_ne!(second.id(), first, "an event of the first one is still queued");
    match events.wait(TIME_LIMIT).expect("an event") {
        Event::Connection { endpoint, event: ConnectionEvent::Established { private_data } } => {
            assert_eq!(endpoint, first);
            assert_eq!(private_data, b"", "the provider has freed them");
        }
        other => panic!("expected that the connection is established, got {other:?}"),
    }
}

#[test]
fn everything_can_go_to_another_thread() {
    fn can<T: Send + Sync>() {}
    can::<Adapter>();
    can::<dat::ProtectionZone>();
    can::<dat::MemoryRegion<'static>>();
    can::<dat::EventDispatcher>();
    can::<dat::NotificationObject>();
    can::<dat::Endpoint>();
    can::<dat::SharedReceiveQueue>();
    can::<dat::Listener>();
    can::<dat::DatagramPeer>();
    can::<Event>();
    can::<Error>();
}
