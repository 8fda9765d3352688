use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use super::mail::Desk;
use super::*;
use crate::socket::{Habits, RxBatch};

fn open(address: SocketAddr) -> Result<Port, PortError> {
    Port::open(address, MORE_PATIENCE)
}

/// An address of this host that no other test uses.
fn address() -> SocketAddr {
    static LAST: AtomicU8 = AtomicU8::new(0);
    let n = LAST.fetch_add(1, Ordering::Relaxed);
    let [.., high, low] = std::process::id().to_be_bytes();
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 64 + n, high, low.max(1))), 0)
}

/// Runs `f` while all who have a port answer newcomers.
fn with_answers<R>(ports: &[&Port], f: impl FnOnce() -> R) -> R {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for port in ports {
            let done = &done;
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    answer(port);
                    std::thread::yield_now();
                }
            });
        }
        let result = f();
        done.store(true, Ordering::Relaxed);
        result
    })
}

fn answer(port: &Port) {
    if let Ok(Some(Letter::Hello(newcomer))) = port.mailbox.next(&mut Desk::default()) {
        port.welcome(&newcomer);
    }
}

/// Opens ports of an address until there are so many, all of which answer newcomers.
fn open_up_to(count: usize, address: SocketAddr, ports: Vec<Port>) -> Result<Vec<Port>, PortError> {
    let (ports, done) = (Mutex::new(ports), AtomicBool::new(false));
    let result = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                ports.lock().expect("no panic").iter().for_each(answer);
                std::thread::yield_now();
            }
        });
        let result = (|| {
            while ports.lock().expect("no panic").len() < count {
                let port = Port::open(address, MORE_PATIENCE)?;
                ports.lock().expect("no panic").push(port);
            }
            Ok(())
        })();
        done.store(true, Ordering::Relaxed);
        result
    });
    result.map(|()| ports.into_inner().expect("no panic"))
}

/// A packet for a queue pair; for the connection manager's, about a connection.
fn packet(qpn: u32, connection: u32) -> Vec<u8> {
    let mut octets = vec![0; 72];
    octets[4..8].copy_from_slice(&qpn.to_be_bytes());
    octets[48..52].copy_from_slice(&connection.to_be_bytes());
    octets
}

fn arrived(socket: &Udp) -> usize {
    let (mut batch, mut habits, mut n) = (RxBatch::new(), Habits::default(), 0);
    while socket.receive(&mut batch, &mut habits) {
        n += (0..batch.len())
            .filter_map(|i| batch.get(i))
            .map(|d| d.octets.len().div_ceil(d.size))
            .sum::<usize>();
    }
    n
}

fn send(to: SocketAddr, packet: &[u8]) {
    let stranger = Udp::bind_alone(SocketAddr::new(to.ip(), 0)).expect("a socket");
    assert_eq!(stranger.send(to, packet, packet.len()), crate::socket::Sent::All);
}

#[test]
fn each_slot_gets_its_packets_whoever_comes_and_goes() {
    let first = open(address()).expect("founds");
    assert_eq!(first.slot(), 0);
    let second = with_answers(&[&first], || open(first.address())).expect("joins");
    assert_eq!((second.slot(), second.address()), (1, first.address()));
    let to = first.address();
    for (qpn, connection, expected) in [
        (0x12_3400 << 1, 0, [1, 0, 0]),
        (0x12_3401, 0, [0, 1, 0]),
        // Of the connection manager: requests, then messages about connections.
        (1, 0, [0, 0, 1]),
        (1, 0x7700, [1, 0, 0]),
        (1, 0x7781, [0, 1, 0]),
        // The slot of nobody.
        (0x109, 0, [0, 0, 0]),
    ] {
        send(to, &packet(qpn, connection));
        let got = [arrived(&first.socket), arrived(&second.socket), arrived(&first.door)];
        assert_eq!(got, expected, "queue pair {qpn:#x}, connection {connection:#x}");
    }
    // The founder goes; order is kept for those who stay and for those who come.
    drop(first);
    send(to, &packet(0x12_3480, 0));
    let third = with_answers(&[&second], || open(to)).expect("joins");
    assert_eq!(third.slot(), 0, "the slot is free again");
    assert_eq!(arrived(&third.socket), 0, "what came for its last owner is dropped");
    send(to, &packet(0x80, 0));
    send(to, &packet(0x81, 0));
    send(to, &packet(1, 0));
    assert_eq!([arrived(&third.socket), arrived(&second.socket)], [1, 1]);
    assert_eq!([arrived(&third.door), arrived(&second.door)], [1, 0], "whoever looks first");
    // When all have gone, so has the port.
    drop((second, third));
    Udp::bind_alone(to).expect("free");
}

