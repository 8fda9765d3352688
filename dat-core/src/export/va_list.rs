//! Reads the variable arguments of a C function from a `va_list`.

use dat_sys::DAT_VA_LIST;

/// The arguments of an extended operation, each an integer or a pointer.
pub(super) struct VaList(DAT_VA_LIST);

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
    pub(super) unsafe fn next(&mut self) -> u64 {
        // SAFETY: the caller of `new` guarantees that the list is live, and the caller of this
        // function that there is an argument.
        unsafe { (&mut *self.0.cast::<dat_sys::VaList>()).next() }
    }

    /// Returns the next argument, which is a pointer.
    ///
    /// # Safety
    /// The requirements of [`next`](Self::next) apply.
    pub(super) unsafe fn pointer<V>(&mut self) -> *mut V {
        // SAFETY: the caller fulfils the contract of this function.
        std::ptr::with_exposed_provenance_mut(unsafe { self.next() } as usize)
    }
}
