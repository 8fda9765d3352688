//! The device behind an address: found by rdma_cm, opened by libibverbs.

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
use dat_core::{Error, OpenError, barrier};
use dat_sys::{
    DAT_INSUFFICIENT_RESOURCES, DAT_INVALID_ADDRESS, DAT_PROVIDER_NOT_FOUND, DAT_RESOURCE_MEMORY,
};
use rdma_core_sys::*;

use crate::cm::Channel;
use crate::cq::SPARE;
use crate::descriptor::unblock;
use crate::keys::Keys;
use crate::params::SYSFS;
use crate::qp::{ASKERS, OWN};

/// A driver of the kernel's that does a device's work, on the processors that consumers poll on; it does some things its own way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Software {
    /// RoCEv2.
    Rxe,
    /// iWARP.
    Siw,
}

/// An open device, and the port that has the adapter's address.
pub struct Device {
    pub(crate) core: &'static RdmaCore,
    pub(crate) context: NonNull<ibv_context>,
    /// Its name, as in `rxe0`.
    pub name: String,
    /// The port.
    pub port: u8,
    /// The adapter's address, port 0.
    pub address: SocketAddr,
    pub(crate) attr: ibv_device_attr,
    pub(crate) port_attr: ibv_port_attr,
    /// The kernel does its work.
    pub(crate) software: Option<Software>,
    pub(crate) keys: Keys,
}

// SAFETY: the libraries lock what threads share.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

impl Device {
    /// Opens the device that has the address; of several addresses that are nobody's wish, the first that has one.
    ///
    /// # Errors
    /// `DAT_PROVIDER_NOT_FOUND` without libraries, without the kernel's rdma_cm, or with a kernel older than 4.14;
    /// `DAT_INVALID_ADDRESS` where no device has the address; `DAT_INSUFFICIENT_RESOURCES` where it cannot be opened.
    pub fn open(bind: Option<SocketAddr>) -> Result<Device, OpenError> {
        let core = RdmaCore::load().map_err(|e| absent(e.to_string()))?;
        if !barrier::prepare() {
            return Err(absent(
                "this kernel lacks membarrier(2): it takes Linux 4.14 or later".into(),
            ));
        }
        if !core.fork_copies_memory() {
            // Before anything is registered. Where it fails, fork(2) is as safe as the device makes it.
            // SAFETY: nothing has been opened by this device yet; the library ignores a second call.
            let _ = unsafe { (core.verbs.ibv_fork_init)() };
        }
        let channel = Channel::open(core).map_err(|e| {
            // The library says no such file whatever it was.
            absent(closed("rdma_cm").unwrap_or_else(|| {
                format!("rdma_cm: {e}: is there an RDMA device, and is the kernel's module rdma_ucm loaded?")
            }))
        })?;
        // The library knows nothing of a device that it may not open.
        let none = |what: String| no_device(closed("uverbs").unwrap_or(what));
        match bind {
            Some(address) => match channel.device_of(address) {
                Ok(Some(found)) => Self::open_found(core, found, address),
                Ok(None) => {
                    Err(none(format!("{} is of no RDMA device: see rdma link", address.ip())))
                }
                Err(e) => {
                    Err(none(format!("{} is of no RDMA device: {e}; see rdma link", address.ip())))
                }
            },
            None => {
                let addresses =
                    candidates().map_err(|e| no_device(format!("listing network devices: {e}")))?;
                let found = addresses.iter().find_map(|&a| Some((channel.device_of(a).ok()??, a)));
                let (found, address) = found.ok_or_else(|| {
                    let count = addresses.len();
                    none(format!(
                        "none of this host's {count} addresses is of an RDMA device: see rdma link"
                    ))
                })?;
                Self::open_found(core, found, address)
            }
        }
    }

