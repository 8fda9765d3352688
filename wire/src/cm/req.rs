//! REQ: requests a connection (IBA volume 1, section 12.6.5).

use super::octets::{Body, private, put, put_private, put_u24, u16_at, u24_at, u32_at, u64_at};
use super::{Path, ServiceId, Timeout};
use crate::rocev2::Psn;

/// A message that requests a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Req<'a> {
    /// The sender's communication ID, which identifies the connection at the sender.
    pub local_id: u32,
    /// The requested service.
    pub service: ServiceId,
    /// The GUID of the sender's channel adapter.
    pub ca_guid: u64,
    /// The sender's queue pair, 24 bits.
    pub qpn: u32,
    /// The sender's responder resources: the number of the receiver's READs and atomic operations
    /// that the sender can hold at the same time.
    pub responder_resources: u8,
    /// The number of READs and atomic operations that the sender would like to have outstanding.
    pub initiator_depth: u8,
    /// The time that the sender waits for a reply before it repeats the message. It does not
    /// include the travel time of packets.
    pub remote_response_timeout: Timeout,
    /// The transport service type, 2 bits. [`RC`](Self::RC) is 0.
    pub transport: u8,
    /// Whether the sender's ACKs carry credits.
    pub flow_control: bool,
    /// The PSN with which the *receiver's* send queue must start.
    pub starting_psn: Psn,
    /// The maximum time that the sender takes to reply.
    pub local_response_timeout: Timeout,
    /// The number of times that a packet without acknowledgement is repeated, 3 bits.
    pub retry_count: u8,
    /// The partition key.
    pub p_key: u16,
    /// The path MTU, 4 bits: the code of a [`PathMtu`](super::PathMtu), or a value unknown to this
    /// crate.
    pub path_mtu: u8,
    /// The number of times that a packet is repeated if no receive was posted for it, 3 bits. 7
    /// means that there is no limit.
    pub rnr_retry_count: u8,
    /// The number of times that the receiver must repeat its REP, 4 bits.
    pub max_cm_retries: u8,
    /// Whether the sender's queue pair uses a shared receive queue.
    pub srq: bool,
    /// The primary path.
    pub primary: Path,
    /// The alternate path, for failover. It is present if its local LID is not 0.
    pub alternate: Option<Path>,
    /// The private data, at most [`MAX_PRIVATE`](Self::MAX_PRIVATE) octets. The private data of an
    /// IP connection start with an [`IpHeader`](super::IpHeader).
    pub private: &'a [u8],
}

const PRIMARY_PATH_OFFSET: usize = 52;
const ALTERNATE_PATH_OFFSET: usize = 96;

impl<'a> Req<'a> {
    /// The size of the private data field in octets.
    pub const MAX_PRIVATE: usize = 92;
    /// The transport service type of a reliable connection.
    pub const RC: u8 = 0;

    pub(super) fn parse(body: &'a Body) -> Self {
        Req {
            local_id: u32_at(body, 0),
            service: ServiceId(u64_at(body, 8)),
            ca_guid: u64_at(body, 16),
            qpn: u24_at(body, 32),
            responder_resources: body[35],
            initiator_depth: body[39],
            remote_response_timeout: Timeout::new(body[43] >> 3),
            transport: body[43] >> 1 & 0x3,
            flow_control: body[43] & 0x1 != 0,
            starting_psn: Psn::new(u24_at(body, 44)),
            local_response_timeout: Timeout::new(body[47] >> 3),
            retry_count: body[47] & 0x7,
            p_key: u16_at(body, 48),
            path_mtu: body[50] >> 4,
            rnr_retry_count: body[50] & 0x7,
            max_cm_retries: body[51] >> 4,
            srq: body[51] & 0x8 != 0,
            primary: Path::parse(body, PRIMARY_PATH_OFFSET),
            alternate: (u16_at(body, ALTERNATE_PATH_OFFSET) != 0)
                .then(|| Path::parse(body, ALTERNATE_PATH_OFFSET)),
            private: private(body, Self::MAX_PRIVATE),
        }
    }

    pub(super) fn emit(&self, body: &mut Body) {
        put(body, 0, &self.local_id.to_be_bytes());
        put(body, 8, &self.service.0.to_be_bytes());
        put(body, 16, &self.ca_guid.to_be_bytes());
        put_u24(body, 32, self.qpn);
        body[35] = self.responder_resources;
        body[39] = self.initiator_depth;
        body[43] = self.remote_response_timeout.code() << 3
            | (self.transport & 0x3) << 1
            | u8::from(self.flow_control);
        put_u24(body, 44, self.starting_psn.value());
        body[47] = self.local_response_timeout.code() << 3 | self.retry_count & 0x7;
        put(body, 48, &self.p_key.to_be_bytes());
        body[50] = self.path_mtu << 4 | self.rnr_retry_count & 0x7;
        body[51] = self.max_cm_retries << 4 | u8::from(self.srq) << 3;
        self.primary.emit(body, PRIMARY_PATH_OFFSET);
        if let Some(alternate) = &self.alternate {
            alternate.emit(body, ALTERNATE_PATH_OFFSET);
        }
        put_private(body, Self::MAX_PRIVATE, self.private);
    }
}
