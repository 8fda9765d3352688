//! A DAT provider that needs no RDMA device: iWARP (MPA, DDP, RDMAP) over TCP sockets in user
//! space.
//!
//! The files from top to bottom:
//!
//! | file | content |
//! |---|---|
//! | `linger` | sockets that wait until their peers close |
//! | `link` | a queue pair and its connection, from the first SYN to the last completion |
//! | `listeners` | the passive side before a queue pair is involved: listeners and callers |
//! | `engine` | the engine of an open adapter, see [`adapter::Engine`] |
//! | `shm` | shared memory in place of TCP, between two processes of one host |
//! | `connection` | a connected socket, with the capture of its traffic (docs/capture.md) |
//! | `socket` | creates, binds and configures sockets; sends and receives |
//! | `params` | ia_params: the address and the options |
//!
//! The crate `adapter` makes progress and puts objects over rnic's queues, which `dat-adapter`
//! passes to dat-core. The crates `rnic` and `wire` contain the protocol.

mod connection;
mod engine;
mod linger;
mod link;
mod listeners;
mod params;
mod shm;
mod socket;
mod unconfirmed;

use std::sync::Arc;

use adapter::{Error, Limits, params::invalid};
use dat_adapter::{Adapter, open_error};
use dat_core::OpenError;
use dat_core::provider::Provider;
use rnic::rdmap::setup::MAX_READ_DEPTH;
use tracing::debug;

use crate::engine::Engine;
use crate::params::Params;
use crate::shm::{ForwardedOffers, OfferDirectory};
use crate::unconfirmed::Unconfirmed;

/// The provider. It opens adapters.
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpEmu;

pub use crate::params::KEYS;

/// Checks ia_params and the value of `OPENDAT_PARAMS`.
///
/// # Errors
/// The errors with which [`TcpEmu`] would refuse to open an adapter, as far as they are known
/// without opening one and without the addresses of the host.
pub fn check(params: &str, defaults: &str) -> Result<(), OpenError> {
    Params::check(params, defaults).map_err(open_error)
}

/// An open adapter.
pub type Tcp = Adapter<Engine>;

impl Provider for TcpEmu {
    type Transport = Tcp;
    const NAME: &'static str = "tcp-emu";

    fn open(&self, ia: &str, params: &str) -> Result<Tcp, OpenError> {
        let params = parse(params).map_err(open_error)?;
        let limits = Limits {
            max_read_depth: MAX_READ_DEPTH,
            max_message: u32::MAX,
            // iWARP has no datagrams.
            max_datagram: None,
            max_private: 252,
            extended: params.extended,
        };
        let crc = if params.crc { "requested" } else { "if the peer requests it" };
        let named = vec![
            ("transport".to_owned(), "iWARP over TCP, in user space".to_owned()),
            ("shm".to_owned(), shared_memory(&params).to_owned()),
            ("crc".to_owned(), crc.to_owned()),
        ];
        let adapter = params.adapter.clone();
        let offers = Arc::new(ForwardedOffers::default());
        let unconfirmed = Arc::new(Unconfirmed::default());
        let directory = params.shm.and_then(|_| {
            let log = |error: &_| debug!(target: "dat::ia", ia, %error, "offers no shared memory");
            OfferDirectory::find().inspect_err(log).ok()
        });
        let engine = move |context| {
            Ok(Engine::new(context, params.clone(), directory.clone(), &offers, &unconfirmed))
        };
        Adapter::open(ia, &adapter, limits, named, engine)
    }
}

/// Parses ia_params, and checks that the host has what they name.
fn parse(params: &str) -> Result<Params, adapter::OpenError> {
    let params = Params::parse(params, &adapter::params::defaults())?;
    if let Some(cc) = &params.cc {
        socket::check_congestion_control(cc).map_err(|e| {
            invalid(format!("cc={cc}: {e}; see /proc/sys/net/ipv4/tcp_allowed_congestion_control"))
        })?;
    }
    if let Some(addr) = params.adapter.bind {
        socket::check_bind(addr).map_err(|e| {
            let reason = format!("ia_params: binding to {}: {e}", addr.ip());
            adapter::OpenError::new(Error::NoSuchAddress, reason)
        })?;
    }
    Ok(params)
}

/// Says which connections move to shared memory.
fn shared_memory(params: &Params) -> &'static str {
    match () {
        () if params.shm.is_none() => "off",
        () if params.crc => "off, because CRCs are requested",
        () if !params.extended => "off, because RFC 7306 is off",
        () if params.adapter.capture.is_some() => "off, because of the capture",
        () => "with processes of this user on this host",
    }
}
