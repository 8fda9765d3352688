//! Service ID resolution, SIDR: asks for the queue pair of a datagram service (IBA volume 1,
//! section 12.11, tables 119 and 120).
//!
//! A SIDR REQ names a service, and the SIDR REP returns the service's queue pair and Q_Key. The two
//! messages make no connection: no other message follows, and the REQ does not contain a queue
//! pair of its sender.

use std::fmt;

use super::octets::{Body, private, put, put_private, put_u24, u16_at, u24_at, u32_at, u64_at};
use super::{IpHeader, ServiceId};

/// A message that asks for the queue pair of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SidrReq<'a> {
    /// The ID of the request, which the sender chooses and the reply repeats. Linux matches a
    /// request only by this ID, whichever host sent it, so the ID should be random.
    pub request_id: u32,
    /// The partition key.
    pub p_key: u16,
    /// The requested service.
    pub service: ServiceId,
    /// The private data, at most [`MAX_PRIVATE`](Self::MAX_PRIVATE) octets. For a service of the
    /// RDMA CM they start with an [`IpHeader`], as in a REQ.
    pub private: &'a [u8],
}

impl<'a> SidrReq<'a> {
    /// The size of the private data field in octets.
    pub const MAX_PRIVATE: usize = 216;
    /// The maximum size of the consumer's private data in octets, after an [`IpHeader`].
    pub const MAX_CONSUMER_PRIVATE: usize = Self::MAX_PRIVATE - IpHeader::SIZE;

    pub(super) fn parse(body: &'a Body) -> Self {
        SidrReq {
            request_id: u32_at(body, 0),
            p_key: u16_at(body, 4),
            service: ServiceId(u64_at(body, 8)),
            private: private(body, Self::MAX_PRIVATE),
        }
    }

    pub(super) fn emit(&self, body: &mut Body) {
        put(body, 0, &self.request_id.to_be_bytes());
        put(body, 4, &self.p_key.to_be_bytes());
        put(body, 8, &self.service.0.to_be_bytes());
        put_private(body, Self::MAX_PRIVATE, self.private);
    }
}

/// A message that answers a [`SidrReq`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SidrRep<'a> {
    /// The ID in the request.
    pub request_id: u32,
    /// The result. The queue pair and the Q_Key are valid only if it is
    /// [`SUCCESS`](SidrStatus::SUCCESS).
    pub status: SidrStatus,
    /// The service's queue pair, 24 bits.
    pub qpn: u32,
    /// The service in the request.
    pub service: ServiceId,
    /// The key that datagrams to the queue pair must contain.
    pub q_key: u32,
    /// Additional information, such as the destination of a [`REDIRECT`](SidrStatus::REDIRECT). At
    /// most [`MAX_INFO`](Self::MAX_INFO) octets.
    pub info: &'a [u8],
    /// The private data, at most [`MAX_PRIVATE`](Self::MAX_PRIVATE) octets. No header precedes
    /// them, so all of them belong to the consumer.
    pub private: &'a [u8],
}

const INFO_OFFSET: usize = 24;

impl<'a> SidrRep<'a> {
    /// The size of the private data field in octets.
    pub const MAX_PRIVATE: usize = 136;
    /// The size of the additional information field in octets.
    pub const MAX_INFO: usize = 72;

    pub(super) fn parse(body: &'a Body) -> Self {
        let info_len = usize::from(body[5]).min(Self::MAX_INFO);
        SidrRep {
            request_id: u32_at(body, 0),
            status: SidrStatus(body[4]),
            qpn: u24_at(body, 8),
            service: ServiceId(u64_at(body, 12)),
            q_key: u32_at(body, 20),
            info: &body[INFO_OFFSET..INFO_OFFSET + Self::MAX_INFO][..info_len],
            private: private(body, Self::MAX_PRIVATE),
        }
    }

    pub(super) fn emit(&self, body: &mut Body) {
        assert!(
            self.info.len() <= Self::MAX_INFO,
            "{} octets of information on a SIDR REP, but at most {} fit",
            self.info.len(),
            Self::MAX_INFO
        );
        put(body, 0, &self.request_id.to_be_bytes());
        body[4] = self.status.0;
        body[5] = self.info.len() as u8;
        put_u24(body, 8, self.qpn);
        put(body, 12, &self.service.0.to_be_bytes());
        put(body, 20, &self.q_key.to_be_bytes());
        put(body, INFO_OFFSET, self.info);
        put_private(body, Self::MAX_PRIVATE, self.private);
    }
}

/// The result of a [`SidrReq`]. It may contain any number, because a peer may send any.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SidrStatus(pub u8);

impl SidrStatus {
    /// The SIDR REP contains the service's queue pair.
    pub const SUCCESS: Self = SidrStatus(0);
    /// No program offers the service at this host.
    pub const UNSUPPORTED: Self = SidrStatus(1);
    /// The service has rejected the request.
    pub const REJECT: Self = SidrStatus(2);
    /// The service has no queue pair available.
    pub const NO_QP: Self = SidrStatus(3);
    /// Another port offers the service. The additional information names the port.
    pub const REDIRECT: Self = SidrStatus(4);
    /// The class version of the request is not supported.
    pub const UNSUPPORTED_VERSION: Self = SidrStatus(5);

    /// Every status that the standard defines.
    pub const ALL: &[Self] = &[
        Self::SUCCESS,
        Self::UNSUPPORTED,
        Self::REJECT,
        Self::NO_QP,
        Self::REDIRECT,
        Self::UNSUPPORTED_VERSION,
    ];

    const fn description(self) -> Option<&'static str> {
        Some(match self {
            Self::SUCCESS => "success",
            Self::UNSUPPORTED => "service ID not supported",
            Self::REJECT => "rejected by the service",
            Self::NO_QP => "no queue pair available",
            Self::REDIRECT => "redirected to another port",
            Self::UNSUPPORTED_VERSION => "unsupported class version",
            _ => return None,
        })
    }
}

impl fmt::Display for SidrStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.description() {
            Some(description) => f.write_str(description),
            None => write!(f, "status {}", self.0),
        }
    }
}

impl fmt::Debug for SidrStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SidrStatus({}: {self})", self.0)
    }
}
