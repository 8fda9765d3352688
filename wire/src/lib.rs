//! Wire codecs of RDMA protocols: they parse octets into typed headers and emit headers as octets.
//!
//! The codecs use no I/O, no allocation on the data path and no `unsafe`. A parser accepts any
//! octets that a peer may send. It returns a header, "more octets needed", or a typed error that
//! contains the report for the peer. An emitter writes into a buffer of the caller, and documents
//! the size that it needs.
//!
//! # Example
//!
//! A RoCEv2 datagram is checked, parsed, printed and emitted again:
//!
//! ```
//! use wire::rocev2::{Icrc, Identification, Packet};
//!
//! // A UDP socket has received these octets.
//! let datagram = *b"\x04\x10\xFF\xFF\0\0\0\x11\x80\0\0\x05abc\0\x54\x8E\x4A\xBE";
//! let (source, destination) = ("10.77.0.1:4791".parse()?, "10.77.0.3:4791".parse()?);
//!
//! // The checksum at the end also covers the addresses and the identification of the IP header.
//! let icrc = Icrc::new(source, destination).ok_or("one address is IPv4 and the other IPv6")?;
//! let packet = Packet::parse(icrc.verify(Identification::unfragmented(0), &datagram)?)?;
//! println!("{packet}");
//! assert_eq!(packet.to_string(), "SEND only qpn=0x000011 psn=5 ack-request payload=3");
//! assert_eq!(packet.payload, b"abc");
//!
//! let mut copy = [0; 20];
//! assert_eq!(packet.emit(&mut copy), copy.len() - Icrc::SIZE);
//! icrc.seal(0, &mut copy);
//! assert_eq!(copy, datagram);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod bytes;
pub mod cm;
pub mod iwarp;
pub mod rocev2;
