//! Consumer notification objects (CNOs). A thread waits on one CNO for the events of many EVDs.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::os::fd::AsRawFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dat_sys::*;
use waiting::nesting::{self, Activity};
use waiting::{Wake, WakeReason, cancel};

use crate::agent::Agent;
use crate::allocate::no_memory;
use crate::error::{Error, Result};
use crate::event_fd::EventFd;
use crate::handle::{self, Node, Object, Ref};
use crate::ia::Ia;
use crate::provider::Transport;

/// A consumer notification object.
pub struct Cno<T: Transport> {
    /// The adapter of the CNO.
    pub ia: Ref<Ia<T>>,
    state: Mutex<State>,
    agent: Agent,
}

#[derive(Default)]
struct State {
    /// The EVDs whose trigger no waiter has consumed yet, oldest first, each at most once. A waiter
    /// takes one EVD and leaves the others here for the next wait. The handles are hints and may be
    /// stale.
    triggered: VecDeque<usize>,
    /// The threads in dat_cno_wait, oldest first. The pointers lead to the stacks of the threads.
    /// Each thread removes its pointer before it returns.
    waiters: Vec<*const Wake>,
    /// How often the last EVD of the CNO was freed. Each time, all waiters leave with a NULL EVD.
    releases: u64,
    /// Whether the CNO is shut down, because its adapter is closing or because it is being freed.
    /// All waiters then leave with a NULL EVD.
    dead: bool,
    /// The file descriptor of the CNO, if it was created with one. It is readable while the next
    /// dat_cno_wait would return at once.
    event_fd: Option<EventFd>,
}

/// A thread that waits or is about to wait.
pub struct Waiter<'a, T: Transport> {
    cno: &'a Cno<T>,
    wake: &'a Wake,
    releases: u64,
}

// SAFETY: the pointers are only followed under the lock, while the waiters they lead to are listed.
unsafe impl Send for State {}

impl<T: Transport> Object for Cno<T> {
    const KIND: DAT_HANDLE_TYPE = DAT_HANDLE_TYPE_CNO;
    const INVALID: DAT_RETURN = DAT_INVALID_HANDLE_CNO;
}

/// Implements dat_cno_create.
///
/// # Safety
/// Until the agent is replaced or the CNO is freed, threads of the library may call the agent's
/// function with its instance data and the handle of an EVD.
pub unsafe fn create<T: Transport>(
    ia: &Node<Ia<T>>,
    agent: DAT_OS_WAIT_PROXY_AGENT,
) -> Result<&'static Node<Cno<T>>> {
    let _control = ia.control();
    ia.add(|_| {
        // SAFETY: the caller guarantees that threads of the library may call the agent.
        let agent = unsafe { Agent::new(agent) }?;
        Ok(Cno { ia: Ref::new(ia), state: Mutex::default(), agent })
    })
}

/// Implements dat_cno_fd_create (uDAPL 2.0): creates a CNO whose triggers make a file descriptor
/// readable, so that a program can wait with poll(2) and similar calls. The CNO owns the file
/// descriptor and closes it.
pub fn create_with_fd<T: Transport>(ia: &Node<Ia<T>>) -> Result<(&'static Node<Cno<T>>, DAT_FD)> {
    let no_fd = |_| Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
    let event_fd = EventFd::new().map_err(no_fd)?;
    let fd = event_fd.as_raw_fd();
    // SAFETY: the CNO has no agent, so no function of the consumer is called.
    let cno = unsafe { create(ia, DAT_OS_WAIT_PROXY_AGENT_NULL) }?;
    cno.state().event_fd = Some(event_fd);
    ia.transport.require_progress(true);
    Ok((cno, fd))
}

