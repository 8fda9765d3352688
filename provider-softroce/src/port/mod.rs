//! UDP port 4791 of one address, shared by all the adapters of this host that use it, without anybody in charge.
//!
//! RoCEv2 has one UDP port, and a queue pair's peer sends there whatever process the queue pair lives in. So
//! several sockets are bound to it together (SO_REUSEPORT), and a program in the kernel ([`steer`]) says
//! which of them a packet goes to, by their place in the order of binding: the *door* for requests of
//! strangers comes first, then up to 127 *slots*. Each adapter takes one slot for itself; the low bits of its
//! queue pair numbers and communication ids name it.
//!
//! The sockets must outlive whoever bound them: the kernel fills the place of one that is closed with the last one, and
//! packets would go astray. So they lie in a [`vault`] that all adapters hold, and newcomers are given it by any of the
//! others. When the last one has gone, the kernel closes all. The vault has parts: the first adapter binds the first 16
//! sockets, and whoever finds all slots of these taken binds as many again.
//!
//! They find each other by local sockets in a directory that only their user can enter ([`names`]):
//! `/tmp/opendat-UID/NETNS/ADDRESS`.
//!
//! | file | who makes it, and why |
//! |---|---|
//! | `slot-N` | the adapter that has slot N: proof that it lives, and its letter box ([`mail`]) |
//! | `life-N` | the same adapter, for its peers to see its end ([`life`]) |
//! | `service-ID` | the adapter that listens for this service |
//! | `founding.lock` | locked by who is about to bind sockets |
//! | `names.lock` | locked for a moment by who takes a name |
//!
//! A name belongs to whoever has the socket behind it, and a lock to whoever has the file open. Both go with
//! their process, however it ends. Whoever comes next removes the files of a process that was killed.

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
use std::path::PathBuf;
use std::time::{Duration, Instant};

use dat_core::environment::is_trusted;
use dat_core::user_directory::NoDirectory;
use rnic::allowance::Allowances;
use rustix::process::{geteuid, getuid};

pub(crate) use self::life::{Life, Lifeline};
pub(crate) use self::mail::{Desk, Letter, Mailbox, Newcomer};
use self::names::{Founding, Name, Names, Services};
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
    /// This goes before the mailbox: while the slot is this adapter's, `life-N` is, too.
    pub(crate) life: Life,
    pub(crate) mailbox: Mailbox,
    outbox: Outbox,
    /// Limits the packets of strangers that this adapter passes on.
    letters: Allowances,
    services: Services,
    vault: Vault,
}

/// Why an adapter did not get a slot.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PortError {
    /// Something that is not ours has the port.
    #[error(
        "UDP port 4791 of {0} is taken: by adapters or a program of another user, by adapters of this user that have \
         another /tmp or are of an earlier OpenDAT, or by the kernel's RoCE (rdma link show)"
    )]
    Taken(std::net::IpAddr),
    /// All slots have their adapters.
    #[error("127 adapters use UDP port 4791 of {0}, no more are possible")]
    Full(std::net::IpAddr),
    /// There is no directory in which adapters of one user find each other.
    #[error("UDP port 4791 of {0} is shared by way of {path}, which cannot be used: {2}", path = .1.display())]
    NoDirectory(std::net::IpAddr, PathBuf, io::Error),
    /// The program has more rights than whoever started it, or other ones.
    #[error(
        "UDP port 4791 of {0} is not shared with a program that has the rights of another user (set-user-ID and \
         the like)"
    )]
    OtherRights(std::net::IpAddr),
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
        match is_of_descriptors(&error) {
            true => PortError::Descriptors(ip, error),
            false => PortError::System(ip, error),
        }
    }

    fn of_directory(ip: std::net::IpAddr, (directory, error): NoDirectory) -> Self {
        match is_of_descriptors(&error) {
            true => PortError::Descriptors(ip, error),
            false => PortError::NoDirectory(ip, directory, error),
        }
    }
}

