//! Scalars, handles, cookies and addresses, which all other files use.

use core::ffi::{c_char, c_int, c_uint, c_void};
use core::fmt;

use crate::describe::{constants, records};

/// An untyped pointer.
pub type DAT_PVOID = *mut c_void;
/// A count. The type is signed, so that an invalid value is recognisable.
pub type DAT_COUNT = c_int;
/// The name of an IA, or the text of an attribute. The text is NUL-terminated and has at most
/// [`DAT_NAME_MAX_LENGTH`] bytes with the NUL.
pub type DAT_NAME_PTR = *mut c_char;
/// A time limit in microseconds. [`DAT_TIMEOUT_INFINITE`] stands for no limit.
pub type DAT_TIMEOUT = u32;
/// A connection qualifier: the number on which a service point listens (a TCP port for IP
/// transports).
pub type DAT_CONN_QUAL = u64;
/// The port qualifier of one end of a connection.
pub type DAT_PORT_QUAL = u64;
/// The length of a memory region in bytes.
pub type DAT_VLEN = u64;
/// An address in a memory region, in host byte order. The width does not depend on the width of a
/// pointer.
pub type DAT_VADDR = u64;
/// A physical address, which only kDAPL uses.
pub type DAT_PADDR = u64;
/// The length of one segment in bytes.
pub type DAT_SEG_LENGTH = u32;
/// The key that gives local access to an LMR.
pub type DAT_LMR_CONTEXT = u32;
/// The key that gives remote access to an LMR or RMR.
pub type DAT_RMR_CONTEXT = u32;
/// The file descriptor of a CNO.
pub type DAT_FD = c_int;
/// The number of an operation of dat_extension_op.
pub type DAT_EXTENDED_OP = c_int;
/// C's `va_list` as a function parameter.
///
/// On x86_64 (System V) a `va_list` is an array of one structure and decays to a pointer. On
/// AArch64 (AAPCS64) a `va_list` is a 32-byte structure and is passed by reference. On both, the
/// callee receives a pointer of this type.
pub type DAT_VA_LIST = *mut c_void;

/// The handle of any DAT object. The IA handle of a consumer is a small integer. Every other handle
/// points to an object whose first word is a [`DAT_PROVIDER`](crate::DAT_PROVIDER) pointer.
pub type DAT_HANDLE = *mut c_void;
/// The handle of an interface adapter.
pub type DAT_IA_HANDLE = DAT_HANDLE;
/// The handle of an endpoint.
pub type DAT_EP_HANDLE = DAT_HANDLE;
/// The handle of an event dispatcher.
pub type DAT_EVD_HANDLE = DAT_HANDLE;
/// The handle of a consumer notification object.
pub type DAT_CNO_HANDLE = DAT_HANDLE;
/// The handle of a connection request.
pub type DAT_CR_HANDLE = DAT_HANDLE;
/// The handle of a local memory region.
pub type DAT_LMR_HANDLE = DAT_HANDLE;
/// The handle of a remote memory region.
pub type DAT_RMR_HANDLE = DAT_HANDLE;
/// The handle of a public service point.
pub type DAT_PSP_HANDLE = DAT_HANDLE;
/// The handle of a reserved service point.
pub type DAT_RSP_HANDLE = DAT_HANDLE;
/// The handle of a common service point.
pub type DAT_CSP_HANDLE = DAT_HANDLE;
/// The handle of a protection zone.
pub type DAT_PZ_HANDLE = DAT_HANDLE;
/// The handle of a shared receive queue.
pub type DAT_SRQ_HANDLE = DAT_HANDLE;

/// The handle that stands for no object.
pub const DAT_HANDLE_NULL: DAT_HANDLE = core::ptr::null_mut();
/// The value that a consumer passes to dat_ia_open instead of an asynchronous EVD, if the IA is
/// already open and has an asynchronous EVD.
pub const DAT_EVD_ASYNC_EXISTS: DAT_EVD_HANDLE = core::ptr::without_provenance_mut(1);
/// The value that dat_ia_query returns in place of the asynchronous EVD if the IA has none: after
/// an open with [`DAT_EVD_ASYNC_EXISTS`], or when the EVD that it shared is gone.
pub const DAT_EVD_OUT_OF_SCOPE: DAT_EVD_HANDLE = core::ptr::without_provenance_mut(2);

/// The address of an interface adapter: a socket address of the family `sa_family`.
pub type DAT_IA_ADDRESS_PTR = *mut DAT_SOCK_ADDR;
/// The cookie that a consumer gives to a DTO. The completion returns the cookie.
pub type DAT_DTO_COOKIE = DAT_CONTEXT;
/// The cookie that a consumer gives to an RMR bind. The completion returns the cookie.
pub type DAT_RMR_COOKIE = DAT_CONTEXT;

