//! Connection qualifiers above 65,535, of which several have the same port.

use std::process::Command;

use dat_core::conn::{Qualifier, psp, rsp};
use dat_core::ep::state::State;
use dat_core::ep::{self, Handles};
use dat_core::evd;
use dat_core::ia::{self, AsyncEvd, Entry};
use dat_core::mem::pz;
use dat_core::{Error, conn};
use dat_sys::*;

use crate::{NAME, PROVIDER};

/// The distance between two qualifiers above 65,535 that have the same port.
const DISTANCE: DAT_CONN_QUAL = 32001;

#[test]
fn the_log_names_the_other_qualifier_of_a_port() {
    let this = std::env::current_exe().expect("the test has a path");
    let mut child = Command::new(this);
    child.args(["--ignored", "--exact", "suite::qualifiers::collide", "--nocapture"]);
    let output = child.env("OPENDAT_LOG", "warn").output().expect("the test program starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{stdout}{stderr}");
    let number = |name: &str| {
        let (_, rest) = stdout.split_once(name).unwrap_or_else(|| panic!("no {name}: {stdout}"));
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next();
        digits.and_then(|digits| digits.parse::<u64>().ok()).expect("a number")
    };
    let (taken, small) = (number("taken="), number("small="));
    let message = |wanted: u64, taken: u64| {
        let port = conn::port(wanted);
        format!(
            "cannot listen on connection qualifier {wanted}: it has port {port}, which the service \
             point with connection qualifier {taken} uses; "
        )
    };
    for (wanted, taken) in
        [(taken + DISTANCE, taken), (taken + 2 * DISTANCE, taken), (small, taken)]
    {
        let message = message(wanted, taken);
        assert_eq!(stderr.matches(&message).count(), 1, "{message:?} in {stderr}");
    }
    // The program itself has asked twice for one qualifier, so this needs no explanation.
    assert_eq!(stderr.matches("cannot listen").count(), number("explained=") as usize, "{stderr}");
}

unsafe extern "C" fn no_table(_: *const DAT_PROVIDER, _: *const DAT_PROVIDER_INFO) -> DAT_RETURN {
    DAT_SUCCESS
}

unsafe extern "C" fn no_mapping(_: DAT_IA_HANDLE, _: *mut DAT_IA_HANDLE) -> DAT_RETURN {
    DAT_INVALID_HANDLE
}

/// Creates service points whose ports are in use, and prints the qualifiers.
#[test]
#[ignore = "not a test: a child of the test above"]
fn collide() {
    telemetry::log::start();
    let registry = RegistryFns {
        add_provider: no_table,
        remove_provider: no_table,
        get_ia_handle: no_mapping,
    };
    let entry =
        Entry { name: "lo", provider: NAME, table: std::ptr::null(), registry, thread_safe: false };
    // SAFETY: no dispatcher is passed.
    let ia = unsafe { ia::open(&PROVIDER, "127.0.0.1", entry, AsyncEvd::Exists) }.unwrap();
    let evd = evd::create(ia, 8, None, DAT_EVD_CR_FLAG).unwrap();
    let create = |qualifier| {
        psp::create(ia, Qualifier::Exactly(qualifier), evd, DAT_PSP_CONSUMER_FLAG)
            .map(|psp| psp.qualifier())
    };
    let in_use = Error::of(DAT_CONN_QUAL_IN_USE);

    // Other programs may use some of the ports.
    let mut explained = 0;
    let taken = (65_536..65_536 + DISTANCE)
        .find(|&qualifier| match create(qualifier) {
            Ok(created) => created == qualifier,
            Err(error) => {
                assert_eq!(error, in_use);
                explained += 1;
                false
            }
        })
        .expect("a free port");

    assert_eq!(create(taken), Err(in_use));
    assert_eq!(create(taken + DISTANCE), Err(in_use));
    let small = conn::port(taken).into();
    assert_eq!(create(small), Err(in_use));
    let pz = Some(pz::create(ia).unwrap());
    let handles = Handles { pz, recv: None, request: None, connect: None, srq: None };
    let ep = ep::create(ia, handles, None).unwrap();
    let reserved = rsp::create(ia, taken + 2 * DISTANCE, ep, evd);
    assert_eq!(reserved.map(|_| ()), Err(in_use));
    assert_eq!(ep.state(), State::Unconnected, "the endpoint is not reserved");
    println!("taken={taken} small={small} explained={}", explained + 3);
    // SAFETY: after this call nobody uses a reference to the adapter.
    unsafe { ia::close(ia, DAT_CLOSE_ABRUPT_FLAG) }.unwrap();
}
