//! Connection requests.

use std::mem::ManuallyDrop;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use dat_sys::ib::*;
use dat_sys::*;
use telemetry::Hex;
use tracing::{debug, warn};

use super::csp::Csp;
use super::psp::Psp;
use super::rsp::Rsp;
use crate::addr::SockAddr;
use crate::ep::state::{Event, State};
use crate::ep::{self, Ep};
use crate::error::{Error, Result};
use crate::evd::{Evd, Order};
use crate::handle::{self, Node, Object, Pin, Ref};
use crate::ia::Ia;
use crate::provider::Transport;

/// A connection request that waits for an answer. It outlives its service point (uDAPL 1.2,
/// dat_psp_free).
pub struct Cr<T: Transport> {
    /// The adapter of the request.
    pub ia: Ref<Ia<T>>,
    request: Mutex<Option<T::Request>>,
    /// The endpoint that belongs to the request: a reserved one, or one that the provider created.
    ep: Option<Ref<Ep<T>>>,
    from: SocketAddr,
    to: SocketAddr,
    /// The C forms of both addresses. Consumers get pointers to them.
    sockaddrs: (SockAddr, SockAddr),
    private: Vec<u8>,
}

/// A request as it arrives from the transport.
pub(super) struct IncomingRequest<'a, T: Transport> {
    pub(super) request: T::Request,
    pub(super) from: SocketAddr,
    pub(super) to: SocketAddr,
    pub(super) private: &'a [u8],
}

impl<T: Transport> Object for Cr<T> {
    const KIND: DAT_HANDLE_TYPE = DAT_HANDLE_TYPE_CR;
    const INVALID: DAT_RETURN = DAT_INVALID_HANDLE_CR;
}

/// Creates a connection request and reports it on the service point's EVD. An error refuses the
/// peer. May be called in upcalls.
pub(super) fn report_request<T: Transport>(
    ia: &Node<Ia<T>>,
    evd: &Node<Evd<T>>,
    service_point: DAT_SP_HANDLE,
    qualifier: DAT_CONN_QUAL,
    ep: Option<&Node<Ep<T>>>,
    incoming: IncomingRequest<'_, T>,
) -> Result<()> {
    let made = handle::pin_created(ia.add(|_| {
        Ok(Cr {
            ia: Ref::new(ia),
            request: Mutex::new(Some(incoming.request)),
            ep: ep.map(Ref::new),
            from: incoming.from,
            to: incoming.to,
            sockaddrs: (incoming.from.into(), incoming.to.into()),
            private: incoming.private.to_vec(),
        })
    })?);
    let (name, cr) = (&ia.name, Hex(made.handle() as usize));
    let (from, to, private) = (made.from, made.to, made.private.len());
    debug!(target: "dat::cm", ia = name, %cr, %from, %to, qualifier, private, "request");
    let data = DAT_CR_ARRIVAL_EVENT_DATA {
        sp_handle: service_point,
        local_ia_address_ptr: made.sockaddrs.1.as_ptr(),
        conn_qual: qualifier,
        cr_handle: made.handle(),
        truncate_flag: DAT_FALSE,
    };
    let posted = evd.post(
        DAT_CONNECTION_REQUEST_EVENT,
        DAT_EVENT_DATA { cr_arrival_event_data: data },
        Order::Now,
    );
    posted.inspect_err(|_| {
        warn!(target: "dat::cm", ia = name, %cr, "the request is refused, because its EVD is full");
        // The length of the EVD's queue is the backlog (uDAPL 1.2, dat_psp_create). Further
        // requests are refused.
        discard_unreported(made);
    })
}

/// Implements dat_cr_accept. An error has no effect on the request, the endpoint or the peer.
///
/// # Safety
/// After the call nobody uses a reference to the request, unless the call has failed and its handle
/// is still live.
pub unsafe fn accept<T: Transport>(
    cr: &Node<Cr<T>>,
    given: Option<&Node<Ep<T>>>,
    private: &[u8],
) -> Result<()> {
    if private.len() > cr.ia.transport.attrs().max_private {
        return Err(Error::arg(3));
    }
    let ep: &Node<Ep<T>> = match (&cr.ep, given) {
        (Some(own), None) => own,
        (None, Some(given)) if given.ia.handle() == cr.ia.handle() => given,
        // The consumer must pass a NULL endpoint if the request has an endpoint of its own, and
        // only then (uDAPL 1.2, dat_cr_accept).
        _ => return Err(Error::handle(DAT_INVALID_HANDLE_EP)),
    };
    let ia = cr.ia.clone();
    let request = {
        let _control = ia.control();
        let state = ep.state();
        let legal = match &cr.ep {
            None => state == State::Unconnected,
            Some(_) => matches!(state, State::PassivePending | State::TentativePending),
        };
        if !legal {
            return Err(state.refusal());
        }
        ep.check_ready()?;
        let request = cr.take().ok_or(Error::handle(DAT_INVALID_HANDLE_CR))?;
        ep.apply(Event::Accept)?;
        request
    };
    // From here on the connection request is used up. A later failure comes from the peer or the
    // network.
    let answer = ep.accept(Hex(cr.handle() as usize), request, private);
    if answer.is_err() {
        ep.retract();
    } else {
        ia.counters.count(&[DCNT_IA_SP_CR_ACCEPTED, DCNT_IA_CM_REP_TX]);
    }
    discard(cr);
    answer
}

