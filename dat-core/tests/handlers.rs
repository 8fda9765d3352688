//! Calls that a signal handler makes while its thread is in another call. The pages of the
//! reference say which of them return DAT_ABORT.

#[path = "table/client.rs"]
#[allow(dead_code)] // the other tests' part
mod client;
#[path = "support/queried_registry.rs"]
mod queried_registry;

use std::collections::BTreeSet;
use std::ffi::CString;
use std::mem::zeroed;
use std::ptr::null_mut;
use std::sync::Mutex;

use client::{ProviderTable, dat, info, open, table, unique};
use dat_core::export::{self, AnyProvider};
use dat_sys::*;
use provider_mem::Mem;
use queried_registry::{NEXT, QUERIED_REGISTRY};

macro_rules! functions {
    ($($slot:ident($($zero:literal)*))*) => {
        /// Calls each function of the table with null handles and with 0 for all other arguments.
        /// Returns what each call returns. A call that is not refused finds an invalid handle.
        fn call_all(table: ProviderTable) -> Vec<(&'static str, DAT_RETURN)> {
            vec![$({
                let function = table.$slot.expect(stringify!($slot));
                // SAFETY: the functions check the handle before they use any other argument, and
                // all-zero bytes are valid for all types of arguments.
                (stringify!($slot), unsafe { function($(zero!($zero)),*) })
            }),*]
        }
    };
}

macro_rules! zero {
    ($_:literal) => {
        zeroed()
    };
}

functions! {
    ia_query_func(0 0 0 0 0 0)
    set_consumer_context_func(0 0)
    get_consumer_context_func(0 0)
    get_handle_type_func(0 0)
    cno_create_func(0 0 0)
    cno_fd_create_func(0 0 0)
    cno_modify_agent_func(0 0)
    cno_query_func(0 0 0)
    cno_free_func(0)
    cno_wait_func(0 0 0)
    cno_trigger_func(0 0)
    cr_query_func(0 0 0)
    cr_accept_func(0 0 0 0)
    cr_reject_func(0 0 0)
    cr_handoff_func(0 0)
    evd_create_func(0 0 0 0 0)
    evd_query_func(0 0 0)
    evd_modify_cno_func(0 0)
    evd_enable_func(0)
    evd_disable_func(0)
    evd_set_unwaitable_func(0)
    evd_clear_unwaitable_func(0)
    evd_wait_func(0 0 0 0 0)
    evd_dequeue_func(0 0)
    evd_post_se_func(0 0)
    evd_resize_func(0 0)
    evd_free_func(0)
    ep_create_func(0 0 0 0 0 0 0)
    ep_create_with_srq_func(0 0 0 0 0 0 0 0)
    ep_query_func(0 0 0)
    ep_modify_func(0 0 0)
    ep_connect_func(0 0 0 0 0 0 0 0)
    ep_dup_connect_func(0 0 0 0 0 0)
    ep_common_connect_func(0 0 0 0 0)
    ep_disconnect_func(0 0)
    ep_post_send_func(0 0 0 0 0)
    ep_post_send_with_invalidate_func(0 0 0 0 0 0 0)
    ep_post_recv_func(0 0 0 0 0)
    ep_post_rdma_read_func(0 0 0 0 0 0)
    ep_post_rdma_read_to_rmr_func(0 0 0 0 0)
    ep_post_rdma_write_func(0 0 0 0 0 0)
    ep_get_status_func(0 0 0 0)
    ep_recv_query_func(0 0 0)
    ep_set_watermark_func(0 0 0)
    ep_reset_func(0)
    ep_free_func(0)
    lmr_create_func(0 0 0 0 0 0 0 0 0 0 0 0)
    lmr_query_func(0 0 0)
    lmr_free_func(0)
    lmr_sync_rdma_read_func(0 0 0)
    lmr_sync_rdma_write_func(0 0 0)
    rmr_create_func(0 0)
    rmr_create_for_ep_func(0 0)
    rmr_query_func(0 0 0)
    rmr_bind_func(0 0 0 0 0 0 0 0 0)
    rmr_free_func(0)
    psp_create_func(0 0 0 0 0)
    psp_create_any_func(0 0 0 0 0)
    psp_query_func(0 0 0)
    psp_free_func(0)
    rsp_create_func(0 0 0 0 0)
    rsp_query_func(0 0 0)
    rsp_free_func(0)
    csp_create_func(0 0 0 0 0)
    csp_query_func(0 0 0)
    csp_free_func(0)
    pz_create_func(0 0)
    pz_query_func(0 0 0)
    pz_free_func(0)
    srq_create_func(0 0 0 0)
    srq_query_func(0 0 0)
    srq_post_recv_func(0 0 0 0)
    srq_resize_func(0 0)
    srq_set_lw_func(0 0)
    srq_free_func(0)
}

