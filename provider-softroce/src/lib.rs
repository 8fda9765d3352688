//! A DAT provider that needs no RDMA device: RoCEv2 over UDP sockets, in user space, without
//! privileges.
//!
//! The modules from top to bottom:
//!
//! | module | contents |
//! |---|---|
//! | `engine` | the engine on which the adapter (crate `adapter`) is built: all of the modules below |
//! | `listeners` | listeners (service points) and the connection requests that arrived there |
//! | `link` | a queue pair and its connection |
//! | `datagram_link` | a datagram queue pair |
//! | `local_address` | an address in use: its port, its packet I/O, its connection manager |
//! | `packet_io` | packets to and from a socket: ICRC, batches, the emulated network, captures |
//! | `backlog` | batches that a socket had no room for |
//! | `outgoing` | the packets that wait to be sent, and the batches in which they leave |
//! | `connected_socket` | a faster path to peers at the same address |
//! | `hosts` | whether the hosts of silent peers are up |
//! | `host_probe` | asks a peer's host whether a process has the port and whether the host is up |
//! | `route` | the local address and the path MTU that lead to a peer |
//! | `selftest` | whether this host's IP headers fit the ICRC |
//! | `socket` | UDP sockets: batches, errors, and the options that make the IP header predictable |
//! | `read_pacing` | when the engine reads the REQ socket |
//! | `port` | UDP port 4791, which all processes share |
//! | `params` | ia_params: the address and the options |
//!
//! The crates `rnic` and `wire` contain the protocols. The crate `adapter` decides which thread
//! makes progress, and `dat-adapter` passes its objects to dat-core. docs/softroce.md describes the
//! behaviour for users. docs/softroce-design.md describes the fields of packets, and what strangers
//! can do.

mod backlog;
mod connected_socket;
mod datagram_link;
mod engine;
mod host_probe;
mod hosts;
mod link;
mod listeners;
mod local_address;
mod outgoing;
mod packet_io;
mod params;
mod path_reports;
mod port;
mod read_pacing;
mod route;
mod selftest;
mod socket;

use std::sync::Arc;

use adapter::Limits;
use dat_adapter::{Adapter, open_error};
use dat_core::OpenError;
use dat_core::provider::Provider;
use rnic::cm::Cm;
use wire::rocev2::PathMtu;

use crate::engine::Engine;
use crate::hosts::HostsOfAdapter;
pub use crate::params::Params;
use crate::route::Route;

/// The provider: opens adapters.
#[derive(Clone, Copy, Debug, Default)]
pub struct SoftRoce;

/// Whether the kernel sends batches of IPv4 packets with the header fields that the ICRC covers as
/// expected. If it does not, packets are sent one by one.
pub fn gso_headers_fit_icrc() -> bool {
    selftest::gso_headers_fit_icrc(std::net::SocketAddr::from((std::net::Ipv4Addr::LOCALHOST, 0)))
}

/// An open adapter.
pub type Roce = Adapter<Engine>;

/// The maximum number of READs and atomic operations in flight in either direction. The protocol's
/// fields have 8 bits. The kernel's rxe has the same limit.
pub(crate) const MAX_READ_DEPTH: u32 = 128;

impl Provider for SoftRoce {
    type Transport = Roce;
    const NAME: &'static str = "softroce";

    fn open(&self, ia: &str, params: &str) -> Result<Roce, OpenError> {
        let no_other = |key: &str, _: &str| unreachable!("{key} is not in KEYS");
        let defaults = adapter::params::defaults();
        let params = Params::parse(params, &defaults, Params::KEYS, no_other);
        open(ia, params.map_err(open_error)?, "user space")
    }
}

/// Opens an adapter. `engine` says why the engine in user space serves the adapter. It becomes the
/// value of the adapter's attribute `engine`.
///
/// # Errors
/// Those of [`SoftRoce::open`](Provider::open).
pub fn open(ia: &str, params: Params, engine: &str) -> Result<Roce, OpenError> {
    let mtu = max_datagram(&params);
    let limits = Limits {
        max_read_depth: MAX_READ_DEPTH,
        max_message: rnic::rc::MAX_MESSAGE,
        max_datagram: Some(mtu.octets() as u32),
        max_private: Cm::MAX_CONNECT_PRIVATE,
        extended: true,
    };
    let named = vec![
        ("transport".to_owned(), "RoCEv2, in user space".to_owned()),
        ("engine".to_owned(), engine.to_owned()),
        ("network".to_owned(), params.conditions.to_string()),
    ];
    let adapter = params.adapter.clone();
    let hosts = Arc::new(HostsOfAdapter::default());
    let early_pool = Arc::default();
    let engine = move |context| {
        Engine::new(context, params.clone(), Arc::clone(&hosts), Arc::clone(&early_pool), mtu)
    };
    Adapter::open(ia, &adapter, limits, named, engine)
}

/// The longest datagram of an adapter: the payload of a packet that fits the interface of the
/// adapter's address.
fn max_datagram(params: &Params) -> PathMtu {
    let ip_mtu = Route::ip_mtu_of(params.adapter.address, &params.adapter.host);
    PathMtu::of_interface(ip_mtu).unwrap_or(PathMtu::Octets256).min(params.mtu)
}
