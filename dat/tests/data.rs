//! Tests of data transfer and its errors.

use dat::{Access, ConnectionEvent, EndpointState, ErrorKind, Event, Flags, Operation, Status};
use support::{Peer, TIME_LIMIT, connected};

mod support;

#[test]
fn a_message_arrives_with_its_cookies_and_length() {
    let (mut client, mut server) = connected();
    client.memory.store(7, b"hello").expect("the data fit in the region");
    let segments = [
        client.memory.segment(7..9).expect("the segment is inside the region"),
        client.memory.segment(9..12).expect("the segment is inside the region"),
    ];
    client.endpoint.post_send(&segments, u64::MAX, Flags::default()).expect("the post succeeds");
    let sent = client.completion();
    assert_eq!((sent.operation, sent.status, sent.length), (Operation::Send, Status::Success, 5));
    assert_eq!((sent.cookie, sent.endpoint), (u64::MAX, client.endpoint.id()));
    let received = server.completion();
    assert_eq!(
        (received.operation, received.status, received.length),
        (Operation::Receive, Status::Success, 5)
    );
    assert_eq!((received.cookie, received.endpoint), (100, server.endpoint.id()));
    assert_eq!(server.memory.to_vec(0..6).expect("the range is inside the region"), b"hello\0");
}

#[test]
fn a_suppressed_success_is_not_reported() {
    let (mut client, mut server) = connected();
    let data = client.memory.segment(0..8).expect("the segment is inside the region");
    let target =
        server.memory.remote().segment(2000..2008).expect("the segment is inside the region");
    client.endpoint.post_write(&[data], target, 1, Flags::SUPPRESS).expect("the post succeeds");
    client.endpoint.post_send(&[data], 2, Flags::default()).expect("the post succeeds");
    assert_eq!(client.completion().cookie, 2);
    assert_eq!(server.completion().length, 8);
    assert!(client.events.dequeue().expect("the EVD can be polled").is_none());
}

#[test]
fn memory_is_written_and_read_at_the_peer() {
    let (mut client, server) = connected();
    client.memory.store(0, b"to be written").expect("the data fit in the region");
    let data = client.memory.segment(0..13).expect("the segment is inside the region");
    let target =
        server.memory.remote().segment(3000..3013).expect("the segment is inside the region");
    client.endpoint.post_write(&[data], target, 1, Flags::default()).expect("the post succeeds");
    let sink = client.memory.segment(100..113).expect("the segment is inside the region");
    // The read returns data after the write has arrived.
    client.endpoint.post_read(&[sink], target, 2, Flags::BARRIER_FENCE).expect("the post succeeds");
    let (written, read) = (client.completion(), client.completion());
    assert_eq!(
        (written.operation, written.status, written.cookie),
        (Operation::Write, Status::Success, 1)
    );
    assert_eq!((read.operation, read.status, read.length), (Operation::Read, Status::Success, 13));
    assert_eq!(
        client.memory.to_vec(100..113).expect("the range is inside the region"),
        b"to be written"
    );
    assert_eq!(
        server.memory.to_vec(2999..3014).expect("the range is inside the region"),
        b"\0to be written\0"
    );
}

#[test]
fn memory_that_does_not_grant_it_is_not_written() {
    let (mut client, mut server) = connected();
    let private = server
        .zone
        .register(vec![7; 64], Access::LOCAL | Access::REMOTE_READ)
        .expect("the memory can be registered");
    let target = private.remote().segment(0..8).expect("the segment is inside the region");
    let data = client.memory.segment(0..8).expect("the segment is inside the region");
    client.endpoint.post_write(&[data], target, 1, Flags::SUPPRESS).expect("the post succeeds");
    // The peer ends the connection.
    loop {
        match client.events.wait(TIME_LIMIT).expect("an event") {
            Event::Connection { event: ConnectionEvent::Broken, .. } => break,
            Event::Completion(completion) => assert_ne!(completion.status, Status::Success),
            other => panic!("expected the end of the connection, got {other:?}"),
        }
    }
    assert_eq!(server.completion().status, Status::Flushed);
    let end = server.events.wait(TIME_LIMIT).expect("an event");
    let error = server.endpoint.explain(end.established().expect_err("the connection is broken"));
    let cause = server.endpoint.last_cause().expect("the owner knows the cause");
    assert!(
        cause.starts_with("peer 127.0.0.1 may not write 8 octets at ")
            && cause.ends_with("bind the RMR, with DAT_MEM_PRIV_REMOTE_WRITE_FLAG"),
        "{cause}"
    );
    assert_eq!(error.cause(), Some(&*cause));
    assert!(error.to_string().ends_with(&format!(" ({cause})")), "{error}");
    let cause = client.endpoint.last_cause().expect("the requester knows a cause");
    assert!(cause.starts_with("peer 127.0.0.1 does not let this side write 8 octets"), "{cause}");
    assert_eq!(private.to_vec(0..64).expect("the range is inside the region"), [7; 64]);
}

