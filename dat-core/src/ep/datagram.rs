//! Datagram endpoints, which the IB extension defines (`DAT_IB_SERVICE_TYPE_UD`).
//!
//! A datagram endpoint sends messages to any number of peers. For each peer, dat_ep_connect finds
//! out the peer's queue pair, or dat_cr_accept tells the peer its own. Both end in an event that
//! contains an address handle, which names the peer in dat_ib_post_send_ud. Such an endpoint is
//! never connected: its state only shows which of the two calls was the last one.
//!
//! No manual page describes these calls. OFED's library 2.1.10 is the model; docs/compatibility.md
//! lists the differences.

use std::collections::{HashMap, HashSet};
use std::ffi::c_void;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dat_sys::ib::*;
use dat_sys::*;
use telemetry::Hex;
use tracing::{debug, info, warn};

use super::network::EpShared;
use super::post::{length, post_error};
use super::state::{Event, States};
use super::{BoundQp, Ep};
use crate::addr::SockAddr;
use crate::cause::{self, Cause};
use crate::error::{Error, Result};
use crate::evd::Order;
use crate::handle::{self, Node, Object};
use crate::ia::Ia;
use crate::provider::cause::LocalUse;
use crate::provider::{
    Connect, Datagram, Queue, RemoteQp, ResolveFailure, Segment, ServiceType, Transport,
};

/// The number of bits of a queue pair number.
const QPN_BITS: u32 = 24;

/// The name of a peer's adapter, to which datagrams are sent.
///
/// On a thread-safe adapter, a call that needs only the address copies it under the lock of the
/// handle. No call waits for another lock while it holds that lock, and no call pins an address
/// handle.
pub struct AddressHandle<T: Transport> {
    /// The handle of the adapter.
    ia: usize,
    peer: PeerAddress<T>,
    /// The data of the endpoint that has found out the address, and that frees it at the latest.
    owner: Arc<Mutex<Peers>>,
}

impl<T: Transport> Object for AddressHandle<T> {
    const KIND: DAT_HANDLE_TYPE = DAT_IB_HANDLE_TYPE_EXT;
    const INVALID: DAT_RETURN = DAT_INVALID_HANDLE1;
}

/// The content of an address handle.
pub struct PeerAddress<T: Transport> {
    address: T::Address,
    /// The handle of the protection zone in which the address may be used.
    pz: usize,
}

impl<T: Transport> Clone for PeerAddress<T> {
    fn clone(&self) -> Self {
        PeerAddress { address: self.address.clone(), pz: self.pz }
    }
}

impl<T: Transport> AddressHandle<T> {
    /// The content of the handle.
    pub fn peer(&self) -> &PeerAddress<T> {
        &self.peer
    }
}

/// What a datagram endpoint knows of its peers.
#[derive(Default)]
pub(super) struct Peers {
    /// The handle of the endpoint's protection zone.
    pz: usize,
    /// The attempts to resolve an address, by their numbers, with the addresses.
    resolving: HashMap<u64, SocketAddr>,
    /// The private data of events, by the `context` of the event. They are valid until
    /// dat_ib_ud_cm_free or dat_ep_free.
    private: HashMap<u64, Box<[u8]>>,
    /// The address handles that the endpoint has found out and that exist.
    addresses: HashSet<usize>,
    /// The latest number of an attempt, or `context` of an event.
    last_number: u64,
    /// The number of connects and accepts, without those that have failed at once, since the
    /// endpoint was last unconnected.
    calls: usize,
}

impl Peers {
    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }
}

