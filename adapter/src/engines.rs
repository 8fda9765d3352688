//! The engines of an adapter.
//!
//! An adapter begins with one engine and gets more as the consumer creates queue pairs, up to a
//! limit. Each engine has a lock, a poller and a progress thread of its own, so threads that use
//! different engines do not meet. A queue pair stays with one engine. Queue pairs that share a
//! completion queue or a shared receive queue have the same engine. There is one exception: a
//! consumer may combine queues that already belong to different engines. Then the engines
//! [share](rnic::Cq::share) the completion queue.
//!
//! A consumer's thread makes progress with the engines of the queue that it polls or waits for.
//! From then on, it *serves* these engines: it makes progress with them in its later calls, too. It
//! also makes progress with engines that no thread has served yet. So one thread that uses all
//! queue pairs makes progress with all of them, and several threads with queue pairs of their own
//! leave each other alone. An engine whose thread does something else is served by its progress
//! thread.

mod waits;

#[cfg(test)]
mod tests;

use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use telemetry::threads;
use waiting::nesting;

use crate::config::MAX_ENGINES;
use crate::engine_lock::Deferring;
use crate::error::OpenError;
use crate::progress::MakeProgress;
use crate::reactor::Reactor;
use crate::sync::lock;

/// The memory that must be free before a further engine is created: the stack of a thread, and many
/// times what an engine takes.
const ENGINE_ROOM_BYTES: usize = 16 << 20;

/// A set of engines of one adapter, one bit for the number of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EngineSet(pub(crate) u64);

impl EngineSet {
    pub(crate) const EMPTY: EngineSet = EngineSet(0);

    pub(crate) fn of(number: usize) -> Self {
        EngineSet(1 << number)
    }

    pub(crate) fn with(self, other: EngineSet) -> Self {
        EngineSet(self.0 | other.0)
    }

    pub(crate) fn contains(self, number: usize) -> bool {
        self.0 >> number & 1 == 1
    }

    /// The lowest number in the set.
    pub(crate) fn first(self) -> Option<usize> {
        (self.0 != 0).then(|| self.0.trailing_zeros() as usize)
    }

    /// The set without its lowest number.
    fn without_first(self) -> Self {
        EngineSet(self.0 & self.0.wrapping_sub(1))
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(self), |set| Some(set.without_first())).map_while(Self::first)
    }
}

/// Creates one more engine with its reactor.
type Create<E> = Arc<dyn Fn() -> Result<Arc<Reactor<E>>, OpenError> + Send + Sync>;

/// The engines of an adapter, each with its reactor.
pub(crate) struct Engines<E: MakeProgress> {
    first: Arc<Reactor<E>>,
    /// The engines with the numbers from 1.
    others: [OnceLock<Arc<Reactor<E>>>; MAX_ENGINES - 1],
    count: AtomicUsize,
    create: Create<E>,
    /// The time for which a blocking wait polls before it sleeps, if its engine's `spin` says so.
    spin_limit: Duration,
    placing: Mutex<Placing>,
}

/// What a thread that places a queue pair needs.
struct Placing {
    /// The number of engines that the adapter may have.
    limit: usize,
    /// The number of calls of [`Engines::require_progress`] with true, minus those with false.
    fd_waiters: usize,
}

impl<E: MakeProgress> Engines<E> {
    /// Creates the first engine.
    pub(crate) fn new(
        limit: usize,
        spin_limit: Duration,
        create: Create<E>,
    ) -> Result<Self, OpenError> {
        Ok(Engines {
            first: create()?,
            others: [const { OnceLock::new() }; MAX_ENGINES - 1],
            count: AtomicUsize::new(1),
            create,
            spin_limit,
            placing: Mutex::new(Placing { limit: limit.clamp(1, MAX_ENGINES), fd_waiters: 0 }),
        })
    }

    /// The first engine, which has the listeners.
    pub(crate) fn first(&self) -> &Arc<Reactor<E>> {
        &self.first
    }

    /// The engine with this number, or the first engine if no engine has this number.
    pub(crate) fn get(&self, number: usize) -> &Arc<Reactor<E>> {
        let other = number.checked_sub(1).and_then(|at| self.others[at].get());
        other.unwrap_or(&self.first)
    }

