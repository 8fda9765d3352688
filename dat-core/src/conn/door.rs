//! Where the requests of a service point come in.

use std::ffi::c_void;
use std::net::{IpAddr, SocketAddr};

use dat_sys::*;

use super::cr::{self, Arrival};
use crate::ep;
use crate::evd::Evd;
use crate::handle::{self, Ref};
use crate::ia::Ia;
use crate::provider::{Port, Receiver, Transport, Upcall};

/// The door of a service point that takes any number of requests: a PSP or a CSP.
pub(super) struct Door<T: Transport> {
    pub(super) ia: Ref<Ia<T>>,
    pub(super) evd: Ref<Evd<T>>,
    /// The service point's handle.
    pub(super) point: usize,
    /// The qualifier asked for; [`Port::Any`] is resolved by the listener.
    pub(super) port: Port,
    /// Only requests to this address are let in.
    pub(super) only: Option<IpAddr>,
    /// The provider makes an endpoint for each request.
    pub(super) makes_eps: bool,
}

impl<T: Transport> Door<T> {
    /// Makes a connection request of an arrival. One that cannot come in is dropped, which refuses the peer: nothing else
    /// is owed to anyone. Allowed inside upcalls.
    pub(super) fn admit(&self, qualifier: DAT_CONN_QUAL, arrival: Arrival<'_, T>) {
        // The handles of a union are one and the same word.
        let point = DAT_SP_HANDLE { psp_handle: self.point as *mut c_void };
        let _ = match self.makes_eps {
            false => cr::arrive(&self.ia, &self.evd, point, qualifier, None, arrival),
            true => ep::create_tentative(&self.ia).and_then(|ep| {
                let ep = handle::made(ep);
                cr::arrive(&self.ia, &self.evd, point, qualifier, Some(&ep), arrival)
                    .inspect_err(|_| ep::retire_untold(ep))
            }),
        };
    }

    fn is_for(&self, to: SocketAddr) -> bool {
        match self.only {
            None => true,
            // Of all addresses, those of IPv4 are not those of IPv6, but these include the others.
            Some(ip) if ip.is_unspecified() => ip.is_ipv6() || to.is_ipv4(),
            Some(ip) => to.ip() == ip,
        }
    }
}

impl<T: Transport> Receiver<T> for Door<T> {
    fn upcall(&self, up: Upcall<'_, T>) {
        let Upcall::Request { request, from, to, private } = up else { return };
        if !self.is_for(to) {
            return;
        }
        let qualifier = match self.port {
            Port::Qualifier(qualifier) => qualifier,
            Port::Any => to.port().into(),
        };
        self.admit(qualifier, Arrival { request, from, to, private });
    }
}
