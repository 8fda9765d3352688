//! The last cause of an endpoint: why its connection ended, its operation failed or its message
//! waits.

mod sentence;

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use dat_sys::*;

use crate::provider::cause::{LocalUse, Octets, Refusal};
use crate::provider::{PostError, WcOp};

pub(crate) use self::sentence::about;
pub use crate::provider::Cause;

/// The last cause of an endpoint. It is kept until the next connection begins.
#[derive(Default)]
pub struct LastCause {
    kept: Mutex<Kept>,
    /// [`wait_key`] of the wait that is kept, or 0 if no wait is kept. The data path takes the lock
    /// only if a message waits for another reason than the last one.
    kept_wait: AtomicU64,
}

#[derive(Default)]
struct Kept {
    cause: Option<Cause>,
    /// Whether the cause says no more than how the connection has ended.
    is_general: bool,
    peer: Option<IpAddr>,
}

impl LastCause {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets the cause, because a connection begins. `peer` is its peer, if it is known yet.
    pub(crate) fn begin(&self, peer: Option<IpAddr>) {
        *self.kept() = Kept { peer, ..Kept::default() };
        self.kept_wait.store(0, Ordering::Relaxed);
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
        let key = wait_key(&cause);
        if key != 0 && self.kept_wait.load(Ordering::Relaxed) == key {
            return;
        }
        let mut kept = self.kept();
        if kept.is_general || kept.cause.as_ref().is_none_or(Cause::connection_goes_on) {
            (kept.cause, kept.is_general) = (Some(cause), false);
            self.kept_wait.store(key, Ordering::Relaxed);
        }
    }

    /// Keeps how the connection has ended, if the transport has not reported a cause. A failed
    /// operation whose completion is taken later may say more.
    pub(crate) fn keep_end(&self, cause: Cause) {
        let mut kept = self.kept();
        if kept.cause.as_ref().is_none_or(Cause::connection_goes_on) {
            (kept.cause, kept.is_general) = (Some(cause), true);
            self.kept_wait.store(0, Ordering::Relaxed);
        }
    }

    /// Keeps why the endpoint has not found out a peer to which it would send datagrams.
    pub(crate) fn keep_failure_of(&self, peer: IpAddr, cause: Cause) {
        self.begin(Some(peer));
        self.keep_end(cause);
    }

    /// Keeps and returns the cause of a refused post, if its memory is the reason.
    pub(crate) fn keep_refused_post(&self, usage: LocalUse, error: PostError) -> Option<Cause> {
        let why = match error {
            PostError::Key => Refusal::Unknown,
            PostError::Bounds => Refusal::Bounds,
            PostError::Domain => Refusal::Domain,
            PostError::Access { .. } => Refusal::Right,
            PostError::Full | PostError::Unsupported => return None,
        };
        let cause = Cause::PostRefused { usage, why };
        self.keep(cause.clone());
        Some(cause)
    }

    /// Keeps the cause that a completion shows, if the transport has not reported a better one.
    /// Does nothing for a flushed operation: its cause is that of the end of the connection.
    pub(crate) fn keep_failed(&self, op: WcOp, status: DAT_DTO_COMPLETION_STATUS) {
        if let Some(cause) = of_completion(op, status) {
            self.keep(cause);
        }
    }

    /// The last cause as a sentence. `None` if there is none.
    pub fn sentence(&self) -> Option<String> {
        let kept = self.kept();
        kept.cause.as_ref().map(|cause| about(cause, kept.peer).to_string())
    }
}

/// A number for a message that waits. Waits with the same number have the same sentence. 0 for any
/// other cause.
fn wait_key(cause: &Cause) -> u64 {
    let (kind, octets) = match cause {
        Cause::NoReceive { octets, waits: true, .. } => (1, Some(octets)),
        Cause::PeerHasNoReceive { octets, waits: true } => (2, octets.as_ref()),
        _ => return 0,
    };
    // A message has at most 2^32 octets.
    let octets = octets.map_or(0, |Octets { count, whole }| 2 + (count << 2 | u64::from(*whole)));
    octets << 2 | kind
}

