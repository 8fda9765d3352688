//! Consumer notification objects: one thing to wait on for many event dispatchers.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::os::fd::AsRawFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dat_sys::*;

use crate::agent::Agent;
use crate::allocate::no_memory;
use crate::beacon::Beacon;
use crate::error::{Error, Result};
use crate::handle::{self, Node, Object, Ref};
use crate::ia::Ia;
use crate::nesting::{self, Doing};
use crate::provider::Transport;
use crate::wake::{Slept, Wake};

/// A consumer notification object.
pub struct Cno<T: Transport> {
    /// Its adapter.
    pub ia: Ref<Ia<T>>,
    state: Mutex<State>,
    agent: Agent,
}

#[derive(Default)]
struct State {
    /// EVDs that have triggered it and whose trigger no waiter has consumed, oldest first, each once: a consumer that
    /// serves one of them does not miss the others. The handles are hints and may be stale.
    triggered: VecDeque<usize>,
    /// Threads in dat_cno_wait, oldest first. The pointers are to their stacks; they leave before they return.
    waiters: Vec<*const Wake>,
    /// How often the last of its EVDs was freed: who waits then leaves with a NULL EVD.
    bereavements: u64,
    /// The adapter closes: everyone leaves with a NULL EVD.
    dead: bool,
    /// Readable while the next dat_cno_trigger has something to tell.
    beacon: Option<Beacon>,
}

/// A thread that waits, or is about to.
pub struct Waiter<'a, T: Transport> {
    cno: &'a Cno<T>,
    wake: &'a Wake,
    bereavements: u64,
}

// SAFETY: the pointers are only used under the lock, while the waiters they point to are listed.
unsafe impl Send for State {}

impl<T: Transport> Object for Cno<T> {
    const KIND: DAT_HANDLE_TYPE = DAT_HANDLE_TYPE_CNO;
    const INVALID: DAT_RETURN = DAT_INVALID_HANDLE_CNO;
}

/// dat_cno_create.
///
/// # Safety
/// The agent's function may be called with its instance data and the handle of an EVD, in a thread of the
/// library, until the agent is replaced or the notification object is freed.
pub unsafe fn create<T: Transport>(
    ia: &Node<Ia<T>>,
    agent: DAT_OS_WAIT_PROXY_AGENT,
) -> Result<&'static Node<Cno<T>>> {
    let _control = ia.control();
    // SAFETY: the caller's promise.
    ia.add(|_| {
        Ok(Cno { ia: Ref::new(ia), state: Mutex::default(), agent: unsafe { Agent::new(agent) }? })
    })
}

/// dat_cno_fd_create (uDAPL 2.0): a notification object whose triggers can be waited for with poll(2) and the
/// like, on the file descriptor that is returned; it is the object's, and closed with it.
pub fn create_with_fd<T: Transport>(ia: &Node<Ia<T>>) -> Result<(&'static Node<Cno<T>>, DAT_FD)> {
    let no_fd = |_| Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
    let beacon = Beacon::new().map_err(no_fd)?;
    let fd = beacon.as_raw_fd();
    // SAFETY: there is no agent.
    let cno = unsafe { create(ia, DAT_OS_WAIT_PROXY_AGENT_NULL) }?;
    cno.state().beacon = Some(beacon);
    ia.transport.attend(true);
    Ok((cno, fd))
}

