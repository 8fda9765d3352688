//! The local addresses of an engine: opening them, listening at them, and choosing one for a peer.

use std::hint::black_box;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use adapter::netdev::{self, NetAddr};
use adapter::{Error, LocalFailure, OpenError, Result};
use mio::Interest;
use wire::cm::ServiceId;
use wire::rocev2::PathMtu;

use super::Engine;
use crate::datagram_link::DatagramLink;
use crate::local_address::LocalAddress;
use crate::resources::{EngineResources, SocketKey};
use crate::route::Route;
use crate::shared_port::{OPEN_TIMEOUT, OPEN_TIMEOUT_CONNECTING, PortError, SLOTS};

/// The room in memory for the parts of a local address, in bytes. The parts need some 200 KiB.
const ADDRESS_BYTES: usize = 512 << 10;

impl Engine {
    /// Opens the address that `adapter` specifies, or the main address of the host. Opening an
    /// address takes half a millisecond. So if the adapter serves all addresses of the host, the
    /// other addresses are opened when they are first needed: by the first listener, or by a
    /// connection whose packets leave from there.
    pub(super) fn open_main_address(
        &mut self,
        adapter: &adapter::Config,
    ) -> std::result::Result<(), OpenError> {
        let opened = self.open_local_address(adapter.address, &adapter.host, OPEN_TIMEOUT);
        opened.map(drop).map_err(|error| OpenError::new(code_of(&error), error.to_string()))
    }

    /// Opens all addresses that the adapter serves, with the same slot at each of them, because the
    /// numbers of queue pairs must be valid at all of them. If another adapter has the slot at one
    /// of the addresses, tries the next slot that is free at the main address.
    pub(super) fn open_addresses_with_one_slot(
        &mut self,
        adapter: &adapter::Config,
    ) -> std::result::Result<(), OpenError> {
        loop {
            self.open_main_address(adapter)?;
            let slot = self.local_addresses[0].port.slot();
            self.slots = slot..slot + 1;
            match self.open_other_addresses() {
                Ok(()) => return Ok(()),
                Err(PortError::SlotTaken(_)) => self.slots = slot + 1..SLOTS.end,
                Err(error) => return Err(OpenError::new(code_of(&error), error.to_string())),
            }
            let EngineResources { context, .. } = &self.resources;
            for LocalAddress { port, host_probe, .. } in self.local_addresses.drain(..) {
                context.unwatch(&port.socket);
                context.unwatch(&port.req_socket);
                context.unwatch(&port.local_socket);
                context.unwatch(&port.liveness.listener);
                host_probe.iter().for_each(|host_probe| context.unwatch(host_probe));
            }
        }
    }

    /// Opens all addresses that the adapter serves and that are not open yet.
    pub(super) fn open_all_addresses(&mut self) -> Result<()> {
        self.open_other_addresses().map_err(|error| {
            tracing::warn!(target: "dat::cm", because = %error, "cannot listen");
            code_of(&error)
        })
    }

    fn open_other_addresses(&mut self) -> std::result::Result<(), PortError> {
        if self.bind.is_some() || self.all_addresses_are_open {
            return Ok(());
        }
        let no_memory = PortError::NoMemory(self.local_addresses[0].address().ip());
        if !has_room() {
            return Err(no_memory);
        }
        let host = netdev::addresses().map_err(|_| no_memory)?;
        for found in host.iter().filter(|found| found.up) {
            if self.local_addresses.iter().any(|at| at.is_at(found.addr)) {
                continue;
            }
            match self.open_local_address(found.addr, &host, self.open_timeout()) {
                // The adapter works without this address. The address may be unusable now, or the
                // process may have too few descriptors left.
                Ok(_) | Err(PortError::System(..) | PortError::Descriptors(..)) => {}
                Err(error) => return Err(error),
            }
        }
        self.all_addresses_are_open = true;
        Ok(())
    }

    /// The time to wait for the shared sockets. It is short while connections wait for this engine.
    fn open_timeout(&self) -> Duration {
        match self.links.iter().any(|link| link.local_address().is_some()) {
            true => OPEN_TIMEOUT_CONNECTING,
            false => OPEN_TIMEOUT,
        }
    }

