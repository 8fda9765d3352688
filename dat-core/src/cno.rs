//! Consumer notification objects: one thing to wait on for many event dispatchers.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dat_sys::*;

use crate::agent::Agent;
use crate::error::{Error, Result};
use crate::handle::{self, Node, Object, Ref};
use crate::ia::Ia;
use crate::provider::Transport;
use crate::wake::{Slept, Wake};

/// A consumer notification object.
pub struct Cno<T: Transport> {
    /// Its adapter.
    pub ia: Ref<Ia<T>>,
    state: Mutex<State>,
    agent: Agent,
}

struct State {
    /// EVDs that have triggered it and whose trigger no waiter has consumed, oldest first, each once: a consumer that
    /// serves one of them does not miss the others. The handles are hints and may be stale.
    triggered: VecDeque<usize>,
    /// Threads in dat_cno_wait, oldest first. The pointers are to their stacks; they leave before they return.
    waiters: Vec<*const Wake>,
    /// The last EVD went or the adapter closes: everyone leaves with a NULL EVD.
    dead: bool,
}

// SAFETY: the pointers are only used under the lock, while the waiters they point to are listed.
unsafe impl Send for State {}

impl<T: Transport> Object for Cno<T> {
    const KIND: DAT_HANDLE_TYPE = DAT_HANDLE_TYPE_CNO;
    const INVALID: DAT_RETURN = DAT_INVALID_HANDLE_CNO;
}

/// dat_cno_create.
pub fn create<T: Transport>(
    ia: &Node<Ia<T>>,
    agent: DAT_OS_WAIT_PROXY_AGENT,
) -> Result<&'static Node<Cno<T>>> {
    let _control = ia.control();
    let state = State { triggered: VecDeque::new(), waiters: Vec::new(), dead: false };
    ia.add(|_| Ok(Cno { ia: Ref::new(ia), state: Mutex::new(state), agent: Agent::new(agent)? }))
}

/// dat_cno_free: refused while an EVD refers to it or a thread waits on it.
pub fn free<T: Transport>(cno: &Node<Cno<T>>) -> Result<()> {
    let ia = cno.ia.clone();
    let control = ia.control();
    if cno.in_use() || !cno.state().waiters.is_empty() {
        return Err(Error::state(DAT_INVALID_STATE_CNO_IN_USE));
    }
    ia.delist(cno);
    // SAFETY: nobody depends on it or waits on it.
    let gone = unsafe { handle::remove(cno) };
    // The agent may be at work, and want the lock for it; the drop waits for it.
    drop(control);
    drop(gone);
    Ok(())
}

impl<T: Transport> Cno<T> {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
            }
            state.wake_one()
        };
        if interrupt {
            self.ia.transport.interrupt();
        }
    }

    /// An EVD was found empty: its trigger, if nobody has consumed it, means nothing any more.
    pub(crate) fn settle(&self, evd: usize) {
        self.state().triggered.retain(|triggered| *triggered != evd);
    }

    /// An EVD is being freed.
    pub(crate) fn forget(&self, evd: usize) {
        self.settle(evd);
        self.agent.forget(evd);
    }

    /// dat_cno_wait: the EVD that triggered. A time-out is `DAT_QUEUE_EMPTY` (uDAPL 1.2, dat_cno_wait).
    pub fn wait(&self, timeout: DAT_TIMEOUT) -> Result<DAT_EVD_HANDLE> {
        let deadline = match timeout {
            DAT_TIMEOUT_INFINITE => None,
            us => Instant::now().checked_add(Duration::from_micros(us.into())),
        };
        let wake = Wake::new();
        self.state().waiters.push(&wake);
        let answer = self.wait_listed(&wake, deadline, timeout == 0);
        let pass_on = {
            let mut state = self.state();
            state.waiters.retain(|w| !std::ptr::eq(*w, &wake));
            // A trigger meant for this thread that it did not take belongs to the next.
            !state.triggered.is_empty() && state.wake_one()
        };
        if pass_on {
            self.ia.transport.interrupt();
        }
        answer
    }

    fn wait_listed(&self, wake: &Wake, deadline: Option<Instant>, poll: bool) -> Result<DAT_EVD_HANDLE> {
        self.ia.transport.progress();
        let mut slept = if poll { Slept::TimedOut } else { Slept::Woken };
        loop {
            wake.reset();
            let dead = {
                let mut state = self.state();
                if let Some(evd) = state.triggered.pop_front() {
                    return Ok(evd as *mut c_void);
                }
                state.dead
            };
            if dead || self.ia.is_closing() {
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
    pub fn set_agent(&self, agent: DAT_OS_WAIT_PROXY_AGENT) -> Result<()> {
        self.agent.set(agent)
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
            let mut interrupt = false;
            for waiter in &state.waiters {
                // SAFETY: listed waiters are alive.
                interrupt |= unsafe { (**waiter).signal() };
            }
            interrupt
        };
        if interrupt {
            self.ia.transport.interrupt();
        }
        self.agent.call_off();
    }

    /// Whether threads wait on it.
    pub fn has_waiters(&self) -> bool {
        !self.state().waiters.is_empty()
    }
}

impl State {
    /// Wakes the oldest waiter that is not awake yet. True: it sits in the transport's poller.
    fn wake_one(&self) -> bool {
        // SAFETY: listed waiters are alive.
        let sleeper = self.waiters.iter().map(|w| unsafe { &**w }).find(|w| !w.is_signalled());
        sleeper.is_some_and(Wake::signal)
    }
}
