//! The functions of the 1.2 table that have the same arguments in 2.0. Only the status is
//! converted.

use std::ffi::c_char;
use std::ptr::null;

use dat_sys::*;

use super::TableV1;
use super::convert::status;
use crate::export::function_table::table as table_2_0;
use crate::provider::Transport;

/// Defines the functions, and a table of them.
macro_rules! same {
    (library { $($of_library:tt)* } $(
        registry { $($own:tt)* }
        forwarded { $(
            $(#[$remark:meta])*
            $abi:literal $name:ident($kind:ident $($arg:ident: $type:ty),*)
                => $member:ident: $signature:ident $(, $changed:ident)?;
        )* }
    )*) => {
        $($(same_function! { $($changed)? $abi $name($($arg: $type),*) => $member })*)*

        /// Creates a table with the functions that have the same arguments in 2.0.
        pub(super) fn table<T: Transport, const THREAD_SAFE: bool>(
            device_name: *const c_char,
        ) -> TableV1 {
            let mut table = TableV1 { device_name, ..TableV1::zeroed() };
            $($(same_member! { $($changed)? table.$member = $name::<T, THREAD_SAFE> })*)*
            table
        }
    };
}

macro_rules! same_function {
    (changed $($rest:tt)*) => {};
    ($abi:literal $name:ident($($arg:ident: $type:ty),*) => $member:ident) => {
        // dat_cno_wait is among these functions. The stack may be unwound through it (see
        // [`cancel`](waiting::cancel)).
        #[doc = concat!(stringify!($name), ".")]
        #[allow(clippy::too_many_arguments)] // the standard's prototypes
        unsafe extern $abi fn $name<T: Transport, const THREAD_SAFE: bool>(
            $($arg: $type),*
        ) -> DAT_RETURN {
            let function = const { table_2_0::<T, THREAD_SAFE>(null()).$member.unwrap() };
            // SAFETY: the contract of this function includes that of the 2.0 function.
            status(unsafe { function($($arg),*) })
        }
    };
}

macro_rules! same_member {
    (changed $($rest:tt)*) => {};
    ($table:ident.$member:ident = $function:expr) => {
        $table.$member = Some($function);
    };
}

provider_functions!(1.2 => same,);
