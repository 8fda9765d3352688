//! RoCEv2: the InfiniBand transport in UDP datagrams to port 4791.
//!
//! | file | part | source |
//! |---|---|---|
//! | [`packet`] | a whole packet, its payload and pad | IBA, section 9.2 |
//! | [`opcode`] | operations and the headers of each | IBA, table 35 |
//! | [`bth`] | the header of every packet | IBA, section 9.2 |
//! | [`reth`], [`aeth`], [`atomic`], [`deth`] | the headers of some packets | IBA, section 9.3 |
//! | [`grh`] | the IP header in front of a datagram in a receive buffer | IBA, section 8.3 |
//! | [`psn`] | arithmetic of packet sequence numbers | IBA, section 9.7.2 |
//! | [`rnr`], [`mtu`] | times and sizes that have codes | IBA, sections 9.7.5.2.8 and 9.4.3 |
//! | [`icrc`] | the checksum of a packet and its IP header | IBA, annex A17 |
//!
//! IBA is the InfiniBand Architecture Specification, volume 1. A datagram has this layout:
//!
//! ```text
//! BTH (12) | extended headers (0 to 28) | payload | pad (0..3) | ICRC (4)
//! ```
//!
//! A receiver first checks the ICRC ([`Icrc`]), and then parses the rest ([`Packet::parse`]).

pub mod aeth;
pub mod atomic;
pub mod bth;
pub mod deth;
pub mod grh;
pub mod icrc;
pub mod mtu;
pub mod opcode;
pub mod packet;
pub mod psn;
pub mod reth;
pub mod rnr;

pub use aeth::{Aeth, NakCode, Syndrome};
pub use atomic::{AtomicAckEth, AtomicEth};
pub use bth::Bth;
pub use deth::Deth;
pub use grh::Grh;
pub use icrc::{Icrc, IcrcError, Identification};
pub use mtu::PathMtu;
pub use opcode::{ExtensionKind, Opcode, Operation, Position, SendKind};
pub use packet::{Extension, Packet, ParseError, packet_len, pad};
pub use psn::Psn;
pub use reth::Reth;
pub use rnr::RnrTimer;

/// The destination UDP port of all packets.
pub const UDP_PORT: u16 = 4791;
/// The size of the longest headers in octets: BTH and AtomicETH.
pub const MAX_HEADER: usize = Bth::SIZE + AtomicEth::SIZE;
