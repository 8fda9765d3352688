//! Plain TCP and plain UDP sockets, used in the way in which a well-written program uses them. DAT
//! is compared with them. The TCP connection also synchronises the two processes.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use socket2::SockRef;

use crate::wait::{PEER_TIMEOUT, Role, Wait};

/// The number of bytes that one read asks for if messages are smaller, so that one read can return
/// many messages.
const READ_AHEAD_BYTES: usize = 64 << 10;

/// The maximum size of a UDP datagram over IPv4, in octets.
const MAX_DATAGRAM_BYTES: usize = 65_507;
/// The number of looks at an empty queue after which the receiver of datagrams asks whether the
/// sender has sent all of them, and then the number after which it regards the rest as lost.
const LOOKS_PER_CHECK: usize = 256;
/// The size of the receive buffer of the UDP socket, in octets.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;

/// The congestion control that providers choose for connections within the host, in this order.
/// Both sides of a comparison use the same congestion control.
const CONGESTION_CONTROL: [&str; 2] = ["cubic", "reno"];

/// The plain sockets of one process, which are connected to the plain sockets of the other process.
pub(crate) struct PlainSockets {
    stream: TcpStream,
    /// The UDP socket, which is connected to the UDP socket of the other process.
    datagrams: UdpSocket,
    /// Whether the UDP socket is measured, with one call per message, instead of the TCP stream.
    pub(crate) uses_udp: bool,
    wait: Wait,
    buffer: Vec<u8>,
}

/// The direction of the bulk data.
#[derive(Clone, Copy)]
pub(crate) enum Direction {
    ToServer,
    ToClient,
}

impl PlainSockets {
    pub(crate) fn new(
        stream: TcpStream,
        datagrams: UdpSocket,
        wait: Wait,
        largest: usize,
    ) -> Result<Self> {
        prepare(&stream)?;
        stream.set_nonblocking(wait == Wait::Poll)?;
        if wait == Wait::Block {
            stream.set_read_timeout(Some(PEER_TIMEOUT))?;
            stream.set_write_timeout(Some(PEER_TIMEOUT))?;
        }
        datagrams.set_nonblocking(true)?;
        // The buffer should have room for the datagrams of a large message. The system may permit
        // only a smaller buffer. In that case such a message is incomplete.
        SockRef::from(&datagrams).set_recv_buffer_size(RECEIVE_BUFFER_BYTES)?;
        Ok(PlainSockets {
            stream,
            datagrams,
            uses_udp: false,
            wait,
            buffer: vec![0; largest.max(READ_AHEAD_BYTES)],
        })
    }

    /// Returns the congestion control in use.
    pub(crate) fn congestion_control(&self) -> String {
        let name = SockRef::from(&self.stream).tcp_congestion().unwrap_or_default();
        String::from_utf8_lossy(&name).trim_end_matches('\0').to_owned()
    }

    /// Connects further TCP streams to the other process. They do not block.
    pub(crate) fn connect_more(&mut self, role: Role, count: usize) -> Result<Vec<TcpStream>> {
        let (local, peer) = (self.stream.local_addr()?.ip(), self.stream.peer_addr()?.ip());
        let listener = TcpListener::bind((local, 0))?;
        let port = self.tell(Role::Server, role, listener.local_addr()?.port().into())?;
        let server = (peer, u16::try_from(port)?);
        let connect = |_| -> Result<TcpStream> {
            let stream = match role {
                Role::Client => TcpStream::connect(server)?,
                Role::Server => listener.accept()?.0,
            };
            prepare(&stream)?;
            stream.set_nonblocking(true)?;
            Ok(stream)
        };
        (0..count).map(connect).collect::<Result<_>>().context("connecting further TCP sockets")
    }

    /// Waits until the other process has also called this function.
    pub(crate) fn barrier(&mut self) -> Result<()> {
        self.send(1)?;
        self.receive(1)
    }

    /// Sends a number from one process to the other. Returns the number at both processes.
    pub(crate) fn tell(&mut self, from: Role, role: Role, number: u64) -> Result<u64> {
        const SIZE: usize = size_of::<u64>();
        let mut bytes = number.to_be_bytes();
        if role == from {
            self.buffer[..SIZE].copy_from_slice(&bytes);
            self.send(SIZE)?;
        } else {
            self.receive(SIZE)?;
            bytes.copy_from_slice(&self.buffer[..SIZE]);
        }
        Ok(u64::from_be_bytes(bytes))
    }

    /// Sends `size` bytes, with one `write` if the socket accepts all of them at once.
    fn send(&mut self, size: usize) -> Result<()> {
        let mut sent = 0;
        while sent < size {
            let chunk = &self.buffer[sent..size];
            sent += retry(self.wait, "writing", || (&self.stream).write(chunk))?;
        }
        Ok(())
    }

    fn receive(&mut self, size: usize) -> Result<()> {
        let mut received = 0;
        while received < size {
            received += self.receive_some(received, size)?;
        }
        Ok(())
    }

