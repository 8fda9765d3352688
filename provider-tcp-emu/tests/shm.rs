//! Connections that move from TCP to shared memory: when they do, when they stay with TCP, and what
//! hostile peers can do. The other tests of this crate use shared memory without knowing it.

use std::ffi::c_void;
use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::time::Duration;

use dat_core::provider::{Provider, Queue, Transport, WcStatus};
use provider_mem::contract::rig::{DEPTH, End, Event, Rig, Service};
use provider_tcp_emu::{Tcp, TcpEmu};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::net::{
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, UCred, sendmsg_addr,
};
use rustix::process::{Gid, Uid, getegid, geteuid, getpid};
use telemetry::user_directory::UserDirectory;

/// More messages than a connection sends before it moves.
const MESSAGES: u64 = 10;

fn open(params: &str) -> Tcp {
    TcpEmu.open("tcp-emu", params).unwrap_or_else(|error| panic!("{params}: {error}"))
}

/// The number of connections of an adapter that share memory.
fn sharing(t: &Tcp) -> u64 {
    let counters = t.counters();
    counters.iter().find(|(name, _)| name == "shared-memory-connections").expect("a counter").1
}

/// Sends messages in both directions, and checks their contents.
fn exchange(rig: &Rig<'_, Tcp>, a: &End<'_, Tcp>, b: &End<'_, Tcp>) {
    for n in 0..MESSAGES {
        for (from, to) in [(a, b), (b, a)] {
            let sent = [n as u8; 200];
            from.mem.write(0, &sent);
            to.recv(n, &[to.mem.segment(256, 256)]);
            from.send(n, &[from.mem.segment(0, sent.len())]);
            assert_eq!(rig.completions(&from.requests, 1)[0].status, WcStatus::Success);
            let received = rig.completions(&to.recvs, 1)[0];
            assert_eq!((received.id, received.bytes as usize), (n, sent.len()));
            assert_eq!(to.mem.read(256, sent.len()), sent);
        }
    }
}

#[test]
fn connections_of_one_host_move_and_leave_nothing() {
    for params in ["", "127.0.0.1", "::1", "127.0.0.1 spin=0 fpdu=1460", "127.0.0.1 threads=3"] {
        let (ta, tb) = (open(params), open(params));
        let rig = Rig { a: &ta, b: &tb };
        let pairs: Vec<_> = (0..3).map(|_| rig.pair()).collect();
        assert_eq!([sharing(&ta), sharing(&tb)], [0, 0], "an idle connection stays with TCP");
        for (n, (a, b)) in (1..).zip(&pairs) {
            exchange(&rig, a, b);
            rig.until("the move", || ([sharing(&ta), sharing(&tb)] == [n, n]).then_some(()));
            exchange(&rig, a, b);
        }
        drop(pairs);
        assert_eq!([sharing(&ta), sharing(&tb)], [0, 0], "{params}");
    }
}

/// The transfers of the set-up are enough.
#[test]
fn connections_move_at_once_if_one_transfer_is_enough() {
    let (ta, tb) = (open("::1 shm=1"), open("::1 shm=1"));
    let rig = Rig { a: &ta, b: &tb };
    let (a, b) = rig.pair();
    rig.until("the move", || ([sharing(&ta), sharing(&tb)] == [1, 1]).then_some(()));
    exchange(&rig, &a, &b);
}

#[test]
fn a_connection_whose_listener_is_closed_still_moves() {
    let t = open("127.0.0.1");
    let rig = Rig { a: &t, b: &t };
    // `pair` has closed the service point when it returns.
    let (a, b) = rig.pair();
    exchange(&rig, &a, &b);
    rig.until("the move", || (sharing(&t) == 2).then_some(()));
    exchange(&rig, &a, &b);
}

