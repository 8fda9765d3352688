//! Opens adapters and queries their attributes.

use std::ffi::{CStr, c_char};
use std::fmt;
use std::ptr::null_mut;
use std::sync::Arc;

use dat_sys::*;
use registry::{Candidate, OpenFailure, OpenRequest, Opened, Registry, Wanted, open_candidate};

use crate::address::Address;
use crate::error::{Error, Result};
use crate::object::{Interface, Object, call};
use crate::{
    EndpointBuilder, EventDispatcher, Listener, NotificationDescriptor, NotificationObject,
    ProtectionZone, Streams,
};

/// The minimum queue length of an adapter's asynchronous dispatcher, in events.
const ASYNC_EVENTS_COUNT: DAT_COUNT = 16;

/// An open interface adapter. The adapter closes when this value and all objects created from it
/// have been dropped.
///
/// ```
/// let adapter = dat::Adapter::open("tcp-emu")?;
/// println!("{}: {:?}", adapter.attributes().provider, adapter.attributes().address);
/// # Ok::<(), dat::Error>(())
/// ```
pub struct Adapter {
    pub(crate) interface: Arc<Interface>,
    asynchronous: Option<EventDispatcher>,
}

impl Adapter {
    /// Opens the adapter of this name in the default [`registry`](crate::registry).
    ///
    /// # Errors
    ///
    /// No entry fits, or none can be opened. [`Error::open_error`] has the reason for each entry.
    pub fn open(name: &str) -> Result<Self> {
        Self::open_in(crate::registry(), name)
    }

    /// Like [`open`](Self::open), with an explicit registry.
    ///
    /// # Errors
    ///
    /// The errors of [`open`](Self::open).
    pub fn open_in(registry: &Registry, name: &str) -> Result<Self> {
        let request = OpenRequest {
            wanted: Wanted { name, major: 2, minor: 0, threadsafe: false },
            async_evd_qlen: ASYNC_EVENTS_COUNT,
            async_evd: DAT_HANDLE_NULL,
        };
        // This crate writes nothing. The mistakes in the registry's file are in its list, and what
        // the providers report becomes a part of the error.
        registry.read_silently();
        let (opened, messages) = telemetry::collect(|| registry.open(&request));
        Self::new(opened.map_err(|error| Error::open(error, messages))?)
    }

    /// The attributes of the adapter and its provider.
    pub fn attributes(&self) -> &Attributes {
        &self.interface.attributes
    }

    /// Opens this entry of a registry, regardless of other entries of the same name. Programs that
    /// list entries use this function, so the function does not print why an entry does not open.
    ///
    /// # Errors
    ///
    /// The reason for which the entry does not open, as text.
    pub fn open_entry(candidate: &Candidate) -> std::result::Result<Self, String> {
        let registry::Entry { ia_name, api, threadsafe, .. } = &candidate.entry;
        let request = OpenRequest {
            wanted: Wanted {
                name: ia_name,
                major: api.major,
                minor: api.minor,
                threadsafe: *threadsafe,
            },
            async_evd_qlen: ASYNC_EVENTS_COUNT,
            async_evd: DAT_HANDLE_NULL,
        };
        let (opened, messages) = telemetry::collect(|| open_candidate(candidate, &request));
        let because = |why: OpenFailure| {
            messages.iter().fold(why.to_string(), |text, message| text + "\n    " + message)
        };
        let opened = opened.map_err(because)?;
        Self::new(opened).map_err(|error| error.to_string())
    }

    fn new(opened: Opened) -> Result<Self> {
        let interface = Arc::new(Interface::new(opened)?);
        // SAFETY: the object is the asynchronous EVD of the interface, which frees it.
        let evd = unsafe { Object::new(&interface, interface.async_evd(), None, Vec::new()) };
        Ok(Adapter { interface, asynchronous: Some(EventDispatcher::new(evd, Streams::empty())) })
    }

    /// The dispatcher that reports failures which belong to no request: overflow of a queue, loss
    /// of the adapter. Only the first call returns it.
    pub fn take_asynchronous_events(&mut self) -> Option<EventDispatcher> {
        self.asynchronous.take()
    }

    /// Creates a dispatcher for completions, connections and connection requests, with room for at
    /// least `depth` events.
    ///
    /// # Errors
    ///
    /// [`InvalidParameter`](crate::ErrorKind::InvalidParameter) for 0,
    /// [`InsufficientResources`](crate::ErrorKind::InsufficientResources) for more than
    /// [`Attributes::max_events`].
    pub fn dispatcher(&self, depth: usize) -> Result<EventDispatcher> {
        self.dispatcher_for(depth, Streams::default(), None)
    }

    /// Like [`dispatcher`](Self::dispatcher), with explicit streams and a notification object to
    /// trigger.
    ///
    /// # Errors
    ///
    /// The errors of [`dispatcher`](Self::dispatcher), and the provider's error for streams that it
    /// does not merge.
    pub fn dispatcher_for(
        &self,
        depth: usize,
        streams: Streams,
        notify: Option<&NotificationObject>,
    ) -> Result<EventDispatcher> {
        EventDispatcher::create(&self.interface, depth, streams, notify)
    }