#[test]
fn short_packets_go_somewhere() {
    let port = open(address()).expect("founds");
    for len in 1..12 {
        send(port.address(), &vec![0xff; len]);
    }
    // Seven are too short to name a queue pair; the others name one whose low bits are the door's.
    assert_eq!([arrived(&port.socket), arrived(&port.door)], [0, 11]);
}

#[test]
fn requests_find_who_listens() {
    let now = Instant::now();
    let mut first = open(address()).expect("founds");
    let second = with_answers(&[&first], || open(first.address())).expect("joins");
    let service = second.listen(0x0106_1234).expect("free");
    let error = first.listen(0x0106_1234).map(drop).expect_err("taken");
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    let from: SocketAddr = "[fe80::1%7]:4791".parse().expect("an address");
    assert!(first.forward_request(0x0106_1234, from, b"request", now));
    assert!(!first.forward_request(0x0106_1235, from, b"request", now), "nobody listens");
    let mut desk = Desk::default();
    match service.mailbox.next(&mut desk) {
        Ok(Some(Letter::Packet { from: sender, packet })) => {
            assert_eq!((sender, packet), (from, &b"request"[..]));
        }
        _ => panic!("no packet"),
    }
    assert!(service.mailbox.next(&mut desk).expect("empty").is_none());
    drop(service);
    first.listen(0x0106_1234).expect("free again");
    // By slot, likewise.
    let from = "127.0.0.9:7".parse().expect("an address");
    first.forward(second.slot(), (from, false), b"astray", now);
    assert!(matches!(
        second.mailbox.next(&mut desk),
        Ok(Some(Letter::Packet { from, packet: b"astray" })) if from.port() == 7 && from.is_ipv4()
    ));
}

/// An adapter looks for services that do not exist, and passes on packets of strangers, a limited
/// number of times. It always passes on requests for services that exist, and packets of peers.
#[test]
fn a_flood_is_passed_on_in_part() {
    const FLOOD: u64 = 10_000;
    let now = Instant::now();
    let mut first = open(address()).expect("founds");
    let second = with_answers(&[&first], || open(first.address())).expect("joins");
    let from: SocketAddr = "127.0.0.9:7".parse().expect("an address");
    let asked = (0..FLOOD).filter(|&n| !first.forward_request(0x0106_2000 + n % 7, from, b"", now));
    let asked = asked.count() as u64;
    assert!((100..1000).contains(&asked), "{asked} were looked for");
    assert_eq!(first.dropped(), FLOOD - asked);
    for n in 0..FLOOD {
        first.forward((n % 128) as u8, (from, false), b"forged", now);
    }
    let mut desk = Desk::default();
    assert!(second.mailbox.next(&mut desk).expect("empty").is_none());
    // This service is new.
    let service = second.listen(0x0106_1234).expect("free");
    let soon = now + Duration::from_millis(101);
    for _ in 0..100 {
        first.forward_request(0x0106_2000, from, b"", soon);
    }
    assert!(first.forward_request(0x0106_1234, from, b"request", soon));
    assert!(matches!(
        service.mailbox.next(&mut desk),
        Ok(Some(Letter::Packet { packet: b"request", .. }))
    ));
    first.forward(second.slot(), (from, true), b"astray", soon);
    assert!(matches!(
        second.mailbox.next(&mut desk),
        Ok(Some(Letter::Packet { packet: b"astray", .. }))
    ));
    // After the flood the adapter looks for unknown services again.
    drop(service);
    assert!(!first.forward_request(0x0106_1234, from, b"", now + Duration::from_secs(60)));
}