#[test]
fn what_asks_for_tcp_gets_tcp() {
    let directory = tempfile::tempdir().expect("a directory");
    let capture = format!("capture={}", directory.path().join("file.pcapng").display());
    for params in ["shm=off", "crc=on", "extended=off", &capture] {
        for params in [[params, ""], ["", params]] {
            let [ta, tb] = params.map(open);
            let rig = Rig { a: &ta, b: &tb };
            let (a, b) = rig.pair();
            exchange(&rig, &a, &b);
            assert_eq!([sharing(&ta), sharing(&tb)], [0, 0], "{params:?}");
        }
    }
}

/// Who puts a relay between two processes wants the octets to pass it.
#[test]
fn a_relay_gets_all_octets() {
    let (ta, tb) = (open("127.0.0.1"), open("127.0.0.1"));
    let rig = Rig { a: &ta, b: &tb };
    let (a, b) = (End::new(&ta), End::new(&tb));
    let service = Service::new(&tb, 8);
    let relay = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    a.connect(relay.local_addr().expect("bound").port(), b"", None);
    let (from, _) = relay.accept().expect("a caller");
    let to = TcpStream::connect((Ipv4Addr::LOCALHOST, service.port(&tb))).expect("a peer");
    for (mut from, mut to) in [(&from, &to), (&to, &from)]
        .map(|(from, to)| [from, to].map(|socket| socket.try_clone().expect("a descriptor")))
        .map(|[from, to]| (from, to))
    {
        std::thread::spawn(move || drop(std::io::copy(&mut from, &mut to)));
    }
    let (request, ..) = service.request(&rig);
    b.qp.accept(request, b"", DEPTH).expect("accept");
    for end in [&a, &b] {
        assert!(matches!(rig.next("the connection", &end.log), Event::Established { .. }));
    }
    exchange(&rig, &a, &b);
    assert_eq!([sharing(&ta), sharing(&tb)], [0, 0]);
    // The relay's threads end with the connection.
}

/// The MPA request of an OpenDAT, its RTR frame, and the frame of a SEND of 16 octets, MSN 1.
const REQUEST: &[u8] = b"MPA ID Req Frame\x19\x02\x00\x04\x80\x04\x80\x04";
const RTR: &[u8] = b"\x00\x0E\xC1\x40OpenDAT RTR1\0\0\0\0";
const SEND: &[u8] = b"\x00\x22\x41\x43\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0sixteen octets!!\0\0\0\0";

/// A process that has connected to `end`, and speaks as an OpenDAT does.
fn raw_peer<'t>(rig: &Rig<'t, Tcp>, end: &End<'t, Tcp>) -> TcpStream {
    let service = Service::new(rig.b, 8);
    let mut peer = TcpStream::connect((Ipv4Addr::LOCALHOST, service.port(rig.b))).expect("connect");
    peer.set_nodelay(true).expect("nodelay");
    peer.set_read_timeout(Some(Duration::from_secs(60))).expect("timeout");
    peer.write_all(REQUEST).expect("request");
    let (request, ..) = service.request(rig);
    end.qp.accept(request, b"", DEPTH).expect("accept");
    peer.read_exact(&mut [0; 24]).expect("reply");
    peer.write_all(RTR).expect("first frame");
    assert!(matches!(rig.next("the connection", &end.log), Event::Established { .. }));
    peer
}

/// The layout of the memory, see iwarp/src/shm/segment.rs and adapter/src/octet_ring.rs.
/// The offering side's ring is the first one.
mod layout {
    pub(super) const CAPACITY: usize = 256 << 10;
    pub(super) const SIZE: usize = 4096 + 2 * CAPACITY;
    pub(super) const PRODUCED: usize = 0;
    /// The positions of the other direction.
    pub(super) const CONSUMED: usize = 512 + 128;
    pub(super) const SWITCHED: usize = 1024;
    pub(super) const ACCEPTED: usize = 1024 + 16;
    pub(super) const DATA: usize = 4096;
}

