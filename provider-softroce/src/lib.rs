//! A DAT provider that needs no RDMA device: RoCEv2 over UDP sockets, in user space, without
//! privileges. The crate `roce` is the adapter, and `dat-adapter` passes its objects to dat-core.
//! docs/softroce.md describes the provider for users.
//! # Example
//!
//! An adapter opens at an address of this host. A mistake in its parameters is explained:
//!
//! ```
//! use dat_core::provider::{Provider, Transport};
//! use provider_softroce::SoftRoce;
//!
//! let adapter = SoftRoce.open("roce0", "127.0.0.1 mtu=1024")?;
//! let attrs = adapter.attrs();
//! assert_eq!(attrs.address.ip(), std::net::Ipv4Addr::LOCALHOST);
//! assert!(attrs.named.contains(&("engine".to_owned(), "user space".to_owned())));
//! assert!(attrs.atomics && attrs.max_message == 1 << 31);
//!
//! let mistake = SoftRoce.open("roce0", "127.0.0.1 mtu=1000").err().ok_or("no error")?;
//! assert!(mistake.reason.contains("256, 512, 1024, 2048 or 4096"), "{mistake}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `params` | ia_params: the address and the options |

mod params;

use dat_adapter::{Adapter, open_error};
use dat_core::OpenError;
use dat_core::export::{AnyProvider, Opened};
use dat_core::provider::Provider;

pub use crate::params::Params;

/// The provider: opens adapters.
#[derive(Clone, Copy, Debug, Default)]
pub struct SoftRoce;

/// An open adapter.
pub type Roce = Adapter<roce::Engine>;

impl Provider for SoftRoce {
    type Transport = Roce;
    const NAME: &'static str = "softroce";

    fn open(&self, ia: &str, params: &str) -> Result<Roce, OpenError> {
        let no_other = |key: &str, _: &str| unreachable!("{key} is not in KEYS");
        let defaults = adapter::params::defaults();
        let params = Params::parse(params, &defaults, Params::KEYS, no_other);
        open_adapter(ia, params?, "user space")
    }
}

/// Returns the provider without its Rust type. It is not inlined, so that the code of dat-core for
/// this provider's transport is compiled once, with this crate.
#[inline(never)]
pub fn provider() -> AnyProvider {
    AnyProvider::of::<SoftRoce>()
}

/// Opens an adapter. `engine` says why the engine in user space serves the adapter. It becomes the
/// value of the adapter's attribute `engine`.
///
/// # Errors
/// Those of [`SoftRoce::open`](Provider::open).
pub fn open(ia: &str, params: Params, engine: &str) -> Result<Opened, OpenError> {
    open_adapter(ia, params, engine).map(Opened::new)
}

fn open_adapter(ia: &str, params: Params, engine: &str) -> Result<Roce, OpenError> {
    let Params { common, config, .. } = params;
    let named = vec![
        ("transport".to_owned(), "RoCEv2, in user space".to_owned()),
        ("engine".to_owned(), engine.to_owned()),
        ("network".to_owned(), config.conditions.to_string()),
    ];
    let roce = roce::open(ia, &common.adapter, config).map_err(open_error)?;
    Ok(Adapter::new(ia, roce, &common, named))
}
