//! The packets of a local address that wait to be sent, and the batches in which they leave.
//!
//! All queue pairs add their packets to the same burst as long as the packets go to one address. So
//! packets of many queue pairs leave with one system call.
//!
//! Several adapters may share the address. The kernel passes a whole batch to one socket, unless a
//! network divides it. An adapter that gets packets of others forwards them, which may take some
//! milliseconds on a busy host. Therefore each batch goes to one adapter.

use std::net::SocketAddr;
use std::time::Instant;

use rnic::rc::Burst;
use wire::rocev2::Icrc;

use crate::shared_port::slot_of_packet;
use crate::socket::{MAX_BATCH_BYTES, MAX_SEGMENTS};

/// Packets to one peer that wait to be sent, in the order in which they were added.
pub(crate) struct Outgoing {
    /// The packets. The burst holds no more than one batch, so that it is still in the CPU's cache
    /// when the ICRC is computed and when the kernel reads the packets.
    burst: Burst,
    /// The destination of the packets. `None` before the first packet.
    destination: Option<Destination>,
}

/// The destination of waiting packets.
#[derive(Clone, Copy)]
pub(crate) struct Destination {
    pub(crate) address: SocketAddr,
    /// The index of the sender from whose port the packets leave.
    pub(crate) sender: usize,
    /// The ICRC of packets to `address`.
    pub(crate) icrc: Icrc,
    /// The time at which packets were last added.
    pub(crate) now: Instant,
}

impl Outgoing {
    pub(crate) fn new() -> Self {
        Outgoing { burst: Burst::new(MAX_SEGMENTS, MAX_BATCH_BYTES), destination: None }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.burst.is_empty()
    }

    /// Whether a packet of any length to this address, from this sender, can join the waiting
    /// packets.
    #[inline]
    pub(crate) fn accepts(&self, address: SocketAddr, sender: usize) -> bool {
        self.burst.is_empty()
            || self.burst.fits_any_packet()
                && self.destination.is_some_and(|destination| {
                    (destination.address, destination.sender) == (address, sender)
                })
    }

    /// Returns the burst to which packets to a peer are added. The peer must be
    /// [accepted](Self::accepts).
    #[inline]
    pub(crate) fn burst_to(&mut self, destination: Destination) -> &mut Burst {
        debug_assert!(self.accepts(destination.address, destination.sender));
        self.destination = Some(destination);
        &mut self.burst
    }

    /// The destination of the waiting packets, and the batches in which they leave, of up to
    /// `max_packets` packets each. `None` if no packet waits.
    pub(crate) fn batches(&mut self, max_packets: usize) -> Option<(Destination, Batches<'_>)> {
        let destination = self.destination.filter(|_| !self.burst.is_empty())?;
        let (lens, octets) = self.burst.datagrams_mut();
        Some((destination, Batches { lens, octets, max_packets }))
    }

    /// Removes all packets.
    pub(crate) fn clear(&mut self) {
        self.burst.clear();
    }
}

/// Packets to one adapter that the kernel sends with one call. Each has `size` octets, except that
/// the last one may be shorter.
pub(crate) struct Batch<'a> {
    pub(crate) octets: &'a mut [u8],
    pub(crate) size: usize,
}

impl Batch<'_> {
    pub(crate) fn is_single(&self) -> bool {
        self.octets.len() <= self.size
    }
}

/// Divides packets into batches, without changing their order.
pub(crate) struct Batches<'a> {
    /// The length of each packet.
    lens: &'a [u16],
    /// The packets, one after the other.
    octets: &'a mut [u8],
    max_packets: usize,
}

impl<'a> Iterator for Batches<'a> {
    type Item = Batch<'a>;

    fn next(&mut self) -> Option<Batch<'a>> {
        let &size = self.lens.first()?;
        let slot = slot_of_packet(self.octets);
        let (mut packets, mut octets) = (0, 0);
        for &len in self.lens.iter().take(self.max_packets) {
            if len > size
                || octets + usize::from(len) > MAX_BATCH_BYTES
                || slot_of_packet(&self.octets[octets..]) != slot
            {
                break;
            }
            packets += 1;
            octets += usize::from(len);
            if len < size {
                break;
            }
        }
        let (batch, rest) = std::mem::take(&mut self.octets).split_at_mut(octets);
        (self.lens, self.octets) = (&self.lens[packets..], rest);
        Some(Batch { octets: batch, size: size.into() })
    }
}

#[cfg(test)]
mod tests;
