//! An RDMA adapter that needs no RDMA device: RoCEv2 over UDP sockets, in user space, without
//! privileges. It knows no programming interface.
//!
//! ```
//! use adapter::Sink;
//! use roce::Config;
//!
//! let address = adapter::Config::new(Some("127.0.0.1"))?;
//! let config = Config { conditions: "loss=1%".parse()?, ..Config::default() };
//! let adapter = roce::open("roce0", &address, config)?;
//! assert_eq!(adapter.limits().max_message, 1 << 31);
//!
//! let listener = adapter.listen(None, 8, Sink::new(|event| drop(event)))?;
//! assert_ne!(listener.port(), 0, "peers connect to this port, at the service ID of rdma_cm");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The modules from top to bottom. Each uses only modules below it:
//!
//! | module | contents |
//! |---|---|
//! | `engine` | the engine on which the adapter (crate `adapter`) is built: all of the modules below |
//! | `listeners` | listeners and the connection requests that arrived there |
//! | `link` | a queue pair and its connection |
//! | `datagram_link` | a datagram queue pair |
//! | `resources` | what the parts of the engine share: lists, timers, and the keys of the poller |
//! | `delayed_ack` | whether an acknowledgement waits for an answer of the consumer |
//! | `refused_requests` | the log of refused connection requests |
//! | `local_address` | an address in use: its port, its packet I/O, its connection manager |
//! | `owner` | who waits for what a connection manager reports |
//! | `host_probe` | asks a peer's host whether a process has the port and whether the host is up |
//! | `hosts` | whether the hosts of silent peers are up |
//! | `packet_io` | packets to and from a socket: ICRC, batches, the emulated network, captures |
//! | `unsent_batches` | batches that a socket had no room for |
//! | `outgoing` | the packets that wait to be sent, and the batches in which they leave |
//! | `connected_socket` | a faster path to peers at the same address |
//! | `path_reports` | which peers' packets are too long for a router or an interface |
//! | `route` | the local address and the path MTU that lead to a peer |
//! | `shared_port` | UDP port 4791, which all processes share |
//! | `cm_packet` | the packets of connection management |
//! | `selftest` | whether this host's IP headers fit the ICRC |
//! | `socket` | UDP sockets: batches, errors, and the options that make the IP header predictable |
//! | `read_pacing` | when the engine reads the REQ socket |
//! | `config` | the configuration: [`Config`] |
//!
//! The crates `rnic` and `wire` contain the protocols. The crate `adapter` decides which thread
//! makes progress. docs/softroce-design.md describes the fields of packets, and what strangers can
//! do.

mod cm_packet;
mod config;
mod connected_socket;
mod datagram_link;
mod delayed_ack;
mod engine;
mod host_probe;
mod hosts;
mod link;
mod listeners;
mod local_address;
mod outgoing;
mod owner;
mod packet_io;
mod path_reports;
mod read_pacing;
mod refused_requests;
mod resources;
mod route;
mod selftest;
mod shared_port;
mod socket;
mod unsent_batches;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use adapter::{Adapter, Limits, OpenError};
use rnic::cm::Cm;
use wire::rocev2::PathMtu;

pub use crate::config::Config;
pub use crate::engine::Engine;
use crate::hosts::HostsOfAdapter;
use crate::route::Route;

/// The maximum number of READs and atomic operations in flight in either direction. The protocol's
/// fields have 8 bits. The kernel's rxe has the same limit.
pub(crate) const MAX_READ_DEPTH: u32 = 128;

/// Opens an adapter with this name at the address of `address`.
///
/// # Errors
/// Those of [`Adapter::open`]; [`adapter::Error::NoSuchAddress`] and
/// [`adapter::Error::NoLocalPort`] if the address or its UDP port cannot be used.
pub fn open(
    name: &str,
    address: &adapter::Config,
    config: Config,
) -> Result<Adapter<Engine>, OpenError> {
    let mtu = max_datagram(address, &config);
    let limits = Limits {
        max_read_depth: MAX_READ_DEPTH,
        max_message: rnic::rc::MAX_MESSAGE,
        max_datagram: Some(mtu.octets() as u32),
        max_private: Cm::MAX_CONNECT_PRIVATE,
        extended: true,
    };
    let of_engines = address.clone();
    let hosts = Arc::new(HostsOfAdapter::default());
    let early_pool = Arc::default();
    Adapter::open(name, address, limits, move |context| {
        let (hosts, early_pool) = (Arc::clone(&hosts), Arc::clone(&early_pool));
        Engine::new(context, &of_engines, config.clone(), hosts, early_pool, mtu)
    })
}

/// The longest datagram of an adapter: the payload of a packet that fits the interface of the
/// adapter's address.
fn max_datagram(address: &adapter::Config, config: &Config) -> PathMtu {
    let ip_mtu = Route::ip_mtu_of(address.address, &address.host);
    PathMtu::of_interface(ip_mtu).unwrap_or(PathMtu::Octets256).min(config.mtu)
}

/// Whether the kernel sends batches of IPv4 packets with the header fields that the ICRC covers as
/// expected. If it does not, packets are sent one by one.
pub fn gso_headers_fit_icrc() -> bool {
    selftest::gso_headers_fit_icrc(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
}
