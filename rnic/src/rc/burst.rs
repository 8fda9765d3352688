//! Datagrams on their way out, back to back in one buffer.

use wire::rocev2::{Bth, Extension, Icrc, Packet, packet_len};

/// Octets of the ICRC, which whoever knows the addresses puts at the end of each datagram.
pub const ICRC_SIZE: usize = 4;

/// The datagrams of one or a few system calls: of any number of queue pairs, and of connection management. Its memory is
/// taken once.
pub struct Burst {
    memory: Box<[u8]>,
    used: usize,
    lens: Vec<u16>,
    max: usize,
}

impl Burst {
    /// Room for `packets`, and for `octets` of them all, ICRCs included.
    ///
    /// # Panics
    /// If the largest packet does not fit.
    pub fn new(packets: usize, octets: usize) -> Self {
        assert!(packets > 0 && octets >= Icrc::MAX_DATAGRAM);
        Burst {
            memory: vec![0; octets].into(),
            used: 0,
            lens: Vec::with_capacity(packets),
            max: packets,
        }
    }

    /// Forgets all datagrams.
    pub fn clear(&mut self) {
        self.used = 0;
        self.lens.clear();
    }

    /// Datagrams in it.
    pub fn len(&self) -> usize {
        self.lens.len()
    }

    /// None is in it.
    pub fn is_empty(&self) -> bool {
        self.lens.is_empty()
    }

    /// Packets that still fit.
    #[inline]
    pub fn room(&self) -> usize {
        self.max - self.lens.len()
    }

    /// Adds a datagram of `len` octets, ICRC excluded, and gives its place, where each octet is to be written. `None`: it
    /// does not fit.
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

    /// Takes the last datagram back.
    pub(super) fn pop(&mut self) {
        self.used -= self.lens.pop().map_or(0, usize::from);
    }

    /// Octets of each datagram, ICRC included, in order.
    pub fn lens(&self) -> &[u16] {
        &self.lens
    }

    /// The datagrams, each with room for its ICRC at its end.
    pub fn bytes(&self) -> &[u8] {
        &self.memory[..self.used]
    }

    /// The same, to put the ICRCs in.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[..self.used]
    }

    /// Adds a packet but for its payload, and gives the place of that. `None`: it does not fit.
    #[inline]
    pub(super) fn packet(
        &mut self,
        bth: &Bth,
        extension: &Extension,
        payload_len: usize,
    ) -> Option<&mut [u8]> {
        let place = self.push(packet_len(bth.opcode, payload_len))?;
        Some(Packet::emit_around(bth, extension, payload_len, place))
    }
}