#[test]
fn a_full_mailbox_loses_nothing() {
    const REQUESTS: usize = 700; // more than any system's mailbox takes
    let mut now = Instant::now();
    let mut first = open(address()).expect("founds");
    let second = with_answers(&[&first], || open(first.address())).expect("joins");
    let service = second.listen(0x0106_1234).expect("free");
    for n in 0..REQUESTS {
        assert!(first.forward_request(0x0106_1234, first.address(), &n.to_be_bytes(), now));
        first.forward(second.slot(), (first.address(), true), &n.to_be_bytes(), now);
    }
    let (mut desk, mut requests, mut packets) = (Desk::default(), 0, 0);
    for (mailbox, count) in [(&service.mailbox, &mut requests), (&second.mailbox, &mut packets)] {
        while *count < REQUESTS {
            match mailbox.next(&mut desk).expect("readable") {
                Some(Letter::Packet { packet, .. }) => {
                    assert_eq!(packet, count.to_be_bytes(), "in order");
                    *count += 1;
                }
                Some(Letter::Hello(_)) => panic!("nobody is new"),
                None => {
                    now = first.deadline().expect("some wait");
                    first.go_on(now);
                }
            }
        }
    }
    assert_eq!(first.deadline(), None);
}

#[test]
fn a_port_that_others_have_is_an_error_that_says_so() {
    let taken = Udp::bind_alone(with_port(address())).expect("free");
    let address = taken.local_addr().expect("bound");
    let error = open(address).map(drop).expect_err("taken").to_string();
    let expected = format!(
        "UDP port 4791 of {} is taken: by adapters or a program of another user",
        address.ip()
    );
    assert!(error.starts_with(&expected), "{error}");
}

#[test]
fn those_who_do_not_answer_are_an_error_too() {
    const OTHERS: u32 = 14;
    const MOST_ASKED: usize = LESS_PATIENCE.as_millis().div_ceil(ANSWER.as_millis()) as usize;
    let first = open(address()).expect("founds");
    let others: Vec<Port> = with_answers(&[&first], || {
        (0..OTHERS).map(|_| open(first.address()).expect("joins")).collect()
    });
    assert!(matches!(Port::open(first.address(), LESS_PATIENCE), Err(PortError::Silent(_))));
    // Not each of them is waited for.
    let was_asked = |port: &&Port| {
        let mut desk = Desk::default();
        matches!(port.mailbox.next(&mut desk), Ok(Some(Letter::Hello(_))))
    };
    let asked = std::iter::once(&first).chain(&others).filter(was_asked).count();
    assert!((1..=MOST_ASKED).contains(&asked), "{asked} of them were asked");
}

#[test]
fn there_are_127_slots() {
    let address = with_port(address());
    let all = open_up_to(DOOR.into(), address, Vec::new()).expect("a slot for each");
    each_has_its_packets(&all);
    let one_more = open_up_to(all.len() + 1, address, all).map(drop);
    assert!(matches!(one_more, Err(PortError::Full(_))));
}

/// What is meant for each of them comes to it, and to no other.
fn each_has_its_packets(ports: &[Port]) {
    for port in ports {
        port.socket.drain();
        send(port.address(), &packet(0x12_3400 << 1 | u32::from(port.slot()), 0));
    }
    for port in ports {
        assert_eq!(arrived(&port.socket), 1, "slot {}", port.slot());
    }
}

