//! From a call, made or taken, to the connection.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use adapter::LocalFailure;
use capture::Direction;
use dat_core::Error;
use dat_core::provider::ReadDepth;
use dat_sys::{DAT_INVALID_PARAMETER, DAT_INVALID_STATE};
use rnic::rdmap::setup::{Gate, Initiator, Offer, Reply, Rtr, Terms};
use rnic::{Stream, StreamCfg, Work};
use socket2::Socket;
use wire::iwarp::mpa::fpdu::mulpdu_for_mss;

use super::stall::Window;
use super::up::Up;
use super::{Link, Phase};
use crate::call::{Accepted, READ_WRITE};
use crate::connection::Connection;
use crate::engine::{Kit, Upcall};
use crate::linger::Lingerers;
use crate::params::Params;
use crate::socket::{self, Moved};

/// How long the whole of an attempt may take where the consumer sets no limit.
const PATIENCE: Duration = Duration::from_secs(60);
/// A setup frame is read in pieces of at most this many octets.
const PIECE: usize = 512 + 20;

/// An attempt to connect.
pub(super) struct Dialing {
    pub(super) work: Work,
    /// An error: the attempt has failed before it began, of this.
    pub(super) socket: Result<Connection, String>,
    pub(super) initiator: Initiator,
    /// Not empty: the connection is not there yet.
    pub(super) request: Vec<u8>,
    /// The time limit is the consumer's.
    pub(super) limited: bool,
}

/// Where to, and on what terms.
pub(crate) struct Target<'a> {
    pub(crate) to: SocketAddr,
    pub(crate) private: &'a [u8],
    pub(crate) timeout: Option<Duration>,
    pub(crate) depth: ReadDepth,
}

/// The active side.
impl Link {
    /// Starts to connect. Upcalls come later, also where it fails at once.
    pub(crate) fn dial(&mut self, kit: &mut Kit, target: &Target<'_>) -> Result<(), Error> {
        let Phase::Idle(_) = self.phase else { return Err(Error::of(DAT_INVALID_STATE)) };
        let now = Instant::now();
        let deadline = target.timeout.and_then(|t| now.checked_add(t)).unwrap_or(now + PATIENCE);
        let offer = offer(target.depth, &kit.params);
        let (initiator, request) = Initiator::new(offer, target.private, deadline)
            .map_err(|_| Error::of(DAT_INVALID_PARAMETER))?;
        let socket = socket::connect(kit.params.adapter.bind, target.to).and_then(|socket| {
            let watched = kit.context.watch(self.key(), &socket, READ_WRITE);
            watched.map(|()| Connection::new(socket)).map_err(|error| LocalFailure::of(&error))
        });
        let socket = match socket {
            Ok(socket) => Ok(socket),
            Err(local_failure) => Err(local_failure.answer(target.to)?),
        };

        let Phase::Idle(work) = std::mem::replace(&mut self.phase, Phase::Between) else {
            return Ok(());
        };
        self.set_timer(kit, Some(if socket.is_ok() { deadline } else { now }));
        self.phase = Phase::Dialing(Box::new(Dialing {
            work,
            socket,
            initiator,
            request,
            limited: target.timeout.is_some(),
        }));
        Ok(())
    }

    /// The poller says that something has happened to the socket.
    pub(super) fn dialing(&mut self, kit: &mut Kit, lingerers: &mut Lingerers) {
        let Phase::Dialing(dialing) = &mut self.phase else { return };
        let Ok(socket) = &mut dialing.socket else { return };
        if !dialing.request.is_empty() {
            match connected(socket) {
                Ok(false) => return,
                Ok(true) => {}
                Err(e) => return self.fail(kit, refusal(&e)),
            }
            match socket::tune(socket, kit.params.cc.as_deref(), kit.params.patience) {
                Ok((peer, local)) => {
                    socket.begin_record(kit.context.capture(), local, peer, Direction::Out);
                }
                Err(e) => return self.fail(kit, refusal(&e)),
            }
            // The first octets of a socket always find room.
            match socket.send_bytes(&dialing.request) {
                Moved::Octets(n) if n == dialing.request.len() => dialing.request.clear(),
                Moved::Gone(e) => return self.fail(kit, refusal(&e)),
                _ => return self.fail(kit, Upcall::Unreachable { because: None }),
            }
        }
        loop {
            let Phase::Dialing(dialing) = &mut self.phase else { return };
            let Ok(socket) = &mut dialing.socket else { return };
            let mut piece = [0; PIECE];
            let wanted = dialing.initiator.wants().min(PIECE);
            match socket.receive_bytes(&mut piece[..wanted]) {
                Moved::Nothing => return,
                Moved::Octets(0) | Moved::Fault | Moved::Gone(_) => {
                    return self.fail(kit, NOT_BY_PEER);
                }
                Moved::Octets(n) => match dialing.initiator.feed(&piece[..n]) {
                    None => {}
                    Some(Reply::Failed) => return self.fail(kit, NOT_BY_PEER),
                    Some(Reply::Rejected { private }) => {
                        let private = private.to_vec();
                        return self
                            .fail(kit, Upcall::Rejected { by_peer: true, private: &private });
                    }
                    Some(Reply::Accepted { terms, private }) => {
                        let private = private.to_vec();
                        return self.come_up(kit, lingerers, &terms, &private);
                    }
                },
            }
        }
    }