/// A part of the program that has only a clone registers memory for the endpoints of the zone.
#[test]
fn a_clone_of_a_zone_is_the_same_zone() {
    let (mut client, mut server) = connected();
    let clone = client.zone.clone();
    let other_zone = client.adapter.zone().expect("a zone");
    let original = std::mem::replace(&mut client.zone, other_zone);
    drop(original);
    let registered = std::thread::spawn(move || clone.register(b"hello".to_vec(), Access::LOCAL));
    let region = registered.join().expect("no panic").expect("the memory can be registered");
    let data = region.segment(0..5).expect("the segment is inside the region");
    client.endpoint.post_send(&[data], 1, Flags::default()).expect("the post succeeds");
    assert_eq!(client.completion().status, Status::Success);
    assert_eq!(server.completion().length, 5);
    assert_eq!(server.memory.to_vec(0..5).expect("the range is inside the region"), b"hello");
}

#[test]
fn a_stale_segment_reaches_nothing() {
    let (mut client, _server) = connected();
    let region =
        client.zone.register(vec![1; 64], Access::LOCAL).expect("the memory can be registered");
    let stale = region.segment(0..64).expect("the segment is inside the region");
    drop(region);
    let error = client
        .endpoint
        .post_send(&[stale], 1, Flags::default())
        .expect_err("a region that is not registered any more must be refused");
    assert_eq!(error.kind(), ErrorKind::PrivilegesViolation, "{error}");
    assert_eq!(error.call(), "dat_ep_post_send");
}

#[test]
fn memory_of_another_zone_or_without_access_is_refused() {
    let (mut client, _server) = connected();
    let zone = client.adapter.zone().expect("a zone");
    let foreign = zone.register(vec![0; 8], Access::LOCAL).expect("the memory can be registered");
    let segment = foreign.segment(0..8).expect("the segment is inside the region");
    let error =
        client.endpoint.post_send(&[segment], 1, Flags::default()).expect_err("another zone");
    assert_eq!(error.kind(), ErrorKind::ProtectionViolation, "{error}");
    let read_only =
        client.zone.register(vec![0; 8], Access::LOCAL_READ).expect("the memory can be registered");
    let segment = read_only.segment(0..8).expect("the segment is inside the region");
    let error = client
        .endpoint
        .post_receive(&[segment], 1)
        .expect_err("a segment that is not writable must be refused");
    assert_eq!(error.kind(), ErrorKind::PrivilegesViolation, "{error}");
}

#[test]
fn a_disconnect_flushes_what_is_posted() {
    let (mut client, mut server) = connected();
    client.endpoint.disconnect(dat::Close::Graceful).expect("the disconnect begins");
    assert_eq!(client.connection(), ConnectionEvent::Disconnected);
    let flushed = server.completion();
    assert_eq!((flushed.status, flushed.cookie, flushed.length), (Status::Flushed, 100, 0));
    assert_eq!(server.connection(), ConnectionEvent::Disconnected);
    assert_eq!(server.endpoint.state().expect("a state"), EndpointState::Disconnected);
    let data = client.memory.segment(0..1).expect("the segment is inside the region");
    client
        .endpoint
        .post_send(&[data], 5, Flags::default())
        .expect("the post is accepted and flushed at once");
    assert_eq!(client.completion().status, Status::Flushed);
    client.endpoint.reset().expect("the endpoint can be reset");
    assert_eq!(client.endpoint.state().expect("a state"), EndpointState::Unconnected);
}

