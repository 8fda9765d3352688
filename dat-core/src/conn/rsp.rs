//! Reserved service points: one request for one endpoint.

use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use dat_sys::*;

use super::cr::{self, Arrival};
use crate::ep::Ep;
use crate::ep::state::Event;
use crate::error::{Error, Result};
use crate::evd::Evd;
use crate::handle::{self, Node, Object, Ref};
use crate::ia::Ia;
use crate::provider::{Port, Receiver, Sink, Transport, Upcall};

/// A reserved service point.
pub struct Rsp<T: Transport> {
    /// Its adapter.
    pub ia: Ref<Ia<T>>,
    // Before `door`: no request arrives once it is dropped.
    listener: T::Listener,
    door: Arc<Door<T>>,
}

struct Door<T: Transport> {
    ia: Ref<Ia<T>>,
    evd: Ref<Evd<T>>,
    /// Gone once the request has arrived: then the endpoint is the request's.
    reserved: Mutex<Option<Ref<Ep<T>>>>,
    ep: usize,
    rsp: usize,
    qualifier: DAT_CONN_QUAL,
}

impl<T: Transport> Object for Rsp<T> {
    const KIND: DAT_HANDLE_TYPE = DAT_HANDLE_TYPE_RSP;
    const INVALID: DAT_RETURN = DAT_INVALID_HANDLE_RSP;
}

/// A service point's EVD takes connection requests and belongs to the same adapter.
pub(super) fn check_evd<T: Transport>(ia: &Node<Ia<T>>, evd: &Node<Evd<T>>) -> Result<()> {
    match evd.flags & DAT_EVD_CR_FLAG != 0 && evd.ia.handle() == ia.handle() {
        true => Ok(()),
        false => Err(Error::handle(DAT_INVALID_HANDLE_EVD_CR)),
    }
}

/// dat_rsp_create: the endpoint becomes reserved.
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
    let _control = ia.control();
    ep.apply(Event::Reserve)?;
    let made = ia.add(|handle| {
        let door = Arc::new(Door {
            ia: Ref::new(ia),
            evd: Ref::new(evd),
            reserved: Mutex::new(Some(Ref::new(ep))),
            ep: ep.handle() as usize,
            rsp: handle as usize,
            qualifier,
        });
        // SAFETY: the door is dropped after the listener (field order in `Rsp`).
        let sink = unsafe { Sink::new(&*door) };
        let listener = ia.transport.listen(Port::Qualifier(qualifier), 1, sink)?;
        Ok(Rsp { ia: Ref::new(ia), listener, door })
    });
    made.inspect_err(|_| {
        let _ = ep.apply(Event::Unreserve);
    })
}

/// dat_rsp_free: an endpoint that is still reserved becomes unconnected.
///
/// # Safety
/// Nobody uses a reference to it any more, if this succeeds.
pub unsafe fn free<T: Transport>(rsp: &Node<Rsp<T>>) -> Result<()> {
    let (ia, handle) = (rsp.ia.clone(), rsp.handle());
    let _control = ia.control_to_free::<Rsp<T>>(handle)?;
    ia.delist(rsp);
    // SAFETY: service points have no dependants.
    if let Some(gone) = unsafe { handle::remove(rsp) } {
        let Rsp { listener, door, .. } = gone.into_body();
        // No request can arrive any more; one that came first has taken the endpoint.
        drop(listener);
        if let Some(ep) = door.take() {
            // It is reserved, unless an abrupt close was faster.
            let _ = ep.apply(Event::Unreserve);
        }
    }
    Ok(())
}

impl<T: Transport> Rsp<T> {
    /// The connection qualifier it listens on.
    pub fn qualifier(&self) -> DAT_CONN_QUAL {
        self.door.qualifier
    }

    /// Takes a request that another service point hands off.
    pub(super) fn admit(&self, arrival: Arrival<'_, T>) {
        self.door.admit(arrival);
    }

    /// dat_rsp_query.
    pub fn query(&self, param: &mut DAT_RSP_PARAM) {
        *param = DAT_RSP_PARAM {
            ia_handle: self.ia.consumer_handle(),
            conn_qual: self.door.qualifier,
            evd_handle: self.door.evd.handle(),
            ep_handle: self.door.ep as *mut c_void,
        };
    }
}

impl<T: Transport> Door<T> {
    /// Makes the connection request of the one arrival that it is for. Allowed inside upcalls.
    fn admit(&self, arrival: Arrival<'_, T>) {
        // At most one request (uDAPL 1.2, dat_rsp_create): the drop of any other refuses the peer.
        let Some(ep) = self.take() else { return };
        if ep.apply(Event::Request).is_err() {
            return;
        }
        let rsp = DAT_SP_HANDLE { rsp_handle: self.rsp as *mut c_void };
        if cr::arrive(&self.ia, &self.evd, rsp, self.qualifier, Some(&ep), arrival).is_err() {
            ep.retract();
        }
    }

    fn take(&self) -> Option<Ref<Ep<T>>> {
        self.reserved.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl<T: Transport> Receiver<T> for Door<T> {
    fn upcall(&self, up: Upcall<'_, T>) {
        let Upcall::Request { request, from, to, private } = up else { return };
        self.admit(Arrival { request, from, to, private });
    }
}
