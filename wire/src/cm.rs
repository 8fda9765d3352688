//! Communication management of InfiniBand (IBA volume 1, chapter 12): the messages that connect
//! queue pairs or find them, and the header that carries the addresses of an IP connection (annex
//! A11).
//!
//! | file | what |
//! |---|---|
//! | [`mad`] | the datagram of 256 octets that carries each message, and the dispatch by message |
//! | [`req`], [`path`] | REQ: requests a connection and proposes a path |
//! | [`ip`] | addresses and port of an IP connection, in the private data of a REQ or SIDR REQ |
//! | [`mra`] | MRA: announces that the reply will be late |
//! | [`rep`], [`rtu`] | REP: accepts a request; RTU: confirms a REP |
//! | [`rej`], [`reason`] | REJ: rejects a message with a reason |
//! | [`disconnect`] | DREQ: requests to end the connection; DREP: confirms its end |
//! | [`sidr`] | SIDR REQ: asks for the queue pair of a datagram service; SIDR REP: returns it |
//! | [`sidr_trailer`] | this implementation's addition to the private data of SIDR messages |
//! | [`timeout`] | times that messages encode in 5 bits |
//!
//! No message carries the length of its private data. A receiver gets the whole field, padded with
//! zeros.
//!
//! Some fields are not supported. They are ignored when received and zero when sent:
//!
//! - the fields of other services: EE contexts and Q_Keys of the reliable datagram, extended
//!   transports;
//! - the fields of enhanced connection establishment;
//! - the reserved fields.
//!
//! The messages LAP and APR are not supported. Linux ignores them on Ethernet.

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
pub mod sidr;
pub mod sidr_trailer;
pub mod timeout;

pub use disconnect::{Drep, Dreq};
pub use ip::{IpHeader, IpHeaderError, ServiceId, UDP_Q_KEY};
pub use mad::{Answered, MAD_SIZE, Mad, MadError, Message};
pub use mra::Mra;
pub use path::Path;
pub use reason::Reason;
pub use rej::Rej;
pub use rep::Rep;
pub use req::Req;
pub use rtu::Rtu;
pub use sidr::{SidrRep, SidrReq, SidrStatus};
pub use timeout::Timeout;

pub use crate::rocev2::PathMtu;

#[cfg(test)]
mod tests;
