//! dat_extension_op, the only variadic function. Providers take its arguments as a `va_list`.
//!
//! Rust cannot define a C-variadic function, so a few instructions of assembly build the `va_list`
//! and call [`extension_op`].

use std::arch::naked_asm;
use std::ffi::{CStr, c_char, c_void};

use dat_sys::*;
use registry::boundary::guard;
use registry::{close_query, handle, ia, table_of};
use telemetry::threads::Uncancellable;

use crate::LIBRARY;

/// `dat_extension_op(handle, op, ...)`: performs an operation that the standard does not define.
///
/// # Safety
///
/// The arguments must be those of the operation.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn dat_extension_op(
    handle: DAT_HANDLE,
    op: DAT_EXTENDED_OP,
) -> DAT_RETURN {
    // System V AMD64 ABI 3.5.7, variable argument lists. The frame holds the va_list (24 bytes at
    // offset 0) and the register save area (176 bytes at offset 32). AL is an upper bound of the
    // number of vector registers that the caller uses.
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
        "mov dword ptr [rsp], 16",     // gp_offset: the named arguments take two registers.
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

/// The same for AArch64.
///
/// # Safety
///
/// The arguments must be those of the operation.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn dat_extension_op(
    handle: DAT_HANDLE,
    op: DAT_EXTENDED_OP,
) -> DAT_RETURN {
    // AAPCS64, appendix B. The frame holds the frame record (16 bytes), the va_list (32 bytes at
    // offset 16), the integer registers (48 bytes at offset 48) and the vector registers (128 bytes
    // at offset 96).
    naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, #-224]!",
        ".cfi_def_cfa_offset 224",
        ".cfi_offset 29, -224",
        ".cfi_offset 30, -216",
        "mov x29, sp",
        "stp x2, x3, [sp, #48]",
        "stp x4, x5, [sp, #64]",
        "stp x6, x7, [sp, #80]",
        "stp q0, q1, [sp, #96]",
        "stp q2, q3, [sp, #128]",
        "stp q4, q5, [sp, #160]",
        "stp q6, q7, [sp, #192]",
        "add x9, sp, #224",
        "add x10, sp, #96",
        "stp x9, x10, [sp, #16]", // stack, gr_top
        "str x9, [sp, #32]",      // vr_top
        "mov w9, #-48",           // gr_offs: the named arguments take two registers.
        "mov w10, #-128",         // vr_offs
        "stp w9, w10, [sp, #40]",
        "add x2, sp, #16",
        "bl {extension_op}",
        "ldp x29, x30, [sp], #224",
        ".cfi_restore 29",
        ".cfi_restore 30",
        ".cfi_def_cfa_offset 0",
        "ret",
        ".cfi_endproc",
        extension_op = sym extension_op,
    )
}
libdat::version!("DAT_2.0", dat_extension_op);

/// If the thread is cancelled in the provider's function, the stack is unwound through this
/// function. So its frame has nothing with a destructor when it calls the provider.
///
/// # Safety
///
/// `args` must be a live `va_list` with the arguments of the operation.
unsafe extern "C-unwind" fn extension_op(
    handle: DAT_HANDLE,
    op: DAT_EXTENDED_OP,
    args: DAT_VA_LIST,
) -> DAT_RETURN {
    type Function =
        unsafe extern "C-unwind" fn(DAT_HANDLE, DAT_EXTENDED_OP, DAT_VA_LIST) -> DAT_RETURN;
    let mut found = None;
    let status = guard(|| {
        if op & DAT_OPEN_EXTENSION_BASE != 0 {
            let _uncancellable = Uncancellable::new();
            // SAFETY: the first argument of an open operation is the name of an IA.
            let name: *const c_char = unsafe { next_pointer(args) }.cast();
            if name.is_null() {
                return DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
            }
            // SAFETY: the consumer guarantees a NUL-terminated name and the arguments of the
            // operation.
            return unsafe { LIBRARY.registry.open_query(CStr::from_ptr(name), op, args) };
        }
        let Some((object, table)) =
            ia::object(handle).and_then(|object| Some((object, table_of(object)?)))
        else {
            // A close operation requires an IA that an open operation has opened. All other
            // operations accept the handle of any object.
            let is_close = op & DAT_CLOSE_EXTENSION_BASE != 0;
            let subtype = if is_close { DAT_INVALID_HANDLE_IA } else { DAT_INVALID_HANDLE1 };
            return DAT_ERROR(DAT_INVALID_HANDLE, subtype);
        };
        if !handle::has_extensions(table) {
            return DAT_ERROR(DAT_NOT_IMPLEMENTED, DAT_NO_SUBTYPE);
        }
        // SAFETY: this is the table of a registered provider, which is in memory and includes the
        // extension function.
        let Some(function) = (unsafe { (*table).handle_extendedop_func }) else {
            return DAT_ERROR(DAT_NOT_IMPLEMENTED, DAT_NO_SUBTYPE);
        };
        found = Some((object, table, function));
        DAT_SUCCESS
    });
    let Some((object, table, function)) = found else { return status };
    // SAFETY: the types differ only in whether an unwinding may pass the function.
    let function: Function = unsafe { std::mem::transmute(function) };
    // SAFETY: this calls the provider's function with its own object. The consumer guarantees the
    // arguments.
    let status = unsafe { function(object, op, args) };
    if op & DAT_CLOSE_EXTENSION_BASE == 0 || status != DAT_SUCCESS {
        return status;
    }
    guard(|| {
        let _uncancellable = Uncancellable::new();
        close_query(table);
        DAT_SUCCESS
    })
}

/// `va_arg(args, void *)`.
///
/// # Safety
///
/// `args` must be a live `va_list` whose next argument is a pointer.
unsafe fn next_pointer(args: DAT_VA_LIST) -> *mut c_void {
    // SAFETY: the trampoline above created the list.
    std::ptr::with_exposed_provenance_mut(unsafe { (&mut *args.cast::<VaList>()).next() } as usize)
}
