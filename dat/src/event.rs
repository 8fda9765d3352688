//! The events that a dispatcher reports.

use std::fmt;
use std::sync::Arc;

use dat_sys::ib::*;
use dat_sys::*;

use crate::datagrams::DatagramPeer;
use crate::endpoint::EndpointId;
use crate::listener::ConnectionRequest;
use crate::object::Interface;
use crate::owners::EventOwners;

/// An event.
///
/// ```no_run
/// use dat::{ConnectionEvent, Event};
///
/// # fn take(events: &mut dat::EventDispatcher) -> dat::Result<()> {
/// match events.wait(None)? {
///     Event::Completion(completion) => println!("{} is done", completion.cookie),
///     Event::ConnectionRequest(request) => request.reject(b"not today")?,
///     Event::Connection { event: ConnectionEvent::Established { .. }, .. } => println!("connected"),
///     other => println!("{other}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A posted operation has completed.
    Completion(Completion),
    /// A peer has called a listener. Dropping the request rejects it.
    ConnectionRequest(ConnectionRequest),
    /// A connection was established, was not established, or ended. The event has no private data
    /// if its endpoint was dropped or reset before the event was taken.
    Connection {
        /// The endpoint of the connection.
        endpoint: EndpointId,
        /// What happened to the connection.
        event: ConnectionEvent,
    },
    /// A datagram endpoint can send to one more peer.
    Peer(DatagramPeer),
    /// A failure that belongs to no request.
    Asynchronous(AsynchronousError),
    /// Another event, by its number. Such events come from C programs or from extensions of the
    /// provider.
    Other(DAT_EVENT_NUMBER),
}

impl Event {
    /// Converts an event from C.
    ///
    /// # Safety
    ///
    /// The provider of this interface must have just filled in the event, which a dispatcher with
    /// these `owners` has reported.
    #[inline]
    pub(crate) unsafe fn decode(
        event: &DAT_EVENT,
        interface: &Arc<Interface>,
        owners: &EventOwners,
    ) -> Self {
        if event.event_number == DAT_DTO_COMPLETION_EVENT {
            // SAFETY: the event number selects this member.
            return Event::Completion(Completion::new(unsafe {
                &event.event_data.dto_completion_event_data
            }));
        }
        // Another extension may use the numbers of the IB extension for events of its own.
        if event.event_number == DAT_IB_DTO_EVENT && interface.attributes.extended {
            // SAFETY: this is the event number that the function needs, the adapter has the IB
            // extension, and the caller guarantees the rest.
            return Event::Completion(unsafe { Completion::new_extended(event) });
        }
        // SAFETY: the caller fulfils the contract of this function.
        unsafe { Self::decode_rare(event, interface, owners) }
    }

    /// Converts an event of a rare kind from C.
    ///
    /// # Safety
    ///
    /// The caller must ensure the same as for [`decode`](Self::decode).
    #[cold]
    unsafe fn decode_rare(
        event: &DAT_EVENT,
        interface: &Arc<Interface>,
        owners: &EventOwners,
    ) -> Self {
        let data = &event.event_data;
        let number = event.event_number;
        // As in `decode`, another extension may use the same numbers.
        let is_extended = interface.attributes.extended;
        if number == DAT_CONNECTION_REQUEST_EVENT
            || is_extended && number == DAT_IB_UD_CONNECTION_REQUEST_EVENT
        {
            // SAFETY: the event number selects this member. From now on this value owns the
            // request.
            return Event::ConnectionRequest(unsafe {
                ConnectionRequest::new(interface, &data.cr_arrival_event_data)
            });
        }
        if let Some(what) = ConnectionKind::of(number, is_extended) {
            // SAFETY: the event number selects this member.
            let data = unsafe { data.connect_event_data };
            let read = |is_readable| match is_readable {
                // SAFETY: the private data are valid until the endpoint is reset or freed (uDAPL
                // 1.2, dat_evd_wait). Neither has happened, and neither happens during this call.
                true => unsafe { private_data(data.private_data, data.private_data_size) },
                false => Vec::new(),
            };
            let private = owners.with_connection(data.ep_handle, is_end(number), read);
            return Event::Connection {
                endpoint: EndpointId(data.ep_handle.addr()),
                event: what.with(private),
            };
        }
        if is_extended && number == DAT_IB_UD_CONNECTION_EVENT_ESTABLISHED {
            // SAFETY: this is the event number that the function needs, and the caller guarantees
            // the rest.
            return Event::Peer(unsafe { DatagramPeer::read(event, owners) });
        }
        AsynchronousError::of(number).map_or(Event::Other(number), Event::Asynchronous)
    }
}

