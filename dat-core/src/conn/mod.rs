//! The passive side of a connection: service points and connection requests.

pub mod cr;
pub mod csp;
mod door;
pub mod psp;
pub mod rsp;
