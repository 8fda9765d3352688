//! UDP port 4791 of one address. All adapters of one user on this host share the port, and no
//! process is in charge of it.
//!
//! RoCEv2 has one UDP port, and a peer sends to that port, whichever process has the queue pair.
//! Therefore several sockets are bound to the port together (SO_REUSEPORT), and a BPF program
//! ([`socket_choice`]) selects the socket for each packet by the order of binding. The first socket
//! is the *REQ socket* for the requests of new peers. It is followed by up to 1087 *slots*. Each
//! engine of an adapter has one slot. The low bits of its queue pair numbers and communication ids
//! are the number of the slot.
//!
//! | other designs | why not |
//! |---|---|
//! | each process binds a socket of its own | when a process exits, the kernel moves the last socket to its place, and packets of two processes go astray |
//! | one process owns the port and forwards packets | each packet costs a copy and a wake-up, and the connections of all processes stop when the owner dies |
//! | a daemon owns the port | the user would have to start it |
//!
//! The sockets must outlive the process that has bound them: if one is closed, the kernel moves the
//! last socket to its position, and packets would be misdirected. Therefore all adapters hold the
//! set of [`shared_sockets`], and a new adapter receives it from any of the others. When the last
//! adapter ends, the kernel closes all sockets. The set consists of parts: the first adapter binds
//! the first 16 sockets, and an adapter that finds all slots of the existing parts taken binds one
//! more part.
//!
//! Adapters find each other by local sockets in a directory that only their user can enter
//! ([`socket_files`]): `NETNS/v3-ADDRESS` in the
//! [directory of the user](telemetry::user_directory), which is usually `/tmp/opendat-UID`.
//!
//! | file | owner and purpose |
//! |---|---|
//! | `slot-N` | the adapter with slot N: shows that it exists; gets messages ([`local_socket`]) |
//! | `life-N` | the same adapter: shows peers when it ends ([`liveness`]) |
//! | `service-ID` | the adapter that listens for this service: receives requests |
//! | `founding.lock` | locked by a process that binds sockets to the port |
//! | `names.lock` | locked for a moment by a process that takes a name |
//!
//! A name belongs to the process that has the socket, and a lock to the process that has the file
//! open. Both end with the process, however it ends. The next process that wants the name removes
//! the file of a process that was killed.

mod liveness;
mod local_socket;
mod outside;
mod send_queue;
mod shared_sockets;
mod socket_choice;
mod socket_files;
#[cfg(test)]
mod tests;

use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rnic::rate_limit::TokenBuckets;
use rustix::process::{geteuid, getuid};
use telemetry::environment::is_trusted;
use telemetry::user_directory::NoDirectory;

pub(crate) use self::liveness::{LivenessConnection, LivenessListener};
pub(crate) use self::local_socket::{
    LocalMessage, LocalSocket, Origin, ReceiveBuffer, SocketRequest,
};
use self::send_queue::SendQueue;
use self::shared_sockets::{SharedSockets, SocketRequests};
pub(crate) use self::socket_choice::{
    PortSlot, REQ_SLOT, SLOTS, low_bits, slot_of, slot_of_packet,
};
pub(crate) use self::socket_files::ClosedService;
use self::socket_files::{BindLock, Name, Names, Services};
use crate::socket::Udp;

/// The UDP port of RoCEv2 (IBA annex A17).
pub(crate) const UDP_PORT: u16 = 4791;

/// The time for which an adapter tries to open a port that is taken, because the adapters that have
/// the port may be closing.
const PORT_TAKEN_TIMEOUT: Duration = Duration::from_secs(1);
/// The time for which an adapter waits for the shared sockets if other adapters have them. The
/// other adapters, or their CPUs, may be very busy.
pub(crate) const OPEN_TIMEOUT: Duration = Duration::from_secs(5);
/// The time for which an adapter waits for the shared sockets while connections wait for its
/// engine. Their peers expect an acknowledgement in about this time.
pub(crate) const OPEN_TIMEOUT_CONNECTING: Duration = Duration::from_millis(500);
/// The pause between two attempts to take a slot.
const RETRY_INTERVAL: Duration = Duration::from_millis(2);
/// The time for which an adapter waits for the answer of one adapter before it also asks the next.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(250);

