//! Fields of a message by their place. The places are constants and messages have one size, so none is outside.

use std::net::Ipv6Addr;

/// What follows the header of a MAD: where the offsets of the messages count from.
pub(super) type Body = [u8; 232];

pub(super) use crate::bytes::{be16 as u16_at, be24 as u24_at, be32 as u32_at, be64 as u64_at};

pub(super) fn gid_at(body: &Body, at: usize) -> Ipv6Addr {
    let mut gid = [0; 16];
    gid.copy_from_slice(&body[at..at + 16]);
    gid.into()
}

pub(super) fn put(body: &mut Body, at: usize, octets: &[u8]) {
    body[at..at + octets.len()].copy_from_slice(octets);
}

/// The low 24 bits.
pub(super) fn put_u24(body: &mut Body, at: usize, value: u32) {
    put(body, at, &value.to_be_bytes()[1..]);
}

/// Private data, which are the end of every message; `max` is the size of their field.
pub(super) fn put_private(body: &mut Body, max: usize, private: &[u8]) {
    assert!(private.len() <= max, "{} octets of private data, where {max} fit", private.len());
    put(body, body.len() - max, private);
}

/// The whole field of the private data.
pub(super) fn private(body: &Body, max: usize) -> &[u8] {
    &body[body.len() - max..]
}
