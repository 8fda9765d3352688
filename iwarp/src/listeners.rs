//! The passive side before a queue pair is involved: listeners and callers.

use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

use adapter::half_open::{self, SharedHalfOpen};
use adapter::{Backlog, Error, Slab};
use capture::Direction;
use mio::Interest;
use rnic::rdmap::setup::{self, Call, REQUEST_TIMEOUT, Responder};
use rustix::process::{Resource, getrlimit};
use socket2::Socket;
use work::ServiceType;

use crate::connection::Connection;
use crate::linger::LingeringSockets;
use crate::resources::{EngineEvent, EngineResources, ObjectKey, Sink, Timer};
use crate::socket::{self, IoOutcome, READ_WRITE};
use crate::unconfirmed::{RETRY_AFTER, UnconfirmedRequest};

/// The number of callers that a listener accepts in one turn.
const MAX_ACCEPTS_PER_TURN: usize = 64;
/// The size of the reserve: the descriptors with the highest numbers that the process may have. At
/// most one half-open caller of each adapter has one of them.
const RESERVED_DESCRIPTORS: u64 = 64;
/// How long a listener waits after `accept` found no file descriptor or no memory.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);
/// How long a listener is suspended after a stranger has called. A stranger is a caller that does
/// not speak MPA. Strangers that call in this time do not wake any thread.
const SUSPENSION_AFTER_STRANGERS: Duration = Duration::from_millis(1);
/// The largest read of a setup frame: an MPA frame with 512 octets of private data.
const MAX_SETUP_READ_BYTES: usize = 512 + 20;

/// All listeners, and the callers that have no queue pair yet.
#[derive(Default)]
pub(crate) struct Listeners {
    listeners: Slab<Listener>,
    callers: Slab<Caller>,
    /// The half-open callers, by their indices in `callers`.
    half_open: SharedHalfOpen<usize>,
    /// The half-open callers whose requests are deferred ([`crate::unconfirmed`]), the oldest
    /// first.
    deferred: Vec<usize>,
    /// The latest half-open caller whose descriptor is in the reserve. It may no longer exist.
    in_reserve: Option<CallerId>,
    last_id: u64,
}

/// A TCP listener.
struct Listener {
    socket: Socket,
    sink: Sink,
    backlog: Backlog,
    id: u64,
    timer: Timer,
    /// Whether the socket has left the poller. A suspended listener accepts callers when its timer
    /// expires.
    is_suspended: bool,
}

/// Names a half-open caller. No name is used twice.
#[derive(Clone, Copy)]
struct CallerId {
    index: usize,
    id: u64,
}

/// An accepted socket whose request has not arrived completely, or is deferred.
struct Caller {
    socket: Connection,
    peer: SocketAddr,
    local: SocketAddr,
    listener: usize,
    listener_id: u64,
    id: u64,
    responder: Responder,
    /// The deferred request.
    deferred: Option<Box<setup::MpaRequest>>,
    timer: Timer,
}

/// A caller whose request was delivered to the consumer.
pub struct WaitingRequest {
    pub(crate) socket: Connection,
    pub(crate) peer: SocketAddr,
    pub(crate) local: SocketAddr,
    pub(crate) request: setup::MpaRequest,
    /// Counts the request and its acceptance, if the caller has to confirm it.
    pub(crate) place: Option<UnconfirmedRequest>,
    /// Whether the poller of this engine watches the socket. If not, the request comes from another
    /// engine of the adapter.
    pub(crate) is_watched: bool,
}

impl Listeners {
    /// Adds a listener for a socket that already listens.
    pub(crate) fn open(
        &mut self,
        resources: &mut EngineResources,
        socket: Socket,
        backlog: usize,
        sink: Sink,
    ) -> std::io::Result<usize> {
        resources.context.watch(
            ObjectKey::Listener(self.listeners.next_index()),
            &socket,
            Interest::READABLE,
        )?;
        let id = self.new_id();
        Ok(self.listeners.insert(Listener {
            socket,
            sink,
            backlog: Backlog::new(backlog),
            id,
            timer: Timer::default(),
            is_suspended: false,
        }))
    }

