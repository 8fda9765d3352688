//! Properties that hold for any header and for any octets that a peer may send.

mod cm;
mod iwarp;
mod rocev2;
