//! A DAT provider that needs no RDMA device: RoCEv2 over UDP sockets, from user space, as an unprivileged user.
//!
//! | file | what |
//! |---|---|
//! | `params` | ia_params: which address, which options |
//! | `kernel`, `netlink` | the kernel's rxe in place of all that follows, where there is one |
//! | `port` | UDP port 4791, shared by all processes |
//! | `read_pacing` | when the engine reads the strangers' socket (the door) |
//! | `socket` | UDP sockets: batches, errors, the options that make a packet's IP header known |
//! | `selftest` | whether this host's IP headers are what the ICRC needs |
//! | `route` | which address, and which path MTU, leads to a peer |
//! | `scout` | whether anybody at all has the port on a peer's host |
//! | `hosts` | whether the hosts of peers that do not answer live |
//! | `express` | a quicker way to peers at the same address |
//! | `line` | packets to and from a socket: ICRC, batches, the emulated network, captures |
//! | `station` | an address in use: its port, its line, its connection manager |
//! | `link` | a queue pair and its connection |
//! | `calls` | service points and the requests that came there |
//! | `engine` | all of that: what the adapter (see the crate `adapter`) is built on |
//!
//! The protocols themselves are in `rnic` and `wire`, who makes progress in `adapter`. docs/softroce.md tells how it looks
//! from outside, and why processes share the port as they do.

mod calls;
mod engine;
mod express;
mod hosts;
mod kernel;
mod line;
mod link;
mod netlink;
mod params;
mod port;
mod read_pacing;
mod route;
mod scout;
mod selftest;
mod socket;
mod station;

use adapter::{Adapter, Wire};
use dat_core::OpenError;
use dat_core::environment::variable;
use dat_core::provider::{Either, Provider};
use rnic::cm::Cm;

use crate::engine::Engine;
use crate::params::{Params, Which};

/// The provider: opens adapters.
#[derive(Clone, Copy, Debug, Default)]
pub struct SoftRoce;

/// Whether this host's batches of IPv4 packets have the headers that the ICRC needs; where they have not, packets leave one by one.
pub fn batches_are_as_they_should() -> bool {
    selftest::batches_are_as_they_should(std::net::SocketAddr::from((
        std::net::Ipv4Addr::LOCALHOST,
        0,
    )))
}

/// Whether it understands these ia_params and what the environment says.
///
/// # Errors
/// As [`SoftRoce`] would open an adapter, as far as that can be told without.
pub fn check(params: &str, env: impl Fn(&str) -> Option<String>) -> Result<(), OpenError> {
    Params::parse(params, env).map(drop)
}

/// An open adapter.
pub type Roce = Adapter<Engine>;

/// READs and atomic operations in flight, either direction: the fields for it have 8 bits; as many as kernel rxe has.
pub(crate) const MAX_READ_DEPTH: u32 = 128;

impl Provider for SoftRoce {
    type Transport = Roce;
    type Other = provider_verbs::Adapter;
    const NAME: &'static str = "softroce";

    /// By the engine in user space, whatever ia_params say of engines.
    fn open(&self, ia: &str, params: &str) -> Result<Roce, OpenError> {
        user(ia, parse(params)?, "user space")
    }

    fn open_either(
        &self,
        ia: &str,
        text: &str,
    ) -> Result<Either<Roce, provider_verbs::Adapter>, OpenError> {
        let params = parse(text)?;
        match params.which {
            Which::User => user(ia, params, "user space: engine=user").map(Either::Own),
            Which::Kernel => {
                // What the environment asks for is meant for those who can.
                if let Some(key) = Params::parse(text, |_| None)?.own {
                    let reason = format!(
                        "{key}: of the engine in user space; engine=kernel has no such thing"
                    );
                    return Err(adapter::params::invalid(reason));
                }
                kernel::open_or_make(ia, &params).map(Either::Other)
            }
            Which::Auto => auto(ia, params),
        }
    }
}

fn parse(params: &str) -> Result<Params, OpenError> {
    Params::parse(params, variable)
}

/// The kernel's engine where it has one and can do what is asked for, and lets us; else the one in user space. One choice for
/// the life of the adapter, and told with its reason.
fn auto(ia: &str, params: Params) -> Result<Either<Roce, provider_verbs::Adapter>, OpenError> {
    let Some(rxe) = kernel::find(params.adapter.bind) else {
        return user(ia, params, "user space: the kernel has no rxe device here").map(Either::Own);
    };
    let name = &rxe.name;
    let why_not = match params.own {
        Some(key) => format!("the kernel's {name} has no {key}"),
        None => match kernel::open(ia, &rxe, &params, "it was there") {
            Ok(adapter) => return Ok(Either::Other(adapter)),
            Err(error) => format!("the kernel's {name} cannot be used: {}", error.reason),
        },
    };
    user(ia, params, &format!("user space: {why_not}"))
        .map(Either::Own)
        .map_err(|error| OpenError::new(error.code, format!("{}; {why_not}", error.reason)))
}

/// The engine in user space, and why it is that one.
fn user(ia: &str, params: Params, why: &str) -> Result<Roce, OpenError> {
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
