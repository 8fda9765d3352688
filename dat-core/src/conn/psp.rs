//! Public service points (PSPs). Each request that arrives is reported to the consumer as a
//! connection request. When the EVD is full, further requests are refused.

use std::sync::Arc;

use dat_sys::ib::*;
use dat_sys::*;

use super::cr::IncomingRequest;
use super::qualifier::{self, Qualifier};
use super::request_handler::RequestHandler;
use crate::error::{Error, Result};
use crate::evd::Evd;
use crate::handle::{self, Node, Object, Ref};
use crate::ia::Ia;
use crate::provider::{Sink, Transport};

/// A public service point.
pub struct Psp<T: Transport> {
    /// The adapter of the service point.
    pub ia: Ref<Ia<T>>,
    // The listener is declared before `handler`, so it is dropped first. No request arrives after
    // the listener is dropped.
    _listener: T::Listener,
    handler: Arc<RequestHandler<T>>,
    qualifier: DAT_CONN_QUAL,
}

impl<T: Transport> Object for Psp<T> {
    const KIND: DAT_HANDLE_TYPE = DAT_HANDLE_TYPE_PSP;
    const INVALID: DAT_RETURN = DAT_INVALID_HANDLE_PSP;
}

/// Implements dat_psp_create and dat_psp_create_any.
pub fn create<T: Transport>(
    ia: &Node<Ia<T>>,
    qualifier: Qualifier,
    evd: &Node<Evd<T>>,
    flags: DAT_PSP_FLAGS,
) -> Result<&'static Node<Psp<T>>> {
    super::rsp::check_evd(ia, evd)?;
    let creates_eps = match flags {
        DAT_PSP_CONSUMER_FLAG => false,
        DAT_PSP_PROVIDER_FLAG => true,
        _ => return Err(Error::arg(4)),
    };
    if let Qualifier::Exactly(qualifier) = qualifier {
        qualifier::check(qualifier)?;
    }
    let _control = ia.control();
    ia.add(|handle| {
        let handler = Arc::new(RequestHandler {
            ia: Ref::new(ia),
            evd: Ref::new(evd),
            service_point: handle as usize,
            qualifier,
            local_address: None,
            creates_eps,
        });
        // SAFETY: the handler is dropped after the listener (field order in `Psp`).
        let sink = unsafe { Sink::new(&*handler) };
        // SAFETY: this call holds the control lock.
        let listener =
            unsafe { qualifier::listen(ia, qualifier, evd.depth(), sink) }.map_err(|error| {
                if qualifier == Qualifier::Any { none_is_free(error) } else { error }
            })?;
        let qualifier = match qualifier {
            Qualifier::Exactly(qualifier) => qualifier,
            Qualifier::Any => ia.transport.port(&listener).into(),
        };
        Ok(Psp { ia: Ref::new(ia), _listener: listener, handler, qualifier })
    })
    .inspect(|_| {
        ia.counters.count(match qualifier {
            Qualifier::Any => &[DCNT_IA_PSP_CREATE_ANY],
            Qualifier::Exactly(_) => &[DCNT_IA_PSP_CREATE],
        });
    })
}

/// The error of dat_psp_create_any if no qualifier is free (uDAPL 1.2, dat_psp_create_any). Sockets
/// report this failure as they report a qualifier that is in use.
fn none_is_free(error: Error) -> Error {
    let is_in_use = error == Error::of(DAT_CONN_QUAL_IN_USE);
    if is_in_use { Error::of(DAT_CONN_QUAL_UNAVAILABLE) } else { error }
}

/// Implements dat_psp_free. Connection requests that have already arrived stay valid.
///
/// # Safety
/// If this call succeeds, nobody uses a reference to the service point after the call.
pub unsafe fn free<T: Transport>(psp: &Node<Psp<T>>) -> Result<()> {
    let (ia, handle) = (psp.ia.clone(), psp.handle());
    let _control = ia.control_to_free::<Psp<T>>(handle)?;
    ia.unregister_object(psp);
    // SAFETY: no object depends on a service point.
    drop(unsafe { handle::remove(psp) });
    Ok(())
}

impl<T: Transport> Psp<T> {
    /// The connection qualifier that the service point listens on.
    pub fn qualifier(&self) -> DAT_CONN_QUAL {
        self.qualifier
    }

    /// Handles a request that the consumer has handed off to this service point.
    pub(super) fn handle_request(&self, incoming: IncomingRequest<'_, T>) {
        self.handler.handle_request(self.qualifier(), incoming);
    }

    /// Implements dat_psp_query.
    pub fn query(&self, param: &mut DAT_PSP_PARAM) {
        *param = DAT_PSP_PARAM {
            ia_handle: self.ia.consumer_handle(),
            conn_qual: self.qualifier(),
            evd_handle: self.handler.evd.handle(),
            psp_flags: if self.handler.creates_eps {
                DAT_PSP_PROVIDER_FLAG
            } else {
                DAT_PSP_CONSUMER_FLAG
            },
        };
    }
}
