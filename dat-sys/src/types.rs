//! Scalars, handles, cookies and addresses, which all other files use.

use core::ffi::{c_char, c_int, c_uint, c_void};
use core::fmt;

use crate::describe::{constants, records};

/// Untyped pointer.
pub type DAT_PVOID = *mut c_void;
/// A count. Signed, so that an invalid value is recognisable.
pub type DAT_COUNT = c_int;
/// IA name or attribute text: NUL-terminated, at most [`DAT_NAME_MAX_LENGTH`] bytes with the NUL.
pub type DAT_NAME_PTR = *mut c_char;
/// Time-out in microseconds; [`DAT_TIMEOUT_INFINITE`] waits for ever.
pub type DAT_TIMEOUT = u32;
/// Connection qualifier: what a service point listens on (a TCP port for IP transports).
pub type DAT_CONN_QUAL = u64;
/// Port qualifier of one end of a connection.
pub type DAT_PORT_QUAL = u64;
/// Length of a memory region in bytes.
pub type DAT_VLEN = u64;
/// Address in a memory region, in host byte order, independent of the width of a pointer.
pub type DAT_VADDR = u64;
/// Physical address (kDAPL).
pub type DAT_PADDR = u64;
/// Length of one segment in bytes.
pub type DAT_SEG_LENGTH = u32;
/// Key that gives local access to an LMR.
pub type DAT_LMR_CONTEXT = u32;
/// Key that gives remote access to an LMR or RMR.
pub type DAT_RMR_CONTEXT = u32;
/// File descriptor of a CNO.
pub type DAT_FD = c_int;
/// Operation number of dat_extension_op.
pub type DAT_EXTENDED_OP = c_int;
/// C `va_list` as a function parameter.
///
/// On x86_64 System V it is an array of one structure and decays to a pointer; on AArch64 (AAPCS64)
/// it is a 32-byte structure and is passed by reference. Either way the callee receives this
/// pointer.
pub type DAT_VA_LIST = *mut c_void;

/// Any DAT object. Except for IA handles, it points to an object whose first word is a
/// [`DAT_PROVIDER`](crate::DAT_PROVIDER) pointer; the IA handle of a consumer is a small integer.
pub type DAT_HANDLE = *mut c_void;
/// Interface adapter.
pub type DAT_IA_HANDLE = DAT_HANDLE;
/// Endpoint.
pub type DAT_EP_HANDLE = DAT_HANDLE;
/// Event dispatcher.
pub type DAT_EVD_HANDLE = DAT_HANDLE;
/// Consumer notification object.
pub type DAT_CNO_HANDLE = DAT_HANDLE;
/// Connection request.
pub type DAT_CR_HANDLE = DAT_HANDLE;
/// Local memory region.
pub type DAT_LMR_HANDLE = DAT_HANDLE;
/// Remote memory region.
pub type DAT_RMR_HANDLE = DAT_HANDLE;
/// Public service point.
pub type DAT_PSP_HANDLE = DAT_HANDLE;
/// Reserved service point.
pub type DAT_RSP_HANDLE = DAT_HANDLE;
/// Common service point.
pub type DAT_CSP_HANDLE = DAT_HANDLE;
/// Protection zone.
pub type DAT_PZ_HANDLE = DAT_HANDLE;
/// Shared receive queue.
pub type DAT_SRQ_HANDLE = DAT_HANDLE;

/// No object.
pub const DAT_HANDLE_NULL: DAT_HANDLE = core::ptr::null_mut();
/// Passed to dat_ia_open in place of an asynchronous EVD: another open of the same IA has the EVD.
pub const DAT_EVD_ASYNC_EXISTS: DAT_EVD_HANDLE = core::ptr::without_provenance_mut(1);
/// Returned by dat_ia_query in place of the asynchronous EVD after an open with
/// [`DAT_EVD_ASYNC_EXISTS`].
pub const DAT_EVD_OUT_OF_SCOPE: DAT_EVD_HANDLE = core::ptr::without_provenance_mut(2);