    /// Closes a listener. Requests that were delivered to the consumer stay valid.
    pub(crate) fn close(
        &mut self,
        resources: &mut EngineResources,
        lingering: &mut LingeringSockets,
        index: usize,
    ) {
        let Some(mut listener) = self.listeners.remove(index) else { return };
        resources.set_timer(ObjectKey::Listener(index), &mut listener.timer, None);
        resources.context.unwatch(&listener.socket);
        let callers: Vec<usize> = self.callers.indices().collect();
        for caller in callers {
            if self.callers.get_mut(caller).is_some_and(|c| c.listener_id == listener.id) {
                self.reset_caller(resources, lingering, caller);
            }
        }
    }

    fn new_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Accepts the callers that wait at a listener.
    pub(crate) fn accept_callers(
        &mut self,
        resources: &mut EngineResources,
        lingering: &mut LingeringSockets,
        index: usize,
    ) {
        let mut strangers = false;
        for _ in 0..MAX_ACCEPTS_PER_TURN {
            let Some(listener) = self.listeners.get_mut(index) else { return };
            match listener.socket.accept4(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) {
                Ok((socket, _)) => {
                    strangers |= self.add_caller(resources, lingering, index, socket).is_none()
                }
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                    return listener.finish_accepting(resources, index, strangers);
                }
                Err(e) if is_scarcity(&e) => {
                    let retry_at = Instant::now() + ACCEPT_RETRY_DELAY;
                    resources.set_timer(
                        ObjectKey::Listener(index),
                        &mut listener.timer,
                        Some(retry_at),
                    );
                    return;
                }
                // This caller has closed its connection already.
                Err(_) => {}
            }
        }
        if let Some(listener) = self.listeners.get_mut(index) {
            resources.set_timer(
                ObjectKey::Listener(index),
                &mut listener.timer,
                Some(Instant::now()),
            );
        }
    }

    /// Handles a listener's timer. It expires when the listener's suspension or delay ends, or when
    /// the listener may accept more callers after other objects have had their turn.
    pub(crate) fn listener_timer_expired(
        &mut self,
        resources: &mut EngineResources,
        lingering: &mut LingeringSockets,
        index: usize,
    ) {
        if let Some(listener) = self.listeners.get_mut(index) {
            listener.timer = Timer::default();
        }
        self.accept_callers(resources, lingering, index);
    }

    /// Adds a caller. Returns `None` if the caller was a stranger or could not be added. In these
    /// cases its socket is closed.
    fn add_caller(
        &mut self,
        resources: &mut EngineResources,
        lingering: &mut LingeringSockets,
        listener: usize,
        socket: Socket,
    ) -> Option<()> {
        let listener_id = self.listeners.get_mut(listener)?.id;
        let mut socket = Connection::new(socket);
        if let Some(capture) = resources.context.capture() {
            let (peer, local) = socket::addresses(&socket).ok()?;
            socket.start_capture(Some(capture), local, peer, Direction::In);
        }
        // With `TCP_DEFER_ACCEPT` (see `socket::listen`), the kernel holds back a connection until
        // octets arrive. So a real caller has usually sent its whole request by now. When many
        // strangers call, the kernel uses SYN cookies and holds back no connections, so the request
        // may arrive later. The first octets that are not MPA identify a stranger, and nothing more
        // is read from it.
        let deadline = Instant::now() + REQUEST_TIMEOUT;
        let mut responder = Responder::new(deadline);
        let call = read_request(&mut socket, &mut responder);
        if let Some(Call::Stranger) = call {
            socket.reset();
            return None;
        }
        let (peer, local) = socket::configure_connected(
            &socket,
            resources.config.cc.as_deref(),
            resources.config.peer_timeout,
        )
        .ok()?;
        let is_in_reserve = is_in_reserve(socket.as_raw_fd());
        let index = self.callers.next_index();
        let key = ObjectKey::Caller(index);
        if resources.context.watch(key, &socket, READ_WRITE).is_err() {
            socket.reset();
            return None;
        }
        let mut timer = Timer::default();
        resources.set_timer(key, &mut timer, Some(deadline));
        let id = self.new_id();
        self.callers.insert(Caller {
            socket,
            peer,
            local,
            listener,
            listener_id,
            id,
            responder,
            deferred: None,
            timer,
        });
        self.half_open.add(peer.ip(), index);
        if let Some(call) = call {
            self.handle_call(resources, lingering, index, call);
        }
        if self.is_half_open(CallerId { index, id }) {
            if is_in_reserve {
                self.leave_reserve(resources, lingering, CallerId { index, id });
            }
            let limit = self.half_open.limit(half_open::share_of_descriptors());
            while let Some(&oldest) = self.half_open.one_too_many(limit) {
                self.evict_caller(resources, lingering, oldest);
            }
        }
        Some(())
    }

    fn is_half_open(&mut self, caller: CallerId) -> bool {
        self.callers.get_mut(caller.index).is_some_and(|found| found.id == caller.id)
    }

    /// Evicts callers because the half-open caller `newest` has a descriptor of the reserve. Evicts
    /// the previous half-open caller with such a descriptor. Also evicts the oldest caller, so that
    /// the next caller gets the descriptor of the oldest one.
    fn leave_reserve(
        &mut self,
        resources: &mut EngineResources,
        lingering: &mut LingeringSockets,
        newest: CallerId,
    ) {
        if let Some(previous) = self.in_reserve.replace(newest)
            && self.is_half_open(previous)
        {
            self.evict_caller(resources, lingering, previous.index);
        }
        if let Some(&oldest) = self.half_open.one_too_many(1) {
            self.evict_caller(resources, lingering, oldest);
        }
    }

    /// Removes a half-open caller to make room for another one. If the caller's whole request has
    /// arrived, the consumer gets the request, even if the request was deferred until the consumer
    /// had decided on other requests. If the request is deferred until other requests of its
    /// address are confirmed, the caller is refused. Any other caller is reset.
    fn evict_caller(
        &mut self,
        resources: &mut EngineResources,
        lingering: &mut LingeringSockets,
        index: usize,
    ) {
        self.caller_readable(resources, lingering, index);
        self.admit_deferred_caller(resources, lingering, index, Instant::now(), true);
        self.reset_caller(resources, lingering, index);
    }

    /// Reads more of a caller's request.
    pub(crate) fn caller_readable(
        &mut self,
        resources: &mut EngineResources,
        lingering: &mut LingeringSockets,
        index: usize,
    ) {
        let Some(caller) = self.callers.get_mut(index) else { return };
        if caller.deferred.is_some() {
            // A caller sends nothing before it has the reply.
            if !matches!(caller.socket.receive_bytes(&mut [0]), IoOutcome::WouldBlock) {
                self.reset_caller(resources, lingering, index);
            }
            return;
        }
        if let Some(call) = read_request(&mut caller.socket, &mut caller.responder) {
            self.handle_call(resources, lingering, index, call);
        }
    }

    /// Handles a completely parsed request.
    fn handle_call(
        &mut self,
        resources: &mut EngineResources,
        lingering: &mut LingeringSockets,
        index: usize,
        call: Call,
    ) {
        match call {
            Call::Stranger => self.reset_caller(resources, lingering, index),
            Call::Refuse(reply) => self.refuse_with_reply(resources, lingering, index, &reply),
            Call::Request(request) => self.report_request(resources, lingering, index, request),
        }
    }

    /// Reports a request to the consumer, or defers it.
    fn report_request(
        &mut self,
        resources: &mut EngineResources,
        lingering: &mut LingeringSockets,
        index: usize,
        request: setup::MpaRequest,
    ) {
        let place = match request.promises_rtr() {
            true => self.place_of(resources, index, Instant::now(), false),
            false => None,
        };
        if place.is_none() && request.promises_rtr() {
            return self.defer(resources, index, request);
        }
        self.report_admitted(resources, lingering, index, request, place);
    }

    /// The place of a caller's request among those that are not confirmed. `None` if the request
    /// must be deferred.
    fn place_of(
        &mut self,
        resources: &EngineResources,
        index: usize,
        now: Instant,
        is_last_look: bool,
    ) -> Option<UnconfirmedRequest> {
        let address = self.callers.get_mut(index)?.peer.ip();
        let free = resources.context.unused_qps().count();
        resources.unconfirmed.admit(address, free, now, is_last_look)
    }

    /// Defers a request until another one of its address is confirmed or ends.
    #[cold]
    fn defer(&mut self, resources: &mut EngineResources, index: usize, request: setup::MpaRequest) {
        let Some(caller) = self.callers.get_mut(index) else { return };
        caller.deferred = Some(Box::new(request));
        let retry_at = caller.responder.deadline().min(Instant::now() + RETRY_AFTER);
        resources.set_timer(ObjectKey::Caller(index), &mut caller.timer, Some(retry_at));
        self.deferred.push(index);
        resources.unconfirmed.wake_at_change(resources.context.waker());
    }

    /// Whether there are deferred requests.
    #[inline]
    pub(crate) fn has_deferred(&self) -> bool {
        !self.deferred.is_empty()
    }

    /// Reports the deferred requests that need not wait any longer.
    #[cold]
    pub(crate) fn admit_deferred(
        &mut self,
        resources: &mut EngineResources,
        lingering: &mut LingeringSockets,
    ) {
        // A change that comes too late for the following loop wakes the engine again.
        resources.unconfirmed.wake_at_change(resources.context.waker());
        let now = Instant::now();
        for index in self.deferred.clone() {
            self.admit_deferred_caller(resources, lingering, index, now, false);
        }
    }

    fn admit_deferred_caller(
        &mut self,
        resources: &mut EngineResources,
        lingering: &mut LingeringSockets,
        index: usize,
        now: Instant,
        is_last_look: bool,
    ) {
        // Ask for a place only if the caller has a deferred request: dropping an unused place would
        // count as a change, and all deferred callers would be checked again.
        let is_deferred = self.callers.get_mut(index).is_some_and(|c| c.deferred.is_some());
        if is_deferred
            && let Some(place) = self.place_of(resources, index, now, is_last_look)
            && let Some(request) = self.callers.get_mut(index).and_then(|c| c.deferred.take())
        {
            self.report_admitted(resources, lingering, index, *request, Some(place));
        }
    }

    /// Handles a caller's timer: its time is over, or its deferred request may be reported now.
    pub(crate) fn caller_timer_expired(
        &mut self,
        resources: &mut EngineResources,
        lingering: &mut LingeringSockets,
        index: usize,
        now: Instant,
    ) {
        let Some(caller) = self.callers.get_mut(index) else { return };
        caller.timer = Timer::default();
        let deadline = caller.responder.deadline();
        if caller.deferred.is_none() || now >= deadline {
            return self.reset_caller(resources, lingering, index);
        }
        self.admit_deferred_caller(resources, lingering, index, now, false);
        if let Some(caller) = self.callers.get_mut(index).filter(|c| c.deferred.is_some()) {
            let retry_at = deadline.min(now + RETRY_AFTER);
            resources.set_timer(ObjectKey::Caller(index), &mut caller.timer, Some(retry_at));
        }
    }

    /// Reports a request to the consumer.
    fn report_admitted(
        &mut self,
        resources: &mut EngineResources,
        lingering: &mut LingeringSockets,
        index: usize,
        request: setup::MpaRequest,
        place: Option<UnconfirmedRequest>,
    ) {
        let Some(caller) = self.remove_caller(resources, index) else { return };
        let Caller { socket, peer: from, local: to, listener, listener_id, .. } = caller;
        let private = request.private().to_vec();
        let request =
            WaitingRequest { socket, peer: from, local: to, request, place, is_watched: true };
        let listener = self.listeners.get_mut(listener).filter(|l| l.id == listener_id);
        let Some(listener) = listener else { return refuse(resources, lingering, request) };
        match resources.context.request(Some(&listener.backlog), request) {
            Ok(request) => {
                let private = &private;
                listener.sink.call(EngineEvent::Request {
                    request,
                    service: ServiceType::Connection,
                    from,
                    to,
                    private,
                })
            }
            Err(request) => refuse(resources, lingering, request),
        }
    }

    /// Removes a caller from the table. Its socket stays in the poller.
    fn remove_caller(&mut self, resources: &mut EngineResources, index: usize) -> Option<Caller> {
        let mut caller = self.callers.remove(index)?;
        self.half_open.remove(caller.peer.ip(), |&of| of == index);
        self.deferred.retain(|&of| of != index);
        resources.set_timer(ObjectKey::Caller(index), &mut caller.timer, None);
        Some(caller)
    }

    /// Rejects a request. If the private data does not fit, the call fails and the adapter refuses
    /// the request.
    pub(crate) fn reject(
        &mut self,
        resources: &mut EngineResources,
        lingering: &mut LingeringSockets,
        mut request: WaitingRequest,
        private: &[u8],
    ) -> Result<(), Error> {
        let (reply, result) = match request.request.reject(private) {
            Ok(reply) => (reply, Ok(())),
            Err(_) => (request.request.refuse(), Err(Error::InvalidArgument)),
        };
        request.socket.send_bytes(&reply);
        // A caller that sees the end of the stream before it has read the reply cannot recognise a
        // rejection. So the FIN is sent after a delay.
        lingering.add_of_foreign_peer(resources, request.socket);
        result
    }

    /// Sends a reply that refuses the request, and closes the connection.
    fn refuse_with_reply(
        &mut self,
        resources: &mut EngineResources,
        lingering: &mut LingeringSockets,
        index: usize,
        reply: &[u8],
    ) {
        let Some(caller) = self.remove_caller(resources, index) else { return };
        lingering.add_refused(resources, caller.socket, reply);
    }

    /// Removes a caller and resets its connection, for one of these reasons: the caller has not
    /// sent a request in time, it has sent something else, its deferred request has waited too
    /// long, its listener is closed, or another caller needs its descriptor.
    pub(crate) fn reset_caller(
        &mut self,
        resources: &mut EngineResources,
        lingering: &mut LingeringSockets,
        index: usize,
    ) {
        let Some(caller) = self.remove_caller(resources, index) else { return };
        if let Some(request) = &caller.deferred {
            return lingering.add_refused(resources, caller.socket, &request.refuse());
        }
        resources.context.unwatch(&caller.socket);
        caller.socket.reset();
    }
}

