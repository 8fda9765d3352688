//! Further threads, for calls that block, and the proxy agent, which the provider calls in one of its own.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use dat_sys::*;

use super::{Rig, soon};
use crate::api::Api;
use crate::case::Outcome;
use crate::check::failed;

/// A thread that is about to block, as others see it.
pub(crate) struct Sleeper(AtomicI32);

impl Sleeper {
    /// To be called by the thread itself.
    fn enters(&self) {
        // SAFETY: a system call without arguments.
        self.0.store(unsafe { libc::gettid() }, Ordering::Release);
    }

    /// Whether the system says that it sleeps.
    fn sleeps(&self) -> bool {
        let tid = self.0.load(Ordering::Acquire);
        let stat =
            std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('S'))
    }

    /// Sends it SIGUSR1, which has a handler that does nothing.
    fn interrupt(&self) {
        let tid = self.0.load(Ordering::Acquire);
        // SAFETY: a system call with numbers.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, libc::SIGUSR1) };
    }
}

impl Rig {
    /// Waits on an EVD in a second thread; once it waits, does something in this one. Answers what the wait answered.
    #[track_caller]
    pub(crate) fn while_waiting(
        &self,
        evd: DAT_EVD_HANDLE,
        meanwhile: impl FnOnce() -> Outcome,
    ) -> Outcome<DAT_RETURN> {
        self.while_waiting_beside(evd, meanwhile).map(|(answer, _)| answer)
    }