/// The memory that a hostile process offers.
struct Memory {
    file: OwnedFd,
    start: *mut c_void,
}

impl Memory {
    fn new(size: usize, seals: SealFlags) -> Self {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("offered", flags).expect("a file");
        ftruncate(&file, size as u64).expect("a size");
        fcntl_add_seals(&file, seals).expect("seals");
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the mapping is new.
        let start = unsafe {
            let none = std::ptr::null_mut();
            libc::mmap(none, layout::SIZE, rights, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        assert_ne!(start, libc::MAP_FAILED);
        Memory { file, start }
    }

    fn sealed() -> Self {
        Memory::new(layout::SIZE, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
    }

    /// Stores a number at a place of the memory.
    fn store(&self, at: usize, value: u64) {
        // SAFETY: the place lies in the mapping. The other user of the memory accesses it by
        // atomics, too.
        unsafe { self.start.byte_add(at).cast::<u64>().write_volatile(value) };
    }

    fn load(&self, at: usize) -> u64 {
        // SAFETY: the place lies in the mapping.
        unsafe { self.start.byte_add(at).cast::<u64>().read_volatile() }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is not used any more.
        unsafe { libc::munmap(self.start, layout::SIZE) };
    }
}

/// The octets of an offer by `peer`.
fn offer(peer: &TcpStream) -> Vec<u8> {
    let mut octets = b"OpenDAT\x01".to_vec();
    for address in [peer.peer_addr(), peer.local_addr()] {
        let SocketAddr::V4(address) = address.expect("connected") else { panic!("it is IPv4") };
        octets.extend(address.ip().to_ipv6_mapped().octets());
        octets.extend(address.port().to_be_bytes());
    }
    octets
}

/// Sends an offer to the adapter that has accepted `peer`, in the name of a user.
fn send(peer: &TcpStream, octets: &[u8], descriptors: &[BorrowedFd<'_>], user: (Uid, Gid)) {
    let directory = UserDirectory::find().expect("a directory").path_of("tcp-emu");
    let port = peer.peer_addr().expect("connected").port();
    let to = SocketAddrUnix::new(directory.join(format!("127.0.0.1-{port}"))).expect("a name");
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3), ScmCredentials(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    let credentials = UCred { pid: getpid(), uid: user.0, gid: user.1 };
    control.push(SendAncillaryMessage::ScmCredentials(credentials));
    let socket = UnixDatagram::unbound().expect("a socket");
    sendmsg_addr(&socket, &to, &[IoSlice::new(octets)], &mut control, SendFlags::empty())
        .expect("the offer is sent");
}

#[test]
fn wrong_offers_are_refused_and_tcp_continues() {
    let t = open("127.0.0.1");
    let rig = Rig { a: &t, b: &t };
    let me = (geteuid(), getegid());
    let memory = Memory::sealed();
    let unsealed = Memory::new(layout::SIZE, SealFlags::empty());
    let large =
        Memory::new(2 * layout::SIZE, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL);
    // The adapter looks only at the first offer that is for the connection.
    for wrong in [&unsealed, &large] {
        let end = End::new(&t);
        end.recv(9, &[end.mem.segment(0, 64)]);
        let mut peer = raw_peer(&rig, &end);
        let right = offer(&peer);
        let mut other_address = right.clone();
        other_address[8 + 17] ^= 1;
        let (own, wake_socket) = UnixStream::pair().expect("sockets");
        let (file, socket) = (memory.file.as_fd(), wake_socket.as_fd());
        let offers: [(&[u8], &[BorrowedFd<'_>]); 7] = [
            (&other_address, &[file, socket]),
            (&right, &[]),
            (&right, &[file]),
            (&right, &[file, socket, socket]),
            (&right[1..], &[file, socket]),
            (&[0; 5000], &[file, socket]),
            (&right, &[wrong.file.as_fd(), socket]),
        ];
        for (octets, descriptors) in offers {
            send(&peer, octets, descriptors, me);
        }
        if geteuid().is_root() {
            let nobody = (Uid::from_raw(65534), Gid::from_raw(65534));
            send(&peer, &right, &[file, socket], nobody);
        }
        drop(wake_socket);
        until_dropped(&rig, own);
        peer.write_all(SEND).expect("TCP continues");
        assert_eq!(rig.completions(&end.recvs, 1)[0].id, 9);
        assert_eq!(end.mem.read(0, 16), b"sixteen octets!!");

        // The second offer for a connection is refused, even if it is right.
        let (own, wake_socket) = UnixStream::pair().expect("sockets");
        send(&peer, &right, &[file, wake_socket.as_fd()], me);
        drop(wake_socket);
        until_dropped(&rig, own);
        end.recv(10, &[end.mem.segment(0, 64)]);
        let mut second = SEND.to_vec();
        second[15] = 2;
        peer.write_all(&second).expect("TCP continues");
        assert_eq!(rig.completions(&end.recvs, 1)[0].id, 10);
        assert_eq!(sharing(&t), 0);
    }
}

/// Waits until the adapter has dropped the other end of a pair of sockets, and with it the offers
/// that contained this end.
fn until_dropped(rig: &Rig<'_, Tcp>, mut own: UnixStream) {
    own.set_nonblocking(true).expect("the socket is open");
    rig.until("the adapter to drop the offers", || {
        own.read(&mut [0; 8]).is_ok_and(|n| n == 0).then_some(())
    });
}

/// A process that has offered memory stores anything there, at any time.
#[test]
fn a_hostile_ring_ends_only_its_own_connection() {
    let t = open("127.0.0.1");
    let rig = Rig { a: &t, b: &t };
    let (a, b) = rig.pair();
    exchange(&rig, &a, &b);
    rig.until("the move", || (sharing(&t) == 2).then_some(()));
    type Attack = (&'static str, fn(&Memory));
    let attacks: [Attack; 4] = [
        ("positions beyond the ring", |memory| {
            memory.store(layout::PRODUCED, layout::CAPACITY as u64 + 1);
        }),
        ("the largest position", |memory| memory.store(layout::PRODUCED, u64::MAX)),
        ("garbage in the ring", |memory| {
            (0..64).for_each(|at| memory.store(layout::DATA + 8 * at, !0 >> at));
            memory.store(layout::PRODUCED, 512);
        }),
        ("octets that were not written are consumed", |memory| {
            memory.store(layout::CONSUMED, 1 << 40);
        }),
    ];
    for (what, attack) in attacks {
        let end = End::new(&t);
        let peer = raw_peer(&rig, &end);
        let memory = Memory::sealed();
        let (mut own, wake_socket) = UnixStream::pair().expect("sockets");
        let descriptors = [memory.file.as_fd(), wake_socket.as_fd()];
        send(&peer, &offer(&peer), &descriptors, (geteuid(), getegid()));
        drop(wake_socket);
        rig.until("the offer to be accepted", || {
            (memory.load(layout::ACCEPTED) as u32 == 1).then_some(())
        });
        assert_eq!(sharing(&t), 3, "{what}");
        memory.store(layout::SWITCHED, (REQUEST.len() + RTR.len()) as u64 + 1);
        attack(&memory);
        own.write_all(&[0]).expect("the wake-up");
        // The victim sends until it finds the ring full, and looks at the positions.
        let mut posted = 0;
        rig.until("the end of the connection", || {
            if posted < 8 {
                end.send(posted, &[end.mem.segment(0, 1 << 16)]);
                posted += 1;
            }
            match end.log.take() {
                Some(Event::Broken | Event::Disconnected) => Some(()),
                _ => None,
            }
        });
        assert_eq!(sharing(&t), 2, "{what}");
        exchange(&rig, &a, &b);
        drop(peer);
    }
}
