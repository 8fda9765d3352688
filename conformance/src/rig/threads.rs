//! Additional threads, in which cases make calls that block, and a proxy agent, which the provider
//! calls in a thread of its own.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use dat_sys::*;

use super::adapter::{Rig, event_timeout_us};
use super::events::software_value;
use crate::api::Api;
use crate::check::{Outcome, failed};

/// A thread that is about to block, by its thread ID.
pub(crate) struct BlockedThread(AtomicI32);

impl BlockedThread {
    /// Records the ID of the calling thread, which is the thread that will block.
    fn register(&self) {
        // SAFETY: gettid takes no arguments.
        self.0.store(unsafe { libc::gettid() }, Ordering::Release);
    }

    /// Returns whether the kernel reports the thread as sleeping.
    fn is_sleeping(&self) -> bool {
        let tid = self.0.load(Ordering::Acquire);
        let stat =
            std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('S'))
    }

    /// Sends the thread SIGUSR1, whose handler does nothing.
    fn interrupt(&self) {
        let tid = self.0.load(Ordering::Acquire);
        // SAFETY: this system call takes only numbers.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, libc::SIGUSR1) };
    }
}

impl Rig {
    /// Waits on an EVD in a second thread. While that thread waits, runs `meanwhile` in this
    /// thread. Returns the result of the wait.
    #[track_caller]
    pub(crate) fn while_waiting(
        &self,
        evd: DAT_EVD_HANDLE,
        meanwhile: impl FnOnce() -> Outcome,
    ) -> Outcome<DAT_RETURN> {
        self.while_waiting_beside(evd, meanwhile).map(|(answer, _)| answer)
    }

    /// Like [`while_waiting`](Self::while_waiting). Also returns the number of events that were
    /// still queued when the wait ended.
    #[track_caller]
    pub(crate) fn while_waiting_beside(
        &self,
        evd: DAT_EVD_HANDLE,
        meanwhile: impl FnOnce() -> Outcome,
    ) -> Outcome<(DAT_RETURN, DAT_COUNT)> {
        let (api, number) = (self.api, evd as usize);
        let blocked = BlockedThread(AtomicI32::new(0));
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                blocked.register();
                wait(api, number)
            });
            // The second thread looks for events before it sleeps, so this thread waits until it
            // sleeps.
            let asleep = || until(|| blocked.is_sleeping(), "the waiter sleeps");
            let done =
                self.until_waited_for(evd).and_then(|()| asleep()).and_then(|()| meanwhile());
            // The thread ends in any case, because its wait has a time limit.
            let answer = waiter.join().map_err(|_| failed("the waiting thread panicked"))?;
            done.map(|()| answer)
        })
    }

    /// Like [`while_waiting`](Self::while_waiting), but several threads wait on a CNO. Returns the
    /// status and the EVD that each wait has returned.
    #[track_caller]
    pub(crate) fn while_waiting_on_cno(
        &self,
        cno: DAT_CNO_HANDLE,
        threads: usize,
        meanwhile: impl FnOnce() -> Outcome,
    ) -> Outcome<Vec<(DAT_RETURN, DAT_EVD_HANDLE)>> {
        let (api, number) = (self.api, cno as usize);
        let blocked_threads: Vec<_> =
            (0..threads).map(|_| BlockedThread(AtomicI32::new(0))).collect();
        thread::scope(|scope| {
            let waiters: Vec<_> = blocked_threads
                .iter()
                .map(|blocked| {
                    scope.spawn(move || {
                        blocked.register();
                        let mut evd = null_mut();
                        let answer = api.dat_cno_wait(
                            number as DAT_CNO_HANDLE,
                            event_timeout_us(),
                            &mut evd,
                        );
                        (answer, evd as usize)
                    })
                })
                .collect();
            let done = until(
                || blocked_threads.iter().all(BlockedThread::is_sleeping),
                "the waiters sleep",
            )
            .and_then(|()| meanwhile());
            let answers = waiters.into_iter().map(|waiter| match waiter.join() {
                Ok((answer, evd)) => Ok((answer, evd as DAT_EVD_HANDLE)),
                Err(_) => Err(failed("a waiting thread panicked")),
            });
            let answers: Outcome<Vec<_>> = answers.collect();
            done.and(answers)
        })
    }

    /// Calls dat_evd_wait or dat_cno_wait in a second thread, and interrupts this thread by a
    /// signal. Returns the result of the call.
    #[track_caller]
    pub(crate) fn interrupted(
        &self,
        call: impl FnOnce() -> DAT_RETURN + Send,
    ) -> Outcome<DAT_RETURN> {
        extern "C" fn nothing(_signal: libc::c_int) {}
        // SAFETY: the handler does nothing, no other code uses this signal, and the structure is
        // complete.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
            libc::sigaction(libc::SIGUSR1, &action, null_mut());
        }
        let blocked = BlockedThread(AtomicI32::new(0));
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                blocked.register();
                call()
            });
            let mut sent = 0;
            let done = until(
                || {
                    // A signal that arrives while the thread does not sleep may have no effect, so
                    // the signal is sent repeatedly.
                    if !waiter.is_finished() && blocked.is_sleeping() {
                        blocked.interrupt();
                        sent += 1;
                    }
                    waiter.is_finished()
                },
                "the call that a signal interrupts returns",
            );
            let answer = waiter.join().map_err(|_| failed("the waiting thread panicked"))?;
            done.map(|()| answer)
        })
    }

    /// Waits until another thread waits on the EVD. From then on, a wait or dequeue of this thread
    /// is refused.
    #[track_caller]
    fn until_waited_for(&self, evd: DAT_EVD_HANDLE) -> Outcome {
        let mut event = DAT_EVENT::zeroed();
        until(
            || DAT_GET_TYPE(self.api.dat_evd_dequeue(evd, &mut event)) == DAT_INVALID_STATE,
            "dat_evd_dequeue is refused, since another thread waits on the EVD",
        )
    }

    /// Dequeues in several threads until this many events were dequeued, or until the time limit.
    /// Returns the values of the software events.
    pub(crate) fn dequeue_together(
        &self,
        evd: DAT_EVD_HANDLE,
        threads: usize,
        events: usize,
    ) -> Vec<usize> {
        let (api, number, taken) = (self.api, evd as usize, AtomicUsize::new(0));
        let limit = Instant::now() + Duration::from_micros(event_timeout_us().into());
        let take = || {
            let mut values = Vec::new();
            while taken.load(Ordering::Relaxed) < events && Instant::now() < limit {
                let mut event = DAT_EVENT::zeroed();
                if api.dat_evd_dequeue(number as DAT_EVD_HANDLE, &mut event) == DAT_SUCCESS {
                    values.push(software_value(&event));
                    taken.fetch_add(1, Ordering::Relaxed);
                }
            }
            values
        };
        thread::scope(|scope| {
            let takers: Vec<_> = (0..threads).map(|_| scope.spawn(take)).collect();
            takers.into_iter().flat_map(|taker| taker.join().unwrap_or_default()).collect()
        })
    }
}

