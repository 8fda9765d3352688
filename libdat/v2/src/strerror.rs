//! dat_strerror: the names of a status word as C strings that live for ever.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char};
use std::sync::{Mutex, PoisonError};

use dat_sys::describe::status_names;
use dat_sys::*;

export! {
    /// dat_strerror: the names of a status's type and subtype; the latter is empty for DAT_NO_SUBTYPE.
    ///
    /// # Safety
    ///
    /// C: the out arguments can be written; null is answered.
    fn dat_strerror(status: DAT_RETURN, major: *mut *const c_char, minor: *mut *const c_char) -> DAT_RETURN {
        if major.is_null() {
            return DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
        }
        if minor.is_null() {
            return DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
        }
        // Asked one by one: of a status with an unknown part the known one is still worth printing.
        let kind = status_names(DAT_GET_TYPE(status)).map(|(kind, _)| interned(kind));
        let subtype = status_names(DAT_GET_SUBTYPE(status)).map(|(_, subtype)| interned(subtype));
        let answer = match (kind, subtype) {
            (Some(_), Some(_)) => DAT_SUCCESS,
            _ => DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG1),
        };
        // SAFETY: neither is null.
        unsafe {
            major.write(kind.unwrap_or(c"unknown error").as_ptr());
            minor.write(subtype.unwrap_or(c"unknown minor error").as_ptr());
        }
        answer
    }
}

/// The C form of a name, made once for each of the 130 names.
fn interned(name: &'static str) -> &'static CStr {
    static NAMES: Mutex<BTreeMap<&'static str, &'static CStr>> = Mutex::new(BTreeMap::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    names.entry(name).or_insert_with(|| Box::leak(CString::new(name).unwrap_or_default().into_boxed_c_str()))
}
