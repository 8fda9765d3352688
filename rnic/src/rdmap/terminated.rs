//! What a TERMINATE message of the peer says about a mistake of this side's program.

use wire::iwarp::{Cause, Header, Terminate, UntaggedOpcode};
use work::cause::{Access, AccessKind, Cause as Told, Octets, Refusal};

use crate::cause::{access, invalidation, octets};
use crate::wqe::Wqe;

/// Returns the cause for the program of this side. `oldest_read` is the oldest read or atomic
/// operation that waits for its answer.
#[cold]
pub(super) fn told(terminate: &Terminate, oldest_read: Option<Wqe>) -> Told {
    let segment = Segment::of(terminate);
    let awaited = || oldest_read.and_then(|wqe| wqe.access());
    match terminate.cause {
        Cause::UNTAGGED_NO_BUFFER => {
            Told::PeerHasNoReceive { octets: segment.message, waits: false }
        }
        Cause::UNTAGGED_TOO_LONG => Told::PeerReceiveTooSmall { octets: segment.message },
        Cause::STREAM_CATASTROPHIC if oldest_read.is_some() => Told::PeerRefusedRead,
        Cause::RDMAP_CATASTROPHIC => Told::PeerFailed,
        cause => match refusal(cause) {
            Some(why) => {
                Told::RefusedByPeer { access: segment.access.or_else(awaited), why: Some(why) }
            }
            None => Told::Protocol { by_peer: true, what: cause.to_string() },
        },
    }
}

/// The reason for which the peer has refused an access, if this is what the cause says.
fn refusal(cause: Cause) -> Option<Refusal> {
    Some(match cause {
        Cause::TAGGED_STAG => Refusal::UnknownOrRight,
        Cause::PROTECTION_STAG | Cause::OPERATION_INVALIDATE => Refusal::Unknown,
        Cause::PROTECTION_ACCESS | Cause::PROTECTION_INVALIDATE => Refusal::Right,
        Cause::TAGGED_NOT_ASSOCIATED | Cause::PROTECTION_NOT_ASSOCIATED => Refusal::Domain,
        Cause::TAGGED_BOUNDS
        | Cause::TAGGED_TO_WRAP
        | Cause::PROTECTION_BOUNDS
        | Cause::PROTECTION_TO_WRAP => Refusal::Bounds,
        _ => return None,
    })
}

/// What a TERMINATE says about the refused segment.
#[derive(Default)]
struct Segment {
    /// The number of octets of the message up to the end of the segment.
    message: Option<Octets>,
    access: Option<Access>,
}

impl Segment {
    fn of(terminate: &Terminate) -> Segment {
        if let Some(request) = terminate.read_request {
            let len = octets(request.len.into(), true);
            let to = (request.source_stag, request.source_to);
            return Segment { access: Some(access(AccessKind::Read, to, len)), message: None };
        }
        let header = terminate.header.and_then(|header| match Header::parse(header.as_bytes()) {
            Ok(Some((header, _))) => Some(header),
            _ => None,
        });
        let Some(header) = header else { return Segment::default() };
        let payload =
            terminate.segment_len.map(|len| u64::from(len).saturating_sub(header.len() as u64));
        match header {
            Header::Tagged { stag, to, last, .. } => Segment {
                message: None,
                access: Some(Access {
                    kind: AccessKind::Write,
                    addr: Some(to),
                    octets: payload.map(|payload| octets(payload, last)),
                    key: Some(stag),
                }),
            },
            Header::Untagged { opcode, mo, last, invalidate, .. } if opcode.is_send() => Segment {
                message: payload.map(|payload| octets(u64::from(mo) + payload, last)),
                access: opcode.invalidates().then(|| invalidation(invalidate)),
            },
            Header::Untagged { opcode, .. } => Segment {
                message: (opcode == UntaggedOpcode::Immediate).then(|| octets(0, true)),
                access: None,
            },
        }
    }
}
