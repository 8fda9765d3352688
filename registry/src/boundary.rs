//! Stops panics at the boundary to C. A panic is a defect of this library and must not unwind into
//! C.

use std::panic::{AssertUnwindSafe, catch_unwind};

use dat_sys::{DAT_ERROR, DAT_INTERNAL_ERROR, DAT_NO_SUBTYPE, DAT_RETURN};

/// Runs the body of a C function. Returns DAT_INTERNAL_ERROR if the body panics.
#[inline]
pub fn guard(body: impl FnOnce() -> DAT_RETURN) -> DAT_RETURN {
    // Unwinding is safe here, because all locks remain usable after a panic
    // (`PoisonError::into_inner`).
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(DAT_ERROR(DAT_INTERNAL_ERROR, DAT_NO_SUBTYPE))
}
