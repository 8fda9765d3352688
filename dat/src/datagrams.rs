//! Datagram endpoints, which OFED's extension defines (`DAT_IB_SERVICE_TYPE_UD`).

use std::fmt;

use dat_sys::ib::*;
use dat_sys::{DAT_ERROR, DAT_EVENT, DAT_INVALID_PARAMETER, DAT_NO_SUBTYPE};

use crate::endpoint::{Endpoint, EndpointBuilder, EndpointId};
use crate::error::{Error, Result};
use crate::event::private_data;
use crate::extended::pointer;
use crate::memory::{Segment, iov};
use crate::owners::{EndpointNumber, EventOwners};
use crate::post::{Flags, Posted};

/// A peer to which a datagram endpoint sends, from [`Event::Peer`](crate::Event::Peer). Only the
/// endpoint that the event names can send to it, and only while that endpoint exists.
///
/// The endpoint keeps a little memory for the peer until the peer is given to
/// [`Endpoint::forget`], or until the endpoint is dropped. Dropping this value does not free that
/// memory.
///
/// ```
/// use dat::{Access, Adapter, Flags};
///
/// # const LIMIT: Option<std::time::Duration> = Some(std::time::Duration::from_secs(60));
/// let adapter = Adapter::open("softroce")?;
/// let (zone, mut events, mut done) = (adapter.zone()?, adapter.dispatcher(8)?, adapter.dispatcher(8)?);
/// let region = zone.register(vec![0; 256], Access::LOCAL)?;
/// let create = || {
///     let builder = adapter.endpoint().datagrams().zone(&zone).events(&done);
///     builder.connections(&events).create()
/// };
/// let (mut server, mut client) = (create()?, create()?);
/// server.post_receive(&[region.segment(100..204)?], 1)?; // 40 bytes more than the message
///
/// let listener = adapter.listen_any(&events)?;
/// client.connect("127.0.0.1".parse()?, listener.qualifier(), b"", LIMIT)?;
/// events.wait(LIMIT)?.request()?.accept(&mut server, b"")?;
/// let (one, other) = (events.wait(LIMIT)?.peer()?, events.wait(LIMIT)?.peer()?);
/// let server = if one.endpoint() == client.id() { one } else { other };
/// client.post_datagram(&[region.segment(0..64)?], &server, 2, Flags::default())?;
/// done.wait(LIMIT)?.completion()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct DatagramPeer {
    endpoint: EndpointId,
    /// The number of that endpoint, or `None` if it was dropped before the event was taken.
    owner: Option<EndpointNumber>,
    /// The address handle. It is valid as long as the endpoint with the number `owner` exists.
    address: DAT_IB_ADDR_HANDLE,
    /// The name of what the provider keeps about the event.
    context: u64,
    private_data: Vec<u8>,
}

// SAFETY: the address handle is only passed to functions of the provider, together with the
// endpoint that it belongs to. `&mut` makes one thread at a time the user of that endpoint.
unsafe impl Send for DatagramPeer {}
// SAFETY: as for `Send`. Functions that take `&self` only read the fields.
unsafe impl Sync for DatagramPeer {}

impl DatagramPeer {
    /// Reads a peer from an event.
    ///
    /// # Safety
    ///
    /// The event must be `DAT_IB_UD_CONNECTION_EVENT_ESTABLISHED` of a provider with the IB
    /// extension, which must have just filled it in. A dispatcher with these `owners` must have
    /// reported it.
    pub(crate) unsafe fn read(event: &DAT_EVENT, owners: &EventOwners) -> Self {
        // SAFETY: the event number, which the caller vouches for, selects these members. The
        // extension's data are shorter than their field, which is sufficiently aligned.
        let (data, address, context) = unsafe {
            let more =
                &*(&raw const event.event_extension_data).cast::<DAT_IB_EXTENSION_EVENT_DATA>();
            (event.event_data.connect_event_data, more.detail.remote_ah, more.context.as_64)
        };
        let (owner, private_data) = owners.with_owner(data.ep_handle, |owner| {
            // SAFETY: the private data are valid at least until the peer is forgotten or the
            // endpoint is freed, also after a reset. The dispatcher's list has the endpoint, so
            // neither has happened, and the endpoint is not freed during this call.
            let private =
                owner.map(|_| unsafe { private_data(data.private_data, data.private_data_size) });
            (owner, private.unwrap_or_default())
        });
        let endpoint = EndpointId(data.ep_handle.addr());
        DatagramPeer { endpoint, owner, address, context, private_data }
    }

    /// The endpoint that the event names.
    pub fn endpoint(&self) -> EndpointId {
        self.endpoint
    }

    /// The private data of the peer's accept, or on the accepting side those of the peer's connect.
    /// They are empty if the endpoint was dropped before the event was taken.
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }
}

impl fmt::Debug for DatagramPeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatagramPeer")
            .field("endpoint", &self.endpoint)
            .field("queue_pair", &self.address.qpn)
            .finish_non_exhaustive()
    }
}