#[test]
fn more_slots_come_when_they_are_needed_and_go_with_those_who_have_them() {
    let address = with_port(address());
    let mut ports = open_up_to(40, address, Vec::new()).expect("slots");
    let slots: Vec<u8> = ports.iter().map(Port::slot).collect();
    assert_eq!(slots, (0..40).collect::<Vec<u8>>());
    each_has_its_packets(&ports);
    // Those who came when there were few slots have them still, and so have newcomers in place of them.
    ports.truncate(10);
    each_has_its_packets(&ports);
    for _ in 0..3 {
        ports = open_up_to(40, address, ports).expect("slots");
        each_has_its_packets(&ports);
        ports.drain(10..30);
        each_has_its_packets(&ports);
        ports = open_up_to(35, address, ports).expect("slots");
        each_has_its_packets(&ports);
        ports.truncate(10);
    }
    drop(ports);
    Udp::bind_alone(address).expect("free");
}

#[test]
fn sockets_that_others_have_bound_in_between_are_noticed() {
    let address = with_port(address());
    let ports = open_up_to(15, address, Vec::new()).expect("the first part's slots");
    // As those of an adapter that is just closing.
    let in_between = Udp::bind_shared(address).expect("of the same user");
    let mut vault = ports[0].vault.duplicate().expect("descriptors");
    assert_eq!(
        vault.grow(address).expect_err("not in their places").kind(),
        io::ErrorKind::TimedOut
    );
    each_has_its_packets(&ports);
    drop(in_between);
    vault.grow(address).expect("in their places");
    each_has_its_packets(&ports);
}

#[test]
fn many_who_come_at_once_all_get_a_slot() {
    let address = address();
    let (done, came) = (&AtomicBool::new(false), &AtomicU8::new(0));
    let mut slots: Vec<u8> = std::thread::scope(|scope| {
        let comers: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(move || {
                    let port = open(address).expect("a slot");
                    if came.fetch_add(1, Ordering::Relaxed) == 7 {
                        done.store(true, Ordering::Relaxed);
                    }
                    let mut desk = Desk::default();
                    while !done.load(Ordering::Relaxed) {
                        if let Ok(Some(Letter::Hello(newcomer))) = port.mailbox.next(&mut desk) {
                            port.welcome(&newcomer);
                        }
                        std::thread::yield_now();
                    }
                    port.slot()
                })
            })
            .collect();
        comers.into_iter().map(|comer| comer.join().expect("no panic")).collect()
    });
    slots.sort_unstable();
    assert_eq!(slots, [0, 1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn the_end_of_an_adapter_is_seen_by_its_peers() {
    let first = open(address()).expect("founds");
    let mut second = with_answers(&[&first], || open(first.address())).expect("joins");
    assert!(
        matches!(first.lifeline(first.address(), 2), Err(e) if e.kind() == io::ErrorKind::ConnectionRefused)
    );
    let lines: Vec<Lifeline> =
        (0..3).map(|_| first.lifeline(first.address(), 1).expect("lives")).collect();
    let has_ended = |line: &Lifeline| {
        let mut fd = libc::pollfd { fd: line.as_raw_fd(), events: 0, revents: 0 };
        // SAFETY: one pollfd, alive during the call.
        unsafe { libc::poll(&mut fd, 1, 0) == 1 && fd.revents & libc::POLLHUP != 0 }
    };
    second.life.admit(|_, _| Ok(()));
    let late = first.lifeline(first.address(), 1).expect("lives");
    assert!(!lines.iter().chain([&late]).any(has_ended));
    drop(second);
    assert!(
        lines.iter().chain([&late]).all(has_ended),
        "those that were let in, and those that were not"
    );
}

/// A thread that acts for another user: only the kernel keeps it out.
fn as_nobody<R: Send>(f: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: no memory is involved. The system call is this thread's alone, where the C function is for all.
            assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534) }, 0);
            f()
        });
        thread.join().expect("no panic")
    })
}

