//! Sets up connections on both sides, from the call to the established connection.

use std::fmt::Display;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use adapter::{Error, LocalFailure, Target};
use capture::Direction;
use rnic::rdmap::setup::{Gate, Initiator, Offer, Recognition, Reply, Rtr, Terms};
use rnic::{Stream, StreamCfg, Work};
use socket2::Socket;
use tracing::{debug, warn};
use wire::iwarp::mpa::fpdu::mulpdu_for_mss;
use work::ReadDepth;
use work::cause::Cause;

use super::established::{Established, is_reset};
use super::receive_wait::WindowWatch;
use super::sharing::Sharing;
use super::{Link, Phase};
use crate::config::Config;
use crate::connection::Connection;
use crate::linger::LingeringSockets;
use crate::listeners::WaitingRequest;
use crate::resources::{EngineEvent, EngineResources};
use crate::socket::{self, IoOutcome, READ_WRITE};
use crate::unconfirmed::UnconfirmedRequest;

/// The time limit of an attempt to connect if the consumer sets none.
const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(60);
/// The largest read of a setup frame: an MPA frame with 512 octets of private data.
const MAX_SETUP_READ_BYTES: usize = 512 + 20;

/// An attempt to connect.
pub(super) struct Connecting {
    pub(super) work: Work,
    peer: SocketAddr,
    /// The socket, or the local failure that prevented the attempt from starting.
    pub(super) socket: Result<Connection, String>,
    pub(super) initiator: Initiator,
    /// The request frame until it is sent, which happens when TCP has connected. Empty afterwards.
    pub(super) request: Vec<u8>,
    /// Whether the consumer has set the time limit.
    pub(super) has_consumer_timeout: bool,
}

/// The active side of a connection.
impl Link {
    /// Starts to connect. All events come after this call has returned, even if the attempt fails
    /// at once.
    pub(crate) fn connect(
        &mut self,
        resources: &mut EngineResources,
        target: &Target<'_>,
    ) -> Result<(), Error> {
        let Phase::Idle(_) = self.phase else { return Err(Error::InvalidState) };
        let now = Instant::now();
        let deadline = target.deadline.unwrap_or(now + DEFAULT_CONNECT_TIMEOUT);
        let offer = offer(target.depth, &resources.config);
        let (initiator, request) =
            Initiator::new(offer, target.private, deadline).map_err(|_| Error::InvalidArgument)?;
        let socket = match self.open_socket(resources, target.peer) {
            Ok(socket) => Ok(socket),
            Err(local_failure) => Err(local_failure.answer(target.peer)?),
        };

        let Some(work) = self.phase.take_idle() else { return Ok(()) };
        self.set_timer(resources, Some(if socket.is_ok() { deadline } else { now }));
        self.phase = Phase::Connecting(Box::new(Connecting {
            work,
            peer: target.peer,
            socket,
            initiator,
            request,
            has_consumer_timeout: target.deadline.is_some(),
        }));
        Ok(())
    }

    /// Opens a socket that connects to a peer.
    fn open_socket(
        &self,
        resources: &EngineResources,
        peer: SocketAddr,
    ) -> Result<Connection, LocalFailure> {
        let socket = socket::connect(resources.bind, peer)?;
        let watched = resources.context.watch(self.key(), &socket, READ_WRITE);
        watched.map(|()| Connection::new(socket)).map_err(|error| LocalFailure::of(&error))
    }

    /// Calls again, at last with a request of revision 1, because the peer may know only this
    /// revision (the kernel's drivers do so, too). The time limit of the attempt stays. Ends the
    /// attempt if the last call has failed.
    ///
    /// So the consumer of an OpenDAT may get up to three requests for one call: a connection may
    /// end before the consumer answers the request, for example because a firewall resets it. The
    /// accept of such a request fails.
    #[cold]
    fn call_again(&mut self, resources: &mut EngineResources) {
        let Phase::Connecting(connecting) = &mut self.phase else { return };
        let next = connecting.initiator.next_attempt();
        let Some((initiator, request)) = next else {
            return self.fail(resources, NON_PEER_REJECTED);
        };
        // Close the socket first: there may be no other descriptor.
        if let Ok(ended) = std::mem::replace(&mut connecting.socket, Err(String::new())) {
            resources.context.unwatch(&ended);
        }
        let peer = connecting.peer;
        let socket = match self.open_socket(resources, peer) {
            Ok(socket) => socket,
            Err(local_failure) => {
                let because = Some(&local_failure.why() as &dyn Display);
                return self.fail(resources, EngineEvent::Unreachable { because });
            }
        };
        let Phase::Connecting(connecting) = &mut self.phase else { return };
        match initiator.is_revision_1() {
            true => warn!(
                target: "dat::cm", %peer,
                "calls again with MPA revision 1, because the peer seems to know no other: without \
                 shared memory, atomic operations, reports of placed writes, and messages that \
                 wait for a receive"
            ),
            false => debug!(
                target: "dat::cm", %peer,
                "calls again, because the peer has closed the connection without an answer"
            ),
        }
        (connecting.initiator, connecting.request) = (initiator, request);
        connecting.socket = Ok(socket);
    }

