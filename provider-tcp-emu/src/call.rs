//! The passive side before a queue pair is involved: service points, and those who call at them.

use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

use adapter::Table;
use adapter::half_open::{self, HalfOpen};
use capture::Direction;
use dat_core::Error;
use dat_sys::DAT_INVALID_PARAMETER;
use mio::Interest;
use rnic::rdmap::setup::{self, Call, REQUEST_TIMEOUT, Responder};
use rustix::process::{Resource, getrlimit};
use socket2::Socket;

use crate::connection::Connection;
use crate::engine::{Key, Kit, Sink, Timer, Upcall};
use crate::linger::Lingerers;
use crate::socket::{self, Moved};

/// Callers that are taken at a time before others get their turn.
const BURST: usize = 64;
/// Of the last so many descriptors of the process, silent callers have one at most.
const RESERVE: u64 = 64;
/// How long a service point rests when there are no file descriptors left.
const REST: Duration = Duration::from_millis(100);
/// How long a service point rests at which somebody has called who is no caller: others of that
/// kind who come meanwhile wake nobody.
const RECOVERY: Duration = Duration::from_millis(1);
/// A setup frame is read in pieces of at most this many octets.
const PIECE: usize = 512 + 20;

/// Service points and callers.
#[derive(Default)]
pub(crate) struct Calls {
    doors: Table<Door>,
    callers: Table<Caller>,
    /// By their places among the callers.
    half_open: HalfOpen<usize>,
    last_id: u64,
}

/// A service point.
struct Door {
    socket: Socket,
    sink: Sink,
    backlog: usize,
    /// Requests that the consumer has not answered.
    unanswered: usize,
    id: u64,
    timer: Timer,
    /// It has left the poller, and looks for callers when its timer runs out.
    rests: bool,
}

/// Names a caller whose request was passed on; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestId {
    index: usize,
    id: u64,
}

/// Somebody who called.
struct Caller {
    socket: Connection,
    peer: SocketAddr,
    local: SocketAddr,
    door: usize,
    door_id: u64,
    id: u64,
    state: State,
    timer: Timer,
}

enum State {
    /// The request has not come yet, or not all of it.
    Reading(Responder),
    /// The consumer has it.
    Asking(setup::Request),
}

/// A caller who is to be given a queue pair.
pub(crate) struct Accepted {
    pub(crate) socket: Connection,
    pub(crate) peer: SocketAddr,
    pub(crate) local: SocketAddr,
    pub(crate) request: setup::Request,
}

impl Calls {
    /// Opens a service point on a socket that listens.
    pub(crate) fn open(
        &mut self,
        kit: &mut Kit,
        socket: Socket,
        backlog: usize,
        sink: Sink,
    ) -> std::io::Result<usize> {
        kit.context.watch(Key::Door(self.doors.next_index()), &socket, Interest::READABLE)?;
        let id = self.new_id();
        Ok(self.doors.insert(Door {
            socket,
            sink,
            backlog,
            unanswered: 0,
            id,
            timer: Timer::default(),
            rests: false,
        }))
    }

    /// Closes a service point. Callers whose requests the consumer has wait on for its answer.
    pub(crate) fn close(&mut self, kit: &mut Kit, index: usize) {
        let Some(mut door) = self.doors.remove(index) else { return };
        kit.set_timer(Key::Door(index), &mut door.timer, None);
        kit.context.unwatch(&door.socket);
        let callers: Vec<usize> = self.callers.indices().collect();
        for caller in callers {
            let reading = self
                .callers
                .get_mut(caller)
                .is_some_and(|c| c.door_id == door.id && matches!(c.state, State::Reading(_)));
            if reading {
                self.give_up_caller(kit, caller);
            }
        }
    }

