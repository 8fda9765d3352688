//! The handle by which an adapter records its packets in a capture file.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, MutexGuard};
use std::time::Instant;

use crate::flow::Flow;
use crate::headers::{self, Ip};
use crate::output::{OpenError, Output, State};

/// The handle of a capture file that is being written. It records packets under one interface of
/// the file; so do its clones.
#[derive(Clone, Debug)]
pub struct Capture {
    output: Arc<Output>,
    interface: u32,
}

/// The direction of a packet from the adapter's point of view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// The adapter receives the packet.
    In,
    /// The adapter sends the packet.
    Out,
}

impl Direction {
    /// The opposite direction.
    pub const fn reversed(self) -> Self {
        match self {
            Direction::In => Direction::Out,
            Direction::Out => Direction::In,
        }
    }
}

/// A UDP datagram.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// The source address.
    pub src: SocketAddr,
    /// The destination address.
    pub dst: SocketAddr,
    /// The identification of IPv4, which the ICRC of RoCEv2 covers.
    pub id: u16,
    /// Whether the flag "don't fragment" of IPv4 is set, which the ICRC of RoCEv2 covers too.
    pub dont_fragment: bool,
    /// The UDP payload. A payload that does not fit into a datagram is truncated.
    pub payload: &'a [u8],
}

impl Capture {
    /// Creates a capture file, or shares a file that this process is already writing. Packets are
    /// recorded under the interface `interface`, which is named after the adapter.
    ///
    /// # Errors
    /// The name cannot be expanded; the file exists already, or cannot be opened or written to; or
    /// another process is writing to it.
    pub fn open(name: &str, interface: &str) -> Result<Self, OpenError> {
        let output = Output::open(name)?;
        let interface = output.add_interface(interface)?;
        Ok(Self { output, interface })
    }

    /// The path of the file. The patterns of the name are expanded in it.
    pub fn path(&self) -> &Path {
        self.output.path()
    }

    /// Records a datagram.
    pub fn udp(&self, at: Instant, direction: Direction, datagram: &Datagram<'_>) {
        self.batch().udp(at, direction, datagram);
    }

    /// Begins a batch of datagrams, which is written with one call when it is dropped. Until then,
    /// other threads that record packets in the file wait.
    pub fn batch(&self) -> Batch<'_> {
        Batch { output: &self.output, state: self.output.lock(), interface: self.interface }
    }

    /// Starts to record a TCP connection. `opened` is the direction of the first SYN. Returns
    /// `None` if the file already records the connection at its other end.
    pub fn tcp(
        &self,
        at: Instant,
        local: SocketAddr,
        peer: SocketAddr,
        opened: Direction,
    ) -> Option<Flow> {
        Flow::open(self.clone(), at, local, peer, opened)
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.output.release();
    }
}

/// Datagrams that are written to a file together.
#[derive(Debug)]
pub struct Batch<'a> {
    output: &'a Output,
    state: MutexGuard<'a, State>,
    interface: u32,
}

impl Batch<'_> {
    /// Records a datagram.
    pub fn udp(&mut self, at: Instant, direction: Direction, datagram: &Datagram<'_>) {
        let &Datagram { src, dst, id, dont_fragment, payload } = datagram;
        let ip = Ip { src: src.ip(), dst: dst.ip(), id, dont_fragment };
        self.packet(at, direction, |frame| {
            headers::udp(frame, ip, src.port(), dst.port(), payload)
        });
    }

    pub(crate) fn packet(
        &mut self,
        at: Instant,
        direction: Direction,
        frame: impl FnOnce(&mut Vec<u8>),
    ) {
        self.output.packet(&mut self.state, self.interface, at, direction, frame);
    }

    pub(crate) fn state(&mut self) -> &mut State {
        &mut self.state
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        self.output.write(&mut self.state);
    }
}
