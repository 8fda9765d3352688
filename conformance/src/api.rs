//! The functions under test, as pointers with the signatures of uDAPL 2.0, and methods that call
//! them.
//!
//! The methods are not `unsafe`, but a call with an invalid pointer is undefined behavior, as in C.
//! Only the cases of this crate call them. Each case guarantees that a pointer is null or valid for
//! what the function does with it. Cases pass references, null pointers, and handles that are or
//! were valid.

use std::ffi::c_char;

use dat_sys::*;
use libloading::os::unix::Library;

use crate::binding::extension::{self, ExtensionOp, Words};
use crate::calls;
use crate::functions::functions;

macro_rules! declare {
    (
        registry { $($own:ident($($own_arg:ident: $own_type:ty),* $(,)?);)* }
        forwarded { $($name:ident($kind:ident $(, $arg:ident: $type:ty)*) => $slot:ident;)* }
    ) => {
        /// The functions that a binding offers. A function is `None` if the binding lacks it.
        #[derive(Debug)]
        pub(crate) struct Api {
            $(pub(crate) $own: Option<unsafe extern "C" fn($($own_type),*) -> DAT_RETURN>,)*
            $(pub(crate) $name: Option<unsafe extern "C" fn(DAT_HANDLE $(, $type)*) -> DAT_RETURN>,)*
            pub(crate) dat_extension_op: Option<ExtensionOp>,
            /// Adds a call to the record of the case. It does nothing if the functions are called
            /// by another binding, which converts their statuses.
            pub(crate) record: fn(&'static str, DAT_RETURN) -> DAT_RETURN,
        }

        impl Api {
            /// Looks up the functions that a library exports.
            ///
            /// # Safety
            ///
            /// The functions that the library exports under these names must have the signatures of
            /// uDAPL 2.0.
            pub(crate) unsafe fn of(library: &Library) -> Api {
                // SAFETY: the caller guarantees the signatures. The library stays loaded
                // (`binding::library::load_forever`).
                unsafe {
                    Api {
                        $($own: library.get(stringify!($own)).ok().map(|symbol| *symbol),)*
                        $($name: library.get(stringify!($name)).ok().map(|symbol| *symbol),)*
                        dat_extension_op: ExtensionOp::of(library),
                        record: calls::record,
                    }
                }
            }

            /// Returns whether the binding has the function with this name. If no function of DAT
            /// has this name, also returns true.
            pub(crate) fn has(&self, name: &str) -> bool {
                match name {
                    $(stringify!($own) => self.$own.is_some(),)*
                    $(stringify!($name) => self.$name.is_some(),)*
                    "dat_extension_op" => self.dat_extension_op.is_some(),
                    _ => true,
                }
            }

            $(
                #[doc = concat!("`", stringify!($own), "`.")]
                #[allow(clippy::too_many_arguments, dead_code)] // the standard's prototypes
                pub(crate) fn $own(&self, $($own_arg: $own_type),*) -> DAT_RETURN {
                    let Some(function) = self.$own else { return NOT_AVAILABLE };
                    // SAFETY: the case guarantees valid arguments: see the module's comment.
                    (self.record)(stringify!($own), unsafe { function($($own_arg),*) })
                }
            )*
            $(
                #[doc = concat!("`", stringify!($name), "`.")]
                #[allow(clippy::too_many_arguments, dead_code)] // the standard's prototypes
                pub(crate) fn $name(&self, handle: DAT_HANDLE $(, $arg: $type)*) -> DAT_RETURN {
                    let Some(function) = self.$name else { return NOT_AVAILABLE };
                    // SAFETY: the case guarantees valid arguments: see the module's comment.
                    (self.record)(stringify!($name), unsafe { function(handle $(, $arg)*) })
                }
            )*
        }
    };
}

/// The status that a method returns if the binding lacks the function.
const NOT_AVAILABLE: DAT_RETURN = DAT_ERROR(DAT_NOT_IMPLEMENTED, DAT_NO_SUBTYPE);

functions!(declare);

impl Api {
    /// Calls `dat_extension_op`. `words` are its variable arguments. The function `word` in
    /// cases/extension.rs converts a pointer to one of these words.
    pub(crate) fn dat_extension_op(&self, handle: DAT_HANDLE, op: u32, words: Words) -> DAT_RETURN {
        let Some(function) = self.dat_extension_op else { return NOT_AVAILABLE };
        // SAFETY: the case guarantees valid arguments: see the module's comment.
        let status = unsafe { function.call(handle, op as DAT_EXTENDED_OP, words) };
        (self.record)(extension::function(op), status)
    }
}
