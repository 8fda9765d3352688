//! Tests of datagram endpoints (`DAT_IB_SERVICE_TYPE_UD`) through the function table.

mod handles;
mod peers;
mod service_points;
mod states;
mod transfer;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ptr::null_mut;

use dat_core::Error;
use dat_core::addr::SockAddr;
use dat_sys::ib::*;
use dat_sys::opendat::DAT_OPENDAT_POST_SEND_UD_IMMED_OP;
use dat_sys::*;

use crate::client::*;

/// The longest datagram of the provider mem, in bytes.
const MAX_DATAGRAM: usize = 4096;
/// The number of octets before each message in a receive buffer.
const HEADER: usize = 40;
const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn attributes() -> DAT_EP_ATTR {
    DAT_EP_ATTR {
        service_type: DAT_IB_SERVICE_TYPE_UD,
        max_message_size: MAX_DATAGRAM as DAT_VLEN as _,
        recv_completion_flags: DAT_COMPLETION_EVD_THRESHOLD_FLAG,
        request_completion_flags: DAT_COMPLETION_EVD_THRESHOLD_FLAG,
        max_recv_dtos: 64,
        max_request_dtos: 64,
        max_recv_iov: 4,
        max_request_iov: 4,
        ..DAT_EP_ATTR::zeroed()
    }
}

fn create(side: &Side, attr: &DAT_EP_ATTR) -> Result<DAT_EP_HANDLE, Error> {
    let Side { table, ia, pz, evd, .. } = *side;
    let mut ep = null_mut();
    dat!(table, ep_create_func(ia, pz, evd, evd, evd, attr, &mut ep)).map(|()| ep)
}

fn new_ep(side: &Side) -> DAT_EP_HANDLE {
    create(side, &attributes()).unwrap()
}

fn state(side: &Side, ep: DAT_EP_HANDLE) -> DAT_EP_STATE {
    let mut state = 0;
    dat!(side.table, ep_get_status_func(ep, &mut state, null_mut(), null_mut())).unwrap();
    state
}

fn connect_to(
    side: &Side,
    ep: DAT_EP_HANDLE,
    (ip, qualifier): (IpAddr, DAT_CONN_QUAL),
    private: &[u8],
    timeout: DAT_TIMEOUT,
) -> Result<(), Error> {
    let address = SockAddr::from(SocketAddr::new(ip, 0));
    let (size, data) = c_bytes(private);
    dat!(side.table, ep_connect_func(ep, address.as_ptr(), qualifier, timeout, size, data, 0, 0))
}

/// A request for the service of datagrams.
struct ArrivedRequest {
    cr: DAT_CR_HANDLE,
    arrival: DAT_CR_ARRIVAL_EVENT_DATA,
    private: Vec<u8>,
}

