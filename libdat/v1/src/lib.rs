//! libdat.so.1: the C library of uDAPL 1.2.
//!
//! The crate `libdat` has the code that both C libraries share. This crate adds the types of 1.2.
//! Each function is exported as `name@@DAT_1.2` (`libdat1.map`, `build.rs`).

// Types that differ from 2.0 are imported explicitly and take precedence over the glob import.
use dat_sys::v1::{
    DAT_CNO_PARAM, DAT_EP_ATTR, DAT_EP_PARAM, DAT_EVENT, DAT_IA_ATTR, DAT_LMR_PARAM,
    DAT_LMR_TRIPLET, DAT_PROVIDER, DAT_PROVIDER_ATTR, DAT_RMR_PARAM, DAT_RMR_TRIPLET,
};
use dat_sys::*;
use libdat::Library;
use registry::Api;

static LIBRARY: Library = Library::new(Api::U1_2, &[builtin::ADAPTERS]);

dat_sys::provider_functions!(1.2 => libdat::forward, "DAT_1.2");
