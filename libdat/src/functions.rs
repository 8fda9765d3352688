//! The functions that the registry implements, with the same arguments in uDAPL 1.2 and 2.0. The
//! structures behind pointers may differ.

/// Defines and exports the functions that the registry implements, with the types that are in scope
/// where the macro is called.
#[macro_export]
macro_rules! functions {
    ($version:literal) => {
        $crate::export! {
            $version;

            /// dat_ia_openv: opens an IA for the version and the thread safety that the consumer
            /// was compiled for.
            ///
            /// # Safety
            ///
            /// The requirements are those of [`Library::open`]($crate::Library::open).
            #[allow(clippy::too_many_arguments)] // The prototype is the standard's.
            fn dat_ia_openv(
                name: DAT_NAME_PTR,
                async_evd_qlen: DAT_COUNT,
                async_evd: *mut DAT_EVD_HANDLE,
                ia: *mut DAT_IA_HANDLE,
                major: u32,
                minor: u32,
                threadsafe: DAT_BOOLEAN,
            ) -> DAT_RETURN {
                // SAFETY: the caller fulfils the contract of this function.
                unsafe { crate::LIBRARY.open(name, async_evd_qlen, async_evd, ia, major, minor, threadsafe) }
            }

            /// dat_ia_close.
            ///
            /// # Safety
            ///
            /// No requirements: every handle is checked.
            fn dat_ia_close(ia: DAT_IA_HANDLE, flags: DAT_CLOSE_FLAGS) -> DAT_RETURN {
                crate::LIBRARY.close(ia, flags)
            }

            /// dat_registry_list_providers.
            ///
            /// # Safety
            ///
            /// The requirements are those of
            /// [`Library::list_providers`]($crate::Library::list_providers).
            fn dat_registry_list_providers(
                max: DAT_COUNT,
                count: *mut DAT_COUNT,
                infos: *mut *mut DAT_PROVIDER_INFO,
            ) -> DAT_RETURN {
                // SAFETY: the caller fulfils the contract of this function.
                unsafe { crate::LIBRARY.list_providers(max, count, infos) }
            }

            /// dat_registry_add_provider: registers a provider.
            ///
            /// # Safety
            ///
            /// The requirements are those of
            /// [`Library::add_provider`]($crate::Library::add_provider).
            fn dat_registry_add_provider(
                table: *const DAT_PROVIDER,
                info: *const DAT_PROVIDER_INFO,
            ) -> DAT_RETURN {
                // SAFETY: the caller fulfils the contract of this function.
                unsafe { crate::LIBRARY.add_provider(table.cast(), info) }
            }

            /// dat_registry_remove_provider: unregisters a provider.
            ///
            /// # Safety
            ///
            /// The requirements are those of
            /// [`Library::remove_provider`]($crate::Library::remove_provider).
            fn dat_registry_remove_provider(
                table: *const DAT_PROVIDER,
                info: *const DAT_PROVIDER_INFO,
            ) -> DAT_RETURN {
                // SAFETY: the caller fulfils the contract of this function.
                unsafe { crate::LIBRARY.remove_provider(table.cast(), info) }
            }

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

            /// dat_strerror.
            ///
            /// # Safety
            ///
            /// The requirements are those of [`Library::strerror`]($crate::Library::strerror).
            fn dat_strerror(
                status: DAT_RETURN,
                type_name: *mut *const std::ffi::c_char,
                subtype_name: *mut *const std::ffi::c_char,
            ) -> DAT_RETURN {
                // SAFETY: the caller fulfils the contract of this function.
                unsafe { crate::LIBRARY.strerror(status, type_name, subtype_name) }
            }
        }
    };
}