    fn new_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Takes those who wait at a service point.
    pub(crate) fn answer_door(&mut self, kit: &mut Kit, lingerers: &mut Lingerers, index: usize) {
        let mut strangers = false;
        for _ in 0..BURST {
            let Some(door) = self.doors.get_mut(index) else { return };
            match door.socket.accept4(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) {
                Ok((socket, _)) => strangers |= self.admit(kit, lingerers, index, socket).is_none(),
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                    return door.recover(kit, index, strangers);
                }
                Err(e) if is_scarcity(&e) => {
                    let rested = Instant::now() + REST;
                    kit.set_timer(Key::Door(index), &mut door.timer, Some(rested));
                    return;
                }
                // This caller has gone again; the next one, please.
                Err(_) => {}
            }
        }
        if let Some(door) = self.doors.get_mut(index) {
            kit.set_timer(Key::Door(index), &mut door.timer, Some(Instant::now()));
        }
    }

    /// A service point has rested, or others have had their turn.
    pub(crate) fn reopen_door(&mut self, kit: &mut Kit, lingerers: &mut Lingerers, index: usize) {
        if let Some(door) = self.doors.get_mut(index) {
            door.timer = Timer::default();
        }
        self.answer_door(kit, lingerers, index);
    }

    /// Takes in somebody who has called. `None`: it is no caller, and has been sent away.
    fn admit(
        &mut self,
        kit: &mut Kit,
        lingerers: &mut Lingerers,
        door: usize,
        socket: Socket,
    ) -> Option<()> {
        let door_id = self.doors.get_mut(door)?.id;
        let mut socket = Connection::new(socket);
        if let Some(capture) = kit.context.capture() {
            let (peer, local) = socket::addresses(&socket).ok()?;
            socket.begin_record(Some(capture), local, peer, Direction::In);
        }
        // The kernel hands over a caller when it has said something (`socket::listen`): a real
        // caller has said all by now, and no number of others who call at the same time can make it
        // go. Of those who say what no caller says nothing more is looked at.
        let deadline = Instant::now() + REQUEST_TIMEOUT;
        let mut responder = Responder::new(deadline);
        let call = hear(&mut socket, &mut responder);
        if let Some(Call::Stranger) = call {
            socket.reset();
            return None;
        }
        let (peer, local) =
            socket::tune(&socket, kit.params.cc.as_deref(), kit.params.patience).ok()?;
        let descriptor = socket.as_raw_fd();
        let index = self.callers.next_index();
        let key = Key::Caller(index);
        if kit.context.watch(key, &socket, READ_WRITE).is_err() {
            socket.reset();
            return None;
        }
        let mut timer = Timer::default();
        kit.set_timer(key, &mut timer, Some(deadline));
        let state = State::Reading(responder);
        let id = self.new_id();
        self.callers.insert(Caller { socket, peer, local, door, door_id, id, state, timer });
        self.half_open.add(peer.ip(), index);
        if let Some(call) = call {
            self.attend(kit, lingerers, index, call);
        }
        if let Some(oldest) = self.half_open.take_one_too_many(most_half_open(descriptor)) {
            self.give_up_caller(kit, oldest);
        }
        Some(())
    }

    /// Reads what a caller has to say.
    pub(crate) fn hear_caller(&mut self, kit: &mut Kit, lingerers: &mut Lingerers, index: usize) {
        let Some(caller) = self.callers.get_mut(index) else { return };
        let State::Reading(responder) = &mut caller.state else { return };
        if let Some(call) = hear(&mut caller.socket, responder) {
            self.attend(kit, lingerers, index, call);
        }
    }

    /// A caller has said what it wants.
    fn attend(&mut self, kit: &mut Kit, lingerers: &mut Lingerers, index: usize, call: Call) {
        match call {
            Call::Stranger => self.give_up_caller(kit, index),
            Call::Refuse(reply) => self.send_off(kit, lingerers, index, &reply),
            Call::Request(request) => self.pass_on(kit, index, request),
        }
    }

    /// Hands a request to the consumer.
    fn pass_on(&mut self, kit: &mut Kit, index: usize, request: setup::Request) {
        let Some(caller) = self.callers.get_mut(index) else { return };
        let door = self
            .doors
            .get_mut(caller.door)
            .filter(|d| d.id == caller.door_id && d.unanswered < d.backlog);
        let Some(door) = door else { return self.give_up_caller(kit, index) };
        let call = RequestId { index, id: caller.id };
        let Some(asked) = kit.context.request(call) else { return self.give_up_caller(kit, index) };
        door.unanswered += 1;
        self.half_open.remove(caller.peer.ip(), |&of| of == index);
        kit.set_timer(Key::Caller(index), &mut caller.timer, None);
        let private = request.private().to_vec();
        caller.state = State::Asking(request);
        let (from, to, sink) = (caller.peer, caller.local, door.sink);
        sink.call(Upcall::Request { request: asked, from, to, private: &private });
    }

    /// The consumer answers: takes the caller out. `None`: it is not known (any more).
    pub(crate) fn take(&mut self, kit: &mut Kit, call: RequestId) -> Option<Accepted> {
        let caller = self.callers.get_mut(call.index).filter(|c| c.id == call.id)?;
        kit.set_timer(Key::Caller(call.index), &mut caller.timer, None);
        let Caller { socket, peer, local, door, door_id, state, .. } =
            self.callers.remove(call.index)?;
        if let Some(door) = self.doors.get_mut(door).filter(|d| d.id == door_id) {
            door.unanswered -= 1;
        }
        let State::Asking(request) = state else { return None };
        Some(Accepted { socket, peer, local, request })
    }

    /// The consumer refuses. Private data that does not fit leaves the peer without any.
    pub(crate) fn reject(
        &mut self,
        kit: &mut Kit,
        lingerers: &mut Lingerers,
        call: RequestId,
        private: &[u8],
    ) -> Result<(), Error> {
        // Gone already: so much the better.
        let Some(mut accepted) = self.take(kit, call) else { return Ok(()) };
        let (reply, result) = match accepted.request.reject(private) {
            Ok(reply) => (reply, Ok(())),
            Err(_) => (Vec::new(), Err(Error::of(DAT_INVALID_PARAMETER))),
        };
        accepted.socket.send_bytes(&reply);
        // Of a caller who sees the end before it has read the refusal nobody can tell that it was
        // one.
        lingerers.add_of_stranger(kit, accepted.socket);
        result
    }

    /// Sends a refusal and closes.
    fn send_off(&mut self, kit: &mut Kit, lingerers: &mut Lingerers, index: usize, reply: &[u8]) {
        let Some(mut caller) = self.callers.remove(index) else { return };
        self.half_open.remove(caller.peer.ip(), |&of| of == index);
        kit.set_timer(Key::Caller(index), &mut caller.timer, None);
        // The first octets of a socket always find room; if not, the peer sees it closed.
        caller.socket.send_bytes(reply);
        lingerers.add(kit, caller.socket);
    }

    /// Nobody wants to answer a request.
    pub(crate) fn refuse(&mut self, kit: &mut Kit, call: RequestId) {
        if let Some(accepted) = self.take(kit, call) {
            kit.context.unwatch(&accepted.socket);
            accepted.socket.reset();
        }
    }

    /// Refuses a caller who has said nothing, or nothing sensible.
    pub(crate) fn give_up_caller(&mut self, kit: &mut Kit, index: usize) {
        if let Some(mut caller) = self.callers.remove(index) {
            self.half_open.remove(caller.peer.ip(), |&of| of == index);
            kit.set_timer(Key::Caller(index), &mut caller.timer, None);
            kit.context.unwatch(&caller.socket);
            caller.socket.reset();
        }
    }
}

