//! libdat.so.1: the C library of uDAPL 1.2.
//!
//! The crate `libdat` has the code that both C libraries share. This crate adds the types of 1.2
//! and the three functions whose arguments 2.0 changed. Each function is exported as
//! `name@@DAT_1.2` (`libdat1.map`, `build.rs`).

// Types that differ from 2.0 are imported explicitly and take precedence over the glob import.
use dat_sys::v1::{
    DAT_CNO_PARAM, DAT_EP_ATTR, DAT_EP_PARAM, DAT_EVENT, DAT_IA_ATTR, DAT_LMR_PARAM,
    DAT_LMR_TRIPLET, DAT_PROVIDER, DAT_PROVIDER_ATTR, DAT_RMR_PARAM, DAT_RMR_TRIPLET,
};
use dat_sys::*;
use libdat::Library;
use registry::Api;

static LIBRARY: Library = Library::new(Api::U1_2, &[builtin::ADAPTERS]);

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
