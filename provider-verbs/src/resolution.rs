//! Service ID resolution: how a datagram queue pair finds out the queue pairs of its peers, and how
//! it answers peers.
//!
//! rdma_cm resolves the address and the route of a service point, and asks the service for its
//! queue pair. Each attempt has an identifier of its own, whose context is the key of the attempt.
//! The identifier is destroyed when the attempt ends. No connection remains.

use std::collections::HashMap;
use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Instant;

use dat_core::provider::{Connect, RemoteQp, ResolveFailure, ServiceType, Upcall};
use dat_core::{Error, Result};
use dat_sys::{
    DAT_INSUFFICIENT_RESOURCES, DAT_INVALID_PARAMETER, DAT_INVALID_STATE, DAT_RESOURCE_MEMORY,
};
use rdma_core_sys::*;
use wire::cm::SidrReq;
use wire::cm::sidr_trailer::{self, DatagramQp};

use crate::Adapter;
use crate::address::{self, Address};
use crate::cm::{CmId, ConnectionRequest};
use crate::map::{self, CmEvent, Unresolved};
use crate::progress::{Due, ProgressContext, lock};
use crate::qp::QpShared;

/// The attempts of all queue pairs of an adapter.
#[derive(Default)]
pub(crate) struct Attempts {
    by_key: HashMap<AttemptKey, Attempt>,
    last_key: u64,
}

/// The key of an attempt, which is never reused. It is the context of the attempt's identifier. Its
/// highest bit distinguishes it from a pointer and from the number of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct AttemptKey(usize);

impl AttemptKey {
    const MARK: usize = 1 << (usize::BITS - 1);

    /// Returns the key with this value, if the value is a key.
    pub(crate) fn from_context(value: usize) -> Option<Self> {
        (value & Self::MARK != 0).then_some(AttemptKey(value))
    }

    pub(crate) fn context(self) -> usize {
        self.0
    }
}

/// An attempt to resolve the address of a service point.
struct Attempt {
    pair: Weak<QpShared>,
    /// The number that the consumer has given to the attempt.
    number: u64,
    peer: SocketAddr,
    id: CmId,
    /// The private data of the request, with the trailer.
    private: [u8; SidrReq::MAX_CONSUMER_PRIVATE],
    deadline: Option<Instant>,
}

/// An attempt that has ended. It owns the identifier, and perhaps the last reference to the queue
/// pair.
#[expect(dead_code, reason = "held, not looked at")]
pub(crate) struct EndedAttempt {
    id: CmId,
    pair: Option<Arc<QpShared>>,
}

/// An event of an attempt's identifier.
pub(crate) struct AttemptEvent<'e> {
    pub(crate) event: rdma_cm_event_type,
    pub(crate) status: i32,
    /// The private data of the answer, with the trailer.
    pub(crate) private: &'e [u8],
    /// The queue pair of the service, if the service has answered.
    pub(crate) service: DatagramQp,
    /// The address of the service, if the service has answered.
    pub(crate) address: ibv_ah_attr,
}

/// The time limit to resolve an address or a route, in milliseconds.
const RESOLVE_TIMEOUT_MS: i32 = 5000;

