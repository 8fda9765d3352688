//! The passive side of a connection: service points and connection requests.

pub mod cr;
pub mod csp;
pub mod psp;
mod request_handler;
pub mod rsp;

use crate::error::{Error, Result};
use crate::provider::Port;

/// Checks the qualifier that a call names. It is the argument at position 2. No service point has
/// the qualifier 0, which stands for any free port in the transports' own calls.
fn check_qualifier(port: Port) -> Result<()> {
    if port == Port::Qualifier(0) { Err(Error::arg(2)) } else { Ok(()) }
}
