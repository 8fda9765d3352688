//! Tests of futures and streams, with tokio and with a runtime of threads, over tcp-emu and
//! softroce.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use dat::asynchronous::{
    AsyncAdapter, AsyncEndpoint, EventStream, OperationError, Runtime, Tokio, TransferError,
};
use dat::{
    Access, Adapter, Address, Close, ConnectionEvent, ErrorKind, Event, MemoryRegion,
    ProtectionZone, RemoteRegion, Status, Streams,
};
use futures_core::Stream;
use threads::Threads;

mod threads;

const ADAPTERS: [&str; 2] = ["tcp-emu", "softroce"];

fn loopback() -> Address {
    "127.0.0.1".parse().expect("an address")
}

/// Runs a test with each runtime over each adapter.
fn over_each(test: impl AsyncFn(&dyn Runtime, &str)) {
    for adapter in ADAPTERS {
        let tokio = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_io()
            .build()
            .expect("tokio starts");
        tokio.block_on(test(&Tokio, adapter));
        let threads = Threads::default();
        threads::block_on(test(&threads, adapter));
        // The task of each adapter ends with the adapter.
        threads.join();
    }
}

struct Peer {
    adapter: AsyncAdapter,
    zone: ProtectionZone,
}

impl Peer {
    fn new(runtime: &dyn Runtime, name: &str) -> Self {
        let adapter = Adapter::open(name).expect("the adapter opens");
        let adapter = AsyncAdapter::new(adapter, 64, runtime).expect("the task is spawned");
        let zone = adapter.adapter().zone().expect("a zone");
        Peer { adapter, zone }
    }

    fn endpoint(&self) -> AsyncEndpoint {
        self.adapter.create(self.adapter.endpoint().zone(&self.zone)).expect("an endpoint")
    }

    fn buffer(&self, bytes: &[u8]) -> MemoryRegion<'static> {
        self.zone.register(bytes.to_vec(), Access::ALL).expect("memory")
    }
}

/// Connects two endpoints. Their adapters must not run on the same task, so both sides make
/// progress while one of them waits.
async fn connect(client: &Peer, server: &Peer) -> (AsyncEndpoint, AsyncEndpoint) {
    let accepting = server.endpoint();
    connect_to(client, server, accepting, b"").await
}

async fn connect_to(
    client: &Peer,
    server: &Peer,
    mut accepting: AsyncEndpoint,
    answer: &[u8],
) -> (AsyncEndpoint, AsyncEndpoint) {
    let mut listener = server.adapter.listen_any().expect("the listener opens");
    let mut calling = client.endpoint();
    let qualifier = listener.qualifier();
    let (got, accepted) = both(calling.connect(loopback(), qualifier, b"question", None), async {
        let request = listener.request().await.expect("a request");
        assert_eq!(request.private_data().expect("data")[..8], *b"question");
        accepting.accept(request, answer).await
    })
    .await;
    accepted.expect("the request is accepted");
    assert_eq!(got.expect("connected")[..answer.len()], *answer);
    (calling, accepting)
}

/// Waits for two futures at the same time.
async fn both<A, B>(a: impl Future<Output = A>, b: impl Future<Output = B>) -> (A, B) {
    let (mut a, mut b) = (Box::pin(a), Box::pin(b));
    let (mut of_a, mut of_b) = (None, None);
    poll_fn(|context| {
        if of_a.is_none()
            && let std::task::Poll::Ready(result) = a.as_mut().poll(context)
        {
            of_a = Some(result);
        }
        if of_b.is_none()
            && let std::task::Poll::Ready(result) = b.as_mut().poll(context)
        {
            of_b = Some(result);
        }
        match (of_a.take(), of_b.take()) {
            (Some(a), Some(b)) => std::task::Poll::Ready((a, b)),
            (a, b) => {
                (of_a, of_b) = (a, b);
                std::task::Poll::Pending
            }
        }
    })
    .await
}

