//! A provider that gives the handle of a freed endpoint to the next endpoint, while events of the
//! freed one are still queued. The standard permits this. OpenDAT's providers use a handle again as
//! late as possible. The provider also shows whether data are read that a reset has freed.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ptr::without_provenance_mut;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use dat::{
    Adapter, ConnectionEvent, DatagramPeer, Endpoint, ErrorKind, Event, EventDispatcher, Flags,
    Registry,
};
use dat_sys::ib::*;
use dat_sys::*;
use registry::{Api, Builtin, Builtins};

/// The private data of each event. They are overwritten when the endpoint is freed or reset, but
/// stay in memory, so that the test notices if they are read.
const PRIVATE_DATA: [u8; 4] = *b"data";
const FREED_DATA: [u8; 4] = *b"gone";

/// The handle of each object except endpoints, which the provider need not tell apart.
const OTHER_HANDLE: usize = 64;

/// An endpoint of the provider.
struct ProviderEndpoint {
    service: DAT_SERVICE_TYPE,
    private_data: *mut [u8; 4],
    is_connected: bool,
    /// The address handles that the endpoint has found out and not freed.
    addresses: Vec<usize>,
}

#[derive(Default)]
struct Provider {
    /// The handles of freed endpoints. The last one is used first.
    free_handles: Vec<usize>,
    endpoints: HashMap<usize, ProviderEndpoint>,
    events: VecDeque<DAT_EVENT>,
    /// The number of handles of endpoints and of addresses that were ever used.
    handles: usize,
}

// SAFETY: the pointers are to memory that is never freed, and a lock guards the provider.
unsafe impl Send for Provider {}

fn provider() -> MutexGuard<'static, Provider> {
    static PROVIDER: LazyLock<Mutex<Provider>> = LazyLock::new(Mutex::default);
    PROVIDER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a test the only one that uses the provider.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    *provider() = Provider::default();
    alone
}

impl Provider {
    fn new_handle(&mut self) -> usize {
        self.handles += 1;
        OTHER_HANDLE + 64 * self.handles
    }

    fn create(&mut self, service: DAT_SERVICE_TYPE) -> usize {
        let handle = self.free_handles.pop().unwrap_or_else(|| self.new_handle());
        let private_data = Box::into_raw(Box::new(PRIVATE_DATA));
        let (is_connected, addresses) = (false, vec![]);
        self.endpoints
            .insert(handle, ProviderEndpoint { service, private_data, is_connected, addresses });
        handle
    }

    /// Frees the private data of an endpoint that is not connected.
    fn reset(&mut self, handle: usize) -> DAT_RETURN {
        let endpoint = self.endpoints.get_mut(&handle).expect("the endpoint exists");
        if endpoint.is_connected {
            return DAT_ERROR(DAT_INVALID_STATE, DAT_INVALID_STATE_EP_CONNECTED);
        }
        let private_data = Box::into_raw(Box::new(PRIVATE_DATA));
        let freed = std::mem::replace(&mut endpoint.private_data, private_data);
        // SAFETY: the memory is never freed, and nobody else accesses it during this call.
        unsafe { freed.write(FREED_DATA) };
        DAT_SUCCESS
    }

    fn free(&mut self, handle: usize) {
        let endpoint = self.endpoints.remove(&handle).expect("each endpoint is freed once");
        // SAFETY: the memory is never freed, and nobody else accesses it during this call.
        unsafe { endpoint.private_data.write(FREED_DATA) };
        self.free_handles.push(handle);
    }

    /// A connection event.
    fn event(&self, handle: usize, number: DAT_EVENT_NUMBER) -> DAT_EVENT {
        let mut event = DAT_EVENT::zeroed();
        event.event_data.connect_event_data = DAT_CONNECTION_EVENT_DATA {
            ep_handle: without_provenance_mut(handle),
            private_data_size: PRIVATE_DATA.len() as DAT_COUNT,
            private_data: self.endpoints[&handle].private_data.cast(),
        };
        event.event_number = number;
        event
    }

    /// Queues the event that ends the connection of the endpoint.
    fn end(&mut self, handle: usize, number: DAT_EVENT_NUMBER) {
        let event = self.event(handle, number);
        self.endpoints.get_mut(&handle).expect("the endpoint exists").is_connected = false;
        self.events.push_back(event);
    }

