//! Public service points: each request makes a connection request, as long as the EVD has room.

use std::sync::Arc;

use dat_sys::ib::*;
use dat_sys::*;

use super::cr::Arrival;
use super::door::Door;
use crate::error::{Error, Result};
use crate::evd::Evd;
use crate::handle::{self, Node, Object, Ref};
use crate::ia::Ia;
use crate::provider::{Port, Sink, Transport};

/// A public service point.
pub struct Psp<T: Transport> {
    /// Its adapter.
    pub ia: Ref<Ia<T>>,
    // Before `door`: no request arrives once it is dropped.
    listener: T::Listener,
    door: Arc<Door<T>>,
}

impl<T: Transport> Object for Psp<T> {
    const KIND: DAT_HANDLE_TYPE = DAT_HANDLE_TYPE_PSP;
    const INVALID: DAT_RETURN = DAT_INVALID_HANDLE_PSP;
}

/// dat_psp_create and dat_psp_create_any.
pub fn create<T: Transport>(
    ia: &Node<Ia<T>>,
    port: Port,
    evd: &Node<Evd<T>>,
    flags: DAT_PSP_FLAGS,
) -> Result<&'static Node<Psp<T>>> {
    super::rsp::check_evd(ia, evd)?;
    let makes_eps = match flags {
        DAT_PSP_CONSUMER_FLAG => false,
        DAT_PSP_PROVIDER_FLAG => true,
        _ => return Err(Error::arg(4)),
    };
    let _control = ia.control();
    ia.add(|handle| {
        let door = Arc::new(Door {
            ia: Ref::new(ia),
            evd: Ref::new(evd),
            point: handle as usize,
            port,
            only: None,
            makes_eps,
        });
        // SAFETY: the door is dropped after the listener (field order in `Psp`).
        let sink = unsafe { Sink::new(&*door) };
        let listener = ia.transport.listen(port, evd.depth(), sink)?;
        Ok(Psp { ia: Ref::new(ia), listener, door })
    })
    .inspect(|_| {
        ia.counters.count(match port {
            Port::Any => &[DCNT_IA_PSP_CREATE_ANY],
            Port::Qualifier(_) => &[DCNT_IA_PSP_CREATE],
        });
    })
}

/// dat_psp_free. Requests that have arrived stay valid.
///
/// # Safety
/// Nobody uses a reference to it any more, if this succeeds.
pub unsafe fn free<T: Transport>(psp: &Node<Psp<T>>) -> Result<()> {
    let (ia, handle) = (psp.ia.clone(), psp.handle());
    let _control = ia.control_to_free::<Psp<T>>(handle)?;
    ia.delist(psp);
    // SAFETY: service points have no dependants.
    drop(unsafe { handle::remove(psp) });
    Ok(())
}

impl<T: Transport> Psp<T> {
    /// The connection qualifier it listens on.
    pub fn qualifier(&self) -> DAT_CONN_QUAL {
        match self.door.port {
            Port::Qualifier(qualifier) => qualifier,
            Port::Any => self.ia.transport.port(&self.listener),
        }
    }

    /// Takes a request that another service point hands off.
    pub(super) fn admit(&self, arrival: Arrival<'_, T>) {
        self.door.admit(self.qualifier(), arrival);
    }

    /// dat_psp_query.
    pub fn query(&self, param: &mut DAT_PSP_PARAM) {
        *param = DAT_PSP_PARAM {
            ia_handle: self.ia.consumer_handle(),
            conn_qual: self.qualifier(),
            evd_handle: self.door.evd.handle(),
            psp_flags: if self.door.makes_eps {
                DAT_PSP_PROVIDER_FLAG
            } else {
                DAT_PSP_CONSUMER_FLAG
            },
        };
    }
}