/// What the status of a failed operation says about its cause.
fn of_completion(op: WcOp, status: DAT_DTO_COMPLETION_STATUS) -> Option<Cause> {
    Some(match status {
        DAT_DTO_ERR_LOCAL_PROTECTION => {
            Cause::LocalMemory { usage: op.local(), why: Refusal::UnknownOrRight }
        }
        DAT_DTO_ERR_LOCAL_LENGTH => Cause::ReceiveTooSmall { lengths: None },
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
                "peer 10.0.0.2 sent 64 octets and no receive is posted on this endpoint: post a \
                 receive for each message of the peer, the first ones before you connect or accept"
            )
        );
        let octets = Octets { count: 65, ..OCTETS };
        last.keep(Cause::NoReceive { octets, on_srq: false, waits: true });
        assert!(last.sentence().is_some_and(|sentence| sentence.contains("sent 65 octets")));
        last.keep(Cause::PeerHasNoReceive { octets: Some(octets), waits: true });
        assert!(last.sentence().is_some_and(|sentence| sentence.contains("of 65 octets waits")));
        last.keep(Cause::ProcessGone);
        last.keep(Cause::Disconnected { by_peer: true });
        let gone = "the program of peer 10.0.0.2 has ended without dat_ep_disconnect";
        assert!(last.sentence().is_some_and(|sentence| sentence.starts_with(gone)));
        last.begin(None);
        assert_eq!(last.sentence(), None);
    }

    #[test]
    fn a_failed_operation_explains_an_end_without_a_cause() {
        let last = LastCause::default();
        last.begin(None);
        last.keep_end(Cause::Disconnected { by_peer: true });
        assert!(last.sentence().is_some_and(|sentence| sentence.contains("has disconnected")));
        for status in [DAT_DTO_ERR_FLUSHED, DAT_DTO_ERR_LOCAL_LENGTH, DAT_DTO_ERR_TRANSPORT] {
            last.keep_failed(WcOp::Recv, status);
        }
        let too_small = "the peer sent a message that is longer than the receive buffer: post";
        assert!(last.sentence().is_some_and(|sentence| sentence.starts_with(too_small)));
        last.keep_end(Cause::Disconnected { by_peer: true });
        assert!(last.sentence().is_some_and(|sentence| sentence.starts_with(too_small)));
    }

    #[test]
    fn local_memory_is_named_by_its_use() {
        let beginning = |op| {
            let last = LastCause::default();
            last.keep_failed(op, DAT_DTO_ERR_LOCAL_PROTECTION);
            let sentence = last.sentence().expect("the status says why");
            sentence.split_once(" is no longer registered").expect("why it failed").0.to_owned()
        };
        let result = "the memory for the result of an RDMA read or an atomic operation";
        for op in [WcOp::Read, WcOp::FetchAdd, WcOp::CompareSwap] {
            assert_eq!(beginning(op), result, "{op:?}");
        }
        for op in [WcOp::Recv, WcOp::RecvMessageImm] {
            assert_eq!(beginning(op), "the memory of a receive", "{op:?}");
        }
        for op in [WcOp::Send, WcOp::Write, WcOp::WriteImm] {
            assert_eq!(beginning(op), "the memory of a send or an RDMA write", "{op:?}");
        }
    }

    #[test]
    fn a_wait_like_the_last_one_is_known_without_the_lock() {
        let last = LastCause::default();
        let wait = |count| Cause::NoReceive {
            octets: Octets { count, whole: false },
            on_srq: false,
            waits: true,
        };
        last.keep(wait(64));
        let lock = last.kept();
        // This call would wait for the lock for ever if it needed it.
        last.keep(wait(64));
        drop(lock);
        last.begin(None);
        last.keep(wait(64));
        assert!(last.sentence().is_some(), "the next connection has a wait of its own");
        let keys = [wait(0), wait(1), Cause::PeerHasNoReceive { octets: None, waits: true }];
        let keys = keys.map(|cause| wait_key(&cause));
        assert!(keys[0] != keys[1] && !keys.contains(&0), "{keys:?}");
        assert_eq!(wait_key(&Cause::ProcessGone), 0);
    }
}
