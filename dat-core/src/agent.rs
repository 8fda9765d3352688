//! The proxy agent of a notification object: a function of the consumer's that hears of each trigger.
//!
//! It is called in a thread of its own. Whoever triggers holds locks, maybe the transport's, and so must not run what may
//! call any function of DAT.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use dat_sys::*;

use crate::error::{Error, Result};
use crate::threads;

/// An agent, or the place for one. Its drop waits for a call that is under way, unless it is made in that call.
pub(crate) struct Agent {
    shared: Arc<Shared>,
    /// Started with the first agent.
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    state: Mutex<State>,
    news: Condvar,
}

struct State {
    agent: DAT_OS_WAIT_PROXY_AGENT,
    /// EVDs to tell it of, oldest first, each once; NULL: the end. The handles are hints and may be stale.
    calls: VecDeque<usize>,
    /// It shall hear of nothing more.
    over: bool,
}

// SAFETY: the consumer's pointer is handed to its function, never followed.
unsafe impl Send for State {}

impl Agent {
    /// `DAT_INSUFFICIENT_RESOURCES`: no thread for it.
    ///
    /// # Safety
    /// As of [`cno::create`](crate::cno::create).
    pub(crate) unsafe fn new(agent: DAT_OS_WAIT_PROXY_AGENT) -> Result<Self> {
        let none =
            State { agent: DAT_OS_WAIT_PROXY_AGENT_NULL, calls: VecDeque::new(), over: false };
        let shared = Arc::new(Shared { state: Mutex::new(none), news: Condvar::new() });
        let this = Agent { shared, thread: Mutex::new(None) };
        // SAFETY: the caller's promise.
        unsafe { this.set(agent) }?;
        Ok(this)
    }

    /// Replaces it. What the one before was not told yet, this one is; a call that is under way goes on.
    ///
    /// # Safety
    /// As [`Agent::new`].
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

    /// It shall hear of an EVD. Allowed inside upcalls.
    pub(crate) fn call(&self, evd: usize) {
        let mut state = self.shared.state();
        if state.agent.proxy_agent_func.is_some() && !state.over && !state.calls.contains(&evd) {
            state.calls.push_back(evd);
            self.shared.news.notify_one();
        }
    }

    /// It shall hear of nothing more but the end, with a NULL EVD (dat_ia_close).
    pub(crate) fn call_off(&self) {
        let mut state = self.shared.state();
        state.calls = VecDeque::from([0]);
        state.over = true;
        self.shared.news.notify_one();
    }

    /// An EVD is being freed.
    pub(crate) fn forget(&self, evd: usize) {
        self.shared.state().calls.retain(|call| *call != evd);
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread.
    fn serve(&self) {
        let mut state = self.state();
        loop {
            let Some(evd) = state.calls.pop_front() else {
                if state.over {
                    return;
                }
                state = self.news.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let DAT_OS_WAIT_PROXY_AGENT { instance_data, proxy_agent_func } = state.agent;
            drop(state);
            if let Some(function) = proxy_agent_func {
                // SAFETY: who set the agent has promised that it may be called so.
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
            if !state.over || from_inside {
                state.calls.clear();
            }
            state.over = true;
        }
        self.shared.news.notify_one();
        if let Some(thread) = thread.filter(|_| !from_inside) {
            let ended = thread.join();
            debug_assert!(ended.is_ok(), "a panic does not leave a C function");
        }
    }
}
