//! Tests with peers that are not OpenDAT. Raw sockets play other stacks, broken stacks, and
//! programs that are no RDMA stacks.

mod calls;
mod ends;
mod unconfirmed;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use dat_core::provider::{Provider, Queue};
use provider_mem::contract::rig::{DEPTH, End, Event, Rig, Service};
use provider_tcp_emu::{Tcp, TcpEmu};

/// siw's request as initiator: no peer-to-peer model, one RDMA read each way.
const REQUEST: &[u8] = b"MPA ID Req Frame\x10\x02\x00\x04\x00\x01\x00\x01";

/// siw's request as initiator with the peer-to-peer model. It promises an RDMA WRITE as the first
/// frame.
const REQUEST_P2P: &[u8] = b"MPA ID Req Frame\x10\x02\x00\x04\x80\x01\x80\x01";

/// siw's replies as responder, to a request without and with the peer-to-peer model.
const REPLY: &[u8] = b"MPA ID Rep Frame\x10\x02\x00\x04\x00\x01\x00\x01";
const REPLY_P2P: &[u8] = b"MPA ID Rep Frame\x10\x02\x00\x04\x80\x01\x80\x01";

/// A SEND of 16 octets, MSN 1, CRC off.
const SEND: &[u8] = b"\x00\x22\x41\x43\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0sixteen octets!!\0\0\0\0";

/// The zero-length RDMA WRITE that serves as RTR.
const RTR: &[u8] = b"\x00\x0e\xC1\x40";

fn open() -> Tcp {
    TcpEmu.open("tcp-emu", "127.0.0.1").expect("adapter")
}

fn call(port: u16) -> TcpStream {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("connect");
    prepared(stream)
}

fn prepared(stream: TcpStream) -> TcpStream {
    stream.set_nodelay(true).expect("nodelay");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("timeout");
    stream
}

fn reset(stream: TcpStream) {
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).expect("linger");
}

fn read<const N: usize>(stream: &mut TcpStream) -> [u8; N] {
    let mut octets = [0; N];
    stream.read_exact(&mut octets).expect("octets");
    octets
}

/// Reads the SEND of 16 octets that a caller of this adapter sends. A caller that is slow sends
/// probes first, which are like RTR frames.
fn read_send(stranger: &mut TcpStream) -> [u8; 40] {
    let mut frame = [0; 40];
    let (first, rest) = frame.split_at_mut(20);
    loop {
        stranger.read_exact(first).expect("octets");
        if first[..4] != *RTR {
            break;
        }
    }
    stranger.read_exact(rest).expect("octets");
    frame
}

/// The connection still exists, too.
fn assert_has_received_nothing(stranger: &TcpStream) {
    stranger.set_nonblocking(true).expect("a socket");
    let error = stranger.peek(&mut [0]).expect_err("nothing has arrived");
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    stranger.set_nonblocking(false).expect("a socket");
}

/// Reads until the peer closes. A reset counts as an end, too.
fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    let _ = stream.read_to_end(&mut all);
    all
}

/// A stranger that has connected to `end` and was accepted.
fn accepted<'t>(rig: &Rig<'t, Tcp>, end: &End<'t, Tcp>) -> TcpStream {
    accepted_after(rig, end, REQUEST)
}

/// A stranger like that of [`accepted`] that sends this request, which offers no RTR frame.
fn accepted_after<'t>(rig: &Rig<'t, Tcp>, end: &End<'t, Tcp>, request: &[u8]) -> TcpStream {
    let service = Service::new(rig.b, 8);
    let mut stranger = call(service.port(rig.b));
    stranger.write_all(request).expect("request");
    let (call, _, _, private) = service.request(rig);
    assert!(private.is_empty());
    end.qp.accept(call, b"", DEPTH).expect("accept");
    assert!(matches!(rig.next("the connection", &end.log), Event::Established { .. }));
    assert_eq!(read::<24>(&mut stranger)[20..], request[20..], "the depths and the model");
    stranger
}

/// A stranger that calls from this address of the host, and promises a first frame.
fn call_from(address: Ipv4Addr, port: u16) -> TcpStream {
    call_with(address, port, REQUEST_P2P)
}

/// A stranger that calls from this address of the host, and sends these octets.
fn call_with(address: Ipv4Addr, port: u16, octets: &[u8]) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
    let socket = socket.expect("a socket");
    socket.bind(&SocketAddr::from((address, 0)).into()).expect("an address");
    socket.connect(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into()).expect("connect");
    let mut stranger = prepared(socket.into());
    stranger.write_all(octets).expect("octets");
    stranger
}
