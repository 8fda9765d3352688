//! Invalid handles, and handles of other objects. Every function must return the subtype that names
//! the type of handle that it expects.

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use dat_core::Error;
use dat_sys::*;

use crate::client::*;

type Call = Box<dyn Fn(*mut c_void) -> Result<(), Error>>;

/// The functions of the table, grouped by the error subtype for an invalid first handle. Each entry
/// contains a name and a call whose other arguments are valid as far as possible.
fn calls(t: ProviderTable, side: Side) -> Vec<(&'static str, DAT_RETURN, Call)> {
    macro_rules! list {
        ($($subtype:ident { $($func:ident($h:ident $(, $arg:expr)* $(,)?);)* })*) => {
            vec![$($((
                stringify!($func),
                $subtype,
                Box::new(move |$h: *mut c_void| dat!(t, $func($h $(, $arg)*))) as Call,
            ),)*)*]
        };
    }
    let event: *mut DAT_EVENT = Box::leak(Box::new(DAT_EVENT::zeroed()));
    let count: *mut DAT_COUNT = Box::leak(Box::new(0));
    let any: *mut *mut c_void = Box::leak(Box::new(null_mut()));
    let word: *mut u64 = Box::leak(Box::new(0));
    let context: *mut DAT_CONTEXT = Box::leak(Box::new(DAT_CONTEXT { as_64: 0 }));
    let attr: *mut DAT_SRQ_ATTR =
        Box::leak(Box::new(DAT_SRQ_ATTR { max_recv_dtos: 4, max_recv_iov: 1, low_watermark: 0 }));
    let memory = DAT_REGION_DESCRIPTION { for_va: event.cast() };
    let remote: *mut DAT_RMR_TRIPLET = Box::leak(Box::new(DAT_RMR_TRIPLET::zeroed()));
    let proxy = DAT_OS_WAIT_PROXY_AGENT_NULL;
    let (pz, evd, cr_evd) = (side.pz, side.evd, side.cr_evd);
    list! {
        DAT_INVALID_HANDLE1 {
            set_consumer_context_func(h, DAT_CONTEXT { as_64: 1 });
            get_consumer_context_func(h, context);
            get_handle_type_func(h, word.cast());
            handle_extendedop_func(h, 0, null_mut());
        }
        DAT_INVALID_HANDLE_IA {
            ia_query_func(h, any, 0, null_mut(), 0, null_mut());
            ia_close_func(h, DAT_CLOSE_ABRUPT_FLAG);
            cno_create_func(h, proxy, any);
            evd_create_func(h, 1, null_mut(), DAT_EVD_SOFTWARE_FLAG, any);
            ep_create_func(h, pz, evd, evd, evd, null(), any);
            ep_create_with_srq_func(h, pz, evd, evd, evd, null_mut(), null(), any);
            lmr_create_func(
                h, DAT_MEM_TYPE_VIRTUAL, memory, 8, pz, 0, DAT_VA_TYPE_VA, any, null_mut(), null_mut(),
                word, word
            );
            lmr_sync_rdma_read_func(h, null(), 0);
            lmr_sync_rdma_write_func(h, null(), 0);
            psp_create_func(h, 1, cr_evd, DAT_PSP_CONSUMER_FLAG, any);
            psp_create_any_func(h, word, cr_evd, DAT_PSP_CONSUMER_FLAG, any);
            rsp_create_func(h, 1, null_mut(), cr_evd, any);
            pz_create_func(h, any);
            srq_create_func(h, pz, attr, any);
            csp_create_func(h, null_mut(), null_mut(), cr_evd, any);
            cno_fd_create_func(h, count, any);
            ia_ha_related_func(h, null_mut(), word.cast());
        }
        DAT_INVALID_HANDLE_CNO {
            cno_modify_agent_func(h, proxy);
            cno_query_func(h, 0, null_mut());
            cno_free_func(h);
            cno_wait_func(h, 0, any);
            cno_trigger_func(h, any);
        }
        DAT_INVALID_HANDLE_CR {
            cr_query_func(h, 0, null_mut());
            cr_accept_func(h, null_mut(), 0, null_mut());
            cr_reject_func(h, 0, null_mut());
            cr_handoff_func(h, 1);
        }
        DAT_INVALID_HANDLE_EVD_REQUEST {
            evd_query_func(h, 0, null_mut());
            evd_modify_cno_func(h, null_mut());
            evd_enable_func(h);
            evd_disable_func(h);
            evd_set_unwaitable_func(h);
            evd_clear_unwaitable_func(h);
            evd_wait_func(h, 0, 1, event, count);
            evd_resize_func(h, 8);
            evd_post_se_func(h, event);
            evd_dequeue_func(h, event);
            evd_free_func(h);
        }
        DAT_INVALID_HANDLE_EP {
            ep_query_func(h, 0, null_mut());
            ep_modify_func(h, 0, null());
            ep_connect_func(h, null_mut(), 1, 0, 0, null_mut(), 0, 0);
            ep_dup_connect_func(h, null_mut(), 0, 0, null_mut(), 0);
            ep_disconnect_func(h, DAT_CLOSE_ABRUPT_FLAG);
            ep_post_send_func(h, 0, null_mut(), cookie(0), 0);
            ep_post_recv_func(h, 0, null_mut(), cookie(0), 0);
            ep_post_rdma_read_func(h, 0, null_mut(), cookie(0), remote, 0);
            ep_post_rdma_write_func(h, 0, null_mut(), cookie(0), remote, 0);
            ep_get_status_func(h, null_mut(), null_mut(), null_mut());
            ep_reset_func(h);
            ep_free_func(h);
            ep_recv_query_func(h, count, count);
            ep_set_watermark_func(h, 1, 1);
            ep_common_connect_func(h, null_mut(), 0, 0, null_mut());
            ep_post_send_with_invalidate_func(h, 0, null_mut(), cookie(0), 0, DAT_FALSE, 0);
            ep_post_rdma_read_to_rmr_func(h, remote, cookie(0), remote, 0);
        }
        DAT_INVALID_HANDLE_LMR {
            lmr_query_func(h, 0, null_mut());
            lmr_free_func(h);
        }
        DAT_INVALID_HANDLE_RMR {
            rmr_query_func(h, 0, null_mut());
            rmr_bind_func(h, null_mut(), null(), 0, 0, null_mut(), cookie(0), 0, count.cast());
            rmr_free_func(h);
        }
        DAT_INVALID_HANDLE_PSP {
            psp_query_func(h, 0, null_mut());
            psp_free_func(h);
        }
        DAT_INVALID_HANDLE_RSP {
            rsp_query_func(h, 0, null_mut());
            rsp_free_func(h);
        }
        DAT_INVALID_HANDLE_CSP {
            csp_query_func(h, 0, null_mut());
            csp_free_func(h);
        }
        DAT_INVALID_HANDLE_PZ {
            pz_query_func(h, 0, null_mut());
            pz_free_func(h);
            rmr_create_func(h, any);
            rmr_create_for_ep_func(h, any);
        }
        DAT_INVALID_HANDLE_SRQ {
            srq_query_func(h, 0, null_mut());
            srq_post_recv_func(h, 0, null_mut(), cookie(0));
            srq_resize_func(h, 8);
            srq_set_lw_func(h, 0);
            srq_free_func(h);
        }
    }
}

