//! Tests a provider that registers the function table of one transport and opens adapters of
//! another transport. softroce is such a provider when the kernel's rxe serves it.

#[path = "../../dat-core/tests/table/client.rs"]
#[allow(dead_code)] // the other tests' part
mod client;

use std::ffi::CString;
use std::ptr::{self, null_mut};

use client::{ProviderTable, REGISTRY, dat, extended, info, open};
use dat_core::Error;
use dat_core::export::{self, AnyProvider, Opened};
use dat_core::provider::Provider;
use dat_sys::ib::{DAT_IB_CLOSE_QUERY_OP, DAT_IB_OPEN_QUERY_OP};
use dat_sys::*;
use provider_mem::Mem;

/// Registers a provider under this name. Its function table is that of tcp-emu, but it opens
/// adapters with the provider mem.
fn registered(name: &str) -> ProviderTable {
    let provider = AnyProvider::of::<provider_tcp_emu::TcpEmu>()
        .opened_by(|ia, params| Mem.open(ia, params).map(Opened::new));
    let info = info(name, 2, 0, false);
    let table = export::register(provider, REGISTRY, &info, name).expect("2.0 is supported");
    // SAFETY: tables are never freed.
    unsafe { &*table }
}

/// The function table to which the first word of the handle's object points.
fn table_of(handle: DAT_HANDLE) -> ProviderTable {
    // SAFETY: the first word of an object is the address of its table.
    unsafe { *handle.cast::<ProviderTable>() }
}

#[test]
fn handles_lead_to_the_table_of_the_transport() {
    let table = registered("chosen");
    assert!(
        ptr::eq(registered("chosen"), table),
        "a second registration must return the same table"
    );
    let (ia, evd) = open(table, "chosen");
    let own = table_of(ia);
    assert!(!ptr::eq(own, table) && ptr::eq(table_of(evd), own));
    let wrong = Err(Error::handle(DAT_INVALID_HANDLE_IA));
    assert_eq!(dat!(table, ia_query_func(ia, null_mut(), 0, null_mut(), 0, null_mut())), wrong);
    let (again, _) = open(table, "chosen");
    assert!(ptr::eq(table_of(again), own));
    for ia in [ia, again] {
        dat!(own, ia_close_func(ia, DAT_CLOSE_GRACEFUL_FLAG)).expect("the adapter can be closed");
    }
}

#[test]
fn an_adapter_that_is_queried_by_name_leads_to_the_registered_table() {
    let table = registered("queried");
    let name = CString::new("queried").expect("no NUL");
    let mut ia: DAT_IA_HANDLE = null_mut();
    let mut attr = DAT_PROVIDER_ATTR::zeroed();
    let args = [
        (&raw mut ia).expose_provenance() as u64,
        0,
        0,
        DAT_PROVIDER_FIELD_ALL,
        (&raw mut attr).expose_provenance() as u64,
    ];
    extended(table, name.as_ptr().cast_mut().cast(), DAT_IB_OPEN_QUERY_OP, &args, 3)
        .expect("the query opens");
    assert!(attr.num_provider_specific_attr > 0);
    assert!(ptr::eq(table_of(ia), table));
    extended(table, ia, DAT_IB_CLOSE_QUERY_OP, &[], 4).expect("the query can be closed");
    let stale = Err(Error::handle(DAT_INVALID_HANDLE1));
    assert_eq!(extended(table, ia, DAT_IB_CLOSE_QUERY_OP, &[], 4), stale);
}
