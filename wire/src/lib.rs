//! Wire codecs of RDMA protocols: they parse octets into typed headers and emit headers as octets.
//!
//! The codecs use no I/O, no allocation on the data path and no `unsafe`. A parser accepts any
//! octets that a peer may send. It returns a header, "more octets needed", or a typed error that
//! contains the report for the peer. An emitter writes into a buffer of the caller, and documents
//! the size that it needs.

#![forbid(unsafe_code)]

mod bytes;
pub mod cm;
pub mod iwarp;
pub mod rocev2;