/// Refuses a request that the consumer has not answered.
pub(crate) fn refuse(
    resources: &mut EngineResources,
    lingering: &mut LingeringSockets,
    request: WaitingRequest,
) {
    lingering.add_refused(resources, request.socket, &request.request.refuse());
}

impl Listener {
    /// Ends a turn in which all waiting callers were accepted. If `strangers` were among them, the
    /// listener leaves the poller for [`SUSPENSION_AFTER_STRANGERS`].
    fn finish_accepting(&mut self, resources: &mut EngineResources, index: usize, strangers: bool) {
        if !strangers {
            // The poller immediately reports callers that arrived while the listener was suspended.
            let watched = !self.is_suspended
                || resources
                    .context
                    .resume(ObjectKey::Listener(index), &self.socket, Interest::READABLE)
                    .is_ok();
            self.is_suspended = !watched;
        } else if !self.is_suspended {
            self.is_suspended = resources.context.suspend(&self.socket).is_ok();
        }
        let retry_at = self.is_suspended.then(|| Instant::now() + SUSPENSION_AFTER_STRANGERS);
        resources.set_timer(ObjectKey::Listener(index), &mut self.timer, retry_at);
    }
}

/// Reads from a caller until its request is complete, or until its octets turn out not to be a
/// request. Returns `None` if more octets must arrive.
fn read_request(socket: &mut Connection, responder: &mut Responder) -> Option<Call> {
    loop {
        let mut piece = [0; MAX_SETUP_READ_BYTES];
        let wanted = responder.wants().min(MAX_SETUP_READ_BYTES);
        match socket.receive_bytes(&mut piece[..wanted]) {
            IoOutcome::WouldBlock => return None,
            IoOutcome::Octets(0) | IoOutcome::Fault | IoOutcome::Failed(_) => {
                return Some(Call::Stranger);
            }
            IoOutcome::Octets(n) => {
                if let Some(call) = responder.feed(&piece[..n]) {
                    return Some(call);
                }
            }
        }
    }
}

/// Returns whether an error means that there are no file descriptors or no memory for sockets.
/// Either may be available again soon.
fn is_scarcity(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM))
}

/// Returns whether this is one of the last descriptors that the process may have. A new socket gets
/// such a descriptor only if all lower ones are in use, because the kernel assigns the lowest free
/// number.
fn is_in_reserve(descriptor: RawFd) -> bool {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    descriptor as u64 >= limit.saturating_sub(RESERVED_DESCRIPTORS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_descriptors_are_the_reserve() {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        assert!(!is_in_reserve(0));
        if let Ok(last) = RawFd::try_from(limit - 1) {
            assert!(is_in_reserve(last) && is_in_reserve(last - 63) && !is_in_reserve(last - 64));
        }
    }
}
