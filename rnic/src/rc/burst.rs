//! A buffer of outgoing datagrams, which lie back to back in it.

use wire::rocev2::{Bth, Extension, Icrc, Packet, packet_len};

/// The number of octets of the ICRC. The sender of the burst, which knows the addresses, writes the
/// ICRC at the end of each datagram.
pub const ICRC_SIZE: usize = 4;

/// The datagrams of one or a few system calls. They may belong to any number of queue pairs and to
/// connection management. The memory is allocated once.
pub struct Burst {
    memory: Box<[u8]>,
    used: usize,
    lens: Vec<u16>,
    /// The maximum number of datagrams.
    max: usize,
}

impl Burst {
    /// Creates a burst with room for `packets` datagrams of `octets` octets in total, including
    /// their ICRCs.
    ///
    /// # Panics
    /// Panics if the largest packet does not fit.
    pub fn new(packets: usize, octets: usize) -> Self {
        assert!(packets > 0 && octets >= Icrc::MAX_DATAGRAM);
        Burst {
            memory: vec![0; octets].into(),
            used: 0,
            lens: Vec::with_capacity(packets),
            max: packets,
        }
    }

    /// Removes all datagrams.
    pub fn clear(&mut self) {
        self.used = 0;
        self.lens.clear();
    }

    /// The number of datagrams.
    pub fn len(&self) -> usize {
        self.lens.len()
    }

    /// Whether the burst contains no datagram.
    pub fn is_empty(&self) -> bool {
        self.lens.is_empty()
    }

    /// The maximum number of further packets.
    #[inline]
    pub fn room(&self) -> usize {
        self.max - self.lens.len()
    }

    /// Whether a packet of the maximum size fits.
    #[inline]
    pub fn fits_any_packet(&self) -> bool {
        self.room() > 0 && self.used + Icrc::MAX_DATAGRAM <= self.memory.len()
    }

    /// Adds a datagram of `len` octets without its ICRC, and returns the memory in which the caller
    /// must write all `len` octets. Returns `None` if the datagram does not fit.
    #[inline]
    pub fn push(&mut self, len: usize) -> Option<&mut [u8]> {
        let end = self.used + len + ICRC_SIZE;
        if self.room() == 0 || end > self.memory.len() {
            return None;
        }
        self.lens.push(u16::try_from(len + ICRC_SIZE).ok()?);
        let place = &mut self.memory[self.used..self.used + len];
        self.used = end;
        Some(place)
    }

    /// Removes the last datagram.
    pub(crate) fn pop(&mut self) {
        self.used -= self.lens.pop().map_or(0, usize::from);
    }

    /// The length of each datagram, including its ICRC, in order.
    pub fn lens(&self) -> &[u16] {
        &self.lens
    }

    /// The datagrams, each with room for its ICRC at the end.
    pub fn octets(&self) -> &[u8] {
        &self.memory[..self.used]
    }

    /// The same values as [`lens`](Self::lens) and [`octets`](Self::octets). The octets are mutable
    /// so that the ICRCs can be written.
    pub fn datagrams_mut(&mut self) -> (&[u16], &mut [u8]) {
        (&self.lens, &mut self.memory[..self.used])
    }

    /// Adds a packet without its payload, and returns the memory for the payload. Returns `None` if
    /// the packet does not fit.
    #[inline]
    pub(crate) fn push_packet(
        &mut self,
        bth: &Bth,
        extension: &Extension,
        payload_len: usize,
    ) -> Option<&mut [u8]> {
        let place = self.push(packet_len(bth.opcode, payload_len))?;
        Some(Packet::emit_around(bth, extension, payload_len, place))
    }
}
