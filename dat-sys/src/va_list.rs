//! C's `va_list`: the variable arguments of dat_extension_op.

use core::ffi::c_void;

/// The structure behind a [`DAT_VA_LIST`](crate::DAT_VA_LIST) (System V AMD64 ABI, 3.5.7).
#[cfg(target_arch = "x86_64")]
#[repr(C)]
#[derive(Debug)]
pub struct VaList {
    /// The offset of the next integer register in the register save area.
    gp_offset: u32,
    /// The offset of the next vector register in the register save area.
    fp_offset: u32,
    /// The next argument on the stack.
    overflow_arg_area: *mut c_void,
    reg_save_area: *mut c_void,
}

/// The structure behind a [`DAT_VA_LIST`](crate::DAT_VA_LIST) (AAPCS64, appendix B).
#[cfg(target_arch = "aarch64")]
#[repr(C)]
#[derive(Debug)]
pub struct VaList {
    /// The next argument on the stack.
    stack: *mut c_void,
    /// The end of the saved integer registers.
    gr_top: *mut c_void,
    /// The end of the saved vector registers.
    vr_top: *mut c_void,
    /// The offset of the next integer register from `gr_top`, or 0 if none is left.
    gr_offs: i32,
    /// The offset of the next vector register from `vr_top`, or 0 if none is left.
    vr_offs: i32,
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("dat_extension_op needs the va_list of this architecture");

/// The number of octets in the register save area that hold integer registers.
#[cfg(target_arch = "x86_64")]
const INTEGER_REGISTERS: u32 = 48;
/// The size of the register save area in octets.
#[cfg(target_arch = "x86_64")]
const REGISTERS: u32 = 176;

impl VaList {
    /// Makes a list with all arguments in memory, as if earlier arguments had used up the
    /// registers. The list is valid as long as the arguments are.
    #[cfg(target_arch = "x86_64")]
    pub fn in_memory(arguments: *const u64) -> VaList {
        VaList {
            gp_offset: INTEGER_REGISTERS,
            fp_offset: REGISTERS,
            overflow_arg_area: arguments.cast_mut().cast(),
            reg_save_area: core::ptr::null_mut(),
        }
    }

    /// Makes a list with all arguments in memory, as if earlier arguments had used up the
    /// registers. The list is valid as long as the arguments are.
    #[cfg(target_arch = "aarch64")]
    pub fn in_memory(arguments: *const u64) -> VaList {
        let (gr_top, vr_top) = (core::ptr::null_mut(), core::ptr::null_mut());
        VaList { stack: arguments.cast_mut().cast(), gr_top, vr_top, gr_offs: 0, vr_offs: 0 }
    }

    /// Returns the next argument, as `va_arg` does. An argument that is smaller than a word is in
    /// the low bits of the result.
    ///
    /// # Safety
    /// There is a next argument, and it is an integer, a pointer, or a union of these types.
    pub unsafe fn next(&mut self) -> u64 {
        let place = self.advance();
        // SAFETY: the caller guarantees that there is an argument. It is in one of the two areas,
        // whose layout the ABI defines.
        unsafe { place.cast::<u64>().read() }
    }

    /// Returns the place of the next argument, and goes on to the one after it.
    #[cfg(target_arch = "x86_64")]
    fn advance(&mut self) -> *mut c_void {
        if self.gp_offset < INTEGER_REGISTERS {
            self.gp_offset += 8;
            return self.reg_save_area.wrapping_byte_add(self.gp_offset as usize - 8);
        }
        let place = self.overflow_arg_area;
        self.overflow_arg_area = place.wrapping_byte_add(8);
        place
    }

    /// Returns the place of the next argument, and goes on to the one after it.
    #[cfg(target_arch = "aarch64")]
    fn advance(&mut self) -> *mut c_void {
        if self.gr_offs < 0 {
            let offset = self.gr_offs as isize;
            self.gr_offs += 8;
            return self.gr_top.wrapping_byte_offset(offset);
        }
        let place = self.stack;
        self.stack = place.wrapping_byte_add(8);
        place
    }
}
