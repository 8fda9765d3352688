//! Addresses of peers, to which datagrams are sent: the device's address handles.

use std::io;
use std::net::IpAddr;
use std::ptr::NonNull;
use std::sync::Arc;

use rdma_core_sys::*;

use crate::device::Device;
use crate::mr::Domain;
use crate::progress::ProgressContext;

/// The address of a peer's adapter, and the Q_Key of the queue pair that has told it. Datagrams to
/// any queue pair of the peer may use the address.
#[derive(Clone)]
pub struct Address(Arc<SharedHandle>);

/// The address handle that all clones of an [`Address`] share.
struct SharedHandle {
    /// `None` only while this object is dropped.
    handle: Option<AddressHandle>,
    q_key: u32,
    progress: Arc<ProgressContext>,
}

/// An address handle of the device.
pub(crate) struct AddressHandle {
    pub(crate) domain: Arc<Domain>,
    handle: NonNull<ibv_ah>,
}

// SAFETY: several threads may call libibverbs with this object, because libibverbs locks what they
// share.
unsafe impl Send for AddressHandle {}
// SAFETY: several threads may call libibverbs with this object, because libibverbs locks what they
// share.
unsafe impl Sync for AddressHandle {}

impl Address {
    /// Creates an address handle. On RoCE this looks up the peer's MAC address, and may wait about
    /// a second for the peer's answer. Other calls that need the setup of the same endpoint wait
    /// meanwhile.
    ///
    /// Fails if the device has no address handle left, or if the peer cannot be reached.
    pub(crate) fn new(
        progress: &Arc<ProgressContext>,
        domain: &Arc<Domain>,
        mut to: ibv_ah_attr,
        q_key: u32,
    ) -> io::Result<Address> {
        // First destroy unused address handles, which could use up the device's limit.
        progress.destroy_retired_handles();
        let create = domain.device.core.verbs.ibv_create_ah;
        // SAFETY: the domain is live, and the library copies the attributes.
        let handle = NonNull::new(unsafe { create(domain.pd.as_ptr(), &mut to) });
        let handle = handle.ok_or_else(io::Error::last_os_error)?;
        let handle = Some(AddressHandle { domain: Arc::clone(domain), handle });
        let progress = Arc::clone(progress);
        Ok(Address(Arc::new(SharedHandle { handle, q_key, progress })))
    }

    /// The destination of a datagram to the queue pair with this number.
    #[inline]
    pub(crate) fn destination(&self, qpn: u32) -> ibv_wr_ud {
        let SharedHandle { handle, q_key, .. } = &*self.0;
        let handle = handle.as_ref().expect("only `drop` takes the handle");
        ibv_wr_ud { ah: handle.handle.as_ptr(), remote_qpn: qpn, remote_qkey: *q_key }
    }
}

impl Drop for SharedHandle {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            self.progress.retire_handle(handle);
        }
    }
}

impl Drop for AddressHandle {
    fn drop(&mut self) {
        // SAFETY: the address handle is live, and no request uses it any more.
        unsafe { (self.domain.device.core.verbs.ibv_destroy_ah)(self.handle.as_ptr()) };
    }
}

/// The hop limit of packets to a peer that has called. The kernel replaces it by the hop limit of
/// the route.
const HOP_LIMIT: u8 = 64;

/// Returns the attributes of the address handle for a peer that has called. RoCE only: there, the
/// addresses of both ends are IP addresses. Returns `None` if the port no longer has the local
/// address.
pub(crate) fn of_peer(device: &Device, local: IpAddr, peer: IpAddr) -> Option<ibv_ah_attr> {
    Some(ibv_ah_attr {
        grh: ibv_global_route {
            dgid: gid(peer),
            sgid_index: device.gid_index(local)?,
            hop_limit: HOP_LIMIT,
            ..ibv_global_route::zeroed()
        },
        is_global: 1,
        port_num: device.port,
        ..ibv_ah_attr::zeroed()
    })
}

/// Returns the GID of an IP address on RoCE. An IPv4 address is in its IPv4-mapped form.
pub(crate) fn gid(address: IpAddr) -> ibv_gid {
    let v6 = match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    ibv_gid { raw: v6.octets() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gid_is_an_ipv6_address() {
        let v4 = gid(IpAddr::from([10, 77, 0, 1])).raw;
        assert_eq!(v4, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 77, 0, 1]);
        let v6 = gid("fe80::5054:ff:fe12:3456".parse().expect("an address")).raw;
        assert_eq!(v6, [0xFE, 0x80, 0, 0, 0, 0, 0, 0, 0x50, 0x54, 0, 0xFF, 0xFE, 0x12, 0x34, 0x56]);
    }
}
