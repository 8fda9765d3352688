//! A DAT provider that needs no RDMA device: iWARP (MPA, DDP, RDMAP) over TCP sockets, in user
//! space. The crate `iwarp` is the adapter, and `dat-adapter` passes its objects to dat-core.
//! docs/tcp-emu.md describes the provider for users.
//! # Example
//!
//! An adapter opens at an address of this host. A mistake in its parameters is explained:
//!
//! ```
//! use dat_core::provider::{Provider, Transport};
//! use provider_tcp_emu::TcpEmu;
//!
//! let adapter = TcpEmu.open("iwarp0", "127.0.0.1 crc=on")?;
//! let attrs = adapter.attrs();
//! assert_eq!(attrs.address.ip(), std::net::Ipv4Addr::LOCALHOST);
//! assert!(attrs.named.contains(&("crc".to_owned(), "requested".to_owned())));
//! assert!(attrs.atomics && attrs.max_message == u32::MAX);
//!
//! let mistake = TcpEmu.open("iwarp0", "127.0.0.1 crc=maybe").err().ok_or("no error")?;
//! assert!(mistake.reason.contains("crc=maybe: expected on or off"), "{mistake}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | file | content |
//! |---|---|
//! | `params` | ia_params: the address and the options |

mod params;

use dat_adapter::{Adapter, open_error};
use dat_core::OpenError;
use dat_core::export::AnyProvider;
use dat_core::provider::Provider;

pub use crate::params::KEYS;
use crate::params::Params;

/// The provider. It opens adapters.
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpEmu;

/// An open adapter.
pub type Tcp = Adapter<iwarp::Engine>;

impl Provider for TcpEmu {
    type Transport = Tcp;
    const NAME: &'static str = "tcp-emu";

    fn open(&self, ia: &str, params: &str) -> Result<Tcp, OpenError> {
        let params = Params::parse(params, &adapter::params::defaults())?;
        let crc = if params.config.crc { "requested" } else { "if the peer requests it" };
        let named = vec![
            ("transport".to_owned(), "iWARP over TCP, in user space".to_owned()),
            ("shm".to_owned(), shared_memory(&params).to_owned()),
            ("crc".to_owned(), crc.to_owned()),
        ];
        let Params { common, config } = params;
        let iwarp = iwarp::open(ia, &common.adapter, config).map_err(open_error)?;
        Ok(Adapter::new(ia, iwarp, &common, named))
    }
}

/// Returns the provider without its Rust type. It is not inlined, so that the code of dat-core for
/// this provider's transport is compiled once, with this crate.
#[inline(never)]
pub fn provider() -> AnyProvider {
    AnyProvider::of::<TcpEmu>()
}

/// Says which connections move to shared memory.
fn shared_memory(params: &Params) -> &'static str {
    match () {
        () if params.config.shm.is_none() => "off",
        () if params.config.crc => "off, because CRCs are requested",
        () if !params.config.extended => "off, because RFC 7306 is off",
        () if params.common.adapter.capture.is_some() => "off, because of the capture",
        () => "with processes of this user on this host",
    }
}

/// Checks ia_params and the value of `OPENDAT_PARAMS`.
///
/// # Errors
/// The errors with which [`TcpEmu`] would refuse to open an adapter, as far as they are known
/// without opening one and without the addresses of the host.
pub fn check(params: &str, defaults: &str) -> Result<(), OpenError> {
    Params::check(params, defaults)
}