    /// Queues the event that the endpoint has found its peer.
    fn connect(&mut self, handle: usize) {
        let address = self.new_handle();
        let mut event = self.event(handle, DAT_CONNECTION_EVENT_ESTABLISHED);
        let endpoint = self.endpoints.get_mut(&handle).expect("the endpoint exists");
        endpoint.is_connected = true;
        if endpoint.service == DAT_IB_SERVICE_TYPE_UD {
            endpoint.addresses.push(address);
            event.event_number = DAT_IB_UD_CONNECTION_EVENT_ESTABLISHED;
            let mut more = DAT_IB_EXTENSION_EVENT_DATA::zeroed();
            more.detail.remote_ah.ah = without_provenance_mut(address);
            let data = (&raw mut event.event_extension_data).cast::<DAT_IB_EXTENSION_EVENT_DATA>();
            // SAFETY: the data of the extension are shorter than their field in the event.
            unsafe { data.write_unaligned(more) };
        }
        self.events.push_back(event);
    }

    /// Checks that an endpoint gets an address handle that it has found out and not freed.
    fn addresses(&mut self, handle: usize, address: usize) -> &mut Vec<usize> {
        let endpoint = self.endpoints.get_mut(&handle).expect("the endpoint exists");
        assert!(endpoint.addresses.contains(&address), "the address handle must be valid");
        &mut endpoint.addresses
    }
}

unsafe extern "C" fn ia_open(
    _name: DAT_NAME_PTR,
    _min_qlen: DAT_COUNT,
    evd: *mut DAT_EVD_HANDLE,
    ia: *mut DAT_IA_HANDLE,
) -> DAT_RETURN {
    // SAFETY: the registry passes writable variables.
    unsafe {
        evd.write(without_provenance_mut(OTHER_HANDLE));
        ia.write(without_provenance_mut(OTHER_HANDLE));
    }
    DAT_SUCCESS
}

unsafe extern "C" fn ia_query<const EXTENSION: DAT_EXTENSION>(
    _ia: DAT_IA_HANDLE,
    _evd: *mut DAT_EVD_HANDLE,
    _ia_mask: DAT_IA_ATTR_MASK,
    ia_attr: *mut DAT_IA_ATTR,
    _provider_mask: DAT_PROVIDER_ATTR_MASK,
    provider_attr: *mut DAT_PROVIDER_ATTR,
) -> DAT_RETURN {
    let of_ia = DAT_IA_ATTR { extension_supported: EXTENSION, max_eps: 8, ..DAT_IA_ATTR::zeroed() };
    let of_provider = DAT_PROVIDER_ATTR {
        iov_ownership_on_return: DAT_IOV_CONSUMER,
        ..DAT_PROVIDER_ATTR::zeroed()
    };
    // SAFETY: the caller passes pointers to writable variables or NULL.
    unsafe {
        if !ia_attr.is_null() {
            ia_attr.write(of_ia);
        }
        if !provider_attr.is_null() {
            provider_attr.write(of_provider);
        }
    }
    DAT_SUCCESS
}

unsafe extern "C" fn ia_close(_ia: DAT_IA_HANDLE, _flags: DAT_CLOSE_FLAGS) -> DAT_RETURN {
    DAT_SUCCESS
}

unsafe extern "C" fn evd_create(
    _ia: DAT_IA_HANDLE,
    _min_qlen: DAT_COUNT,
    _cno: DAT_CNO_HANDLE,
    _flags: DAT_EVD_FLAGS,
    evd: *mut DAT_EVD_HANDLE,
) -> DAT_RETURN {
    // SAFETY: the caller passes a writable variable.
    unsafe { evd.write(without_provenance_mut(OTHER_HANDLE)) };
    DAT_SUCCESS
}

unsafe extern "C" fn evd_free(_evd: DAT_EVD_HANDLE) -> DAT_RETURN {
    DAT_SUCCESS
}