    /// Continues the attempt after an event of the socket.
    pub(super) fn continue_connecting(
        &mut self,
        resources: &mut EngineResources,
        lingering: &mut LingeringSockets,
    ) {
        let Phase::Connecting(connecting) = &mut self.phase else { return };
        let Ok(socket) = &mut connecting.socket else { return };
        if !connecting.request.is_empty() {
            match is_connected(socket) {
                Ok(false) => return,
                Ok(true) => {}
                Err(e) => return self.fail_by_tcp(resources, &e),
            }
            match socket::configure_connected(
                socket,
                resources.config.cc.as_deref(),
                resources.config.peer_timeout,
            ) {
                Ok((peer, local)) => {
                    socket.start_capture(resources.context.capture(), local, peer, Direction::Out);
                }
                Err(e) => return self.fail_by_tcp(resources, &e),
            }
            // The send cannot block, because an empty socket buffer always has room for the first
            // octets.
            match socket.send_bytes(&connecting.request) {
                IoOutcome::Octets(n) if n == connecting.request.len() => connecting.request.clear(),
                IoOutcome::Failed(e) => return self.fail_by_tcp(resources, &e),
                _ => return self.fail(resources, EngineEvent::Unreachable { because: None }),
            }
        }
        loop {
            let Phase::Connecting(connecting) = &mut self.phase else { return };
            let Ok(socket) = &mut connecting.socket else { return };
            let mut piece = [0; MAX_SETUP_READ_BYTES];
            let wanted = connecting.initiator.wants().min(MAX_SETUP_READ_BYTES);
            match socket.receive_bytes(&mut piece[..wanted]) {
                IoOutcome::WouldBlock => return,
                IoOutcome::Octets(0) => return self.call_again(resources),
                IoOutcome::Failed(e) if is_reset(&e) => return self.call_again(resources),
                IoOutcome::Fault | IoOutcome::Failed(_) => {
                    return self.fail(resources, NON_PEER_REJECTED);
                }
                IoOutcome::Octets(n) => match connecting.initiator.feed(&piece[..n]) {
                    None => {}
                    Some(Reply::Failed) => return self.fail(resources, NON_PEER_REJECTED),
                    Some(Reply::Older) => return self.call_again(resources),
                    Some(Reply::Rejected { private }) => {
                        let private = private.to_vec();
                        return self.fail(
                            resources,
                            EngineEvent::Rejected { by_peer: true, private: &private },
                        );
                    }
                    Some(Reply::Accepted { terms, private }) => {
                        let private = private.to_vec();
                        return self.establish(resources, lingering, &terms, &private);
                    }
                },
            }
        }
    }

    /// Establishes the connection after the peer has accepted.
    fn establish(
        &mut self,
        resources: &mut EngineResources,
        lingering: &mut LingeringSockets,
        terms: &Terms,
        private: &[u8],
    ) {
        let Some(connecting) = self.phase.take_connecting() else { return };
        let Connecting { work, socket, .. } = *connecting;
        let gate = Gate::initiator(terms, Instant::now());
        let Ok(socket) = socket else { return };
        let addresses = socket::addresses(&socket);
        let mut stream = Stream::new(work, stream_cfg(resources, &socket, terms, !gate.is_open()));
        if terms.rtr != Rtr::None {
            stream.queue_rtr();
        }
        let (peer, local) = addresses.unwrap_or((UNKNOWN_ADDRESS, UNKNOWN_ADDRESS));
        let depth = ReadDepth { incoming: terms.ird, outgoing: terms.ord };
        let mut conn = Established::new(stream, socket, peer, local, depth, gate);
        conn.window_watch = WindowWatch::of(terms, peer, local);
        conn.sharing = Sharing::of(resources, terms, (local, peer), true);
        conn.announce(&self.sink, private);
        self.phase = Phase::Established(Box::new(conn));
        self.renew_timer(resources);
        self.transmit(resources, lingering);
        // Read again soon, because the poller may have reported the reply and the frames after it
        // by a single event.
        self.queue_pending(resources);
    }

    /// Ends an attempt that has failed or is given up.
    pub(super) fn fail(&mut self, resources: &mut EngineResources, event: EngineEvent<'_>) {
        let Some(connecting) = self.phase.take_connecting() else { return };
        if let Ok(socket) = &connecting.socket {
            resources.context.unwatch(socket);
        }
        self.set_timer(resources, None);
        self.finish(resources, connecting.work);
        self.sink.call(event);
    }
}