/// Copies private data that belong to the provider.
///
/// # Safety
///
/// `start` must point to `size` bytes, unless it is null or `size` is not positive.
pub(crate) unsafe fn private_data(start: DAT_PVOID, size: DAT_COUNT) -> Vec<u8> {
    match usize::try_from(size) {
        // SAFETY: the caller guarantees that `start` points to `size` bytes.
        Ok(size) if size > 0 && !start.is_null() => unsafe {
            std::slice::from_raw_parts(start.cast::<u8>(), size).to_vec()
        },
        _ => Vec::new(),
    }
}

/// The completion of a posted operation.
///
/// ```no_run
/// # fn take(events: &mut dat::EventDispatcher) -> Result<(), Box<dyn std::error::Error>> {
/// let completion = events.wait(None)?.completion()?;
/// println!("{} {}: {} bytes", completion.operation, completion.cookie, completion.length);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The endpoint of the operation.
    pub endpoint: EndpointId,
    /// The cookie of the post.
    pub cookie: u64,
    /// The kind of operation.
    pub operation: Operation,
    /// The result of the operation.
    pub status: Status,
    /// The number of bytes transferred. 0 if the operation was not successful.
    pub length: u32,
    /// The immediate data of the peer's
    /// [`post_write_immediate`](crate::Endpoint::post_write_immediate), or of its datagram.
    pub immediate: Option<u32>,
}

impl Completion {
    #[inline]
    fn new(data: &DAT_DTO_COMPLETION_EVENT_DATA) -> Self {
        let status = Status::of(data.status);
        Completion {
            endpoint: EndpointId(data.ep_handle.addr()),
            // SAFETY: all members of the union have 64 bits, and any bits are a valid number.
            cookie: unsafe { data.user_cookie.as_64 },
            operation: Operation::of(data.operation),
            status,
            // The length of a failed operation is undefined (uDAPL 1.2, dat_ep_post_send).
            length: if status == Status::Success { data.transfered_length } else { 0 },
            immediate: None,
        }
    }

