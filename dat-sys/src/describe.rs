//! The declarations of this crate as data, for tests that compare them with C headers.
//!
//! Every file declares its constants and records through the macros below. The macros build the
//! tables from the declarations, so no declaration can be missing.

/// A constant: its name in C and its value.
pub struct Constant {
    /// The constant's name in C.
    pub name: &'static str,
    /// The value.
    pub value: i64,
}

/// A constant text: its name in C and its value.
pub struct Text {
    /// The constant's name in C.
    pub name: &'static str,
    /// The value.
    pub value: &'static core::ffi::CStr,
}

/// A structure or union.
pub struct Record {
    /// The record's name in C, or a name of our own if the type has no name in C.
    pub name: &'static str,
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
    /// Returns the Rust type of the member as [`core::any::type_name`] writes it, with aliases
    /// resolved.
    pub type_name: fn() -> &'static str,
}

/// All constants, grouped by file.
pub const CONSTANTS: &[&[Constant]] = &[
    crate::types::CONSTANTS,
    crate::error::CONSTANTS,
    crate::ia::CONSTANTS,
    crate::memory::CONSTANTS,
    crate::ep::CONSTANTS,
    crate::connection::CONSTANTS,
    crate::evd::CONSTANTS,
    crate::event::CONSTANTS,
    crate::ib::CONSTANTS,
];

/// All constant texts.
pub const TEXTS: &[&[Text]] = &[crate::provider::TEXTS, crate::ib::TEXTS];

/// All structures and unions, grouped by file.
pub const RECORDS: &[&[Record]] = &[
    crate::types::RECORDS,
    crate::ia::RECORDS,
    crate::memory::RECORDS,
    crate::ep::RECORDS,
    crate::connection::RECORDS,
    crate::evd::RECORDS,
    crate::event::RECORDS,
    crate::functions::RECORDS,
    crate::ib::RECORDS,
];

/// Declares C enumerations (and groups of `#define`s): an integer type and its constants.
///
/// The enumerations are not Rust enums, because a foreign program may pass any number, which must
/// not be undefined behaviour.
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

/// Declares constant texts.
macro_rules! texts {
    ($($(#[$doc:meta])* pub const $name:ident = $value:literal;)*) => {
        $(
            $(#[$doc])*
            pub const $name: &core::ffi::CStr = $value;
        )*
        pub(crate) const TEXTS: &[crate::describe::Text] =
            &[$(crate::describe::Text { name: stringify!($name), value: $name },)*];
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
                    unsafe { core::mem::zeroed() }
                }
            }
        )*
        pub(crate) const RECORDS: &[crate::describe::Record] = &[$(
            crate::describe::Record {
                name: stringify!($name),
                size: size_of::<$name>(),
                align: align_of::<$name>(),
                fields: &[$(
                    crate::describe::Field {
                        name: stringify!($field),
                        offset: core::mem::offset_of!($name, $field),
                        size: size_of::<$type>(),
                        type_name: core::any::type_name::<$type>,
                    },
                )*],
            },
        )*];
    };
}

pub(crate) use {constants, records, texts};

/// Returns the names of a status word's type and subtype, regardless of its class. The name of the
/// subtype is empty for `DAT_NO_SUBTYPE`. Returns `None` for a status that the standard does not
/// define.
pub fn status_names(status: crate::DAT_RETURN) -> Option<(&'static str, &'static str)> {
    let name = |first, last, value| name(crate::error::CONSTANTS, first, last, value);
    let kind = name("DAT_SUCCESS", "DAT_NOT_IMPLEMENTED", status & crate::DAT_TYPE_MASK)?;
    let subtype = match status & crate::DAT_SUBTYPE_MASK {
        crate::DAT_NO_SUBTYPE => "",
        value => name("DAT_NO_SUBTYPE", "DAT_THREAD_SAFETY_NOT_FOUND", value)?,
    };
    Some((kind, subtype))
}

/// Returns the name of an event, or `None` for a number that the standard does not define.
pub fn event_name(number: crate::DAT_EVENT_NUMBER) -> Option<&'static str> {
    name(crate::event::CONSTANTS, "DAT_DTO_COMPLETION_EVENT", "DAT_IW_EXTENSION_RANGE_BASE", number)
}

/// Returns the name of a completed operation, including those of the IB extension, or `None` for an
/// undefined number.
pub fn operation_name(operation: crate::DAT_DTOS) -> Option<&'static str> {
    name(crate::event::CONSTANTS, "DAT_DTO_SEND", "DAT_DTO_LMR_INVALIDATE", operation).or_else(
        || {
            name(
                crate::ib::CONSTANTS,
                "DAT_IB_DTO_RDMA_WRITE_IMMED",
                "DAT_IB_DTO_CMP_SWAP",
                operation,
            )
        },
    )
}

/// Returns the name of a completion status, or `None` for a number that the standard does not
/// define.
pub fn completion_name(status: crate::DAT_DTO_COMPLETION_STATUS) -> Option<&'static str> {
    name(crate::event::CONSTANTS, "DAT_DTO_SUCCESS", "DAT_RMR_OPERATION_FAILED", status)
}

/// Returns the name of the first constant with this value among the constants from `first` to
/// `last`.
fn name(constants: &[Constant], first: &str, last: &str, value: u32) -> Option<&'static str> {
    let from_first = constants.iter().skip_while(|constant| constant.name != first);
    let mut past_last = false;
    let mut range = from_first.take_while(|c| !core::mem::replace(&mut past_last, c.name == last));
    range.find(|constant| constant.value == i64::from(value)).map(|constant| constant.name)
}