/// dat_cno_free: refused while an EVD refers to it or a thread waits on it, unless it may be this one, in a
/// signal handler: then that wait ends with `DAT_ABORT`. What is answered is to be dropped without any lock.
///
/// # Safety
/// Nobody uses a reference to it any more, if this succeeds.
#[must_use = "its drop waits for the agent, which may want any lock"]
pub unsafe fn free<T: Transport>(cno: &Node<Cno<T>>) -> Result<Option<Box<Node<Cno<T>>>>> {
    let (ia, handle) = (cno.ia.clone(), cno.handle());
    let control = ia.control_to_free::<Cno<T>>(handle)?;
    let nested = nesting::below() != Doing::Nothing;
    if cno.in_use() || (cno.has_waiters() && !nested) {
        return Err(Error::state(DAT_INVALID_STATE_CNO_IN_USE));
    }
    ia.delist(cno);
    // SAFETY: nobody depends on it, and those who wait on it are waited for.
    let Some(retired) = (unsafe { handle::retire(cno) }) else { return Ok(None) };
    drop(control);
    if !retired.has_waiters() {
        // SAFETY: as above.
        return Ok(Some(unsafe { retired.reclaim() }));
    }
    let later = move || {
        retired.abandon();
        retired.await_desertion();
        // SAFETY: as above.
        drop(unsafe { retired.reclaim() });
    };
    ia.free_later(later).map(|()| None)
}

impl<T: Transport> Drop for Cno<T> {
    fn drop(&mut self) {
        if self.fd().is_some() {
            self.ia.transport.attend(false);
        }
    }
}

impl<T: Transport> Cno<T> {
    /// The file descriptor of its triggers, if it was made with one.
    pub fn fd(&self) -> Option<DAT_FD> {
        self.state().beacon.as_ref().map(|beacon| beacon.as_raw_fd())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more EVD will trigger it: makes room for that, since an event that comes must not need memory. The
    /// control lock is held.
    pub(crate) fn admit(cno: &Node<Self>) -> Result<()> {
        cno.state().triggered.try_reserve(cno.users() as usize + 1).map_err(no_memory)
    }

    /// An event arrived on an enabled EVD nobody waits on. Called inside upcalls.
    pub(crate) fn trigger(&self, evd: usize) {
        self.remind(evd);
        self.agent.call(evd);
    }

    /// Triggers without calling the agent, which may be what takes the events just now.
    pub(crate) fn remind(&self, evd: usize) {
        let interrupt = {
            let mut state = self.state();
            if !state.triggered.contains(&evd) {
                state.triggered.push_back(evd);
                state.show();
            }
            state.wake_one()
        };
        if interrupt {
            self.ia.transport.interrupt();
        }
    }

    /// An EVD was found empty: its trigger, if nobody has consumed it, means nothing any more.
    pub(crate) fn settle(&self, evd: usize) {
        let mut state = self.state();
        state.triggered.retain(|triggered| *triggered != evd);
        state.show();
    }

    /// An EVD is being freed.
    pub(crate) fn forget(&self, evd: usize) {
        self.settle(evd);
        self.agent.forget(evd);
    }

    /// dat_cno_wait: the EVD that triggered. A time-out is `DAT_QUEUE_EMPTY` (uDAPL 1.2, dat_cno_wait).
    pub fn wait(&self, timeout: DAT_TIMEOUT) -> Result<DAT_EVD_HANDLE> {
        let wake = Wake::new();
        self.attend(&wake)?.wait(timeout)
    }

    /// Makes this thread one of those who wait, on `wake`.
    pub fn attend<'a>(&'a self, wake: &'a Wake) -> Result<Waiter<'a, T>> {
        let mut state = self.state();
        state.waiters.try_reserve(1).map_err(no_memory)?;
        state.waiters.push(wake);
        Ok(Waiter { cno: self, wake, bereavements: state.bereavements })
    }

    fn wait_listed(
        &self,
        wake: &Wake,
        bereavements: u64,
        deadline: Option<Instant>,
        poll: bool,
    ) -> Result<DAT_EVD_HANDLE> {
        self.ia.transport.progress();
        let mut slept = if poll { Slept::TimedOut } else { Slept::Woken };
        loop {
            wake.reset();
            // First: an EVD that triggers while everything is flushed is about to be freed.
            if self.ia.is_closing() {
                return Err(Error::of(DAT_ABORT));
            }
            let dead = {
                let mut state = self.state();
                if let Some(evd) = state.triggered.pop_front() {
                    state.show();
                    return Ok(evd as *mut c_void);
                }
                state.dead || state.bereavements != bereavements
            };
            if dead {
                return Err(Error::of(DAT_ABORT));
            }
            match slept {
                Slept::TimedOut => return Err(Error::of(DAT_QUEUE_EMPTY)),
                Slept::Interrupted => return Err(Error::of(DAT_INTERRUPTED_CALL)),
                Slept::Woken => slept = self.ia.transport.sleep(wake, deadline),
            }
        }
    }

    /// dat_cno_modify_agent.
    ///
    /// # Safety
    /// As [`create`].
    pub unsafe fn set_agent(&self, agent: DAT_OS_WAIT_PROXY_AGENT) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.agent.set(agent) }
    }

    /// The agent, as dat_cno_query reports it.
    pub fn agent(&self) -> DAT_OS_WAIT_PROXY_AGENT {
        self.agent.get()
    }

    /// Every waiter leaves; the agent is told with a NULL EVD (dat_ia_close).
    pub fn abandon(&self) {
        let interrupt = {
            let mut state = self.state();
            state.dead = true;
            state.show();
            state.wake_all()
        };
        if interrupt {
            self.ia.transport.interrupt();
        }
        self.agent.call_off();
    }

    /// The last of its EVDs was freed: who waits leaves, and the agent is told, with a NULL EVD (uDAPL 1.2,
    /// dat_cno_wait). EVDs may be given to it again.
    pub(crate) fn bereave(&self) {
        let interrupt = {
            let mut state = self.state();
            state.bereavements += 1;
            state.wake_all()
        };
        if interrupt {
            self.ia.transport.interrupt();
        }
        self.agent.call(0);
    }

    /// Whether threads wait on it.
    pub fn has_waiters(&self) -> bool {
        !self.state().waiters.is_empty()
    }

    /// Waits until nobody waits on it.
    pub fn await_desertion(&self) {
        while self.has_waiters() {
            std::thread::yield_now();
        }
    }
}

