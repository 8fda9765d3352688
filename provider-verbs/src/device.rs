//! The RDMA device of an address. rdma_cm finds the device, and libibverbs opens it.

use std::borrow::Cow;
use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::ptr::NonNull;

use adapter::netdev;
use dat_core::addr::SockAddr;
use dat_core::provider::Attrs;
use dat_core::{Error, OpenError};
use dat_sys::{
    DAT_INSUFFICIENT_RESOURCES, DAT_INVALID_ADDRESS, DAT_PROVIDER_NOT_FOUND, DAT_RESOURCE_MEMORY,
    DAT_RMR_SCOPE_ANY, DAT_RMR_SCOPE_EP, DAT_RMR_SCOPE_PZ,
};
use rdma_core_sys::*;
use waiting::barrier;

use crate::cm::Channel;
use crate::cq::MARKER_CAPACITY_MIN;
use crate::descriptor::set_nonblocking;
use crate::key_table::KeyTable;
use crate::params::SYSFS;
use crate::qp::{COUNT_MARKERS, END_MARKERS};
use crate::{address, map};

/// A kernel driver that emulates an RDMA device in software, on the same processors on which
/// consumers poll. This crate accounts for the peculiarities of each driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelDriver {
    /// The driver for RoCEv2.
    Rxe,
    /// The driver for iWARP.
    Siw,
}

/// An open device, and the port that has the adapter's address.
pub struct Device {
    pub(crate) core: &'static RdmaCore,
    pub(crate) context: NonNull<ibv_context>,
    /// The name of the device, such as `rxe0`.
    pub name: String,
    /// The number of the port.
    pub port: u8,
    /// The adapter's address, with port 0.
    pub address: SocketAddr,
    pub(crate) attr: ibv_device_attr,
    pub(crate) port_attr: ibv_port_attr,
    /// The kernel driver that emulates the device. `None` for hardware.
    pub(crate) kernel_driver: Option<KernelDriver>,
    pub(crate) keys: KeyTable,
}

// SAFETY: the libraries lock the state that threads share.
unsafe impl Send for Device {}
// SAFETY: the libraries lock the state that threads share.
unsafe impl Sync for Device {}

impl Device {
    /// Opens the device that has the address. Without an address, opens the device of the first
    /// local address that has a device.
    ///
    /// # Errors
    /// - `DAT_PROVIDER_NOT_FOUND`: the libraries or the kernel's rdma_cm are missing, or the kernel
    ///   is older than 4.14.
    /// - `DAT_INVALID_ADDRESS`: no device has the address.
    /// - `DAT_INSUFFICIENT_RESOURCES`: the device cannot be opened.
    pub fn open(bind: Option<SocketAddr>) -> Result<Device, OpenError> {
        let core = RdmaCore::load().map_err(|e| not_found(e.to_string()))?;
        if !barrier::prepare() {
            return Err(not_found(
                "this kernel lacks membarrier(2): Linux 4.14 or later is required".into(),
            ));
        }
        if !core.fork_copies_memory() {
            // `ibv_fork_init` must be called before any memory is registered. If the call fails,
            // the adapter works, but libibverbs does not protect registered memory from fork(2).
            // SAFETY: this device has not opened anything yet. The library ignores a second call.
            let _ = unsafe { (core.verbs.ibv_fork_init)() };
        }
        let channel = Channel::open(core).map_err(|e| {
            // The library reports ENOENT for every cause, so this code looks for the actual cause.
            not_found(inaccessible_node("rdma_cm").unwrap_or_else(|| {
                format!(
                    "rdma_cm: {e}: is there an RDMA device, and is the kernel's module rdma_ucm \
                     loaded?"
                )
            }))
        })?;
        // The library does not list a device that this user may not open. So check for such a
        // device.
        let none = |what: String| no_device(inaccessible_node("uverbs").unwrap_or(what));
        match bind {
            Some(address) => match channel.find_device(address) {
                Ok(Some(found)) => Self::open_found(core, found, address),
                Ok(None) => Err(none(format!(
                    "no RDMA device has the address {}; `rdma link` lists the devices",
                    address.ip()
                ))),
                Err(e) => {
                    let ip = address.ip();
                    Err(none(format!(
                        "no RDMA device has the address {ip}: {e}; `rdma link` lists the devices"
                    )))
                }
            },
            None => {
                let addresses = candidate_addresses()
                    .map_err(|e| no_device(format!("listing network devices: {e}")))?;
                let found =
                    addresses.iter().find_map(|&a| Some((channel.find_device(a).ok()??, a)));
                let (found, address) = found.ok_or_else(|| {
                    let count = addresses.len();
                    none(format!(
                        "no RDMA device has one of this host's {count} addresses; `rdma link` \
                         lists the devices"
                    ))
                })?;
                Self::open_found(core, found, address)
            }
        }
    }

