//! A queue pair and its connection: from the first SYN to the last completion.
//!
//! ```text
//! Idle ─ dial ──► Dialing ─ reply ──► Up ──► Ended        everything posted completes before the upcall
//!      ─ answer ────────────────────► Up                  that says how it ended
//! ```

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::{Duration, Instant};

use dat_core::Error;
use dat_core::provider::{Close, ReadDepth};
use dat_sys::DAT_INVALID_PARAMETER;
use rnic::rdmap::setup::{Gate, Initiator, Offer, Reply, Rtr, Terms};
use rnic::{Failure, Stream, StreamCfg, Work};
use socket2::Socket;
use wire::iwarp::mpa::fpdu::mulpdu_for_mss;

use crate::call::{Accepted, READ_WRITE};
use crate::dirty::Mark;
use crate::engine::{Key, Kit, Sink, Timer, Upcall};
use crate::linger::Lingerers;
use crate::socket::{self, Moved};

/// How long the whole of an attempt may take where the consumer sets no limit.
const PATIENCE: Duration = Duration::from_secs(60);
/// Scatter reads of one connection before others get their turn.
const RX_BURST: usize = 16;
/// Gather writes of one connection before others get their turn.
const TX_BURST: usize = 16;
/// A setup frame is read in pieces of at most this many octets.
const PIECE: usize = 512 + 20;

/// A queue pair, as the engine sees it.
pub(crate) struct Link {
    index: usize,
    sink: Sink,
    shared: Arc<Shared>,
    phase: Phase,
    pub(crate) timer: Timer,
    /// Looks in a row that found nothing.
    pub(crate) idle_looks: u32,
    /// Looks that found something, since the poller last had to tell of it.
    pub(crate) good_looks: u32,
}

/// What posting threads and engine share of a queue pair.
pub(crate) struct Shared {
    pub(crate) mark: Mark,
    /// What is posted from now on only waits to be flushed.
    pub(crate) ended: AtomicBool,
}

enum Phase {
    Idle(Work),
    Dialing(Box<Dialing>),
    Up(Box<Up>),
    Ended(Work),
    /// While one of the others becomes another.
    Between,
}

/// An attempt to connect.
struct Dialing {
    work: Work,
    /// None: the attempt has failed before it began.
    socket: Option<Socket>,
    initiator: Initiator,
    /// Not empty: the connection is not there yet.
    request: Vec<u8>,
    /// The time limit is the consumer's.
    limited: bool,
}

/// A connection.
struct Up {
    stream: Stream,
    socket: Socket,
    peer: SocketAddr,
    local: SocketAddr,
    depth: ReadDepth,
    gate: Gate,
    /// The consumer knows that the connection is up.
    announced: bool,
    /// A graceful end is under way.
    closing: bool,
    /// The socket took all it was given last.
    writable: bool,
    /// The peer takes nothing any more; what it has sent before is still to be read.
    hung_up: bool,
    /// In the list of those that could go on at once.
    queued: bool,
    /// Not in the poller.
    absent: bool,
    /// The end of the stream has been seen; what came elsewhere before it goes first (`Engine::end`).
    over: Option<End>,
}

/// Why a connection ends.
enum End {
    /// This side's consumer wants it.
    Local,
    /// The peer closed, or reset the connection, between messages.
    Peer,
    /// The network failed, or the peer vanished in the middle of a message.
    Lost,
    /// One side broke the rules of the protocol.
    Protocol(Failure),
}

/// Whether a look at a connection found something.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    None,
    Some,
}

/// Where to, and on what terms.
pub(crate) struct Target<'a> {
    pub(crate) to: SocketAddr,
    pub(crate) private: &'a [u8],
    pub(crate) timeout: Option<Duration>,
    pub(crate) depth: ReadDepth,
}

