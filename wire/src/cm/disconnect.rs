//! DREQ and DREP: messages that end a connection (IBA volume 1, sections 12.6.10 and 12.6.11).

use super::octets::{Body, private, put, put_private, put_u24, u24_at, u32_at};

/// DREQ: a request to end the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dreq<'a> {
    /// The sender's communication ID.
    pub local_id: u32,
    /// The receiver's communication ID.
    pub remote_id: u32,
    /// The receiver's queue pair, 24 bits. A message with another number does not come from the
    /// peer.
    pub remote_qpn: u32,
    /// The private data, at most [`MAX_PRIVATE`](Self::MAX_PRIVATE) octets.
    pub private: &'a [u8],
}

impl<'a> Dreq<'a> {
    /// The size of the private data field in octets.
    pub const MAX_PRIVATE: usize = 220;

    pub(super) fn parse(body: &'a Body) -> Self {
        Dreq {
            local_id: u32_at(body, 0),
            remote_id: u32_at(body, 4),
            remote_qpn: u24_at(body, 8),
            private: private(body, Self::MAX_PRIVATE),
        }
    }

    pub(super) fn emit(&self, body: &mut Body) {
        put(body, 0, &self.local_id.to_be_bytes());
        put(body, 4, &self.remote_id.to_be_bytes());
        put_u24(body, 8, self.remote_qpn);
        put_private(body, Self::MAX_PRIVATE, self.private);
    }
}

/// DREP: the confirmation that the connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drep<'a> {
    /// The sender's communication ID.
    pub local_id: u32,
    /// The receiver's communication ID.
    pub remote_id: u32,
    /// The private data, at most [`MAX_PRIVATE`](Self::MAX_PRIVATE) octets.
    pub private: &'a [u8],
}

impl<'a> Drep<'a> {
    /// The size of the private data field in octets.
    pub const MAX_PRIVATE: usize = 224;

    pub(super) fn parse(body: &'a Body) -> Self {
        Drep {
            local_id: u32_at(body, 0),
            remote_id: u32_at(body, 4),
            private: private(body, Self::MAX_PRIVATE),
        }
    }

    pub(super) fn emit(&self, body: &mut Body) {
        put(body, 0, &self.local_id.to_be_bytes());
        put(body, 4, &self.remote_id.to_be_bytes());
        put_private(body, Self::MAX_PRIVATE, self.private);
    }
}
