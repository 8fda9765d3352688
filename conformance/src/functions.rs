//! The list of the functions of uDAPL 2.0: their names, arguments and entries in the function table
//! of a provider. Other modules generate code from the list.

/// Invokes a macro with all functions. `registry` lists the functions that the registry implements.
/// `forwarded` lists those that it forwards to the provider of their first argument, from
/// [`dat_sys::provider_functions!`], which explains the word in front of the arguments.
macro_rules! functions {
    ($then:ident) => {
        dat_sys::provider_functions! {
            2.0 => $crate::functions::with_registry,
            $then {
                dat_ia_openv(name: DAT_NAME_PTR, async_qlen: DAT_COUNT,
                    async_evd: *mut DAT_EVD_HANDLE, ia: *mut DAT_IA_HANDLE, major: u32, minor: u32,
                    threadsafe: DAT_BOOLEAN);
                dat_ia_close(ia: DAT_IA_HANDLE, flags: DAT_CLOSE_FLAGS);
                dat_registry_list_providers(max: DAT_COUNT, count: *mut DAT_COUNT,
                    infos: *mut *mut DAT_PROVIDER_INFO);
                dat_registry_add_provider(table: *const DAT_PROVIDER, info: *const DAT_PROVIDER_INFO);
                dat_registry_remove_provider(table: *const DAT_PROVIDER,
                    info: *const DAT_PROVIDER_INFO);
                dat_registry_providers_related(first: *const c_char, second: *const c_char,
                    related: *mut DAT_HA_RELATIONSHIP);
                dat_strerror(status: DAT_RETURN, major: *mut *const c_char, minor: *mut *const c_char);
            }
        }
    };
}
pub(crate) use functions;

/// Invokes a macro with the functions that the registry implements and those that it forwards.
macro_rules! with_registry {
    (
        $then:ident { $($own:ident($($own_arg:ident: $own_type:ty),*);)* }
        $(
            registry { $($ignored:tt)* }
            forwarded { $(
                $(#[$remark:meta])*
                $abi:literal $name:ident($kind:ident $object:ident: $object_type:ty
                    $(, $arg:ident: $type:ty)*) => $member:ident: $signature:ident
                    $(, $changed:ident)?;
            )* }
        )*
    ) => {
        $then! {
            registry { $($own($($own_arg: $own_type),*);)* }
            forwarded { $($($name($kind $(, $arg: $type)*) => $member;)*)* }
        }
    };
}
pub(crate) use with_registry;