impl Link {
    pub(crate) fn new(index: usize, sink: Sink, shared: Arc<Shared>, work: Work) -> Self {
        Link {
            index,
            sink,
            shared,
            phase: Phase::Idle(work),
            timer: Timer::default(),
            idle_looks: 0,
            good_looks: 0,
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        matches!(self.phase, Phase::Up(_))
    }

    /// Whether something waits for room in the socket.
    pub(crate) fn is_blocked(&self) -> bool {
        matches!(&self.phase, Phase::Up(up) if !up.writable)
    }

    /// Receive buffers that belong to it and have not completed.
    pub(crate) fn allocated(&self) -> usize {
        match &self.phase {
            Phase::Idle(work) | Phase::Ended(work) => work.allocated(),
            Phase::Dialing(dialing) => dialing.work.allocated(),
            Phase::Up(up) => up.stream.work().allocated(),
            Phase::Between => 0,
        }
    }

    fn key(&self) -> Key {
        Key::Link(self.index)
    }

    fn set_timer(&mut self, kit: &mut Kit, at: Option<Instant>) {
        kit.set_timer(self.key(), &mut self.timer, at);
    }
}

/// The active side.
impl Link {
    /// Starts to connect. Upcalls come later, also where it fails at once.
    pub(crate) fn dial(&mut self, kit: &mut Kit, target: &Target<'_>) -> Result<(), Error> {
        let Phase::Idle(_) = self.phase else { return Err(Error::of(dat_sys::DAT_INVALID_STATE)) };
        let now = Instant::now();
        let deadline = target.timeout.and_then(|t| now.checked_add(t)).unwrap_or(now + PATIENCE);
        let offer = Offer { ird: target.depth.incoming, ord: target.depth.outgoing, crc: kit.params.crc };
        let (initiator, request) =
            Initiator::new(offer, target.private, deadline).map_err(|_| Error::of(DAT_INVALID_PARAMETER))?;
        let socket = socket::connect(kit.params.bind, target.to)
            .and_then(|socket| kit.watch(self.key(), &socket, READ_WRITE).map(|()| socket));

        let Phase::Idle(work) = std::mem::replace(&mut self.phase, Phase::Between) else { return Ok(()) };
        self.set_timer(kit, Some(if socket.is_ok() { deadline } else { now }));
        self.phase = Phase::Dialing(Box::new(Dialing {
            work,
            socket: socket.ok(),
            initiator,
            request,
            limited: target.timeout.is_some(),
        }));
        Ok(())
    }

