//! The functions that a [`Library`](crate::Library) implements, with the same arguments in uDAPL
//! 1.2 and 2.0. The structures behind pointers may differ.

/// Defines and exports the functions that [`dat_sys::provider_functions!`] lists behind `library`,
/// and the one that providers call, with the types that are in scope where the macro is called.
#[macro_export]
macro_rules! functions {
    ($version:literal; $($name:ident($($arg:ident: $type:ty),*) => $method:ident;)*) => {
        $crate::export! {
            $version;

            $(
                #[doc = concat!("`", stringify!($name), "`.")]
                ///
                /// # Safety
                ///
                /// The requirements are those of the method of [`Library`]($crate::Library).
                #[allow(clippy::too_many_arguments)] // The prototypes are the standard's.
                #[allow(unused_unsafe)] // `Library::close` has no requirements.
                fn $name($($arg: $type),*) -> DAT_RETURN {
                    // SAFETY: the caller fulfils the contract of this function.
                    unsafe { crate::LIBRARY.$method($($arg),*) }
                }
            )*

            /// dats_get_ia_handle: converts between the consumer's IA handle and the provider's.
            ///
            /// # Safety
            ///
            /// The requirements are those of
            /// [`Library::get_ia_handle`]($crate::Library::get_ia_handle).
            fn dats_get_ia_handle(handle: DAT_IA_HANDLE, out: *mut DAT_IA_HANDLE) -> DAT_RETURN {
                // SAFETY: the caller fulfils the contract of this function.
                unsafe { crate::LIBRARY.get_ia_handle(handle, out) }
            }
        }
    };
}