#[test]
fn messages_and_memory_are_transferred() {
    over_each(async |runtime, name| {
        let (client, server) = (Peer::new(runtime, name), Peer::new(runtime, name));
        let offered = server.buffer(b"offered memory");
        let mut accepting = server.endpoint();
        let received = accepting.receive(server.buffer(&[0; 16]), 0..16);
        let answer = offered.remote().to_bytes();
        let (mut calling, accepting) = connect_to(&client, &server, accepting, &answer).await;
        let remote = RemoteRegion::from_bytes(&answer).expect("a region");
        let target = remote.segment(8..14).expect("the range is inside the region");

        let (buffer, read) =
            calling.read(client.buffer(&[0; 6]), 0..6, target).await.expect("the read succeeds");
        assert_eq!((&buffer.to_vec(0..6).expect("bytes")[..], read.length), (&b"memory"[..], 6));
        let written = calling.write(client.buffer(b"octets"), 0..6, target);
        let sent = calling.send(Arc::new(client.buffer(b"hello")), 0..5);
        let (_, completion) = written.await.expect("the write succeeds");
        assert_eq!(completion.status, Status::Success);
        sent.await.expect("the send succeeds");
        let (buffer, completion) = received.await.expect("the message arrives");
        assert_eq!(completion.endpoint, accepting.id());
        assert_eq!(buffer.to_vec(0..completion.length as usize).expect("bytes"), b"hello");
        assert_eq!(offered.to_vec(0..14).expect("bytes"), b"offered octets");

        let closed = accepting.closed();
        calling.disconnect(Close::Graceful).expect("the disconnect begins");
        let (ours, theirs) = both(calling.closed(), closed).await;
        assert_eq!(ours.expect("the end"), ConnectionEvent::Disconnected);
        assert_eq!(theirs.expect("the end"), ConnectionEvent::Disconnected);
    });
}

#[test]
fn a_dropped_future_keeps_its_buffer_until_the_operation_has_completed() {
    over_each(async |runtime, name| {
        let (client, server) = (Peer::new(runtime, name), Peer::new(runtime, name));
        let mut accepting = server.endpoint();
        let buffer = Arc::new(server.buffer(&[0; 8]));
        drop(accepting.receive(buffer.clone(), 0..8));
        let next = accepting.receive(server.buffer(&[0; 8]), 0..8);
        assert_eq!(Arc::strong_count(&buffer), 2, "the receive is still posted");
        let (mut calling, accepting) = connect_to(&client, &server, accepting, b"").await;
        for message in [b"first", b"again"] {
            calling.send(client.buffer(message), 0..5).await.expect("the send succeeds");
        }
        let (second, _) = next.await.expect("the second message arrives");
        assert_eq!(second.to_vec(0..5).expect("bytes"), b"again");
        assert_eq!(buffer.to_vec(0..5).expect("bytes"), b"first");
        assert_eq!(Arc::strong_count(&buffer), 1, "the first receive has completed");
        drop(accepting);
    });
}

#[test]
fn failures_return_the_buffer_and_the_reason() {
    over_each(async |runtime, name| {
        let (client, server) = (Peer::new(runtime, name), Peer::new(runtime, name));
        let (mut calling, mut accepting) = connect(&client, &server).await;
        let refused = calling.send(client.buffer(b"hello"), 0..6).await;
        let TransferError { buffer, error } = refused.expect_err("the range is too long");
        assert_eq!(buffer.to_vec(0..5).expect("bytes"), b"hello");
        assert!(
            matches!(&error, OperationError::Refused(e) if e.kind() == ErrorKind::Length),
            "{error}"
        );

        // The peer's memory does not exist, which ends the connection.
        let pending = accepting.receive(server.buffer(&[0; 8]), 0..8);
        let nowhere = RemoteRegion { address: 4096, length: 8, key: 0xdead_be00 };
        let target = nowhere.segment(0..5).expect("the range is inside the region");
        let failed = calling.read(buffer, 0..5, target).await.expect_err("nobody offers memory");
        assert!(matches!(failed.error, OperationError::Failed(_)), "{failed}");
        let flushed = pending.await.expect_err("the receive is flushed");
        assert_eq!(io::Error::from(flushed).kind(), io::ErrorKind::ConnectionAborted);
        let ended = calling.closed().await.expect("the end");
        assert!(
            matches!(ended, ConnectionEvent::Broken | ConnectionEvent::Disconnected),
            "{ended}"
        );
    });
}

