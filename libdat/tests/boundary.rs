//! Exports functions that panic, with the macro that exports the functions of the C libraries. No
//! panic may reach C.

use dat_sys::{DAT_ERROR, DAT_INTERNAL_ERROR, DAT_NO_SUBTYPE, DAT_RETURN, DAT_SUCCESS};

libdat::export! {
    "DAT_2.0";
    /// Panics if `panics` is true.
    fn dat_test_panic(panics: bool) -> DAT_RETURN {
        assert!(!panics, "the test requests a panic");
        DAT_SUCCESS
    }
}

#[test]
fn a_panic_does_not_reach_c() {
    // SAFETY: this is a Rust function without requirements.
    let calls = unsafe { [dat_test_panic(true), dat_test_panic(false), dat_test_panic(true)] };
    let internal = DAT_ERROR(DAT_INTERNAL_ERROR, DAT_NO_SUBTYPE);
    assert_eq!(calls, [internal, DAT_SUCCESS, internal]);
}