/// A connection request whose handle is stale and that is about to be refused or handed off. The
/// thread that owns this value holds neither a handle's lock nor the control lock, because refusing
/// or handing off takes the lock of the endpoint's handle and the control lock.
#[must_use]
pub struct WithdrawnRequest<T: Transport> {
    ia: Ref<Ia<T>>,
    /// The transport's request, unless it was answered. Dropping the request refuses the peer.
    request: Option<T::Request>,
    ep: Option<Ref<Ep<T>>>,
    from: SocketAddr,
    to: SocketAddr,
    private: Vec<u8>,
}

/// The first half of dat_cr_reject, with private data as in uDAPL 2.0.
///
/// # Safety
/// After the call nobody uses a reference to the request, unless the call has failed and its handle
/// is still live.
pub unsafe fn begin_reject<T: Transport>(
    cr: &Node<Cr<T>>,
    private: &[u8],
) -> Result<WithdrawnRequest<T>> {
    if private.len() > cr.ia.transport.attrs().max_private {
        return Err(Error::arg(2));
    }
    let request = cr.take().ok_or(Error::handle(DAT_INVALID_HANDLE_CR))?;
    let (ia, handle) = (&cr.ia, Hex(cr.handle() as usize));
    debug!(target: "dat::cm", ia = ia.name, cr = %handle, private = private.len(), "rejected");
    ia.counters.count(&[DCNT_IA_SP_CR_REJECTED, DCNT_IA_CM_USER_REJ_TX]);
    Ok(withdraw(cr, Some(request)))
}

/// The first half of dat_cr_handoff. `DAT_INVALID_PARAMETER`: `qualifier` is not a connection
/// qualifier. Then the request has not changed.
///
/// # Safety
/// After the call nobody uses a reference to the request, unless the call has failed and its handle
/// is still live.
pub unsafe fn begin_hand_off<T: Transport>(
    cr: &Node<Cr<T>>,
    qualifier: DAT_CONN_QUAL,
) -> Result<WithdrawnRequest<T>> {
    // No service point has qualifier 0: when a service point is created, 0 stands for any free
    // qualifier.
    if qualifier == 0 {
        return Err(Error::arg(2));
    }
    let request = cr.take().ok_or(Error::handle(DAT_INVALID_HANDLE_CR))?;
    debug!(
        target: "dat::cm", ia = cr.ia.name, cr = %Hex(cr.handle() as usize), qualifier, "handed off"
    );
    Ok(withdraw(cr, Some(request)))
}

/// The first half of abandoning a request (dat_ia_close, abrupt).
///
/// # Safety
/// Nobody uses a reference to the request any more.
pub(crate) unsafe fn begin_abandon<T: Transport>(cr: &Node<Cr<T>>) -> WithdrawnRequest<T> {
    withdraw(cr, cr.take())
}

fn withdraw<T: Transport>(cr: &Node<Cr<T>>, request: Option<T::Request>) -> WithdrawnRequest<T> {
    let (ia, ep, private) = (cr.ia.clone(), cr.ep.clone(), cr.private.clone());
    let withdrawn = WithdrawnRequest { ia, request, ep, from: cr.from, to: cr.to, private };
    discard(cr);
    withdrawn
}

impl<T: Transport> Drop for WithdrawnRequest<T> {
    /// Refuses the peer, unless the request was answered.
    fn drop(&mut self) {
        drop(self.request.take());
        self.release_ep();
    }
}

impl<T: Transport> WithdrawnRequest<T> {
    /// dat_cr_reject: sends the rejection.
    pub fn reject(mut self, private: &[u8]) -> Result<()> {
        self.release_ep();
        self.request.take().map_or(Ok(()), |request| self.ia.transport.reject(request, private))
    }

