//! UDP port 4791 of one address, shared by all the adapters of this host that use it, without anybody in charge.
//!
//! RoCEv2 has one UDP port, and a queue pair's peer sends there whatever process the queue pair lives in. So several sockets
//! are bound to it together (SO_REUSEPORT), and a program in the kernel ([`steer`]) says which of them a packet goes to, by
//! their place in the order of binding: the *door* for requests of strangers comes first, then up to 127 *slots*. Each adapter
//! takes one slot for itself; the low bits of its queue pair numbers and communication ids name it.
//!
//! The sockets must outlive whoever bound them: the kernel fills the place of one that is closed with the last one, and
//! packets would go astray. So they lie in a [`vault`] that all adapters hold, and newcomers are given it by any of the
//! others. When the last one has gone, the kernel closes all. The vault has parts: the first adapter binds the first 16
//! sockets, and whoever finds all slots of these taken binds as many again.
//!
//! | name in the abstract namespace | who binds it, and why |
//! |---|---|
//! | `opendat/rocev2/ADDRESS/slot/N` | the adapter that has slot N: proof that it lives, and its letter box ([`mail`]) |
//! | `opendat/rocev2/ADDRESS/life/N` | the same adapter, for its peers to see its end ([`life`]) |
//! | `opendat/rocev2/ADDRESS/service/ID` | the adapter that listens for this service |
//! | `opendat/rocev2/ADDRESS/founding` | who is about to bind sockets |
//!
//! All these names go with their process, however it ends: no file, no lock and no shared memory is left to be cleaned up.

mod life;
mod mail;
mod names;
mod outbox;
mod steer;
#[cfg(test)]
mod tests;
mod vault;

use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

pub(crate) use self::life::{Life, Lifeline};
pub(crate) use self::mail::{Desk, Letter, Mailbox, Newcomer};
use self::names::Names;
use self::outbox::Outbox;
pub(crate) use self::steer::{DOOR, SLOTS, slot_of};
use self::vault::Vault;
use crate::socket::Udp;

/// RoCEv2's (IBA annex A17).
pub(crate) const UDP_PORT: u16 = 4791;

/// How long an adapter tries to get a slot: those who have the port may just be leaving.
const PATIENCE: Duration = Duration::from_secs(1);
/// The same where there are some who could give it the vault: they may be very busy, or their processors are.
pub(crate) const MORE_PATIENCE: Duration = Duration::from_secs(5);
/// The same while connections wait for the engine: about one of the times in which their peers expect an answer.
pub(crate) const LESS_PATIENCE: Duration = Duration::from_millis(500);
/// Pause between two tries.
const PAUSE: Duration = Duration::from_millis(2);
/// How long somebody who lives has to hand over the vault, before the next one is asked.
const ANSWER: Duration = Duration::from_millis(250);

/// One adapter's share of an address's port.
pub(crate) struct Port {
    address: SocketAddr,
    slot: u8,
    names: Names,
    /// What is meant for this adapter's queue pairs and connections comes here.
    pub(crate) socket: Udp,
    /// Requests of strangers: whoever reads one passes it on to the adapter that listens.
    pub(crate) door: Udp,
    pub(crate) mailbox: Mailbox,
    outbox: Outbox,
    pub(crate) life: Life,
    vault: Vault,
}

/// Why an adapter did not get a slot.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PortError {
    /// Something that is not ours has the port.
    #[error(
        "UDP port 4791 of {0} is taken: by adapters or a program of another user, or by the kernel's RoCE (rdma link show)"
    )]
    Taken(std::net::IpAddr),
    /// All slots have their adapters.
    #[error("127 adapters use UDP port 4791 of {0}, no more are possible")]
    Full(std::net::IpAddr),
    /// Others have the port and do not answer.
    #[error("the processes that share UDP port 4791 of {0} do not answer")]
    Silent(std::net::IpAddr),
    /// The system's limits on descriptors, for the process or (of those in vaults) for the user, are met.
    #[error("UDP port 4791 of {0}: {1}: more descriptors must be allowed (ulimit -n)")]
    Descriptors(std::net::IpAddr, io::Error),
    /// All ports that the system gives out are in use.
    #[error(
        "no UDP port of {0} is free to send from: more must be given out (sysctl net.ipv4.ip_local_port_range)"
    )]
    NoLocalPort(std::net::IpAddr),
    /// The operating system refused something.
    #[error("UDP port 4791 of {0}: {1}")]
    System(std::net::IpAddr, io::Error),
}

impl PortError {
    /// Of a socket with a port of its own.
    pub(crate) fn of_sender(ip: std::net::IpAddr, error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::AddrInUse => PortError::NoLocalPort(ip),
            _ => PortError::of(ip, error),
        }
    }

    fn of(ip: std::net::IpAddr, error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE | libc::ETOOMANYREFS) => PortError::Descriptors(ip, error),
            _ => PortError::System(ip, error),
        }
    }
}

/// A service that this adapter listens for; `drop` gives it up.
pub(crate) struct Service {
    /// Where others put requests for it.
    pub(crate) mailbox: Mailbox,
}