    /// Opens a local address. `host` has the addresses of the host. `timeout` is the time to wait
    /// for the shared sockets.
    fn open_local_address(
        &mut self,
        address: SocketAddr,
        host: &[NetAddr],
        timeout: Duration,
    ) -> std::result::Result<usize, PortError> {
        if !has_room() {
            return Err(PortError::NoMemory(address.ip()));
        }
        let capture = self.resources.context.capture().cloned();
        let (hosts, number) = self.hosts.of(address);
        let hosts = (host, hosts, number);
        let place = (address, self.slots.clone(), timeout);
        let mut local_address = LocalAddress::open(place, hosts, self.guid, &self.config, capture)?;
        let of_datagram_links = self.datagram_links.iter().filter_map(DatagramLink::number);
        let numbers = self.links.iter().filter_map(|link| link.number).chain(of_datagram_links);
        numbers.for_each(|number| local_address.qpns.reserve(number));
        let unused = self.resources.context.unused_qps().clone();
        local_address.cm.share_queue_pairs(Box::new(move || unused.count()));
        let index = self.local_addresses.len();
        let system = |error| PortError::System(address.ip(), error);
        let readable = Interest::READABLE;
        let EngineResources { context, .. } = &self.resources;
        context
            .watch(SocketKey::Socket(index), &local_address.port.socket, readable)
            .map_err(system)?;
        context
            .watch(SocketKey::ReqSocket(index), &local_address.port.req_socket, readable)
            .map_err(system)?;
        context
            .watch(SocketKey::LocalSocket(index), &local_address.port.local_socket, readable)
            .map_err(system)?;
        context
            .watch(
                SocketKey::LivenessListener(index),
                &local_address.port.liveness.listener,
                readable,
            )
            .map_err(system)?;
        if let Some(host_probe) = &local_address.host_probe {
            context.watch(SocketKey::HostProbe(index), host_probe, readable).map_err(system)?;
        }
        for link in self.datagram_links.iter_mut().filter(|link| link.number().is_some()) {
            link.qpn_at(index, &mut local_address);
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
            SocketKey::Service { listener: index, local_address },
            &service.local_socket,
            Interest::READABLE,
        )?;
        // Reserve memory for all listeners now, so that closing them needs no memory.
        let listener_count = listeners_before + 1;
        local_addresses[local_address].reserve_closed_services(listener_count)?;
        local_addresses[local_address]
            .cm
            .listen(listener.port, listener.backlog)
            .map_err(|_| io::ErrorKind::AddrInUse)?;
        local_addresses[local_address]
            .sidr
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
        let route = Route::to(peer, self.bind).map_err(|error| LocalFailure::of(&error))?;
        let index = self.index_of(route.source).map_err(local_failure)?;
        Ok((index, route.mtu.min(self.config.mtu)))
    }

    /// Returns the index of a local address. Opens the address if necessary.
    pub(super) fn index_of(
        &mut self,
        address: SocketAddr,
    ) -> std::result::Result<usize, PortError> {
        let known = self.local_addresses.iter().position(|at| at.is_at(address));
        known.map_or_else(
            || {
                let host = netdev::addresses().unwrap_or_default();
                self.open_local_address(address, &host, self.open_timeout())
            },
            Ok,
        )
    }
}

/// Converts an error of opening a local address into the reason why an attempt to connect fails.
fn local_failure(error: PortError) -> LocalFailure {
    let why = error.to_string();
    match error {
        PortError::Full(_) | PortError::NoLocalPort(_) => LocalFailure::NoPort(why),
        PortError::Descriptors(..) | PortError::NoMemory(_) => LocalFailure::Exhausted(why),
        _ => LocalFailure::Lasting(why),
    }
}

/// Returns the code with which a call of the consumer fails that cannot open a local address.
pub(super) fn code_of(error: &PortError) -> Error {
    match error {
        PortError::NoMemory(_) => Error::NoMemory,
        PortError::System(..) => Error::NoSuchAddress,
        _ => Error::NoLocalPort,
    }
}

/// Whether there is memory to open an address. The check at the start of a consumer's call does not
/// suffice: it asks for less memory, unless the call opens an adapter.
fn has_room() -> bool {
    let mut room = Vec::<u8>::new();
    let has_room = room.try_reserve_exact(ADDRESS_BYTES).is_ok();
    // Use the memory. Otherwise the compiler could omit the allocation.
    drop(black_box(room));
    has_room
}
