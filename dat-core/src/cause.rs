//! The last cause of an endpoint: why its connection ended, its operation failed or its message
//! waits.

use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dat_sys::*;

use crate::provider::PostError;
use crate::provider::cause::{LocalUse, Refusal};

pub use crate::provider::Cause;

/// The last cause of an endpoint. It is kept until the next connection begins.
#[derive(Default)]
pub struct LastCause(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    cause: Option<Cause>,
    peer: Option<IpAddr>,
}

impl LastCause {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets the cause, because a connection begins. `peer` is its peer, if it is known yet.
    pub(crate) fn begin(&self, peer: Option<IpAddr>) {
        *self.kept() = Kept { cause: None, peer };
    }

    /// Records the peer of the connection.
    pub(crate) fn set_peer(&self, peer: IpAddr) {
        self.kept().peer = Some(peer);
    }

    /// The peer of the connection, if it is known.
    pub(crate) fn peer(&self) -> Option<IpAddr> {
        self.kept().peer
    }

    /// Keeps a cause. The first failure of a connection is its cause, because later ones follow
    /// from it. A wait or a refused post is kept until the next cause.
    pub(crate) fn keep(&self, cause: Cause) {
        let mut kept = self.kept();
        if kept.cause.as_ref().is_none_or(Cause::connection_goes_on) {
            kept.cause = Some(cause);
        }
    }

    /// Keeps and returns the cause of a refused post, if its memory is the reason.
    pub(crate) fn keep_refused_post(&self, usage: LocalUse, error: PostError) -> Option<String> {
        let why = match error {
            PostError::Key => Refusal::Unknown,
            PostError::Bounds => Refusal::Bounds,
            PostError::Domain => Refusal::Zone,
            PostError::Access { .. } => Refusal::Right,
            PostError::Full | PostError::Unsupported => return None,
        };
        let cause = Cause::PostRefused { usage, why };
        let sentence = cause.about(None).to_string();
        self.keep(cause);
        Some(sentence)
    }

    /// Keeps the cause that a completion shows, if the transport has not reported a better one.
    /// Does nothing for a flushed operation: its cause is that of the end of the connection.
    pub(crate) fn keep_failed(&self, data: &DAT_DTO_COMPLETION_EVENT_DATA) {
        if let Some(cause) = of_completion(data) {
            self.keep(cause);
        }
    }

    /// The last cause as a sentence. `None` if there is none.
    pub fn sentence(&self) -> Option<String> {
        let kept = self.kept();
        kept.cause.as_ref().map(|cause| cause.about(kept.peer).to_string())
    }
}

/// What the status of a failed operation says about its cause.
fn of_completion(data: &DAT_DTO_COMPLETION_EVENT_DATA) -> Option<Cause> {
    Some(match data.status {
        DAT_DTO_ERR_LOCAL_PROTECTION => {
            let usage = match data.operation {
                DAT_DTO_RECEIVE | DAT_DTO_RECEIVE_WITH_INVALIDATE => LocalUse::Receive,
                DAT_DTO_RDMA_READ => LocalUse::Sink,
                _ => LocalUse::Source,
            };
            Cause::LocalMemory { usage, why: Refusal::UnknownOrRight }
        }
        DAT_DTO_ERR_REMOTE_ACCESS => Cause::RefusedByPeer { access: None, why: None },
        DAT_DTO_ERR_REMOTE_RESPONDER => Cause::PeerFailed,
        DAT_DTO_ERR_RECEIVER_NOT_READY => Cause::PeerHasNoReceive { octets: None, waits: false },
        DAT_DTO_ERR_TRANSPORT => Cause::Silent,
        DAT_RMR_OPERATION_FAILED => Cause::BindFailed,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::cause::Octets;

    const OCTETS: Octets = Octets { count: 64, whole: true };

    #[test]
    fn the_first_failure_counts_and_a_wait_does_not() {
        let last = LastCause::default();
        assert_eq!(last.sentence(), None);
        last.begin(Some(IpAddr::from([10, 0, 0, 2])));
        last.keep(Cause::NoReceive { octets: OCTETS, on_srq: false, waits: true });
        assert_eq!(
            last.sentence().as_deref(),
            Some(
                "peer 10.0.0.2 sent 64 octets and no receive is posted on this endpoint: post \
                 receives before you connect or accept"
            )
        );
        last.keep(Cause::ProcessGone);
        last.keep(Cause::Disconnected { by_peer: true });
        let gone = "the program of peer 10.0.0.2 has ended without dat_ep_disconnect";
        assert!(last.sentence().is_some_and(|sentence| sentence.starts_with(gone)));
        last.begin(None);
        assert_eq!(last.sentence(), None);
    }
}