fn lock(peers: &Mutex<Peers>) -> MutexGuard<'_, Peers> {
    peers.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T: Transport> Ep<T> {
    /// The service of the endpoint.
    pub(crate) fn service(&self) -> ServiceType {
        self.shared.service()
    }

    /// Starts to resolve the address of a service point: the part of dat_ep_connect that datagram
    /// endpoints do not share with others.
    pub(super) fn resolve(&self, bound: &BoundQp<T>, to: &Connect<'_>) -> Result<()> {
        let peers = self.peers()?;
        let remote = to.peer();
        self.start_call(Event::Resolve)?;
        let number = {
            let mut peers = lock(peers);
            let number = peers.next_number();
            peers.pz = bound.pz;
            peers.resolving.insert(number, remote);
            number
        };
        self.shared.conn().remote = remote.into();
        let (ia, ep, private) = (&self.ia.name, Hex(self.shared.ep), to.private.len());
        debug!(
            target: "dat::cm", ia, %ep, connection = number, to = %to.addr.ip(),
            qualifier = to.port, private, "resolving"
        );
        bound.qp.resolve(number, to).inspect_err(|_| {
            lock(peers).resolving.remove(&number);
            self.fail_call();
        })?;
        self.counters.count(DCNT_EP_CONNECT);
        self.ia.counters.count(&[DCNT_IA_CM_AH_REQ_TX]);
        Ok(())
    }

    /// Starts a connect or accept of this datagram endpoint: applies the event, which checks the
    /// state.
    pub(crate) fn start_call(&self, event: Event) -> Result<()> {
        let mut peers = lock(self.peers()?);
        self.shared.apply(event)?;
        peers.calls += 1;
        Ok(())
    }

    /// Makes the endpoint unconnected again after a failed connect or accept, unless it has dealt
    /// with another peer. The caller holds the lock, so no other call starts meanwhile.
    pub(crate) fn fail_call(&self) {
        let Some(peers) = &self.shared.peers else { return };
        let mut peers = lock(peers);
        peers.calls = peers.calls.saturating_sub(1);
        if peers.calls == 0 {
            self.retract();
        }
    }

    /// Implements dat_cr_accept for this datagram endpoint. `of_request` is the private data of the
    /// request. The caller has [started](Self::start_call) the call. The
    /// event has the request's private data, by which programs tell their peers apart.
    pub(crate) fn answer(
        &self,
        cr: Hex,
        request: T::ConnectionRequest,
        (from, of_request): (SocketAddr, &[u8]),
        private: &[u8],
    ) -> Result<()> {
        let peers = self.peers()?;
        let setup = self.setup();
        let bound = self.qp_if_ready(&setup)?;
        let (ia, ep) = (&self.ia.name, Hex(self.shared.ep));
        debug!(target: "dat::cm", ia, %cr, %ep, private = private.len(), "answered");
        lock(peers).pz = bound.pz;
        let remote = bound.qp.answer(request, private)?;
        drop(setup);
        self.shared.report_peer(peers, DAT_IB_UD_PASSIVE_REMOTE_AH, remote, (from, of_request));
        Ok(())
    }

    /// Implements dat_ib_ud_cm_free: frees the private data of the event that has this `context`.
    pub fn free_private(&self, context: u64) -> Result<()> {
        match lock(self.peers()?).private.remove(&context) {
            Some(_) => Ok(()),
            None => Err(Error::handle(DAT_INVALID_HANDLE_EP)),
        }
    }

    /// Implements dat_ib_ud_ah_free. The handle may have been found out by another endpoint of the
    /// adapter.
    ///
    /// # Safety
    /// If the adapter is not thread-safe, nobody uses a reference to the address handle.
    pub unsafe fn free_address(&self, address: *mut c_void) -> Result<()> {
        self.require_datagrams()?;
        // SAFETY: the caller fulfils the contract of this function.
        unsafe { free_address::<T>(&self.ia, address, |_| true) }
    }

    /// Refuses a call that only datagram endpoints support.
    #[inline]
    pub fn require_datagrams(&self) -> Result<()> {
        self.peers().map(drop)
    }

    #[inline]
    fn peers(&self) -> Result<&Arc<Mutex<Peers>>> {
        self.shared.peers.as_ref().ok_or_else(|| match self.ia.transport.attrs().max_datagram {
            Some(_) => Error::handle(DAT_INVALID_HANDLE_EP),
            None => Error::of(DAT_MODEL_NOT_SUPPORTED),
        })
    }

    /// Forgets the attempts of a queue pair that is gone. They end without an event.
    pub(super) fn forget_attempts(&self) {
        if let Some(peers) = &self.shared.peers {
            lock(peers).resolving.clear();
        }
    }

    /// Frees all address handles that the endpoint has found out. The endpoint has no queue pair
    /// any more, so it finds out no more of them.
    pub(super) fn free_addresses(&self) {
        let Some(peers) = &self.shared.peers else { return };
        let addresses = std::mem::take(&mut lock(peers).addresses);
        for handle in addresses {
            let handle = handle as *mut c_void;
            // Another thread may have freed the handle meanwhile, and the same handle may then
            // belong to another endpoint.
            let is_own = |node: &AddressHandle<T>| Arc::ptr_eq(&node.owner, peers);
            // SAFETY: no object depends on an address handle. The standard makes the consumer
            // responsible for concurrent uses of what is being freed.
            let _ = unsafe { free_address::<T>(&self.ia, handle, is_own) };
        }
    }
}