/// Another user can neither connect, send, nor take a name, whatever it knows.
#[test]
fn another_user_is_kept_out() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIP: only root can act for another user");
        return;
    }
    let port = open(address()).expect("founds");
    let service = port.listen(0x0106_1234).expect("free");
    let mut names: Vec<PathBuf> = files(&port).collect();
    names.sort();
    let known = names.iter().filter_map(|name| name.file_name()?.to_str()).collect::<Vec<_>>();
    assert_eq!(known, ["founding.lock", "life-0", "names.lock", "service-1061234", "slot-0"]);
    let next = names[4].with_file_name("slot-1");
    as_nobody(|| {
        let denied = |result: io::Result<()>| {
            assert_eq!(result.expect_err("kept out").kind(), io::ErrorKind::PermissionDenied);
        };
        let socket = UnixDatagram::unbound().expect("a socket");
        for name in &names {
            denied(socket.send_to(b"hello", name).map(drop));
            denied(socket.connect(name));
            denied(UnixStream::connect(name).map(drop));
            denied(std::fs::File::open(name).map(drop));
        }
        denied(UnixDatagram::bind(&next).map(drop));
        denied(port.lifeline(port.address(), 0).map(drop));
        // The directory is there, and is not this user's to use.
        denied(Names::at(port.names.directory().to_owned()).map(drop));
    });
    assert!(service.mailbox.next(&mut Desk::default()).expect("readable").is_none());
    assert!(port.mailbox.next(&mut Desk::default()).expect("readable").is_none());
}

fn files(port: &Port) -> impl Iterator<Item = PathBuf> {
    std::fs::read_dir(port.names.directory())
        .expect("it is there")
        .flatten()
        .map(|file| file.path())
}

/// Whoever takes the slot next makes a file of its own for its life.
#[test]
fn an_adapter_gives_up_its_slot_last() {
    use rustix::fs::inotify;
    let port = open(address()).expect("founds");
    let watch = inotify::init(inotify::CreateFlags::NONBLOCK).expect("inotify");
    inotify::add_watch(&watch, port.names.directory(), inotify::WatchFlags::DELETE)
        .expect("watched");
    drop(port);
    let mut space = [std::mem::MaybeUninit::uninit(); 1024];
    let mut events = inotify::Reader::new(&watch, &mut space);
    let removed =
        std::iter::from_fn(|| events.next().ok()?.file_name().map(|name| name.to_owned()));
    assert_eq!(removed.take(2).collect::<Vec<_>>(), [c"life-0".to_owned(), c"slot-0".to_owned()]);
}

/// Those who listen for one service do not look; another one's requests go on.
#[test]
fn a_full_mailbox_keeps_no_other_letters_back() {
    const REQUESTS: usize = 700; // more than any system's mailbox takes
    let now = Instant::now();
    let mut port = open(address()).expect("founds");
    let [slow, fast] = [1, 2].map(|service| port.listen(service).expect("free"));
    let from = port.address();
    assert!(!port.forward_request(3, from, b"nobody listens", now));
    for _ in 0..REQUESTS {
        assert!(port.forward_request(1, from, b"slow", now));
    }
    assert!(port.deadline().is_some(), "some wait");
    assert!(port.forward_request(2, from, b"fast", now));
    let mut desk = Desk::default();
    assert!(matches!(
        fast.mailbox.next(&mut desk),
        Ok(Some(Letter::Packet { packet: b"fast", .. }))
    ));
    assert!(matches!(
        slow.mailbox.next(&mut desk),
        Ok(Some(Letter::Packet { packet: b"slow", .. }))
    ));
}

/// A process that ends before it answers: who has asked it hears so at once, and asks the next one.
#[test]
fn a_newcomer_that_is_not_answered_goes_on() {
    let first = open(address()).expect("founds");
    let whom = first.names.address(Name::Slot(0)).expect("short enough");
    let refused = std::thread::scope(|scope| {
        let newcomer = scope.spawn(|| Vault::ask(&whom, Duration::MAX / 4).map(drop));
        // The letter is read, and nothing comes of it.
        while !matches!(first.mailbox.next(&mut Desk::default()), Ok(Some(Letter::Hello(_)))) {
            std::thread::yield_now();
        }
        newcomer.join().expect("no panic").expect_err("no vault")
    });
    assert_eq!(refused.kind(), io::ErrorKind::UnexpectedEof);
}