/// Takes the next event, which must be a request for datagrams.
fn request(side: &Side) -> ArrivedRequest {
    let event = side.next(side.cr_evd);
    assert_eq!(event.event_number, DAT_IB_UD_CONNECTION_REQUEST_EVENT);
    // SAFETY: the number of the event says that this member of the union is valid.
    let arrival = unsafe { event.event_data.cr_arrival_event_data };
    let data = extension(&event);
    assert_eq!((data.r#type, data.status), (DAT_IB_UD_CONNECT_REQUEST, DAT_OP_SUCCESS));
    let mut param = DAT_CR_PARAM::zeroed();
    dat!(side.table, cr_query_func(arrival.cr_handle, DAT_CR_FIELD_ALL, &mut param)).unwrap();
    let private = octets(param.private_data, param.private_data_size);
    ArrivedRequest { cr: arrival.cr_handle, arrival, private }
}

fn accept(side: &Side, cr: DAT_CR_HANDLE, ep: DAT_EP_HANDLE, private: &[u8]) -> Result<(), Error> {
    let (size, data) = c_bytes(private);
    dat!(side.table, cr_accept_func(cr, ep, size, data))
}

/// An event about a peer of a datagram endpoint.
struct PeerEvent {
    number: DAT_EVENT_NUMBER,
    ep: DAT_EP_HANDLE,
    private: Vec<u8>,
    what: DAT_IB_EXT_TYPE,
    status: DAT_IB_STATUS,
    peer: DAT_IB_ADDR_HANDLE,
    /// The number by which the peer knows this endpoint's queue pair.
    own_qpn: u32,
    context: u64,
}

/// Takes the next event, which must be about a peer.
fn peer_event(side: &Side) -> PeerEvent {
    let event = side.next(side.evd);
    let number = event.event_number;
    let numbers = DAT_IB_UD_CONNECTION_EVENT_ESTABLISHED..=DAT_IB_UD_CONNECTION_ERROR_EVENT;
    assert!(numbers.contains(&number), "{number:#x}");
    let data = extension(&event);
    // SAFETY: the number of the event says that these members of the unions are valid.
    let (connection, peer, context) =
        unsafe { (event.event_data.connect_event_data, data.detail.remote_ah, data.context.as_64) };
    // SAFETY: the member is an integer.
    let own_qpn = unsafe { data.val.immed.data };
    let private = octets(connection.private_data, connection.private_data_size);
    let (ep, what, status) = (connection.ep_handle, data.r#type, data.status);
    PeerEvent { number, ep, private, what, status, peer, own_qpn, context }
}

/// Takes the next event, which must say that the queue pair of a peer is known.
fn established(side: &Side) -> PeerEvent {
    let event = peer_event(side);
    assert_eq!(event.number, DAT_IB_UD_CONNECTION_EVENT_ESTABLISHED);
    event
}

fn extension(event: &DAT_EVENT) -> DAT_IB_EXTENSION_EVENT_DATA {
    let data = (&raw const event.event_extension_data).cast::<DAT_IB_EXTENSION_EVENT_DATA>();
    // SAFETY: all members are integers, unions of integers or pointers, and the words are
    // initialized.
    unsafe { data.read() }
}

fn octets(data: DAT_PVOID, size: DAT_COUNT) -> Vec<u8> {
    if size == 0 {
        assert!(data.is_null());
        return Vec::new();
    }
    // SAFETY: the pointer leads to as many octets as the size says.
    unsafe { std::slice::from_raw_parts(data.cast::<u8>(), size as usize) }.to_vec()
}

fn socket_addr(peer: &DAT_IB_ADDR_HANDLE) -> SocketAddr {
    let DAT_SOCK_ADDR6 { sin6_family, sin6_port, sin6_flowinfo, .. } = peer.ia_addr;
    assert_eq!(i32::from(sin6_family), libc::AF_INET);
    // In an IPv4 address, the address is where an IPv6 address has its flow information.
    SocketAddr::from((sin6_flowinfo.to_ne_bytes(), u16::from_be(sin6_port)))
}

fn nowhere() -> DAT_IB_ADDR_HANDLE {
    DAT_IB_ADDR_HANDLE::zeroed()
}

fn send(
    side: &Side,
    ep: DAT_EP_HANDLE,
    iov: &[DAT_LMR_TRIPLET],
    to: &DAT_IB_ADDR_HANDLE,
    (cookie, flags): (u64, DAT_COMPLETION_FLAGS),
) -> Result<(), Error> {
    let local = iov.as_ptr().expose_provenance() as u64;
    let args = [iov.len() as u64, local, word(to), cookie, flags.into()];
    extended(side.table, ep, DAT_IB_UD_SEND_OP, &args, 4)
}

fn send_immediate(
    side: &Side,
    ep: DAT_EP_HANDLE,
    iov: &[DAT_LMR_TRIPLET],
    to: &DAT_IB_ADDR_HANDLE,
    (immediate, flags): (u32, DAT_COMPLETION_FLAGS),
) -> Result<(), Error> {
    let local = iov.as_ptr().expose_provenance() as u64;
    let args = [iov.len() as u64, local, word(to), 77, immediate.into(), flags.into()];
    extended(side.table, ep, DAT_OPENDAT_POST_SEND_UD_IMMED_OP as DAT_IB_OP, &args, 4)
}

fn post_recv(side: &Side, ep: DAT_EP_HANDLE, mut segment: DAT_LMR_TRIPLET, of: u64) {
    dat!(side.table, ep_post_recv_func(ep, 1, &mut segment, cookie(of), 0)).unwrap();
}

fn free_private(side: &Side, ep: DAT_EP_HANDLE, context: u64) -> Result<(), Error> {
    extended(side.table, ep, DAT_IB_UD_CM_FREE_OP, &[context], 4)
}

fn free_address(side: &Side, ep: DAT_EP_HANDLE, address: &DAT_IB_ADDR_HANDLE) -> Result<(), Error> {
    extended(side.table, ep, DAT_IB_UD_AH_FREE_OP, &[word(address)], 4)
}

/// One side of a pair: an endpoint that knows the queue pair of another one.
#[derive(Clone, Copy)]
struct Peer {
    side: Side,
    ep: DAT_EP_HANDLE,
    other: DAT_IB_ADDR_HANDLE,
}

/// Creates two adapters, each with one endpoint that knows the other one.
fn pair(thread_safe: bool) -> [Peer; 2] {
    let (table, name) = mem(thread_safe);
    pair_of([Side::new(table, &name), Side::new(table, &name)], [&attributes(); 2])
}

fn pair_of([a, b]: [Side; 2], attributes: [&DAT_EP_ATTR; 2]) -> [Peer; 2] {
    let (x, y) = (create(&a, attributes[0]).unwrap(), create(&b, attributes[1]).unwrap());
    let other = introduce((&a, x), (&b, y));
    [Peer { side: a, ep: x, other: other[0] }, Peer { side: b, ep: y, other: other[1] }]
}

/// Lets two endpoints know each other. Returns for each the address of the other one.
fn introduce(
    (a, x): (&Side, DAT_EP_HANDLE),
    (b, y): (&Side, DAT_EP_HANDLE),
) -> [DAT_IB_ADDR_HANDLE; 2] {
    let (psp, qualifier) = b.new_psp(DAT_PSP_CONSUMER_FLAG);
    connect_to(a, x, (LOCALHOST, qualifier), b"", TEN_SECONDS).unwrap();
    accept(b, request(b).cr, y, b"").unwrap();
    dat!(b.table, psp_free_func(psp)).unwrap();
    [established(a).peer, established(b).peer]
}