    fn receive_some(&mut self, from: usize, to: usize) -> Result<usize> {
        let PlainSockets { stream, wait, buffer, .. } = self;
        let room = &mut buffer[from..to];
        match retry(*wait, "reading", || (&*stream).read(room))? {
            0 => bail!("the other process closed the TCP connection"),
            n => Ok(n),
        }
    }

    /// Sends one datagram, as soon as the socket buffer has room for it.
    fn send_datagram(&mut self, size: usize) -> Result<()> {
        let PlainSockets { datagrams, buffer, .. } = self;
        retry(Wait::Poll, "writing", || datagrams.send(&buffer[..size])).map(drop)
    }

    fn receive_datagram(&mut self) -> Result<()> {
        let PlainSockets { datagrams, buffer, .. } = self;
        retry(Wait::Poll, "reading", || datagrams.recv(buffer)).map(drop)
    }

    fn ping(&mut self, size: usize) -> Result<()> {
        if self.uses_udp { self.send_datagram(size) } else { self.send(size) }
    }

    fn pong(&mut self, size: usize) -> Result<()> {
        if self.uses_udp { self.receive_datagram() } else { self.receive(size) }
    }

    /// Runs `count` round trips of `size` bytes each way. Returns half of each round trip's time at
    /// the client, in seconds. Within a host no datagram of these round trips is lost.
    pub(crate) fn ping_pong(&mut self, role: Role, size: usize, count: usize) -> Result<Vec<f64>> {
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            match role {
                Role::Client => {
                    let start = Instant::now();
                    self.ping(size)?;
                    self.pong(size)?;
                    times.push(start.elapsed().as_secs_f64() / 2.0);
                }
                Role::Server => {
                    self.pong(size)?;
                    self.ping(size)?;
                }
            }
        }
        Ok(times)
    }

    /// Like [`ping_pong`](Self::ping_pong), with a second thread that sleeps until data arrives and
    /// reads it, while this thread polls the memory into which the second thread reads. Datagrams
    /// have the maximum size.
    pub(crate) fn watched(&mut self, role: Role, size: usize, count: usize) -> Result<Vec<f64>> {
        let PlainSockets { stream, datagrams, uses_udp, buffer, wait } = self;
        ensure!(*wait == Wait::Block, "a thread of its own sleeps while it waits");
        if !*uses_udp {
            let write = |octets: &[u8]| (&*stream).write_all(octets);
            return watched(role, &buffer[..size], count, write, |room| {
                (&*stream).read_exact(room)
            });
        }
        datagrams.set_nonblocking(false)?;
        datagrams.set_read_timeout(Some(PEER_TIMEOUT))?;
        let write = |octets: &[u8]| {
            octets.chunks(MAX_DATAGRAM_BYTES).try_for_each(|one| datagrams.send(one).map(drop))
        };
        let read = |room: &mut [u8]| {
            room.chunks_mut(MAX_DATAGRAM_BYTES).try_for_each(|one| datagrams.recv(one).map(drop))
        };
        let times = watched(role, &buffer[..size], count, write, read);
        datagrams.set_nonblocking(true)?;
        times
    }

    /// Runs `count` requests of one byte, which the server answers with `size` bytes. Returns the
    /// time of each request at the client, in seconds.
    pub(crate) fn ask(&mut self, role: Role, size: usize, count: usize) -> Result<Vec<f64>> {
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            match role {
                Role::Client => {
                    let start = Instant::now();
                    self.send(1)?;
                    self.receive(size)?;
                    times.push(start.elapsed().as_secs_f64());
                }
                Role::Server => {
                    self.receive(1)?;
                    self.send(size)?;
                }
            }
        }
        Ok(times)
    }

    /// Sends `count` datagrams of `size` bytes, one call each. The server reads at the same time.
    /// Returns how many have arrived, and the client's seconds until it knows that.
    pub(crate) fn datagrams(
        &mut self,
        role: Role,
        size: usize,
        count: usize,
    ) -> Result<(usize, f64)> {
        let start = Instant::now();
        let arrived = match role {
            Role::Client => {
                for _ in 0..count {
                    self.send_datagram(size)?;
                }
                self.ask_for_arrivals()?
            }
            Role::Server => {
                self.count_arrivals(count, |sockets| match sockets.try_receive()? {
                    Some(length) => {
                        ensure!(length == size, "expected {size} bytes, got {length}");
                        Ok(true)
                    }
                    None => Ok(false),
                })?
            }
        };
        Ok((arrived, start.elapsed().as_secs_f64()))
    }

    /// Receives a datagram if one has arrived. Returns its length.
    #[inline]
    fn try_receive(&mut self) -> Result<Option<usize>> {
        match self.datagrams.recv(&mut self.buffer) {
            Ok(length) => Ok(Some(length)),
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                Ok(None)
            }
            Err(error) => Err(error).context("reading a datagram"),
        }
    }

    /// Tells the other process, which calls [`count_arrivals`](Self::count_arrivals), that all
    /// datagrams are sent. Returns how many of them have arrived there.
    pub(crate) fn ask_for_arrivals(&mut self) -> Result<usize> {
        self.send(1)?;
        Ok(usize::try_from(self.tell(Role::Server, Role::Client, 0)?)?)
    }

    /// Receives up to `count` datagrams with `receive`, which never blocks and returns whether it
    /// has received one. Ends when all have arrived, or when the other process has sent all and no
    /// further one is found. Tells the other process how many have arrived, and returns the number.
    /// The stream must not block.
    pub(crate) fn count_arrivals(
        &mut self,
        count: usize,
        mut receive: impl FnMut(&mut Self) -> Result<bool>,
    ) -> Result<usize> {
        let mut limit = Wait::Poll.poll_limit(PEER_TIMEOUT);
        let (mut arrived, mut looks, mut are_all_sent) = (0, 0, false);
        while arrived < count {
            if receive(self)? {
                (arrived, looks) = (arrived + 1, 0);
                limit = Wait::Poll.poll_limit(PEER_TIMEOUT);
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
            (are_all_sent, looks) = (self.stream.peek(&mut [0]).is_ok(), 0);
        }
        self.receive(1)?;
        self.tell(Role::Server, Role::Server, arrived as u64)?;
        Ok(arrived)
    }

    /// Sends `count` messages of `size` bytes, one `write` each. Returns the seconds until the
    /// client knows that all have arrived.
    pub(crate) fn stream(
        &mut self,
        role: Role,
        direction: Direction,
        size: usize,
        count: usize,
    ) -> Result<f64> {
        let start = Instant::now();
        match (role, direction) {
            (Role::Client, Direction::ToServer) => {
                self.send_many(size, count)?;
                self.receive(1)?;
            }
            (Role::Server, Direction::ToServer) => {
                self.receive_many(size, count)?;
                self.send(1)?;
            }
            (Role::Client, Direction::ToClient) => {
                self.send(1)?;
                self.receive_many(size, count)?;
            }
            (Role::Server, Direction::ToClient) => {
                self.receive(1)?;
                self.send_many(size, count)?;
            }
        }
        Ok(start.elapsed().as_secs_f64())
    }

    fn send_many(&mut self, size: usize, count: usize) -> Result<()> {
        for _ in 0..count {
            self.send(size)?;
        }
        Ok(())
    }

    fn receive_many(&mut self, size: usize, count: usize) -> Result<()> {
        let mut left = size * count;
        while left > 0 {
            let room = left.min(size.max(READ_AHEAD_BYTES));
            left -= self.receive_some(0, room)?;
        }
        Ok(())
    }
}

