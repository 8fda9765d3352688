//! The operations that have been posted and whose result nobody has taken yet.

use std::any::Any;
use std::task::{Poll, Waker};

use super::error::OperationError;
use crate::{Completion, Status};

/// The result of an operation.
pub(super) type Outcome = Result<Completion, OperationError>;

/// What to do, without a lock, after a result has arrived.
pub(super) enum Next {
    Wake(Waker),
    /// The future was dropped. The operation does not use its buffer any more.
    Drop(Box<dyn Any + Send>),
}

impl Next {
    pub(super) fn act(self) {
        match self {
            Next::Wake(waker) => waker.wake(),
            Next::Drop(buffer) => drop(buffer),
        }
    }
}

enum State {
    /// The operation is in progress. The task waits for it if there is a waker.
    Posted(Option<Waker>),
    /// The operation is in progress, and its future was dropped.
    Abandoned(Box<dyn Any + Send>),
    Completed(Outcome),
}

struct OperationSlot {
    /// Number of the slot's current or next operation. It is a part of the cookie, so a late
    /// completion of an endpoint that was dropped finds no operation.
    generation: u32,
    /// The endpoint or queue of the operation, and its state. `None` if the slot is free.
    operation: Option<(usize, State)>,
}

/// Operations by their cookies.
#[derive(Default)]
pub(super) struct OperationSlots {
    slots: Vec<OperationSlot>,
    free: Vec<u32>,
}

