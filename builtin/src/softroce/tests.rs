//! Tests of the choice of softroce's engine. The guest's tests (`tests/tests/programs/guest`) cover
//! a machine with the kernel's rxe. These tests use the loopback device, which never has an rxe
//! device.

use dat_core::Error;
use dat_sys::{DAT_INVALID_ADDRESS, DAT_INVALID_PARAMETER};

use super::*;

/// The engine that the adapter reports.
fn engine(params: &str) -> Result<String, OpenError> {
    let adapter = open("softroce", params)?;
    let named = &adapter.attrs().named;
    Ok(named
        .iter()
        .find(|(name, _)| name == "engine")
        .expect("the adapter names its engine")
        .1
        .clone())
}

#[test]
fn the_key_engine_is_one_of_several() {
    let engine = |text, defaults| parse(text, defaults).map(|(engine, _)| engine);
    let reason = |text| engine(text, "").expect_err(text).reason;
    assert_eq!(engine("lo mtu=1024", "").expect("the parameters are valid"), Engine::Auto);
    assert_eq!(
        engine("lo spin=5", "engine=kernel").expect("the parameters are valid"),
        Engine::Kernel
    );
    assert_eq!(
        engine("engine=user lo", "engine=kernel").expect("the parameters are valid"),
        Engine::User
    );
    assert!(reason("engine=kernel engine=user").contains("the key engine occurs twice"));
    assert_eq!(reason("engine=fast"), "ia_params: engine=fast: expected auto, user or kernel");
    assert_eq!(
        reason("cc=reno"),
        "ia_params: cc=reno: unknown key; known are engine, mtu, gso, dscp, timeout, retries, \
         net, threads, spin, strict, stats and capture"
    );
}

#[test]
fn without_a_device_it_is_the_one_in_user_space_and_says_why() {
    assert_eq!(
        engine("lo").expect("the adapter opens"),
        "user space: the kernel has no rxe device here"
    );
    assert_eq!(
        engine("lo engine=auto net=loss=1%").expect("the adapter opens"),
        "user space: the kernel has no rxe device here"
    );
    assert_eq!(engine("lo engine=user").expect("the adapter opens"), "user space: engine=user");
}

#[test]
fn the_kernel_has_none_on_the_loopback() {
    let error = engine("lo engine=kernel").expect_err("no kernel engine may be found");
    assert_eq!(error.code, Error::of(DAT_INVALID_ADDRESS));
    assert!(error.reason.contains("specify one, as in \"eth0 engine=kernel\""), "{error}");
}

#[test]
fn the_kernel_cannot_do_what_is_done_in_user_space() {
    for (params, key) in [
        ("net=loss=1%", "net"),
        ("capture=/tmp/x", "capture"),
        ("mtu=1024", "mtu"),
        ("gso=off", "gso"),
    ] {
        let error = engine(&format!("lo engine=kernel {params}")).expect_err(params);
        assert_eq!(error.code, Error::of(DAT_INVALID_PARAMETER));
        assert!(
            error.reason.starts_with(&format!("ia_params: {key}: only the engine in user space")),
            "{error}"
        );
    }
}
