//! REP: accepts a request (IBA volume 1, section 12.6.8).

use super::Timeout;
use super::octets::{Body, private, put, put_private, put_u24, u24_at, u32_at, u64_at};
use crate::rocev2::Psn;

/// A message that accepts a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rep<'a> {
    /// The sender's communication ID.
    pub local_id: u32,
    /// The communication ID in the REQ.
    pub remote_id: u32,
    /// The sender's queue pair, 24 bits.
    pub qpn: u32,
    /// The PSN with which the *receiver's* send queue must start.
    pub starting_psn: Psn,
    /// The sender's responder resources: the number of the receiver's READs and atomic operations
    /// that the sender can hold at the same time.
    pub responder_resources: u8,
    /// The number of READs and atomic operations that the sender will have outstanding.
    pub initiator_depth: u8,
    /// The time that the sender takes to acknowledge a packet.
    pub target_ack_delay: Timeout,
    /// The result for the REQ's alternate path, 2 bits: 0 means accepted, 1 that failover is not
    /// supported, 2 rejected.
    pub failover: u8,
    /// Whether the sender's ACKs carry credits.
    pub flow_control: bool,
    /// The number of times that the other end repeats a packet if the sender has posted no receive
    /// for it, 3 bits. 7 means that there is no limit.
    pub rnr_retry_count: u8,
    /// Whether the sender's queue pair uses a shared receive queue.
    pub srq: bool,
    /// The GUID of the sender's channel adapter.
    pub ca_guid: u64,
    /// The private data, at most [`MAX_PRIVATE`](Self::MAX_PRIVATE) octets.
    pub private: &'a [u8],
}

impl<'a> Rep<'a> {
    /// The size of the private data field in octets.
    pub const MAX_PRIVATE: usize = 196;

    pub(super) fn parse(body: &'a Body) -> Self {
        Rep {
            local_id: u32_at(body, 0),
            remote_id: u32_at(body, 4),
            qpn: u24_at(body, 12),
            starting_psn: Psn::new(u24_at(body, 20)),
            responder_resources: body[24],
            initiator_depth: body[25],
            target_ack_delay: Timeout::new(body[26] >> 3),
            failover: body[26] >> 1 & 0x3,
            flow_control: body[26] & 0x1 != 0,
            rnr_retry_count: body[27] >> 5,
            srq: body[27] & 0x10 != 0,
            ca_guid: u64_at(body, 28),
            private: private(body, Self::MAX_PRIVATE),
        }
    }

    pub(super) fn emit(&self, body: &mut Body) {
        put(body, 0, &self.local_id.to_be_bytes());
        put(body, 4, &self.remote_id.to_be_bytes());
        put_u24(body, 12, self.qpn);
        put_u24(body, 20, self.starting_psn.value());
        body[24] = self.responder_resources;
        body[25] = self.initiator_depth;
        body[26] = self.target_ack_delay.code() << 3
            | (self.failover & 0x3) << 1
            | u8::from(self.flow_control);
        body[27] = self.rnr_retry_count << 5 | u8::from(self.srq) << 4;
        put(body, 28, &self.ca_guid.to_be_bytes());
        put_private(body, Self::MAX_PRIVATE, self.private);
    }
}
