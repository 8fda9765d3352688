//! A queue pair's connection: how it is made, and how it ends.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::ptr;
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dat_core::provider::{Connect, ReadDepth, Upcall};
use dat_core::{Error, Result};
use dat_sys::{DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY};
use rdma_core_sys::*;

use crate::cm::{Id, RETRIES, Request};
use crate::map::{CmNews, REJECT_HEADER};
use crate::qp::{FLUSHED, Pair, SETTLED};

/// Where a queue pair's connection is.
#[derive(Default)]
pub(crate) struct Link {
    id: Option<Id>,
    state: State,
    /// What is to be told of the peer, once it answers.
    call: Option<Call>,
    depth: Option<ReadDepth>,
    /// This side and the other.
    ends: Option<[SocketAddr; 2]>,
    /// Of the attempt to connect, or of a moment.
    deadline: Option<Instant>,
    end: Option<End>,
    flushed_at: Option<Instant>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Unconnected,
    /// Finding the peer, or waiting for its answer.
    Calling,
    /// Accepted; the peer has not confirmed.
    Accepting,
    /// Up, which the consumer is told in a moment: see [`COURTESY`].
    Greeting,
    Up,
    /// The peer has ended it, or this side's device has: which, turns out in a moment.
    Parting,
    /// The end has begun: what was posted before is carried out.
    Settling,
    /// That has been done, but for what the device may still owe the peer: see [`COURTESY`].
    Lingering,
    /// It is flushed.
    Flushing,
    Over,
}

struct Call {
    private: Vec<u8>,
    depth: ReadDepth,
}

/// What its completions, or asynchronous events of the device, say more of.
pub(crate) const QP_FAILED: &str = "the queue pair has failed";

/// How a connection ended, or an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// This side wants it, when everything is carried out.
    Graceful,
    /// This side wants it.
    Abrupt,
    /// The peer has wanted it, or this side has and it has come about.
    Disconnected,
    /// An error.
    Broken(&'static str),
    /// The peer said no.
    Rejected { by_peer: bool, private: Vec<u8> },
    /// Nobody there.
    Unreachable,
    /// Nobody in time.
    TimedOut,
    /// It was accepted, and could not be made.
    Failed,
    /// The queue pair is no more.
    Dropped,
}

/// Nobody there who could say no.
const NOT_BY_PEER: End = End::Rejected { by_peer: false, private: Vec::new() };

/// How long a device may take to flush after it was removed.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// How long the kernel's software devices are given for what a device does by itself.
///
/// siw: its consumers are told nothing for so long. On the side that called, it gives a connection up when the first message is
/// there before it has read the answer (siw_recv_mpa_rr, "peer sent extra data"), and of the two ends of a connection it tells the
/// one before that it has failed.
///
/// rxe: a consumer that ends a connection has to wait for so long. A message is acknowledged after its completion can be seen,
/// and then only if the queue pair is not in error yet (rxe_resp.c, do_complete): who ends the connection because of what it has
/// just received would make the peer's send fail.
const COURTESY: Duration = Duration::from_millis(10);

/// Milliseconds to find an address or a way.
const PATIENCE: i32 = 5000;