    /// Converts the completion of an extended operation from C.
    ///
    /// # Safety
    ///
    /// The event must be `DAT_IB_DTO_EVENT` of a provider with the IB extension, which must have
    /// just filled it in.
    #[inline]
    unsafe fn new_extended(event: &DAT_EVENT) -> Self {
        // SAFETY: the event number, which the caller vouches for, selects these members. The
        // extension's data are shorter than their field, which is sufficiently aligned.
        let (completion, more) = unsafe {
            let more =
                (&raw const event.event_extension_data).cast::<DAT_IB_EXTENSION_EVENT_DATA>();
            (Completion::new(&event.event_data.dto_completion_event_data), &*more)
        };
        let arrived = matches!(more.r#type, DAT_IB_RDMA_WRITE_IMMED_DATA | DAT_IB_RECV_IMMED_DATA)
            || completion.operation == Operation::ReceiveDatagramImmediate;
        // SAFETY: the type or the operation selects this member, and any bits are a valid number.
        let immediate = if arrived { Some(unsafe { more.val.immed.data }) } else { None };
        Completion { immediate, ..completion }
    }
}

macro_rules! numbers {
    ($(#[$doc:meta])* $type:ident of $c:ident, other: $other:literal;
     $($name:ident = $value:ident: $description:literal,)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $type {
            $(#[doc = concat!("`", stringify!($value), "`: ", $description, ".")] $name,)*
            /// A value that the standard does not define.
            Other($c),
        }

        impl $type {
            #[inline]
            fn of(value: $c) -> Self {
                match value {
                    $($value => $type::$name,)*
                    other => $type::Other(other),
                }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $($type::$name => f.write_str($description),)*
                    $type::Other(value) => write!(f, concat!($other, " {}"), value),
                }
            }
        }
    };
}

numbers! {
    /// The status of a posted operation. It is displayed as a description.
    ///
    /// ```
    /// assert_eq!(dat::Status::ReceiverNotReady.to_string(), "the peer has no receive posted");
    /// ```
    Status of DAT_DTO_COMPLETION_STATUS, other: "completion status";
    Success = DAT_DTO_SUCCESS: "done",
    Flushed = DAT_DTO_ERR_FLUSHED: "not performed: the connection ended first",
    LocalLength = DAT_DTO_ERR_LOCAL_LENGTH: "the buffer is too short",
    LocalEndpoint = DAT_DTO_ERR_LOCAL_EP: "the local endpoint failed",
    LocalProtection = DAT_DTO_ERR_LOCAL_PROTECTION: "the local memory does not grant this access \
        (register it with local access)",
    BadResponse = DAT_DTO_ERR_BAD_RESPONSE: "the peer sent an invalid response",
    RemoteAccess = DAT_DTO_ERR_REMOTE_ACCESS: "the peer's memory does not grant this access (the \
                                               peer must register it with remote access)",
    RemoteResponder = DAT_DTO_ERR_REMOTE_RESPONDER: "the peer could not perform the operation",
    Transport = DAT_DTO_ERR_TRANSPORT: "the connection failed",
    ReceiverNotReady = DAT_DTO_ERR_RECEIVER_NOT_READY: "the peer has no receive posted",
    PartialPacket = DAT_DTO_ERR_PARTIAL_PACKET: "only part of a message arrived",
    OperationFailed = DAT_RMR_OPERATION_FAILED: "the operation failed",
    LocalMemoryManagement = DAT_DTO_ERR_LOCAL_MM_ERROR: "local memory management failed",
}

numbers! {
    /// The kind of operation that completed.
    ///
    /// ```
    /// assert_eq!(dat::Operation::Read.to_string(), "RDMA read");
    /// ```
    Operation of DAT_DTOS, other: "operation";
    Send = DAT_DTO_SEND: "send",
    Write = DAT_DTO_RDMA_WRITE: "RDMA write",
    Read = DAT_DTO_RDMA_READ: "RDMA read",
    Receive = DAT_DTO_RECEIVE: "receive",
    ReceiveWithInvalidate = DAT_DTO_RECEIVE_WITH_INVALIDATE: "receive with invalidate",
    Bind = DAT_DTO_BIND_MW: "bind",
    WriteImmediate = DAT_IB_DTO_RDMA_WRITE_IMMED: "RDMA write with immediate data",
    ReceiveImmediate = DAT_IB_DTO_RECV_IMMED: "receive of immediate data",
    ReceiveMessageImmediate = DAT_IB_DTO_RECV_MSG_IMMED: "receive of a message with immediate data",
    FetchAdd = DAT_IB_DTO_FETCH_ADD: "fetch and add",
    CompareSwap = DAT_IB_DTO_CMP_SWAP: "compare and swap",
    SendDatagram = DAT_IB_DTO_SEND_UD: "send of a datagram",
    ReceiveDatagram = DAT_IB_DTO_RECV_UD: "receive of a datagram",
    ReceiveDatagramImmediate = DAT_IB_DTO_RECV_UD_IMMED: "receive of a datagram with immediate data",
}

/// An event of a connection. It is displayed as a description.
///
/// ```
/// use dat::ConnectionEvent;
///
/// assert_eq!(ConnectionEvent::Unreachable.to_string(), "the peer cannot be reached");
/// let established = ConnectionEvent::Established { private_data: b"welcome".to_vec() };
/// assert_eq!(established.to_string(), "established");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectionEvent {
    /// The connection is established.
    Established {
        /// The private data of the peer's accept. They are empty on the accepting side.
        private_data: Vec<u8>,
    },
    /// The peer rejected the connection.
    PeerRejected {
        /// The private data of the peer's reject.
        private_data: Vec<u8>,
    },
    /// The peer's provider refused the connection, because there is no listener or too many
    /// requests are pending.
    NonPeerRejected,
    /// The request was accepted, but the connection was not established.
    AcceptFailed,
    /// One side ended the connection.
    Disconnected,
    /// The connection failed.
    Broken,
    /// The peer did not answer within the time limit.
    TimedOut,
    /// There is no route to the peer. A datagram endpoint reports all failures to find a peer in
    /// this way, and [`Endpoint::last_cause`](crate::Endpoint::last_cause) tells them apart.
    Unreachable,
}

impl fmt::Display for ConnectionEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ConnectionEvent::Established { .. } => "established",
            ConnectionEvent::PeerRejected { .. } => "rejected by the peer",
            ConnectionEvent::NonPeerRejected => {
                "refused: no listener there, or too many requests \
                                                 are pending; start the server first, compare the \
                                                 qualifiers"
            }
            ConnectionEvent::AcceptFailed => "accepted, but not established",
            ConnectionEvent::Disconnected => "disconnected: one side has ended the connection",
            ConnectionEvent::Broken => "broken: an operation failed, or the peer is gone",
            ConnectionEvent::TimedOut => "no answer within the time limit",
            ConnectionEvent::Unreachable => "the peer cannot be reached",
        })
    }
}