#[test]
fn a_dropped_endpoint_ends_its_futures_and_the_connection() {
    over_each(async |runtime, name| {
        let (client, server) = (Peer::new(runtime, name), Peer::new(runtime, name));
        let (mut calling, accepting) = connect(&client, &server).await;
        let received = calling.receive(client.buffer(&[0; 8]), 0..8);
        let closed = calling.closed();
        drop(calling);
        let dropped = received.await.expect_err("the endpoint was dropped");
        assert!(matches!(dropped.error, OperationError::Dropped), "{dropped}");
        assert!(matches!(closed.await, Err(OperationError::Dropped)));
        let ended = accepting.closed().await.expect("the end");
        assert!(
            matches!(ended, ConnectionEvent::Broken | ConnectionEvent::Disconnected),
            "{ended}"
        );
    });
}

#[test]
fn without_a_listener_the_connection_is_refused() {
    over_each(async |runtime, name| {
        let client = Peer::new(runtime, name);
        let qualifier = client.adapter.listen_any().expect("the listener opens").qualifier();
        let mut calling = client.endpoint();
        for _ in 0..2 {
            let refused = calling.connect(loopback(), qualifier, b"", None).await;
            let error = io::Error::from(refused.expect_err("nobody listens"));
            assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused, "{error}");
            calling.reset().expect("the endpoint can be reset");
        }
    });
}

#[test]
fn a_shared_queue_receives_for_all_its_endpoints() {
    over_each(async |runtime, name| {
        let (client, server) = (Peer::new(runtime, name), Peer::new(runtime, name));
        let mut queue =
            server.adapter.shared_receive_queue(&server.zone, 8, 1).expect("a shared queue");
        let receives = [(); 2].map(|()| queue.receive(server.buffer(&[0; 8]), 0..8));
        let mut pairs = Vec::new();
        for _ in 0..2 {
            let builder = server.adapter.endpoint().zone(&server.zone);
            let builder = builder.shared_receive_queue(queue.as_queue());
            let accepting = server.adapter.create(builder).expect("an endpoint");
            pairs.push(connect_to(&client, &server, accepting, b"").await);
        }
        for (calling, _) in &mut pairs {
            calling.send(client.buffer(b"hello"), 0..5).await.expect("the send succeeds");
        }
        let mut ids = Vec::new();
        for receive in receives {
            let (buffer, completion) = receive.await.expect("a message arrives");
            assert_eq!(buffer.to_vec(0..5).expect("bytes"), b"hello");
            ids.push(completion.endpoint);
        }
        assert!(pairs.iter().all(|(_, accepting)| ids.contains(&accepting.id())));
        let left = queue.receive(server.buffer(&[0; 8]), 0..8);
        drop(pairs);
        drop(queue);
        assert!(matches!(left.await, Err(TransferError { error: OperationError::Dropped, .. })));
    });
}

#[test]
fn the_events_of_a_dispatcher_are_a_stream() {
    over_each(async |runtime, name| {
        let server = Adapter::open(name).expect("the adapter opens");
        let mut events =
            EventStream::new(&server, 8, Streams::default(), runtime).expect("a stream");
        let listener = server.listen_any(events.dispatcher()).expect("the listener opens");
        let client = Peer::new(runtime, name);
        for _ in 0..3 {
            let mut calling = client.endpoint();
            let connected = calling.connect(loopback(), listener.qualifier(), b"", None);
            let (rejected, event) = both(connected, async {
                let event = poll_fn(|cx| Pin::new(&mut events).poll_next(cx)).await;
                match event.expect("the stream goes on").expect("an event") {
                    Event::ConnectionRequest(request) => request.reject(b"no"),
                    other => panic!("expected a request, got {other}"),
                }
            })
            .await;
            event.expect("the request is rejected");
            let error = io::Error::from(rejected.expect_err("the request was rejected"));
            assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        }
    });
}