unsafe extern "C" fn evd_dequeue(_evd: DAT_EVD_HANDLE, event: *mut DAT_EVENT) -> DAT_RETURN {
    let Some(next) = provider().events.pop_front() else { return DAT_ERROR(DAT_QUEUE_EMPTY, 0) };
    // SAFETY: the caller passes a writable variable.
    unsafe { event.write(next) };
    DAT_SUCCESS
}

unsafe extern "C-unwind" fn evd_wait(
    evd: DAT_EVD_HANDLE,
    _timeout: DAT_TIMEOUT,
    _threshold: DAT_COUNT,
    event: *mut DAT_EVENT,
    more: *mut DAT_COUNT,
) -> DAT_RETURN {
    // SAFETY: the caller passes writable variables.
    unsafe {
        let status = evd_dequeue(evd, event);
        more.write(provider().events.len() as DAT_COUNT);
        status
    }
}

unsafe extern "C" fn ep_create(
    _ia: DAT_IA_HANDLE,
    _pz: DAT_PZ_HANDLE,
    _receives: DAT_EVD_HANDLE,
    _requests: DAT_EVD_HANDLE,
    _connections: DAT_EVD_HANDLE,
    attr: *const DAT_EP_ATTR,
    ep: *mut DAT_EP_HANDLE,
) -> DAT_RETURN {
    // SAFETY: the caller passes a readable and a writable variable.
    unsafe { ep.write(without_provenance_mut(provider().create((*attr).service_type))) };
    DAT_SUCCESS
}

unsafe extern "C" fn ep_free(ep: DAT_EP_HANDLE) -> DAT_RETURN {
    provider().free(ep.addr());
    DAT_SUCCESS
}

unsafe extern "C" fn ep_reset(ep: DAT_EP_HANDLE) -> DAT_RETURN {
    provider().reset(ep.addr())
}

unsafe extern "C" fn ep_connect(
    ep: DAT_EP_HANDLE,
    _address: DAT_IA_ADDRESS_PTR,
    _qualifier: DAT_CONN_QUAL,
    _timeout: DAT_TIMEOUT,
    _private_data_size: DAT_COUNT,
    _private_data: DAT_PVOID,
    _qos: DAT_QOS,
    _flags: DAT_CONNECT_FLAGS,
) -> DAT_RETURN {
    provider().connect(ep.addr());
    DAT_SUCCESS
}

unsafe extern "C" fn extension_op(
    handle: DAT_HANDLE,
    op: DAT_EXTENDED_OP,
    arguments: DAT_VA_LIST,
) -> DAT_RETURN {
    let mut provider = provider();
    // SAFETY: the arguments are those of the operation, and addresses are readable.
    unsafe {
        let arguments = &mut *arguments.cast::<VaList>();
        let address = |word: u64| {
            let of_peer = std::ptr::with_exposed_provenance::<DAT_IB_ADDR_HANDLE>(word as usize);
            (*of_peer).ah.addr()
        };
        match op as DAT_IB_OP {
            DAT_IB_UD_SEND_OP => {
                let [_count, _segments, to] = [(); 3].map(|()| arguments.next());
                provider.addresses(handle.addr(), address(to));
            }
            DAT_IB_UD_AH_FREE_OP => {
                let address = address(arguments.next());
                provider.addresses(handle.addr(), address).retain(|one| *one != address);
            }
            DAT_IB_UD_CM_FREE_OP => {}
            _ => return DAT_ERROR(DAT_NOT_IMPLEMENTED, 0),
        }
    }
    DAT_SUCCESS
}

/// The functions of an adapter with this extension.
const fn table<const EXTENSION: DAT_EXTENSION>() -> DAT_PROVIDER {
    DAT_PROVIDER {
        device_name: c"again".as_ptr(),
        ia_open_func: Some(ia_open),
        ia_query_func: Some(ia_query::<EXTENSION>),
        ia_close_func: Some(ia_close),
        evd_create_func: Some(evd_create),
        evd_free_func: Some(evd_free),
        evd_dequeue_func: Some(evd_dequeue),
        evd_wait_func: Some(evd_wait),
        ep_create_func: Some(ep_create),
        ep_free_func: Some(ep_free),
        ep_connect_func: Some(ep_connect),
        ep_reset_func: Some(ep_reset),
        handle_extendedop_func: Some(extension_op),
        ..DAT_PROVIDER::zeroed()
    }
}

