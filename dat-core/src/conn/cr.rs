//! Connection requests.

use std::mem::ManuallyDrop;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use dat_sys::ib::*;
use dat_sys::*;
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
use crate::log::Hex;
use crate::provider::Transport;

/// A connection request that waits for an answer. It outlives its service point (uDAPL 1.2, dat_psp_free).
pub struct Cr<T: Transport> {
    /// Its adapter.
    pub ia: Ref<Ia<T>>,
    request: Mutex<Option<T::Request>>,
    /// The endpoint that came with it: reserved, or made by the provider.
    ep: Option<Ref<Ep<T>>>,
    from: SocketAddr,
    to: SocketAddr,
    /// For C: consumers are handed pointers to these.
    sockaddrs: (SockAddr, SockAddr),
    private: Vec<u8>,
}

/// What arrived.
pub(super) struct Arrival<'a, T: Transport> {
    pub(super) request: T::Request,
    pub(super) from: SocketAddr,
    pub(super) to: SocketAddr,
    pub(super) private: &'a [u8],
}

impl<T: Transport> Object for Cr<T> {
    const KIND: DAT_HANDLE_TYPE = DAT_HANDLE_TYPE_CR;
    const INVALID: DAT_RETURN = DAT_INVALID_HANDLE_CR;
}

