//! Reserved service points (RSPs). An RSP takes a single connection request, for one reserved
//! endpoint.

use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use dat_sys::*;

use super::cr::{self, IncomingRequest};
use super::qualifier::{self, Qualifier};
use crate::ep::Ep;
use crate::ep::state::Event;
use crate::error::{Error, Result};
use crate::evd::Evd;
use crate::handle::{self, Node, Object, Ref};
use crate::ia::Ia;
use crate::provider::{Receiver, ServiceType, Sink, Transport, Upcall};

/// A reserved service point.
pub struct Rsp<T: Transport> {
    /// The adapter of the service point.
    pub ia: Ref<Ia<T>>,
    // The listener is declared before `handler`, so it is dropped first. No request arrives after
    // the listener is dropped.
    listener: T::Listener,
    handler: Arc<ReservedRequestHandler<T>>,
}

struct ReservedRequestHandler<T: Transport> {
    ia: Ref<Ia<T>>,
    evd: Ref<Evd<T>>,
    /// The reserved endpoint. `None` after a connection request has arrived, because the endpoint
    /// then belongs to the request.
    reserved: Mutex<Option<Ref<Ep<T>>>>,
    ep: usize,
    /// The service of the endpoint.
    service: ServiceType,
    rsp: usize,
    qualifier: DAT_CONN_QUAL,
}

impl<T: Transport> Object for Rsp<T> {
    const KIND: DAT_HANDLE_TYPE = DAT_HANDLE_TYPE_RSP;
    const INVALID: DAT_RETURN = DAT_INVALID_HANDLE_RSP;
}

/// Checks that a service point's EVD takes connection requests and belongs to the same adapter.
pub(super) fn check_evd<T: Transport>(ia: &Node<Ia<T>>, evd: &Node<Evd<T>>) -> Result<()> {
    match evd.flags & DAT_EVD_CR_FLAG != 0 && evd.ia.handle() == ia.handle() {
        true => Ok(()),
        false => Err(Error::handle(DAT_INVALID_HANDLE_EVD_CR)),
    }
}

/// Implements dat_rsp_create. The endpoint becomes reserved.
pub fn create<T: Transport>(
    ia: &Node<Ia<T>>,
    qualifier: DAT_CONN_QUAL,
    ep: &Node<Ep<T>>,
    evd: &Node<Evd<T>>,
) -> Result<&'static Node<Rsp<T>>> {
    check_evd(ia, evd)?;
    if ep.ia.handle() != ia.handle() {
        return Err(Error::handle(DAT_INVALID_HANDLE_EP));
    }
    qualifier::check(qualifier)?;
    let _control = ia.control();
    ep.apply(Event::Reserve)?;
    let made = ia.add(|handle| {
        let handler = Arc::new(ReservedRequestHandler {
            ia: Ref::new(ia),
            evd: Ref::new(evd),
            reserved: Mutex::new(Some(Ref::new(ep))),
            ep: ep.handle() as usize,
            service: ep.service(),
            rsp: handle as usize,
            qualifier,
        });
        // SAFETY: the handler is dropped after the listener (field order in `Rsp`).
        let sink = unsafe { Sink::new(&*handler) };
        // SAFETY: this call holds the control lock.
        let listener = unsafe { qualifier::listen(ia, Qualifier::Exactly(qualifier), 1, sink) }?;
        Ok(Rsp { ia: Ref::new(ia), listener, handler })
    });
    made.inspect_err(|_| {
        let _ = ep.apply(Event::Unreserve);
    })
}

/// Implements dat_rsp_free. An endpoint that is still reserved becomes unconnected.
///
/// # Safety
/// If this call succeeds, nobody uses a reference to the service point after the call.
pub unsafe fn free<T: Transport>(rsp: &Node<Rsp<T>>) -> Result<()> {
    let (ia, handle) = (rsp.ia.clone(), rsp.handle());
    let _control = ia.control_to_free::<Rsp<T>>(handle)?;
    ia.unregister_object(rsp);
    // SAFETY: no object depends on a service point.
    if let Some(removed) = unsafe { handle::remove(rsp) } {
        let Rsp { listener, handler, .. } = removed.into_body();
        // No request can arrive any more. If a request arrived earlier, it has taken the endpoint.
        drop(listener);
        if let Some(ep) = handler.take() {
            // If an abrupt close has already ended the reservation, this event has no effect.
            let _ = ep.apply(Event::Unreserve);
        }
    }
    Ok(())
}

impl<T: Transport> Rsp<T> {
    /// The connection qualifier that the service point listens on.
    pub fn qualifier(&self) -> DAT_CONN_QUAL {
        self.handler.qualifier
    }

    /// Handles a request that the consumer has handed off to this service point.
    pub(super) fn handle_request(&self, incoming: IncomingRequest<'_, T>) {
        self.handler.handle_request(incoming);
    }

    /// Implements dat_rsp_query.
    pub fn query(&self, param: &mut DAT_RSP_PARAM) {
        *param = DAT_RSP_PARAM {
            ia_handle: self.ia.consumer_handle(),
            conn_qual: self.handler.qualifier,
            evd_handle: self.handler.evd.handle(),
            ep_handle: self.handler.ep as *mut c_void,
        };
    }
}

impl<T: Transport> ReservedRequestHandler<T> {
    /// Creates the only connection request of this service point. May be called in upcalls.
    fn handle_request(&self, incoming: IncomingRequest<'_, T>) {
        // A reserved service point takes only one request (uDAPL 1.2, dat_rsp_create). Any other
        // request is dropped here, which refuses the peer. A request for another service than the
        // endpoint's is dropped, too, but it does not use up the service point, because it cannot
        // be accepted.
        if incoming.service != self.service {
            return;
        }
        let Some(ep) = self.take() else { return };
        if ep.apply(Event::Request).is_err() {
            return;
        }
        let rsp = DAT_SP_HANDLE { rsp_handle: self.rsp as *mut c_void };
        if cr::report_request(&self.ia, &self.evd, rsp, self.qualifier, Some(&ep), incoming)
            .is_err()
        {
            ep.retract();
        }
    }

    fn take(&self) -> Option<Ref<Ep<T>>> {
        self.reserved.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl<T: Transport> Receiver<T> for ReservedRequestHandler<T> {
    fn upcall(&self, up: Upcall<'_, T>) {
        let Upcall::Request { request, service, from, to, private } = up else { return };
        self.handle_request(IncomingRequest { request, service, from, to, private });
    }
}
