//! The adapters that are built into OpenDAT's libraries and programs. No other crate lists them.
//!
//! The libraries in `plugins/` export their providers, too. The module `softroce` chooses the
//! engine of softroce: the engine in user space or the kernel's.
//!
//! Each adapter has a Cargo feature that includes it.
//! # Example
//!
//! A registry without a file has these adapters, and opens one by its name:
//!
//! ```
//! use std::ptr::null_mut;
//!
//! use builtin::ADAPTERS;
//! use dat_sys::{DAT_CLOSE_GRACEFUL_FLAG, DAT_SUCCESS};
//! use registry::{Api, Builtins, List, OpenRequest, Registry, Wanted};
//!
//! const BUILTINS: Builtins =
//!     Builtins { adapters: &[ADAPTERS], api: Api::U2_0, threadsafe: &[true] };
//! let registry = Registry::with_list(List::new(Some("/dev/null".into()), None, BUILTINS));
//! let names = registry.list().names();
//! assert_eq!(names[..3], ["tcp-emu", "softroce", "verbs"], "the names of devices follow");
//!
//! let wanted = Wanted { name: "tcp-emu", major: 2, minor: 0, threadsafe: true };
//! let request = OpenRequest { wanted, async_evd_qlen: 8, async_evd: null_mut() };
//! let opened = registry.open(&request)?;
//! assert_eq!(registry::close(opened.ia, DAT_CLOSE_GRACEFUL_FLAG), DAT_SUCCESS);
//! # Ok::<(), registry::OpenError>(())
//! ```

#![cfg_attr(not(any(feature = "tcp-emu", feature = "softroce", feature = "verbs")), allow(unused))]

#[cfg(feature = "softroce")]
mod softroce;

use dat_core::OpenError;
use dat_core::export::{AnyProvider, register};
use registry::{Builtin, FNS};

/// All built-in adapters, in the order in which programs list them.
pub static ADAPTERS: &[Builtin] = &[
    #[cfg(feature = "tcp-emu")]
    TCP_EMU,
    #[cfg(feature = "softroce")]
    SOFTROCE,
    #[cfg(feature = "verbs")]
    VERBS,
];

/// The adapter `tcp-emu`: iWARP over TCP.
#[cfg(feature = "tcp-emu")]
pub const TCP_EMU: Builtin = Builtin {
    name: "tcp-emu",
    params: "",
    table: |info, params| register(tcp_emu(), FNS, info, params),
    discover: None,
};

/// The adapter `softroce`: RoCEv2 over UDP, in user space or in the kernel.
#[cfg(feature = "softroce")]
pub const SOFTROCE: Builtin = Builtin {
    name: "softroce",
    params: "",
    table: |info, params| register(softroce(), FNS, info, params),
    discover: None,
};

/// The adapter `verbs`, which is the first RDMA device, and one more adapter for each RDMA device.
#[cfg(feature = "verbs")]
pub const VERBS: Builtin = Builtin {
    name: "verbs",
    params: "",
    table: |info, params| register(verbs(), FNS, info, params),
    discover: Some(provider_verbs::entries),
};

/// The provider of `tcp-emu`.
#[cfg(feature = "tcp-emu")]
pub fn tcp_emu() -> AnyProvider {
    provider_tcp_emu::provider()
}

/// The provider of `softroce`: provider-softroce, or provider-verbs over the kernel's rxe.
#[cfg(feature = "softroce")]
pub fn softroce() -> AnyProvider {
    provider_softroce::provider().opened_by(softroce::open)
}

/// The provider of `verbs`.
#[cfg(feature = "verbs")]
pub fn verbs() -> AnyProvider {
    provider_verbs::provider()
}

/// Checks ia_params and the value of `OPENDAT_PARAMS` without opening an adapter. `name` is the
/// name of an adapter. If no built-in adapter has this name, the check succeeds.
///
/// # Errors
/// The errors with which the provider would refuse to open an adapter, as far as they can be found
/// without opening one.
pub fn check(name: &str, params: &str, defaults: &str) -> Result<(), OpenError> {
    match name {
        #[cfg(feature = "tcp-emu")]
        "tcp-emu" => provider_tcp_emu::check(params, defaults),
        #[cfg(feature = "softroce")]
        "softroce" => softroce::check(params, defaults),
        #[cfg(feature = "verbs")]
        "verbs" => provider_verbs::check(params, defaults),
        _ => Ok(()),
    }
}

#[cfg(all(test, feature = "tcp-emu", feature = "softroce", feature = "verbs"))]
mod tests {
    use std::collections::BTreeSet;

    #[test]
    fn the_keys_of_opendat_params_are_those_of_the_providers() {
        let of_providers =
            [provider_tcp_emu::KEYS, &crate::softroce::keys(), provider_verbs::KEYS, &["builtin"]]
                .concat();
        let known = dat_adapter::params::KEYS;
        assert_eq!(BTreeSet::from_iter(known), of_providers.iter().collect::<BTreeSet<_>>());
        assert_eq!(BTreeSet::from_iter(known).len(), known.len(), "each key must be listed once");
    }

    #[test]
    fn every_provider_reads_each_of_its_keys() {
        for adapter in crate::ADAPTERS {
            for key in dat_adapter::params::KEYS {
                let outcome = crate::check(adapter.name, &format!("{key}= lo"), "");
                assert!(outcome.is_err(), "{}: {key}= has no value", adapter.name);
            }
        }
    }
}