impl Door {
    /// All who have called were let in, or sent away. After `strangers` the door leaves the poller
    /// for a moment.
    fn recover(&mut self, kit: &mut Kit, index: usize, strangers: bool) {
        if !strangers {
            // Those who have come meanwhile are told of at once.
            let watched = !self.rests
                || kit.context.resume(Key::Door(index), &self.socket, Interest::READABLE).is_ok();
            self.rests = !watched;
        } else if !self.rests {
            self.rests = kit.context.suspend(&self.socket).is_ok();
        }
        let rested = self.rests.then(|| Instant::now() + RECOVERY);
        kit.set_timer(Key::Door(index), &mut self.timer, rested);
    }
}

/// Reads what somebody says who has called, until it is clear what it wants. `None`: there is more
/// to come.
fn hear(socket: &mut Connection, responder: &mut Responder) -> Option<Call> {
    loop {
        let mut piece = [0; PIECE];
        let wanted = responder.wants().min(PIECE);
        match socket.receive_bytes(&mut piece[..wanted]) {
            Moved::Nothing => return None,
            Moved::Octets(0) | Moved::Fault | Moved::Gone(_) => return Some(Call::Stranger),
            Moved::Octets(n) => {
                if let Some(call) = responder.feed(&piece[..n]) {
                    return Some(call);
                }
            }
        }
    }
}

/// No file descriptors, or no memory for sockets; both may be back soon.
fn is_scarcity(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM))
}

/// What is asked of the poller for connections.
pub(crate) const READ_WRITE: Interest = Interest::READABLE.add(Interest::WRITABLE);

/// How many callers may be silent when the newest has this descriptor.
fn most_half_open(descriptor: RawFd) -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    // The kernel gives the lowest number that is free.
    let is_in_reserve = descriptor as u64 >= limit.saturating_sub(RESERVE);
    if is_in_reserve { 1 } else { half_open::share_of_descriptors() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silent_callers_have_a_share_and_the_process_keeps_some() {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        assert_eq!(most_half_open(0), (limit / 4).min(1024) as usize);
        if let Ok(last) = RawFd::try_from(limit - 1) {
            assert_eq!((most_half_open(last), most_half_open(last - 63)), (1, 1));
            assert_eq!(most_half_open(last - 64), most_half_open(0));
        }
    }
}
