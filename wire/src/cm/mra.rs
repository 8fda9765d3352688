//! MRA: the answer to a message will take a while (IBA volume 1, section 12.6.6).

use super::octets::{Body, private, put, put_private, u32_at};
use super::{Answered, MadError, Timeout};

/// The answer to a REQ or REP will take a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mra<'a> {
    /// The sender's communication ID.
    pub local_id: u32,
    /// The receiver's.
    pub remote_id: u32,
    /// Which message.
    pub answered: Answered,
    /// How long from now, at most.
    pub service_timeout: Timeout,
    /// At most [`MAX_PRIVATE`](Self::MAX_PRIVATE) octets.
    pub private: &'a [u8],
}

impl<'a> Mra<'a> {
    /// Octets of private data.
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
