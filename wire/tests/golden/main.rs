//! Tests that every frame of the golden captures is parsed, and is encoded again to the same
//! octets.

mod capture;
mod cm;
mod iwarp;
mod rocev2;
mod tcp;
