//! Plain UDP sockets, with one call per message. DAT is compared with them.

use std::io::ErrorKind;
use std::net::UdpSocket;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use measurement::plain_sockets::{PlainSockets, retry};
use measurement::wait_mode::{PEER_TIMEOUT, Role, WaitMode, round_trips};
use socket2::SockRef;

use crate::watch::thread_round_trips;

/// The maximum size of a UDP datagram over IPv4, in octets.
const MAX_DATAGRAM_BYTES: usize = 65_507;
/// After this number of looks at an empty queue, the receiver of datagrams asks whether the sender
/// has sent all of them. If the sender has, the receiver regards the rest as lost after the same
/// number of further looks.
const LOOKS_PER_CHECK: usize = 256;
/// The size of the receive buffer of the UDP socket, in octets.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;

/// The UDP socket of one process, which is connected to that of the other process.
pub(crate) struct Udp {
    socket: UdpSocket,
    buffer: Vec<u8>,
}

impl Udp {
    /// Connects the UDP sockets of the two processes, which tell each other their ports.
    pub(crate) fn connect(sockets: &mut PlainSockets, role: Role) -> Result<Self> {
        let (mut here, mut there) = (sockets.socket().local_addr()?, sockets.socket().peer_addr()?);
        here.set_port(0);
        let socket = UdpSocket::bind(here)?;
        let own = socket.local_addr()?.port().into();
        let (server, client) =
            (sockets.tell(Role::Server, role, own)?, sockets.tell(Role::Client, role, own)?);
        there.set_port(u16::try_from(if role == Role::Client { server } else { client })?);
        socket.connect(there)?;
        socket.set_nonblocking(true)?;
        // The buffer should have room for the datagrams of a large message. The system may permit
        // only a smaller buffer. In that case such a message is incomplete.
        SockRef::from(&socket).set_recv_buffer_size(RECEIVE_BUFFER_BYTES)?;
        Ok(Udp { socket, buffer: vec![0; MAX_DATAGRAM_BYTES] })
    }

    /// Sends one datagram, as soon as the socket buffer has room for it.
    fn send(&mut self, size: usize) -> Result<()> {
        let Udp { socket, buffer } = self;
        retry(WaitMode::Poll, "writing", || socket.send(&buffer[..size])).map(drop)
    }

    fn receive(&mut self) -> Result<()> {
        let Udp { socket, buffer } = self;
        retry(WaitMode::Poll, "reading", || socket.recv(buffer)).map(drop)
    }

    /// Runs `count` round trips of `size` bytes each way. Returns half of each round trip's time at
    /// the client, in seconds. Within a host no datagram of these round trips is lost.
    pub(crate) fn ping_pong(&mut self, role: Role, size: usize, count: usize) -> Result<Vec<f64>> {
        round_trips(role, count, self, |udp| udp.send(size), Udp::receive)
    }

    /// Like [`ping_pong`](Self::ping_pong), with a second thread as [`thread_round_trips`] has one.
    /// Datagrams have the maximum size.
    pub(crate) fn watched(&mut self, role: Role, size: usize, count: usize) -> Result<Vec<f64>> {
        let socket = &self.socket;
        socket.set_nonblocking(false)?;
        socket.set_read_timeout(Some(PEER_TIMEOUT))?;
        let write = |octets: &[u8]| {
            octets.chunks(MAX_DATAGRAM_BYTES).try_for_each(|one| socket.send(one).map(drop))
        };
        let read = |room: &mut [u8]| {
            room.chunks_mut(MAX_DATAGRAM_BYTES).try_for_each(|one| socket.recv(one).map(drop))
        };
        let times = thread_round_trips(role, size, count, write, read);
        socket.set_nonblocking(true)?;
        times
    }

    /// Sends `count` datagrams of `size` bytes, one call each. The server reads at the same time.
    /// Returns how many have arrived, and the client's seconds until it knows that.
    pub(crate) fn stream(
        &mut self,
        sockets: &mut PlainSockets,
        role: Role,
        size: usize,
        count: usize,
    ) -> Result<(usize, f64)> {
        let start = Instant::now();
        let arrived = match role {
            Role::Client => {
                for _ in 0..count {
                    self.send(size)?;
                }
                ask_for_arrivals(sockets)?
            }
            Role::Server => count_arrivals(sockets, count, || match self.try_receive()? {
                Some(length) => {
                    ensure!(length == size, "expected {size} bytes, got {length}");
                    Ok(true)
                }
                None => Ok(false),
            })?,
        };
        Ok((arrived, start.elapsed().as_secs_f64()))
    }

    /// Receives a datagram if one has arrived. Returns its length.
    #[inline]
    fn try_receive(&mut self) -> Result<Option<usize>> {
        match self.socket.recv(&mut self.buffer) {
            Ok(length) => Ok(Some(length)),
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                Ok(None)
            }
            Err(error) => Err(error).context("reading a datagram"),
        }
    }
}

/// Tells the other process, which calls [`count_arrivals`], that all datagrams are sent. Returns
/// how many of them have arrived there.
pub(crate) fn ask_for_arrivals(sockets: &mut PlainSockets) -> Result<usize> {
    sockets.send(1)?;
    Ok(usize::try_from(sockets.tell(Role::Server, Role::Client, 0)?)?)
}

/// Receives up to `count` datagrams with `receive`, which never blocks and returns whether it has
/// received one. Ends when all have arrived, or when the other process has sent all and no further
/// one is found. Tells the other process how many have arrived, and returns the number. The stream
/// must not block.
pub(crate) fn count_arrivals(
    sockets: &mut PlainSockets,
    count: usize,
    mut receive: impl FnMut() -> Result<bool>,
) -> Result<usize> {
    let mut limit = WaitMode::Poll.poll_limit(PEER_TIMEOUT);
    let (mut arrived, mut looks, mut are_all_sent) = (0, 0, false);
    while arrived < count {
        if receive()? {
            (arrived, looks) = (arrived + 1, 0);
            limit = WaitMode::Poll.poll_limit(PEER_TIMEOUT);
            continue;
        }
        limit.check("a datagram")?;
        looks += 1;
        if looks < LOOKS_PER_CHECK {
            continue;
        }
        if are_all_sent {
            break;
        }
        (are_all_sent, looks) = (sockets.socket().peek(&mut [0]).is_ok(), 0);
    }
    sockets.receive(1)?;
    sockets.tell(Role::Server, Role::Server, arrived as u64)?;
    Ok(arrived)
}
