//! RTU ("ready to use"): the reply to a REP (IBA volume 1, section 12.6.9).

use super::octets::{Body, private, put, put_private, u32_at};

/// A message that confirms a REP: the connection is ready to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rtu<'a> {
    /// The sender's communication ID.
    pub local_id: u32,
    /// The receiver's communication ID.
    pub remote_id: u32,
    /// The private data, at most [`MAX_PRIVATE`](Self::MAX_PRIVATE) octets.
    pub private: &'a [u8],
}

impl<'a> Rtu<'a> {
    /// The size of the private data field in octets.
    pub const MAX_PRIVATE: usize = 224;

    pub(super) fn parse(body: &'a Body) -> Self {
        Rtu {
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