fn wait(api: &Api, evd: usize) -> (DAT_RETURN, DAT_COUNT) {
    let (mut event, mut more) = (DAT_EVENT::zeroed(), 0);
    (api.dat_evd_wait(evd as DAT_EVD_HANDLE, event_timeout_us(), 1, &mut event, &mut more), more)
}

/// Waits until a condition holds. Fails after the time limit.
#[track_caller]
pub(crate) fn until(mut holds: impl FnMut() -> bool, what: &str) -> Outcome {
    let limit = Instant::now() + Duration::from_micros(event_timeout_us().into());
    while !holds() {
        if Instant::now() > limit {
            return Err(failed(format_args!("timed out waiting until {what}")));
        }
        thread::yield_now();
    }
    Ok(())
}

/// A record of the calls of a proxy agent.
#[derive(Debug, Default)]
pub(crate) struct AgentCalls {
    count: AtomicUsize,
    last: AtomicUsize,
}

impl AgentCalls {
    /// Returns a proxy agent that records its calls, and the record. The record is never freed,
    /// because a provider may call the agent late.
    pub(crate) fn agent() -> (DAT_OS_WAIT_PROXY_AGENT, &'static AgentCalls) {
        let calls: &'static AgentCalls = Box::leak(Box::default());
        let instance_data = std::ptr::from_ref(calls).cast_mut().cast();
        (DAT_OS_WAIT_PROXY_AGENT { instance_data, proxy_agent_func: Some(note) }, calls)
    }

    /// Returns the number of calls of the agent.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Returns the EVD that the last call of the agent has got.
    pub(crate) fn last(&self) -> DAT_EVD_HANDLE {
        self.last.load(Ordering::Acquire) as DAT_EVD_HANDLE
    }

    /// Waits until the agent has been called this many times.
    #[track_caller]
    pub(crate) fn until(&self, count: usize) -> Outcome {
        until(|| self.count() >= count, "the agent is called")
    }
}

unsafe extern "C" fn note(instance_data: DAT_PVOID, evd: DAT_EVD_HANDLE) {
    // SAFETY: the pointer comes from `AgentCalls::agent` and is never freed.
    let calls = unsafe { &*instance_data.cast::<AgentCalls>() };
    calls.last.store(evd as usize, Ordering::Release);
    calls.count.fetch_add(1, Ordering::Release);
}
