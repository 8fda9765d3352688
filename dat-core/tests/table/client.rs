//! A registry of function tables, and a consumer that uses them.

use std::collections::HashMap;
use std::ffi::{CString, c_char, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use dat_core::Error;
use dat_core::export::{self, AnyProvider};
use dat_core::provider::Provider;
use dat_sys::ib::DAT_IB_OP;
use dat_sys::*;
use provider_mem::Mem;

/// Calls a function of a table and returns a `Result<(), Error>`.
macro_rules! dat {
    ($table:expr, $func:ident($($arg:expr),* $(,)?)) => {{
        let function = $table.$func.expect(stringify!($func));
        // SAFETY: tests pass NULL, or arguments that the prototype permits.
        $crate::client::result(unsafe { function($($arg),*) })
    }};
}
pub(crate) use dat;

pub(crate) fn result(status: DAT_RETURN) -> Result<(), Error> {
    match status {
        DAT_SUCCESS => Ok(()),
        _ => {
            let error = Error::new(status & DAT_TYPE_MASK, status & DAT_SUBTYPE_MASK);
            assert_eq!(
                status,
                error.code(),
                "every status except DAT_QUEUE_EMPTY must have a class"
            );
            Err(error)
        }
    }
}

pub(crate) type ProviderTable = &'static DAT_PROVIDER;

/// A registry that keeps one table for each name. A table is stored as the address of a static.
pub(crate) const REGISTRY: RegistryFns =
    RegistryFns { add_provider: add, remove_provider: remove, get_ia_handle: map };

fn registered_tables() -> MutexGuard<'static, HashMap<String, usize>> {
    static TABLES: LazyLock<Mutex<HashMap<String, usize>>> = LazyLock::new(Mutex::default);
    TABLES.lock().unwrap_or_else(PoisonError::into_inner)
}

unsafe fn name_in(info: *const DAT_PROVIDER_INFO) -> String {
    // SAFETY: the provider passes a pointer to a complete record.
    let name = unsafe { (*info).ia_name }.map(|c| c as u8);
    std::ffi::CStr::from_bytes_until_nul(&name).unwrap().to_str().unwrap().to_owned()
}

unsafe extern "C" fn add(table: *const DAT_PROVIDER, info: *const DAT_PROVIDER_INFO) -> DAT_RETURN {
    // SAFETY: the provider passes a pointer to a complete record.
    let name = unsafe { name_in(info) };
    match registered_tables().insert(name, table as usize) {
        None => DAT_SUCCESS,
        Some(_) => DAT_ERROR(DAT_PROVIDER_ALREADY_REGISTERED, DAT_NO_SUBTYPE),
    }
}

unsafe extern "C" fn remove(
    table: *const DAT_PROVIDER,
    info: *const DAT_PROVIDER_INFO,
) -> DAT_RETURN {
    // SAFETY: the provider passes a pointer to a complete record.
    let name = unsafe { name_in(info) };
    assert_eq!(registered_tables().remove(&name), Some(table as usize));
    DAT_SUCCESS
}

/// The handle by which the consumer of this registry knows an adapter.
pub(crate) fn consumer_handle(ia: DAT_IA_HANDLE) -> DAT_IA_HANDLE {
    (ia as usize | 1) as DAT_IA_HANDLE
}

unsafe extern "C" fn map(ia: DAT_IA_HANDLE, out: *mut DAT_IA_HANDLE) -> DAT_RETURN {
    // SAFETY: the provider passes a place to write to.
    unsafe { out.write(consumer_handle(ia)) };
    DAT_SUCCESS
}

pub(crate) fn info(name: &str, major: u32, minor: u32, thread_safe: bool) -> DAT_PROVIDER_INFO {
    let mut info = DAT_PROVIDER_INFO::zeroed();
    for (to, from) in info.ia_name.iter_mut().zip(name.bytes()) {
        *to = from as c_char;
    }
    info.dapl_version_major = major;
    info.dapl_version_minor = minor;
    info.is_thread_safe = thread_safe.into();
    info
}