/// Frees an address handle of this adapter that `is_wanted` accepts.
///
/// # Safety
/// If the adapter is not thread-safe, nobody uses a reference to the address handle.
unsafe fn free_address<T: Transport>(
    ia: &Node<Ia<T>>,
    handle: *mut c_void,
    is_wanted: impl FnOnce(&AddressHandle<T>) -> bool,
) -> Result<()> {
    // SAFETY: no object depends on an address handle, and the caller guarantees that nobody uses a
    // reference to it.
    unsafe {
        handle::with_exclusive(handle, |node: &Node<AddressHandle<T>>| {
            if node.ia != ia.handle() as usize || !is_wanted(node) {
                return Err(Error::handle(DAT_INVALID_HANDLE1));
            }
            lock(&node.owner).addresses.remove(&(handle as usize));
            ia.unregister_object(node);
            drop(handle::remove(node));
            Ok(())
        })
    }
}

/// # Safety of all posts
/// The requirements of all posts in [`post`](super::post) apply.
impl<T: Transport> Node<Ep<T>> {
    /// Implements dat_ib_post_send_ud and its form with immediate data. `flags_arg` is the argument
    /// position of the completion flags. The caller has checked [`Ep::require_datagrams`].
    ///
    /// # Safety
    /// The requirements of all posts in [`post`](super::post) apply.
    pub unsafe fn post_datagram(
        &self,
        segments: &[Segment],
        cookie: u64,
        (to, qpn): (&PeerAddress<T>, u32),
        immediate: Option<u32>,
        (flags, flags_arg): (DAT_COMPLETION_FLAGS, u32),
    ) -> Result<()> {
        self.shared.state.check(States::POST_DATAGRAM)?;
        // SAFETY: the caller guarantees that no other thread replaces the queue pair during this
        // call.
        let bound = unsafe { self.qp_for_post() }?;
        if to.pz != bound.pz {
            return Err(Error::of(DAT_PROTECTION_VIOLATION));
        }
        if qpn == 0 || qpn >> QPN_BITS != 0 {
            return Err(Error::arg(5));
        }
        let known =
            super::post::REQUEST_FLAGS | bound.unsignalled | DAT_COMPLETION_SOLICITED_WAIT_FLAG;
        if flags & !known != 0 {
            return Err(Error::arg(flags_arg));
        }
        if segments.len() > bound.max_send_iov {
            return Err(Error::arg(3));
        }
        let length = length(segments);
        if length > bound.max_message {
            return Err(Error::of(DAT_LENGTH_ERROR));
        }
        let suppressed = flags & DAT_COMPLETION_SUPPRESS_FLAG != 0;
        // SAFETY: the caller guarantees that no other thread posts requests during this call.
        let claim = unsafe { self.claim(bound, cookie, suppressed) }?;
        let wr = Datagram {
            id: claim.cell as u64,
            address: &to.address,
            qpn,
            immediate,
            segments,
            signalled: !suppressed,
            solicited: flags & DAT_COMPLETION_SOLICITED_WAIT_FLAG != 0,
            quiet: flags & DAT_COMPLETION_UNSIGNALLED_FLAG != 0,
        };
        // SAFETY: the caller guarantees that the segments' memory stays valid until the request
        // completes, and that no other thread posts requests during this call.
        unsafe { bound.qp.post_datagram(&wr) }.map_err(|error| {
            bound.flow.requests.withdraw(&claim);
            self.shared.keep_refused_post(LocalUse::Source, error);
            match post_error(error) {
                error if error == Error::arg(3) => Error::arg(4),
                error => error,
            }
        })?;
        bound.flow.tally.add(DCNT_EP_POST_SEND_UD, 1);
        bound.flow.tally.add(DCNT_EP_POST_SEND_UD_DATA, length);
        Ok(())
    }
}

