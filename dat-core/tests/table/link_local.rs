//! Connections and datagrams between two hosts by IPv6 addresses that need care: link-local
//! addresses, which exist on each interface of a host, and IPv4-mapped addresses.

use std::net::SocketAddr;
use std::process::Command;
use std::ptr::null_mut;
use std::sync::mpsc::{Sender, channel};

use address::interface_index;
use dat_core::Error;
use dat_core::addr::{SockAddr, parse};
use dat_core::provider::Provider;
use dat_sys::ib::*;
use dat_sys::*;

use crate::client::{Lmr, Side, TEN_SECONDS, cookie, dat, extended, register, unique, word};

/// The devices of both hosts, with the address of the near and of the far host. Both devices of the
/// near host have the same address, as a network device and its VLANs have.
const WIRES: [(&str, &str, &str); 2] =
    [("wire", "fe80::1", "fe80::2"), ("cable", "fe80::1", "fe80::3")];

/// How an adapter of the near host calls the far host.
struct Case {
    /// The parameters of the near adapter.
    params: &'static str,
    /// The peer's address without its scope.
    peer: &'static str,
    /// The device whose index is the scope of the peer's address, if it has a scope.
    scope: Option<&'static str>,
    /// The address from which the call comes, as the far host sees it, with its device if it is a
    /// link-local address. `None` if the call is refused because the address has no scope.
    from: Option<(&'static str, Option<&'static str>)>,
}

const fn case(
    params: &'static str,
    (peer, scope): (&'static str, Option<&'static str>),
    from: Option<(&'static str, Option<&'static str>)>,
) -> Case {
    Case { params, peer, scope, from }
}

const CASES: &[Case] = &[
    case("", ("fe80::2", Some("wire")), Some(("fe80::1", Some("wire")))),
    case("", ("fe80::3", Some("cable")), Some(("fe80::1", Some("cable")))),
    case("", ("fe80::2", None), None),
    case("fe80::1%wire", ("fe80::2", Some("wire")), Some(("fe80::1", Some("wire")))),
    case("fe80::1%wire", ("fe80::2", None), Some(("fe80::1", Some("wire")))),
    case("[fe80::1%cable]", ("fe80::3", None), Some(("fe80::1", Some("cable")))),
    case("fd49::1", ("fe80::2", None), Some(("fd49::1", None))),
    case("fd49::1", ("fd49::2", Some("wire")), Some(("fd49::1", None))),
    case("", ("::ffff:10.49.0.2", None), Some(("10.49.0.1", None))),
    case("::ffff:10.49.0.1", ("10.49.0.2", None), Some(("10.49.0.1", None))),
];

/// A service, with the numbers of its events.
pub(crate) struct Service {
    kind: DAT_SERVICE_TYPE,
    request: DAT_EVENT_NUMBER,
    established: DAT_EVENT_NUMBER,
}

pub(crate) const CONNECTIONS: Service = Service {
    kind: DAT_SERVICE_TYPE_RC,
    request: DAT_CONNECTION_REQUEST_EVENT,
    established: DAT_CONNECTION_EVENT_ESTABLISHED,
};
#[allow(dead_code)] // Not every provider has datagrams.
pub(crate) const DATAGRAMS: Service = Service {
    kind: DAT_IB_SERVICE_TYPE_UD,
    request: DAT_IB_UD_CONNECTION_REQUEST_EVENT,
    established: DAT_IB_UD_CONNECTION_EVENT_ESTABLISHED,
};

/// Runs every case, unless the process cannot have two networks of its own.
pub(crate) fn peers_are_found_by_any_form_of_their_address<P: Provider + Default>(
    service: &'static Service,
) {
    if let Err(why) = own_network_is_possible() {
        println!("SKIP: {why}");
        return;
    }
    let [near, far] = connected_hosts();
    for case in CASES {
        let what = format!("{:?} calls {}%{:?}", case.params, case.peer, case.scope);
        let (server, qualifier) = far.run(|| {
            let server = open::<P>("");
            let (_, qualifier) = server.new_psp(DAT_PSP_CONSUMER_FLAG);
            (server, qualifier)
        });
        let call = near.run(move || {
            let client = open::<P>(case.params);
            let ep = Endpoint::new(client, service);
            let called = connect(client, ep, case.address(), qualifier);
            (client, ep, called)
        });
        let (client, ep, called) = call;
        match case.from {
            None => {
                let malformed = Error::new(DAT_INVALID_ADDRESS, DAT_INVALID_ADDRESS_MALFORMED);
                assert_eq!(called, Err(malformed), "{what}");
            }
            Some((from, device)) => {
                assert_eq!(called, Ok(()), "{what}");
                let (accepted, caller, scope) = far.run(move || {
                    let (ep, caller) = accept(server, service);
                    (ep, caller, device.map(index_of))
                });
                assert_eq!(caller.ip().to_string(), from, "{what}");
                assert_eq!(scope_of(caller), scope.unwrap_or(0), "{what}");
                let to_far = near.run(move || peer_handle(client, service));
                let peer = near.run(move || (peer_of(client, ep), case.address()));
                assert_eq!(peer.0.ip(), peer.1.ip().to_canonical(), "{what}");
                let to_near = far.run(move || peer_handle(server, service));
                if service.kind == DAT_IB_SERVICE_TYPE_UD {
                    near.run(move || post_datagram(client, ep, to_far));
                    far.run(move || take_datagram(server));
                    far.run(move || post_datagram(server, accepted, to_near));
                    near.run(move || take_datagram(client));
                }
            }
        }
        near.run(move || client.close());
        far.run(move || server.close());
    }
}