impl<T: Transport> Waiter<'_, T> {
    /// See [`Cno::wait`].
    pub fn wait(self, timeout: DAT_TIMEOUT) -> Result<DAT_EVD_HANDLE> {
        let deadline = match timeout {
            DAT_TIMEOUT_INFINITE => None,
            us => Instant::now().checked_add(Duration::from_micros(us.into())),
        };
        self.cno.wait_listed(self.wake, self.bereavements, deadline, timeout == 0)
    }
}

impl<T: Transport> Drop for Waiter<'_, T> {
    fn drop(&mut self) {
        let mut state = self.cno.state();
        state.waiters.retain(|w| !std::ptr::eq(*w, self.wake));
        // A trigger meant for this thread that it did not take belongs to the next. Told before the lock goes: then
        // dat_cno_free may come.
        if !state.triggered.is_empty() && state.wake_one() {
            self.cno.ia.transport.interrupt();
        }
        drop(state);
    }
}

impl State {
    /// Lights the beacon while there is something to tell.
    fn show(&mut self) {
        let lit = self.dead || !self.triggered.is_empty();
        if let Some(beacon) = &mut self.beacon {
            beacon.show(lit);
        }
    }

    /// Wakes everyone. True: one sits in the transport's poller.
    fn wake_all(&self) -> bool {
        let mut interrupt = false;
        for waiter in &self.waiters {
            // SAFETY: listed waiters are alive.
            interrupt |= unsafe { (**waiter).signal() };
        }
        interrupt
    }

    /// Wakes the oldest waiter that is not awake yet. True: it sits in the transport's poller.
    fn wake_one(&self) -> bool {
        // SAFETY: listed waiters are alive.
        let sleeper = self.waiters.iter().map(|w| unsafe { &**w }).find(|w| !w.is_signalled());
        sleeper.is_some_and(Wake::signal)
    }
}