    /// dat_cr_handoff: passes the request to the service point of another connection qualifier of
    /// this adapter, as if the request had arrived there. If no service point has this qualifier,
    /// or if the EVD of the service point is full, the peer gets a non-peer reject.
    pub fn hand_off(mut self, qualifier: DAT_CONN_QUAL) {
        // Release the endpoint before the request is visible elsewhere: the consumer may accept the
        // request with this endpoint there.
        self.release_ep();
        let Some(request) = self.request.take() else { return };
        // While the control lock is held, no service point is freed.
        let _control = self.ia.control();
        deliver(
            &self.ia,
            qualifier,
            IncomingRequest { request, from: self.from, to: self.to, private: &self.private },
        );
    }

    /// Returns the request's endpoint: a reserved one to its consumer, a tentative one to the
    /// provider.
    fn release_ep(&mut self) {
        let Some(ep) = self.ep.take() else { return };
        match ep.state() {
            State::TentativePending | State::UnconfiguredTentative => {
                let ia = &self.ia;
                // The endpoint stays alive only while it has users. This reference is therefore
                // dropped in the closure, where the endpoint certainly exists.
                let ep = ManuallyDrop::new(ep);
                // SAFETY: the endpoint belongs to this request, and no other call uses it while
                // this one retires it.
                let retired = unsafe {
                    handle::with_exclusive::<Ep<T>, _>(ep.handle(), move |node| {
                        let mut control = ia.control();
                        drop(ManuallyDrop::into_inner(ep));
                        ep::retire_tentative(node, &mut control);
                        Ok(())
                    })
                };
                debug_assert!(
                    retired.is_ok(),
                    "nobody else frees an endpoint that a request has: {retired:?}"
                );
            }
            _ => ep.retract(),
        }
    }
}

/// Passes a request to the service point of a qualifier. If no service point has the qualifier, the
/// request is dropped, which refuses the peer. The caller holds the control lock.
fn deliver<T: Transport>(
    ia: &Node<Ia<T>>,
    qualifier: DAT_CONN_QUAL,
    incoming: IncomingRequest<'_, T>,
) {
    // SAFETY: the caller has the control lock, under which no service point is freed.
    let (psp, csp, rsp) = unsafe {
        (
            ia.find::<Psp<T>>(|psp| psp.qualifier() == qualifier),
            ia.find::<Csp<T>>(|csp| csp.qualifier() == qualifier),
            ia.find::<Rsp<T>>(|rsp| rsp.qualifier() == qualifier),
        )
    };
    match (psp, csp, rsp) {
        (Some(psp), ..) => psp.handle_request(incoming),
        (_, Some(csp), _) => csp.handle_request(incoming),
        (.., Some(rsp)) => rsp.handle_request(incoming),
        (None, None, None) => {}
    }
}

/// Frees the request's handle. If the request was not answered, the drop refuses the peer.
fn discard<T: Transport>(cr: &Node<Cr<T>>) {
    let ia = cr.ia.clone();
    ia.unregister_object(cr);
    // SAFETY: nothing depends on a request. The standard makes the consumer responsible for
    // concurrent uses of a freed handle.
    drop(unsafe { handle::remove(cr) });
}

/// Frees the handle of a request that the consumer was not told of. Called in an upcall.
fn discard_unreported<T: Transport>(cr: Pin<Cr<T>>) {
    let ia = cr.ia.clone();
    drop(cr.take());
    // SAFETY: nobody else knows of the request. Otherwise it stays, and cannot be answered, until
    // the adapter is closed.
    if let Some(retired) = unsafe { handle::retire_unreported(cr) } {
        ia.unregister_object(&retired);
        // SAFETY: nobody else knows of the request.
        drop(unsafe { retired.reclaim() });
    }
}

impl<T: Transport> Cr<T> {
    /// Takes the transport's request. Only the first call returns the request.
    fn take(&self) -> Option<T::Request> {
        self.request.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Implements dat_cr_query. The pointers are valid until the request is answered.
    pub fn query(&self, param: &mut DAT_CR_PARAM) {
        *param = DAT_CR_PARAM {
            remote_ia_address_ptr: self.sockaddrs.0.as_ptr(),
            remote_port_qual: self.from.port().into(),
            private_data_size: self.private.len() as DAT_COUNT,
            private_data: match self.private.is_empty() {
                true => std::ptr::null_mut(),
                false => self.private.as_ptr().cast_mut().cast(),
            },
            local_ep_handle: self.ep.as_ref().map_or(std::ptr::null_mut(), |ep| ep.handle()),
        };
    }
}