    fn open_found(
        core: &'static RdmaCore,
        found: BoundDevice,
        address: SocketAddr,
    ) -> Result<Device, OpenError> {
        // SAFETY: `found` keeps the identifier, whose context keeps the device. The name is a C
        // string.
        let name = unsafe { CStr::from_ptr((core.verbs.ibv_get_device_name)(found.device)) };
        let name = name.to_string_lossy().into_owned();
        let failed = |what: &str, e: io::Error| {
            let code = Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
            OpenError::new(code, format!("{what} {name}: {e}"))
        };
        // SAFETY: `found` keeps the device. This context is separate from that of the identifier,
        // so it has asynchronous events of its own.
        let context = NonNull::new(unsafe { (core.verbs.ibv_open_device)(found.device) })
            .ok_or_else(|| failed("opening", io::Error::last_os_error()))?;
        let mut device = Device {
            core,
            context,
            name: name.clone(),
            port: found.port,
            address: SocketAddr::new(address.ip(), 0),
            attr: ibv_device_attr::zeroed(),
            port_attr: ibv_port_attr::zeroed(),
            kernel_driver: None,
            keys: KeyTable::new(),
        };
        device.kernel_driver = device.detect_kernel_driver();
        // SAFETY: the context is open, and `attr` has room for the result.
        let asked = unsafe { (core.verbs.ibv_query_device)(context.as_ptr(), &mut device.attr) };
        if asked != 0 {
            return Err(failed("querying the limits of", io::Error::from_raw_os_error(asked)));
        }
        // SAFETY: the context is open.
        device.port_attr = unsafe { core.verbs.query_port(context.as_ptr(), found.port) }
            .map_err(|e| failed("querying the port of", io::Error::from_raw_os_error(e)))?;
        Ok(device)
    }

    /// Returns the counters of the port under the kernel's names (`hw_counters`). The counters
    /// include the traffic of all programs since the device was created.
    pub(crate) fn counters(&self) -> Vec<(Cow<'static, str>, u64)> {
        let of_port =
            Path::new(SYSFS).join(&self.name).join(format!("ports/{}/hw_counters", self.port));
        let files = std::fs::read_dir(of_port).into_iter().flatten().flatten();
        let mut counters: Vec<_> = files
            .filter_map(|file| {
                let name = file.file_name().into_string().ok()?;
                let value = std::fs::read_to_string(file.path()).ok()?.trim().parse().ok()?;
                // `lifespan` is not a counter: it says how long the kernel caches a reading.
                (name != "lifespan").then(|| (format!("port.{name}").into(), value))
            })
            .collect();
        counters.sort();
        counters
    }