impl Case {
    fn address(&self) -> SocketAddr {
        let mut address = SocketAddr::new(self.peer.parse().unwrap(), 0);
        if let (SocketAddr::V6(v6), Some(device)) = (&mut address, self.scope) {
            v6.set_scope_id(index_of(device));
        }
        address
    }
}

/// The handle of an endpoint.
#[derive(Clone, Copy)]
struct Endpoint(DAT_EP_HANDLE);

impl Endpoint {
    /// Creates an endpoint. An endpoint for datagrams has a receive of one datagram without data.
    fn new(side: Side, service: &Service) -> Endpoint {
        if service.kind != DAT_IB_SERVICE_TYPE_UD {
            return Endpoint(side.new_ep());
        }
        let attr = DAT_EP_ATTR {
            service_type: service.kind,
            max_message_size: 256,
            max_recv_dtos: 4,
            max_request_dtos: 4,
            max_recv_iov: 1,
            max_request_iov: 1,
            recv_completion_flags: DAT_COMPLETION_EVD_THRESHOLD_FLAG,
            request_completion_flags: DAT_COMPLETION_EVD_THRESHOLD_FLAG,
            ..DAT_EP_ATTR::zeroed()
        };
        let (mut ep, Side { table, ia, pz, evd, .. }) = (null_mut(), side);
        dat!(table, ep_create_func(ia, pz, evd, evd, evd, &attr, &mut ep)).unwrap();
        let lmr: Lmr = side.register(vec![0; HEADER as usize].leak());
        let mut segment = lmr.local(0, HEADER);
        dat!(table, ep_post_recv_func(ep, 1, &mut segment, cookie(1), 0)).unwrap();
        Endpoint(ep)
    }
}

/// The number of octets before each datagram in a receive buffer.
const HEADER: u32 = 40;

// SAFETY: handles may be used from any thread if the table is thread-safe, as here.
unsafe impl Send for Endpoint {}

/// The handle of a peer, to which datagrams are sent.
#[derive(Clone, Copy)]
struct Peer(DAT_IB_ADDR_HANDLE);

// SAFETY: as for endpoints.
unsafe impl Send for Peer {}

fn open<P: Provider + Default>(params: &str) -> Side {
    let name = unique("link-local");
    Side::new(register::<P>(&name, params, true), &name)
}

fn connect(
    client: Side,
    ep: Endpoint,
    to: SocketAddr,
    qualifier: DAT_CONN_QUAL,
) -> Result<(), Error> {
    let (to, qos, flags) = (SockAddr::from(to), DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG);
    dat!(
        client.table,
        ep_connect_func(ep.0, to.as_ptr(), qualifier, TEN_SECONDS, 0, null_mut(), qos, flags)
    )
}

/// Accepts a request, and returns the endpoint and the address of the caller.
fn accept(server: Side, service: &Service) -> (Endpoint, SocketAddr) {
    let event = server.next(server.cr_evd);
    assert_eq!(event.event_number, service.request);
    // SAFETY: the number of the event says that this member of the union is valid.
    let request = unsafe { event.event_data.cr_arrival_event_data }.cr_handle;
    let mut param = DAT_CR_PARAM::zeroed();
    dat!(server.table, cr_query_func(request, DAT_CR_FIELD_ALL, &mut param)).unwrap();
    // SAFETY: the address is valid until the request is answered.
    let caller = unsafe { parse(param.remote_ia_address_ptr) }.unwrap();
    let ep = Endpoint::new(server, service);
    dat!(server.table, cr_accept_func(request, ep.0, 0, null_mut())).unwrap();
    (ep, caller)
}

/// Takes the next event, which must say that the peer has accepted or is known. Returns the handle
/// by which datagrams are sent to the peer.
fn peer_handle(side: Side, service: &Service) -> Peer {
    let event = side.next(side.evd);
    assert_eq!(event.event_number, service.established);
    let data = (&raw const event.event_extension_data).cast::<DAT_IB_EXTENSION_EVENT_DATA>();
    // SAFETY: all members are integers, unions of integers or pointers, and the words are
    // initialized.
    Peer(unsafe { data.read().detail.remote_ah })
}

