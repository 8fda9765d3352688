//! The local addresses of an engine: opening them, listening at them, and choosing one for a peer.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use adapter::{LocalFailure, netdev};
use dat_core::{Error, OpenError};
use dat_sys::*;
use mio::Interest;
use wire::cm::ServiceId;
use wire::rocev2::PathMtu;

use super::{Engine, EngineResources, Key};
use crate::local_address::LocalAddress;
use crate::port::{OPEN_TIMEOUT, OPEN_TIMEOUT_CONNECTING, PortError};
use crate::route::Route;

impl Engine {
    pub(super) fn open_local_addresses(&mut self) -> std::result::Result<(), OpenError> {
        if let Some(address) = self.params.adapter.bind {
            return self.open_local_address(address, OPEN_TIMEOUT).map(drop).map_err(open_error);
        }
        let own = self.params.adapter.address;
        self.open_local_address(own, OPEN_TIMEOUT).map_err(open_error)?;
        let all = netdev::addresses().unwrap_or_default();
        for found in all.iter().filter(|found| found.up && found.addr.ip() != own.ip()) {
            match self.open_local_address(found.addr, OPEN_TIMEOUT) {
                // The adapter works without this address. The address may be unusable now, or the
                // process may have too few descriptors left.
                Ok(_) | Err(PortError::System(..) | PortError::Descriptors(..)) => {}
                Err(error) => return Err(open_error(error)),
            }
        }
        Ok(())
    }

    pub(super) fn open_local_address(
        &mut self,
        address: SocketAddr,
        timeout: Duration,
    ) -> std::result::Result<usize, PortError> {
        let capture = self.resources.context.capture().cloned();
        let local_address =
            LocalAddress::open((address, timeout), self.guid, &self.params, capture)?;
        let index = self.local_addresses.len();
        let system = |error| PortError::System(address.ip(), error);
        let readable = Interest::READABLE;
        let EngineResources { context, .. } = &self.resources;
        context.watch(Key::Socket(index), &local_address.port.socket, readable).map_err(system)?;
        context
            .watch(Key::ReqSocket(index), &local_address.port.req_socket, readable)
            .map_err(system)?;
        context
            .watch(Key::LocalSocket(index), &local_address.port.local_socket, readable)
            .map_err(system)?;
        context
            .watch(Key::LivenessListener(index), &local_address.port.liveness.listener, readable)
            .map_err(system)?;
        if let Some(host_probe) = &local_address.host_probe {
            context.watch(Key::HostProbe(index), host_probe, readable).map_err(system)?;
        }
        self.local_addresses.push(local_address);
        // Existing listeners also listen at the new address. If another adapter already serves a
        // listener's port at this address, the listener does not listen there.
        for listener in self.listeners.indices() {
            self.listen_at(listener, index).ok();
        }
        Ok(index)
    }

    /// Registers a listener at a local address.
    pub(super) fn listen_at(&mut self, index: usize, local_address: usize) -> io::Result<()> {
        let Engine { listeners, local_addresses, resources, .. } = self;
        let listeners_before = listeners.indices().len();
        let Some(listener) = listeners.get_mut(index) else { return Ok(()) };
        let service =
            local_addresses[local_address].port.listen(ServiceId::tcp(listener.port).0)?;
        resources.context.watch(
            Key::Service { listener: index, local_address },
            &service.local_socket,
            Interest::READABLE,
        )?;
        // Reserve memory for all listeners now, so that closing them needs no memory.
        let listener_count = listeners_before + 1;
        let closed_services = &mut local_addresses[local_address].closed_services;
        closed_services.try_reserve(listener_count).map_err(|_| io::ErrorKind::OutOfMemory)?;
        local_addresses[local_address]
            .cm
            .listen(listener.port, listener.backlog)
            .map_err(|_| io::ErrorKind::AddrInUse)?;
        listener.services.push((local_address, service));
        Ok(())
    }

    /// Returns the index of the local address from which packets reach a peer, and the path MTU.
    /// Opens the address if necessary.
    pub(super) fn route_to(
        &mut self,
        peer: SocketAddr,
    ) -> std::result::Result<(usize, PathMtu), LocalFailure> {
        let route =
            Route::to(peer, self.params.adapter.bind).map_err(|error| LocalFailure::of(&error))?;
        let index = self.local_addresses.iter().position(|s| s.address().ip() == route.source.ip());
        let index = match index {
            Some(index) => index,
            None => self
                .open_local_address(route.source, OPEN_TIMEOUT_CONNECTING)
                .map_err(local_failure)?,
        };
        Ok((index, route.mtu.min(self.params.mtu)))
    }
}

/// Converts an error of opening a local address into the reason why an attempt to connect fails.
fn local_failure(error: PortError) -> LocalFailure {
    let why = error.to_string();
    match error {
        PortError::Full(_) | PortError::Descriptors(..) | PortError::NoLocalPort(_) => {
            LocalFailure::Exhausted(why)
        }
        _ => LocalFailure::Lasting(why),
    }
}

fn open_error(error: PortError) -> OpenError {
    let code = match error {
        PortError::System(..) => Error::of(DAT_INVALID_ADDRESS),
        _ => Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_DEVICE),
    };
    OpenError::new(code, error.to_string())
}