    /// The descriptor that is readable when there is an asynchronous event.
    pub(crate) fn async_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as the context is.
        unsafe { BorrowedFd::borrow_raw(self.context.as_ref().async_fd) }
    }

    /// Puts the descriptor of the asynchronous events into non-blocking mode. Taking an event then
    /// fails if there is no event.
    pub(crate) fn set_nonblocking(&self) {
        // SAFETY: the context is open.
        unsafe { set_nonblocking(self.context.as_ref().async_fd) }
    }

    /// Returns whether the device supports memory windows. If `scoped`, the windows are for the
    /// peer of one queue pair, otherwise for all peers of a protection domain.
    pub(crate) fn has_windows(&self, scoped: bool) -> bool {
        let flag = if scoped { IBV_DEVICE_MEM_WINDOW_TYPE_2B } else { IBV_DEVICE_MEM_WINDOW };
        self.attr.device_cap_flags & flag != 0 && self.attr.max_mw > 0
    }

    /// Returns whether the device has memory windows of type 1 or 2.
    pub(crate) fn has_any_windows(&self) -> bool {
        self.has_windows(false) || self.has_windows(true)
    }

    /// Returns the kernel driver, if the device is emulated and not hardware.
    fn detect_kernel_driver(&self) -> Option<KernelDriver> {
        let has_hardware = Path::new(SYSFS).join(&self.name).join("device").exists();
        (!has_hardware).then_some(if self.is_iwarp() {
            KernelDriver::Siw
        } else {
            KernelDriver::Rxe
        })
    }

    /// Returns whether a marker is needed to know when a queue pair has flushed its work requests.
    /// Over iWARP no marker is needed: the transition to the error state returns after the flush,
    /// and the device ignores work requests that are posted later.
    pub(crate) fn needs_markers(&self) -> bool {
        !self.is_iwarp()
    }

    pub(crate) fn is_rxe(&self) -> bool {
        self.kernel_driver == Some(KernelDriver::Rxe)
    }

    pub(crate) fn is_siw(&self) -> bool {
        self.kernel_driver == Some(KernelDriver::Siw)
    }

    /// Returns whether the device and its peers speak iWARP.
    pub fn is_iwarp(&self) -> bool {
        // SAFETY: an open context has a device.
        unsafe { (*(*self.context.as_ptr()).device).transport_type == IBV_TRANSPORT_IWARP }
    }

    /// Returns whether the device has datagrams whose peers this crate can address. iWARP has no
    /// datagrams. In an InfiniBand network, the address of a peer that calls is not its IP address,
    /// so this crate supports datagrams only on RoCE.
    pub(crate) fn has_datagrams(&self) -> bool {
        !self.is_iwarp() && self.port_attr.link_layer == IBV_LINK_LAYER_ETHERNET
    }

    /// Returns the index of a local IP address in the port's table of GIDs. RoCE only. The table
    /// may contain the address once for each version of RoCE. The result is the entry for version
    /// 2.
    pub(crate) fn gid_index(&self, address: IpAddr) -> Option<u8> {
        let wanted = address::gid(address);
        let length = u8::try_from(self.port_attr.gid_tbl_len).unwrap_or(u8::MAX);
        let types = Path::new(SYSFS).join(&self.name).join(format!("ports/{}", self.port));
        let types = types.join("gid_attrs/types");
        (0..length).find(|index| {
            let (mut gid, query) = (ibv_gid::zeroed(), self.core.verbs.ibv_query_gid);
            // SAFETY: the context is open, and there is room for the result.
            let found =
                unsafe { query(self.context.as_ptr(), self.port, i32::from(*index), &mut gid) };
            found == 0
                && gid == wanted
                && std::fs::read_to_string(types.join(index.to_string()))
                    .is_ok_and(|version| version.trim() == "RoCE v2")
        })
    }

    /// The maximum number of work requests that this crate posts for one request of dat-core: see
    /// `QpShared::wait_for_earlier`.
    pub(crate) fn requests_per_dto(&self) -> usize {
        if self.is_rxe() { 2 } else { 1 }
    }

    /// The attributes that `dat_ia_query` returns.
    pub fn attrs(&self, ia: &str, strict: bool, stats: bool) -> Attrs {
        let (attr, count) = (&self.attr, |n: i32| usize::try_from(n).unwrap_or(0));
        let segments = count(attr.max_sge).min(32);
        // The provider's markers use the remaining entries of the send queue.
        let dtos = count(attr.max_qp_wr).saturating_sub(END_MARKERS + COUNT_MARKERS)
            / self.requests_per_dto();
        let depth = attr
            .max_qp_rd_atom
            .min(attr.max_qp_init_rd_atom)
            .clamp(0, i32::from(RDMA_MAX_RESP_RES));
        Attrs {
            adapter: ia.to_owned(),
            vendor: "OpenDAT".to_owned(),
            address: self.address,
            interface: netdev::interface_of(self.address),
            max_eps: count(attr.max_qp),
            max_dtos: dtos,
            max_segments: segments,
            max_read_segments: match self.is_iwarp() {
                true => 1,
                false => segments.min(count(attr.max_sge_rd).max(1)),
            },
            max_read_depth: depth as u32,
            max_evds: count(attr.max_cq),
            max_evd_depth: count(attr.max_cqe).saturating_sub(MARKER_CAPACITY_MIN),
            max_regions: count(attr.max_mr),
            max_windows: if self.has_any_windows() { count(attr.max_mw) } else { 0 },
            window_scopes: match (self.has_windows(false), self.has_windows(true)) {
                (true, true) => DAT_RMR_SCOPE_ANY,
                (true, false) => DAT_RMR_SCOPE_PZ,
                (false, _) => DAT_RMR_SCOPE_EP,
            },
            atomics: !self.is_iwarp() && attr.atomic_cap != IBV_ATOMIC_NONE,
            immediate: !self.is_iwarp(),
            max_region_size: attr.max_mr_size,
            max_pds: count(attr.max_pd),
            max_message: self.port_attr.max_msg_sz,
            max_datagram: self.has_datagrams().then(|| map::mtu(self.port_attr.active_mtu)),
            max_private: MAX_PRIVATE,
            max_srqs: count(attr.max_srq),
            max_srq_depth: count(attr.max_srq_wr),
            // rxe looks for the buffers of a shared receive queue in the protection domain of the
            // queue pair (`send_data_in`).
            srq_across_pds: !self.is_rxe(),
            // A device does not report which buffers of a shared queue a queue pair has taken.
            knows_allocated: attr.max_srq == 0,
            pins: true,
            // siw uses the address of a region's first byte even if another I/O virtual address was
            // requested, and reports no error.
            zero_based: !self.is_siw(),
            quiet: false,
            strict,
            stats,
            optimal_alignment: 64,
            named: vec![
                ("device".to_owned(), format!("{} port {}", self.name, self.port)),
                ("transport".to_owned(), self.transport().to_owned()),
            ],
        }
    }

    fn transport(&self) -> &'static str {
        match (self.is_iwarp(), self.port_attr.link_layer) {
            (true, _) => "iWARP",
            (false, IBV_LINK_LAYER_ETHERNET) => "RoCE",
            (false, _) => "InfiniBand",
        }
    }
}