    /// The same; answers, too, how many more events there were when the wait ended.
    #[track_caller]
    pub(crate) fn while_waiting_beside(
        &self,
        evd: DAT_EVD_HANDLE,
        meanwhile: impl FnOnce() -> Outcome,
    ) -> Outcome<(DAT_RETURN, DAT_COUNT)> {
        let (api, number) = (self.api, evd as usize);
        let sleeper = Sleeper(AtomicI32::new(0));
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                sleeper.enters();
                wait(api, number)
            });
            // It has looked for events before it sleeps.
            let asleep = || until(|| sleeper.sleeps(), "the waiter sleeps");
            let done =
                self.until_waited_for(evd).and_then(|()| asleep()).and_then(|()| meanwhile());
            // Ends by itself: the wait has a limit.
            let answer = waiter.join().map_err(|_| failed("the waiting thread panicked"))?;
            done.map(|()| answer)
        })
    }

    /// The same in so many threads that wait on a CNO. Answers what each was answered, and the EVD.
    #[track_caller]
    pub(crate) fn while_waiting_on_cno(
        &self,
        cno: DAT_CNO_HANDLE,
        threads: usize,
        meanwhile: impl FnOnce() -> Outcome,
    ) -> Outcome<Vec<(DAT_RETURN, DAT_EVD_HANDLE)>> {
        let (api, number) = (self.api, cno as usize);
        let sleepers: Vec<_> = (0..threads).map(|_| Sleeper(AtomicI32::new(0))).collect();
        thread::scope(|scope| {
            let waiters: Vec<_> = sleepers
                .iter()
                .map(|sleeper| {
                    scope.spawn(move || {
                        sleeper.enters();
                        let mut evd = null_mut();
                        let answer = api.dat_cno_wait(number as DAT_CNO_HANDLE, soon(), &mut evd);
                        (answer, evd as usize)
                    })
                })
                .collect();
            let done = until(|| sleepers.iter().all(Sleeper::sleeps), "the waiters sleep")
                .and_then(|()| meanwhile());
            let answers = waiters.into_iter().map(|waiter| match waiter.join() {
                Ok((answer, evd)) => Ok((answer, evd as DAT_EVD_HANDLE)),
                Err(_) => Err(failed("a waiting thread panicked")),
            });
            let answers: Outcome<Vec<_>> = answers.collect();
            done.and(answers)
        })
    }

    /// What dat_evd_wait or dat_cno_wait, called so, answers in a thread that a signal interrupts.
    #[track_caller]
    pub(crate) fn interrupted(
        &self,
        call: impl FnOnce() -> DAT_RETURN + Send,
    ) -> Outcome<DAT_RETURN> {
        extern "C" fn nothing(_signal: libc::c_int) {}
        // SAFETY: a handler that does nothing, for a signal that nobody else uses here; the record is complete.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
            libc::sigaction(libc::SIGUSR1, &action, null_mut());
        }
        let sleeper = Sleeper(AtomicI32::new(0));
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                sleeper.enters();
                call()
            });
            let mut sent = 0;
            let done = until(
                || {
                    // Again, since one that comes between two sleeps need not be noticed.
                    if !waiter.is_finished() && sleeper.sleeps() {
                        sleeper.interrupt();
                        sent += 1;
                    }
                    waiter.is_finished()
                },
                "the interrupted call returns",
            );
            let answer = waiter.join().map_err(|_| failed("the waiting thread panicked"))?;
            done.map(|()| answer)
        })
    }

    /// Until another thread waits on the EVD: then a wait or dequeue of ours is refused.
    #[track_caller]
    fn until_waited_for(&self, evd: DAT_EVD_HANDLE) -> Outcome {
        let mut event = DAT_EVENT::zeroed();
        until(
            || DAT_GET_TYPE(self.api.dat_evd_dequeue(evd, &mut event)) == DAT_INVALID_STATE,
            "dat_evd_dequeue is refused, since another thread waits on the EVD",
        )
    }

    /// What several threads dequeue between them, until so many events have come or it takes too long: the values of
    /// software events.
    pub(crate) fn dequeue_together(
        &self,
        evd: DAT_EVD_HANDLE,
        threads: usize,
        events: usize,
    ) -> Vec<usize> {
        let (api, number, taken) = (self.api, evd as usize, AtomicUsize::new(0));
        let limit = Instant::now() + Duration::from_micros(soon().into());
        let take = || {
            let mut values = Vec::new();
            while taken.load(Ordering::Relaxed) < events && Instant::now() < limit {
                let mut event = DAT_EVENT::zeroed();
                if api.dat_evd_dequeue(number as DAT_EVD_HANDLE, &mut event) == DAT_SUCCESS {
                    values.push(super::software(&event));
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
    (api.dat_evd_wait(evd as DAT_EVD_HANDLE, soon(), 1, &mut event, &mut more), more)
}

/// Until this holds, which must be soon.
#[track_caller]
pub(crate) fn until(mut holds: impl FnMut() -> bool, what: &str) -> Outcome {
    let limit = Instant::now() + Duration::from_micros(soon().into());
    while !holds() {
        if Instant::now() > limit {
            return Err(failed(format_args!("it does not come about that {what}")));
        }
        thread::yield_now();
    }
    Ok(())
}

/// What an agent has been told.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    count: AtomicUsize,
    last: AtomicUsize,
}

impl Calls {
    /// An agent that notes its calls, for as long as this process: a provider may be late.
    pub(crate) fn agent() -> (DAT_OS_WAIT_PROXY_AGENT, &'static Calls) {
        let calls: &'static Calls = Box::leak(Box::default());
        let instance_data = std::ptr::from_ref(calls).cast_mut().cast();
        (DAT_OS_WAIT_PROXY_AGENT { instance_data, proxy_agent_func: Some(note) }, calls)
    }

    /// How often it was called.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// The EVD of the last call.
    pub(crate) fn last(&self) -> DAT_EVD_HANDLE {
        self.last.load(Ordering::Acquire) as DAT_EVD_HANDLE
    }

    /// Until it has been called so often.
    #[track_caller]
    pub(crate) fn until(&self, count: usize) -> Outcome {
        until(|| self.count() >= count, "the agent is called")
    }
}

unsafe extern "C" fn note(instance_data: DAT_PVOID, evd: DAT_EVD_HANDLE) {
    // SAFETY: what `Calls::agent` gave, which is never freed.
    let calls = unsafe { &*instance_data.cast::<Calls>() };
    calls.last.store(evd as usize, Ordering::Release);
    calls.count.fetch_add(1, Ordering::Release);
}
