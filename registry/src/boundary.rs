//! Where a panic, which is a mistake of ours, ends: it does not reach C.

use std::panic::{AssertUnwindSafe, catch_unwind};

use dat_sys::{DAT_ERROR, DAT_INTERNAL_ERROR, DAT_NO_SUBTYPE, DAT_RETURN};

/// Runs the body of a C function; DAT_INTERNAL_ERROR if it panics.
#[inline]
pub fn guard(body: impl FnOnce() -> DAT_RETURN) -> DAT_RETURN {
    // Locks are used after a panic too (`PoisonError::into_inner`).
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(DAT_ERROR(DAT_INTERNAL_ERROR, DAT_NO_SUBTYPE))
}