/// Words that were never handles.
const GARBAGE: [usize; 8] = [0, 1, 2, 63, 64, 0xdead_beef, 1 << 47, usize::MAX];

#[test]
fn every_function_refuses_wrong_handles() {
    for thread_safe in [false, true] {
        let (table, name) = mem(thread_safe);
        let side = Side::new(table, &name);
        let calls = calls(table, side);
        // All functions of the table except ia_open, which takes no handle.
        assert_eq!(calls.len(), 78);
        let ep = side.new_ep();
        dat!(table, ep_free_func(ep)).unwrap();
        let stale = ep as usize;
        let inside = [side.pz as usize + 8, side.evd as usize + 1, side.ia as usize ^ (1 << 40)];
        for (function, subtype, call) in &calls {
            let expected = Err(Error::handle(*subtype));
            for word in GARBAGE.into_iter().chain(inside).chain([stale]) {
                assert_eq!(call(word as *mut c_void), expected, "{function}({word:#x})");
            }
            // The handle is live but of another type. Two functions accept handles of any type.
            if *subtype != DAT_INVALID_HANDLE1 {
                let others = [
                    (side.ia, DAT_INVALID_HANDLE_IA),
                    (side.pz, DAT_INVALID_HANDLE_PZ),
                    (side.evd, DAT_INVALID_HANDLE_EVD_REQUEST),
                ];
                for (handle, own) in others {
                    if own != *subtype {
                        assert_eq!(
                            call(handle),
                            expected,
                            "{function} with a handle of another type"
                        );
                    }
                }
            }
        }
        side.close();
        for (function, subtype, call) in &calls {
            for handle in [side.ia, side.pz, side.evd, side.cr_evd, side.async_evd] {
                assert_eq!(
                    call(handle),
                    Err(Error::handle(*subtype)),
                    "{function} after dat_ia_close"
                );
            }
        }
    }
}

