//! Reads the variable arguments of a C function from a `va_list`.

use dat_sys::DAT_VA_LIST;

/// The arguments of an extended operation, each an integer or a pointer.
pub(super) struct VaList(DAT_VA_LIST);

/// The C structure behind a `va_list` (System V AMD64 ABI, 3.5.7). A `va_list` is an array of one
/// such structure, so C passes it as a pointer.
#[cfg(target_arch = "x86_64")]
#[repr(C)]
struct Raw {
    gp_offset: u32,
    fp_offset: u32,
    overflow_arg_area: *mut u8,
    reg_save_area: *mut u8,
}

/// The number of octets in the register save area that hold integer registers.
#[cfg(target_arch = "x86_64")]
const INTEGER_REGISTERS: u32 = 48;

impl VaList {
    /// # Safety
    /// `args` is a live `va_list`.
    pub(super) unsafe fn new(args: DAT_VA_LIST) -> Self {
        VaList(args)
    }

    /// Returns the next argument. An argument that is smaller than a word is in the low bits of the
    /// result.
    ///
    /// # Safety
    /// There is a next argument, and it is an integer, a pointer, or a union of these types.
    #[cfg(target_arch = "x86_64")]
    pub(super) unsafe fn next(&mut self) -> u64 {
        // SAFETY: the caller of `new` guarantees that the list is live. The two memory areas of the
        // list have the layout that the ABI defines.
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

    /// Returns the next argument, which is a pointer.
    ///
    /// # Safety
    /// The requirements of [`next`](Self::next) apply.
    #[cfg(target_arch = "x86_64")]
    pub(super) unsafe fn pointer<V>(&mut self) -> *mut V {
        // SAFETY: the caller fulfils the contract of this function.
        std::ptr::with_exposed_provenance_mut(unsafe { self.next() } as usize)
    }
}

#[cfg(not(target_arch = "x86_64"))]
compile_error!(
    "extended operations need this architecture's va_list, see dat-core/src/export/va_list.rs"
);
