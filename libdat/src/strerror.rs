//! dat_strerror: the names of a status word as static C strings.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char};
use std::sync::{Mutex, PoisonError};

use dat_sys::*;

use crate::{Library, invalid};

impl Library {
    /// dat_strerror: the names of a status's type and subtype. The name of the subtype is empty for
    /// DAT_NO_SUBTYPE.
    ///
    /// # Safety
    ///
    /// The out arguments are null or writable.
    pub unsafe fn strerror(
        &self,
        status: DAT_RETURN,
        type_name: *mut *const c_char,
        subtype_name: *mut *const c_char,
    ) -> DAT_RETURN {
        if type_name.is_null() {
            return self.status(invalid(DAT_INVALID_ARG2));
        }
        if subtype_name.is_null() {
            return self.status(invalid(DAT_INVALID_ARG3));
        }
        // The type and the subtype are looked up separately, so that one of them is printed even if
        // the other is unknown.
        let kind = self.status_names(DAT_GET_TYPE(status)).map(|(kind, _)| interned_c_str(kind));
        let subtype =
            self.status_names(DAT_GET_SUBTYPE(status)).map(|(_, subtype)| interned_c_str(subtype));
        let answer = match (kind, subtype) {
            (Some(_), Some(_)) => DAT_SUCCESS,
            _ => self.status(invalid(DAT_INVALID_ARG1)),
        };
        // SAFETY: neither is null, so the caller guarantees that both are writable.
        unsafe {
            type_name.write(kind.unwrap_or(c"unknown error").as_ptr());
            subtype_name.write(subtype.unwrap_or(c"unknown minor error").as_ptr());
        }
        answer
    }
}

/// Converts a name to a C string. Each of the 130 names is converted only once.
fn interned_c_str(name: &'static str) -> &'static CStr {
    static NAMES: Mutex<BTreeMap<&'static str, &'static CStr>> = Mutex::new(BTreeMap::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    names
        .entry(name)
        .or_insert_with(|| Box::leak(CString::new(name).unwrap_or_default().into_boxed_c_str()))
}