impl Pair {
    fn link(&self) -> MutexGuard<'_, Link> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn connect(&self, to: &Connect<'_>) -> Result<()> {
        let full = |_| Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
        let id = self
            .station
            .channel
            .id(ptr::without_provenance_mut(self.number as usize))
            .map_err(full)?;
        let deadline = to.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let peer = SocketAddr::new(to.addr.ip(), adapter::port(to.port));
        let mut link = self.link();
        let resolved = id.resolve(self.station.device.address, peer, PATIENCE);
        *link = Link {
            id: Some(id),
            state: State::Calling,
            call: Some(Call { private: to.private.to_vec(), depth: to.depth }),
            deadline,
            ..Link::default()
        };
        drop(link);
        if let Some(at) = deadline {
            self.station.remind(self.number, at);
        }
        if resolved.is_err() {
            self.finish_later(End::Unreachable);
        }
        Ok(())
    }

    pub(crate) fn accept(&self, request: Request, private: &[u8], depth: ReadDepth) -> Result<()> {
        let full = || Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
        let depth = ReadDepth {
            incoming: depth.incoming.min(request.depth.incoming),
            outgoing: depth.outgoing.min(request.depth.outgoing),
        };
        let id = request.into_id().ok_or_else(full)?;
        let mut link = self.link();
        id.belongs_to(self.number);
        let accepted = self
            .ready(&id, depth)
            .and_then(|()| id.accept(private, depth, self.number, self.on_srq));
        *link =
            Link { id: Some(id), state: State::Accepting, depth: Some(depth), ..Link::default() };
        drop(link);
        if accepted.is_err() {
            self.finish_later(End::Failed);
        }
        Ok(())
    }

    /// Makes the queue pair ready to receive and to send, as the messages of the connection say.
    fn ready(&self, id: &Id, depth: ReadDepth) -> std::io::Result<()> {
        if self.station.device.is_iwarp() {
            // The kernel does, with the connection.
            return Ok(());
        }
        self.reads.store(depth.outgoing > 0, Ordering::Relaxed);
        for state in [IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS] {
            let (mut attr, mask) = id.attributes(state)?;
            match state {
                IBV_QPS_RTR => attr.max_dest_rd_atomic = depth.incoming as u8,
                IBV_QPS_RTS => {
                    attr.max_rd_atomic = depth.outgoing as u8;
                    if self.station.device.is_rxe() {
                        attr.retry_cnt = attr.retry_cnt.min(RETRIES);
                    }
                }
                _ => {}
            }
            if !self.modify(&mut attr, mask) {
                return Err(std::io::Error::last_os_error());
            }
        }
        Ok(())
    }

    /// An event of rdma_cm.
    pub(crate) fn news(
        &self,
        news: CmNews,
        private: &[u8],
        theirs: ReadDepth,
        [local, peer]: [SocketAddr; 2],
    ) {
        let mut link = self.link();
        if link.state == State::Greeting {
            // One thing after the other.
            self.greet(link);
            link = self.link();
        }
        let Link { id: Some(id), state, call, depth, .. } = &mut *link else { return };
        let end = match (news, *state) {
            (CmNews::Resolved, State::Calling) => match id.route(PATIENCE) {
                Ok(()) => return,
                Err(_) => End::Unreachable,
            },
            (CmNews::Routed, State::Calling) => {
                let Some(call) = call else { return };
                match id.connect(&call.private, call.depth, self.number, self.on_srq) {
                    Ok(()) => return,
                    // siw has asked TCP by now.
                    Err(e) if e.kind() == ErrorKind::ConnectionRefused => NOT_BY_PEER,
                    Err(_) => End::Unreachable,
                }
            }
            (CmNews::Response | CmNews::Established, State::Calling) => {
                let Some(ours) = call.take().map(|call| call.depth) else { return };
                let agreed = ReadDepth {
                    incoming: ours.incoming.min(theirs.incoming),
                    outgoing: ours.outgoing.min(theirs.outgoing),
                };
                let made = match news {
                    CmNews::Response => self.ready(id, agreed).and_then(|()| id.establish()),
                    _ => Ok(()),
                };
                match made {
                    Ok(()) => {
                        *state = State::Up;
                        drop(link);
                        return self.call(Upcall::Established {
                            private,
                            peer,
                            local,
                            depth: agreed,
                        });
                    }
                    // As libdaplofa has it.
                    Err(_) => End::Unreachable,
                }
            }
            (CmNews::Established, State::Accepting) => {
                *state = State::Greeting;
                depth.get_or_insert(theirs);
                link.ends = Some([local, peer]);
                return match self.station.device.is_siw() {
                    true => self.wait_a_moment(link),
                    false => self.greet(link),
                };
            }
            (CmNews::Rejected, State::Calling) => NOT_BY_PEER,
            (CmNews::RejectedByPeer, State::Calling) => {
                let private = private[REJECT_HEADER.len()..].to_vec();
                End::Rejected { by_peer: true, private }
            }
            (CmNews::Unreachable, State::Calling) => End::Unreachable,
            (_, State::Accepting)
                if matches!(
                    news,
                    CmNews::Unreachable | CmNews::Failed | CmNews::Rejected | CmNews::Disconnected
                ) =>
            {
                End::Failed
            }
            (CmNews::Failed, State::Calling) => End::Unreachable,
            (CmNews::Disconnected, State::Up) if self.is_broken() => End::Broken(QP_FAILED),
            (CmNews::Disconnected, State::Up) if self.station.device.is_siw() => {
                *state = State::Parting;
                return self.wait_a_moment(link);
            }
            (CmNews::Disconnected, State::Up | State::Settling | State::Lingering) => {
                End::Disconnected
            }
            (CmNews::Gone, State::Calling) => End::Unreachable,
            (CmNews::Gone, State::Accepting) => End::Failed,
            (CmNews::Gone, _) => End::Broken("the device is gone"),
            _ => return,
        };
        drop(link);
        self.finish_later(end);
    }

    /// The rest of what has just begun is for [`on_deadline`](Self::on_deadline).
    fn wait_a_moment(&self, mut link: MutexGuard<'_, Link>) {
        let at = Instant::now() + COURTESY;
        link.deadline = Some(at);
        drop(link);
        self.station.remind(self.number, at);
    }

    /// The side that was called is told that the connection is up.
    fn greet(&self, mut link: MutexGuard<'_, Link>) {
        let (Some([local, peer]), Some(depth)) = (link.ends, link.depth) else { return };
        link.state = State::Up;
        drop(link);
        self.call(Upcall::Established { private: &[], peer, local, depth });
    }

    /// A deadline has come, of whatever; how it ends, if it does.
    pub(crate) fn on_deadline(&self, now: Instant) -> Option<End> {
        let mut link = self.link();
        if link.deadline.is_none_or(|at| at > now) {
            return None;
        }
        match link.state {
            State::Calling => Some(End::TimedOut),
            State::Parting => {
                drop(link);
                // A request may have failed, which nobody has looked at.
                self.pump();
                Some(match self.failed.load(Ordering::Acquire) {
                    true => End::Broken(QP_FAILED),
                    false => End::Disconnected,
                })
            }
            State::Greeting => {
                self.greet(link);
                None
            }
            State::Lingering => {
                self.flush(&mut link);
                None
            }
            _ => None,
        }
    }

    /// Its own device has ended the connection. One that refuses its peer an access may say so by nothing but the state; over
    /// iWARP every end leads there.
    fn is_broken(&self) -> bool {
        match self.station.device.is_iwarp() {
            true => self.failed.load(Ordering::Acquire),
            false => self.is_in_error(),
        }
    }

    /// Begins an end, and has the station bring it to one.
    fn finish_later(&self, end: End) {
        self.end(end);
        if let Some(pair) = self.station.pair(self.number) {
            self.station.settle(&pair);
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.link().state == State::Up
    }

    /// The connection ends, or the attempt: from now on nothing gets to the device. `go_on` does the rest. True: the peer has
    /// been called and not answered; to hang up, which only who is not handling an event of it may do, tells it.
    pub(crate) fn end(&self, end: End) -> bool {
        let mut link = self.link();
        let called = link.state == State::Calling;
        match link.state {
            State::Flushing | State::Over => return false,
            // What ends it while it settles is what there is to tell.
            State::Settling | State::Lingering if end == End::Graceful => return false,
            State::Settling | State::Lingering => {}
            _ => {
                self.failed.store(true, Ordering::Release);
                // A queue pair that is broken has flushed by itself.
                self.ours.store(!matches!(end, End::Broken(_)), Ordering::Release);
                // For ever.
                std::mem::forget(self.requests.gate.shut());
                std::mem::forget(self.receives.gate.shut());
            }
        }
        let wanted = matches!(end, End::Graceful | End::Abrupt) && link.state == State::Up;
        let graceful = wanted && end == End::Graceful && self.mark_requests(SETTLED);
        let end = match (end, link.state) {
            (End::Graceful | End::Abrupt, _) => End::Disconnected,
            // It has not been up, as far as the consumer knows.
            (End::Broken(_), State::Greeting) => End::Failed,
            (end, _) => end,
        };
        link.end = Some(end);
        match wanted {
            _ if graceful => link.state = State::Settling,
            true => self.leave(link),
            false => self.flush(&mut link),
        }
        called
    }

    /// This side ends the connection.
    fn leave(&self, mut link: MutexGuard<'_, Link>) {
        match self.station.device.is_rxe() {
            true => {
                link.state = State::Lingering;
                self.wait_a_moment(link);
            }
            false => self.flush(&mut link),
        }
    }

    fn flush(&self, link: &mut Link) {
        link.state = State::Flushing;
        link.flushed_at = Some(Instant::now());
        let mut marks = 0;
        let marked = self.station.device.marks();
        if marked && !self.on_srq && self.mark_receives() {
            marks |= 1;
        }
        let mut attr = ibv_qp_attr { qp_state: IBV_QPS_ERR, ..ibv_qp_attr::zeroed() };
        self.modify(&mut attr, IBV_QP_STATE);
        if marked && self.mark_requests(FLUSHED) {
            marks |= 2;
        }
        // A mark that could not be posted is not waited for.
        if marked && marks & 1 == 0 {
            self.receives.marks.fetch_or(FLUSHED, Ordering::Release);
        }
        if marked && marks & 2 == 0 {
            self.requests.marks.fetch_or(FLUSHED, Ordering::Release);
        }
        if let Some(id) = &link.id {
            id.disconnect();
        }
    }

    /// There is, or was, a connection or an attempt at one.
    pub(crate) fn has_begun(&self) -> bool {
        self.link().state != State::Unconnected
    }

    /// Looks at what has completed.
    fn pump(&self) {
        self.send_cq.pump();
        if !std::sync::Arc::ptr_eq(&self.send_cq, &self.recv_cq) {
            self.recv_cq.pump();
        }
    }

    /// Brings an end that has begun as far as it gets. True: it is over, and has been told.
    pub(crate) fn go_on(&self) -> bool {
        let flushed = self.station.device.is_iwarp() && self.link().state == State::Flushing;
        self.pump();
        if flushed {
            // All that was flushed has just been taken: see `flush`.
            self.requests.marks.fetch_or(FLUSHED, Ordering::Release);
            self.receives.marks.fetch_or(FLUSHED, Ordering::Release);
        }
        let mut link = self.link();
        let requests = self.requests.marks.load(Ordering::Acquire);
        let receives = self.receives.marks.load(Ordering::Acquire);
        if link.state == State::Settling && requests & SETTLED != 0 {
            self.leave(link);
            link = self.link();
        }
        match link.state {
            State::Over => return true,
            State::Flushing if requests & receives & FLUSHED != 0 => {}
            // A device that was removed says nothing any more.
            State::Flushing
                if self.station.is_lost()
                    && link.flushed_at.is_some_and(|at| at.elapsed() >= LAST_WORDS) =>
            {
                self.abandon();
            }
            _ => return false,
        }
        link.state = State::Over;
        self.requests.over(&self.send_cq);
        self.receives.over(&self.recv_cq);
        let end = link.end.take();
        drop(link);
        match end.unwrap_or(End::Dropped) {
            End::Graceful | End::Abrupt | End::Disconnected => self.call(Upcall::Disconnected),
            End::Broken(because) => self.call(Upcall::Broken { because: &because }),
            End::Rejected { by_peer, private } => {
                self.call(Upcall::Rejected { by_peer, private: &private })
            }
            End::Unreachable => self.call(Upcall::Unreachable { because: None }),
            End::TimedOut => self.call(Upcall::TimedOut),
            End::Failed => self.call(Upcall::AcceptFailed),
            End::Dropped => {}
        }
        true
    }

    /// The queue pair is no more; a device that has not flushed it yet is not waited for any longer.
    pub(crate) fn give_up(&self) {
        self.link().state = State::Over;
        self.hang_up();
    }

    /// Gives back what rdma_cm has of it.
    pub(crate) fn hang_up(&self) {
        let id = self.link().id.take();
        // Not under the lock: waits for events that are being handled.
        drop(id);
    }
}
