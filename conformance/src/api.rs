//! The functions under test, as pointers with the signatures of uDAPL 2.0, and calling them.
//!
//! The methods are safe to write a case with and no safer than C: what a pointer that is not null leads to is the
//! case's word, and cases are only those of this crate. They pass references, or null, or handles that were valid once.

use std::ffi::c_char;

use dat_sys::*;
use libloading::os::unix::Library;

use crate::door::extension::{ExtensionOp, Words};
use crate::functions::functions;

macro_rules! declare {
    (
        registry { $($own:ident($($own_arg:ident: $own_type:ty),* $(,)?);)* }
        forwarded { $($name:ident($kind:ident $(, $arg:ident: $type:ty)*) => $slot:ident;)* }
    ) => {
        /// The functions behind a door; `None` for one that it does not have.
        #[derive(Debug)]
        pub(crate) struct Api {
            $(pub(crate) $own: Option<unsafe extern "C" fn($($own_type),*) -> DAT_RETURN>,)*
            $(pub(crate) $name: Option<unsafe extern "C" fn(DAT_HANDLE $(, $type)*) -> DAT_RETURN>,)*
            pub(crate) dat_extension_op: Option<ExtensionOp>,
        }

        impl Api {
            /// The functions that a library exports, by their names.
            ///
            /// # Safety
            ///
            /// What it exports under these names has the signatures of uDAPL 2.0.
            pub(crate) unsafe fn of(library: &Library) -> Api {
                // SAFETY: as the caller promised; the library stays loaded (`door::library::stays`).
                unsafe {
                    Api {
                        $($own: library.get(stringify!($own)).ok().map(|symbol| *symbol),)*
                        $($name: library.get(stringify!($name)).ok().map(|symbol| *symbol),)*
                        dat_extension_op: ExtensionOp::of(library),
                    }
                }
            }

            /// Whether the door has this function; true for a name that is not one of the list.
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
                    // SAFETY: the case's word, see above.
                    self.$own.map_or(ABSENT, |function| unsafe { function($($own_arg),*) })
                }
            )*
            $(
                #[doc = concat!("`", stringify!($name), "`.")]
                #[allow(clippy::too_many_arguments, dead_code)] // the standard's prototypes
                pub(crate) fn $name(&self, handle: DAT_HANDLE $(, $arg: $type)*) -> DAT_RETURN {
                    // SAFETY: the case's word, see above.
                    self.$name.map_or(ABSENT, |function| unsafe { function(handle $(, $arg)*) })
                }
            )*
        }
    };
}

/// The answer in place of a function that the door does not have.
const ABSENT: DAT_RETURN = DAT_ERROR(DAT_NOT_IMPLEMENTED, DAT_NO_SUBTYPE);

functions!(declare);

impl Api {
    /// `dat_extension_op`. A pointer is a word too, as `word` makes it.
    pub(crate) fn dat_extension_op(&self, handle: DAT_HANDLE, op: u32, words: Words) -> DAT_RETURN {
        let op = op as DAT_EXTENDED_OP;
        // SAFETY: the case's word, see above.
        self.dat_extension_op.map_or(ABSENT, |function| unsafe { function.call(handle, op, words) })
    }
}