    fn open_found(
        core: &'static RdmaCore,
        found: Found,
        address: SocketAddr,
    ) -> Result<Device, OpenError> {
        // SAFETY: `found` keeps the identifier, whose context keeps the device; the name is a C string.
        let name = unsafe { CStr::from_ptr((core.verbs.ibv_get_device_name)(found.device)) };
        let name = name.to_string_lossy().into_owned();
        let failed = |what: &str, e: io::Error| {
            let code = Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
            OpenError::new(code, format!("{what} {name}: {e}"))
        };
        // SAFETY: as above. A context of our own has asynchronous events of its own.
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
            software: None,
            keys: Keys::new(),
        };
        device.software = device.driver_of_the_kernel();
        // SAFETY: an open context, and room for what it writes.
        let asked = unsafe { (core.verbs.ibv_query_device)(context.as_ptr(), &mut device.attr) };
        if asked != 0 {
            return Err(failed("asking for the limits of", io::Error::from_raw_os_error(asked)));
        }
        // SAFETY: an open context.
        device.port_attr = unsafe { core.verbs.query_port(context.as_ptr(), found.port) }
            .map_err(|e| failed("asking for the port of", io::Error::from_raw_os_error(e)))?;
        Ok(device)
    }

    /// What its port has done since there is the device, for all programs, by the kernel's names (`hw_counters`).
    pub(crate) fn counters(&self) -> Vec<(Cow<'static, str>, u64)> {
        let of_port =
            Path::new(SYSFS).join(&self.name).join(format!("ports/{}/hw_counters", self.port));
        let files = std::fs::read_dir(of_port).into_iter().flatten().flatten();
        let mut counters: Vec<_> = files
            .filter_map(|file| {
                let name = file.file_name().into_string().ok()?;
                let value = std::fs::read_to_string(file.path()).ok()?.trim().parse().ok()?;
                // How long the kernel takes a reading for new.
                (name != "lifespan").then(|| (format!("port.{name}").into(), value))
            })
            .collect();
        counters.sort();
        counters
    }

    /// Readable when there is an asynchronous event.
    pub(crate) fn async_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: open as long as the context.
        unsafe { BorrowedFd::borrow_raw(self.context.as_ref().async_fd) }
    }

    /// Asking for an asynchronous event where there is none fails.
    pub(crate) fn unblock(&self) {
        // SAFETY: an open context.
        unsafe { unblock(self.context.as_ref().async_fd) }
    }

    /// There are windows: for the peer of one queue pair, or for those of all in a domain.
    pub(crate) fn has_windows(&self, scoped: bool) -> bool {
        let flag = if scoped { IBV_DEVICE_MEM_WINDOW_TYPE_2B } else { IBV_DEVICE_MEM_WINDOW };
        self.attr.device_cap_flags & flag != 0 && self.attr.max_mw > 0
    }

    /// A device without hardware below it is one of these.
    fn driver_of_the_kernel(&self) -> Option<Software> {
        let has_hardware = Path::new(SYSFS).join(&self.name).join("device").exists();
        (!has_hardware).then_some(if self.is_iwarp() { Software::Siw } else { Software::Rxe })
    }

    /// Marks tell when a queue pair has flushed. Over iWARP the transition flushes before it returns, and what is posted after an
    /// end is not looked at.
    pub(crate) fn marks(&self) -> bool {
        !self.is_iwarp()
    }

    pub(crate) fn is_rxe(&self) -> bool {
        self.software == Some(Software::Rxe)
    }

    pub(crate) fn is_siw(&self) -> bool {
        self.software == Some(Software::Siw)
    }

    /// It and its peers speak iWARP.
    pub fn is_iwarp(&self) -> bool {
        // SAFETY: an open context has a device.
        unsafe { (*(*self.context.as_ptr()).device).transport_type == IBV_TRANSPORT_IWARP }
    }

    /// Work requests that a request of dat-core's takes at most: see `Pair::wait_for_earlier`.
    pub(crate) fn places(&self) -> usize {
        if self.is_rxe() { 2 } else { 1 }
    }

    /// What `dat_ia_query` tells of it.
    pub fn attrs(&self, ia: &str, strict: bool) -> Attrs {
        let (attr, count) = (&self.attr, |n: i32| usize::try_from(n).unwrap_or(0));
        let segments = count(attr.max_sge).min(32);
        // Less what marks the end of a connection's queues.
        let dtos = count(attr.max_qp_wr).saturating_sub(OWN + ASKERS) / self.places();
        let depth = attr
            .max_qp_rd_atom
            .min(attr.max_qp_init_rd_atom)
            .clamp(0, i32::from(RDMA_MAX_RESP_RES));
        Attrs {
            adapter: ia.to_owned(),
            vendor: "OpenDAT".to_owned(),
            address: self.address,
            max_eps: count(attr.max_qp),
            max_dtos: dtos,
            max_segments: segments,
            max_read_segments: match self.is_iwarp() {
                true => 1,
                false => segments.min(count(attr.max_sge_rd).max(1)),
            },
            max_read_depth: depth as u32,
            max_evds: count(attr.max_cq),
            max_evd_depth: count(attr.max_cqe).saturating_sub(SPARE),
            max_regions: count(attr.max_mr),
            max_windows: if self.has_windows(false) { count(attr.max_mw) } else { 0 },
            extended: !self.is_iwarp() && attr.atomic_cap != IBV_ATOMIC_NONE,
            max_region_size: attr.max_mr_size,
            max_pds: count(attr.max_pd),
            max_message: self.port_attr.max_msg_sz,
            max_private: MAX_PRIVATE,
            max_srqs: count(attr.max_srq),
            max_srq_depth: count(attr.max_srq_wr),
            // rxe looks for the buffers' keys in the domain of the queue pair (`send_data_in`).
            srq_across_pds: !self.is_rxe(),
            pins: true,
            // siw takes no other name for a region's first byte than its address, and does not say so.
            zero_based: !self.is_siw(),
            quiet: false,
            strict,
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

/// Octets of private data that rdma_cm leaves to its user in a connection request (92 less its own 36).
const MAX_PRIVATE: usize = 56;

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: what was made of it holds a reference to it, so is gone.
        unsafe { (self.core.verbs.ibv_close_device)(self.context.as_ptr()) };
    }
}

