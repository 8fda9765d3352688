//! MRA: announces that the reply to a message will be late (IBA volume 1, section 12.6.6).

use super::octets::{Body, private, put, put_private, u32_at};
use super::{Answered, MadError, Timeout};

/// Announces that the reply to a REQ or REP will be late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mra<'a> {
    /// The sender's communication ID.
    pub local_id: u32,
    /// The receiver's communication ID.
    pub remote_id: u32,
    /// The message whose reply will be late.
    pub answered: Answered,
    /// The maximum time from the MRA until the reply arrives.
    pub service_timeout: Timeout,
    /// The private data, at most [`MAX_PRIVATE`](Self::MAX_PRIVATE) octets.
    pub private: &'a [u8],
}

impl<'a> Mra<'a> {
    /// The size of the private data field in octets.
    pub const MAX_PRIVATE: usize = 222;

    pub(super) fn parse(body: &'a Body) -> Result<Self, MadError> {
        Ok(Mra {
            local_id: u32_at(body, 0),
            remote_id: u32_at(body, 4),
            answered: Answered::parse(body[8])?,
            service_timeout: Timeout::new(body[9] >> 3),
            private: private(body, Self::MAX_PRIVATE),
        })
    }

    pub(super) fn emit(&self, body: &mut Body) {
        put(body, 0, &self.local_id.to_be_bytes());
        put(body, 4, &self.remote_id.to_be_bytes());
        body[8] = self.answered.octet();
        body[9] = self.service_timeout.code() << 3;
        put_private(body, Self::MAX_PRIVATE, self.private);
    }
}