#[test]
fn a_connection_ends_for_those_who_waited_for_it_and_another_begins() {
    over_each(async |runtime, name| {
        let (client, server) = (Peer::new(runtime, name), Peer::new(runtime, name));
        let (mut calling, mut accepting) = connect(&client, &server).await;
        for _ in 0..3 {
            // Nobody polls these futures before the connection has ended.
            let ends = [calling.closed(), accepting.closed()];
            calling.disconnect(Close::Abrupt).expect("the disconnect begins");
            let [ours, theirs] = ends;
            ours.await.expect("the end");
            theirs.await.expect("the end");
            calling.reset().expect("the endpoint can be reset");
            accepting.reset().expect("the endpoint can be reset");

            let mut listener = server.adapter.listen_any().expect("the listener opens");
            let qualifier = listener.qualifier();
            let (got, accepted) = both(calling.connect(loopback(), qualifier, b"", None), async {
                let request = listener.request().await.expect("a request");
                accepting.accept(request, b"again").await
            })
            .await;
            accepted.expect("the request is accepted");
            assert_eq!(got.expect("connected")[..5], *b"again");
        }
    });
}

#[test]
fn the_events_of_an_endpoint_must_go_to_its_adapter() {
    over_each(async |runtime, name| {
        let (one, other) = (Peer::new(runtime, name), Peer::new(runtime, name));
        let builder = one.adapter.endpoint().zone(&one.zone);
        let refused = other.adapter.create(builder).err().expect("the builder is of another one");
        assert_eq!(refused.kind(), ErrorKind::InvalidParameter, "{refused}");
        let events = one.adapter.adapter().dispatcher(8).expect("a dispatcher");
        let builder = one.adapter.endpoint().zone(&one.zone).receives(&events);
        assert!(one.adapter.create(builder).is_err(), "receives would be lost");
    });
}

#[test]
fn there_are_no_futures_for_datagrams() {
    over_each(async |runtime, name| {
        let peer = Peer::new(runtime, name);
        let builder = peer.adapter.endpoint().zone(&peer.zone).datagrams();
        let refused = peer.adapter.create(builder).err().expect("datagrams must be refused");
        assert_eq!(refused.kind(), ErrorKind::ModelNotSupported);
        assert!(refused.to_string().contains("no futures for datagrams"), "{refused}");
    });
}

#[test]
fn a_stream_of_requests_ends_after_an_error() {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_io().build();
    let tokio = tokio.expect("tokio starts");
    let peer = tokio.block_on(async { Peer::new(&Tokio, "tcp-emu") });
    let mut listener = peer.adapter.listen_any().expect("the listener opens");
    // The runtime drops the task that takes the events.
    drop(tokio);
    threads::block_on(async {
        let failed = poll_fn(|cx| Pin::new(&mut listener).poll_next(cx)).await;
        assert!(failed.is_some_and(|request| request.is_err()), "nobody takes the events");
        assert!(poll_fn(|cx| Pin::new(&mut listener).poll_next(cx)).await.is_none());
    });
}

#[test]
fn without_a_runtime_there_is_an_error() {
    let adapter = Adapter::open("tcp-emu").expect("the adapter opens");
    assert!(AsyncAdapter::new(adapter, 8, &Tokio).is_err(), "tokio does not run");
}

#[test]
fn futures_can_go_to_another_thread() {
    fn can<T: Send>() {}
    can::<AsyncAdapter>();
    can::<AsyncEndpoint>();
    can::<dat::asynchronous::AsyncListener>();
    can::<dat::asynchronous::AsyncSharedReceiveQueue>();
    can::<dat::asynchronous::Transfer<MemoryRegion<'static>>>();
    can::<dat::asynchronous::Closed>();
    can::<EventStream>();
}