/// The passive side of a connection.
impl Link {
    /// Accepts a caller. The event comes after this call has returned, even if the caller has left
    /// already.
    pub(crate) fn accept(
        &mut self,
        resources: &mut EngineResources,
        lingering: &mut LingeringSockets,
        caller: WaitingRequest,
        private: &[u8],
        depth: ReadDepth,
    ) -> Result<(), Error> {
        let WaitingRequest { socket, peer, local, request, place, is_watched } = caller;
        let watched = match is_watched {
            true => resources.context.rename(self.key(), &socket, READ_WRITE),
            false => resources.context.adopt(self.key(), &socket, READ_WRITE),
        };
        let offer = offer(depth, &resources.config);
        let prepared = match &self.phase {
            Phase::Idle(_) => request.accept(offer, private).map_err(|_| Error::InvalidArgument),
            _ => Err(Error::InvalidState),
        };
        let (reply, terms) = match prepared {
            Ok(prepared) => prepared,
            Err(e) => {
                lingering.add_refused(resources, socket, &request.refuse());
                return Err(e);
            }
        };
        let Some(work) = self.phase.take_idle() else { return Ok(()) };

        // Receives must be usable before the peer can send the first frame.
        let plain = Terms { extended: false, ..terms };
        let stream = Stream::new(work, stream_cfg(resources, &socket, &plain, true));
        let claimed = terms.extended.then(|| stream_cfg(resources, &socket, &terms, true));
        let gate = Gate::responder(&terms, Instant::now());
        self.set_timer(resources, gate.deadline());
        let depth = ReadDepth { incoming: terms.ird, outgoing: terms.ord };
        let mut conn = Established::new(stream, socket, peer, local, depth, gate);
        conn.place = place;
        conn.place.iter_mut().for_each(UnconfirmedRequest::accept);
        conn.recognition = claimed.map(|cfg| Box::new((Recognition::default(), cfg)));
        conn.window_watch = WindowWatch::of(&terms, peer, local);
        conn.sharing = Sharing::of(resources, &terms, (local, peer), false);
        let sent = match watched.is_ok() && socket::has_peer(&conn.socket) {
            true => conn.socket.send_bytes(&reply),
            false => IoOutcome::WouldBlock,
        };
        conn.send_failed = !matches!(sent, IoOutcome::Octets(n) if n == reply.len());
        self.phase = Phase::Established(Box::new(conn));
        self.queue_pending(resources);
        Ok(())
    }
}

impl Link {
    /// Ends an attempt that failed in TCP.
    fn fail_by_tcp(&mut self, resources: &mut EngineResources, error: &std::io::Error) {
        if error.raw_os_error() == Some(libc::ECONNREFUSED) {
            self.sink.call(EngineEvent::Cause(Cause::NoListener));
        }
        self.fail(resources, connect_failure(error));
    }
}

const NON_PEER_REJECTED: EngineEvent<'static> =
    EngineEvent::Rejected { by_peer: false, private: &[] };
const UNKNOWN_ADDRESS: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);

/// Returns whether TCP has connected, or the error of a failed attempt.
fn is_connected(socket: &Socket) -> std::io::Result<bool> {
    if let Some(error) = socket.take_error()? {
        return Err(error);
    }
    match socket.peer_addr() {
        Ok(_) => Ok(true),
        Err(e) if e.kind() == std::io::ErrorKind::NotConnected => Ok(false),
        Err(e) => Err(e),
    }
}

/// Returns the event for an attempt that failed in TCP.
fn connect_failure(error: &std::io::Error) -> EngineEvent<'_> {
    match error.raw_os_error() {
        Some(libc::ECONNREFUSED | libc::ECONNRESET | libc::EPIPE) => NON_PEER_REJECTED,
        _ => EngineEvent::Unreachable { because: Some(error) },
    }
}

/// Returns the terms that this side offers in the negotiation.
fn offer(depth: ReadDepth, config: &Config) -> Offer {
    let &Config { crc, extended, .. } = config;
    Offer { ird: depth.incoming, ord: depth.outgoing, crc, extended }
}

fn stream_cfg(
    resources: &EngineResources,
    socket: &Socket,
    terms: &Terms,
    hold: bool,
) -> StreamCfg {
    let mss = socket::mss(socket);
    let (fpdu, segment) = match terms.extended {
        true => (resources.config.fpdu, 0),
        false => (resources.config.fpdu.min(mss), if terms.crc { mss } else { 0 }),
    };
    let &Terms { crc, extended, ird, ord, .. } = terms;
    // A message waits for a receive only if the peer is OpenDAT. Any other peer may rely on the
    // error that RFC 5041 prescribes for a message without a receive, so it gets that error.
    let waits = resources.config.rnr_wait && extended;
    let completes_placed = resources.config.completes_placed;
    let mulpdu = mulpdu_for_mss(fpdu);
    StreamCfg { mulpdu, crc, extended, completes_placed, ird, ord, hold, segment, waits }
}