    /// The peer has accepted.
    fn come_up(&mut self, kit: &mut Kit, lingerers: &mut Lingerers, terms: &Terms, private: &[u8]) {
        let Phase::Dialing(dialing) = std::mem::replace(&mut self.phase, Phase::Between) else {
            return;
        };
        let Dialing { work, socket, .. } = *dialing;
        let gate = Gate::initiator(terms, Instant::now());
        let Ok(socket) = socket else { return };
        let addresses = socket::addresses(&socket);
        let mut stream = Stream::new(work, stream_cfg(kit, &socket, terms, !gate.is_open()));
        if terms.rtr != Rtr::None {
            stream.queue_rtr();
        }
        let (peer, local) = addresses.unwrap_or((UNKNOWN, UNKNOWN));
        let depth = ReadDepth { incoming: terms.ird, outgoing: terms.ord };
        let mut up = Up::new(stream, socket, peer, local, depth, gate);
        up.window = Window::of(terms, peer, local);
        up.announce(&self.sink, private);
        self.phase = Phase::Up(Box::new(up));
        self.renew_timer(kit);
        self.transmit(kit, lingerers);
        // What came behind the reply came with the same edge.
        self.again(kit);
    }

    /// The attempt has failed, or is given up.
    pub(super) fn fail(&mut self, kit: &mut Kit, upcall: Upcall<'_>) {
        let Phase::Dialing(dialing) = std::mem::replace(&mut self.phase, Phase::Between) else {
            return;
        };
        if let Ok(socket) = &dialing.socket {
            kit.context.unwatch(socket);
        }
        self.set_timer(kit, None);
        self.finish(kit, dialing.work);
        self.sink.call(upcall);
    }
}

/// The passive side.
impl Link {
    /// Takes a caller. The upcall comes later, also where it has gone already.
    pub(crate) fn answer(
        &mut self,
        kit: &mut Kit,
        caller: Accepted,
        private: &[u8],
        depth: ReadDepth,
    ) -> Result<(), Error> {
        let Accepted { socket, peer, local, request } = caller;
        let offer = offer(depth, &kit.params);
        let prepared = match &self.phase {
            Phase::Idle(_) => {
                request.accept(offer, private).map_err(|_| Error::of(DAT_INVALID_PARAMETER))
            }
            _ => Err(Error::of(DAT_INVALID_STATE)),
        };
        let (reply, terms) = match prepared {
            Ok(prepared) => prepared,
            Err(e) => {
                kit.context.unwatch(&socket);
                socket.reset();
                return Err(e);
            }
        };
        let Phase::Idle(work) = std::mem::replace(&mut self.phase, Phase::Between) else {
            return Ok(());
        };

        // Receives are usable, and the poller knows whom to call, before the peer can send the first frame.
        let stream = Stream::new(work, stream_cfg(kit, &socket, &terms, true));
        let gate = Gate::responder(&terms, Instant::now());
        self.set_timer(kit, gate.deadline());
        let renamed = kit.context.rename(self.key(), &socket, READ_WRITE).is_ok();
        let depth = ReadDepth { incoming: terms.ird, outgoing: terms.ord };
        let mut up = Up::new(stream, socket, peer, local, depth, gate);
        up.window = Window::of(&terms, peer, local);
        let sent = match renamed && socket::is_alive(&up.socket) {
            true => up.socket.send_bytes(&reply),
            false => Moved::Nothing,
        };
        up.hung_up = !matches!(sent, Moved::Octets(n) if n == reply.len());
        self.phase = Phase::Up(Box::new(up));
        self.again(kit);
        Ok(())
    }

    /// The caller had gone before the consumer made up its mind.
    pub(crate) fn answer_nobody(&mut self, kit: &mut Kit) {
        if let Phase::Idle(work) = std::mem::replace(&mut self.phase, Phase::Between) {
            self.finish(kit, work);
            self.set_timer(kit, Some(Instant::now()));
        }
    }
}

const NOT_BY_PEER: Upcall<'static> = Upcall::Rejected { by_peer: false, private: &[] };
const UNKNOWN: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);

/// Whether an attempt to connect has succeeded; an error if it has failed.
fn connected(socket: &Socket) -> std::io::Result<bool> {
    if let Some(error) = socket.take_error()? {
        return Err(error);
    }
    match socket.peer_addr() {
        Ok(_) => Ok(true),
        Err(e) if e.kind() == std::io::ErrorKind::NotConnected => Ok(false),
        Err(e) => Err(e),
    }
}

/// What an attempt that TCP could not carry out is to the consumer.
fn refusal(error: &std::io::Error) -> Upcall<'_> {
    match error.raw_os_error() {
        Some(libc::ECONNREFUSED | libc::ECONNRESET | libc::EPIPE) => NOT_BY_PEER,
        _ => Upcall::Unreachable { because: Some(error) },
    }
}

/// What this side brings to the negotiation.
fn offer(depth: ReadDepth, params: &Params) -> Offer {
    let &Params { crc, extended, .. } = params;
    Offer { ird: depth.incoming, ord: depth.outgoing, crc, extended }
}

fn stream_cfg(kit: &Kit, socket: &Socket, terms: &Terms, hold: bool) -> StreamCfg {
    let mss = socket::mss(socket);
    let (fpdu, segment) = match terms.large_fpdus {
        true => (kit.params.fpdu, 0),
        false => (kit.params.fpdu.min(mss), if terms.crc { mss } else { 0 }),
    };
    let &Terms { crc, extended, ird, ord, .. } = terms;
    // Any other peer is told what RFC 5041 has for it: it may count on that.
    let waits = kit.params.waits && extended;
    StreamCfg { mulpdu: mulpdu_for_mss(fpdu), crc, extended, ird, ord, hold, segment, waits }
}
