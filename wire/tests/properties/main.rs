//! What holds for any header and for any octets a peer may send.

mod cm;
mod iwarp;
mod rocev2;
