//! Operations that are not in the standard: posts of OFED's extended operations
//! (dat_ib_extensions.h), which need an adapter that supports them
//! ([`Attributes::extended`](crate::Attributes::extended)), and the last cause of an endpoint.

use std::ffi::{CStr, c_int};

use dat_sys::VaList;
use dat_sys::ib::*;
use dat_sys::opendat::DAT_OPENDAT_EP_LAST_CAUSE_OP;

use crate::endpoint::Endpoint;
use crate::error::Result;
use crate::expect::Unexpected;
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
        // SAFETY: these are the arguments of the operation.
        unsafe { self.extended(DAT_IB_FETCH_AND_ADD_OP, &arguments) }
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
        // SAFETY: these are the arguments of the operation.
        unsafe { self.extended(DAT_IB_CMP_AND_SWAP_OP, &arguments) }
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
        // SAFETY: these are the arguments of the operation.
        unsafe { self.extended(DAT_IB_RDMA_WRITE_IMMED_OP, &arguments) }
    }

    /// Says in a sentence why the latest connection of the endpoint ended, its operation failed or
    /// its message waits, and what to do: for example "peer 10.0.0.2 sent 64 octets and no receive
    /// is posted on this endpoint: post a receive for each message of the peer, the first ones
    /// before you connect or accept". Returns `None` if nothing has failed, or if the provider is
    /// not OpenDAT's. The sentence is for a person, and may change from version to version.
    pub fn last_cause(&self) -> Option<String> {
        let mut buffer = [0_u8; LAST_CAUSE_MAX_OCTETS];
        let start = buffer.as_mut_ptr().expose_provenance() as u64;
        let arguments = [start, LAST_CAUSE_MAX_OCTETS as u64];
        // SAFETY: the arguments are those of the operation, which only reads the endpoint and may
        // be called by several threads. Other providers refuse its number.
        unsafe { self.extension_op(DAT_OPENDAT_EP_LAST_CAUSE_OP, &arguments) }.ok()?;
        let text = CStr::from_bytes_until_nul(&buffer).ok()?;
        Some(text.to_string_lossy().into_owned()).filter(|text| !text.is_empty())
    }

    /// Adds the [last cause](Self::last_cause) to the error about an event of this endpoint.
    ///
    /// ```no_run
    /// # fn connect(endpoint: &dat::Endpoint, events: &mut dat::EventDispatcher)
    /// # -> Result<(), Box<dyn std::error::Error>> {
    /// let event = events.wait(None)?;
    /// event.established().map_err(|error| endpoint.explain(error))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn explain(&self, error: Unexpected) -> Unexpected {
        error.with_cause(self.last_cause())
    }

    /// Calls dat_extension_op on this endpoint, if the provider has extensions.
    ///
    /// # Safety
    ///
    /// The arguments must be those of the operation. As in the macros of dat_ib_extensions.h, each
    /// argument is a number, or the address of a value that exists until the call returns.
    #[inline]
    pub(crate) unsafe fn extended(&mut self, op: DAT_IB_OP, arguments: &[u64]) -> Result<()> {
        if !self.object.interface.attributes.extended {
            return Err(crate::error::not_implemented("dat_extension_op"));
        }
        // SAFETY: `&mut` makes this thread the only user of the endpoint, and the provider has
        // reported the extension. The caller guarantees that the arguments are valid.
        unsafe { self.extension_op(op as c_int, arguments) }
    }

    /// Calls dat_extension_op on this endpoint.
    ///
    /// # Safety
    /// The provider has reported that it has extensions, so its table has the function. The
    /// arguments are those of the operation, and this thread may call it now.
    #[inline]
    unsafe fn extension_op(&self, op: c_int, arguments: &[u64]) -> Result<()> {
        let mut arguments = VaList::in_memory(arguments.as_ptr());
        // SAFETY: this value owns the handle. The caller fulfils the rest of the contract.
        unsafe {
            call!(
                self.object.interface,
                "dat_extension_op",
                handle_extendedop_func(self.object.handle, op, (&raw mut arguments).cast())
            )
        }
    }
}

/// The size of the buffer for a last cause. A longer sentence is cut off.
const LAST_CAUSE_MAX_OCTETS: usize = 1024;

/// The address of a value, as an argument of an extended operation.
#[inline]
pub(crate) fn pointer<T>(to: &T) -> u64 {
    (&raw const *to).expose_provenance() as u64
}
