//! Functions that are forwarded to the provider of their first argument.
//!
//! Before the call, the handle is checked, and the integer by which a consumer names an IA is
//! translated to the provider's handle. The call then goes through the provider's function table.

use dat_sys::*;
use registry::boundary::guard;
use registry::{ia, table_of};

use crate::Library;

/// The kind of handle that a function expects as its first argument.
#[derive(Debug)]
pub struct HandleKind {
    /// Translates the handle to the address of its object.
    object: fn(DAT_HANDLE) -> Option<DAT_HANDLE>,
    /// The subtype of DAT_INVALID_HANDLE for an invalid handle, as measured on libdat2 2.1.10.
    subtype: DAT_RETURN_SUBTYPE,
}

impl HandleKind {
    const fn of_object(subtype: DAT_RETURN_SUBTYPE) -> HandleKind {
        HandleKind { object: Some, subtype }
    }

    /// Returns the object and its provider's table.
    #[inline]
    pub fn find(&self, handle: DAT_HANDLE) -> Option<(DAT_HANDLE, *const DAT_PROVIDER)> {
        let object = (self.object)(handle)?;
        Some((object, table_of(object)?))
    }

    /// Returns the status for an invalid handle, as a status of uDAPL 2.0.
    pub const fn invalid(&self) -> DAT_RETURN {
        DAT_ERROR(DAT_INVALID_HANDLE, self.subtype)
    }
}

/// An interface adapter.
pub const IA: HandleKind = HandleKind { object: ia::provider_ia, subtype: DAT_INVALID_HANDLE_IA };
/// Any object.
pub const ANY: HandleKind = HandleKind { object: ia::object, subtype: DAT_INVALID_HANDLE1 };
/// A consumer notification object.
pub const CNO: HandleKind = HandleKind::of_object(DAT_INVALID_HANDLE_CNO);
/// A connection request.
pub const CR: HandleKind = HandleKind::of_object(DAT_INVALID_HANDLE_CR);
/// A common service point.
pub const CSP: HandleKind = HandleKind::of_object(DAT_INVALID_HANDLE_CSP);
/// An endpoint.
pub const EP: HandleKind = HandleKind::of_object(DAT_INVALID_HANDLE_EP);
/// An event dispatcher.
pub const EVD: HandleKind = HandleKind::of_object(DAT_INVALID_HANDLE_EVD_REQUEST);
/// A local memory region.
pub const LMR: HandleKind = HandleKind::of_object(DAT_INVALID_HANDLE_LMR);
/// A public service point.
pub const PSP: HandleKind = HandleKind::of_object(DAT_INVALID_HANDLE_PSP);
/// A protection zone.
pub const PZ: HandleKind = HandleKind::of_object(DAT_INVALID_HANDLE_PZ);
/// A remote memory region.
pub const RMR: HandleKind = HandleKind::of_object(DAT_INVALID_HANDLE_RMR);
/// A reserved service point.
pub const RSP: HandleKind = HandleKind::of_object(DAT_INVALID_HANDLE_RSP);
/// A shared receive queue.
pub const SRQ: HandleKind = HandleKind::of_object(DAT_INVALID_HANDLE_SRQ);

/// Returns the object that a handle names and its provider's table. `Err` is the status of a call
/// with an invalid handle.
#[inline]
pub fn find(
    library: &Library,
    kind: &HandleKind,
    handle: DAT_HANDLE,
) -> Result<(DAT_HANDLE, *const DAT_PROVIDER), DAT_RETURN> {
    let mut found = None;
    // A panic does not propagate to the consumer.
    let status = guard(|| {
        found = kind.find(handle);
        if found.is_some() { DAT_SUCCESS } else { library.status(kind.invalid()) }
    });
    found.ok_or(status)
}

/// Defines and exports the functions of the list [`dat_sys::provider_functions!`]: those that the
/// [`Library`] implements ([`functions!`](crate::functions)), and those that are forwarded to a
/// provider. `DAT_PROVIDER` and the argument types are those that are in scope where the list is
/// invoked.
///
/// If the thread is cancelled in the provider's function, the stack is unwound through the function
/// defined here. So its frame catches no panics and has nothing with a destructor when it calls the
/// provider.
#[macro_export]
macro_rules! forward {
    (
        $version:literal
        library { $($of_library:tt)* }
        $(
            registry { $($own:tt)* }
            forwarded { $(
                $(#[$remark:meta])*
                $abi:literal $name:ident($kind:ident $object:ident: $object_type:ty
                    $(, $arg:ident: $type:ty)*) => $member:ident: $signature:ident
                    $(, $changed:ident)?;
            )* }
        )*
    ) => {
        $crate::functions! { $version; $($of_library)* }
        $($(
            #[doc = concat!("`", stringify!($name), "`.")]
            #[allow(clippy::too_many_arguments)] // The prototypes are the standard's.
            #[unsafe(no_mangle)]
            unsafe extern "C-unwind" fn $name(
                $object: $object_type $(, $arg: $type)*
            ) -> DAT_RETURN {
                type Function = unsafe extern "C-unwind" fn($object_type $(, $type)*) -> DAT_RETURN;
                let (library, kind) = const { (&crate::LIBRARY, &$crate::forward::$kind) };
                let ($object, table) = match $crate::forward::find(library, kind, $object) {
                    Ok((object, table)) => (object, table.cast::<DAT_PROVIDER>()),
                    Err(status) => return status,
                };
                // SAFETY: this is the table of a registered provider of this version, which an open
                // IA keeps in memory.
                match unsafe { (*table).$member } {
                    Some(function) => {
                        // SAFETY: the types differ at most in whether an unwinding may pass the
                        // function.
                        #[allow(clippy::useless_transmute)] // Some entries have this type already.
                        let function: Function = unsafe { std::mem::transmute(function) };
                        // SAFETY: this calls the provider's function with its own object. The
                        // consumer guarantees the other arguments.
                        unsafe { function($object $(, $arg)*) }
                    }
                    None => library.status(DAT_ERROR(DAT_NOT_IMPLEMENTED, DAT_NO_SUBTYPE)),
                }
            }
            $crate::version!($version, $name);
        )*)*
    };
}
