//! The phases of a queue pair in an engine.

use std::convert::Infallible;

use rnic::Work;

use crate::qp_shared::QpShared;

/// The phase of a queue pair. An engine chooses three types for its own state: `C` for an attempt
/// to connect, `E` for a connection, and `D` for a connection that this side has closed and the
/// peer has not closed yet.
#[derive(Default)]
pub enum LinkPhase<C, E, D = Infallible> {
    /// Nobody has tried to connect the queue pair yet.
    Idle(Work),
    /// The queue pair is being connected.
    Connecting(C),
    /// The queue pair is connected.
    Established(E),
    /// This side has closed the connection. The consumer is notified when the peer has answered.
    Disconnecting(D),
    /// The connection has ended or was never made.
    Ended(Work),
    /// A placeholder while the caller replaces one phase by another.
    #[default]
    Transition,
}

impl<C, E, D> LinkPhase<C, E, D> {
    /// If the phase is `Idle`, returns its state and leaves `Transition` in its place. Otherwise
    /// returns `None` and changes nothing.
    pub fn take_idle(&mut self) -> Option<Work> {
        match std::mem::take(self) {
            LinkPhase::Idle(work) => Some(work),
            other => self.put_back(other),
        }
    }

    /// If the phase is `Connecting`, returns its state and leaves `Transition` in its place.
    /// Otherwise returns `None` and changes nothing.
    pub fn take_connecting(&mut self) -> Option<C> {
        match std::mem::take(self) {
            LinkPhase::Connecting(connecting) => Some(connecting),
            other => self.put_back(other),
        }
    }

    /// If the phase is `Established`, returns its state and leaves `Transition` in its place.
    /// Otherwise returns `None` and changes nothing.
    pub fn take_established(&mut self) -> Option<E> {
        match std::mem::take(self) {
            LinkPhase::Established(established) => Some(established),
            other => self.put_back(other),
        }
    }

    fn put_back<T>(&mut self, phase: Self) -> Option<T> {
        *self = phase;
        None
    }

    /// Enters the phase `Ended`. Flushes all posted work, and ensures that work that is posted
    /// later is flushed, too.
    pub fn end(&mut self, shared: &QpShared, mut work: Work) {
        shared.end();
        work.flush();
        *self = LinkPhase::Ended(work);
    }
}