#[test]
fn errors_about_handles_name_their_role_in_the_call() {
    let (t, name) = mem(false);
    let side = Side::new(t, &name);
    let (other_t, other_name) = mem(false);
    let other = Side::new(other_t, &other_name);
    let ep = side.new_ep();
    let mut out = null_mut();
    let (ia, pz, evd, cr_evd) = (side.ia, side.pz, side.evd, side.cr_evd);
    let mut attr = DAT_SRQ_ATTR { max_recv_dtos: 4, max_recv_iov: 1, low_watermark: 0 };
    // Three invalid handles: garbage, a handle of another type, and a handle of another adapter.
    let bad = |kin: *mut c_void| [8 as *mut c_void, ia, kin];

    for h in bad(other.pz) {
        let expected = Err(Error::handle(DAT_INVALID_HANDLE_PZ));
        assert_eq!(dat!(t, ep_create_func(ia, h, evd, evd, evd, null(), &mut out)), expected);
        assert_eq!(dat!(t, srq_create_func(ia, h, &mut attr, &mut out)), expected);
        let (kind, memory) =
            (DAT_MEM_TYPE_VIRTUAL, DAT_REGION_DESCRIPTION { for_va: (&raw mut attr).cast() });
        let (no, length) = (null_mut(), null_mut());
        assert_eq!(
            dat!(
                t,
                lmr_create_func(
                    ia,
                    kind,
                    memory,
                    8,
                    h,
                    0,
                    0,
                    &mut out,
                    no,
                    null_mut(),
                    length,
                    null_mut()
                )
            ),
            expected
        );
    }
    // Pass attributes to dat_ep_create_with_srq, because it checks that there are attributes before
    // it checks to which adapter the handles belong.
    let srq = side.new_srq(4);
    let mut param = DAT_EP_PARAM::zeroed();
    dat!(t, ep_query_func(ep, DAT_EP_FIELD_ALL, &mut param)).unwrap();
    let ep_attr = &raw const param.ep_attr;
    for h in bad(other.evd) {
        for (position, subtype) in [
            DAT_INVALID_HANDLE_EVD_RECV,
            DAT_INVALID_HANDLE_EVD_REQUEST,
            DAT_INVALID_HANDLE_EVD_CONN,
        ]
        .into_iter()
        .enumerate()
        {
            let mut evds = [evd; 3];
            evds[position] = h;
            let expected = Err(Error::handle(subtype));
            let [recv, request, connect] = evds;
            assert_eq!(
                dat!(t, ep_create_func(ia, pz, recv, request, connect, null(), &mut out)),
                expected
            );
            assert_eq!(
                dat!(
                    t,
                    ep_create_with_srq_func(ia, pz, recv, request, connect, srq, ep_attr, &mut out)
                ),
                expected
            );
        }
    }
    for h in bad(other.new_srq(4)).into_iter().chain([null_mut()]) {
        assert_eq!(
            dat!(t, ep_create_with_srq_func(ia, pz, evd, evd, evd, h, ep_attr, &mut out)),
            Err(Error::handle(DAT_INVALID_HANDLE_SRQ))
        );
    }
    for h in bad(other.new_cno()) {
        let expected = Err(Error::handle(DAT_INVALID_HANDLE_CNO));
        assert_eq!(dat!(t, evd_create_func(ia, 4, h, DAT_EVD_SOFTWARE_FLAG, &mut out)), expected);
        assert_eq!(dat!(t, evd_modify_cno_func(evd, h)), expected);
    }
    // An EVD that takes no connection requests is refused like an invalid handle.
    for h in bad(other.cr_evd).into_iter().chain([null_mut(), evd]) {
        let expected = Err(Error::handle(DAT_INVALID_HANDLE_EVD_CR));
        let mut qualifier = 0;
        assert_eq!(dat!(t, psp_create_func(ia, 7, h, DAT_PSP_CONSUMER_FLAG, &mut out)), expected);
        assert_eq!(
            dat!(t, psp_create_any_func(ia, &mut qualifier, h, DAT_PSP_CONSUMER_FLAG, &mut out)),
            expected
        );
        assert_eq!(dat!(t, rsp_create_func(ia, 7, ep, h, &mut out)), expected);
    }
    for h in bad(other.new_ep()).into_iter().chain([null_mut()]) {
        let expected = Err(Error::handle(DAT_INVALID_HANDLE_EP));
        assert_eq!(dat!(t, rsp_create_func(ia, 7, h, cr_evd, &mut out)), expected);
    }
    for h in bad(null_mut()) {
        let expected = Err(Error::handle(DAT_INVALID_HANDLE_EP));
        assert_eq!(dat!(t, ep_dup_connect_func(ep, h, 0, 0, null_mut(), 0)), expected);
    }
    assert!(out.is_null());
    side.close();
    other.close();
}