impl Port {
    /// Takes a slot of an address of this host; `patience`: with those who could give it the vault, and a little more.
    pub(crate) fn open(address: SocketAddr, patience: Duration) -> Result<Port, PortError> {
        let address = with_port(address);
        let names = Names::new(address);
        let ip = address.ip();
        let start = Instant::now();
        loop {
            let (obstacle, limit) = match Self::try_open(address, &names, start + patience) {
                Ok(Some(port)) => return Ok(port),
                Ok(None) => return Err(PortError::Full(ip)),
                // The last adapter may just be closing its sockets.
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                    (PortError::Taken(ip), PATIENCE.min(patience))
                }
                // It has gone meanwhile, or does not answer, or another one is founding.
                Err(error) if error.kind() == io::ErrorKind::TimedOut => (PortError::Silent(ip), patience),
                Err(error) => return Err(PortError::of(ip, error)),
            };
            if start.elapsed() >= limit {
                return Err(obstacle);
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// `None`: there is no slot left.
    fn try_open(address: SocketAddr, names: &Names, deadline: Instant) -> io::Result<Option<Port>> {
        let mut others = names.alive()?.peekable();
        // Held until the slot has its owner, so that there is always one or the other.
        let mut founding = None;
        let mut vault = match Self::found(address, names) {
            Ok((vault, held)) => {
                founding = Some(held);
                vault
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::TimedOut) => {
                let obstacle = if others.peek().is_some() { io::ErrorKind::TimedOut } else { error.kind() };
                next_answer(names, &mut others, deadline)?.ok_or(obstacle)?
            }
            Err(error) => return Err(error),
        };
        let Some((slot, mailbox)) = names.claim_slot()? else { return Ok(None) };
        let mut others = others.filter(|&other| other != slot);
        // The slot may belong to a part that not everybody has, or nobody.
        while !vault.has(slot) {
            match next_answer(names, &mut others, deadline)? {
                Some(answer) => vault = vault.or(answer),
                None => {
                    if founding.is_none() {
                        founding = Some(names.bind_founding()?);
                    }
                    vault.grow(address)?;
                }
            }
        }
        Self::settle(address, names, slot, mailbox, vault).map(Some)
    }

    /// The vault of an address that nobody uses, and what keeps others from making one. `TimedOut`: others use it, or are about
    /// to; `AddrInUse`: somebody has the port.
    fn found(address: SocketAddr, names: &Names) -> io::Result<(Vault, UnixDatagram)> {
        // Who comes first has the first slot.
        if names.is_alive(0) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let founding = names.bind_founding()?;
        Ok((Vault::found(address)?, founding))
    }

    /// Moves into a slot.
    fn settle(
        address: SocketAddr,
        names: &Names,
        slot: u8,
        mailbox: Mailbox,
        vault: Vault,
    ) -> io::Result<Port> {
        let [socket, door] = vault.take([slot, DOOR])?.map(Udp::from);
        socket.prepare(address)?;
        // What came for the slot's last owner.
        socket.drain();
        let life = Life::new(names, slot)?;
        let (names, outbox) = (names.clone(), Outbox::default());
        Ok(Port { address, slot, names, socket, door, mailbox, outbox, life, vault })
    }

    /// The address, with the port's number.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The low bits of what names this adapter's queue pairs and connections.
    pub(crate) fn slot(&self) -> u8 {
        self.slot
    }

    /// Listens for a service; `AddrInUse`: another adapter does.
    pub(crate) fn listen(&self, service: u64) -> io::Result<Service> {
        Ok(Service { mailbox: self.names.bind_service(service)? })
    }

    /// Passes a packet on to the adapter that has a slot.
    pub(crate) fn forward(&mut self, slot: u8, from: SocketAddr, packet: &[u8], now: Instant) {
        self.outbox.post(&self.mailbox, self.names.slot(slot), from, packet, now);
    }

    /// Passes a request on to the adapter that listens for a service. False: there is none.
    pub(crate) fn forward_request(
        &mut self,
        service: u64,
        from: SocketAddr,
        packet: &[u8],
        now: Instant,
    ) -> bool {
        self.outbox.post(&self.mailbox, self.names.service(service), from, packet, now)
    }

    /// Passes on what could not be passed on before.
    pub(crate) fn go_on(&mut self, now: Instant) {
        self.outbox.post_again(&self.mailbox, now);
    }

    /// When to go on.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.outbox.deadline()
    }

    /// Gives the vault to a newcomer.
    pub(crate) fn welcome(&self, newcomer: &Newcomer) {
        // Who is gone again needs none.
        self.vault.give(&self.mailbox, newcomer).ok();
    }
}

fn with_port(mut address: SocketAddr) -> SocketAddr {
    address.set_port(UDP_PORT);
    address
}

/// The vault, as the next of these adapters has it that answers. `None`: none of them does.
fn next_answer(
    names: &Names,
    others: &mut impl Iterator<Item = u8>,
    deadline: Instant,
) -> io::Result<Option<Vault>> {
    for slot in others {
        // Each that does not answer takes its time.
        if Instant::now() >= deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match names.ask(slot, ANSWER) {
            Some(vault) => return Ok(Some(vault)),
            // It does not answer us, nor will any other.
            None if names.is_foreign(slot) => return Err(io::ErrorKind::AddrInUse.into()),
            None => {}
        }
    }
    Ok(None)
}