/// The functions that are not refused, although their pages list DAT_ABORT. Posts and dequeues
/// return it if the interrupted call uses the same object, and the others if a lock is not free.
const NOT_REFUSED: [&str; 13] = [
    "dat_ep_post_rdma_read",
    "dat_ep_post_rdma_read_to_rmr",
    "dat_ep_post_rdma_write",
    "dat_ep_post_recv",
    "dat_ep_post_send",
    "dat_ep_post_send_with_invalidate",
    "dat_evd_clear_unwaitable",
    "dat_evd_dequeue",
    "dat_evd_free",
    "dat_evd_post_se",
    "dat_evd_set_unwaitable",
    "dat_ia_query",
    "dat_srq_post_recv",
];

#[test]
fn calls_inside_a_call_are_refused_as_the_reference_says() {
    let name = unique("mem");
    let (mem, params) = (AnyProvider::of::<Mem>(), CString::new(name.as_str()).unwrap());
    // SAFETY: the provider info is a complete record, and `params` is NUL-terminated.
    unsafe { export::init(mem, QUERIED_REGISTRY, &info(&name, 2, 0, true), params.as_ptr()) };
    let table = table(&name).expect("the adapter is registered");
    let (ia, _) = open(table, &name);
    let mut pz = null_mut();
    dat!(table, pz_create_func(ia, &mut pz)).unwrap();

    static ANSWERS: Mutex<Vec<(&str, DAT_RETURN)>> = Mutex::new(Vec::new());
    *NEXT.lock().unwrap() = Some(Box::new(move || *ANSWERS.lock().unwrap() = call_all(table)));
    let mut memory = vec![0u8; 64];
    let (mut lmr, mut context, mut remote) = (null_mut(), 0, 0);
    dat!(
        table,
        lmr_create_func(
            ia,
            DAT_MEM_TYPE_VIRTUAL,
            DAT_REGION_DESCRIPTION { for_va: memory.as_mut_ptr().cast() },
            64,
            pz,
            DAT_MEM_PRIV_ALL_FLAG,
            DAT_VA_TYPE_VA,
            &mut lmr,
            &mut context,
            &mut remote,
            null_mut(),
            null_mut(),
        )
    )
    .unwrap();
    dat!(table, ia_close_func(ia, DAT_CLOSE_ABRUPT_FLAG)).unwrap();

    let answers = ANSWERS.lock().unwrap().clone();
    assert!(answers.len() > 70, "{answers:?}");
    let name = |slot: &str| format!("dat_{}", slot.trim_end_matches("_func"));
    let called: BTreeSet<_> = answers.iter().map(|(slot, _)| name(slot)).collect();
    let refused = answers.iter().filter(|(_, answer)| DAT_GET_TYPE(*answer) == DAT_ABORT);
    let refused: BTreeSet<_> = refused.map(|(slot, _)| name(slot)).collect();
    let pages = reference::pages().expect("the pages can be read");
    let abort = ("DAT_ABORT".to_owned(), String::new());
    let documented: BTreeSet<_> = pages
        .into_iter()
        .filter(|page| page.return_values().contains(&abort) && called.contains(&page.name))
        .map(|page| page.name)
        .collect();
    let difference: Vec<_> = documented.symmetric_difference(&refused).collect();
    assert_eq!(difference, NOT_REFUSED);
}
