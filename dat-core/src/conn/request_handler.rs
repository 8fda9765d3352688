//! Handles the connection requests that arrive at a service point.

use std::ffi::c_void;
use std::net::{IpAddr, SocketAddr};

use dat_sys::*;

use super::cr::{self, IncomingRequest};
use super::qualifier::Qualifier;
use crate::ep;
use crate::evd::Evd;
use crate::handle::{self, Ref};
use crate::ia::Ia;
use crate::provider::{Receiver, Transport, Upcall};

/// The request handler of a PSP or a CSP, which are the service points that take any number of
/// requests.
pub(super) struct RequestHandler<T: Transport> {
    pub(super) ia: Ref<Ia<T>>,
    pub(super) evd: Ref<Evd<T>>,
    /// The handle of the service point.
    pub(super) service_point: usize,
    /// The qualifier that the consumer requested. For [`Qualifier::Any`], the listener has chosen a
    /// qualifier.
    pub(super) qualifier: Qualifier,
    /// If set, only requests to this address are accepted.
    pub(super) local_address: Option<IpAddr>,
    /// Whether the provider creates an endpoint for each request.
    pub(super) creates_eps: bool,
}

impl<T: Transport> RequestHandler<T> {
    /// Creates a connection request and reports it. If this fails, drops the request, which refuses
    /// the peer. May be called in upcalls.
    pub(super) fn handle_request(
        &self,
        qualifier: DAT_CONN_QUAL,
        incoming: IncomingRequest<'_, T>,
    ) {
        // Each member of the union is a handle, so it does not matter which member is set.
        let point = DAT_SP_HANDLE { psp_handle: self.service_point as *mut c_void };
        let _ = match self.creates_eps {
            false => cr::report_request(&self.ia, &self.evd, point, qualifier, None, incoming),
            true => ep::create_tentative(&self.ia, incoming.service).and_then(|ep| {
                let ep = handle::pin_created(ep);
                cr::report_request(&self.ia, &self.evd, point, qualifier, Some(&ep), incoming)
                    .inspect_err(|_| ep::retire_unreported(ep))
            }),
        };
    }

    fn is_for(&self, to: SocketAddr) -> bool {
        match self.local_address {
            None => true,
            // The unspecified IPv4 address stands for all IPv4 addresses of the host. The
            // unspecified IPv6 address stands for all its IPv6 and IPv4 addresses.
            Some(ip) if ip.is_unspecified() => ip.is_ipv6() || to.is_ipv4(),
            Some(ip) => to.ip() == ip,
        }
    }
}

impl<T: Transport> Receiver<T> for RequestHandler<T> {
    fn upcall(&self, up: Upcall<'_, T>) {
        let Upcall::Request { request, service, from, to, private } = up else { return };
        if !self.is_for(to) {
            return;
        }
        let qualifier = match self.qualifier {
            Qualifier::Exactly(qualifier) => qualifier,
            Qualifier::Any => to.port().into(),
        };
        self.handle_request(qualifier, IncomingRequest { request, service, from, to, private });
    }
}
