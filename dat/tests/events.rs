//! Tests of waiting for events: by a file descriptor, and by iterators.

use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use dat::{Access, Adapter, ErrorKind, Event, Flags, NotificationDescriptor, Streams};
use support::{TIME_LIMIT, connected};

mod support;

/// Whether the descriptor is readable, or becomes readable within the time limit.
fn is_readable(notify: &NotificationDescriptor, limit: Duration) -> bool {
    let mut waiting =
        libc::pollfd { fd: notify.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let limit = limit.as_millis().try_into().expect("the limit fits in an int");
    // SAFETY: there is one record, which is writable.
    unsafe { libc::poll(&mut waiting, 1, limit) == 1 }
}

#[test]
fn a_descriptor_tells_when_there_are_events() {
    let (client, mut server) = connected();
    let mut notify = client.adapter.notification_descriptor().expect("tcp-emu has descriptors");
    assert!(!is_readable(&notify, Duration::ZERO), "there is no event yet");
    assert_eq!(notify.take().expect("triggers can be taken"), None);
    let mut events = client
        .adapter
        .dispatcher_for(8, Streams::default(), Some(&notify))
        .expect("a dispatcher with a notification object");
    let listener = client.adapter.listen_any(&events).expect("the listener opens");
    let mut caller = server
        .adapter
        .endpoint()
        .zone(&server.zone)
        .events(&server.events)
        .create()
        .expect("an endpoint");
    caller
        .connect(support::loopback(), listener.qualifier(), b"", TIME_LIMIT)
        .expect("the attempt to connect begins");
    assert!(is_readable(&notify, Duration::from_secs(60)), "the request triggers the object");
    assert_eq!(notify.take().expect("triggers can be taken"), Some(events.id()));
    let arrived: Vec<Event> =
        events.drain().collect::<Result<_, _>>().expect("the events can be taken");
    assert!(matches!(arrived[..], [Event::ConnectionRequest(_)]), "{arrived:?}");
    assert!(!is_readable(&notify, Duration::ZERO), "all triggers and events were taken");
    assert_eq!(notify.take().expect("triggers can be taken"), None);
    // Dropping the request rejects it.
    drop(arrived);
    let rejected = server.events.wait(TIME_LIMIT).expect("the end of the attempt");
    assert!(rejected.established().is_err());
}

#[test]
fn an_iterator_ends_when_the_queue_is_empty_or_the_time_is_over() {
    let (mut client, mut server) = connected();
    let data = client.memory.segment(0..8).expect("the segment is inside the region");
    for cookie in 0..3 {
        let buffer = server.memory.segment(0..8).expect("the segment is inside the region");
        server.endpoint.post_receive(&[buffer], cookie).expect("the post succeeds");
    }
    for cookie in 1..=4 {
        client.endpoint.post_send(&[data], cookie, Flags::default()).expect("the post succeeds");
    }
    let cookie = |event: dat::Result<Event>| {
        event.expect("an event").completion().expect("a successful completion").cookie
    };
    assert_eq!(server.completion().cookie, 100);
    let received: Vec<u64> = server.events.incoming(TIME_LIMIT).take(3).map(cookie).collect();
    assert_eq!(received, [0, 1, 2]);
    let sent: Vec<u64> = client.events.incoming(TIME_LIMIT).take(4).map(cookie).collect();
    assert_eq!(sent, [1, 2, 3, 4]);
    assert_eq!(client.events.drain().count(), 0);
    assert_eq!(client.events.incoming(Some(Duration::from_micros(1))).count(), 0);
}

#[test]
fn errors_tell_the_numbers() {
    let (mut client, _server) = connected();
    let told = |error: dat::Error| error.detail().unwrap_or_default().to_owned();
    let data = client.memory.segment(0..100).expect("the segment is inside the region");
    let error = client
        .endpoint
        .post_send(&[data; 9], 1, Flags::default())
        .expect_err("the endpoint permits four segments");
    assert_eq!(told(error), "9 segments, and the limit is 4");
    let error = client.memory.store(4090, b"12345678").expect_err("the region ends");
    assert!(error.to_string().contains(": bytes 4090 to 4098 of a region of 4096"), "{error}");
    assert_eq!(told(error), "bytes 4090 to 4098 of a region of 4096 bytes");

    let adapter = &client.adapter;
    let limits = adapter.attributes();
    let error = adapter.dispatcher(limits.max_events + 1).err().expect("the queue is too long");
    let (events, max_events) = (limits.max_events + 1, limits.max_events);
    assert_eq!(told(error), format!("{events} events, and the limit is {max_events}"));
    let error = adapter
        .endpoint()
        .zone(&client.zone)
        .events(&client.events)
        .max_receives(limits.max_operations + 1)
        .create()
        .err()
        .expect("the endpoint is too large");
    let (wanted, limit) = (limits.max_operations + 1, limits.max_operations);
    assert_eq!(told(error), format!("{wanted} receives, and the limit of the adapter is {limit}"));
    let mut unconnected =
        adapter.endpoint().zone(&client.zone).events(&client.events).create().expect("an endpoint");
    let error = unconnected
        .connect(support::loopback(), 1, &vec![0; 1 << 16], None)
        .expect_err("the private data are too long");
    let limit = limits.max_private_data;
    assert_eq!(told(error), format!("65536 bytes of private data, and the limit is {limit}"));
}

#[test]
fn errors_are_errors_of_io() {
    fn open(name: &str) -> std::io::Result<Adapter> {
        Ok(Adapter::open(name)?)
    }
    let error = open("no-such-adapter").expect_err("an unknown adapter must not open");
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<dat::Error>());
    assert_eq!(inner.map(dat::Error::kind), Some(ErrorKind::ProviderNotFound));

    let (mut client, server) = connected();
    let registered = client.zone.register(Vec::new(), Access::LOCAL).expect_err("no memory");
    assert_eq!(std::io::Error::from(registered).kind(), std::io::ErrorKind::InvalidInput);
    let error = client.events.wait(Some(Duration::from_micros(1))).expect_err("there is no event");
    assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::TimedOut);
    drop(server);
}

/// The crate returns everything it has to say: it writes nothing, even if a provider has a reason
/// that has no status.
#[test]
fn nothing_is_written_to_the_standard_streams() {
    if std::env::var_os("QUIET_CHILD").is_some() {
        let error = Adapter::open("softroce").expect_err("the parameters are wrong");
        let text = error.to_string();
        println!("{text}");
        assert!(text.contains("loss=200%"), "the error has the reason of the provider: {text}");
        return;
    }
    let file = std::env::temp_dir().join(format!("opendat-quiet-{}", std::process::id()));
    std::fs::write(&file, "this line is a mistake\n").expect("the file can be written");
    let output = std::process::Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "nothing_is_written_to_the_standard_streams", "--nocapture"])
        .env("QUIET_CHILD", "1")
        .env("DAT_OVERRIDE", &file)
        .env("OPENDAT_PARAMS", "net=loss=200%")
        .env_remove("OPENDAT_LOG")
        .env_remove("DAT_DBG_TYPE")
        .output()
        .expect("the program starts");
    std::fs::remove_file(&file).expect("the file can be removed");
    let (stdout, stderr) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stdout}{stderr}");
    assert!(!stdout.contains("dat: ") && !stderr.contains("dat: "), "{stdout}{stderr}");
}