/// Makes a connection request of an arrival and reports it on the service point's EVD. An error refuses the peer.
/// Allowed inside upcalls.
pub(super) fn arrive<T: Transport>(
    ia: &Node<Ia<T>>,
    evd: &Node<Evd<T>>,
    service_point: DAT_SP_HANDLE,
    qualifier: DAT_CONN_QUAL,
    ep: Option<&Node<Ep<T>>>,
    arrival: Arrival<'_, T>,
) -> Result<()> {
    let made = handle::made(ia.add(|_| {
        Ok(Cr {
            ia: Ref::new(ia),
            request: Mutex::new(Some(arrival.request)),
            ep: ep.map(Ref::new),
            from: arrival.from,
            to: arrival.to,
            sockaddrs: (arrival.from.into(), arrival.to.into()),
            private: arrival.private.to_vec(),
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
        warn!(target: "dat::cm", ia = name, %cr, "refused: its EVD is full");
        // The backlog is the length of the EVD's queue (uDAPL 1.2, dat_psp_create): one more is refused.
        discard_untold(made);
    })
}

/// dat_cr_accept. On an error nothing has happened to request, endpoint or peer.
///
/// # Safety
/// Nobody uses a reference to the request any more, unless its handle is still live (nothing has happened
/// then).
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
        // uDAPL 1.2, dat_cr_accept: NULL exactly when the request brought its own endpoint.
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
    // From here on the request is used up: a failure now is the peer's or the network's.
    let answer = ep.accept(Hex(cr.handle() as usize), request, private);
    if answer.is_err() {
        ep.retract();
    } else {
        ia.counters.count(&[DCNT_IA_SP_CR_ACCEPTED, DCNT_IA_CM_REP_TX]);
    }
    discard(cr);
    answer
}

/// A request whose handle is stale: it is about to be refused or handed off. Without any lock, since its
/// endpoint has one of its own.
#[must_use]
pub struct Withdrawn<T: Transport> {
    ia: Ref<Ia<T>>,
    /// It is the peer's to be refused; none: it has been answered.
    request: Option<T::Request>,
    ep: Option<Ref<Ep<T>>>,
    from: SocketAddr,
    to: SocketAddr,
    private: Vec<u8>,
}

/// The first half of dat_cr_reject, with private data as of uDAPL 2.0.
///
/// # Safety
/// Nobody uses a reference to the request any more, unless its handle is still live (nothing has happened
/// then).
pub unsafe fn to_reject<T: Transport>(cr: &Node<Cr<T>>, private: &[u8]) -> Result<Withdrawn<T>> {
    if private.len() > cr.ia.transport.attrs().max_private {
        return Err(Error::arg(2));
    }
    let request = cr.take().ok_or(Error::handle(DAT_INVALID_HANDLE_CR))?;
    let (ia, handle) = (&cr.ia, Hex(cr.handle() as usize));
    debug!(target: "dat::cm", ia = ia.name, cr = %handle, private = private.len(), "rejected");
    ia.counters.count(&[DCNT_IA_SP_CR_REJECTED, DCNT_IA_CM_USER_REJ_TX]);
    Ok(withdraw(cr, Some(request)))
}

/// The first half of dat_cr_handoff. `DAT_INVALID_PARAMETER`: no connection qualifier; nothing has happened.
///
/// # Safety
/// Nobody uses a reference to the request any more, unless its handle is still live (nothing has happened
/// then).
pub unsafe fn to_hand_off<T: Transport>(
    cr: &Node<Cr<T>>,
    qualifier: DAT_CONN_QUAL,
) -> Result<Withdrawn<T>> {
    // The one that stands for "any" where a service point is made.
    if qualifier == 0 {
        return Err(Error::arg(2));
    }
    let request = cr.take().ok_or(Error::handle(DAT_INVALID_HANDLE_CR))?;
    debug!(target: "dat::cm", ia = cr.ia.name, cr = %Hex(cr.handle() as usize), qualifier, "handed off");
    Ok(withdraw(cr, Some(request)))
}

/// The first half of what becomes of a request that nobody answers any more (dat_ia_close, abrupt).
///
/// # Safety
/// Nobody uses a reference to the request any more.
pub(crate) unsafe fn to_abandon<T: Transport>(cr: &Node<Cr<T>>) -> Withdrawn<T> {
    withdraw(cr, cr.take())
}

fn withdraw<T: Transport>(cr: &Node<Cr<T>>, request: Option<T::Request>) -> Withdrawn<T> {
    let (ia, ep, private) = (cr.ia.clone(), cr.ep.clone(), cr.private.clone());
    let withdrawn = Withdrawn { ia, request, ep, from: cr.from, to: cr.to, private };
    discard(cr);
    withdrawn
}

impl<T: Transport> Drop for Withdrawn<T> {
    /// The peer is refused, if nobody has answered it.
    fn drop(&mut self) {
        drop(self.request.take());
        self.release_ep();
    }
}

impl<T: Transport> Withdrawn<T> {
    /// dat_cr_reject: the peer is told.
    pub fn reject(mut self, private: &[u8]) -> Result<()> {
        self.release_ep();
        self.request.take().map_or(Ok(()), |request| self.ia.transport.reject(request, private))
    }

    /// dat_cr_handoff: the request arrives at the service point of another connection qualifier of this
    /// adapter, as if it had come there in the first place: where there is none, or its EVD is full, the peer
    /// is refused, not by a consumer.
    pub fn hand_off(mut self, qualifier: DAT_CONN_QUAL) {
        // Before the request is seen elsewhere: its endpoint may be what the consumer accepts it with there.
        self.release_ep();
        let Some(request) = self.request.take() else { return };
        // Under the control lock no service point goes away.
        let _control = self.ia.control();
        deliver(
            &self.ia,
            qualifier,
            Arrival { request, from: self.from, to: self.to, private: &self.private },
        );
    }

    /// Gives the request's endpoint back: a reserved one to its consumer, a tentative one to the provider.
    fn release_ep(&mut self) {
        let Some(ep) = self.ep.take() else { return };
        match ep.state() {
            State::TentativePending | State::UnconfiguredTentative => {
                let ia = &self.ia;
                // Where the endpoint were gone, nothing may be done to it.
                let ep = ManuallyDrop::new(ep);
                // SAFETY: it is this request's, and no other call uses it when this one retires it.
                let retired = unsafe {
                    handle::free::<Ep<T>, _>(ep.handle(), move |node| {
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

/// Hands an arrival to the service point of a qualifier; dropped, and so refused, where there is none. Called
/// under the control lock.
fn deliver<T: Transport>(ia: &Node<Ia<T>>, qualifier: DAT_CONN_QUAL, arrival: Arrival<'_, T>) {
    // SAFETY: the caller has the control lock, under which no service point goes away.
    let (psp, csp, rsp) = unsafe {
        (
            ia.find::<Psp<T>>(|psp| psp.qualifier() == qualifier),
            ia.find::<Csp<T>>(|csp| csp.qualifier() == qualifier),
            ia.find::<Rsp<T>>(|rsp| rsp.qualifier() == qualifier),
        )
    };
    match (psp, csp, rsp) {
        (Some(psp), ..) => psp.admit(arrival),
        (_, Some(csp), _) => csp.admit(arrival),
        (.., Some(rsp)) => rsp.admit(arrival),
        (None, None, None) => {}
    }
}

/// The request's handle is dead. An unanswered request is refused by its drop.
fn discard<T: Transport>(cr: &Node<Cr<T>>) {
    let ia = cr.ia.clone();
    ia.delist(cr);
    // SAFETY: a request has no dependants; the standard leaves concurrent use of a freed handle to the consumer.
    drop(unsafe { handle::remove(cr) });
}

/// The same of a request that the consumer was not told of, in an upcall.
fn discard_untold<T: Transport>(cr: Pin<Cr<T>>) {
    let ia = cr.ia.clone();
    drop(cr.take());
    // SAFETY: nobody else knows of the request, or it stays, unanswerable, until the adapter is closed.
    if let Some(retired) = unsafe { handle::retire_untold(cr) } {
        ia.delist(&retired);
        // SAFETY: as above.
        drop(unsafe { retired.reclaim() });
    }
}

impl<T: Transport> Cr<T> {
    /// The transport's request, once.
    fn take(&self) -> Option<T::Request> {
        self.request.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// dat_cr_query. Pointers are valid until the request is answered.
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
