//! Common service points (uDAPL 2.0): a public service point named as a socket is, by an address with its port.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;

use dat_sys::*;

use super::cr::Arrival;
use super::door::Door;
use crate::addr::SockAddr;
use crate::error::{Error, Result};
use crate::evd::Evd;
use crate::handle::{self, Node, Object, Ref};
use crate::ia::Ia;
use crate::provider::{Port, Sink, Transport};

/// A common service point.
pub struct Csp<T: Transport> {
    /// Its adapter.
    pub ia: Ref<Ia<T>>,
    // Before `door`: no request arrives once it is dropped.
    _listener: T::Listener,
    door: Arc<Door<T>>,
    /// With the port it really has.
    address: SocketAddr,
    /// For C: consumers are handed pointers to these.
    sockaddr: SockAddr,
    comm: DAT_COMM,
}

impl<T: Transport> Object for Csp<T> {
    const KIND: DAT_HANDLE_TYPE = DAT_HANDLE_TYPE_CSP;
    const INVALID: DAT_RETURN = DAT_INVALID_HANDLE_CSP;
}

/// dat_csp_create. Port 0: any free one. `DAT_PORT_IN_USE`; `DAT_COMM_NOT_SUPPORTED` unless the communicator is that of a
/// TCP socket; `DAT_INVALID_ADDRESS` if the address is not this host's.
pub fn create<T: Transport>(
    ia: &Node<Ia<T>>,
    comm: &DAT_COMM,
    address: SocketAddr,
    evd: &Node<Evd<T>>,
) -> Result<&'static Node<Csp<T>>> {
    super::rsp::check_evd(ia, evd)?;
    check_comm(comm, address)?;
    check_local(address.ip())?;
    let port = match address.port() {
        0 => Port::Any,
        port => Port::Qualifier(port.into()),
    };
    let _control = ia.control();
    ia.add(|handle| {
        let door = Arc::new(Door {
            ia: Ref::new(ia),
            evd: Ref::new(evd),
            point: handle as usize,
            port,
            only: Some(address.ip()),
            makes_eps: false,
        });
        // SAFETY: the door is dropped after the listener (field order in `Csp`).
        let sink = unsafe { Sink::new(&*door) };
        let listener = ia.transport.listen(port, evd.depth(), sink).map_err(port_in_use)?;
        let mut address = address;
        if let (Port::Any, Ok(port)) = (port, u16::try_from(ia.transport.port(&listener))) {
            address.set_port(port);
        }
        Ok(Csp {
            ia: Ref::new(ia),
            _listener: listener,
            door,
            address,
            sockaddr: address.into(),
            comm: *comm,
        })
    })
}

/// dat_csp_free. Requests that have arrived stay valid.
///
/// # Safety
/// Nobody uses a reference to it any more, if this succeeds.
pub unsafe fn free<T: Transport>(csp: &Node<Csp<T>>) -> Result<()> {
    let (ia, handle) = (csp.ia.clone(), csp.handle());
    let _control = ia.control_to_free::<Csp<T>>(handle)?;
    ia.delist(csp);
    // SAFETY: service points have no dependants.
    drop(unsafe { handle::remove(csp) });
    Ok(())
}

/// The communicator is that of a TCP socket of the address's family: those ports are what transports listen on.
fn check_comm(comm: &DAT_COMM, address: SocketAddr) -> Result<()> {
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let tcp = comm.r#type == libc::SOCK_STREAM && [0, libc::IPPROTO_TCP].contains(&comm.protocol);
    if comm.domain == family && tcp { Ok(()) } else { Err(Error::of(DAT_COMM_NOT_SUPPORTED)) }
}

/// The address is one of this host's, or all of them.
fn check_local(ip: IpAddr) -> Result<()> {
    UdpSocket::bind((ip, 0))
        .map(drop)
        .map_err(|_| Error::new(DAT_INVALID_ADDRESS, DAT_INVALID_ADDRESS_UNREACHABLE))
}

fn port_in_use(error: Error) -> Error {
    if error == Error::of(DAT_CONN_QUAL_IN_USE) { Error::of(DAT_PORT_IN_USE) } else { error }
}

impl<T: Transport> Csp<T> {
    /// The port it listens on, which is its connection qualifier.
    pub fn qualifier(&self) -> DAT_CONN_QUAL {
        self.address.port().into()
    }

    /// Takes a request that another service point hands off.
    pub(super) fn admit(&self, arrival: Arrival<'_, T>) {
        self.door.admit(self.qualifier(), arrival);
    }

    /// dat_csp_query. Pointers are valid until the service point is freed.
    pub fn query(&self, param: &mut DAT_CSP_PARAM) {
        *param = DAT_CSP_PARAM {
            ia_handle: self.ia.consumer_handle(),
            comm: std::ptr::from_ref(&self.comm).cast_mut(),
            address_ptr: self.sockaddr.as_ptr(),
            evd_handle: self.door.evd.handle(),
        };
    }
}
