//! Accesses the fields of a message of communication management by offset. Offsets are constants
//! and all messages have the same size, so no access is out of bounds.

use std::net::Ipv6Addr;

/// The part of a MAD after its header. Offsets of a message's fields count from the start of this
/// part.
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

/// Writes the low 24 bits of `value`.
pub(super) fn put_u24(body: &mut Body, at: usize, value: u32) {
    put(body, at, &value.to_be_bytes()[1..]);
}

/// Writes private data, which are at the end of every message. `max` is the size of the field of
/// private data.
pub(super) fn put_private(body: &mut Body, max: usize, private: &[u8]) {
    assert!(
        private.len() <= max,
        "{} octets of private data, but at most {max} fit",
        private.len()
    );
    put(body, body.len() - max, private);
}

/// Returns the whole private data field.
pub(super) fn private(body: &Body, max: usize) -> &[u8] {
    &body[body.len() - max..]
}
