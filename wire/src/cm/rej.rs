//! REJ: rejects a message, or reports that the sender has given up (IBA volume 1, section 12.6.7).

use super::octets::{Body, private, put, put_private, u16_at, u32_at};
use super::{Answered, MadError, Reason};

/// A message that rejects another message, or reports that its sender has given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rej<'a> {
    /// The sender's communication ID. 0 if the sender never had an ID for this connection.
    pub local_id: u32,
    /// The receiver's communication ID. 0 if the receiver has never sent an ID.
    pub remote_id: u32,
    /// The rejected message.
    pub answered: Answered,
    /// The reason.
    pub reason: Reason,
    /// Additional rejection information: an acceptable value, or for [`Reason::TIMEOUT`] the
    /// sender's CA GUID. At most [`MAX_ARI`](Self::MAX_ARI) octets.
    pub ari: &'a [u8],
    /// The private data, at most [`MAX_PRIVATE`](Self::MAX_PRIVATE) octets.
    pub private: &'a [u8],
}

const ARI_OFFSET: usize = 12;

impl<'a> Rej<'a> {
    /// The size of the private data field in octets.
    pub const MAX_PRIVATE: usize = 148;
    /// The size of the additional rejection information field in octets.
    pub const MAX_ARI: usize = 72;

    pub(super) fn parse(body: &'a Body) -> Result<Self, MadError> {
        let ari_len = usize::from(body[9] >> 1);
        Ok(Rej {
            local_id: u32_at(body, 0),
            remote_id: u32_at(body, 4),
            answered: Answered::parse(body[8])?,
            reason: Reason(u16_at(body, 10)),
            ari: &body[ARI_OFFSET..ARI_OFFSET + Self::MAX_ARI][..ari_len.min(Self::MAX_ARI)],
            private: private(body, Self::MAX_PRIVATE),
        })
    }

    pub(super) fn emit(&self, body: &mut Body) {
        assert!(
            self.ari.len() <= Self::MAX_ARI,
            "{} octets of information on a REJ",
            self.ari.len()
        );
        put(body, 0, &self.local_id.to_be_bytes());
        put(body, 4, &self.remote_id.to_be_bytes());
        body[8] = self.answered.octet();
        body[9] = (self.ari.len() as u8) << 1;
        put(body, 10, &self.reason.0.to_be_bytes());
        put(body, ARI_OFFSET, self.ari);
        put_private(body, Self::MAX_PRIVATE, self.private);
    }
}