    /// Creates an object that several dispatchers can trigger, to wait for all of them.
    ///
    /// # Errors
    ///
    /// The error of the provider.
    pub fn notification_object(&self) -> Result<NotificationObject> {
        NotificationObject::create(&self.interface)
    }

    /// Creates a notification object with a file descriptor, for event loops. While it exists, the
    /// provider moves data although the program makes no call, which costs a thread some time.
    ///
    /// # Errors
    ///
    /// [`NotImplemented`](crate::ErrorKind::NotImplemented) for providers without
    /// `dat_cno_fd_create`, and other errors of the provider.
    pub fn notification_descriptor(&self) -> Result<NotificationDescriptor> {
        NotificationDescriptor::create(&self.interface)
    }

    /// Creates a protection zone. Endpoints in a zone can use only the memory in that zone.
    ///
    /// # Errors
    ///
    /// The error of the provider.
    pub fn zone(&self) -> Result<ProtectionZone> {
        ProtectionZone::create(&self.interface)
    }

    /// Returns a builder for an endpoint.
    pub fn endpoint(&self) -> EndpointBuilder<'_> {
        EndpointBuilder::new(self)
    }

    /// Listens on a connection qualifier (for IP: a port). Requests are reported to `events`.
    ///
    /// # Errors
    ///
    /// [`ConnectionQualifierInUse`](crate::ErrorKind::ConnectionQualifierInUse) and other errors of
    /// the provider.
    pub fn listen(&self, qualifier: u64, events: &EventDispatcher) -> Result<Listener> {
        Listener::create(&self.interface, Some(qualifier), events)
    }

    /// Listens on any free qualifier, which [`Listener::qualifier`] returns.
    ///
    /// # Errors
    ///
    /// The error of the provider.
    pub fn listen_any(&self, events: &EventDispatcher) -> Result<Listener> {
        Listener::create(&self.interface, None, events)
    }
}

impl fmt::Debug for Adapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adapter").field("attributes", self.attributes()).finish_non_exhaustive()
    }
}

/// Attributes of an adapter and its provider (uDAPL 2.0, dat_ia_query). Sizes are in bytes; limits
/// are maxima.
///
/// ```
/// let adapter = dat::Adapter::open("tcp-emu")?;
/// let attributes = adapter.attributes();
/// assert_eq!(attributes.provider, "tcp-emu");
/// assert!(attributes.max_private_data >= 64);
/// # Ok::<(), dat::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// The name of the adapter.
    pub adapter: String,
    /// The name of the adapter's vendor.
    pub vendor: String,
    /// The address of the adapter.
    pub address: Option<Address>,
    /// The maximum number of endpoints.
    pub max_endpoints: usize,
    /// The maximum number of requests, and of receives, outstanding on an endpoint.
    pub max_operations: usize,
    /// The maximum number of RDMA reads of the peer that an endpoint serves at a time.
    pub max_reads_in: usize,
    /// The maximum number of RDMA reads that an endpoint has in progress at a time.
    pub max_reads_out: usize,
    /// The maximum number of events in a dispatcher.
    pub max_events: usize,
    /// The maximum number of segments of a send or receive.
    pub max_segments: usize,
    /// The maximum number of segments of an RDMA read.
    pub max_read_segments: usize,
    /// The maximum number of segments of an RDMA write.
    pub max_write_segments: usize,
    /// The maximum size of a send.
    pub max_message: u32,
    /// The maximum size of a datagram, or `None` if the adapter has no datagrams: see
    /// [`EndpointBuilder::datagrams`].
    pub max_datagram: Option<u32>,
    /// The maximum size of an RDMA operation.
    pub max_rdma: u32,
    /// The name of the provider.
    pub provider: String,
    /// The version of the provider, as major and minor number.
    pub provider_version: (u32, u32),
    /// The maximum size of private data in connection calls.
    pub max_private_data: usize,
    /// The buffer alignment with the best performance.
    pub optimal_alignment: u32,
    /// Whether shared receive queues are supported.
    pub shared_receive_queues: bool,
    /// Whether the sink of an RDMA read needs remote write access.
    pub read_sink_needs_remote_write: bool,
    /// Whether OFED's extended operations are supported: atomic operations, and RDMA writes with
    /// immediate data.
    pub extended: bool,
    /// Further attributes of the adapter's transport, as names and values.
    pub named: Vec<(String, String)>,
}

