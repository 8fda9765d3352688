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
use super::qualifier;
use super::rsp::Rsp;
use crate::addr::SockAddr;
use crate::ep::state::{self, Effect, Event, State};
use crate::ep::{self, Ep};
use crate::error::{Error, Result};
use crate::evd::{Evd, Order};
use crate::handle::{self, Node, Object, Pin, Ref};
use crate::ia::Ia;
use crate::provider::{ServiceType, Transport};

/// A connection request that waits for the consumer's answer. The request stays valid when its
/// service point is freed (uDAPL 1.2, dat_psp_free).
pub struct Cr<T: Transport> {
    /// The adapter of the request.
    pub ia: Ref<Ia<T>>,
    request: Mutex<Option<T::ConnectionRequest>>,
    service: ServiceType,
    /// The endpoint that belongs to the request, if any: the endpoint that an RSP reserved, or a
    /// tentative endpoint that the provider created.
    ep: Option<Ref<Ep<T>>>,
    from: SocketAddr,
    to: SocketAddr,
    /// Both addresses in their C representation. Consumers get pointers to them.
    sockaddrs: (SockAddr, SockAddr),
    private: Vec<u8>,
}

/// A connection request as the transport delivers it.
pub(super) struct IncomingRequest<'a, T: Transport> {
    pub(super) request: T::ConnectionRequest,
    pub(super) service: ServiceType,
    pub(super) from: SocketAddr,
    pub(super) to: SocketAddr,
    pub(super) private: &'a [u8],
}

impl<T: Transport> Object for Cr<T> {
    const KIND: DAT_HANDLE_TYPE = DAT_HANDLE_TYPE_CR;
    const INVALID: DAT_RETURN = DAT_INVALID_HANDLE_CR;
}

/// Creates a connection request and reports it on the service point's EVD. If this fails, drops the
/// request, which refuses the peer. May be called in upcalls.
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
            service: incoming.service,
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
    if let Some(ep) = ep {
        ep.set_addresses(to, from);
    }
    let data = DAT_EVENT_DATA { cr_arrival_event_data: data };
    ia.counters.count(match made.service {
        ServiceType::Connection => &[DCNT_IA_CM_REQ_RX],
        ServiceType::Datagram => &[DCNT_IA_CM_AH_REQ_RX],
    });
    let posted = match made.service {
        ServiceType::Connection => evd.post(DAT_CONNECTION_REQUEST_EVENT, data, Order::Now),
        ServiceType::Datagram => {
            let extension = DAT_IB_EXTENSION_EVENT_DATA {
                r#type: DAT_IB_UD_CONNECT_REQUEST,
                status: DAT_OP_SUCCESS,
                ..DAT_IB_EXTENSION_EVENT_DATA::zeroed()
            };
            evd.post_extended(DAT_IB_UD_CONNECTION_REQUEST_EVENT, data, &extension, Order::Now)
        }
    };
    posted.inspect_err(|_| {
        warn!(target: "dat::cm", ia = name, %cr, "the request is refused, because its EVD is full");
        // The length of the EVD's queue is the backlog (uDAPL 1.2, dat_psp_create). A request that
        // exceeds the backlog is refused.
        discard_unreported(made);
    })
}

/// Implements dat_cr_accept. If the arguments or the endpoint's state do not permit the call, the
/// request, the endpoint and the peer are not affected. If the transport fails to accept, the
/// request is used up and the endpoint becomes unconnected.
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
        // If the request has an endpoint of its own, the consumer must pass a NULL endpoint. If the
        // request has no endpoint, the consumer must pass an endpoint (uDAPL 1.2, dat_cr_accept).
        _ => return Err(Error::handle(DAT_INVALID_HANDLE_EP)),
    };
    if ep.service() != cr.service {
        return Err(Error::handle(DAT_INVALID_HANDLE_EP));
    }
    let (ia, state) = (cr.ia.clone(), ep.state());
    let request = {
        let _control = ia.control();
        let is_of_request = matches!(state, State::PassivePending | State::TentativePending);
        let legal = match (&cr.ep, cr.service) {
            (Some(_), _) => is_of_request,
            (None, ServiceType::Connection) => state == State::Unconnected,
            (None, ServiceType::Datagram) => {
                !is_of_request && state::effect(state, Event::Answer) != Effect::Refuse
            }
        };
        if !legal {
            return Err(state.refusal());
        }
        ep.check_ready()?;
        let request = cr.take().ok_or(Error::handle(DAT_INVALID_HANDLE_CR))?;
        match cr.service {
            ServiceType::Connection => ep.apply(Event::Accept).map(drop),
            ServiceType::Datagram => ep.start_call(Event::Answer),
        }?;
        request
    };
    ep.set_addresses(cr.to, cr.from);
    // From here on the connection request is used up. If the call still fails, the peer or the
    // network is the cause.
    let handle = Hex(cr.handle() as usize);
    let answer = match cr.service {
        ServiceType::Connection => ep.accept(handle, request, private),
        ServiceType::Datagram => ep.answer(handle, request, (cr.from, &cr.private), private),
    };
    match (&answer, cr.service) {
        (Ok(()), _) => ia.counters.count(&[DCNT_IA_SP_CR_ACCEPTED, DCNT_IA_CM_REP_TX]),
        (Err(_), ServiceType::Connection) => ep.retract(),
        (Err(_), ServiceType::Datagram) => ep.fail_call(),
    }
    discard(cr);
    answer
}

