//! The declarations of this crate as data, for the test that compares them with the C headers.
//!
//! Every file declares its constants, records and functions through the macros below. The macros
//! build the tables from the declarations, so no declaration can be missing.

/// A constant: its name in C and its value.
pub struct Constant {
    /// The constant's name in C.
    pub name: &'static str,
    /// The value.
    pub value: i64,
}

/// A structure or union.
pub struct Record {
    /// The record's name in C, without `struct` or `union`.
    pub name: &'static str,
    /// The text `struct` or `union`.
    pub kind: &'static str,
    /// The size in bytes.
    pub size: usize,
    /// The alignment in bytes.
    pub align: usize,
    /// The members, in the order of their declaration.
    pub fields: &'static [Field],
}

/// A member of a [`Record`].
pub struct Field {
    /// The member's name in C.
    pub name: &'static str,
    /// The offset in bytes from the start of the record.
    pub offset: usize,
    /// The size in bytes.
    pub size: usize,
    /// Returns the Rust type of the member as [`std::any::type_name`] writes it, with aliases
    /// resolved.
    pub type_name: fn() -> &'static str,
}

/// A function of a library.
pub struct Function {
    /// The function's name in C.
    pub name: &'static str,
    /// Returns the type of a pointer to the function.
    pub type_name: fn() -> &'static str,
}

/// All constants, grouped by file.
pub const CONSTANTS: &[&[Constant]] = &[
    crate::device::CONSTANTS,
    crate::memory::CONSTANTS,
    crate::completion::CONSTANTS,
    crate::queue::CONSTANTS,
    crate::receive::CONSTANTS,
    crate::work::CONSTANTS,
    crate::cm::CONSTANTS,
];

/// All structures and unions, grouped by file.
pub const RECORDS: &[&[Record]] = &[
    crate::device::RECORDS,
    crate::memory::RECORDS,
    crate::completion::RECORDS,
    crate::queue::RECORDS,
    crate::receive::RECORDS,
    crate::work::RECORDS,
    crate::cm::RECORDS,
];

/// The functions of libibverbs and of librdmacm.
pub const FUNCTIONS: &[&[Function]] = &[crate::verbs::FUNCTIONS, crate::rdmacm::FUNCTIONS];

/// Members of `struct verbs_context`, each with its distance in bytes from the last member,
/// `context`. The distance is measured from the end because new releases add members at the start.
pub const OFFSETS_BEFORE_CONTEXT: &[(&str, usize)] = crate::inline::OFFSETS_BEFORE_CONTEXT;

/// Declares C enumerations (and groups of `#define`s): an integer type and its constants.
macro_rules! constants {
    ($($(#[$doc:meta])* pub type $group:ident = $repr:ty {
        $($(#[$constant_doc:meta])* $name:ident = $value:expr,)*
    })*) => {
        $(
            $(#[$doc])*
            pub type $group = $repr;
            $(
                #[doc = concat!("A [`", stringify!($group), "`].")]
                $(#[doc = ""] #[$constant_doc])*
                pub const $name: $group = $value;
            )*
        )*
        pub(crate) const CONSTANTS: &[crate::describe::Constant] = &[$($(
            crate::describe::Constant { name: stringify!($name), value: $name as i64 },
        )*)*];
    };
}

/// Declares C structures and unions of integers, raw pointers, optional functions, arrays and other
/// records. All-zero bytes are a valid value of all these types.
macro_rules! records {
    ($($(#[$attr:meta])* pub $kind:ident $name:ident {
        $($(#[$field_doc:meta])* pub $field:ident: $type:ty,)*
    })*) => {
        $(
            $(#[$attr])*
            #[repr(C)]
            #[derive(Clone, Copy)]
            pub $kind $name {
                $($(#[$field_doc])* pub $field: $type,)*
            }

            impl $name {
                /// Returns the record with all bytes zero: numbers are 0, pointers are null and
                /// functions are absent.
                pub const fn zeroed() -> Self {
                    // SAFETY: all-zero bytes are valid for every member, because the members are
                    // integers, raw pointers, `Option`s of functions, and records of such members.
                    unsafe { std::mem::zeroed() }
                }
            }
        )*
        pub(crate) const RECORDS: &[crate::describe::Record] = &[$(
            crate::describe::Record {
                name: stringify!($name),
                kind: stringify!($kind),
                size: size_of::<$name>(),
                align: align_of::<$name>(),
                fields: &[$(
                    crate::describe::Field {
                        name: stringify!($field),
                        offset: std::mem::offset_of!($name, $field),
                        size: size_of::<$type>(),
                        type_name: std::any::type_name::<$type>,
                    },
                )*],
            },
        )*];
    };
}

/// Declares the functions of a library. The macro makes a structure with a pointer to each
/// function, and a function that looks all of them up.
macro_rules! functions {
    ($(#[$doc:meta])* pub struct $table:ident {
        $($(#[$fn_doc:meta])* pub fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $result:ty)?;)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub struct $table {
            $($(#[$fn_doc])* pub $name: unsafe extern "C" fn($($arg: $type),*) $(-> $result)?,)*
        }

        impl $table {
            /// # Safety
            /// `library` must be the library whose headers declare the functions with these types,
            /// and must stay loaded.
            pub(crate) unsafe fn find(library: &libloading::Library) -> Result<Self, libloading::Error> {
                Ok($table {
                    // SAFETY: the caller guarantees that the library's headers declare the
                    // functions with these types.
                    $($name: *unsafe { library.get(concat!(stringify!($name), "\0").as_bytes()) }?,)*
                })
            }
        }

        pub(crate) const FUNCTIONS: &[crate::describe::Function] = &[$(
            crate::describe::Function {
                name: stringify!($name),
                type_name: std::any::type_name::<unsafe extern "C" fn($($arg: $type),*) $(-> $result)?>,
            },
        )*];
    };
}

pub(crate) use {constants, functions, records};
