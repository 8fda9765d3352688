//! dat_extension_op, the one variadic function: providers take its arguments as a `va_list`.
//!
//! Rust cannot define a C-variadic function, so a few instructions build the `va_list` and call [`extension_op`].

use std::arch::naked_asm;
use std::ffi::{CStr, c_char};

use dat_sys::*;
use registry::boundary::guard;
use registry::{close_query, handle, ia, table_of};

use crate::LIBRARY;

#[cfg(not(target_arch = "x86_64"))]
compile_error!(
    "dat_extension_op needs a trampoline for this architecture, see libdat/v2/src/extension.rs"
);

/// `dat_extension_op(handle, op, ...)`: an operation that the standard does not define.
///
/// # Safety
///
/// The arguments are those of the operation.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn dat_extension_op(handle: DAT_HANDLE, op: DAT_EXTENDED_OP) -> DAT_RETURN {
    // System V AMD64 ABI 3.5.7, variable argument lists. The frame holds the va_list (24 bytes, at 0) and the
    // register save area (176 bytes, at 32); AL is how many vector registers the caller may have used.
    naked_asm!(
        ".cfi_startproc",
        "sub rsp, 216",
        ".cfi_adjust_cfa_offset 216",
        "mov [rsp + 32 + 16], rdx",
        "mov [rsp + 32 + 24], rcx",
        "mov [rsp + 32 + 32], r8",
        "mov [rsp + 32 + 40], r9",
        "test al, al",
        "je 2f",
        "movaps [rsp + 32 + 48], xmm0",
        "movaps [rsp + 32 + 64], xmm1",
        "movaps [rsp + 32 + 80], xmm2",
        "movaps [rsp + 32 + 96], xmm3",
        "movaps [rsp + 32 + 112], xmm4",
        "movaps [rsp + 32 + 128], xmm5",
        "movaps [rsp + 32 + 144], xmm6",
        "movaps [rsp + 32 + 160], xmm7",
        "2:",
        "mov dword ptr [rsp], 16",     // gp_offset: two registers are named arguments
        "mov dword ptr [rsp + 4], 48", // fp_offset
        "lea rax, [rsp + 216 + 8]",
        "mov [rsp + 8], rax", // overflow_arg_area
        "lea rax, [rsp + 32]",
        "mov [rsp + 16], rax", // reg_save_area
        "mov rdx, rsp",
        "call {extension_op}",
        "add rsp, 216",
        ".cfi_adjust_cfa_offset -216",
        "ret",
        ".cfi_endproc",
        extension_op = sym extension_op,
    )
}
libdat::version!("DAT_2.0", dat_extension_op);

/// # Safety
///
/// `args` is a live `va_list` with the arguments of the operation.
unsafe extern "C" fn extension_op(
    handle: DAT_HANDLE,
    op: DAT_EXTENDED_OP,
    args: DAT_VA_LIST,
) -> DAT_RETURN {
    guard(|| {
        if op & DAT_OPEN_EXTENSION_BASE != 0 {
            // SAFETY: the first argument of an open operation is the name of an IA.
            let name: *const c_char = unsafe { next_pointer(args) }.cast();
            if name.is_null() {
                return DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
            }
            // SAFETY: NUL-terminated, the consumer says; the other arguments are the operation's.
            return unsafe { LIBRARY.registry.open_query(CStr::from_ptr(name), op, args) };
        }
        let Some((object, table)) =
            ia::object(handle).and_then(|object| Some((object, table_of(object)?)))
        else {
            // A close operation takes the IA that an open operation gave, any other one any object.
            let is_close = op & DAT_CLOSE_EXTENSION_BASE != 0;
            let subtype = if is_close { DAT_INVALID_HANDLE_IA } else { DAT_INVALID_HANDLE1 };
            return DAT_ERROR(DAT_INVALID_HANDLE, subtype);
        };
        if !handle::has_extensions(table) {
            return DAT_ERROR(DAT_NOT_IMPLEMENTED, DAT_NO_SUBTYPE);
        }
        // SAFETY: the table of a registered provider, which is in memory and long enough for extensions.
        let Some(function) = (unsafe { (*table).handle_extendedop_func }) else {
            return DAT_ERROR(DAT_NOT_IMPLEMENTED, DAT_NO_SUBTYPE);
        };
        // SAFETY: the provider's own function and object; the arguments are the consumer's word.
        let status = unsafe { function(object, op, args) };
        if op & DAT_CLOSE_EXTENSION_BASE != 0 && status == DAT_SUCCESS {
            close_query(table);
        }
        status
    })
}

/// `va_arg(args, void *)`.
///
/// # Safety
///
/// `args` is a live `va_list` whose next argument is a pointer.
#[cfg(target_arch = "x86_64")]
unsafe fn next_pointer(args: DAT_VA_LIST) -> *mut std::ffi::c_void {
    #[repr(C)]
    struct VaList {
        gp_offset: u32,
        fp_offset: u32,
        overflow_arg_area: *mut u8,
        reg_save_area: *mut u8,
    }
    // SAFETY: the trampoline above made it; a pointer is in the register save area while one of six is left.
    unsafe {
        let list = &mut *args.cast::<VaList>();
        let place = if list.gp_offset < 48 {
            list.gp_offset += 8;
            list.reg_save_area.add(list.gp_offset as usize - 8)
        } else {
            list.overflow_arg_area = list.overflow_arg_area.add(8);
            list.overflow_arg_area.sub(8)
        };
        place.cast::<*mut std::ffi::c_void>().read()
    }
}
