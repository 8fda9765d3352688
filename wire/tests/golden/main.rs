//! Every frame of the golden captures parses, and re-encodes to the same octets.

mod capture;
mod cm;
mod iwarp;
mod rocev2;
mod tcp;