/// A device and the port of it that has an address, as long as the identifier that is bound to it.
pub(crate) struct Found {
    pub(crate) device: *mut ibv_device,
    pub(crate) port: u8,
    /// Keeps the library's context of the device open.
    pub(crate) _bound: crate::cm::Id,
}

/// Addresses of the host that may be of a device, the best ones first.
fn candidates() -> io::Result<Vec<SocketAddr>> {
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

/// The libraries that every device takes are there.
///
/// # Errors
/// `DAT_PROVIDER_NOT_FOUND`: they are not.
pub fn libraries() -> Result<(), OpenError> {
    RdmaCore::load().map(drop).map_err(|e| absent(e.to_string()))
}

/// The first node of RDMA devices whose name begins so and that this user may not open, and what to do.
fn closed(start: &str) -> Option<String> {
    std::fs::read_dir("/dev/infiniband").ok()?.flatten().find_map(|node| {
        let path = node.path();
        let is_one = node.file_name().to_string_lossy().starts_with(start);
        let opened = is_one.then(|| std::fs::File::options().read(true).write(true).open(&path))?;
        let error = opened.err().filter(|e| e.kind() == io::ErrorKind::PermissionDenied)?;
        Some(format!(
            "{}: {error}; rdma-core's udev rules let every user open it, and so does `chmod a+rw`, as root",
            path.display()
        ))
    })
}

fn absent(reason: String) -> OpenError {
    OpenError::new(Error::of(DAT_PROVIDER_NOT_FOUND), reason)
}

fn no_device(reason: String) -> OpenError {
    OpenError::new(Error::of(DAT_INVALID_ADDRESS), reason)
}

/// A socket address for a library that wants to write to it.
pub(crate) struct CAddr(SockAddr);

impl CAddr {
    pub(crate) fn new(address: SocketAddr) -> Self {
        CAddr(address.into())
    }

    /// Not written to, though C does not say so.
    pub(crate) fn as_mut_ptr(&self) -> *mut libc::sockaddr {
        self.0.as_ptr().cast()
    }
}
