//! Plain TCP sockets, used in the way in which a well-written program uses them. DAT is compared
//! with them. The connection also synchronises the two processes.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use socket2::SockRef;

use crate::wait_mode::{PEER_TIMEOUT, Role, WaitMode, round_trips};

/// The number of bytes that one read asks for if messages are smaller, so that one read can return
/// many messages.
const READ_AHEAD_BYTES: usize = 64 << 10;

/// The congestion control that providers choose for connections within the host, in this order.
/// Both sides of a comparison use the same congestion control.
const CONGESTION_CONTROL: [&str; 2] = ["cubic", "reno"];

/// The plain TCP socket of one process, which is connected to that of the other process.
pub struct PlainSockets {
    stream: TcpStream,
    wait: WaitMode,
    buffer: Vec<u8>,
}

/// The direction of the bulk data.
#[derive(Clone, Copy)]
pub enum Direction {
    /// From the client to the server.
    ToServer,
    /// From the server to the client.
    ToClient,
}

impl PlainSockets {
    /// Takes a connected stream. Messages have at most `largest` bytes.
    pub fn new(stream: TcpStream, wait: WaitMode, largest: usize) -> Result<Self> {
        prepare(&stream)?;
        stream.set_nonblocking(wait == WaitMode::Poll)?;
        if wait == WaitMode::Block {
            stream.set_read_timeout(Some(PEER_TIMEOUT))?;
            stream.set_write_timeout(Some(PEER_TIMEOUT))?;
        }
        let buffer = vec![0; largest.max(READ_AHEAD_BYTES)];
        Ok(PlainSockets { stream, wait, buffer })
    }

    /// Returns the socket.
    pub fn socket(&self) -> &TcpStream {
        &self.stream
    }

    /// Returns how the socket waits.
    pub fn wait(&self) -> WaitMode {
        self.wait
    }

    /// Returns the congestion control in use.
    pub fn congestion_control(&self) -> String {
        let name = SockRef::from(&self.stream).tcp_congestion().unwrap_or_default();
        String::from_utf8_lossy(&name).trim_end_matches('\0').to_owned()
    }

    /// Waits until the other process has also called this function.
    pub fn barrier(&mut self) -> Result<()> {
        self.send(1)?;
        self.receive(1)
    }

    /// Sends a number from one process to the other. Returns the number at both processes.
    pub fn tell(&mut self, from: Role, role: Role, number: u64) -> Result<u64> {
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
    pub fn send(&mut self, size: usize) -> Result<()> {
        let mut sent = 0;
        while sent < size {
            let chunk = &self.buffer[sent..size];
            sent += retry(self.wait, "writing", || (&self.stream).write(chunk))?;
        }
        Ok(())
    }

    /// Receives `size` bytes.
    pub fn receive(&mut self, size: usize) -> Result<()> {
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

    /// Runs `count` round trips of `size` bytes each way. Returns half of each round trip's time at
    /// the client, in seconds.
    pub fn ping_pong(&mut self, role: Role, size: usize, count: usize) -> Result<Vec<f64>> {
        round_trips(
            role,
            count,
            self,
            |sockets| sockets.send(size),
            |sockets| sockets.receive(size),
        )
    }

    /// Runs `count` requests of one byte, which the server answers with `size` bytes. Returns the
    /// time of each request at the client, in seconds.
    pub fn ask(&mut self, role: Role, size: usize, count: usize) -> Result<Vec<f64>> {
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

    /// Sends `count` messages of `size` bytes, one `write` each. Returns the seconds until the
    /// client knows that all have arrived.
    pub fn stream(
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
pub fn prepare(stream: &TcpStream) -> io::Result<()> {
    let socket = SockRef::from(stream);
    for name in CONGESTION_CONTROL {
        if socket.set_tcp_congestion(name.as_bytes()).is_ok() {
            break;
        }
    }
    stream.set_nodelay(true)
}

/// Repeats a call that was interrupted by a signal, or that would block while polling.
pub fn retry(
    wait: WaitMode,
    what: &str,
    mut call: impl FnMut() -> io::Result<usize>,
) -> Result<usize> {
    let mut poll_limit = wait.poll_limit(PEER_TIMEOUT);
    loop {
        match call() {
            Ok(n) => return Ok(n),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock && wait == WaitMode::Poll => {
                poll_limit.check("TCP data")?;
            }
            Err(e) => return Err(e).with_context(|| format!("{what} TCP data")),
        }
    }
}
