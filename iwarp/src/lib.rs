//! An RDMA adapter that needs no RDMA device: iWARP (MPA, DDP, RDMAP) over TCP sockets, in user
//! space, without privileges. It knows no programming interface.
//!
//! ```
//! use adapter::Sink;
//! use iwarp::Config;
//!
//! let address = adapter::Config::new(Some("127.0.0.1"))?;
//! let config = Config { crc: true, ..Config::default() };
//! let adapter = iwarp::open("iwarp0", &address, config)?;
//! assert_eq!(adapter.limits().max_message, u32::MAX);
//!
//! let listener = adapter.listen(None, 8, Sink::new(|event| drop(event)))?;
//! assert_ne!(listener.port(), 0, "peers connect to this TCP port");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The modules from top to bottom. Each uses only modules below it:
//!
//! | module | contents |
//! |---|---|
//! | `engine` | the engine of an open adapter, see [`adapter::Engine`] |
//! | `link` | a queue pair and its connection, from the first SYN to the last completion |
//! | `listeners` | the passive side before a queue pair is involved: listeners and callers |
//! | `linger` | sockets that wait until their peers close |
//! | `resources` | what the parts of the engine share: the poller, the timers, lists of work |
//! | `unconfirmed` | how many queue pairs one address occupies without confirming an acceptance |
//! | `connection` | a connected socket, with the capture of its traffic (docs/capture.md) |
//! | `config` | the configuration: [`Config`] |
//! | `shm` | shared memory in place of TCP, between two processes of one host |
//! | `socket` | creates, binds and configures sockets; sends and receives |
//!
//! The crate `adapter` makes progress and puts objects over rnic's queues. The crates `rnic` and
//! `wire` contain the protocol.

mod config;
mod connection;
mod engine;
mod linger;
mod link;
mod listeners;
mod resources;
mod shm;
mod socket;
mod unconfirmed;

use std::sync::Arc;

use adapter::{Adapter, Error, Limits, OpenError};
use rnic::rdmap::setup::MAX_READ_DEPTH;
use tracing::debug;

pub use crate::config::Config;
pub use crate::engine::Engine;
use crate::resources::EngineResources;
use crate::shm::{ForwardedOffers, OfferDirectory};
pub use crate::socket::PeerTimeout;
use crate::unconfirmed::Unconfirmed;

/// Opens an adapter with this name at the address of `address`.
///
/// # Errors
/// Those of [`Adapter::open`]; [`Error::NoSuchAddress`] if the address cannot be bound;
/// [`Error::InvalidArgument`] if the system does not allow the congestion control.
pub fn open(
    name: &str,
    address: &adapter::Config,
    config: Config,
) -> Result<Adapter<Engine>, OpenError> {
    if let Some(cc) = &config.cc {
        socket::check_congestion_control(cc).map_err(|error| {
            let reason =
                format!("cc={cc}: {error}; see /proc/sys/net/ipv4/tcp_allowed_congestion_control");
            OpenError::new(Error::InvalidArgument, reason)
        })?;
    }
    if let Some(bind) = address.bind {
        socket::check_bind(bind).map_err(|error| {
            OpenError::new(Error::NoSuchAddress, format!("binding to {}: {error}", bind.ip()))
        })?;
    }
    let limits = Limits {
        max_read_depth: MAX_READ_DEPTH,
        max_message: u32::MAX,
        // iWARP has no datagrams.
        max_datagram: None,
        max_private: 252,
        extended: config.extended,
    };
    let bind = address.bind;
    let offers = Arc::new(ForwardedOffers::default());
    let unconfirmed = Arc::new(Unconfirmed::default());
    let directory = config.shm.and_then(|_| {
        let log =
            |error: &_| debug!(target: "dat::ia", ia = name, %error, "offers no shared memory");
        OfferDirectory::find().inspect_err(log).ok()
    });
    Adapter::open(name, address, limits, move |context| {
        let directory = directory.clone();
        let config = config.clone();
        let resources =
            EngineResources::new(context, bind, config, directory, &offers, &unconfirmed);
        Ok(Engine::new(resources))
    })
}
