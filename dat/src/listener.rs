//! The passive side: listening, and answering requests.

use std::fmt;
use std::sync::Arc;

use dat_sys::*;

use crate::endpoint::{Endpoint, private_data_to_c};
use crate::error::Result;
use crate::event::private_data;
use crate::object::{Interface, Object, call};
use crate::{Address, EventDispatcher};

/// Listens on a connection qualifier (PSP) until it is dropped. Requests are reported as
/// [`Event::ConnectionRequest`](crate::Event::ConnectionRequest); as many can wait as the dispatcher has room for.
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
        let mut given = qualifier.unwrap_or_default();
        // SAFETY: an open IA, a dispatcher, and variables to write to.
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
                    psp_create_any_func(ia, &mut given, evd, DAT_PSP_CONSUMER_FLAG, &mut handle)
                ),
            }
        }?;
        let free = interface.table().psp_free_func;
        // SAFETY: just created.
        let object = unsafe { Object::new(interface, handle, free, vec![events.object.clone()]) };
        Ok(Listener { qualifier: given, _object: object })
    }

    /// The connection qualifier.
    pub fn qualifier(&self) -> u64 {
        self.qualifier
    }
}

/// A peer that wants to connect (CR). Dropping it rejects it.
pub struct ConnectionRequest {
    handle: DAT_CR_HANDLE,
    qualifier: u64,
    interface: Arc<Interface>,
}

// SAFETY: the handle is only passed to functions of the provider; see `Interface`.
unsafe impl Send for ConnectionRequest {}
// SAFETY: as above.
unsafe impl Sync for ConnectionRequest {}

impl ConnectionRequest {
    /// # Safety
    ///
    /// The provider of this interface reported the request, and nobody else answers it.
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

    /// The connection qualifier that was called.
    pub fn qualifier(&self) -> u64 {
        self.qualifier
    }

    /// What the peer gave to its connect.
    ///
    /// # Errors
    ///
    /// What the provider says.
    pub fn private_data(&self) -> Result<Vec<u8>> {
        let param = self.query()?;
        // SAFETY: the provider's, valid until the request is answered.
        Ok(unsafe { private_data(param.private_data, param.private_data_size) })
    }

    /// The address of the peer, if the provider tells.
    ///
    /// # Errors
    ///
    /// What the provider says.
    pub fn peer(&self) -> Result<Option<Address>> {
        // SAFETY: the provider's, valid until the request is answered.
        Ok(unsafe { Address::read(self.query()?.remote_ia_address_ptr) })
    }

    fn query(&self) -> Result<DAT_CR_PARAM> {
        let mut param = DAT_CR_PARAM::zeroed();
        // SAFETY: a request that was not answered, and a record to write to.
        unsafe {
            call!(
                self.interface,
                "dat_cr_query",
                cr_query_func(self.handle, DAT_CR_FIELD_ALL, &mut param)
            )
        }?;
        Ok(param)
    }

    /// Accepts with an unconnected endpoint, whose dispatcher reports when the connection is up.
    ///
    /// # Errors
    ///
    /// [`InvalidState`](crate::ErrorKind::InvalidState) for an endpoint that is not unconnected or lacks its zone or
    /// dispatcher, [`InvalidParameter`](crate::ErrorKind::InvalidParameter) for too much private data; the request
    /// is rejected then.
    pub fn accept(self, endpoint: &mut Endpoint, private_data: &[u8]) -> Result<()> {
        let (size, data) = private_data_to_c(private_data);
        // SAFETY: a request that was not answered, an endpoint, and private data, which is only read.
        unsafe {
            call!(
                self.interface,
                "dat_cr_accept",
                cr_accept_func(self.handle, endpoint.object.handle, size, data)
            )
        }?;
        self.answered();
        Ok(())
    }

    /// Rejects, and says more in private data.
    ///
    /// # Errors
    ///
    /// [`InvalidParameter`](crate::ErrorKind::InvalidParameter) for too much private data; the request is rejected
    /// without then.
    pub fn reject(self, private_data: &[u8]) -> Result<()> {
        let (size, data) = private_data_to_c(private_data);
        // SAFETY: a request that was not answered, and private data, which is only read.
        unsafe { call!(self.interface, "dat_cr_reject", cr_reject_func(self.handle, size, data)) }?;
        self.answered();
        Ok(())
    }

    /// The handle is dead.
    fn answered(mut self) {
        self.handle = DAT_HANDLE_NULL;
    }
}

impl Drop for ConnectionRequest {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: a request that was not answered. Should that fail, the request goes with the adapter.
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
