//! Wire codecs of RDMA protocols: they parse octets into typed headers and emit headers as octets.
//!
//! No I/O, no allocation on the data path, no `unsafe`. A parser accepts anything that a peer may
//! send. It returns a header, "more octets needed", or a typed error that knows what to report to
//! the peer. Emitters write into buffers of the caller; each documents the size that it needs.

#![forbid(unsafe_code)]

mod bytes;
pub mod cm;
pub mod iwarp;
pub mod rocev2;