    #[inline]
    fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// All engines.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Reactor<E>>> {
        (0..self.count()).map(|number| self.get(number))
    }

    /// Makes one pass of progress for a thread that looks into a queue of the engines `of`.
    #[inline]
    pub(crate) fn poll(&self, of: EngineSet) {
        if self.count() == 1 {
            return self.first.poll();
        }
        self.served_by_this_thread(of).iter().for_each(|number| self.get(number).poll());
    }

    /// Records that this thread serves the engines `of`. Returns all engines that the thread makes
    /// progress with: `of`, the engines that it has served before, and the engines that no thread
    /// has served.
    fn served_by_this_thread(&self, of: EngineSet) -> EngineSet {
        let this = nesting::thread();
        let mut served = EngineSet::EMPTY;
        for (number, reactor) in self.iter().enumerate() {
            let by = reactor.served_by.load(Ordering::Relaxed);
            if of.contains(number) && by != this {
                reactor.served_by.store(this, Ordering::Relaxed);
            }
            if of.contains(number) || by == this || by == 0 {
                served = served.with(EngineSet::of(number));
            }
        }
        served
    }

    /// Chooses the engine of a queue pair or a shared receive queue, which keeps it until
    /// [`Engines::leave`] is called. This is the first of the following that exists: the engine
    /// `bound` of one of its queues, an engine without queue pairs, a new engine (if another one
    /// is allowed), and the engine with the fewest queue pairs. `settle` runs before the next queue
    /// pair gets its engine.
    pub(crate) fn place(&self, bound: Option<usize>, settle: impl FnOnce(usize)) -> usize {
        let mut placing = lock(&self.placing);
        let number = bound.unwrap_or_else(|| self.choose(&mut placing));
        self.get(number).placed.fetch_add(1, Ordering::Relaxed);
        settle(number);
        number
    }

    /// Ends what [`Engines::place`] has begun.
    pub(crate) fn leave(&self, number: usize) {
        self.get(number).placed.fetch_sub(1, Ordering::Relaxed);
    }

    fn choose(&self, placing: &mut Placing) -> usize {
        let placed =
            |(_, reactor): &(usize, &Arc<Reactor<E>>)| reactor.placed.load(Ordering::Relaxed);
        let count = self.count();
        let least = self.iter().enumerate().min_by_key(placed);
        match least {
            Some((number, reactor)) if reactor.placed.load(Ordering::Relaxed) == 0 => number,
            least if count >= placing.limit => least.map_or(0, |(number, _)| number),
            least => match self.create_in_other_thread() {
                Some(reactor) => {
                    (0..placing.fd_waiters).for_each(|_| reactor.require_progress(true));
                    // The slot is free, because only this function fills slots, one after the
                    // other, and the caller holds the lock.
                    self.others[count - 1].set(reactor).ok();
                    self.count.store(count + 1, Ordering::Release);
                    count
                }
                // The host lacks the resources for one more engine, for example descriptors.
                None => {
                    placing.limit = count;
                    least.map_or(0, |(number, _)| number)
                }
            },
        }
    }

    /// Creates one more engine. The stack of the consumer's thread may be too small for that.
    fn create_in_other_thread(&self) -> Option<Arc<Reactor<E>>> {
        // Check for this memory here: an allocation that fails in the engine would end the process,
        // and the check at the start of the consumer's call asked for less memory.
        let mut room = Vec::<u8>::new();
        room.try_reserve_exact(ENGINE_ROOM_BYTES).ok()?;
        // Use the memory. Otherwise the compiler could omit the allocation.
        drop(black_box(room));
        let create = Arc::clone(&self.create);
        let thread = threads::spawn(E::NAME, move || create().ok()).ok()?;
        thread.join().ok()?
    }

    /// Runs `f` while this thread holds the locks of some engines, and no queue pair is placed.
    pub(crate) fn exclude<R>(&self, set: impl FnOnce() -> EngineSet, f: impl FnOnce() -> R) -> R {
        let _placing = lock(&self.placing);
        self.with_locks(set(), f)
    }

    /// Runs `f`, which uses no memory of the consumer, while this thread holds the locks of some
    /// engines. Threads take several locks in the order of their numbers.
    pub(crate) fn with_locks<R>(&self, set: EngineSet, f: impl FnOnce() -> R) -> R {
        match set.first() {
            None => f(),
            Some(number) => {
                let engine = &self.get(number).engine;
                let _locked = engine.lock();
                engine.begin_wait();
                let result = self.with_locks(set.without_first(), f);
                engine.end_wait();
                result
            }
        }
    }

    /// Waits until no engine uses memory that it has looked up before this call.
    pub(crate) fn finish_accesses(&self) {
        self.iter().for_each(|reactor| drop(reactor.engine.lock()));
    }

    /// Sends the posted requests that wait for the next poll. A device reads the memory of a
    /// request soon after the post, so a consumer may then free the memory of a request that needs
    /// no answer.
    pub(crate) fn send_posted(&self) {
        let has_posts = |reactor: &&Arc<Reactor<E>>| !reactor.shared.doorbells.is_empty();
        self.iter().filter(has_posts).for_each(|reactor| reactor.engine.lock().run_deferred());
    }

    /// Waits, in an engine, until no other engine uses memory that it has looked up before this
    /// call.
    pub(crate) fn finish_accesses_of_others(&self) {
        if self.count() == 1 {
            return;
        }
        let own = || self.iter().filter(|reactor| reactor.engine.is_held_by_this_thread());
        own().for_each(|reactor| reactor.engine.begin_wait());
        let others = self.iter().filter(|reactor| !reactor.engine.is_held_by_this_thread());
        others.for_each(|reactor| reactor.engine.await_holder());
        own().for_each(|reactor| reactor.engine.end_wait());
    }

    /// Declares whether a consumer may sleep without calling the adapter: see
    /// [`Adapter::require_progress`](crate::Adapter::require_progress).
    pub(crate) fn require_progress(&self, on: bool) {
        let mut placing = lock(&self.placing);
        match on {
            true => placing.fd_waiters += 1,
            false => placing.fd_waiters -= 1,
        }
        self.iter().for_each(|reactor| reactor.require_progress(on));
    }

    /// Wakes the consumers' threads that sleep in pollers.
    pub(crate) fn interrupt(&self) {
        if self.count() == 1 {
            return self.first.shared.wake();
        }
        self.iter().filter(|reactor| reactor.has_leader()).for_each(|r| r.shared.wake());
    }
}