fn is_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ETOOMANYREFS))
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
        let ip = address.ip();
        if !is_trusted() || getuid() != geteuid() {
            return Err(PortError::OtherRights(ip));
        }
        let names = Names::new(address).map_err(|error| PortError::of_directory(ip, error))?;
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
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                    (PortError::Silent(ip), patience)
                }
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
            Err(error)
                if matches!(error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::TimedOut) =>
            {
                let obstacle =
                    if others.peek().is_some() { io::ErrorKind::TimedOut } else { error.kind() };
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
                        founding = Some(names.found()?);
                    }
                    vault.grow(address)?;
                }
            }
        }
        Self::settle(address, names, slot, mailbox, vault).map(Some)
    }

    /// The vault of an address that nobody uses, and what keeps others from making one. `TimedOut`: others
    /// use it, or are about to; `AddrInUse`: somebody has the port.
    fn found(address: SocketAddr, names: &Names) -> io::Result<(Vault, Founding)> {
        // Who comes first has the first slot.
        if names.is_alive(Name::Slot(0))? {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let founding = names.found()?;
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
        let names = names.clone();
        let (outbox, letters, services) = Default::default();
        Ok(Port {
            address,
            slot,
            names,
            socket,
            door,
            mailbox,
            outbox,
            letters,
            services,
            life,
            vault,
        })
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
        Ok(Service { mailbox: self.names.claim_service(service)? })
    }

    /// Passes a packet on to the adapter that has a slot. `of_peer` says that a peer of this
    /// adapter sent it. The number of other packets is limited.
    pub(crate) fn forward(
        &mut self,
        slot: u8,
        (from, of_peer): (SocketAddr, bool),
        packet: &[u8],
        now: Instant,
    ) {
        if SLOTS.contains(&slot) && (of_peer || self.letters.take(now, from.ip())) {
            let Port { outbox, mailbox, names, .. } = self;
            let send = |to, from, packet: &[u8]| mailbox.send(names, to, from, packet);
            outbox.post(Name::Slot(slot), from, packet, now, send);
        }
    }

    /// Passes a request on to the adapter that listens for a service. Returns false if no adapter
    /// does.
    ///
    /// It takes a system call to find out whether one does. So the number of requests is limited.
    /// Beyond the limit this passes on requests for known services only, and drops the others.
    pub(crate) fn forward_request(
        &mut self,
        service: u64,
        from: SocketAddr,
        packet: &[u8],
        now: Instant,
    ) -> bool {
        let Port { outbox, mailbox, names, letters, services, .. } = self;
        if !letters.take(now, from.ip()) && !services.has(names, service, now) {
            return true;
        }
        let send = |to, from, packet: &[u8]| mailbox.send(names, to, from, packet);
        let is_there = outbox.post(Name::Service(service), from, packet, now, send);
        if !is_there {
            services.remove(service);
        }
        is_there
    }

    /// The number of strangers' packets that this adapter dropped because of the limit.
    pub(crate) fn dropped(&self) -> u64 {
        self.letters.refused()
    }

    /// Passes on what could not be passed on before.
    pub(crate) fn go_on(&mut self, now: Instant) {
        let Port { outbox, mailbox, names, .. } = self;
        outbox.post_again(now, |to, from, packet| mailbox.send(names, to, from, packet));
    }

    /// When to go on.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.outbox.deadline()
    }

    /// A connection to the adapter that has a slot of any address; `ConnectionRefused`: this user has none on
    /// this host.
    pub(crate) fn lifeline(&self, address: SocketAddr, slot: u8) -> io::Result<Lifeline> {
        self.names.visit(address, slot).map(Lifeline)
    }

    /// Gives the vault to a newcomer.
    pub(crate) fn welcome(&self, newcomer: &Newcomer) {
        // Who is gone again needs none.
        self.vault.give(newcomer).ok();
    }
}

/// As if an adapter had a slot of an address, which need not be this host's.
#[cfg(test)]
pub(crate) fn pretend(address: SocketAddr, slot: u8) -> Life {
    Life::new(&Names::new(address).expect("a directory"), slot).expect("free")
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
        match Vault::ask(&names.address(Name::Slot(slot))?, ANSWER) {
            Ok(vault) => return Ok(Some(vault)),
            Err(error) if is_of_descriptors(&error) => return Err(error),
            // It does not answer, or has gone.
            Err(_) => {}
        }
    }
    Ok(None)
}
