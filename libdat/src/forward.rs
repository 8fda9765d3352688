//! Functions that go to the provider behind their first argument.
//!
//! The handle is checked (never followed blindly), an IA's integer becomes the provider's handle, and the call goes
//! through the provider's table.

use dat_sys::*;
use registry::{ia, table_of};

/// What a function expects as its first argument.
#[derive(Debug)]
pub struct Kind {
    /// The object behind the handle.
    object: fn(DAT_HANDLE) -> Option<DAT_HANDLE>,
    /// The subtype of DAT_INVALID_HANDLE for a handle that is none; measured on libdat2 2.1.10.
    subtype: DAT_RETURN_SUBTYPE,
}

impl Kind {
    const fn plain(subtype: DAT_RETURN_SUBTYPE) -> Kind {
        Kind { object: Some, subtype }
    }

    /// The object and its provider's table.
    #[inline]
    pub fn find(&self, handle: DAT_HANDLE) -> Option<(DAT_HANDLE, *const DAT_PROVIDER)> {
        let object = (self.object)(handle)?;
        Some((object, table_of(object)?))
    }

    /// What a handle that is none is answered, in the numbers of 2.0.
    pub const fn invalid(&self) -> DAT_RETURN {
        DAT_ERROR(DAT_INVALID_HANDLE, self.subtype)
    }
}

/// An interface adapter.
pub const IA: Kind = Kind { object: ia::provider_ia, subtype: DAT_INVALID_HANDLE_IA };
/// Anything.
pub const ANY: Kind = Kind { object: ia::object, subtype: DAT_INVALID_HANDLE1 };
/// A consumer notification object.
pub const CNO: Kind = Kind::plain(DAT_INVALID_HANDLE_CNO);
/// A connection request.
pub const CR: Kind = Kind::plain(DAT_INVALID_HANDLE_CR);
/// A common service point.
pub const CSP: Kind = Kind::plain(DAT_INVALID_HANDLE_CSP);
/// An endpoint.
pub const EP: Kind = Kind::plain(DAT_INVALID_HANDLE_EP);
/// An event dispatcher.
pub const EVD: Kind = Kind::plain(DAT_INVALID_HANDLE_EVD_REQUEST);
/// A local memory region.
pub const LMR: Kind = Kind::plain(DAT_INVALID_HANDLE_LMR);
/// A public service point.
pub const PSP: Kind = Kind::plain(DAT_INVALID_HANDLE_PSP);
/// A protection zone.
pub const PZ: Kind = Kind::plain(DAT_INVALID_HANDLE_PZ);
/// A remote memory region.
pub const RMR: Kind = Kind::plain(DAT_INVALID_HANDLE_RMR);
/// A reserved service point.
pub const RSP: Kind = Kind::plain(DAT_INVALID_HANDLE_RSP);
/// A shared receive queue.
pub const SRQ: Kind = Kind::plain(DAT_INVALID_HANDLE_SRQ);

/// Defines and exports functions that go to a provider, one a line: the name, the kind of the first argument, the other
/// arguments, the place in the table. `DAT_PROVIDER` and the types of the arguments are those where it is called.
#[macro_export]
macro_rules! forward {
    ($version:literal; $($name:ident($kind:ident $(, $arg:ident: $type:ty)*) => $slot:ident;)*) => {$(
        $crate::export! {
            $version;
            #[doc = concat!("`", stringify!($name), "`.")]
            #[allow(clippy::too_many_arguments)] // the standard's prototypes
            fn $name(handle: DAT_HANDLE $(, $arg: $type)*) -> DAT_RETURN {
                let kind = const { $crate::forward::$kind };
                let Some((object, table)) = kind.find(handle) else {
                    return crate::LIBRARY.status(kind.invalid());
                };
                let table: *const DAT_PROVIDER = table.cast();
                // SAFETY: the table of a registered provider of this version, which an open IA keeps in memory.
                match unsafe { (*table).$slot } {
                    // SAFETY: the provider's own function and object; the other arguments are the consumer's word.
                    Some(function) => unsafe { function(object $(, $arg)*) },
                    None => crate::LIBRARY.status(DAT_ERROR(DAT_NOT_IMPLEMENTED, DAT_NO_SUBTYPE)),
                }
            }
        }
    )*};
}
