//! Communication management of InfiniBand (IBA volume 1, chapter 12): the messages by which queue pairs are connected,
//! and the header by which the addresses of an IP connection travel with them (annex A11).
//!
//! | file | what |
//! |---|---|
//! | [`mad`] | the datagram of 256 octets that each message is, and the choice between the messages |
//! | [`req`], [`path`] | REQ: may we connect? With the path that it proposes |
//! | [`ip`] | addresses and port of an IP connection, in a REQ's private data |
//! | [`mra`] | MRA: it will take a while |
//! | [`rep`], [`rtu`] | REP: yes; RTU: so be it |
//! | [`rej`], [`reason`] | REJ: no, and why |
//! | [`disconnect`] | DREQ: let us end it; DREP: ended |
//! | [`timeout`] | times in 5 bits |
//!
//! No message carries the length of its private data: a receiver sees the whole field, filled up with zeros.
//!
//! Left alone, that is not read and written as zero, are fields of other services (EE contexts and Q_Keys of the
//! reliable datagram, extended transports), enhanced connection establishment, and what is reserved. LAP, APR and SIDR
//! are not spoken: Linux ignores the first two on Ethernet, and the third is for datagrams.

pub mod disconnect;
pub mod ip;
pub mod mad;
pub mod mra;
mod octets;
pub mod path;
pub mod reason;
pub mod rej;
pub mod rep;
pub mod req;
pub mod rtu;
pub mod timeout;

pub use disconnect::{Drep, Dreq};
pub use ip::{IpHeader, IpHeaderError, ServiceId};
pub use mad::{Answered, MAD_SIZE, Mad, MadError, Message};
pub use mra::Mra;
pub use path::Path;
pub use reason::Reason;
pub use rej::Rej;
pub use rep::Rep;
pub use req::Req;
pub use rtu::Rtu;
pub use timeout::Timeout;

pub use crate::rocev2::PathMtu;

#[cfg(test)]
mod tests;
