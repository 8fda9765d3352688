//! Endpoints for datagrams, and the events about their peers.

use std::net::SocketAddr;

use dat_sys::ib::*;
use dat_sys::*;

use super::adapter::Rig;
use super::connect::RequestEvent;
use super::memory::private;
use super::objects::Ep;
use crate::check::{Outcome, ensure_equal, failed, ok};

/// An event about a peer of an endpoint for datagrams.
#[derive(Clone, Debug)]
pub(crate) struct PeerEvent {
    /// The number of the event.
    pub(crate) number: DAT_EVENT_NUMBER,
    /// The endpoint.
    pub(crate) ep: DAT_EP_HANDLE,
    /// A copy of the private data, which the provider owns.
    pub(crate) private: Vec<u8>,
    /// The type in the extension data.
    pub(crate) kind: DAT_IB_EXT_TYPE,
    /// The status in the extension data.
    pub(crate) outcome: DAT_IB_STATUS,
    /// The peer's address.
    pub(crate) peer: DAT_IB_ADDR_HANDLE,
    /// The context that dat_ib_ud_cm_free takes.
    pub(crate) context: u64,
}

/// Two endpoints for datagrams that know each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DatagramPair {
    /// The endpoint that has called dat_ep_connect.
    pub(crate) active: Ep,
    /// The address of the passive endpoint, for the active endpoint.
    pub(crate) to_passive: DAT_IB_ADDR_HANDLE,
    /// The endpoint with which the request was accepted.
    pub(crate) passive: Ep,
    /// The address of the active endpoint, for the passive endpoint.
    pub(crate) to_active: DAT_IB_ADDR_HANDLE,
}

impl Rig {
    /// Returns attributes of an endpoint for datagrams that any provider with datagrams can
    /// satisfy.
    pub(crate) fn datagram_attr(&self) -> DAT_EP_ATTR {
        DAT_EP_ATTR {
            service_type: DAT_IB_SERVICE_TYPE_UD,
            max_message_size: 256,
            max_rdma_size: 0,
            max_rdma_read_in: 0,
            max_rdma_read_out: 0,
            max_rdma_read_iov: 0,
            max_rdma_write_iov: 0,
            ..self.ep_attr()
        }
    }

    /// Creates an endpoint for datagrams.
    pub(crate) fn datagram_ep(&self) -> Outcome<Ep> {
        self.ep_with(&self.datagram_attr())
    }

    /// Returns two endpoints for datagrams that know each other.
    pub(crate) fn datagram_pair(&self) -> Outcome<DatagramPair> {
        let (active, passive) = (self.datagram_ep()?, self.datagram_ep()?);
        let [to_passive, to_active] = self.introduce(active, passive)?;
        Ok(DatagramPair { active, to_passive, passive, to_active })
    }

    /// Lets two endpoints know each other. Returns for each one the address of the other one.
    pub(crate) fn introduce(&self, active: Ep, passive: Ep) -> Outcome<[DAT_IB_ADDR_HANDLE; 2]> {
        let listener = self.listen()?;
        ok(self.connect(active.ep, listener.qualifier, b""))?;
        let request = self.datagram_request(listener.evd)?;
        ok(self.accept(request.cr, passive.ep, b""))?;
        let known = [self.known_peer(active)?.peer, self.known_peer(passive)?.peer];
        ok(self.api.dat_psp_free(listener.psp))?;
        Ok(known)
    }

    /// Returns the next event, which must be a request for datagrams.
    #[track_caller]
    pub(crate) fn datagram_request(&self, evd: DAT_EVD_HANDLE) -> Outcome<RequestEvent> {
        let event = self.expect(evd, DAT_IB_UD_CONNECTION_REQUEST_EVENT)?;
        ensure_equal(
            "the type in the extension data",
            member(&event, 0),
            DAT_IB_UD_CONNECT_REQUEST,
        )?;
        // SAFETY: the event number selects the valid member. All service points are handles.
        unsafe {
            let data = event.event_data.cr_arrival_event_data;
            Ok(RequestEvent {
                cr: data.cr_handle,
                sp: data.sp_handle.psp_handle,
                qualifier: data.conn_qual,
                address: data.local_ia_address_ptr,
            })
        }
    }

    /// Returns the next event of an endpoint, which must be about a peer.
    #[track_caller]
    pub(crate) fn peer_event(&self, of: Ep) -> Outcome<PeerEvent> {
        let event = self.event(of.connect)?;
        let number = event.event_number;
        if !(DAT_IB_UD_CONNECTION_EVENT_ESTABLISHED..=DAT_IB_UD_CONNECTION_ERROR_EVENT)
            .contains(&number)
        {
            return Err(failed(format_args!("the event is {number:#x}")));
        }
        // SAFETY: the event number selects the valid member.
        let data = unsafe { event.event_data.connect_event_data };
        let extension =
            (&raw const event.event_extension_data).cast::<DAT_IB_EXTENSION_EVENT_DATA>();
        // SAFETY: the members are integers and pointers, which can be read in any event, even if
        // the values are meaningless.
        let (peer, context) =
            unsafe { ((*extension).detail.remote_ah, (*extension).context.as_64) };
        Ok(PeerEvent {
            number,
            ep: data.ep_handle,
            private: private(data.private_data, data.private_data_size),
            kind: member(&event, 0),
            outcome: member(&event, 1),
            peer,
            context,
        })
    }

    /// Returns the next event of an endpoint, which must say that a peer is known.
    #[track_caller]
    pub(crate) fn known_peer(&self, of: Ep) -> Outcome<PeerEvent> {
        let event = self.peer_event(of)?;
        let wanted = DAT_IB_UD_CONNECTION_EVENT_ESTABLISHED;
        ensure_equal("the number of the event", event.number, wanted)?;
        Ok(event)
    }
}

/// A 32-bit member of the extension data.
fn member(event: &DAT_EVENT, n: usize) -> u32 {
    let bytes = event.event_extension_data[n / 2].to_ne_bytes();
    u32::from_ne_bytes(std::array::from_fn(|i| bytes[4 * (n % 2) + i]))
}

/// Returns the IP address and the port that an address handle names, if there is one.
pub(crate) fn to_port(address: &DAT_IB_ADDR_HANDLE) -> Option<SocketAddr> {
    let DAT_SOCK_ADDR6 { sin6_family, sin6_port, sin6_flowinfo, sin6_addr, .. } = address.ia_addr;
    let port = u16::from_be(sin6_port);
    match i32::from(sin6_family) {
        // In an IPv4 address, the address is where an IPv6 address has its flow information.
        libc::AF_INET => Some(SocketAddr::from((sin6_flowinfo.to_ne_bytes(), port))),
        libc::AF_INET6 => Some(SocketAddr::from((sin6_addr, port))),
        _ => None,
    }
}