/// Implements dat_cno_free. The call is refused while an EVD refers to the CNO or a thread waits on
/// the CNO. There is one exception: if the call is made in a signal handler, the waiter may be this
/// very thread. Then the call succeeds, and the wait ends with `DAT_ABORT`. The caller drops the
/// returned object while it holds no lock.
///
/// # Safety
/// If this call succeeds, nobody uses a reference to the CNO after the call.
#[must_use = "drop it while no lock is held: the drop waits for the agent, which may take any lock"]
pub unsafe fn free<T: Transport>(cno: &Node<Cno<T>>) -> Result<Option<Box<Node<Cno<T>>>>> {
    let (ia, handle) = (cno.ia.clone(), cno.handle());
    let control = ia.control_to_free::<Cno<T>>(handle)?;
    let nested = nesting::interrupted_activity() != Activity::Nothing;
    if cno.in_use() || (cno.has_waiters() && !nested) {
        return Err(Error::state(DAT_INVALID_STATE_CNO_IN_USE));
    }
    ia.unregister_object(cno);
    // SAFETY: no object depends on the CNO, and the code below waits for its waiters.
    let Some(retired) = (unsafe { handle::retire(cno) }) else { return Ok(None) };
    drop(control);
    if !retired.has_waiters() {
        // SAFETY: no object depends on the CNO, and no thread waits on it.
        return Ok(Some(unsafe { retired.reclaim() }));
    }
    let later = move || {
        retired.shut_down();
        retired.await_no_waiters();
        // SAFETY: no object depends on the CNO, and no thread waits on it any more.
        drop(unsafe { retired.reclaim() });
    };
    ia.free_later(later);
    Ok(None)
}

impl<T: Transport> Drop for Cno<T> {
    fn drop(&mut self) {
        if self.fd().is_some() {
            self.ia.transport.require_progress(false);
        }
    }
}

impl<T: Transport> Cno<T> {
    /// The file descriptor that triggers make readable, if the CNO was created with one.
    pub fn fd(&self) -> Option<DAT_FD> {
        self.state().event_fd.as_ref().map(|event_fd| event_fd.as_raw_fd())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves memory for the trigger of one more EVD, so that triggering never allocates memory.
    /// The caller holds the control lock.
    pub(crate) fn reserve_trigger(cno: &Node<Self>) -> Result<()> {
        cno.state().triggered.try_reserve(cno.users() as usize + 1).map_err(no_memory)
    }

    /// Triggers the CNO and calls its agent, because an event has arrived on an enabled EVD that
    /// has no waiter. Called in upcalls.
    pub(crate) fn trigger(&self, evd: usize) {
        self.trigger_without_agent(evd);
        self.agent.call(evd);
    }

    /// Triggers the CNO for events that a consumer has left in an EVD. Does not call the agent,
    /// because the agent itself may be that consumer.
    pub(crate) fn trigger_without_agent(&self, evd: usize) {
        let interrupt = {
            let mut state = self.state();
            if !state.triggered.contains(&evd) {
                state.triggered.push_back(evd);
                state.update_fd();
            }
            state.wake_one()
        };
        if interrupt {
            self.ia.transport.interrupt();
        }
    }

    /// Removes the trigger of an EVD that was found empty.
    pub(crate) fn withdraw_trigger(&self, evd: usize) {
        let mut state = self.state();
        state.triggered.retain(|triggered| *triggered != evd);
        state.update_fd();
    }

    /// Removes the trigger and the agent's queued calls for an EVD that is being freed.
    pub(crate) fn remove_evd(&self, evd: usize) {
        self.withdraw_trigger(evd);
        self.agent.remove_evd(evd);
    }

    /// Implements dat_cno_wait. Returns the EVD that triggered. If the timeout expires, the error
    /// is `DAT_QUEUE_EMPTY` (uDAPL 1.2, dat_cno_wait).
    pub fn wait(&self, timeout: DAT_TIMEOUT) -> Result<DAT_EVD_HANDLE> {
        let wake = Wake::new();
        self.begin_wait(&wake)?.wait(timeout)
    }

    /// Makes this thread one of the waiters of the CNO. The thread will sleep on `wake`.
    pub fn begin_wait<'a>(&'a self, wake: &'a Wake) -> Result<Waiter<'a, T>> {
        let mut state = self.state();
        state.waiters.try_reserve(1).map_err(no_memory)?;
        state.waiters.push(wake);
        Ok(Waiter { cno: self, wake, releases: state.releases })
    }

    fn wait_until(
        &self,
        wake: &Wake,
        releases: u64,
        deadline: Option<Instant>,
        poll: bool,
    ) -> Result<DAT_EVD_HANDLE> {
        self.ia.transport.progress();
        let mut wake_reason = if poll { WakeReason::TimedOut } else { WakeReason::Woken };
        loop {
            wake.reset();
            // Check first whether the adapter is closing. While it closes, an EVD may trigger
            // because its work requests are flushed, and that EVD is about to be freed.
            if self.ia.is_closing() {
                return Err(Error::of(DAT_ABORT));
            }
            let dead = {
                let mut state = self.state();
                if let Some(evd) = state.triggered.pop_front() {
                    state.update_fd();
                    return Ok(evd as *mut c_void);
                }
                state.dead || state.releases != releases
            };
            if dead {
                return Err(Error::of(DAT_ABORT));
            }
            match wake_reason {
                WakeReason::TimedOut => return Err(Error::of(DAT_QUEUE_EMPTY)),
                WakeReason::Interrupted => return Err(Error::of(DAT_INTERRUPTED_CALL)),
                WakeReason::Woken => wake_reason = self.ia.transport.sleep(wake, deadline),
            }
            if cancel::is_ending() {
                return Err(Error::of(DAT_INTERRUPTED_CALL));
            }
        }
    }

    /// Implements dat_cno_modify_agent.
    ///
    /// # Safety
    /// The requirements of [`create`] apply.
    pub unsafe fn set_agent(&self, agent: DAT_OS_WAIT_PROXY_AGENT) -> Result<()> {
        // SAFETY: the caller guarantees that threads of the library may call the agent.
        unsafe { self.agent.set(agent) }
    }

    /// The agent, as dat_cno_query reports it.
    pub fn agent(&self) -> DAT_OS_WAIT_PROXY_AGENT {
        self.agent.get()
    }

    /// Ends all waits on the CNO and calls its agent for the last time, with a NULL EVD
    /// (dat_ia_close).
    pub fn shut_down(&self) {
        let interrupt = {
            let mut state = self.state();
            state.dead = true;
            state.update_fd();
            state.wake_all()
        };
        if interrupt {
            self.ia.transport.interrupt();
        }
        self.agent.end();
    }

    /// Makes all waiters leave and calls the agent, both with a NULL EVD, because the last EVD of
    /// the CNO was freed (uDAPL 1.2, dat_cno_wait). The CNO may get EVDs again.
    pub(crate) fn release_waiters(&self) {
        let interrupt = {
            let mut state = self.state();
            state.releases += 1;
            state.wake_all()
        };
        if interrupt {
            self.ia.transport.interrupt();
        }
        self.agent.call(0);
    }

    /// Whether threads wait on the CNO.
    pub fn has_waiters(&self) -> bool {
        !self.state().waiters.is_empty()
    }

    /// Blocks until no thread waits on the CNO.
    pub fn await_no_waiters(&self) {
        while self.has_waiters() {
            std::thread::yield_now();
        }
    }
}

impl<T: Transport> Waiter<'_, T> {
    /// Waits until an EVD triggers: see [`Cno::wait`].
    pub fn wait(self, timeout: DAT_TIMEOUT) -> Result<DAT_EVD_HANDLE> {
        let deadline = match timeout {
            DAT_TIMEOUT_INFINITE => None,
            us => Instant::now().checked_add(Duration::from_micros(us.into())),
        };
        self.cno.wait_until(self.wake, self.releases, deadline, timeout == 0)
    }
}

