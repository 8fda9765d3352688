//! A DAT provider that needs no RDMA device: RoCEv2 over UDP sockets, from user space, as an unprivileged user.
//!
//! | file | what |
//! |---|---|
//! | `params` | ia_params: which address, which options |
//! | `port` | UDP port 4791, shared by all processes |
//! | `socket` | UDP sockets: batches, errors, the options that make a packet's IP header known |
//! | `selftest` | whether this host's IP headers are what the ICRC needs |
//! | `route` | which address, and which path MTU, leads to a peer |
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
mod line;
mod link;
mod params;
mod port;
mod route;
mod selftest;
mod socket;
mod station;

use adapter::{Adapter, Wire};
use dat_core::OpenError;
use dat_core::provider::Provider;
use rnic::cm::Cm;

use crate::engine::Engine;
use crate::params::Params;

/// The provider: opens adapters.
#[derive(Clone, Copy, Debug, Default)]
pub struct SoftRoce;

/// An open adapter.
pub type Roce = Adapter<Engine>;

/// READs and atomic operations in flight, either direction: the fields for it have 8 bits; as many as kernel rxe has.
pub(crate) const MAX_READ_DEPTH: u32 = 128;

impl Provider for SoftRoce {
    type Transport = Roce;
    const NAME: &'static str = "softroce";

    fn open(&self, ia: &str, params: &str) -> Result<Roce, OpenError> {
        let params = Params::parse(params, |name| std::env::var(name).ok())?;
        let wire = Wire {
            max_read_depth: MAX_READ_DEPTH,
            max_private: Cm::MAX_CONNECT_PRIVATE,
            extended: true,
            named: vec![
                ("transport".to_owned(), "RoCEv2, in user space".to_owned()),
                ("network".to_owned(), params.conditions.to_string()),
            ],
        };
        let adapter = params.adapter.clone();
        Adapter::open(ia, &adapter, wire, |context| Engine::new(context, params))
    }
}