/// One adapter's share of the port of an address.
pub(crate) struct Port {
    address: SocketAddr,
    slot: PortSlot,
    names: Names,
    /// The socket that receives the packets for this adapter's queue pairs and connections.
    pub(crate) socket: Udp,
    /// The socket that receives requests of new peers. The adapter that reads a request forwards it
    /// to the adapter that listens.
    pub(crate) req_socket: Udp,
    /// The liveness listener. This field is dropped before `local_socket`, because `life-N` must
    /// belong to this adapter for as long as the slot does.
    pub(crate) liveness: LivenessListener,
    pub(crate) local_socket: LocalSocket,
    send_queue: SendQueue,
    /// Limits the rate at which this adapter forwards packets of unknown senders.
    forward_allowances: TokenBuckets,
    services: Services,
    shared_sockets: SharedSockets,
}

/// The reason for which an adapter did not get a slot.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PortError {
    /// A process that does not share the port is using it.
    #[error(
        "UDP port 4791 of {0} is taken: by adapters or a program of another user, by adapters of \
         this user that have another /tmp or are of an earlier OpenDAT, or by the kernel's RoCE \
         (rdma link show)"
    )]
    Taken(std::net::IpAddr),
    /// All slots are taken.
    #[error("1087 adapters use UDP port 4791 of {0}, which is the maximum")]
    Full(std::net::IpAddr),
    /// Another adapter has the only slot that was asked for.
    #[error("another adapter has the share of UDP port 4791 of {0} that this adapter needs")]
    SlotTaken(std::net::IpAddr),
    /// The directory in which adapters of one user find each other cannot be used.
    #[error(
        "UDP port 4791 of {0} is shared through the directory {path}, which cannot be used: {2}",
        path = .1.display()
    )]
    NoDirectory(std::net::IpAddr, PathBuf, io::Error),
    /// The process has the rights of another user than the one who started it.
    #[error(
        "UDP port 4791 of {0} is not shared with a program that has the rights of another user \
         (set-user-ID and the like)"
    )]
    OtherRights(std::net::IpAddr),
    /// Other adapters use the port and do not answer.
    #[error("the processes that share UDP port 4791 of {0} do not answer")]
    Silent(std::net::IpAddr),
    /// The limit of descriptors is reached: the limit of the process, or the user's limit of
    /// descriptors in flight. The descriptors of the shared sockets count as in flight.
    #[error("UDP port 4791 of {0}: {1}: raise the limit of descriptors (ulimit -n)")]
    Descriptors(std::net::IpAddr, io::Error),
    /// All ephemeral ports are in use.
    #[error(
        "no UDP port of {0} is free to send from: widen the range of ephemeral ports \
         (sysctl net.ipv4.ip_local_port_range)"
    )]
    NoLocalPort(std::net::IpAddr),
    /// There is too little memory.
    #[error("UDP port 4791 of {0}: no memory is left")]
    NoMemory(std::net::IpAddr),
    /// A system call failed.
    #[error("UDP port 4791 of {0}: {1}")]
    System(std::net::IpAddr, io::Error),
}

impl PortError {
    /// Converts an error of opening the sending socket, which has an ephemeral port.
    pub(crate) fn of_sender(ip: std::net::IpAddr, error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::AddrInUse => PortError::NoLocalPort(ip),
            _ => PortError::of(ip, error),
        }
    }

    fn of(ip: std::net::IpAddr, error: io::Error) -> Self {
        match is_descriptor_limit(&error) {
            true => PortError::Descriptors(ip, error),
            false => PortError::System(ip, error),
        }
    }

    fn of_directory(ip: std::net::IpAddr, (directory, error): NoDirectory) -> Self {
        match is_descriptor_limit(&error) {
            true => PortError::Descriptors(ip, error),
            false => PortError::NoDirectory(ip, directory, error),
        }
    }
}

fn is_descriptor_limit(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ETOOMANYREFS))
}

/// The registration of a service. The adapter listens for the service until this value is dropped.
pub(crate) struct Service {
    /// The socket that receives the requests which other adapters forward.
    pub(crate) local_socket: LocalSocket,
    /// The name that replaces the service's name if requests are still open when the listener
    /// closes.
    pub(crate) closed: ClosedService,
}