/// Address of an interface adapter: a socket address of the family `sa_family`.
pub type DAT_IA_ADDRESS_PTR = *mut DAT_SOCK_ADDR;
/// User cookie of a DTO, returned in its completion.
pub type DAT_DTO_COOKIE = DAT_CONTEXT;
/// User cookie of an RMR bind, returned in its completion.
pub type DAT_RMR_COOKIE = DAT_CONTEXT;

constants! {
    /// Truth value; any foreign value other than `DAT_FALSE` is true.
    pub type DAT_BOOLEAN = c_uint {
        DAT_FALSE = 0,
        DAT_TRUE = 1,
    }

    /// Kind of object behind a handle, dat_get_handle_type.
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

    /// Sizes in bytes. (A group of `#define`s in C, as are those below.)
    pub type DAT_SIZE = usize {
        /// An IA, attribute or vendor name with its NUL.
        DAT_NAME_MAX_LENGTH = 256,
        /// Buffer alignment that suits every adapter.
        DAT_OPTIMAL_ALIGNMENT = 256,
        /// A shared-memory cookie.
        DAT_LMR_COOKIE_SIZE = 40,
    }

    /// Special counts.
    pub type DAT_SPECIAL_COUNT = DAT_COUNT {
        DAT_WATERMARK_INFINITE = -1,
        DAT_HW_DEFAULT = DAT_WATERMARK_INFINITE,
        DAT_SRQ_LW_DEFAULT = 0,
        DAT_VALUE_UNKNOWN = -2,
    }

    /// Special time-outs.
    pub type DAT_SPECIAL_TIMEOUT = DAT_TIMEOUT {
        DAT_TIMEOUT_INFINITE = u32::MAX,
    }

    /// Version of the API, and bases of the two kinds of operation that dat_extension_op itself
    /// handles.
    pub type DAT_API_NUMBER = c_int {
        DAT_VERSION_MAJOR = 2,
        DAT_VERSION_MINOR = 0,
        /// Base of the operations that open an IA by name.
        DAT_OPEN_EXTENSION_BASE = 0x1000,
        /// Base of the operations that close such an IA.
        DAT_CLOSE_EXTENSION_BASE = 0x2000,
    }
}

records! {
    /// Consumer context or cookie, passed by value and returned unchanged.
    pub union DAT_CONTEXT {
        /// As a pointer.
        pub as_ptr: DAT_PVOID,
        /// As a number.
        pub as_64: u64,
        /// As an index.
        pub as_index: u64,
    }

    /// Name and value, both NUL-terminated text.
    #[derive(Debug)]
    pub struct DAT_NAMED_ATTR {
        /// Name of the attribute.
        pub name: *const c_char,
        /// Value of the attribute.
        pub value: *const c_char,
    }

    /// The three arguments of socket(2), for a common service point.
    #[derive(Debug, PartialEq, Eq)]
    pub struct DAT_COMM {
        /// Address family.
        pub domain: c_int,
        /// Socket type.
        pub r#type: c_int,
        /// Protocol.
        pub protocol: c_int,
    }

    /// `struct sockaddr`: the start of a socket address.
    #[derive(Debug)]
    pub struct DAT_SOCK_ADDR {
        /// AF_INET, AF_INET6, ...
        pub sa_family: u16,
        /// The rest, which depends on the family and may be longer.
        pub sa_data: [c_char; 14],
    }

    /// `struct sockaddr_in6`.
    #[derive(Debug)]
    pub struct DAT_SOCK_ADDR6 {
        /// AF_INET6.
        pub sin6_family: u16,
        /// Port, network byte order.
        pub sin6_port: u16,
        /// Flow information, network byte order.
        pub sin6_flowinfo: u32,
        /// The address.
        pub sin6_addr: [u8; 16],
        /// Scope, host byte order.
        pub sin6_scope_id: u32,
    }
}

impl fmt::Debug for DAT_CONTEXT {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: all members have the same size, and any bits are a valid integer.
        write!(f, "DAT_CONTEXT({:#x})", unsafe { self.as_64 })
    }
}