/// Sends a datagram without data, and waits until it is sent.
fn post_datagram(side: Side, from: Endpoint, to: Peer) {
    let args = [0, 0, word(&to.0), 2, 0];
    extended(side.table, from.0, DAT_IB_UD_SEND_OP, &args, 4).unwrap();
    let sent = datagram_completion(side);
    assert_eq!((sent.status, sent.transfered_length), (DAT_DTO_SUCCESS, 0));
}

/// Waits for a datagram without data.
fn take_datagram(side: Side) {
    let received = datagram_completion(side);
    assert_eq!((received.status, received.transfered_length), (DAT_DTO_SUCCESS, HEADER));
}

fn datagram_completion(side: Side) -> DAT_DTO_COMPLETION_EVENT_DATA {
    let event = side.next(side.evd);
    assert_eq!(event.event_number, DAT_IB_DTO_EVENT);
    // SAFETY: the number of the event says that this member of the union is valid.
    unsafe { event.event_data.dto_completion_event_data }
}

fn peer_of(client: Side, ep: Endpoint) -> SocketAddr {
    let mut param = DAT_EP_PARAM::zeroed();
    dat!(client.table, ep_query_func(ep.0, DAT_EP_FIELD_ALL, &mut param)).unwrap();
    // SAFETY: the address is valid while the endpoint exists.
    unsafe { parse(param.remote_ia_address_ptr) }.unwrap()
}

fn scope_of(address: SocketAddr) -> u32 {
    if let SocketAddr::V6(v6) = address { v6.scope_id() } else { 0 }
}

/// Returns the index of a device on the host of the calling thread.
fn index_of(device: &str) -> u32 {
    interface_index(device).expect("the host has the device")
}

/// A host: a thread with a network namespace of its own. The thread ends with the value.
struct Host(Sender<Box<dyn FnOnce() + Send>>);

impl Host {
    fn new() -> Host {
        let (jobs, next) = channel::<Box<dyn FnOnce() + Send>>();
        std::thread::spawn(move || next.into_iter().for_each(|job| job()));
        let host = Host(jobs);
        host.run(|| {
            // SAFETY: the call accesses no memory, and changes the network of this thread only.
            assert_eq!(unsafe { libc::syscall(libc::SYS_unshare, libc::CLONE_NEWNET) }, 0);
            ip("link set lo up");
        });
        host
    }

    /// Runs a function on the host and returns its result.
    fn run<R: Send + 'static>(&self, job: impl FnOnce() -> R + Send + 'static) -> R {
        let (result, done) = channel();
        self.0.send(Box::new(move || drop(result.send(job())))).expect("the thread runs");
        done.recv().expect("the job does not panic")
    }
}

/// Whether a thread can have a network of its own with veth devices: it needs the capabilities
/// CAP_SYS_ADMIN and CAP_NET_ADMIN, iproute2, and a kernel with these devices. The error says what
/// is missing.
fn own_network_is_possible() -> Result<(), String> {
    let probe = || {
        // SAFETY: the call accesses no memory, and changes the network of this thread only.
        if unsafe { libc::syscall(libc::SYS_unshare, libc::CLONE_NEWNET) } != 0 {
            let why = std::io::Error::last_os_error();
            return Err(format!("no network of its own (it needs CAP_SYS_ADMIN): {why}"));
        }
        match Command::new("ip").args(["link", "add", "type", "veth"]).output() {
            Ok(done) if done.status.success() => Ok(()),
            Ok(done) => {
                let why = String::from_utf8_lossy(&done.stderr).trim_end().to_owned();
                Err(format!("no veth devices (they need CAP_NET_ADMIN): {why}"))
            }
            Err(why) => Err(format!("no ip (package iproute2): {why}")),
        }
    };
    std::thread::spawn(probe).join().expect("the probe does not panic")
}

/// Creates two hosts with wires between them.
fn connected_hosts() -> [Host; 2] {
    let [near, far] = [Host::new(), Host::new()];
    // SAFETY: gettid has no arguments.
    let far_thread = far.run(|| unsafe { libc::gettid() });
    near.run(move || {
        for (device, ..) in WIRES {
            ip(&format!("link add {device} type veth peer name {device} netns {far_thread}"));
        }
    });
    for (host, number) in [(&near, 1), (&far, 2)] {
        host.run(move || {
            for (device, near, far) in WIRES {
                let link_local = if number == 1 { near } else { far };
                // The kernel adds no address of its own, which would not be usable at once.
                ip(&format!("link set {device} addrgenmode none"));
                ip(&format!("addr add {link_local}/64 dev {device} nodad"));
                ip(&format!("link set {device} up"));
            }
            ip(&format!("addr add fd49::{number}/64 dev wire nodad"));
            ip(&format!("addr add 10.49.0.{number}/24 dev wire"));
        });
    }
    [near, far]
}

fn ip(arguments: &str) {
    let done = Command::new("ip").args(arguments.split(' ')).status();
    assert!(done.expect("iproute2 is installed").success(), "ip {arguments}");
}
