//! OpenDAT's own operations of dat_extension_op (`<dat2/dat_vendor_specific.h>`).

use core::ffi::c_int;

/// Copies the last cause of an endpoint: `char *buffer, DAT_COUNT size`.
pub const DAT_OPENDAT_EP_LAST_CAUSE_OP: c_int = 0x4000;
/// Sends a datagram with immediate data: `DAT_COUNT segments, DAT_LMR_TRIPLET *local_iov,
/// DAT_IB_ADDR_HANDLE *remote_ah, DAT_DTO_COOKIE cookie, DAT_UINT32 immediate,
/// DAT_COMPLETION_FLAGS flags`.
pub const DAT_OPENDAT_POST_SEND_UD_IMMED_OP: c_int = 0x4001;