#[test]
fn a_full_queue_says_what_to_do() {
    let mut side = Peer::new();
    let buffer = side.memory.segment(0..8).expect("the segment is inside the region");
    for _ in 0..64 {
        side.endpoint
            .post_receive(&[buffer], 0)
            .expect("the default attributes have room for 64 receives");
    }
    let error =
        (0..4096).find_map(|_| side.endpoint.post_receive(&[buffer], 0).err()).expect("an end");
    assert_eq!(error.kind(), ErrorKind::InsufficientResources);
    assert!(error.to_string().contains("wait for completions"), "{error}");
}

#[test]
fn a_shared_receive_queue_serves_its_endpoints() {
    let (mut client, mut server) = (Peer::new(), Peer::new());
    assert!(server.adapter.attributes().shared_receive_queues);
    let mut queue = server.zone.shared_receive_queue(4, 1).expect("a queue");
    let buffer = server.memory.segment(0..64).expect("the segment is inside the region");
    queue.post_receive(&[buffer], 77).expect("the post succeeds");
    server.endpoint = server
        .adapter
        .endpoint()
        .zone(&server.zone)
        .events(&server.events)
        .shared_receive_queue(&queue)
        .create()
        .expect("an endpoint");
    let error = server
        .endpoint
        .post_receive(&[buffer], 1)
        .expect_err("the endpoint has no receive queue of its own");
    assert_eq!(error.call(), "dat_ep_post_recv");
    let listener = server.adapter.listen_any(&server.events).expect("the listener opens");
    client
        .endpoint
        .connect(support::loopback(), listener.qualifier(), b"", TIME_LIMIT)
        .expect("the attempt to connect begins");
    server.request().accept(&mut server.endpoint, b"").expect("the request is accepted");
    assert!(matches!(server.connection(), ConnectionEvent::Established { .. }));
    assert!(matches!(client.connection(), ConnectionEvent::Established { .. }));
    let data = client.memory.segment(0..3).expect("the segment is inside the region");
    client.endpoint.post_send(&[data], 1, Flags::default()).expect("the post succeeds");
    let received = server.completion();
    assert_eq!(
        (received.cookie, received.length, received.endpoint),
        (77, 3, server.endpoint.id())
    );
}

#[test]
fn regions_check_ranges_and_give_their_buffers_back() {
    let side = Peer::new();
    let buffer = vec![9; 100];
    let start = buffer.as_ptr();
    let mut region =
        side.zone.register(buffer, Access::LOCAL).expect("the memory can be registered");
    assert_eq!((region.len(), region.remote().length), (100, 100));
    for error in [
        region.store(99, b"ab").expect_err("a range outside the region must be refused"),
        region.load(usize::MAX, &mut [0]).expect_err("a range outside the region must be refused"),
        region.segment(50..101).expect_err("a range outside the region must be refused"),
        region.to_vec(101..101).expect_err("a range outside the region must be refused"),
    ] {
        assert_eq!(error.kind(), ErrorKind::Length);
    }
    region.store(99, b"!").expect("the range is inside the region");
    let buffer = region
        .deregister()
        .expect("the region can be deregistered")
        .expect("the region owned a buffer");
    assert_eq!((buffer.as_ptr(), buffer[98], buffer[99]), (start, 9, b'!'));
    assert!(
        side.zone.register(Vec::new(), Access::LOCAL).is_err(),
        "an empty buffer must be refused"
    );
}

#[test]
fn borrowed_memory_is_free_again_after_its_region() {
    let side = Peer::new();
    let mut array = [1; 64];
    // SAFETY: the region is dropped below.
    let mut region = unsafe { side.zone.register_borrowed(&mut array, Access::LOCAL) }
        .expect("the memory can be registered");
    region.store(0, b"ab").expect("the data fit in the region");
    assert_eq!(region.to_vec(0..3).expect("the range is inside the region"), [b'a', b'b', 1]);
    drop(region);
    assert_eq!(array[..3], [b'a', b'b', 1]);
}
