//! Calls dat_extension_op, which is the only function with variable arguments. In this binding, all
//! variable arguments are 64-bit words.

use dat_sys::ib::*;
use dat_sys::opendat::DAT_OPENDAT_POST_SEND_UD_IMMED_OP;
use dat_sys::*;
use libloading::os::unix::Library;
use registry::{ia, table_of};

/// The way in which dat_extension_op is called.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ExtensionOp {
    /// The suite calls the function that a C library exports.
    Exported(unsafe extern "C" fn(DAT_HANDLE, DAT_EXTENDED_OP, ...) -> DAT_RETURN),
    /// The suite calls the provider's function, which takes a `va_list`, through the linked
    /// registry.
    Linked,
}

/// The variable arguments, which follow the handle and the operation. Each operation reads only as
/// many of the first arguments as it needs.
pub(crate) type Words = [u64; 6];

/// The name of the macro by which a C program calls this operation. For an operation that has no
/// macro, the name is dat_extension_op, the function that all these macros call.
pub(crate) fn function(op: u32) -> &'static str {
    match op {
        DAT_IB_FETCH_AND_ADD_OP => "dat_ib_post_fetch_and_add",
        DAT_IB_CMP_AND_SWAP_OP => "dat_ib_post_cmp_and_swap",
        DAT_IB_RDMA_WRITE_IMMED_OP => "dat_ib_post_rdma_write_immed",
        DAT_IB_UD_SEND_OP => "dat_ib_post_send_ud",
        DAT_IB_UD_CM_FREE_OP => "dat_ib_ud_cm_free",
        DAT_IB_UD_AH_FREE_OP => "dat_ib_ud_ah_free",
        _ if op == DAT_OPENDAT_POST_SEND_UD_IMMED_OP as u32 => "dat_opendat_post_send_ud_immed",
        DAT_IB_QUERY_COUNTERS_OP => "dat_ib_query_counters",
        DAT_IB_PRINT_COUNTERS_OP => "dat_ib_print_counters",
        DAT_IB_START_COUNTERS_OP => "dat_ib_start_counter",
        DAT_IB_STOP_COUNTERS_OP => "dat_ib_stop_counter",
        DAT_IB_OPEN_QUERY_OP => "dat_ib_open_query",
        DAT_IB_CLOSE_QUERY_OP => "dat_ib_close_query",
        _ => "dat_extension_op",
    }
}

impl ExtensionOp {
    /// Looks dat_extension_op up in a library.
    ///
    /// # Safety
    ///
    /// The function that the library exports under this name must be that of uDAPL 2.0, and must
    /// stay loaded.
    pub(crate) unsafe fn of(library: &Library) -> Option<ExtensionOp> {
        // SAFETY: the caller guarantees that the exported function is that of uDAPL 2.0 and stays
        // loaded.
        unsafe { library.get(b"dat_extension_op") }
            .ok()
            .map(|symbol| ExtensionOp::Exported(*symbol))
    }

    /// Calls dat_extension_op.
    ///
    /// # Safety
    ///
    /// The words must be valid arguments of the operation.
    pub(crate) unsafe fn call(
        self,
        handle: DAT_HANDLE,
        op: DAT_EXTENDED_OP,
        words: Words,
    ) -> DAT_RETURN {
        match self {
            // SAFETY: the caller guarantees that the words are valid arguments. A variadic C
            // function may be given more arguments than it reads.
            ExtensionOp::Exported(function) => unsafe {
                function(handle, op, words[0], words[1], words[2], words[3], words[4], words[5])
            },
            ExtensionOp::Linked => {
                let found = ia::object(handle).and_then(|object| Some((object, table_of(object)?)));
                let Some((object, table)) = found else {
                    return DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE1);
                };
                let mut list = VaList::in_memory(words.as_ptr());
                // SAFETY: `table` is the table of a registered provider of 2.0. All such tables in
                // this program have the function.
                let Some(function) = (unsafe { (*table).handle_extendedop_func }) else {
                    return DAT_ERROR(DAT_NOT_IMPLEMENTED, DAT_NO_SUBTYPE);
                };
                // SAFETY: the caller guarantees that the words are valid arguments of the
                // operation.
                unsafe { function(object, op, (&raw mut list).cast()) }
            }
        }
    }
}
