//! The list of the functions of uDAPL 2.0: their names, arguments and entries in the function table
//! of a provider. Other modules generate code from the list.

/// Invokes a macro with all functions. `registry` lists the functions that the registry implements:
/// one that only 2.0 has, and those that both versions have. `forwarded` lists the functions that
/// it forwards to the provider of their first argument. Both lists come from
/// [`dat_sys::provider_functions!`], which explains the word in front of the arguments.
macro_rules! functions {
    ($then:ident) => {
        dat_sys::provider_functions! {
            2.0 => $crate::functions::with_registry,
            $then {
                dat_registry_providers_related(first: *const c_char, second: *const c_char,
                    related: *mut DAT_HA_RELATIONSHIP);
            }
        }
    };
}
pub(crate) use functions;

/// Invokes a macro with the functions that the registry implements and those that it forwards.
macro_rules! with_registry {
    (
        $then:ident { $($own:tt)* }
        library { $($name_of_both:ident($($arg_of_both:ident: $type_of_both:ty),*)
            => $method:ident;)* }
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
            registry { $($own)* $($name_of_both($($arg_of_both: $type_of_both),*);)* }
            forwarded { $($($name($kind $(, $arg: $type)*) => $member;)*)* }
        }
    };
}
pub(crate) use with_registry;
