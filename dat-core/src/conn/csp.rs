//! Common service points (CSPs, uDAPL 2.0). A CSP is a public service point that is named by an
//! address with its port, as a socket is.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use dat_sys::*;

use super::cr::IncomingRequest;
use super::qualifier::{self, Qualifier};
use super::request_handler::RequestHandler;
use crate::addr::{self, SockAddr};
use crate::error::{Error, Result};
use crate::evd::Evd;
use crate::handle::{self, Node, Object, Ref};
use crate::ia::Ia;
use crate::provider::{Sink, Transport};

/// A common service point.
pub struct Csp<T: Transport> {
    /// The adapter of the service point.
    pub ia: Ref<Ia<T>>,
    // The listener is declared before `handler`, so it is dropped first. No request arrives after
    // the listener is dropped.
    _listener: T::Listener,
    handler: Arc<RequestHandler<T>>,
    /// The address on which the service point listens, with the actual port.
    address: SocketAddr,
    /// The address in its C representation. Consumers get a pointer to it.
    sockaddr: SockAddr,
    comm: DAT_COMM,
}

impl<T: Transport> Object for Csp<T> {
    const KIND: DAT_HANDLE_TYPE = DAT_HANDLE_TYPE_CSP;
    const INVALID: DAT_RETURN = DAT_INVALID_HANDLE_CSP;
}

/// Implements dat_csp_create. Port 0 stands for any free port. Errors:
///
/// - `DAT_PORT_IN_USE`: another listener has the port.
/// - `DAT_COMM_NOT_SUPPORTED`: the communicator does not describe a TCP socket.
/// - `DAT_INVALID_ADDRESS`: this host does not have the address.
pub fn create<T: Transport>(
    ia: &Node<Ia<T>>,
    comm: &DAT_COMM,
    address: SocketAddr,
    evd: &Node<Evd<T>>,
) -> Result<&'static Node<Csp<T>>> {
    super::rsp::check_evd(ia, evd)?;
    check_comm(comm, address)?;
    let address = addr::with_scope(address, ia.transport.attrs().interface)?;
    check_local(address)?;
    let qualifier = match address.port() {
        0 => Qualifier::Any,
        port => Qualifier::Exactly(port.into()),
    };
    let _control = ia.control();
    ia.add(|handle| {
        let handler = Arc::new(RequestHandler {
            ia: Ref::new(ia),
            evd: Ref::new(evd),
            service_point: handle as usize,
            qualifier,
            local_address: Some(address.ip()),
            creates_eps: false,
        });
        // SAFETY: the handler is dropped after the listener (field order in `Csp`).
        let sink = unsafe { Sink::new(&*handler) };
        // SAFETY: this call holds the control lock.
        let listener =
            unsafe { qualifier::listen(ia, qualifier, evd.depth(), sink) }.map_err(port_in_use)?;
        let mut address = address;
        if qualifier == Qualifier::Any {
            address.set_port(ia.transport.port(&listener));
        }
        Ok(Csp {
            ia: Ref::new(ia),
            _listener: listener,
            handler,
            address,
            sockaddr: address.into(),
            comm: *comm,
        })
    })
}

/// Implements dat_csp_free. Connection requests that have already arrived stay valid.
///
/// # Safety
/// If this call succeeds, nobody uses a reference to the service point after the call.
pub unsafe fn free<T: Transport>(csp: &Node<Csp<T>>) -> Result<()> {
    let (ia, handle) = (csp.ia.clone(), csp.handle());
    let _control = ia.control_to_free::<Csp<T>>(handle)?;
    ia.unregister_object(csp);
    // SAFETY: no object depends on a service point.
    drop(unsafe { handle::remove(csp) });
    Ok(())
}

/// Checks that the communicator describes a TCP socket of the address's family, because transports
/// listen on TCP ports.
fn check_comm(comm: &DAT_COMM, address: SocketAddr) -> Result<()> {
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let tcp = comm.r#type == libc::SOCK_STREAM && [0, libc::IPPROTO_TCP].contains(&comm.protocol);
    if comm.domain == family && tcp { Ok(()) } else { Err(Error::of(DAT_COMM_NOT_SUPPORTED)) }
}

/// Checks that this host has the address. The unspecified address, which stands for all addresses
/// of the host, also passes.
fn check_local(mut address: SocketAddr) -> Result<()> {
    address.set_port(0);
    UdpSocket::bind(address).map(drop).map_err(|error| match error.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM | libc::EADDRINUSE) => {
            Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY)
        }
        _ => Error::new(DAT_INVALID_ADDRESS, DAT_INVALID_ADDRESS_UNREACHABLE),
    })
}

fn port_in_use(error: Error) -> Error {
    if error == Error::of(DAT_CONN_QUAL_IN_USE) { Error::of(DAT_PORT_IN_USE) } else { error }
}

impl<T: Transport> Csp<T> {
    /// The port that the service point listens on, which is its connection qualifier.
    pub fn qualifier(&self) -> DAT_CONN_QUAL {
        self.address.port().into()
    }

    /// Handles a request that the consumer has handed off to this service point.
    pub(super) fn handle_request(&self, incoming: IncomingRequest<'_, T>) {
        self.handler.handle_request(self.qualifier(), incoming);
    }

    /// Implements dat_csp_query. The pointers in the result are valid until the service point is
    /// freed.
    pub fn query(&self, param: &mut DAT_CSP_PARAM) {
        *param = DAT_CSP_PARAM {
            ia_handle: self.ia.consumer_handle(),
            comm: std::ptr::from_ref(&self.comm).cast_mut(),
            address_ptr: self.sockaddr.as_ptr(),
            evd_handle: self.handler.evd.handle(),
        };
    }
}