impl Port {
    /// Takes the first free slot of `slots` at a local address. If other adapters have the shared
    /// sockets, `timeout` is the time to wait for them.
    pub(crate) fn open(
        address: SocketAddr,
        slots: Range<PortSlot>,
        timeout: Duration,
    ) -> Result<Port, PortError> {
        let address = with_port(address);
        let ip = address.ip();
        if !is_trusted() || getuid() != geteuid() {
            return Err(PortError::OtherRights(ip));
        }
        let names = Names::new(address).map_err(|error| PortError::of_directory(ip, error))?;
        let start = Instant::now();
        loop {
            let (obstacle, limit) = match Self::try_open(address, &names, &slots, start + timeout) {
                Ok(Some(port)) => return Ok(port),
                Ok(None) if slots.len() == 1 => return Err(PortError::SlotTaken(ip)),
                Ok(None) => return Err(PortError::Full(ip)),
                // The port may become free, because its last adapter may be closing its sockets.
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                    (PortError::Taken(ip), PORT_TAKEN_TIMEOUT.min(timeout))
                }
                // The adapter that was asked has ended or does not answer, or another process is
                // binding sockets.
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                    (PortError::Silent(ip), timeout)
                }
                Err(error) => return Err(PortError::of(ip, error)),
            };
            if start.elapsed() >= limit {
                return Err(obstacle);
            }
            std::thread::sleep(RETRY_INTERVAL);
        }
    }

    /// Tries to take a slot. Returns `None` if none of `slots` is free.
    fn try_open(
        address: SocketAddr,
        names: &Names,
        slots: &Range<PortSlot>,
        deadline: Instant,
    ) -> io::Result<Option<Port>> {
        let (mut others, mut requests) =
            (names.taken_slots()?.peekable(), SocketRequests::default());
        // The lock is held until this adapter owns its slot. So at any time either the lock is held
        // or the slot shows that the port is in use.
        let mut bind_lock = None;
        let mut shared_sockets = match Self::bind_first(address, names) {
            Ok((sockets, lock)) => {
                bind_lock = Some(lock);
                sockets
            }
            Err(error)
                if matches!(error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::TimedOut) =>
            {
                let obstacle =
                    if others.peek().is_some() { io::ErrorKind::TimedOut } else { error.kind() };
                match request_from_any(&mut requests, names, &mut others, deadline)? {
                    Some(sockets) => sockets,
                    None => requests.first_answer(deadline)?.ok_or(obstacle)?,
                }
            }
            Err(error) => return Err(error),
        };
        let Some((slot, local_socket)) = names.claim_slot(slots.clone())? else { return Ok(None) };
        // The socket of the slot may be in a part of the shared sockets that this adapter has not
        // received. Ask the other adapters for it. An adapter with a higher slot has it for sure.
        // If none of them has it, bind it.
        let mut others = None;
        while !shared_sockets.has_slot(slot) {
            let others = others.get_or_insert_with(|| names.listed_slots(slot));
            match request_from_any(&mut requests, names, others, deadline)? {
                Some(answer) => shared_sockets = shared_sockets.or_larger(answer),
                None => {
                    if bind_lock.is_none() {
                        bind_lock = Some(names.lock_binding()?);
                    }
                    shared_sockets.bind_more(address)?;
                }
            }
        }
        Self::take_slot(address, names, slot, local_socket, shared_sockets).map(Some)
    }

    /// Binds the first sockets of an address that no adapter uses. Returns the lock that keeps
    /// other processes from binding sockets. Errors: `TimedOut` if other adapters use the address
    /// or are about to use it; `AddrInUse` if another process has the port.
    fn bind_first(address: SocketAddr, names: &Names) -> io::Result<(SharedSockets, BindLock)> {
        // The first adapter has slot 0, unless it needs another one.
        if names.is_taken(Name::Slot(0))? {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let bind_lock = names.lock_binding()?;
        Ok((SharedSockets::bind_first(address)?, bind_lock))
    }

    /// Starts to use a slot.
    fn take_slot(
        address: SocketAddr,
        names: &Names,
        slot: PortSlot,
        local_socket: LocalSocket,
        shared_sockets: SharedSockets,
    ) -> io::Result<Port> {
        let [socket, req_socket] = shared_sockets.duplicate([slot, REQ_SLOT])?.map(Udp::from);
        socket.configure(address)?;
        // Drop packets that arrived for the previous owner of the slot.
        socket.drain();
        let liveness = LivenessListener::new(names, slot)?;
        let names = names.clone();
        let (send_queue, forward_allowances, services) = Default::default();
        Ok(Port {
            address,
            slot,
            names,
            socket,
            req_socket,
            local_socket,
            send_queue,
            forward_allowances,
            services,
            liveness,
            shared_sockets,
        })
    }

    /// The address, with port 4791.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The slot: the low bits of this adapter's queue pair numbers and communication ids.
    pub(crate) fn slot(&self) -> PortSlot {
        self.slot
    }

    /// Listens for a service. Returns `AddrInUse` if another adapter listens for it.
    pub(crate) fn listen(&self, service: u64) -> io::Result<Service> {
        let local_socket = self.names.claim_service(service)?;
        Ok(Service { local_socket, closed: self.names.closed_service(service, self.slot) })
    }

    /// Forwards a packet to the adapter that has a slot. `of_peer` says that a peer of this adapter
    /// sent the packet. Packets of other senders are forwarded only up to a limit.
    pub(crate) fn forward(
        &mut self,
        slot: PortSlot,
        (origin, of_peer): (Origin, bool),
        packet: &[u8],
        now: Instant,
    ) {
        if SLOTS.contains(&slot) && (of_peer || self.forward_allowances.take(now, origin.from.ip()))
        {
            let Port { send_queue, local_socket, names, .. } = self;
            let send = |to, origin, packet: &[u8]| local_socket.send(names, to, origin, packet);
            send_queue.send(Name::Slot(slot), origin, packet, now, send);
        }
    }

    /// Forwards a request to the adapter that listens for a service. If no adapter listens,
    /// forwards it to the adapter that last listened for the service and still has requests.
    /// Returns false if no such adapter exists.
    ///
    /// A system call is necessary to find out whether an adapter listens. Therefore the number of
    /// requests is limited. Beyond the limit, only requests for known services are forwarded. Other
    /// requests are dropped.
    pub(crate) fn forward_request(
        &mut self,
        service: u64,
        from: SocketAddr,
        packet: &[u8],
        now: Instant,
    ) -> bool {
        let Port { send_queue, local_socket, names, forward_allowances, services, .. } = self;
        if !forward_allowances.take(now, from.ip()) && !services.has(names, service, now) {
            return true;
        }
        let send = |to, origin, packet: &[u8]| local_socket.send(names, to, origin, packet);
        let origin = from.into();
        if send_queue.send(Name::Service(service), origin, packet, now, send) {
            return true;
        }
        services.remove(service);
        send_queue.send(Name::ClosedService(service), origin, packet, now, send)
    }

    /// The number of packets of unknown senders that this adapter dropped because of the limit.
    pub(crate) fn dropped(&self) -> u64 {
        self.forward_allowances.refused()
    }

    /// Tries again to forward the packets that wait because a receiver's queue was full.
    pub(crate) fn retry_sends(&mut self, now: Instant) {
        let Port { send_queue, local_socket, names, .. } = self;
        send_queue.retry(now, |to, origin, packet| local_socket.send(names, to, origin, packet));
    }

    /// The time at which to call [`retry_sends`](Self::retry_sends).
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.send_queue.deadline()
    }

    /// Connects to the liveness socket of the adapter that has this slot at this address. The
    /// address may be any address of this host. Returns `ConnectionRefused` if no adapter of this
    /// user has the slot.
    pub(crate) fn connect_liveness(
        &self,
        address: SocketAddr,
        slot: PortSlot,
    ) -> io::Result<LivenessConnection> {
        self.names.connect_liveness(address, slot).map(LivenessConnection)
    }

    /// Sends the shared sockets to an adapter that has requested them.
    pub(crate) fn send_shared_sockets(&self, request: &SocketRequest) {
        // An error means that the requester has ended, so it is ignored.
        self.shared_sockets.send_to(request).ok();
    }
}

