//! Variable arguments of C, as a function gets them that was handed a `va_list`.

use dat_sys::DAT_VA_LIST;

/// The arguments of an extended operation, each an integer or a pointer.
pub(super) struct VaList(DAT_VA_LIST);

/// System V AMD64 ABI, 3.5.7. A `va_list` is an array of one of these, so what is handed on is a pointer.
#[cfg(target_arch = "x86_64")]
#[repr(C)]
struct Raw {
    gp_offset: u32,
    fp_offset: u32,
    overflow_arg_area: *mut u8,
    reg_save_area: *mut u8,
}

/// Octets of the register save area that hold integer registers.
#[cfg(target_arch = "x86_64")]
const INTEGER_REGISTERS: u32 = 48;

impl VaList {
    /// # Safety
    /// `args` is a live `va_list`.
    pub(super) unsafe fn new(args: DAT_VA_LIST) -> Self {
        VaList(args)
    }

    /// The next argument, in the low bits of a word if it is smaller.
    ///
    /// # Safety
    /// There is one, and it is an integer, a pointer, or a union of such.
    #[cfg(target_arch = "x86_64")]
    pub(super) unsafe fn next(&mut self) -> u64 {
        // SAFETY: live, as `new` was promised; the two areas are as the ABI says.
        unsafe {
            let list = &mut *self.0.cast::<Raw>();
            let place = if list.gp_offset < INTEGER_REGISTERS {
                list.gp_offset += 8;
                list.reg_save_area.add(list.gp_offset as usize - 8)
            } else {
                list.overflow_arg_area = list.overflow_arg_area.add(8);
                list.overflow_arg_area.sub(8)
            };
            place.cast::<u64>().read()
        }
    }

    /// As [`next`](Self::next), of a pointer.
    ///
    /// # Safety
    /// As there.
    #[cfg(target_arch = "x86_64")]
    pub(super) unsafe fn pointer<V>(&mut self) -> *mut V {
        // SAFETY: as the caller promised.
        std::ptr::with_exposed_provenance_mut(unsafe { self.next() } as usize)
    }
}

#[cfg(not(target_arch = "x86_64"))]
compile_error!(
    "extended operations need this architecture's va_list, see dat-core/src/export/va_list.rs"
);