impl<T: Transport> Drop for Waiter<'_, T> {
    fn drop(&mut self) {
        let mut state = self.cno.state();
        state.waiters.retain(|w| !std::ptr::eq(*w, self.wake));
        // A trigger may have woken this thread although the thread does not take the triggered EVD.
        // If so, wake the next waiter while the lock is still held: dat_cno_free may follow as soon
        // as the lock is released.
        if !state.triggered.is_empty() && state.wake_one() {
            self.cno.ia.transport.interrupt();
        }
        drop(state);
    }
}

impl State {
    /// Makes the file descriptor readable if dat_cno_wait would return at once. If not, makes it
    /// unreadable.
    fn update_fd(&mut self) {
        let readable = self.dead || !self.triggered.is_empty();
        if let Some(event_fd) = &mut self.event_fd {
            event_fd.set_readable(readable);
        }
    }

    /// Wakes all waiters. Returns true if one of them sleeps in the transport's poller. The caller
    /// must then interrupt the poller.
    fn wake_all(&self) -> bool {
        let mut interrupt = false;
        for waiter in &self.waiters {
            // SAFETY: a waiter is alive while it is in the list, because its thread removes it
            // before it returns.
            interrupt |= unsafe { (**waiter).signal() };
        }
        interrupt
    }

    /// Wakes the oldest waiter that was not woken yet. Returns true if this waiter sleeps in the
    /// transport's poller. The caller must then interrupt the poller.
    fn wake_one(&self) -> bool {
        // SAFETY: a waiter is alive while it is in the list, because its thread removes it before
        // it returns.
        let sleeper = self.waiters.iter().map(|w| unsafe { &**w }).find(|w| !w.is_signalled());
        sleeper.is_some_and(Wake::signal)
    }
}
