//! Names in the abstract namespace of local sockets, which is the network namespace's, as the UDP port is.

use std::io;
use std::net::SocketAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{self, UnixDatagram, UnixStream};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};

use super::SLOTS;
use super::mail::{self, Mailbox};
use super::vault::Vault;

/// The names that belong to one address.
#[derive(Clone)]
pub(super) struct Names(String);

impl Names {
    pub(super) fn new(address: SocketAddr) -> Self {
        let scope = match address {
            SocketAddr::V6(v6) if v6.scope_id() != 0 => format!("%{}", v6.scope_id()),
            _ => String::new(),
        };
        Names(format!("opendat/rocev2/{}{scope}", address.ip()))
    }

    fn name(&self, of: &str) -> net::SocketAddr {
        // At most 75 octets: "opendat/rocev2/", an IPv6 address with its scope, "/service/" and 16 digits.
        net::SocketAddr::from_abstract_name(format!("{}/{of}", self.0)).expect("short enough")
    }

    pub(super) fn slot(&self, slot: u8) -> net::SocketAddr {
        self.name(&format!("slot/{slot}"))
    }

    pub(super) fn life(&self, slot: u8) -> net::SocketAddr {
        self.name(&format!("life/{slot}"))
    }

    pub(super) fn service(&self, service: u64) -> net::SocketAddr {
        self.name(&format!("service/{service:x}"))
    }

    /// Whether somebody has the slot.
    pub(super) fn is_alive(&self, slot: u8) -> bool {
        UnixDatagram::unbound().and_then(|socket| socket.connect_addr(&self.slot(slot))).is_ok()
    }

    /// The slots that somebody has, as they are when they are looked at.
    pub(super) fn alive(&self) -> io::Result<impl Iterator<Item = u8>> {
        let socket = UnixDatagram::unbound()?;
        // Connecting a datagram socket asks nothing of the other side.
        Ok(SLOTS.filter(move |&slot| socket.connect_addr(&self.slot(slot)).is_ok()))
    }

    /// Whether somebody has the slot who is not of our user.
    pub(super) fn is_foreign(&self, slot: u8) -> bool {
        let owner = self.visit(slot).ok().and_then(|stream| sockopt::socket_peercred(stream).ok());
        owner.is_some_and(|owner| !mail::is_ours(&owner))
    }

    /// A connection to the owner of a slot, whether it looks or not; `ConnectionRefused`: there is none on this host. Does
    /// not wait: `WouldBlock` where as many have come as the kernel keeps for it.
    pub(super) fn visit(&self, slot: u8) -> io::Result<UnixStream> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        let life = self.life(slot);
        let name = life.as_abstract_name().expect("all names here are");
        rustix::net::connect(&socket, &SocketAddrUnix::new_abstract_name(name)?)?;
        Ok(socket.into())
    }

    /// Takes the first free slot.
    pub(super) fn claim_slot(&self) -> io::Result<Option<(u8, Mailbox)>> {
        for slot in SLOTS {
            match Mailbox::bind(&self.slot(slot)) {
                Ok(mailbox) => return Ok(Some((slot, mailbox))),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    pub(super) fn bind_service(&self, service: u64) -> io::Result<Mailbox> {
        Mailbox::bind(&self.service(service))
    }

    /// While this socket is there nobody else founds. `TimedOut`: somebody does.
    pub(super) fn bind_founding(&self) -> io::Result<UnixDatagram> {
        UnixDatagram::bind_addr(&self.name("founding")).map_err(|_| io::ErrorKind::TimedOut.into())
    }

    /// Asks the owner of a slot for the vault.
    pub(super) fn ask(&self, slot: u8, patience: Duration) -> Option<Vault> {
        Vault::ask(&self.slot(slot), patience).ok()
    }
}
