//! OpenDAT's own operations of dat_extension_op (`<dat2/dat_vendor_specific.h>`).

use core::ffi::c_int;

/// Copies the last cause of an endpoint: `char *buffer, DAT_COUNT size`.
pub const DAT_OPENDAT_EP_LAST_CAUSE_OP: c_int = 0x4000;