static TABLE: DAT_PROVIDER = table::<DAT_EXTENSION_IB>();
static PLAIN_TABLE: DAT_PROVIDER = table::<DAT_EXTENSION_NONE>();

static REGISTRY: Registry = Registry::new(Builtins {
    adapters: &[&[
        Builtin { name: "again", params: "", table: |_, _| Ok(&raw const TABLE), discover: None },
        Builtin {
            name: "plain",
            params: "",
            table: |_, _| Ok(&raw const PLAIN_TABLE),
            discover: None,
        },
    ]],
    api: Api::U2_0,
    threadsafe: &[false],
});

fn connect(endpoint: &mut Endpoint) {
    let address = "127.0.0.1".parse().expect("an address");
    endpoint.connect(address, 1, b"", None).expect("the attempt begins");
}

fn peer(events: &mut EventDispatcher) -> DatagramPeer {
    events.wait(None).expect("an event").peer().expect("a peer")
}

fn send(endpoint: &mut Endpoint, to: &DatagramPeer) -> dat::Result<()> {
    endpoint.post_datagram(&[], to, 1, Flags::default())
}

/// Takes the next event of a connection. The queue is not found empty meanwhile.
fn connection(events: &mut EventDispatcher) -> ConnectionEvent {
    match events.dequeue().expect("no error") {
        Some(Event::Connection { event, .. }) => event,
        other => panic!("expected an event of a connection, got {other:?}"),
    }
}

fn established(private_data: &[u8]) -> ConnectionEvent {
    ConnectionEvent::Established { private_data: private_data.to_vec() }
}

fn rejected(private_data: &[u8]) -> ConnectionEvent {
    ConnectionEvent::PeerRejected { private_data: private_data.to_vec() }
}

#[test]
fn private_data_are_not_read_after_a_reset() {
    let _alone = alone();
    let adapter = Adapter::open_in(&REGISTRY, "again").expect("the adapter opens");
    let mut events = adapter.dispatcher(8).expect("a dispatcher");
    let mut endpoint = adapter.endpoint().connections(&events).create().expect("an endpoint");
    let handle = OTHER_HANDLE + 64;

    // Nothing of the first connection was taken, and of the second one the end was not taken.
    connect(&mut endpoint);
    provider().end(handle, DAT_CONNECTION_EVENT_DISCONNECTED);
    endpoint.reset().expect("the endpoint is disconnected");
    connect(&mut endpoint);
    assert_eq!(connection(&mut events), established(b""));
    assert_eq!(connection(&mut events), ConnectionEvent::Disconnected);
    assert_eq!(connection(&mut events), established(&PRIVATE_DATA));
    provider().end(handle, DAT_CONNECTION_EVENT_PEER_REJECTED);
    endpoint.reset().expect("the endpoint is disconnected");
    connect(&mut endpoint);
    assert_eq!(connection(&mut events), rejected(b""));

    // A reset that fails frees nothing.
    let refused = endpoint.reset().map_err(|error| error.kind());
    assert_eq!(refused, Err(ErrorKind::InvalidState));
    assert_eq!(connection(&mut events), established(&PRIVATE_DATA));

    // All events were taken before the reset.
    provider().end(handle, DAT_CONNECTION_EVENT_PEER_REJECTED);
    assert_eq!(connection(&mut events), rejected(&PRIVATE_DATA));
    endpoint.reset().expect("the endpoint is disconnected");
    endpoint.reset().expect("the endpoint is unconnected");
    connect(&mut endpoint);
    assert_eq!(connection(&mut events), established(&PRIVATE_DATA));
}

#[test]
fn handles_are_used_again_although_the_queue_is_never_empty() {
    let _alone = alone();
    let adapter = Adapter::open_in(&REGISTRY, "again").expect("the adapter opens");
    let mut events = adapter.dispatcher(8).expect("a dispatcher");
    let create = |events: &EventDispatcher| {
        adapter.endpoint().connections(events).create().expect("an endpoint")
    };
    let mut first = create(&events);
    connect(&mut first);
    for _ in 0..100 {
        let mut endpoint = create(&events);
        connect(&mut endpoint);
        drop(endpoint);
        connection(&mut events);
    }
    let mut ids = HashSet::new();
    for _ in 0..100 {
        let mut endpoint = create(&events);
        ids.insert(endpoint.id());
        connect(&mut endpoint);
        drop(endpoint);
        connection(&mut events);
    }
    assert!(!provider().events.is_empty());
    assert!(ids.len() <= 3, "{} handles for one endpoint at a time", ids.len());

    // An endpoint without a connection has no events.
    let before = create(&events).id();
    assert_eq!(create(&events).id(), before);
}

