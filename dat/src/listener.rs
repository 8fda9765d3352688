//! The passive side: listeners and connection requests.

use std::fmt;
use std::sync::Arc;

use dat_sys::*;

use crate::endpoint::{Endpoint, private_data_to_c, too_much_private_data};
use crate::error::Result;
use crate::event::private_data;
use crate::object::{Interface, Object, call};
use crate::{Address, EventDispatcher};

/// A listener on a connection qualifier (PSP in the standard), until it is dropped. Requests are
/// reported as [`Event::ConnectionRequest`](crate::Event::ConnectionRequest). The length of the
/// dispatcher's queue limits the number of pending requests.
///
/// ```
/// let adapter = dat::Adapter::open("tcp-emu")?;
/// let events = adapter.dispatcher(8)?;
/// let listener = adapter.listen_any(&events)?;
/// println!("peers can call {}", listener.qualifier());
/// # Ok::<(), dat::Error>(())
/// ```
pub struct Listener {
    qualifier: u64,
    _object: Object,
}

impl Listener {
    pub(crate) fn create(
        interface: &Arc<Interface>,
        qualifier: Option<u64>,
        events: &EventDispatcher,
    ) -> Result<Self> {
        let (ia, evd) = (interface.handle(), events.object.handle);
        let mut handle = DAT_HANDLE_NULL;
        let mut actual = qualifier.unwrap_or_default();
        // SAFETY: the IA is open, the dispatcher is valid and the variables are writable.
        unsafe {
            match qualifier {
                Some(wanted) => call!(
                    interface,
                    "dat_psp_create",
                    psp_create_func(ia, wanted, evd, DAT_PSP_CONSUMER_FLAG, &mut handle)
                ),
                None => call!(
                    interface,
                    "dat_psp_create_any",
                    psp_create_any_func(ia, &mut actual, evd, DAT_PSP_CONSUMER_FLAG, &mut handle)
                ),
            }
        }?;
        let free = interface.table().psp_free_func;
        // SAFETY: the object was just created, and only this value frees it.
        let object = unsafe { Object::new(interface, handle, free, vec![events.object.clone()]) };
        Ok(Listener { qualifier: actual, _object: object })
    }

    /// The connection qualifier of the listener.
    pub fn qualifier(&self) -> u64 {
        self.qualifier
    }
}

/// A peer's request to connect (CR in the standard). Dropping the request rejects it.
///
/// ```no_run
/// # fn serve(events: &mut dat::EventDispatcher, mut endpoint: dat::Endpoint)
/// #     -> Result<(), Box<dyn std::error::Error>> {
/// let request = events.wait(None)?.request()?;
/// if request.private_data()?.starts_with(b"version 1") {
///     request.accept(&mut endpoint, b"welcome")?;
/// } else {
///     request.reject(b"this server has version 1")?;
/// }
/// # Ok(())
/// # }
/// ```
pub struct ConnectionRequest {
    handle: DAT_CR_HANDLE,
    qualifier: u64,
    interface: Arc<Interface>,
}

// SAFETY: the handle is only passed to functions of the provider: see `Interface`.
unsafe impl Send for ConnectionRequest {}
// SAFETY: the handle is only passed to functions of the provider: see `Interface`.
unsafe impl Sync for ConnectionRequest {}

impl ConnectionRequest {
    /// Takes ownership of a request.
    ///
    /// # Safety
    ///
    /// The provider of this interface must have reported the request, and no other code may answer
    /// it.
    pub(crate) unsafe fn new(
        interface: &Arc<Interface>,
        arrival: &DAT_CR_ARRIVAL_EVENT_DATA,
    ) -> Self {
        ConnectionRequest {
            handle: arrival.cr_handle,
            qualifier: arrival.conn_qual,
            interface: interface.clone(),
        }
    }

    /// The connection qualifier that the peer called.
    pub fn qualifier(&self) -> u64 {
        self.qualifier
    }

    /// The private data of the peer's connect.
    ///
    /// # Errors
    ///
    /// The error of the provider.
    pub fn private_data(&self) -> Result<Vec<u8>> {
        let param = self.query()?;
        // SAFETY: the data belong to the provider and are valid until the request is answered.
        Ok(unsafe { private_data(param.private_data, param.private_data_size) })
    }

    /// The address of the peer, if the provider reports it.
    ///
    /// # Errors
    ///
    /// The error of the provider.
    pub fn peer(&self) -> Result<Option<Address>> {
        // SAFETY: the address belongs to the provider and is valid until the request is answered.
        Ok(unsafe { Address::read(self.query()?.remote_ia_address_ptr) })
    }

    fn query(&self) -> Result<DAT_CR_PARAM> {
        let mut param = DAT_CR_PARAM::zeroed();
        // SAFETY: the request was not answered, and the record is writable.
        unsafe {
            call!(
                self.interface,
                "dat_cr_query",
                cr_query_func(self.handle, DAT_CR_FIELD_ALL, &mut param)
            )
        }?;
        Ok(param)
    }

    /// Accepts the request with an unconnected endpoint. The endpoint's dispatcher reports that the
    /// connection is established.
    ///
    /// Only a [datagram endpoint](crate::EndpointBuilder::datagrams) accepts a request of a
    /// datagram endpoint. Its dispatcher reports an [`Event::Peer`](crate::Event::Peer). One
    /// endpoint may accept the requests of many peers.
    ///
    /// # Errors
    ///
    /// [`InvalidState`](crate::ErrorKind::InvalidState) for an endpoint that is not unconnected or
    /// has no zone or dispatcher; [`InvalidParameter`](crate::ErrorKind::InvalidParameter) for too
    /// much private data; [`InvalidHandle`](crate::ErrorKind::InvalidHandle) for an endpoint of the
    /// other service. In all cases the request is rejected.
    pub fn accept(self, endpoint: &mut Endpoint, private_data: &[u8]) -> Result<()> {
        let (size, data) = private_data_to_c(private_data);
        let accept = || {
            // SAFETY: the request was not answered, the endpoint is valid, and the private data are
            // only read.
            unsafe {
                call!(
                    self.interface,
                    "dat_cr_accept",
                    cr_accept_func(self.handle, endpoint.object.handle, size, data)
                )
            }
        };
        endpoint
            .object
            .begin(accept)
            .map_err(|error| too_much_private_data(error, &self.interface, private_data))?;
        self.forget_handle();
        Ok(())
    }

    /// Rejects the request with private data.
    ///
    /// # Errors
    ///
    /// [`InvalidParameter`](crate::ErrorKind::InvalidParameter) for too much private data. Then the
    /// request is rejected without private data.
    pub fn reject(self, private_data: &[u8]) -> Result<()> {
        let (size, data) = private_data_to_c(private_data);
        // SAFETY: the request was not answered, and the private data are only read.
        unsafe { call!(self.interface, "dat_cr_reject", cr_reject_func(self.handle, size, data)) }
            .map_err(|error| too_much_private_data(error, &self.interface, private_data))?;
        self.forget_handle();
        Ok(())
    }

    /// Forgets the handle, because an answer makes it invalid.
    fn forget_handle(mut self) {
        self.handle = DAT_HANDLE_NULL;
    }
}

impl Drop for ConnectionRequest {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: the request was not answered. If the call fails, the request is freed when
            // the adapter closes.
            let _ = unsafe {
                call!(
                    self.interface,
                    "dat_cr_reject",
                    cr_reject_func(self.handle, 0, std::ptr::null_mut())
                )
            };
        }
    }
}

impl fmt::Debug for ConnectionRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionRequest")
            .field("qualifier", &self.qualifier)
            .finish_non_exhaustive()
    }
}