impl EndpointBuilder<'_> {
    /// Makes the endpoint a datagram endpoint. The size of a message is at most
    /// [`Attributes::max_datagram`](crate::Attributes::max_datagram).
    ///
    /// Such an endpoint is never connected. It sends unreliable datagrams to any number of peers.
    /// It finds out each peer with a call of [`Endpoint::connect`] or of
    /// [`ConnectionRequest::accept`](crate::ConnectionRequest::accept). Each call ends in an event:
    /// [`Event::Peer`](crate::Event::Peer), or [`Event::Connection`](crate::Event::Connection) if
    /// the peer was not found or has rejected the request. Of an attempt that has failed, the
    /// provider keeps a little memory until the endpoint is dropped.
    ///
    /// A received datagram is in the receive buffer after [`Endpoint::DATAGRAM_HEADER`] bytes. The
    /// length of the completion includes these bytes. A datagram is lost if the peer has no receive
    /// posted, or if the receive is too short. The network may lose, repeat and reorder datagrams.
    ///
    /// [`create`](Self::create) fails with
    /// [`ModelNotSupported`](crate::ErrorKind::ModelNotSupported) if the adapter has no datagrams.
    pub fn datagrams(mut self) -> Self {
        let limits = self.adapter.attributes();
        self.attr.service_type = DAT_IB_SERVICE_TYPE_UD;
        self.attr.max_message_size = limits.max_datagram.unwrap_or(limits.max_message);
        self
    }

    /// Whether [`datagrams`](Self::datagrams) was called.
    #[cfg(feature = "async")]
    pub(crate) fn is_for_datagrams(&self) -> bool {
        self.attr.service_type == DAT_IB_SERVICE_TYPE_UD
    }
}

/// Operations of datagram endpoints.
impl Endpoint {
    /// The number of bytes before each message in the receive buffer of a datagram endpoint. They
    /// are reserved for the network's header (IBA, global routing header), whose content depends on
    /// the adapter.
    pub const DATAGRAM_HEADER: usize = 40;

    /// Sends the concatenated segments to a peer, as one datagram. The operation completes when the
    /// adapter has sent the datagram, whether or not it arrives.
    ///
    /// # Errors
    ///
    /// The errors that are listed for all posts, such as [`post_send`](Self::post_send), and:
    ///
    /// - [`InvalidParameter`](crate::ErrorKind::InvalidParameter): the peer belongs to another
    ///   endpoint, or to one that was dropped.
    /// - [`Length`](crate::ErrorKind::Length): the segments are longer than
    ///   [`Attributes::max_datagram`](crate::Attributes::max_datagram).
    #[inline]
    pub fn post_datagram(
        &mut self,
        local: &[Segment],
        to: &DatagramPeer,
        cookie: u64,
        flags: Flags,
    ) -> Result<()> {
        if to.owner != Some(self.number) {
            return Err(peer_of_another("dat_ib_post_send_ud"));
        }
        let (count, iov) = iov(local);
        let iov = iov.expose_provenance() as u64;
        let flags = flags.bits().into();
        let arguments = [count as u64, iov, pointer(&to.address), cookie, flags];
        // SAFETY: these are the arguments of the operation. This endpoint exists and has obtained
        // the address handle, and no `forget` has freed the handle.
        unsafe { self.extended(DAT_IB_UD_SEND_OP, &arguments) }
            .map_err(|error| self.limits.explain(error, Posted::Request, local, None))
    }

    /// Frees what the endpoint keeps for a peer. To send to the peer again, the endpoint must get a
    /// new event with the peer. Datagrams to the peer that have not completed may be lost.
    ///
    /// # Errors
    ///
    /// [`InvalidParameter`](crate::ErrorKind::InvalidParameter) for a peer of another endpoint or
    /// of one that was dropped, and other errors of the provider. After an error, the endpoint
    /// keeps the memory until it is dropped.
    pub fn forget(&mut self, peer: DatagramPeer) -> Result<()> {
        if peer.owner != Some(self.number) {
            return Err(peer_of_another("dat_ib_ud_ah_free"));
        }
        // Some of OFED's providers do not implement the first call. They free the address handle
        // together with the endpoint, even if the second call has already freed it. So the second
        // call must not follow if the first one fails.
        // SAFETY: these are the arguments of the operations. Nobody can use the peer afterwards,
        // because this call consumes it and there is no copy of it.
        unsafe {
            self.extended(DAT_IB_UD_CM_FREE_OP, &[peer.context])?;
            self.extended(DAT_IB_UD_AH_FREE_OP, &[pointer(&peer.address)])
        }
    }
}

#[cold]
fn peer_of_another(call: &'static str) -> Error {
    let detail = "the peer belongs to another endpoint, or to one that was dropped: use a peer \
                  from an event of this endpoint";
    let status = DAT_ERROR(DAT_INVALID_PARAMETER, DAT_NO_SUBTYPE);
    Error::new(call, status).explained(Some(detail.into()))
}