    /// The poller says that something has happened to the socket.
    fn dialing(&mut self, kit: &mut Kit, lingerers: &mut Lingerers) {
        let Phase::Dialing(dialing) = &mut self.phase else { return };
        let Some(socket) = &dialing.socket else { return };
        if !dialing.request.is_empty() {
            match connected(socket) {
                Ok(false) => return,
                Ok(true) => {}
                Err(e) => return self.fail(kit, refusal(&e)),
            }
            if let Err(e) = socket::tune(socket, kit.params.cc.as_deref()) {
                return self.fail(kit, refusal(&e));
            }
            // The first octets of a socket always find room.
            match socket::send_bytes(socket, &dialing.request) {
                Moved::Octets(n) if n == dialing.request.len() => dialing.request.clear(),
                Moved::Gone(e) => return self.fail(kit, refusal(&e)),
                _ => return self.fail(kit, Upcall::Unreachable),
            }
        }
        loop {
            let Phase::Dialing(dialing) = &mut self.phase else { return };
            let Some(socket) = &dialing.socket else { return };
            let mut piece = [0; PIECE];
            let wanted = dialing.initiator.wants().min(PIECE);
            match socket::receive_bytes(socket, &mut piece[..wanted]) {
                Moved::Nothing => return,
                Moved::Octets(0) | Moved::Gone(_) => return self.fail(kit, NOT_BY_PEER),
                Moved::Octets(n) => match dialing.initiator.feed(&piece[..n]) {
                    None => {}
                    Some(Reply::Failed) => return self.fail(kit, NOT_BY_PEER),
                    Some(Reply::Rejected { private }) => {
                        let private = private.to_vec();
                        return self.fail(kit, Upcall::Rejected { by_peer: true, private: &private });
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
        let Phase::Dialing(dialing) = std::mem::replace(&mut self.phase, Phase::Between) else { return };
        let Dialing { work, socket, .. } = *dialing;
        let gate = Gate::initiator(terms, Instant::now());
        let Some(socket) = socket else { return };
        let addresses = socket::addresses(&socket);
        let mut stream = Stream::new(work, stream_cfg(kit, &socket, terms, !gate.is_open()));
        if terms.rtr != Rtr::None {
            stream.queue_rtr();
        }
        let (peer, local) = addresses.unwrap_or((UNKNOWN, UNKNOWN));
        let depth = ReadDepth { incoming: terms.ird, outgoing: terms.ord };
        self.set_timer(kit, gate.deadline());
        self.phase = Phase::Up(Box::new(Up::new(stream, socket, peer, local, depth, gate)));
        if let Phase::Up(up) = &mut self.phase {
            up.announce(&self.sink, private);
        }
        self.transmit(kit, lingerers);
        // What came behind the reply came with the same edge.
        self.again(kit);
    }

    /// The attempt has failed, or is given up.
    fn fail(&mut self, kit: &mut Kit, upcall: Upcall<'_>) {
        let Phase::Dialing(dialing) = std::mem::replace(&mut self.phase, Phase::Between) else { return };
        if let Some(socket) = &dialing.socket {
            kit.unwatch(socket);
        }
        self.set_timer(kit, None);
        self.finish(dialing.work);
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
        let offer = Offer { ird: depth.incoming, ord: depth.outgoing, crc: kit.params.crc };
        let prepared = match &self.phase {
            Phase::Idle(_) => request.accept(offer, private).map_err(|_| Error::of(DAT_INVALID_PARAMETER)),
            _ => Err(Error::of(dat_sys::DAT_INVALID_STATE)),
        };
        let (reply, terms) = match prepared {
            Ok(prepared) => prepared,
            Err(e) => {
                kit.unwatch(&socket);
                socket::reset(socket);
                return Err(e);
            }
        };
        let Phase::Idle(work) = std::mem::replace(&mut self.phase, Phase::Between) else { return Ok(()) };

        // Receives are usable, and the poller knows whom to call, before the peer can send the first frame.
        let stream = Stream::new(work, stream_cfg(kit, &socket, &terms, true));
        let gate = Gate::responder(&terms, Instant::now());
        self.set_timer(kit, gate.deadline());
        let renamed = kit.rename(self.key(), &socket, READ_WRITE).is_ok();
        let depth = ReadDepth { incoming: terms.ird, outgoing: terms.ord };
        let mut up = Up::new(stream, socket, peer, local, depth, gate);
        let sent = match renamed && socket::is_alive(&up.socket) {
            true => socket::send_bytes(&up.socket, &reply),
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
            self.finish(work);
            self.set_timer(kit, Some(Instant::now()));
        }
    }
}

/// The connection.
impl Link {
    /// Looks for octets, once or until there are none for the time being.
    #[inline]
    pub(crate) fn receive(&mut self, kit: &mut Kit, lingerers: &mut Lingerers) -> Progress {
        self.receive_until(kit, lingerers, false)
    }

    /// As `receive`; `until_end`: the stream has an end, and no other sign of it will come.
    pub(crate) fn receive_until(
        &mut self,
        kit: &mut Kit,
        lingerers: &mut Lingerers,
        until_end: bool,
    ) -> Progress {
        let Phase::Up(up) = &mut self.phase else {
            self.dialing(kit, lingerers);
            return Progress::None;
        };
        if up.over.is_some() {
            return Progress::None;
        }
        let mut progress = Progress::None;
        for _ in 0..RX_BURST {
            match up.receive(kit, &self.sink) {
                Ok(Received::Nothing) => return self.after_receive(kit, lingerers, progress, false),
                Ok(Received::Some { drained }) => {
                    progress = Progress::Some;
                    if drained && !until_end && !up.hung_up {
                        return self.after_receive(kit, lingerers, progress, false);
                    }
                }
                Err(end @ End::Protocol(_)) => {
                    self.end(kit, lingerers, end);
                    return Progress::Some;
                }
                Err(end) => {
                    up.over = Some(end);
                    kit.over.push(self.index);
                    self.after_receive(kit, lingerers, progress, false);
                    return Progress::Some;
                }
            }
        }
        self.after_receive(kit, lingerers, progress, true)
    }

    /// Whatever came elsewhere before the end of this stream has been seen.
    pub(crate) fn end_if_over(&mut self, kit: &mut Kit, lingerers: &mut Lingerers) {
        if let Phase::Up(up) = &mut self.phase
            && let Some(end) = up.over.take()
        {
            self.end(kit, lingerers, end);
        }
    }

    #[inline]
    fn after_receive(
        &mut self,
        kit: &mut Kit,
        lingerers: &mut Lingerers,
        progress: Progress,
        more: bool,
    ) -> Progress {
        if more {
            self.again(kit);
        }
        if progress == Progress::Some {
            self.after_frames(kit, lingerers);
        }
        progress
    }

    /// Frames came: a gate may have opened, and reads of the peer wait for their answers.
    fn after_frames(&mut self, kit: &mut Kit, lingerers: &mut Lingerers) {
        let Phase::Up(up) = &mut self.phase else { return };
        let opened = !up.gate.is_open() && !up.stream.is_held() && {
            up.gate = Gate::Open;
            true
        };
        let transmit = opened || up.closing || (up.writable && up.stream.wants_tx());
        if opened {
            self.set_timer(kit, None);
        }
        if transmit {
            self.transmit(kit, lingerers);
        }
    }

    /// Sends what is ready.
    pub(crate) fn transmit(&mut self, kit: &mut Kit, lingerers: &mut Lingerers) {
        match &mut self.phase {
            Phase::Up(up) => match up.transmit(kit) {
                Ok(Sent::All) if up.absent && !up.writable => self.enter_poller(kit, lingerers),
                Ok(Sent::All) => {}
                Ok(Sent::More) => self.again(kit),
                Err(end) => self.end(kit, lingerers, end),
            },
            Phase::Ended(work) => work.flush(),
            Phase::Idle(_) | Phase::Dialing(_) | Phase::Between => {}
        }
    }

    /// The socket has room again, or an attempt to connect has ended.
    pub(crate) fn writable(&mut self, kit: &mut Kit, lingerers: &mut Lingerers) {
        match &mut self.phase {
            Phase::Up(up) if !up.writable => {
                up.writable = true;
                self.transmit(kit, lingerers);
            }
            Phase::Dialing(_) => self.dialing(kit, lingerers),
            _ => {}
        }
    }

    /// The poller need not tell of this connection, since consumers look at it all the time. False: it is to stay.
    pub(crate) fn leave_poller(&mut self, kit: &Kit) -> bool {
        match &mut self.phase {
            // One that waits for room needs to be told.
            Phase::Up(up) if up.writable && !up.absent => {
                up.absent = kit.suspend(&up.socket).is_ok();
                up.absent
            }
            _ => false,
        }
    }

    /// It must tell again.
    pub(crate) fn enter_poller(&mut self, kit: &mut Kit, lingerers: &mut Lingerers) {
        self.good_looks = 0;
        let key = self.key();
        if let Phase::Up(up) = &mut self.phase
            && std::mem::take(&mut up.absent)
            && kit.resume(key, &up.socket, READ_WRITE).is_err()
        {
            // Out of memory for the poller: nobody would ever hear of this connection.
            self.end(kit, lingerers, End::Lost);
        }
    }

    /// Notes that there is more to do.
    fn again(&mut self, kit: &mut Kit) {
        if let Phase::Up(up) = &mut self.phase
            && !std::mem::replace(&mut up.queued, true)
        {
            kit.again.push(self.index);
        }
    }

    /// Does it.
    pub(crate) fn go_on(&mut self, kit: &mut Kit, lingerers: &mut Lingerers) {
        let Phase::Up(up) = &mut self.phase else { return };
        up.queued = false;
        if up.hung_up && !up.announced {
            return self.end(kit, lingerers, End::Peer);
        }
        // Without an RTR frame to come the passive side is up as soon as its reply is out.
        if let Gate::FirstFrame(_) = up.gate
            && !up.announced
        {
            up.announce(&self.sink, &[]);
        }
        self.receive_until(kit, lingerers, true);
        self.transmit(kit, lingerers);
    }

    /// A timer has run out.
    pub(crate) fn expire(&mut self, kit: &mut Kit, lingerers: &mut Lingerers, now: Instant) {
        match &mut self.phase {
            Phase::Dialing(dialing) => {
                let timed_out = dialing.limited && dialing.socket.is_some();
                self.fail(kit, if timed_out { Upcall::TimedOut } else { Upcall::Unreachable });
            }
            Phase::Up(up) => match up.gate.expire(now) {
                Ok(()) if up.gate.is_open() => {
                    up.stream.release();
                    self.transmit(kit, lingerers);
                }
                Ok(()) => {}
                Err(_) => self.end(kit, lingerers, End::Lost),
            },
            Phase::Ended(_) => self.sink.call(Upcall::AcceptFailed),
            Phase::Idle(_) | Phase::Between => {}
        }
    }

    /// Ends the connection, or the attempt, as the consumer wants.
    pub(crate) fn disconnect(&mut self, kit: &mut Kit, lingerers: &mut Lingerers, how: Close) {
        match (&mut self.phase, how) {
            (Phase::Up(up), Close::Graceful) if up.announced => {
                up.closing = true;
                self.transmit(kit, lingerers);
            }
            (Phase::Up(_), _) => self.end(kit, lingerers, End::Local),
            (Phase::Dialing(_), _) => self.fail(kit, Upcall::Disconnected),
            (Phase::Idle(_), _) => {
                if let Phase::Idle(work) = std::mem::replace(&mut self.phase, Phase::Between) {
                    self.finish(work);
                }
                self.sink.call(Upcall::Disconnected);
            }
            (Phase::Ended(_) | Phase::Between, _) => {}
        }
    }

    fn end(&mut self, kit: &mut Kit, lingerers: &mut Lingerers, end: End) {
        let Phase::Up(up) = std::mem::replace(&mut self.phase, Phase::Between) else { return };
        let Up { mut stream, socket, announced, closing, hung_up, .. } = *up;
        if let End::Protocol(Failure { by_peer: false, .. }) = end {
            // Best effort, as the standard says (RFC 5040, section 5.4).
            socket::send_bytes(&socket, &stream.terminate());
        }
        self.set_timer(kit, None);
        stream.flush();
        self.finish(stream.into_work());
        match end {
            End::Peer | End::Lost => kit.unwatch(&socket),
            End::Local | End::Protocol(_) if hung_up => kit.unwatch(&socket),
            End::Local | End::Protocol(_) => lingerers.add(kit, socket),
        }
        self.sink.call(match end {
            End::Local => Upcall::Disconnected,
            _ if !announced => Upcall::AcceptFailed,
            _ if closing => Upcall::Disconnected,
            End::Peer => Upcall::Disconnected,
            End::Lost | End::Protocol(_) => Upcall::Broken,
        });
    }

    /// Completes all that is posted, and sees to it that what is posted later is completed, too.
    fn finish(&mut self, mut work: Work) {
        self.shared.ended.store(true, Ordering::Relaxed);
        // Either a posting thread sees the flag (its fence is in transport.rs), or its request is seen here.
        fence(Ordering::SeqCst);
        work.flush();
        self.phase = Phase::Ended(work);
    }

    /// The queue pair goes away: no upcalls any more.
    pub(crate) fn close(mut self, kit: &mut Kit, lingerers: &mut Lingerers) {
        self.set_timer(kit, None);
        match std::mem::replace(&mut self.phase, Phase::Between) {
            Phase::Up(up) => lingerers.add(kit, up.socket),
            Phase::Dialing(dialing) => {
                if let Some(socket) = &dialing.socket {
                    kit.unwatch(socket);
                }
            }
            Phase::Idle(_) | Phase::Ended(_) | Phase::Between => {}
        }
    }
}

enum Received {
    Nothing,
    /// `drained`: there was no more than that.
    Some {
        drained: bool,
    },
}

enum Sent {
    All,
    More,
}

impl Up {
    fn new(
        stream: Stream,
        socket: Socket,
        peer: SocketAddr,
        local: SocketAddr,
        depth: ReadDepth,
        gate: Gate,
    ) -> Self {
        Up {
            stream,
            socket,
            peer,
            local,
            depth,
            gate,
            announced: false,
            closing: false,
            writable: true,
            hung_up: false,
            queued: false,
            absent: false,
            over: None,
        }
    }

    fn announce(&mut self, sink: &Sink, private: &[u8]) {
        self.announced = true;
        let Up { peer, local, depth, .. } = *self;
        sink.call(Upcall::Established { private, peer, local, depth });
    }

    /// One scatter read.
    #[inline]
    fn receive(&mut self, kit: &mut Kit, sink: &Sink) -> Result<Received, End> {
        self.stream.rx(&mut kit.rx).map_err(End::Protocol)?;
        // SAFETY: the stream has just said where octets may go.
        let n = match unsafe { socket::receive(&self.socket, kit.rx.iov()) } {
            Moved::Octets(n @ 1..) => n,
            Moved::Nothing if self.hung_up => return Err(End::Lost),
            Moved::Nothing => return Ok(Received::Nothing),
            Moved::Octets(0) => return Err(self.cut(End::Peer)),
            Moved::Gone(e) if is_reset(&e) => return Err(self.cut(End::Peer)),
            Moved::Gone(_) => return Err(End::Lost),
        };
        if !self.announced {
            // What comes is the RTR frame, or stands for it; no completion may come before the news.
            self.announce(sink, &[]);
        }
        let drained = n < kit.rx.bytes();
        self.stream.rx_done(&mut kit.rx, n).map_err(End::Protocol)?;
        Ok(Received::Some { drained })
    }

    /// The stream is over: in the middle of a message that is a loss.
    fn cut(&self, end: End) -> End {
        if self.stream.is_mid_message() { End::Lost } else { end }
    }

    /// Gather writes until nothing is ready or the socket is full.
    #[inline]
    fn transmit(&mut self, kit: &mut Kit) -> Result<Sent, End> {
        for _ in 0..TX_BURST {
            if !self.writable {
                return Ok(Sent::All);
            }
            let ready = self.stream.tx(&mut kit.tx).map_err(End::Protocol)?;
            if ready == 0 {
                return match self.closing && self.stream.is_drained() {
                    true => Err(End::Local),
                    false => Ok(Sent::All),
                };
            }
            // SAFETY: the stream has just gathered memory that is registered.
            let sent = match unsafe { socket::send(&self.socket, kit.tx.iov()) } {
                Moved::Octets(n) => n,
                Moved::Nothing => 0,
                Moved::Gone(_) => {
                    // The peer's last messages may wait to be read.
                    self.writable = false;
                    self.hung_up = true;
                    self.stream.tx_done(&mut kit.tx, 0);
                    return Ok(Sent::More);
                }
            };
            // A socket that took a part has noted that room is wanted: the poller tells.
            self.writable = sent == ready;
            self.stream.tx_done(&mut kit.tx, sent);
        }
        Ok(Sent::More)
    }
}

const NOT_BY_PEER: Upcall<'static> = Upcall::Rejected { by_peer: false, private: &[] };
const UNKNOWN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);

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

fn is_reset(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ECONNRESET | libc::EPIPE))
}

/// What an attempt that TCP could not carry out is to the consumer.
fn refusal(error: &std::io::Error) -> Upcall<'static> {
    match error.raw_os_error() {
        Some(libc::ECONNREFUSED | libc::ECONNRESET | libc::EPIPE) => NOT_BY_PEER,
        _ => Upcall::Unreachable,
    }
}

fn stream_cfg(kit: &Kit, socket: &Socket, terms: &Terms, hold: bool) -> StreamCfg {
    let fpdu = match terms.large_fpdus {
        true => kit.params.fpdu,
        false => kit.params.fpdu.min(socket::mss(socket)),
    };
    let &Terms { crc, extended, ird, ord, .. } = terms;
    StreamCfg { mulpdu: mulpdu_for_mss(fpdu), crc, extended, ird, ord, hold }
}
