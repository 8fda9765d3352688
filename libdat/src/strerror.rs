//! dat_strerror: the names of a status word as C strings that live for ever.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char};
use std::sync::{Mutex, PoisonError};

use dat_sys::*;

use crate::{Library, invalid};

impl Library {
    /// dat_strerror: the names of a status's type and subtype; the latter is empty for DAT_NO_SUBTYPE.
    ///
    /// # Safety
    ///
    /// C: the out arguments can be written; null is answered.
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
        // Asked one by one: of a status with an unknown part the known one is still worth printing.
        let kind = self.status_names(DAT_GET_TYPE(status)).map(|(kind, _)| interned(kind));
        let subtype =
            self.status_names(DAT_GET_SUBTYPE(status)).map(|(_, subtype)| interned(subtype));
        let answer = match (kind, subtype) {
            (Some(_), Some(_)) => DAT_SUCCESS,
            _ => self.status(invalid(DAT_INVALID_ARG1)),
        };
        // SAFETY: neither is null.
        unsafe {
            type_name.write(kind.unwrap_or(c"unknown error").as_ptr());
            subtype_name.write(subtype.unwrap_or(c"unknown minor error").as_ptr());
        }
        answer
    }
}

/// The C form of a name, made once for each of the 130 names.
fn interned(name: &'static str) -> &'static CStr {
    static NAMES: Mutex<BTreeMap<&'static str, &'static CStr>> = Mutex::new(BTreeMap::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    names
        .entry(name)
        .or_insert_with(|| Box::leak(CString::new(name).unwrap_or_default().into_boxed_c_str()))
}
