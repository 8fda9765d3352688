//! The proxy agent of a CNO: a function of the consumer that is called at each trigger.
//!
//! It is called in a thread of its own. A thread that triggers holds locks, maybe those of the
//! transport, so it must not call a function that may in turn call any function of DAT.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use dat_sys::*;
use telemetry::threads;

use crate::error::{Error, Result};

/// The proxy agent of a CNO, or an empty place for one. Dropping the value waits for a call of the
/// agent that is in progress, unless the drop happens in that call.
pub(crate) struct Agent {
    shared: Arc<Shared>,
    /// The thread that calls the agent. It starts when the first agent is set.
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    agent: DAT_OS_WAIT_PROXY_AGENT,
    /// The EVDs to call the agent for, oldest first, each once. NULL stands for the end. The
    /// handles are hints and may be stale.
    calls: VecDeque<usize>,
    /// Whether the calls have ended: no more calls are added.
    ended: bool,
}

// SAFETY: the consumer's pointer is passed to its function and never followed here.
unsafe impl Send for State {}

impl Agent {
    /// Creates the place for an agent and sets the agent. `DAT_INSUFFICIENT_RESOURCES`: the thread
    /// that calls the agent cannot be started.
    ///
    /// # Safety
    /// The requirements of [`cno::create`](crate::cno::create) apply.
    pub(crate) unsafe fn new(agent: DAT_OS_WAIT_PROXY_AGENT) -> Result<Self> {
        let none =
            State { agent: DAT_OS_WAIT_PROXY_AGENT_NULL, calls: VecDeque::new(), ended: false };
        let shared = Arc::new(Shared { state: Mutex::new(none), changed: Condvar::new() });
        let this = Agent { shared, thread: Mutex::new(None) };
        // SAFETY: the caller guarantees that threads of the library may call the agent.
        unsafe { this.set(agent) }?;
        Ok(this)
    }

    /// Replaces the agent. Calls that the former agent has not received yet go to the new agent. A
    /// call in progress continues.
    ///
    /// # Safety
    /// The requirements of [`Agent::new`] apply.
    pub(crate) unsafe fn set(&self, agent: DAT_OS_WAIT_PROXY_AGENT) -> Result<()> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if agent.proxy_agent_func.is_some() && thread.is_none() {
            let shared = Arc::clone(&self.shared);
            let started = threads::spawn("dat-agent", move || shared.serve());
            let no_thread = |_| Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
            *thread = Some(started.map_err(no_thread)?);
        }
        self.shared.state().agent = agent;
        Ok(())
    }

    pub(crate) fn get(&self) -> DAT_OS_WAIT_PROXY_AGENT {
        self.shared.state().agent
    }

    /// Calls the agent for an EVD. May be called in upcalls.
    pub(crate) fn call(&self, evd: usize) {
        let mut state = self.shared.state();
        if state.agent.proxy_agent_func.is_some() && !state.ended && !state.calls.contains(&evd) {
            state.calls.push_back(evd);
            self.shared.changed.notify_one();
        }
    }

    /// Ends the calls of the agent. The last call has a NULL EVD (dat_ia_close).
    pub(crate) fn end(&self) {
        let mut state = self.shared.state();
        state.calls = VecDeque::from([0]);
        state.ended = true;
        self.shared.changed.notify_one();
    }

    /// Removes the calls for an EVD that is being freed.
    pub(crate) fn remove_evd(&self, evd: usize) {
        self.shared.state().calls.retain(|call| *call != evd);
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The body of the thread that calls the agent.
    fn serve(&self) {
        let mut state = self.state();
        loop {
            let Some(evd) = state.calls.pop_front() else {
                if state.ended {
                    return;
                }
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let DAT_OS_WAIT_PROXY_AGENT { instance_data, proxy_agent_func } = state.agent;
            drop(state);
            if let Some(function) = proxy_agent_func {
                // SAFETY: the caller of `set` guarantees that the agent's function may be called
                // with its instance data and the handle of an EVD.
                unsafe { function(instance_data, evd as *mut c_void) };
            }
            state = self.state();
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let from_inside =
            thread.as_ref().is_some_and(|thread| thread.thread().id() == thread::current().id());
        {
            let mut state = self.shared.state();
            if !state.ended || from_inside {
                state.calls.clear();
            }
            state.ended = true;
        }
        self.shared.changed.notify_one();
        if let Some(thread) = thread.filter(|_| !from_inside) {
            let ended = thread.join();
            debug_assert!(ended.is_ok(), "a panic does not leave a C function");
        }
    }
}
