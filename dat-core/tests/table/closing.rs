//! dat_ia_close.

use std::ptr::null_mut;

use dat_core::Error;
use dat_sys::*;

use crate::client::*;
use crate::one_of_everything::one_of_everything;

#[test]
fn a_graceful_close_waits_for_the_last_object() {
    let (t, name) = mem(false);
    let (ia, _) = open(t, &name);
    assert_eq!(dat!(t, ia_close_func(ia, 2)), Err(Error::arg(2)));
    let in_use = Err(Error::state(DAT_INVALID_STATE_IA_IN_USE));
    let close = || dat!(t, ia_close_func(ia, DAT_CLOSE_GRACEFUL_FLAG));
    let (mut pz, mut cno, mut evd) = (null_mut(), null_mut(), null_mut());
    dat!(t, pz_create_func(ia, &mut pz)).unwrap();
    assert_eq!(close(), in_use);
    dat!(t, pz_free_func(pz)).unwrap();
    dat!(t, cno_create_func(ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &mut cno)).unwrap();
    assert_eq!(close(), in_use);
    dat!(t, evd_create_func(ia, 4, cno, DAT_EVD_DEFAULT_FLAG, &mut evd)).unwrap();
    assert_eq!(close(), in_use);
    dat!(t, evd_free_func(evd)).unwrap();
    assert_eq!(close(), in_use);
    dat!(t, cno_free_func(cno)).unwrap();
    assert_eq!(close(), Ok(()));
    assert_eq!(close(), Err(Error::handle(DAT_INVALID_HANDLE_IA)));
}

#[test]
fn an_abrupt_close_frees_everything() {
    for thread_safe in [false, true] {
        let (t, name) = mem(thread_safe);
        for handle in one_of_everything(t, &name) {
            let mut kind = 0;
            assert_eq!(
                dat!(t, get_handle_type_func(handle as DAT_HANDLE, &mut kind)),
                Err(Error::handle(DAT_INVALID_HANDLE1)),
                "{handle:#x} is alive"
            );
        }
    }
}

#[test]
fn a_request_that_does_not_fit_into_the_evd_leaves_nothing() {
    let (t, name) = mem(false);
    let (a, b) = (Side::new(t, &name), Side::new(t, &name));
    let mut cr_evd = null_mut();
    let flags = DAT_EVD_CR_FLAG | DAT_EVD_SOFTWARE_FLAG;
    dat!(t, evd_create_func(b.ia, 1, null_mut(), flags, &mut cr_evd)).unwrap();
    let mut software = DAT_EVENT::zeroed();
    software.event_number = DAT_SOFTWARE_EVENT;
    dat!(t, evd_post_se_func(cr_evd, &software)).unwrap();
    for flags in [DAT_PSP_CONSUMER_FLAG, DAT_PSP_PROVIDER_FLAG] {
        let (psp, qualifier) = Side { cr_evd, ..b }.new_psp(flags);
        let ep = a.new_ep();
        a.connect(ep, qualifier, b"");
        assert_eq!(a.next(a.evd).event_number, DAT_CONNECTION_EVENT_NON_PEER_REJECTED);
        dat!(t, psp_free_func(psp)).unwrap();
    }
    // All remaining objects can be freed, and then the adapter can be closed gracefully.
    for evd in [cr_evd, b.cr_evd, b.evd] {
        dat!(t, evd_free_func(evd)).unwrap();
    }
    dat!(t, pz_free_func(b.pz)).unwrap();
    dat!(t, ia_close_func(b.ia, DAT_CLOSE_GRACEFUL_FLAG)).unwrap();
    a.close();
}
