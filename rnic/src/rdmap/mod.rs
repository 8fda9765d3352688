//! RDMAP over DDP over MPA over a byte stream (RFC 5040, 5041, 5044, 6581).

pub mod setup;
pub mod stream;
pub mod vec;
