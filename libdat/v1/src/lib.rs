//! libdat.so.1: the C library of uDAPL 1.2.
//!
//! What it shares with libdat2.so.2 is in the crate `libdat`; here are the types of 1.2 and the three functions whose
//! arguments 2.0 changed. Each is exported as `name@@DAT_1.2` (`libdat1.map`, `build.rs`).

use dat_core::export as provider;
use dat_core::provider::Provider;
// What differs comes before what does not.
use dat_sys::v1::{
    DAT_CNO_PARAM, DAT_EP_ATTR, DAT_EP_PARAM, DAT_EVENT, DAT_IA_ATTR, DAT_LMR_PARAM,
    DAT_LMR_TRIPLET, DAT_PROVIDER, DAT_PROVIDER_ATTR, DAT_RMR_PARAM, DAT_RMR_TRIPLET,
};
use dat_sys::*;
use libdat::Library;
use provider_softroce::SoftRoce;
use provider_tcp_emu::TcpEmu;
use provider_verbs::Verbs;
use registry::Builtin;

/// The providers linked into this library, tried after the entries of the registry file.
static BUILTINS: &[Builtin] = &[
    builtin::<TcpEmu>(r#"tcp-emu u1.2 nonthreadsafe default builtin opendat.0.1 "" """#),
    builtin::<TcpEmu>(r#"tcp-emu u1.2 threadsafe default builtin opendat.0.1 "" """#),
    builtin::<SoftRoce>(r#"softroce u1.2 nonthreadsafe default builtin opendat.0.1 "" """#),
    builtin::<SoftRoce>(r#"softroce u1.2 threadsafe default builtin opendat.0.1 "" """#),
    with_devices(builtin::<Verbs>(r#"verbs u1.2 nonthreadsafe default builtin opendat.0.1 "" """#)),
    with_devices(builtin::<Verbs>(r#"verbs u1.2 threadsafe default builtin opendat.0.1 "" """#)),
];

const fn builtin<P: Provider + Default>(line: &'static str) -> Builtin {
    Builtin { line, init: provider::init::<P, This>, fini: provider::fini::<P, This>, discover: None }
}

/// The same entry once more for each RDMA device of the host.
const fn with_devices(verbs: Builtin) -> Builtin {
    Builtin { discover: Some(provider_verbs::entries), ..verbs }
}

/// What built-in providers register with.
struct This;

impl provider::Registry for This {
    const FNS: RegistryFns = registry::FNS;
}

static LIBRARY: Library = Library::new(1, BUILTINS);

libdat::functions!("DAT_1.2");

libdat::forward! {
    "DAT_1.2";
    dat_cr_reject(CR) => cr_reject_func;
    dat_lmr_create(IA, mem_type: DAT_MEM_TYPE, region: DAT_REGION_DESCRIPTION, length: DAT_VLEN,
        pz: DAT_PZ_HANDLE, privileges: DAT_MEM_PRIV_FLAGS, lmr: *mut DAT_LMR_HANDLE,
        lmr_context: *mut DAT_LMR_CONTEXT, rmr_context: *mut DAT_RMR_CONTEXT, registered_length: *mut DAT_VLEN,
        registered_address: *mut DAT_VADDR) => lmr_create_func;
    dat_rmr_bind(RMR, triplet: *const DAT_LMR_TRIPLET, privileges: DAT_MEM_PRIV_FLAGS, ep: DAT_EP_HANDLE,
        cookie: DAT_RMR_COOKIE, flags: DAT_COMPLETION_FLAGS, context: *mut DAT_RMR_CONTEXT) => rmr_bind_func;
}
