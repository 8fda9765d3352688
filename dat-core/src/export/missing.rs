//! Functions of the standard that are not built yet: each judges its handle and then says so.

use dat_sys::*;

use super::convert::code;
use crate::error::Error;
use crate::handle;

/// dat_extension_op: no provider here has extensions.
pub(super) unsafe extern "C" fn handle_extendedop(
    handle: DAT_HANDLE,
    _: DAT_EXTENDED_OP,
    _: DAT_VA_LIST,
) -> DAT_RETURN {
    code(handle::live(handle).and(Err(Error::of(DAT_NOT_IMPLEMENTED))))
}
