//! The proxy agent of a CNO: a function of the consumer that the library calls at each trigger.
//!
//! A separate thread calls the agent. The thread that triggers the CNO must not call it, because
//! that thread may hold locks, possibly locks of the transport, and the agent may call any function
//! of DAT.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use dat_sys::*;
use telemetry::threads;
use waiting::cancel;

use crate::error::{Error, Result};

/// The proxy agent of a CNO, or no agent. If a call of the agent is in progress, dropping this
/// value waits until the call has returned, unless that call itself drops the value.
pub(crate) struct Agent {
    shared: Arc<AgentShared>,
    /// The thread that calls the agent. It starts when the first agent is set.
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct AgentShared {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    agent: DAT_OS_WAIT_PROXY_AGENT,
    /// The handles of the EVDs for which the agent is to be called, oldest first, each at most
    /// once. A 0 stands for a call with a NULL EVD. The handles are hints and may be stale.
    calls: VecDeque<usize>,
    /// Set when the CNO shuts down or is dropped. After that, no more calls are added.
    ended: bool,
}

// SAFETY: the consumer's pointer is passed to its function and never followed here.
unsafe impl Send for State {}

impl Agent {
    /// Creates the value and sets the agent. Fails with `DAT_INSUFFICIENT_RESOURCES` if the thread
    /// that calls the agent cannot be started.
    ///
    /// # Safety
    /// The requirements of [`cno::create`](crate::cno::create) apply.
    pub(crate) unsafe fn new(agent: DAT_OS_WAIT_PROXY_AGENT) -> Result<Self> {
        let none =
            State { agent: DAT_OS_WAIT_PROXY_AGENT_NULL, calls: VecDeque::new(), ended: false };
        let shared = Arc::new(AgentShared { state: Mutex::new(none), changed: Condvar::new() });
        let this = Agent { shared, thread: Mutex::new(None) };
        // SAFETY: the caller guarantees that threads of the library may call the agent.
        unsafe { this.set(agent) }?;
        Ok(this)
    }

    /// Replaces the agent. Calls that are still queued go to the new agent. A call of the former
    /// agent that is in progress continues.
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

    /// Queues a call of the agent for an EVD. May be called in upcalls.
    pub(crate) fn call(&self, evd: usize) {
        let mut state = self.shared.state();
        if state.agent.proxy_agent_func.is_some() && !state.ended && !state.calls.contains(&evd) {
            state.calls.push_back(evd);
            self.shared.changed.notify_one();
        }
    }

    /// Queues the last call of the agent, with a NULL EVD, and drops all other queued calls
    /// (dat_ia_close).
    pub(crate) fn end(&self) {
        let mut state = self.shared.state();
        state.calls = VecDeque::from([0]);
        state.ended = true;
        self.shared.changed.notify_one();
    }

    /// Removes the queued calls for an EVD that is being freed.
    pub(crate) fn remove_evd(&self, evd: usize) {
        self.shared.state().calls.retain(|call| *call != evd);
    }
}

impl AgentShared {
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
                unsafe { cancel::call_back(function, instance_data, evd as *mut c_void) };
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
            debug_assert!(ended.is_ok(), "the thread that calls the agent must not panic");
        }
    }
}