/// The maximum number of octets of private data in a connection request: 92 octets less the 36
/// octets that rdma_cm itself uses.
const MAX_PRIVATE: usize = 56;

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: every object of the context holds a reference to this device, so no object is
        // left.
        unsafe { (self.core.verbs.ibv_close_device)(self.context.as_ptr()) };
    }
}

/// A device, and the port of the device that has a certain address. Both are valid until the
/// identifier is dropped.
pub(crate) struct BoundDevice {
    pub(crate) device: *mut ibv_device,
    pub(crate) port: u8,
    /// The identifier, which keeps the library's context of the device open.
    pub(crate) _bound: crate::cm::CmId,
}

/// Returns the addresses of this host, in the order in which they are tried to find a device.
fn candidate_addresses() -> io::Result<Vec<SocketAddr>> {
    let mut addresses: Vec<_> =
        netdev::addresses()?.into_iter().filter(|found| found.up).map(|found| found.addr).collect();
    addresses.sort_by_key(|address| match address.ip() {
        ip if ip.is_loopback() => 3,
        IpAddr::V4(_) => 0,
        IpAddr::V6(ip) if !ip.is_unicast_link_local() => 1,
        IpAddr::V6(_) => 2,
    });
    Ok(addresses)
}

/// Checks that the libraries are installed that every device needs.
pub fn libraries() -> Result<(), OpenError> {
    RdmaCore::load().map(drop).map_err(|e| not_found(e.to_string()))
}

/// Searches for an RDMA device node whose name starts with `start` and which this user may not
/// open. Returns a message that names the first such node and the remedy.
fn inaccessible_node(start: &str) -> Option<String> {
    std::fs::read_dir("/dev/infiniband").ok()?.flatten().find_map(|node| {
        let path = node.path();
        let is_one = node.file_name().to_string_lossy().starts_with(start);
        let opened = is_one.then(|| std::fs::File::options().read(true).write(true).open(&path))?;
        let error = opened.err().filter(|e| e.kind() == io::ErrorKind::PermissionDenied)?;
        Some(format!(
            "{}: {error}; rdma-core's udev rules let every user open it, and so does `chmod a+rw` \
             as root",
            path.display()
        ))
    })
}

fn not_found(reason: String) -> OpenError {
    OpenError::new(Error::of(DAT_PROVIDER_NOT_FOUND), reason)
}

fn no_device(reason: String) -> OpenError {
    OpenError::new(Error::of(DAT_INVALID_ADDRESS), reason)
}

/// A socket address for a library function that takes a pointer to mutable data.
pub(crate) struct CAddr(SockAddr);

impl CAddr {
    pub(crate) fn new(address: SocketAddr) -> Self {
        CAddr(address.into())
    }

    /// A pointer whose C type would allow the library to write through it, but the library does
    /// not.
    pub(crate) fn as_mut_ptr(&self) -> *mut libc::sockaddr {
        self.0.as_ptr().cast()
    }
}
