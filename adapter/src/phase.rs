//! The phases of a queue pair in an engine.

use std::convert::Infallible;

use rnic::Work;

use crate::shared_qp::Shared;

/// The phase of a queue pair, with the engine's state of an attempt to connect `C`, of a connection
/// `E`, and of a connection that this side has closed and the peer has not, `D`.
#[derive(Default)]
pub enum Phase<C, E, D = Infallible> {
    /// There was no attempt to connect yet.
    Idle(Work),
    /// This side tries to connect.
    Connecting(C),
    /// There is a connection.
    Established(E),
    /// This side has closed the connection. The consumer is notified when the peer has answered.
    Disconnecting(D),
    /// The connection has ended or was never made.
    Ended(Work),
    /// The state while one phase is being replaced by another.
    #[default]
    Transition,
}

impl<C, E, D> Phase<C, E, D> {
    /// Begins the transition from `Idle`. Changes nothing in another phase.
    pub fn take_idle(&mut self) -> Option<Work> {
        match std::mem::take(self) {
            Phase::Idle(work) => Some(work),
            other => self.put_back(other),
        }
    }

    /// Begins the transition from `Connecting`. Changes nothing in another phase.
    pub fn take_connecting(&mut self) -> Option<C> {
        match std::mem::take(self) {
            Phase::Connecting(connecting) => Some(connecting),
            other => self.put_back(other),
        }
    }

    /// Begins the transition from `Established`. Changes nothing in another phase.
    pub fn take_established(&mut self) -> Option<E> {
        match std::mem::take(self) {
            Phase::Established(established) => Some(established),
            other => self.put_back(other),
        }
    }

    fn put_back<T>(&mut self, phase: Self) -> Option<T> {
        *self = phase;
        None
    }

    /// Enters `Ended`: completes all posted work, and ensures that work that is posted later is
    /// completed, too.
    pub fn end(&mut self, shared: &Shared, mut work: Work) {
        shared.end();
        work.flush();
        *self = Phase::Ended(work);
    }
}
