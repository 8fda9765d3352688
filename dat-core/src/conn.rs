//! The passive side of a connection: service points and connection requests.

pub mod cr;
pub mod csp;
pub mod psp;
mod qualifier;
mod request_handler;
pub mod rsp;

pub use qualifier::{Qualifier, port};
