//! A DAT provider that needs no RDMA device: RoCEv2 over UDP sockets, in user space, without
//! privileges.
//!
//! | module | contents |
//! |---|---|
//! | `params` | ia_params: the address and the options |
//! | `kernel`, `netlink` | the kernel's rxe, which replaces all of the following if available |
//! | `port` | UDP port 4791, which all processes share |
//! | `read_pacing` | when the engine reads the strangers' socket |
//! | `socket` | UDP sockets: batches, errors, and the options that make the IP header predictable |
//! | `selftest` | whether this host's IP headers fit the ICRC |
//! | `route` | the local address and the path MTU that lead to a peer |
//! | `host_probe` | asks a peer's host whether a process has the port and whether the host is up |
//! | `hosts` | whether the hosts of silent peers are up |
//! | `connected_socket` | a faster path to peers at the same address |
//! | `packet_io` | packets to and from a socket: ICRC, batches, the emulated network, captures |
//! | `local_address` | an address in use: its port, its packet I/O, its connection manager |
//! | `link` | a queue pair and its connection |
//! | `listeners` | listeners (service points) and the connection requests that arrived there |
//! | `engine` | all of these together: the engine on which the adapter (crate `adapter`) is built |
//!
//! The crates `rnic` and `wire` contain the protocols. The crate `adapter` decides which thread
//! makes progress. docs/softroce.md describes the behaviour and explains how and why processes
//! share the port.

mod connected_socket;
mod engine;
mod host_probe;
mod hosts;
mod kernel;
mod link;
mod listeners;
mod local_address;
mod netlink;
mod packet_io;
mod params;
mod port;
mod read_pacing;
mod route;
mod selftest;
mod socket;

use adapter::{Adapter, Wire};
use dat_core::OpenError;
use dat_core::environment::variable;
use dat_core::provider::{Either, Provider};
use rnic::cm::Cm;

use crate::engine::Engine;
use crate::params::{EngineChoice, Params};

/// The provider: opens adapters.
#[derive(Clone, Copy, Debug, Default)]
pub struct SoftRoce;

/// Whether the kernel sends batches of IPv4 packets with the header fields that the ICRC covers as
/// expected. If it does not, packets are sent one by one.
pub fn gso_headers_fit_icrc() -> bool {
    selftest::gso_headers_fit_icrc(std::net::SocketAddr::from((std::net::Ipv4Addr::LOCALHOST, 0)))
}

/// Checks ia_params and the environment variables without opening an adapter.
///
/// # Errors
/// Returns the error with which [`SoftRoce`] would refuse these parameters, as far as it is known
/// without the addresses of the host.
pub fn check(params: &str, env: impl Fn(&str) -> Option<String>) -> Result<(), OpenError> {
    Params::check(params, env)
}

/// An open adapter.
pub type Roce = Adapter<Engine>;

/// Maximum number of READs and atomic operations in flight in either direction. The protocol's
/// fields have 8 bits; the kernel's rxe allows as many as this.
pub(crate) const MAX_READ_DEPTH: u32 = 128;

impl Provider for SoftRoce {
    type Transport = Roce;
    type Other = provider_verbs::Adapter;
    const NAME: &'static str = "softroce";

    /// Opens an adapter of the engine in user space, whatever the key `engine` says.
    fn open(&self, ia: &str, params: &str) -> Result<Roce, OpenError> {
        open_user_engine(ia, parse(params)?, "user space")
    }

    fn open_either(
        &self,
        ia: &str,
        text: &str,
    ) -> Result<Either<Roce, provider_verbs::Adapter>, OpenError> {
        let params = parse(text)?;
        match params.engine {
            EngineChoice::User => {
                open_user_engine(ia, params, "user space: engine=user").map(Either::Own)
            }
            EngineChoice::Kernel => {
                // The environment variables are meant for engines that support them, so only the
                // keys in ia_params count.
                if let Some(key) = Params::parse(text, |_| None)?.user_only_key {
                    let reason = format!(
                        "{key}: only the engine in user space supports this, not engine=kernel"
                    );
                    return Err(adapter::params::invalid(reason));
                }
                kernel::open_or_create(ia, &params).map(Either::Other)
            }
            EngineChoice::Auto => auto(ia, params),
        }
    }
}

fn parse(params: &str) -> Result<Params, OpenError> {
    Params::parse(params, variable)
}

/// Uses the kernel's engine if there is one, it supports the parameters and it can be opened.
/// Otherwise uses the engine in user space. The choice holds for the life of the adapter and is
/// reported in the attribute `engine` with its reason.
fn auto(ia: &str, params: Params) -> Result<Either<Roce, provider_verbs::Adapter>, OpenError> {
    let Some(rxe) = kernel::find(params.adapter.bind) else {
        return open_user_engine(ia, params, "user space: the kernel has no rxe device here")
            .map(Either::Own);
    };
    let name = &rxe.name;
    let why_not = match params.user_only_key {
        Some(key) => format!("the kernel's {name} does not support {key}"),
        None => match kernel::open(ia, &rxe, &params, "the device exists") {
            Ok(adapter) => return Ok(Either::Other(adapter)),
            Err(error) => format!("the kernel's {name} cannot be used: {}", error.reason),
        },
    };
    open_user_engine(ia, params, &format!("user space: {why_not}"))
        .map(Either::Own)
        .map_err(|error| OpenError::new(error.code, format!("{}; {why_not}", error.reason)))
}

/// Opens an adapter of the engine in user space. `why` is the reason for this choice.
fn open_user_engine(ia: &str, params: Params, why: &str) -> Result<Roce, OpenError> {
    let wire = Wire {
        max_read_depth: MAX_READ_DEPTH,
        max_message: rnic::rc::MAX_MESSAGE,
        max_private: Cm::MAX_CONNECT_PRIVATE,
        extended: true,
        named: vec![
            ("transport".to_owned(), "RoCEv2, in user space".to_owned()),
            ("engine".to_owned(), why.to_owned()),
            ("network".to_owned(), params.conditions.to_string()),
        ],
    };
    let adapter = params.adapter.clone();
    Adapter::open(ia, &adapter, wire, |context| Engine::new(context, params))
}