#[derive(Clone, Copy)]
enum ConnectionKind {
    Established,
    PeerRejected,
    WithoutData(fn() -> ConnectionEvent),
}

impl ConnectionKind {
    /// Returns the kind of a connection event. `is_extended` says whether the adapter has the
    /// events of the IB extension.
    fn of(number: DAT_EVENT_NUMBER, is_extended: bool) -> Option<Self> {
        use ConnectionKind::*;
        Some(match number {
            DAT_CONNECTION_EVENT_ESTABLISHED => Established,
            DAT_CONNECTION_EVENT_PEER_REJECTED => PeerRejected,
            DAT_IB_UD_CONNECTION_REJECT_EVENT if is_extended => PeerRejected,
            DAT_CONNECTION_EVENT_NON_PEER_REJECTED => {
                WithoutData(|| ConnectionEvent::NonPeerRejected)
            }
            DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR => {
                WithoutData(|| ConnectionEvent::AcceptFailed)
            }
            DAT_CONNECTION_EVENT_DISCONNECTED => WithoutData(|| ConnectionEvent::Disconnected),
            DAT_CONNECTION_EVENT_BROKEN => WithoutData(|| ConnectionEvent::Broken),
            DAT_CONNECTION_EVENT_TIMED_OUT => WithoutData(|| ConnectionEvent::TimedOut),
            DAT_CONNECTION_EVENT_UNREACHABLE => WithoutData(|| ConnectionEvent::Unreachable),
            DAT_IB_UD_CONNECTION_ERROR_EVENT if is_extended => {
                WithoutData(|| ConnectionEvent::Unreachable)
            }
            _ => return None,
        })
    }

    fn with(self, private_data: Vec<u8>) -> ConnectionEvent {
        match self {
            ConnectionKind::Established => ConnectionEvent::Established { private_data },
            ConnectionKind::PeerRejected => ConnectionEvent::PeerRejected { private_data },
            ConnectionKind::WithoutData(event) => event(),
        }
    }
}

/// Whether a connection event is the last one of its connection. The events of the IB extension are
/// about single peers of an endpoint.
fn is_end(number: DAT_EVENT_NUMBER) -> bool {
    matches!(
        number,
        DAT_CONNECTION_EVENT_PEER_REJECTED
            | DAT_CONNECTION_EVENT_NON_PEER_REJECTED
            | DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR
            | DAT_CONNECTION_EVENT_DISCONNECTED
            | DAT_CONNECTION_EVENT_BROKEN
            | DAT_CONNECTION_EVENT_TIMED_OUT
            | DAT_CONNECTION_EVENT_UNREACHABLE
    )
}

/// A failure that belongs to no request. It is displayed as a description.
///
/// ```
/// let mut adapter = dat::Adapter::open("tcp-emu")?;
/// let mut failures = adapter.take_asynchronous_events().expect("the first call returns it");
/// for failure in failures.drain() {
///     println!("{}", failure?); // for example "the adapter is lost"
/// }
/// # Ok::<(), dat::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AsynchronousError {
    /// The queue of a dispatcher was full, and events were lost.
    DispatcherOverflow,
    /// The adapter is lost.
    Catastrophic,
    /// An endpoint failed.
    EndpointBroken,
    /// An operation took too long.
    TimedOut,
    /// The provider has a defect.
    ProviderInternal,
}

impl AsynchronousError {
    fn of(number: DAT_EVENT_NUMBER) -> Option<Self> {
        Some(match number {
            DAT_ASYNC_ERROR_EVD_OVERFLOW => AsynchronousError::DispatcherOverflow,
            DAT_ASYNC_ERROR_IA_CATASTROPHIC => AsynchronousError::Catastrophic,
            DAT_ASYNC_ERROR_EP_BROKEN => AsynchronousError::EndpointBroken,
            DAT_ASYNC_ERROR_TIMED_OUT => AsynchronousError::TimedOut,
            DAT_ASYNC_ERROR_PROVIDER_INTERNAL_ERROR => AsynchronousError::ProviderInternal,
            _ => return None,
        })
    }
}

impl fmt::Display for AsynchronousError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AsynchronousError::DispatcherOverflow => {
                "the queue of a dispatcher was full; events \
                were lost"
            }
            AsynchronousError::Catastrophic => "the adapter is lost",
            AsynchronousError::EndpointBroken => "an endpoint failed",
            AsynchronousError::TimedOut => "an operation took too long",
            AsynchronousError::ProviderInternal => "internal error of the provider",
        })
    }
}