#[test]
fn the_numbers_of_the_ib_extension_may_have_another_meaning() {
    let _alone = alone();
    let adapter = Adapter::open_in(&REGISTRY, "plain").expect("the adapter opens");
    let mut events = adapter.dispatcher(8).expect("a dispatcher");
    for number in [DAT_IB_DTO_EVENT, DAT_IB_UD_CONNECTION_EVENT_ESTABLISHED] {
        provider().events.push_back(DAT_EVENT { event_number: number, ..DAT_EVENT::zeroed() });
        let event = events.dequeue().expect("no error");
        assert!(matches!(event, Some(Event::Other(other)) if other == number), "{event:?}");
    }
}

#[test]
fn what_an_event_points_to_is_read_only_while_its_endpoint_exists() {
    let _alone = alone();
    let adapter = Adapter::open_in(&REGISTRY, "again").expect("the adapter opens");
    let mut events = adapter.dispatcher(8).expect("a dispatcher");

    // Datagrams: the events of the first endpoint are taken while the second one exists.
    let builder = || adapter.endpoint().datagrams().connections(&events);
    let mut first = builder().create().expect("an endpoint");
    let first_id = first.id();
    connect(&mut first);
    connect(&mut first);
    drop(first);
    let mut second = builder().create().expect("an endpoint");
    assert_ne!(second.id(), first_id, "an event of the first endpoint is queued");
    assert_eq!(provider().endpoints.len(), 1, "the one with the old handle was freed again");
    connect(&mut second);
    for _ in 0..2 {
        let stale = peer(&mut events);
        assert_eq!((stale.endpoint(), stale.private_data()), (first_id, &b""[..]));
        let refused = send(&mut second, &stale).map_err(|error| error.kind());
        assert_eq!(refused, Err(ErrorKind::InvalidParameter));
    }
    let of_second = peer(&mut events);
    assert_eq!(of_second.endpoint(), second.id());
    assert_eq!(of_second.private_data(), PRIVATE_DATA);
    send(&mut second, &of_second).expect("the post succeeds");
    second.forget(of_second).expect("the peer is forgotten");

    // The wait has found the queue empty, so the handle is used again. A peer of the first endpoint
    // does not become one of the third, which has the same handle.
    let builder = || adapter.endpoint().datagrams().connections(&events);
    let mut third = builder().create().expect("an endpoint");
    assert_eq!(third.id(), first_id);
    connect(&mut third);
    let of_third = peer(&mut events);
    drop(third);
    assert!(events.dequeue().expect("no error").is_none());
    let mut fourth = adapter.endpoint().datagrams().connections(&events).create().expect("one");
    assert_eq!(fourth.id(), of_third.endpoint(), "the fourth has the handle of the third");
    let refused = send(&mut fourth, &of_third).map_err(|error| error.kind());
    assert_eq!(refused, Err(ErrorKind::InvalidParameter));
    drop((second, fourth));

    // Connections.
    let mut connected = adapter.endpoint().connections(&events).create().expect("an endpoint");
    connect(&mut connected);
    match events.wait(None).expect("an event") {
        Event::Connection { event: ConnectionEvent::Established { private_data }, .. } => {
            assert_eq!(private_data, PRIVATE_DATA);
        }
        other => panic!("expected that the connection is established, got {other:?}"),
    }
    connect(&mut connected);
    drop(connected);
    match events.wait(None).expect("an event") {
        Event::Connection { event: ConnectionEvent::Established { private_data }, .. } => {
            assert_eq!(private_data, b"", "they are gone");
        }
        other => panic!("expected that the connection is established, got {other:?}"),
    }
    assert!(provider().endpoints.is_empty());
}