/// Takes the liveness name of a slot of an address. The address need not be on this host.
#[cfg(test)]
pub(crate) fn take_liveness_name(address: SocketAddr, slot: PortSlot) -> LivenessListener {
    LivenessListener::new(&Names::new(address).expect("a directory"), slot)
        .expect("the slot is free")
}

fn with_port(mut address: SocketAddr) -> SocketAddr {
    address.set_port(UDP_PORT);
    address
}

/// Requests the shared sockets from each of these adapters until one answers. Returns `None` if all
/// of them were asked and none has answered yet.
fn request_from_any(
    requests: &mut SocketRequests,
    names: &Names,
    others: &mut impl Iterator<Item = PortSlot>,
    deadline: Instant,
) -> io::Result<Option<SharedSockets>> {
    for slot in others {
        // Each adapter that does not answer costs `ANSWER_TIMEOUT`.
        let now = Instant::now();
        if now >= deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match requests.add(&names.address(Name::Slot(slot))?, ANSWER_TIMEOUT) {
            Err(error) if is_descriptor_limit(&error) => return Err(error),
            // The adapter does not answer or has ended, so the next adapter is asked.
            Ok(()) | Err(_) => {}
        }
        if let Some(sockets) = requests.first_answer(deadline.min(now + ANSWER_TIMEOUT))? {
            return Ok(Some(sockets));
        }
    }
    Ok(None)
}
