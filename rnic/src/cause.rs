//! The [causes](Cause) that the engines report: what they know about a failure when they find it.

use work::ATOMIC_SIZE;
use work::cause::{Access, AccessKind, Cause, LocalUse, Octets, Refusal};

use crate::key::KeyError;
use crate::memory::AtomicError;
use crate::qp::Work;
use crate::wqe::Wqe;

impl From<KeyError> for Refusal {
    fn from(error: KeyError) -> Self {
        match error {
            KeyError::Invalid => Refusal::Unknown,
            KeyError::Domain => Refusal::Domain,
            KeyError::Access => Refusal::Right,
            KeyError::Bounds | KeyError::Wrap => Refusal::Bounds,
        }
    }
}

impl From<AtomicError> for Refusal {
    fn from(error: AtomicError) -> Self {
        match error {
            AtomicError::Key(error) => error.into(),
            AtomicError::Misaligned => Refusal::Misaligned,
        }
    }
}

/// An access to these octets, from `to` on, of the region or window with the key `stag`.
pub(crate) fn access(kind: AccessKind, (stag, to): (u32, u64), octets: Octets) -> Access {
    Access { kind, addr: Some(to), octets: Some(octets), key: Some(stag) }
}

/// An atomic operation on the memory with the key `stag` at `to`.
pub(crate) fn atomic_access(to: (u32, u64)) -> Access {
    access(AccessKind::Atomic, to, octets(ATOMIC_SIZE.into(), true))
}

/// The invalidation of a key.
pub(crate) fn invalidation(key: u32) -> Access {
    Access { kind: AccessKind::Invalidate, addr: None, octets: None, key: Some(key) }
}

/// A message that has `octets` octets, or more unless it is `whole`.
pub(crate) fn octets(octets: u64, whole: bool) -> Octets {
    Octets { count: octets, whole }
}

impl Wqe {
    /// The access to the peer's memory that the request makes, if any.
    pub(crate) fn access(&self) -> Option<Access> {
        let to = (self.remote_key, self.remote_addr);
        let len = octets(self.len.into(), true);
        self.op.facts().remote.map(|kind| match kind {
            AccessKind::Invalidate => invalidation(self.remote_key),
            AccessKind::Write | AccessKind::Read | AccessKind::Atomic => access(kind, to, len),
        })
    }
}

impl Work {
    /// Makes the engine call `watch`, under the engine lock, with each cause of a failure or of a
    /// wait, before the work that fails completes.
    pub fn watch_causes(&mut self, watch: impl Fn(Cause) + Send + Sync + 'static) {
        self.cause_watch = Some(Box::new(watch));
    }

    /// Reports the cause of a failure or of a wait.
    #[cold]
    pub fn report(&self, cause: Cause) {
        if let Some(watch) = &self.cause_watch {
            watch(cause);
        }
    }

    /// Reports that a message of the peer must not use a receive, or finds none.
    #[cold]
    pub fn report_no_receive(&self, octets: Octets) {
        self.report(match self.recv() {
            Some(_) => Cause::ReceiveDeclined,
            None => Cause::NoReceive { octets, on_srq: self.has_srq(), waits: false },
        });
    }

    /// Reports that the peer may not access memory of this side.
    #[cold]
    pub fn report_refused(&self, access: Access, why: impl Into<Refusal>) {
        self.report(Cause::Refused { access, why: why.into() });
    }

    /// Reports that an operation may not use local memory.
    #[cold]
    pub fn report_local(&self, usage: LocalUse, why: impl Into<Refusal>) {
        self.report(Cause::LocalMemory { usage, why: why.into() });
    }
}