constants! {
    /// A truth value. Any value from a foreign program other than `DAT_FALSE` is true.
    pub type DAT_BOOLEAN = c_uint {
        DAT_FALSE = 0,
        DAT_TRUE = 1,
    }

    /// The kind of object behind a handle, which dat_get_handle_type returns.
    pub type DAT_HANDLE_TYPE = c_uint {
        DAT_HANDLE_TYPE_CR = 0,
        DAT_HANDLE_TYPE_EP = 1,
        DAT_HANDLE_TYPE_EVD = 2,
        DAT_HANDLE_TYPE_IA = 3,
        DAT_HANDLE_TYPE_LMR = 4,
        DAT_HANDLE_TYPE_PSP = 5,
        DAT_HANDLE_TYPE_PZ = 6,
        DAT_HANDLE_TYPE_RMR = 7,
        DAT_HANDLE_TYPE_RSP = 8,
        DAT_HANDLE_TYPE_CNO = 9,
        DAT_HANDLE_TYPE_SRQ = 10,
        DAT_HANDLE_TYPE_CSP = 11,
        DAT_HANDLE_TYPE_EXTENSION_BASE = 12,
    }

    /// Sizes and alignments, in bytes. In C, the constants of this group and of the groups below
    /// are `#define`s.
    pub type DAT_SIZE = usize {
        /// The maximum size of the name of an IA, an attribute or a vendor, with its NUL.
        DAT_NAME_MAX_LENGTH = 256,
        /// An alignment of buffers that suits every adapter.
        DAT_OPTIMAL_ALIGNMENT = 256,
        /// The size of the cookie that names shared memory.
        DAT_LMR_COOKIE_SIZE = 40,
    }

    /// Counts with a special meaning.
    pub type DAT_SPECIAL_COUNT = DAT_COUNT {
        DAT_WATERMARK_INFINITE = -1,
        DAT_HW_DEFAULT = DAT_WATERMARK_INFINITE,
        DAT_SRQ_LW_DEFAULT = 0,
        DAT_VALUE_UNKNOWN = -2,
    }

    /// Time limits with a special meaning.
    pub type DAT_SPECIAL_TIMEOUT = DAT_TIMEOUT {
        DAT_TIMEOUT_INFINITE = u32::MAX,
    }

    /// The version of the API, and the bases of the two kinds of operations that dat_extension_op
    /// itself handles.
    pub type DAT_API_NUMBER = c_int {
        DAT_VERSION_MAJOR = 2,
        DAT_VERSION_MINOR = 0,
        /// The base of the operations that open an IA by name.
        DAT_OPEN_EXTENSION_BASE = 0x1000,
        /// The base of the operations that close an IA that was opened by name.
        DAT_CLOSE_EXTENSION_BASE = 0x2000,
    }
}

records! {
    /// A context or cookie of the consumer, which is passed by value and returned unchanged.
    pub union DAT_CONTEXT {
        /// The value as a pointer.
        pub as_ptr: DAT_PVOID,
        /// The value as a number.
        pub as_64: u64,
        /// The value as an index.
        pub as_index: u64,
    }

    /// An attribute: a name and a value, both of which are NUL-terminated texts.
    #[derive(Debug)]
    pub struct DAT_NAMED_ATTR {
        /// The name of the attribute.
        pub name: *const c_char,
        /// The value of the attribute.
        pub value: *const c_char,
    }

    /// The three arguments of socket(2), for a common service point.
    #[derive(Debug, PartialEq, Eq)]
    pub struct DAT_COMM {
        /// The address family.
        pub domain: c_int,
        /// The socket type.
        pub r#type: c_int,
        /// The protocol.
        pub protocol: c_int,
    }

    /// `struct sockaddr`: the start of a socket address.
    #[derive(Debug)]
    pub struct DAT_SOCK_ADDR {
        /// The address family: AF_INET, AF_INET6, ...
        pub sa_family: u16,
        /// The rest of the address, which depends on the family and may be longer.
        pub sa_data: [c_char; 14],
    }

    /// `struct sockaddr_in6`.
    #[derive(Debug)]
    pub struct DAT_SOCK_ADDR6 {
        /// The address family, AF_INET6.
        pub sin6_family: u16,
        /// The port in network byte order.
        pub sin6_port: u16,
        /// The flow information in network byte order.
        pub sin6_flowinfo: u32,
        /// The IPv6 address.
        pub sin6_addr: [u8; 16],
        /// The scope in host byte order.
        pub sin6_scope_id: u32,
    }
}

impl fmt::Debug for DAT_CONTEXT {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: all members have the same size, and any bits are a valid integer.
        write!(f, "DAT_CONTEXT({:#x})", unsafe { self.as_64 })
    }
}