impl QpShared {
    pub(crate) fn resolve(self: &Arc<Self>, number: u64, to: &Connect<'_>) -> Result<()> {
        if !self.is_datagram {
            return Err(Error::of(DAT_INVALID_STATE));
        }
        if to.private.len() > sidr_trailer::MAX_REQ_DATA {
            return Err(Error::of(DAT_INVALID_PARAMETER));
        }
        let caller = DatagramQp { qpn: self.number, q_key: RDMA_UDP_QKEY };
        let private = sidr_trailer::emit_req(to.private, caller);
        let deadline = to.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let peer = to.peer();
        let progress = &self.progress;
        let mut attempts = lock(&progress.attempts);
        attempts.last_key += 1;
        let key = AttemptKey(attempts.last_key as usize | AttemptKey::MARK);
        let id = progress.channel.datagram_id(key.context());
        let id = id.map_err(|_| Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY))?;
        let started = id.resolve(progress.device.address, peer, RESOLVE_TIMEOUT_MS);
        if let Err(error) = started {
            drop(attempts);
            // Destroy the identifier before the upcall, after which the consumer may free the queue
            // pair.
            drop(id);
            let why = ResolveFailure::Unreachable { because: Some(&error) };
            self.call(Upcall::Unresolved { number, why });
            return Ok(());
        }
        let pair = Arc::downgrade(self);
        attempts.by_key.insert(key, Attempt { pair, number, peer, id, private, deadline });
        if let Some(at) = deadline {
            progress.set_deadline(Due::Attempt(key), at);
        }
        Ok(())
    }

    /// Answers a request of a peer with this queue pair. The call may wait about a second for the
    /// peer's MAC address.
    pub(crate) fn answer(
        &self,
        request: ConnectionRequest,
        private: &[u8],
    ) -> Result<RemoteQp<Adapter>> {
        if !self.is_datagram || request.service != ServiceType::Datagram {
            return Err(Error::of(DAT_INVALID_STATE));
        }
        if private.len() > sidr_trailer::MAX_REP_DATA {
            return Err(Error::of(DAT_INVALID_PARAMETER));
        }
        let full = || Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
        let caller = request.caller;
        let [local, peer] = request.addresses;
        let to = address::of_peer(&self.progress.device, local.ip(), peer.ip());
        let q_key = caller.map_or(RDMA_UDP_QKEY, |caller| caller.q_key);
        let address = Address::new(&self.progress, &self.domain, to.ok_or_else(full)?, q_key)
            .map_err(|_| full())?;
        let id = request.into_id().ok_or_else(full)?;
        let private = sidr_trailer::emit_rep(private);
        id.answer(&private, self.number).map_err(|_| full())?;
        let qpn = caller.map_or(0, |caller| caller.qpn);
        Ok(RemoteQp { address, qpn, own_qpn: self.number })
    }

    /// Ends all attempts without an upcall. The caller has removed the sink.
    pub(crate) fn cancel_attempts(&self) {
        if !self.is_datagram {
            return;
        }
        let is_own = |attempt: &Attempt| std::ptr::eq(attempt.pair.as_ptr(), self);
        let ended: Vec<_> = {
            let mut attempts = lock(&self.progress.attempts);
            attempts.by_key.extract_if(|_, attempt| is_own(attempt)).collect()
        };
        for (key, attempt) in &ended {
            self.progress.forget_attempt_deadline(*key, attempt);
        }
        // The identifiers are dropped without the lock. Their destruction waits until their events
        // are handled, and the handlers take the lock.
        drop(ended);
    }

    /// Reports the queue pair of a service that has answered.
    fn report_resolved(&self, (number, peer): (u64, SocketAddr), event: &AttemptEvent<'_>) {
        let DatagramQp { qpn, q_key } = event.service;
        match Address::new(&self.progress, &self.domain, event.address, q_key) {
            Ok(address) => {
                let remote = RemoteQp { address, qpn, own_qpn: self.number };
                let (private, _) = sidr_trailer::parse_rep(event.private);
                self.call(Upcall::Resolved { number, remote, peer, private });
            }
            Err(error) => {
                let why = format!("an address handle cannot be created: {error}");
                self.report_unresolved(number, &Unresolved::Unreachable(why));
            }
        }
    }

    fn report_unresolved(&self, number: u64, why: &Unresolved) {
        let why = match why {
            Unresolved::Rejected { private } => ResolveFailure::Rejected { private },
            Unresolved::Refused(status) => ResolveFailure::Refused { because: Some(status) },
            Unresolved::NoAnswer => ResolveFailure::Unreachable { because: None },
            Unresolved::Unreachable(why) => {
                ResolveFailure::Unreachable { because: Some(why as &dyn Display) }
            }
        };
        self.call(Upcall::Unresolved { number, why });
    }
}

impl ProgressContext {
    /// Handles an event of the identifier of an attempt. If the attempt ends, the caller drops the
    /// result after it has acknowledged the event.
    pub(crate) fn on_attempt_event(
        &self,
        key: AttemptKey,
        event: &AttemptEvent<'_>,
    ) -> Option<EndedAttempt> {
        let mut attempts = lock(&self.attempts);
        let Attempt { id, private, .. } = attempts.by_key.get(&key)?;
        let unreachable = |error: io::Error| Some(Unresolved::Unreachable(error.to_string()));
        let kind = map::cm_event(event.event, event.status, event.private);
        let failure = match kind {
            CmEvent::AddressResolved => unreachable(id.route(RESOLVE_TIMEOUT_MS).err()?),
            CmEvent::RouteResolved => unreachable(id.ask(private).err()?),
            CmEvent::Established => None,
            _ => Some(map::unresolved(event.event, event.status, event.private)?),
        };
        let attempt = attempts.by_key.remove(&key)?;
        drop(attempts);
        self.forget_attempt_deadline(key, &attempt);
        let Attempt { pair, number, peer, id, .. } = attempt;
        let pair = pair.upgrade();
        if let Some(pair) = &pair {
            match failure {
                Some(why) => pair.report_unresolved(number, &why),
                None => pair.report_resolved((number, peer), event),
            }
        }
        Some(EndedAttempt { id, pair })
    }

    /// Ends an attempt whose time limit has passed. The caller handles no event.
    pub(crate) fn end_due_attempt(&self, key: AttemptKey) {
        let Some(attempt) = lock(&self.attempts).by_key.remove(&key) else { return };
        let Attempt { pair, number, id, .. } = attempt;
        drop(id);
        if let Some(pair) = pair.upgrade() {
            pair.call(Upcall::Unresolved { number, why: ResolveFailure::TimedOut });
        }
    }

    fn forget_attempt_deadline(&self, key: AttemptKey, attempt: &Attempt) {
        if let Some(at) = attempt.deadline {
            self.forget_deadline(Due::Attempt(key), at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_context_of_an_attempt_is_neither_a_number_nor_a_pointer() {
        let key = AttemptKey(1 | AttemptKey::MARK);
        assert_eq!(AttemptKey::from_context(key.context()), Some(key));
        let on_stack = 0u8;
        for other in [0, 1, 0xFF_FFFF, std::ptr::from_ref(&on_stack).addr()] {
            assert_eq!(AttemptKey::from_context(other), None, "{other:#x}");
        }
    }
}