impl OperationSlots {
    /// Adds an operation of an endpoint or queue, and returns its cookie.
    pub(super) fn insert(&mut self, owner: usize) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(OperationSlot { generation: 0, operation: None });
            u32::try_from(self.slots.len() - 1).expect("no adapter has 2³² operations in progress")
        });
        let slot = &mut self.slots[index as usize];
        slot.operation = Some((owner, State::Posted(None)));
        u64::from(slot.generation) << 32 | u64::from(index)
    }

    /// Removes an operation.
    pub(super) fn remove(&mut self, cookie: u64) {
        let index = cookie as u32;
        if let Some(slot) = self.slot(cookie) {
            slot.generation = slot.generation.wrapping_add(1);
            slot.operation = None;
            self.free.push(index);
        }
    }

    /// The slot of an operation that was not removed.
    fn slot(&mut self, cookie: u64) -> Option<&mut OperationSlot> {
        let slot = self.slots.get_mut(cookie as u32 as usize)?;
        let is_current = u64::from(slot.generation) == cookie >> 32 && slot.operation.is_some();
        is_current.then_some(slot)
    }

    /// Takes the result of an operation. If there is none yet, exchanges the given waker for the
    /// stored one.
    pub(super) fn poll(&mut self, cookie: u64, waker: &mut Option<Waker>) -> Poll<Outcome> {
        let Some(OperationSlot { operation: Some((_, state)), .. }) = self.slot(cookie) else {
            return Poll::Ready(Err(OperationError::Dropped));
        };
        match state {
            State::Completed(outcome) => {
                let outcome = outcome.clone();
                self.remove(cookie);
                Poll::Ready(outcome)
            }
            State::Posted(waiting) => {
                std::mem::swap(waiting, waker);
                Poll::Pending
            }
            // The future of this operation is gone, so nobody polls it.
            State::Abandoned(_) => Poll::Pending,
        }
    }

    /// Stores the result of an operation.
    pub(super) fn complete(&mut self, completion: Completion) -> Option<Next> {
        let outcome = match completion.status {
            Status::Success => Ok(completion),
            _ => Err(OperationError::Failed(completion)),
        };
        self.finish(completion.cookie, outcome)
    }

    fn finish(&mut self, cookie: u64, outcome: Outcome) -> Option<Next> {
        let (_, state) = self.slot(cookie)?.operation.as_mut()?;
        // After the operations of an endpoint were ended, their completions still arrive.
        if matches!(state, State::Completed(_)) {
            return None;
        }
        match std::mem::replace(state, State::Completed(outcome)) {
            State::Posted(waker) => waker.map(Next::Wake),
            State::Abandoned(buffer) => {
                self.remove(cookie);
                Some(Next::Drop(buffer))
            }
            State::Completed(_) => None,
        }
    }

    /// Ends the operations for which `is_meant` returns true for the endpoint or queue.
    pub(super) fn end(
        &mut self,
        is_meant: impl Fn(usize) -> bool,
        error: &OperationError,
    ) -> Vec<Next> {
        let is_meant = |slot: &OperationSlot| {
            slot.operation.as_ref().is_some_and(|(owner, state)| {
                is_meant(*owner) && !matches!(state, State::Completed(_))
            })
        };
        let cookies: Vec<u64> = (0..)
            .zip(&self.slots)
            .filter(|(_, slot)| is_meant(slot))
            .map(|(index, slot)| u64::from(slot.generation) << 32 | index)
            .collect();
        cookies.into_iter().filter_map(|cookie| self.finish(cookie, Err(error.clone()))).collect()
    }

    /// Keeps the buffer of an operation whose future was dropped until the operation has completed.
    /// Returns the buffer if the operation has completed already, and otherwise the waker of the
    /// task that has waited for it.
    pub(super) fn abandon<B: Any + Send>(
        &mut self,
        cookie: u64,
        buffer: B,
    ) -> Result<Option<Waker>, B> {
        let Some(OperationSlot { operation: Some((_, state)), .. }) = self.slot(cookie) else {
            return Err(buffer);
        };
        if matches!(state, State::Completed(_)) {
            self.remove(cookie);
            return Err(buffer);
        }
        match std::mem::replace(state, State::Abandoned(Box::new(buffer))) {
            State::Posted(waker) => Ok(waker),
            State::Abandoned(_) | State::Completed(_) => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;
    use crate::{EndpointId, Operation};

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn completion(cookie: u64, status: Status) -> Completion {
        let endpoint = EndpointId(0);
        let operation = Operation::Send;
        Completion { endpoint, cookie, operation, status, length: 5, immediate: None }
    }

    #[test]
    fn a_completion_wakes_the_task_and_is_taken_once() {
        let wakes = Arc::new(Wakes::default());
        let mut waker = Some(wakes.clone().into());
        let mut slots = OperationSlots::default();
        let cookies = [slots.insert(1), slots.insert(1)];
        assert!(slots.poll(cookies[0], &mut waker).is_pending());
        if let Some(next) = slots.complete(completion(cookies[1], Status::Success)) {
            next.act();
        }
        assert_eq!(wakes.0.load(Ordering::Relaxed), 0, "no task waits for the second operation");
        if let Some(next) = slots.complete(completion(cookies[0], Status::Flushed)) {
            next.act();
        }
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        let outcome = slots.poll(cookies[0], &mut waker);
        assert!(
            matches!(outcome, Poll::Ready(Err(OperationError::Failed(c))) if c.status == Status::Flushed)
        );
        let outcome = slots.poll(cookies[1], &mut waker);
        assert!(matches!(outcome, Poll::Ready(Ok(c)) if c.length == 5));
        let reused = slots.insert(1);
        assert_eq!(reused as u32, cookies[1] as u32, "the slot is used again");
        assert_ne!(reused, cookies[1], "with another cookie");
        assert!(slots.complete(completion(cookies[1], Status::Success)).is_none());
        assert!(slots.poll(reused, &mut waker).is_pending(), "a late completion is ignored");
    }

    #[test]
    fn an_abandoned_operation_keeps_its_buffer_until_it_has_completed() {
        let mut slots = OperationSlots::default();
        let buffer = Arc::new(());
        let cookie = slots.insert(1);
        assert!(slots.abandon(cookie, buffer.clone()).is_ok());
        assert_eq!(Arc::strong_count(&buffer), 2, "the operation may still use the buffer");
        if let Some(next) = slots.complete(completion(cookie, Status::Success)) {
            next.act();
        }
        assert_eq!(Arc::strong_count(&buffer), 1);
        let cookie = slots.insert(1);
        if let Some(next) = slots.complete(completion(cookie, Status::Success)) {
            next.act();
        }
        assert!(slots.abandon(cookie, buffer).is_err(), "the operation has completed before");
        assert_eq!(slots.free.len(), 1, "both operations used the same slot, which is free");
    }

    #[test]
    fn the_operations_of_an_endpoint_end_with_it() {
        let mut slots = OperationSlots::default();
        let (gone, kept) = (slots.insert(1), slots.insert(2));
        let next = slots.end(|owner| owner == 1, &OperationError::Dropped);
        assert!(next.is_empty(), "no task waits");
        assert!(slots.complete(completion(gone, Status::Flushed)).is_none());
        let outcome = slots.poll(gone, &mut None);
        assert!(matches!(outcome, Poll::Ready(Err(OperationError::Dropped))));
        assert!(slots.poll(kept, &mut None).is_pending());
    }
}