/// The events of a datagram endpoint.
impl<T: Transport> EpShared<T> {
    /// Records that the endpoint is unconnected again.
    pub(super) fn forget_calls(&self) {
        if let Some(peers) = &self.peers {
            lock(peers).calls = 0;
        }
    }

    /// Reports the queue pair of a peer, with a new address handle.
    pub(super) fn report_peer(
        &self,
        peers: &Arc<Mutex<Peers>>,
        what: DAT_IB_EXT_TYPE,
        remote: RemoteQp<T>,
        (peer, private): (SocketAddr, &[u8]),
    ) {
        let RemoteQp { address, qpn, own_qpn } = remote;
        let (pz, owner) = (lock(peers).pz, Arc::clone(peers));
        let peer_address = PeerAddress { address, pz };
        let ia = self.ia.handle() as usize;
        let made = self.ia.add(|_| Ok(AddressHandle::<T> { ia, peer: peer_address, owner }));
        let made = match made {
            Ok(made) => handle::pin_created(made),
            Err(error) => {
                warn!(
                    target: "dat::cm", ia = self.ia.name, ep = %Hex(self.ep), %error,
                    "there is no room for an address handle"
                );
                let error = Cause::Unreachable { why: Some(error.to_string()) };
                let number = DAT_IB_UD_CONNECTION_ERROR_EVENT;
                return self.report_unresolved(peers, peer, (number, &[]), error);
            }
        };
        lock(peers).addresses.insert(made.handle() as usize);
        let passive = what == DAT_IB_UD_PASSIVE_REMOTE_AH;
        let (ia, ep) = (&self.ia.name, Hex(self.ep));
        info!(target: "dat::cm", ia, %ep, %peer, qpn, passive, "resolved");
        self.conn().remote = peer.into();
        self.ia.counters.count(&[DCNT_IA_CM_AH_RESOLVED]);
        let of_peer = DAT_IB_ADDR_HANDLE {
            ah: made.handle().cast(),
            qpn,
            ia_addr: SockAddr::from(peer).to_sockaddr6(),
        };
        let number = DAT_IB_UD_CONNECTION_EVENT_ESTABLISHED;
        let about = (what, DAT_OP_SUCCESS);
        self.report_about_peer(peers, number, about, (of_peer, own_qpn), private);
    }

    /// Handles the success of an attempt to resolve an address.
    pub(super) fn on_resolved(
        &self,
        number: u64,
        remote: RemoteQp<T>,
        peer: SocketAddr,
        private: &[u8],
    ) {
        let Some(peers) = &self.peers else { return };
        if lock(peers).resolving.remove(&number).is_some() {
            self.report_peer(peers, DAT_IB_UD_REMOTE_AH, remote, (peer, private));
        }
    }