/// A connection request that is about to be refused or handed off. Its handle is already stale.
/// Refusing and handing off take the control lock and the lock of the endpoint's handle. So the
/// thread that owns this value must hold neither of them.
#[must_use]
pub struct WithdrawnRequest<T: Transport> {
    ia: Ref<Ia<T>>,
    /// The transport's request, or `None` if it was answered. Dropping it refuses the peer.
    request: Option<T::ConnectionRequest>,
    service: ServiceType,
    ep: Option<Ref<Ep<T>>>,
    from: SocketAddr,
    to: SocketAddr,
    private: Vec<u8>,
}

/// The first half of dat_cr_reject: checks the private data and makes the request's handle stale.
/// [`WithdrawnRequest::reject`] is the second half. Only uDAPL 2.0 lets the consumer pass private
/// data.
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

/// The first half of dat_cr_handoff: makes the request's handle stale.
/// [`WithdrawnRequest::hand_off`] is the second half. If `qualifier` is not a connection qualifier,
/// the call fails with `DAT_INVALID_PARAMETER` and the request does not change.
///
/// # Safety
/// After the call nobody uses a reference to the request, unless the call has failed and its handle
/// is still live.
pub unsafe fn begin_hand_off<T: Transport>(
    cr: &Node<Cr<T>>,
    qualifier: DAT_CONN_QUAL,
) -> Result<WithdrawnRequest<T>> {
    qualifier::check(qualifier)?;
    let request = cr.take().ok_or(Error::handle(DAT_INVALID_HANDLE_CR))?;
    debug!(
        target: "dat::cm", ia = cr.ia.name, cr = %Hex(cr.handle() as usize), qualifier, "handed off"
    );
    Ok(withdraw(cr, Some(request)))
}

/// The first half of abandoning a request in an abrupt dat_ia_close or in dat_evd_free: makes the
/// request's handle stale. Dropping the returned value is the second half.
///
/// # Safety
/// Nobody uses a reference to the request any more.
pub(crate) unsafe fn begin_abandon<T: Transport>(cr: &Node<Cr<T>>) -> WithdrawnRequest<T> {
    withdraw(cr, cr.take())
}

fn withdraw<T: Transport>(
    cr: &Node<Cr<T>>,
    request: Option<T::ConnectionRequest>,
) -> WithdrawnRequest<T> {
    let (ia, ep, private) = (cr.ia.clone(), cr.ep.clone(), cr.private.clone());
    let (service, from, to) = (cr.service, cr.from, cr.to);
    let withdrawn = WithdrawnRequest { ia, request, service, ep, from, to, private };
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
    /// The second half of dat_cr_reject: sends the rejection.
    pub fn reject(mut self, private: &[u8]) -> Result<()> {
        self.release_ep();
        self.request.take().map_or(Ok(()), |request| self.ia.transport.reject(request, private))
    }

    /// The second half of dat_cr_handoff: passes the request to the service point of another
    /// connection qualifier of this adapter, as if the request had arrived there. If no service
    /// point has this qualifier, or if the EVD of that service point is full, the peer gets a
    /// non-peer reject.
    pub fn hand_off(mut self, qualifier: DAT_CONN_QUAL) {
        // Release the endpoint before the other service point reports the request, because the
        // consumer may then accept the request with this endpoint.
        self.release_ep();
        let Some(request) = self.request.take() else { return };
        // While the control lock is held, no service point is freed.
        let _control = self.ia.control();
        deliver(
            &self.ia,
            qualifier,
            IncomingRequest {
                request,
                service: self.service,
                from: self.from,
                to: self.to,
                private: &self.private,
            },
        );
    }

    /// Releases the endpoint that belongs to the request. A reserved endpoint becomes unconnected
    /// and stays with the consumer. A tentative endpoint is freed.
    fn release_ep(&mut self) {
        let Some(ep) = self.ep.take() else { return };
        match ep.state() {
            State::TentativePending | State::UnconfiguredTentative => {
                let ia = &self.ia;
                // The endpoint is sure to exist only while other objects refer to it. So drop this
                // reference in the closure, in which the endpoint certainly exists.
                let ep = ManuallyDrop::new(ep);
                // SAFETY: the endpoint belongs to this request, and no other call uses the endpoint
                // while this call retires it.
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
                    "no other thread may free the endpoint of a connection request: {retired:?}"
                );
            }
            _ => ep.retract(),
        }
    }
}

/// Passes a request to the service point that has the qualifier. If there is no such service point,
/// drops the request, which refuses the peer. The caller holds the control lock.
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

/// Frees the request's handle. If the request was not answered, dropping it refuses the peer.
fn discard<T: Transport>(cr: &Node<Cr<T>>) {
    let ia = cr.ia.clone();
    ia.unregister_object(cr);
    // SAFETY: nothing depends on a request. The standard makes the consumer responsible for
    // concurrent uses of a freed handle.
    drop(unsafe { handle::remove(cr) });
}

/// Frees the handle of a request that was never reported to the consumer. Called in an upcall.
fn discard_unreported<T: Transport>(cr: Pin<Cr<T>>) {
    let ia = cr.ia.clone();
    drop(cr.take());
    // SAFETY: the consumer does not know the request. If another thread has guessed its handle and
    // uses it, the request stays until the adapter is closed, and nobody can answer it.
    if let Some(retired) = unsafe { handle::retire_unreported(cr) } {
        ia.unregister_object(&retired);
        // SAFETY: nobody else uses the request.
        drop(unsafe { retired.reclaim() });
    }
}

impl<T: Transport> Cr<T> {
    /// Takes the transport's request out of this object. Only the first call returns it.
    fn take(&self) -> Option<T::ConnectionRequest> {
        self.request.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Implements dat_cr_query. The pointers in the result are valid until the request is answered.
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
