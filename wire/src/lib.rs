//! Wire codecs of RDMA protocols: bytes in, typed headers out, and back.
//!
//! No I/O, no allocation on the data path, no `unsafe`. Every parser takes what a peer may have sent and answers
//! with a header, with "more bytes needed", or with a typed error that knows what the peer must be told.
//! Emitters write into buffers of the caller, whose size each of them states.

#![forbid(unsafe_code)]

mod bytes;
pub mod cm;
pub mod iwarp;
pub mod rocev2;
