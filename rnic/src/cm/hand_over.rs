//! Moves an undecided request from one [`Cm`] to another, whose program then answers it.
//!
//! The manager that hands the request over keeps a record of it. A caller repeats its REQ until it
//! has the answer, and the repetitions still arrive at that manager. By the record, they are not
//! taken for new requests, and the receiver of the datagrams can forward them to the manager that
//! has adopted the request ([`Cm::adopter`]). All other messages name the ID that the connection
//! has in the adopting manager.
//!
//! A record counts as an acceptance that waits for its RTU until the caller has the answer, so
//! requests that are handed over have the same limit as others (`half_open`). A record ends with
//! the connection in the adopting manager, so there are at most as many records as such
//! connections, apart from ended records that are not removed yet.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use wire::cm::{Reason, Req};

use super::connection::Conn;
use super::incoming_req::{Pending, RequestKey};
use super::{Cm, ConnId};
use crate::shrinking_map::{remove, shrink};

/// The time after which a record is first checked for whether the caller has the answer. The time
/// doubles with each further check, up to [`CHECK_INTERVAL_MAX`].
const FIRST_CHECK_AFTER: Duration = Duration::from_millis(1);
const CHECK_INTERVAL_MAX: Duration = Duration::from_millis(256);
/// The search for ended records begins only if there are at least this many records.
const MIN_RECORDS_BEFORE_SWEEP: usize = 64;

/// A request that one [`Cm`] has handed over and another can adopt. If it is dropped, nobody
/// answers it, and the next repetition of its REQ is a new request.
pub struct HandedOver {
    conn: Box<Conn>,
    alternate: bool,
}

/// The knowledge that the two managers share about a request.
pub(super) struct Adoption {
    /// The connection's ID in the manager that has adopted it. 0 while no manager has.
    id: AtomicU32,
    /// Whether the caller possibly does not have the answer yet.
    is_open: AtomicBool,
}

impl Adoption {
    pub(super) fn set_open(&self, is_open: bool) {
        self.is_open.store(is_open, Ordering::Relaxed);
    }
}

/// A request that was handed over.
struct Record {
    request: RequestKey,
    port: u16,
    /// The connection holds the other reference. So this reference is void when the connection has
    /// ended.
    adoption: Weak<Adoption>,
    /// The time between the last check and the next. `None` if the record is no longer checked,
    /// because the caller has the answer.
    check_after: Option<Duration>,
}

impl Record {
    fn has_ended(&self) -> bool {
        self.adoption.strong_count() == 0
    }

    fn is_open(&self) -> bool {
        self.adoption.upgrade().is_some_and(|adoption| adoption.is_open.load(Ordering::Relaxed))
    }
}

/// The requests that a manager has handed over, by the IDs that they had.
#[derive(Default)]
pub(super) struct Records {
    records: HashMap<u32, Record>,
    /// The number of records that the last search for ended records left.
    left: usize,
}

impl Records {
    pub(super) fn contains(&self, id: u32) -> bool {
        self.records.contains_key(&id)
    }

    /// Whether the caller of a request to this port possibly does not have the answer yet.
    pub(super) fn any_open(&self, port: u16) -> bool {
        self.records.values().any(|record| record.port == port && record.is_open())
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }
}

impl Cm {
    /// Takes a request that waits for a decision out of this manager, so that another manager of
    /// the same address can [adopt](Self::adopt) and answer it. Returns `None` if the request does
    /// not wait for a decision, for example because its caller has withdrawn it. No event follows.
    pub fn hand_over(&mut self, now: Instant, id: ConnId) -> Option<HandedOver> {
        self.conns.get(&id.0)?.pending.as_ref()?;
        self.release_peer_qp(id.0);
        let mut conn = remove(&mut self.conns, &id.0)?;
        let pending = conn.pending.take()?;
        if let Some(at) = conn.armed.take() {
            self.timers.remove(&(at, id.0));
        }
        let (source, alternate) = (conn.remote.ip(), pending.alternate);
        let adoption = Arc::new(Adoption { id: AtomicU32::new(0), is_open: true.into() });
        // Sweep whenever the number of records has doubled, so that a record costs only a constant
        // time on average.
        if self.records.records.len() >= (2 * self.records.left).max(MIN_RECORDS_BEFORE_SWEEP) {
            self.sweep_records();
        }
        self.records.records.insert(
            id.0,
            Record {
                request: conn.request_key(),
                port: conn.local.port(),
                adoption: Arc::downgrade(&adoption),
                check_after: Some(FIRST_CHECK_AFTER),
            },
        );
        self.timers.insert((now + FIRST_CHECK_AFTER, id.0));
        conn.adoption = Some(adoption);
        let port = pending.release(&mut self.listeners, source);
        self.half_open.insert(source, id.0, now);
        self.half_open.remove_undecided(source);
        self.admit_after_decision(now, port);
        self.evict_excess(now, source);
        Some(HandedOver { conn, alternate })
    }

