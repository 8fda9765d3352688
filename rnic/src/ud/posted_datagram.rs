//! A datagram in its slot of the send queue.

use std::net::{IpAddr, Ipv6Addr};

use crate::wqe::Wqe;
use crate::wr::{DatagramWr, Destination, OpKind};

/// The mask of a queue pair's number.
const QPN_MASK: u32 = 0xFF_FFFF;

/// The host to which a datagram goes, and the route to the host: the destination without the queue
/// pair and its Q_Key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Way {
    /// The address as an IPv6 address, in two halves.
    address: [u64; 2],
    route: u32,
}

impl Way {
    #[inline]
    pub(super) fn to(to: &Destination) -> Self {
        let mapped = match to.address {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        let bits = mapped.to_bits();
        Way { address: [(bits >> 64) as u64, bits as u64], route: to.route }
    }

    fn address(self) -> IpAddr {
        let [high, low] = self.address;
        Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low)).to_canonical()
    }
}

/// The fields of a datagram's request:
///
/// | field | content |
/// |---|---|
/// | `operands` | the address |
/// | `remote_key` | the number of the queue pair |
/// | `remote_addr` | the route, and in the low half the immediate data |
impl Wqe {
    /// The request for a datagram of `len` octets in this number of non-empty segments.
    #[inline]
    pub(crate) fn datagram(wr: &DatagramWr<'_>, len: u32, segments: u8) -> Self {
        let Way { address, route } = Way::to(&wr.to);
        let immediate = u64::from(wr.immediate.unwrap_or(0));
        let flag = |set: bool, flag: u16| if set { flag } else { 0 };
        Wqe {
            id: wr.id,
            remote_addr: u64::from(route) << 32 | immediate,
            remote_key: wr.to.qpn & QPN_MASK,
            q_key: wr.to.q_key,
            operands: address,
            len,
            segments,
            op: if wr.immediate.is_some() { OpKind::SendImm } else { OpKind::Send },
            flags: Wqe::DATAGRAM
                | flag(wr.signalled, Wqe::SIGNALLED)
                | flag(wr.solicited, Wqe::SOLICITED)
                | flag(wr.quiet, Wqe::QUIET),
        }
    }

    #[inline]
    pub(super) fn is_datagram(&self) -> bool {
        self.has(Wqe::DATAGRAM)
    }

    #[inline]
    pub(super) fn way(&self) -> Way {
        Way { address: self.operands, route: (self.remote_addr >> 32) as u32 }
    }

    #[inline]
    pub(super) fn qpn(&self) -> u32 {
        self.remote_key
    }

    #[inline]
    pub(super) fn immediate(&self) -> Option<u32> {
        self.op.facts().has_immediate.then_some(self.remote_addr as u32)
    }

    #[inline]
    pub(super) fn destination(&self) -> Destination {
        let way = self.way();
        let qpn = self.qpn();
        Destination { address: way.address(), route: way.route, qpn, q_key: self.q_key }
    }
}
