//! Posts of OFED's extended operations (dat_ib_extensions.h), which are not in the standard. They
//! need an adapter that supports them ([`Attributes::extended`](crate::Attributes::extended)).

use std::ffi::c_int;

use dat_sys::VaList;
use dat_sys::ib::*;

use crate::endpoint::Endpoint;
use crate::error::Result;
use crate::memory::{RemoteSegment, Segment, iov};
use crate::object::call;
use crate::post::Flags;

/// Extended operations. They fail with the errors of all posts, and with
/// [`NotImplemented`](crate::ErrorKind::NotImplemented) if the adapter does not support the
/// extension.
impl Endpoint {
    /// Adds a number to the 8 bytes at `remote`, in the byte order of the peer's processor, and
    /// stores their old value in the 8 bytes at `local`. The peer's region must grant
    /// [`REMOTE_ATOMIC`](crate::Access::REMOTE_ATOMIC).
    ///
    /// # Errors
    ///
    /// The errors that are listed above for all extended operations.
    #[inline]
    pub fn post_fetch_add(
        &mut self,
        local: Segment,
        remote: RemoteSegment,
        add: u64,
        cookie: u64,
        flags: Flags,
    ) -> Result<()> {
        let arguments = [add, pointer(&local), cookie, pointer(&remote), flags.bits().into()];
        self.extended(DAT_IB_FETCH_AND_ADD_OP, &arguments)
    }

    /// Like [`post_fetch_add`](Self::post_fetch_add), but stores `swap` if the old value is
    /// `compare`.
    ///
    /// # Errors
    ///
    /// The errors that are listed above for all extended operations.
    #[inline]
    pub fn post_compare_swap(
        &mut self,
        local: Segment,
        remote: RemoteSegment,
        (compare, swap): (u64, u64),
        cookie: u64,
        flags: Flags,
    ) -> Result<()> {
        let arguments =
            [compare, swap, pointer(&local), cookie, pointer(&remote), flags.bits().into()];
        self.extended(DAT_IB_CMP_AND_SWAP_OP, &arguments)
    }

    /// Writes the segments to memory of the peer. Then one of the peer's receives completes. Its
    /// completion contains the number ([`Completion::immediate`](crate::Completion::immediate)) and
    /// no bytes.
    ///
    /// # Errors
    ///
    /// The errors that are listed above for all extended operations.
    #[inline]
    pub fn post_write_immediate(
        &mut self,
        local: &[Segment],
        remote: RemoteSegment,
        immediate: u32,
        cookie: u64,
        flags: Flags,
    ) -> Result<()> {
        let (count, iov) = iov(local);
        let iov = iov.expose_provenance() as u64;
        let flags = flags.bits().into();
        let arguments = [count as u64, iov, cookie, pointer(&remote), immediate.into(), flags];
        self.extended(DAT_IB_RDMA_WRITE_IMMED_OP, &arguments)
    }

    /// Calls dat_extension_op on this endpoint. As in the macros of dat_ib_extensions.h, each
    /// argument is a number, or the address of a value that exists until the call returns.
    #[inline]
    fn extended(&mut self, op: DAT_IB_OP, arguments: &[u64]) -> Result<()> {
        let interface = &self.object.interface;
        if !interface.attributes.extended {
            return Err(crate::error::not_implemented("dat_extension_op"));
        }
        let mut arguments = VaList::in_memory(arguments.as_ptr());
        // SAFETY: this value owns the handle, `&mut` makes this thread its only user, and the
        // arguments are those of the C macros. The provider reported the extension, so its table
        // has the function.
        unsafe {
            call!(
                interface,
                "dat_extension_op",
                handle_extendedop_func(
                    self.object.handle,
                    op as c_int,
                    (&raw mut arguments).cast()
                )
            )
        }
    }
}

fn pointer<T>(to: &T) -> u64 {
    (&raw const *to).expose_provenance() as u64
}