/// Sets the options with which DAT's sockets are compared.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    let socket = SockRef::from(stream);
    for name in CONGESTION_CONTROL {
        if socket.set_tcp_congestion(name.as_bytes()).is_ok() {
            break;
        }
    }
    stream.set_nodelay(true)
}

/// Runs the round trips of [`PlainSockets::watched`].
fn watched(
    role: Role,
    message: &[u8],
    count: usize,
    mut write: impl FnMut(&[u8]) -> io::Result<()>,
    read: impl Fn(&mut [u8]) -> io::Result<()> + Sync,
) -> Result<Vec<f64>> {
    let received = AtomicUsize::new(0);
    let ended = AtomicBool::new(false);
    thread::scope(|threads| {
        let reader = threads.spawn(|| {
            let mut room = vec![0; message.len()];
            let read = (1..=count).try_for_each(|message| {
                read(&mut room)?;
                received.store(message, Ordering::Release);
                Ok(())
            });
            ended.store(true, Ordering::Release);
            read
        });
        let watch = |message| {
            while received.load(Ordering::Acquire) < message && !ended.load(Ordering::Acquire) {
                std::hint::spin_loop();
            }
        };
        let mut times = Vec::with_capacity(count);
        let mut written = Ok(());
        for number in 1..=count {
            let start = Instant::now();
            if role == Role::Server {
                watch(number);
            }
            written = write(message);
            if written.is_err() {
                break;
            }
            if role == Role::Client {
                watch(number);
                times.push(start.elapsed().as_secs_f64() / 2.0);
            }
        }
        let read: io::Result<()> =
            reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        written.and(read).context("between two processes that watch memory")?;
        Ok(times)
    })
}

/// Repeats a call that was interrupted by a signal, or that would block while polling.
fn retry(
    wait: Wait,
    what: &str,
    mut call: impl FnMut() -> std::io::Result<usize>,
) -> Result<usize> {
    let mut poll_limit = wait.poll_limit(PEER_TIMEOUT);
    loop {
        match call() {
            Ok(n) => return Ok(n),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock && wait == Wait::Poll => {
                poll_limit.check("TCP data")?;
            }
            Err(e) => return Err(e).with_context(|| format!("{what} TCP data")),
        }
    }
}
