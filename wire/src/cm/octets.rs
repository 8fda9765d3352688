//! Fields of a message by their place. The places are constants and messages have one size, so none is outside.

use std::net::Ipv6Addr;

/// What follows the header of a MAD: where the offsets of the messages count from.
pub(super) type Body = [u8; 232];

pub(super) fn u16_at(body: &Body, at: usize) -> u16 {
    u16::from_be_bytes([body[at], body[at + 1]])
}

/// 24 bits.
pub(super) fn u24_at(body: &Body, at: usize) -> u32 {
    u32::from_be_bytes([0, body[at], body[at + 1], body[at + 2]])
}

pub(super) fn u32_at(body: &Body, at: usize) -> u32 {
    u32::from_be_bytes([body[at], body[at + 1], body[at + 2], body[at + 3]])
}

pub(super) fn u64_at(body: &Body, at: usize) -> u64 {
    u64::from(u32_at(body, at)) << 32 | u64::from(u32_at(body, at + 4))
}

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