    /// Handles the failure of an attempt to resolve an address. The endpoint stays usable, because
    /// the failure concerns only one of its peers.
    pub(super) fn on_unresolved(&self, number: u64, why: ResolveFailure<'_>) {
        let Some(peers) = &self.peers else { return };
        let Some(peer) = lock(peers).resolving.remove(&number) else { return };
        let text = |because: Option<&dyn std::fmt::Display>| because.map(ToString::to_string);
        let error = DAT_IB_UD_CONNECTION_ERROR_EVENT;
        let (event, private, counter, cause) = match why {
            ResolveFailure::Rejected { private } => {
                let event = DAT_IB_UD_CONNECTION_REJECT_EVENT;
                (event, private, DCNT_IA_CM_USER_REJ_RX, Cause::Rejected)
            }
            ResolveFailure::Refused { because } => {
                let cause = Cause::RejectedByProvider { why: text(because) };
                (error, &[][..], DCNT_IA_CM_ERR_REFUSED, cause)
            }
            ResolveFailure::Unreachable { because } => {
                (error, &[][..], DCNT_IA_CM_ERR, Cause::Unreachable { why: text(because) })
            }
            ResolveFailure::TimedOut => {
                (error, &[][..], DCNT_IA_CM_ERR_TIMEOUT, Cause::ConnectTimedOut)
            }
        };
        self.ia.counters.count(&[counter]);
        self.report_unresolved(peers, peer, (event, private), cause);
    }

    fn report_unresolved(
        &self,
        peers: &Mutex<Peers>,
        peer: SocketAddr,
        (number, private): (DAT_IB_EVENT_NUMBER, &[u8]),
        cause: Cause,
    ) {
        let (ia, ep, because) =
            (&self.ia.name, Hex(self.ep), cause::about(&cause, Some(peer.ip())));
        info!(target: "dat::cm", ia, %ep, %peer, because = %because, "unresolved");
        self.last_cause.keep_failure_of(peer.ip(), cause);
        let what = match number {
            DAT_IB_UD_CONNECTION_REJECT_EVENT => DAT_IB_UD_CONNECT_REJECT,
            _ => DAT_IB_UD_CONNECT_ERROR,
        };
        let of_peer = DAT_IB_ADDR_HANDLE {
            ah: std::ptr::null_mut(),
            qpn: 0,
            ia_addr: SockAddr::from(peer).to_sockaddr6(),
        };
        self.report_about_peer(peers, number, (what, DAT_IB_OP_ERR), (of_peer, 0), private);
    }

    /// Reports an event about a peer. The endpoint keeps `private` for the consumer until the
    /// consumer frees it (dat_ib_ud_cm_free) or the endpoint is freed. `own_qpn` is the number by
    /// which the peer knows the endpoint's queue pair. The event reports this number in the member
    /// `val`, which OFED's library leaves as it was.
    fn report_about_peer(
        &self,
        peers: &Mutex<Peers>,
        number: DAT_IB_EVENT_NUMBER,
        (what, status): (DAT_IB_EXT_TYPE, DAT_IB_STATUS),
        (peer, own_qpn): (DAT_IB_ADDR_HANDLE, u32),
        private: &[u8],
    ) {
        let private: Box<[u8]> = private.into();
        let (private_data_size, private_data) = match private.is_empty() {
            true => (0, std::ptr::null_mut()),
            false => (private.len() as DAT_COUNT, private.as_ptr().cast_mut().cast()),
        };
        let context = {
            let mut peers = lock(peers);
            let context = peers.next_number();
            peers.private.insert(context, private);
            context
        };
        let data = DAT_CONNECTION_EVENT_DATA {
            ep_handle: self.ep as *mut c_void,
            private_data_size,
            private_data,
        };
        let extension = DAT_IB_EXTENSION_EVENT_DATA {
            r#type: what,
            status,
            val: DAT_IB_EVENT_VALUE { immed: DAT_IB_IMMED_DATA { data: own_qpn } },
            detail: DAT_IB_EVENT_DETAIL { remote_ah: peer },
            context: DAT_CONTEXT { as_64: context },
        };
        let evd = self.conn().evd.clone();
        if let Some(evd) = evd {
            let data = DAT_EVENT_DATA { connect_event_data: data };
            evd.post_extended_or_report(number, data, &extension, Order::Now);
        }
    }
}