impl Attributes {
    pub(crate) fn query(interface: &Interface) -> Result<Self> {
        let (ia, provider) = query(interface)?;
        if provider.iov_ownership_on_return != DAT_IOV_CONSUMER {
            // With any other value, the provider would use the caller's segments after the post has
            // returned, which this crate does not support. No known provider does so.
            return Err(Error::new(
                "Adapter::open",
                DAT_ERROR(DAT_MODEL_NOT_SUPPORTED, DAT_NO_SUBTYPE),
            ));
        }
        // SAFETY: the count and the array are the provider's own, and are valid while the IA is
        // open.
        let of_provider =
            unsafe { named(provider.provider_specific_attr, provider.num_provider_specific_attr) };
        Ok(Attributes {
            adapter: text(&ia.adapter_name),
            vendor: text(&ia.vendor_name),
            // SAFETY: the pointer is null or an address of the provider, which is valid while the
            // IA is open.
            address: unsafe { Address::read(ia.ia_address_ptr) },
            max_endpoints: count(ia.max_eps),
            max_operations: count(ia.max_dto_per_ep),
            max_reads_in: count(ia.max_rdma_read_per_ep_in),
            max_reads_out: count(ia.max_rdma_read_per_ep_out),
            max_events: count(ia.max_evd_qlen),
            max_segments: count(ia.max_iov_segments_per_dto),
            max_read_segments: count(ia.max_iov_segments_per_rdma_read),
            max_write_segments: count(ia.max_iov_segments_per_rdma_write),
            max_message: ia.max_message_size,
            max_datagram: max_datagram(&of_provider),
            max_rdma: ia.max_rdma_size,
            provider: text(&provider.provider_name),
            provider_version: (provider.provider_version_major, provider.provider_version_minor),
            max_private_data: count(provider.max_private_data_size),
            optimal_alignment: provider.optimal_buffer_alignment,
            shared_receive_queues: provider.srq_supported != DAT_FALSE,
            read_sink_needs_remote_write: provider.rdma_write_for_rdma_read_req != DAT_FALSE,
            extended: ia.extension_supported == DAT_EXTENSION_IB,
            // SAFETY: the count and the array are the provider's own, and are valid while the IA is
            // open.
            named: unsafe { named(ia.transport_attr, ia.num_transport_attr) },
        })
    }
}

/// Queries all attributes (dat_ia_query).
pub(crate) fn query(interface: &Interface) -> Result<(DAT_IA_ATTR, DAT_PROVIDER_ATTR)> {
    let mut ia = DAT_IA_ATTR::zeroed();
    let mut provider = DAT_PROVIDER_ATTR::zeroed();
    let handle = interface.handle();
    // SAFETY: the IA is open and the records are writable. The pointer for the EVD is null, because
    // the EVD is not requested.
    unsafe {
        call!(
            interface,
            "dat_ia_query",
            ia_query_func(
                handle,
                null_mut(),
                DAT_IA_FIELD_ALL,
                &mut ia,
                DAT_PROVIDER_FIELD_ALL,
                &mut provider
            )
        )
    }?;
    Ok((ia, provider))
}

fn count(value: DAT_COUNT) -> usize {
    usize::try_from(value).unwrap_or(0)
}

/// Returns the maximum size of a datagram, from the attributes of a provider. They are those of the
/// IB extension.
fn max_datagram(of_provider: &[(String, String)]) -> Option<u32> {
    let value = |wanted: &str| of_provider.iter().find(|(name, _)| name == wanted);
    value("DAT_IB_UD").filter(|(_, value)| value == "TRUE")?;
    value("DAT_IB_TRANSPORT_MTU")?.1.parse().ok()
}

/// Converts named attributes.
///
/// # Safety
///
/// `attributes` must be null or have `count` elements whose texts are null or NUL-terminated.
pub(crate) unsafe fn named(
    attributes: *const DAT_NAMED_ATTR,
    count: DAT_COUNT,
) -> Vec<(String, String)> {
    if attributes.is_null() || count <= 0 {
        return Vec::new();
    }
    // SAFETY: the caller guarantees that `attributes` has `count` elements.
    let attributes = unsafe { std::slice::from_raw_parts(attributes, self::count(count)) };
    let text = |text: *const c_char| match text.is_null() {
        true => String::new(),
        // SAFETY: the caller guarantees that the texts are null or NUL-terminated.
        false => unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned(),
    };
    attributes.iter().map(|attribute| (text(attribute.name), text(attribute.value))).collect()
}

pub(crate) fn text(name: &[c_char; DAT_NAME_MAX_LENGTH]) -> String {
    let bytes = name.map(|c| c as u8);
    CStr::from_bytes_until_nul(&bytes).unwrap_or_default().to_string_lossy().into_owned()
}

/// Converts a count to C. If a count is too large for C, it exceeds every provider's limit anyway.
pub(crate) fn count_to_c(value: usize) -> DAT_COUNT {
    DAT_COUNT::try_from(value).unwrap_or(DAT_COUNT::MAX)
}

/// Converts a time limit to microseconds. `None` means for ever. A finite limit is reduced to the
/// longest one that C can express.
pub(crate) fn timeout_to_c(timeout: Option<std::time::Duration>) -> DAT_TIMEOUT {
    let finite = |limit: std::time::Duration| {
        // The time is rounded up, so that a wait of 1 ns does not become a poll.
        u32::try_from(limit.as_nanos().div_ceil(1000))
            .unwrap_or(u32::MAX)
            .min(DAT_TIMEOUT_INFINITE - 1)
    };
    timeout.map_or(DAT_TIMEOUT_INFINITE, finite)
}