    /// Adopts a request that another manager of the same address has handed over. It can then be
    /// answered like a request that arrived here. Returns `None` if the caller's queue pair is in
    /// another connection of this manager. In this case the caller has been refused.
    pub fn adopt(&mut self, handed_over: HandedOver) -> Option<ConnId> {
        let HandedOver { mut conn, alternate } = handed_over;
        let peer_qp = conn.peer_qp();
        if self.by_peer_qp.contains_key(&peer_qp) {
            self.challenge(peer_qp);
            self.transmits.push_back(conn.rej_of_req(Reason::STALE_CONNECTION, &[]));
            return None;
        }
        let id = self.new_id();
        conn.id = id;
        conn.pending = Some(Pending::without_place(conn.local.port(), alternate));
        self.half_open.add_undecided(conn.remote.ip());
        if let Some(adoption) = &conn.adoption {
            adoption.id.store(id, Ordering::Relaxed);
        }
        self.insert_request(*conn);
        Some(ConnId(id))
    }

    /// The ID that the connection of this REQ has in the manager that has adopted the request.
    /// `None` if the REQ belongs to no request that was handed over and adopted, or if the
    /// connection has ended. The REQ must be forwarded to that manager. Here it would be ignored.
    pub fn adopter(&self, from: IpAddr, req: &Req<'_>) -> Option<ConnId> {
        let id = self.by_request.get(&(from, req.ca_guid, req.local_id))?;
        let adoption = self.records.records.get(id)?.adoption.upgrade()?;
        let id = adoption.id.load(Ordering::Relaxed);
        (id != 0).then_some(ConnId(id))
    }

    /// Removes the record of a request whose connection has ended.
    pub(super) fn forget_if_ended(&mut self, now: Instant, request: &RequestKey) {
        if let Some(&id) = self.by_request.get(request)
            && self.records.records.get(&id).is_some_and(Record::has_ended)
        {
            self.remove_record(now, id);
        }
    }

    /// Checks whether the caller of a request has the answer. If so, the request no longer counts
    /// as one that waits.
    pub(super) fn check_record(&mut self, now: Instant, id: u32) {
        let Some(record) = self.records.records.get_mut(&id) else { return };
        if record.has_ended() {
            return self.remove_record(now, id);
        }
        record.check_after = match record.check_after {
            Some(after) if record.is_open() => Some((2 * after).min(CHECK_INTERVAL_MAX)),
            _ => None,
        };
        match record.check_after {
            Some(after) => _ = self.timers.insert((now + after, id)),
            None => {
                let source = record.request.0;
                self.half_open.remove(source, id);
                self.admit_deferred(now, source);
            }
        }
    }

    fn remove_record(&mut self, now: Instant, id: u32) {
        let Some(record) = remove(&mut self.records.records, &id) else { return };
        self.forget_request(&record.request, id);
        let source = record.request.0;
        self.half_open.remove(source, id);
        self.admit_deferred(now, source);
    }

    /// Removes the ended records that are no longer checked.
    pub(super) fn sweep_records(&mut self) {
        let mut records = std::mem::take(&mut self.records.records);
        records.retain(|&id, record| {
            let stays = record.check_after.is_some() || !record.has_ended();
            if !stays {
                self.forget_request(&record.request, id);
            }
            stays
        });
        shrink(&mut records);
        self.records = Records { left: records.len(), records };
    }
}