/// Returns the table with this name, if one is registered.
pub(crate) fn table(name: &str) -> Option<ProviderTable> {
    // SAFETY: tables are never freed.
    registered_tables().get(name).map(|table| unsafe { &*(*table as *const DAT_PROVIDER) })
}

pub(crate) fn register<P: Provider + Default>(
    name: &str,
    params: &str,
    thread_safe: bool,
) -> ProviderTable {
    let (provider, params) = (AnyProvider::of::<P>(), CString::new(params).unwrap());
    let info = info(name, 2, 0, thread_safe);
    // SAFETY: `info` is a complete record, and `params` is NUL-terminated.
    unsafe { export::init(provider, REGISTRY, &info, params.as_ptr()) };
    table(name).expect("the adapter is registered")
}

/// Returns a name that no other test uses.
pub(crate) fn unique(what: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{what}-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Returns the table of a new adapter of the provider mem with its own fabric, and the adapter's
/// name.
pub(crate) fn mem(thread_safe: bool) -> (ProviderTable, String) {
    let name = unique("mem");
    (register::<Mem>(&name, &name, thread_safe), name)
}

/// Does what [`mem`] does, with `strict=on`.
pub(crate) fn strict_mem() -> (ProviderTable, String) {
    let name = unique("mem");
    (register::<Mem>(&name, &format!("{name} strict=on"), false), name)
}

/// Opens an adapter. Returns its handle and the handle of its asynchronous EVD.
pub(crate) fn open(table: ProviderTable, name: &str) -> (DAT_IA_HANDLE, DAT_EVD_HANDLE) {
    let name = CString::new(name).unwrap();
    let (mut ia, mut evd) = (null_mut(), DAT_HANDLE_NULL);
    dat!(table, ia_open_func(name.as_ptr().cast_mut(), 8, &mut evd, &mut ia)).unwrap();
    (ia, evd)
}

/// An open adapter with a protection zone and one EVD for all events except connection requests.
#[derive(Clone, Copy)]
pub(crate) struct Side {
    pub(crate) table: ProviderTable,
    pub(crate) ia: DAT_IA_HANDLE,
    pub(crate) async_evd: DAT_EVD_HANDLE,
    pub(crate) pz: DAT_PZ_HANDLE,
    pub(crate) evd: DAT_EVD_HANDLE,
    pub(crate) cr_evd: DAT_EVD_HANDLE,
}

// SAFETY: handles may be used from any thread if the table is thread-safe.
unsafe impl Send for Side {}
// SAFETY: handles may be used from any thread if the table is thread-safe.
unsafe impl Sync for Side {}

impl Side {
    pub(crate) fn new(table: ProviderTable, name: &str) -> Side {
        let (ia, async_evd) = open(table, name);
        let mut side =
            Side { table, ia, async_evd, pz: null_mut(), evd: null_mut(), cr_evd: null_mut() };
        dat!(table, pz_create_func(ia, &mut side.pz)).unwrap();
        let streams = DAT_EVD_DTO_FLAG | DAT_EVD_RMR_BIND_FLAG | DAT_EVD_CONNECTION_FLAG;
        side.evd = side.new_evd(streams | DAT_EVD_SOFTWARE_FLAG);
        side.cr_evd = side.new_evd(DAT_EVD_CR_FLAG);
        side
    }

    pub(crate) fn new_evd(&self, flags: DAT_EVD_FLAGS) -> DAT_EVD_HANDLE {
        let mut evd = null_mut();
        dat!(self.table, evd_create_func(self.ia, 256, null_mut(), flags, &mut evd)).unwrap();
        evd
    }

    pub(crate) fn new_ep(&self) -> DAT_EP_HANDLE {
        let mut ep = null_mut();
        let Side { table, ia, pz, evd, .. } = *self;
        dat!(table, ep_create_func(ia, pz, evd, evd, evd, std::ptr::null(), &mut ep)).unwrap();
        ep
    }

    pub(crate) fn new_cno(&self) -> DAT_CNO_HANDLE {
        let mut cno = null_mut();
        dat!(self.table, cno_create_func(self.ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &mut cno)).unwrap();
        cno
    }

    pub(crate) fn new_psp(&self, flags: DAT_PSP_FLAGS) -> (DAT_PSP_HANDLE, DAT_CONN_QUAL) {
        let (mut psp, mut qualifier) = (null_mut(), 0);
        dat!(
            self.table,
            psp_create_any_func(self.ia, &mut qualifier, self.cr_evd, flags, &mut psp)
        )
        .unwrap();
        (psp, qualifier)
    }

    pub(crate) fn new_srq(&self, max_recv_dtos: DAT_COUNT) -> DAT_SRQ_HANDLE {
        let mut srq = null_mut();
        let mut attr =
            DAT_SRQ_ATTR { max_recv_dtos, max_recv_iov: 2, low_watermark: DAT_SRQ_LW_DEFAULT };
        dat!(self.table, srq_create_func(self.ia, self.pz, &mut attr, &mut srq)).unwrap();
        srq
    }

    pub(crate) fn connect(&self, ep: DAT_EP_HANDLE, qualifier: DAT_CONN_QUAL, private: &[u8]) {
        let address =
            dat_core::addr::SockAddr::from(std::net::SocketAddr::from(([127, 0, 0, 1], 0)));
        let (size, data) = c_bytes(private);
        let (qos, flags) = (DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG);
        dat!(
            self.table,
            ep_connect_func(ep, address.as_ptr(), qualifier, TEN_SECONDS, size, data, qos, flags)
        )
        .unwrap();
    }

    /// Takes the next event, which must arrive within ten seconds.
    pub(crate) fn next(&self, evd: DAT_EVD_HANDLE) -> DAT_EVENT {
        let (mut event, mut more) = (DAT_EVENT::zeroed(), 0);
        dat!(self.table, evd_wait_func(evd, TEN_SECONDS, 1, &mut event, &mut more)).unwrap();
        assert_eq!(event.evd_handle, evd);
        event
    }

    /// Takes the next event of the side's EVD, which must be a completion.
    pub(crate) fn completion(&self) -> DAT_DTO_COMPLETION_EVENT_DATA {
        let event = self.next(self.evd);
        assert_eq!(event.event_number, DAT_DTO_COMPLETION_EVENT);
        // SAFETY: the number of the event says that this member of the union is valid.
        unsafe { event.event_data.dto_completion_event_data }
    }

    /// Takes the next event, which must be a connection request.
    pub(crate) fn arrival(&self) -> DAT_CR_HANDLE {
        let event = self.next(self.cr_evd);
        assert_eq!(event.event_number, DAT_CONNECTION_REQUEST_EVENT);
        // SAFETY: the number of the event says that this member of the union is valid.
        unsafe { event.event_data.cr_arrival_event_data }.cr_handle
    }

    /// Registers a buffer with all privileges.
    pub(crate) fn register(&self, buffer: &mut [u8]) -> Lmr {
        self.register_as(buffer, DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA)
    }

    pub(crate) fn register_as(
        &self,
        buffer: &mut [u8],
        privileges: DAT_MEM_PRIV_FLAGS,
        va_type: DAT_VA_TYPE,
    ) -> Lmr {
        let mut lmr = Lmr::default();
        let region = DAT_REGION_DESCRIPTION { for_va: buffer.as_mut_ptr().cast() };
        dat!(
            self.table,
            lmr_create_func(
                self.ia,
                DAT_MEM_TYPE_VIRTUAL,
                region,
                buffer.len() as DAT_VLEN,
                self.pz,
                privileges,
                va_type,
                &mut lmr.handle,
                &mut lmr.context,
                &mut lmr.rmr_context,
                &mut lmr.size,
                &mut lmr.address,
            )
        )
        .unwrap();
        lmr
    }

    pub(crate) fn close(&self) {
        dat!(self.table, ia_close_func(self.ia, DAT_CLOSE_ABRUPT_FLAG)).unwrap();
    }
}

pub(crate) const TEN_SECONDS: DAT_TIMEOUT = 10_000_000;

/// Converts private data to its size and a pointer, as C functions expect them.
pub(crate) fn c_bytes(bytes: &[u8]) -> (DAT_COUNT, DAT_PVOID) {
    (bytes.len() as DAT_COUNT, bytes.as_ptr().cast_mut().cast())
}

/// The results of dat_lmr_create.
#[derive(Debug)]
pub(crate) struct Lmr {
    pub(crate) handle: DAT_LMR_HANDLE,
    pub(crate) context: DAT_LMR_CONTEXT,
    pub(crate) rmr_context: DAT_RMR_CONTEXT,
    pub(crate) size: DAT_VLEN,
    pub(crate) address: DAT_VADDR,
}

impl Default for Lmr {
    fn default() -> Self {
        Lmr { handle: null_mut(), context: 0, rmr_context: 0, size: 0, address: 0 }
    }
}

impl Lmr {
    /// A local segment that names a part of the region.
    pub(crate) fn local(&self, from: u64, bytes: u32) -> DAT_LMR_TRIPLET {
        let virtual_address = self.address + from;
        DAT_LMR_TRIPLET { virtual_address, segment_length: bytes, lmr_context: self.context }
    }

    /// A remote segment that names a part of the region.
    pub(crate) fn remote(&self, from: u64, bytes: u32) -> DAT_RMR_TRIPLET {
        let virtual_address = self.address + from;
        DAT_RMR_TRIPLET { virtual_address, segment_length: bytes, rmr_context: self.rmr_context }
    }
}

pub(crate) fn cookie(value: u64) -> DAT_DTO_COOKIE {
    DAT_DTO_COOKIE { as_64: value }
}

/// Creates two adapters, each with one endpoint. The endpoints are connected, and the first one is
/// active.
pub(crate) fn connected(thread_safe: bool) -> [(Side, DAT_EP_HANDLE); 2] {
    let (table, name) = mem(thread_safe);
    connected_by(table, &name)
}

/// Does what [`connected`] does, with `strict=on`.
pub(crate) fn strictly_connected() -> [(Side, DAT_EP_HANDLE); 2] {
    let (table, name) = strict_mem();
    connected_by(table, &name)
}

pub(crate) fn connected_by(table: ProviderTable, name: &str) -> [(Side, DAT_EP_HANDLE); 2] {
    let (a, b) = (Side::new(table, name), Side::new(table, name));
    let (x, y) = (a.new_ep(), b.new_ep());
    let (psp, qualifier) = b.new_psp(DAT_PSP_CONSUMER_FLAG);
    a.connect(x, qualifier, b"hello");
    dat!(table, cr_accept_func(b.arrival(), y, 0, null_mut())).unwrap();
    assert_eq!(a.next(a.evd).event_number, DAT_CONNECTION_EVENT_ESTABLISHED);
    assert_eq!(b.next(b.evd).event_number, DAT_CONNECTION_EVENT_ESTABLISHED);
    dat!(table, psp_free_func(psp)).unwrap();
    [(a, x), (b, y)]
}

/// A `va_list` that contains these words (System V AMD64 ABI, 3.5.7). The first `registers` words
/// are passed in registers.
#[repr(C)]
struct VaList {
    gp_offset: u32,
    fp_offset: u32,
    overflow_arg_area: *const u64,
    reg_save_area: *const u64,
}

pub(crate) fn extended(
    table: ProviderTable,
    handle: *mut c_void,
    op: DAT_IB_OP,
    args: &[u64],
    registers: usize,
) -> Result<(), Error> {
    // Two of the six argument registers hold the named arguments.
    let in_registers = registers.min(args.len());
    let mut saved = [0; 6];
    let first = 6 - in_registers;
    saved[first..].copy_from_slice(&args[..in_registers]);
    let mut list = VaList {
        gp_offset: 8 * first as u32,
        fp_offset: 48,
        overflow_arg_area: args[in_registers..].as_ptr(),
        reg_save_area: saved.as_ptr(),
    };
    dat!(table, handle_extendedop_func(handle, op as DAT_EXTENDED_OP, (&raw mut list).cast()))
}

pub(crate) fn word<V>(pointer: &V) -> u64 {
    std::ptr::from_ref(pointer).expose_provenance() as u64
}
