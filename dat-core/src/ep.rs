//! Endpoints (EPs).

mod bind;
mod bound_qp;
mod connect;
mod create;
pub mod datagram;
mod extended;
mod flow;
mod modify;
mod network;
mod params;
pub mod post;
mod request_cells;
pub mod state;
mod watermark;

use std::ffi::c_void;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dat_sys::*;

use self::bound_qp::BoundQp;
pub use self::connect::DupSource;
pub use self::create::{Handles, create, create_tentative, free};
pub(crate) use self::create::{retire_tentative, retire_unreported};
pub use self::extended::Atomic;
pub use self::flow::{Flow, FreedFlows};
use self::modify::MovableRecv;
pub use self::modify::PinnedParams;
use self::network::EpShared;
use self::state::{Effect, Event, State};
pub use self::watermark::{Exceeded, HeldBuffers};
use crate::cause::LastCause;
use crate::counters::EpCounters;
use crate::error::{Error, Result};
use crate::evd::{CompletionStream, Evd};
use crate::handle::{Node, Object, Ref};
use crate::ia::Ia;
use crate::mem::Pz;
use crate::provider::{Allocated, Close, Queue, Transport};
use crate::srq::Srq;

/// An endpoint.
pub struct Ep<T: Transport> {
    /// The adapter of the endpoint.
    pub ia: Ref<Ia<T>>,
    /// The queue pair, or NULL while the endpoint has no protection zone.
    bound_qp: AtomicPtr<BoundQp<T>>,
    setup: Mutex<Setup<T>>,
    shared: Arc<EpShared<T>>,
    /// Counters of the endpoint.
    pub counters: EpCounters,
}

/// The objects and attributes with which the consumer configured the endpoint.
struct Setup<T: Transport> {
    pz: Option<Ref<Pz<T>>>,
    recv_evd: Option<CompletionStream<T>>,
    request_evd: Option<CompletionStream<T>>,
    srq: Option<Ref<Srq<T>>>,
    attr: DAT_EP_ATTR,
    /// The completion flags that the consumer has not set. They depend on the EVDs.
    unset_flags: DAT_EP_PARAM_MASK,
    /// The watermarks, and the number of buffers that the current queue pair holds.
    holding: Arc<HeldBuffers>,
    /// The target of the last dat_ep_connect, which dat_ep_dup_connect uses.
    peer: Option<(SocketAddr, DAT_CONN_QUAL)>,
    /// The receives that were posted while dat_ep_modify may still replace the queue pair. They are
    /// posted again to the new queue pair.
    movable_recvs: Vec<MovableRecv>,
}

// SAFETY: the pointers in `attr` belong to the consumer and are only returned to it.
unsafe impl<T: Transport> Send for Setup<T> {}

impl<T: Transport> Object for Ep<T> {
    const KIND: DAT_HANDLE_TYPE = DAT_HANDLE_TYPE_EP;
    const INVALID: DAT_RETURN = DAT_INVALID_HANDLE_EP;
}

impl<T: Transport> Ep<T> {
    #[inline]
    fn bound_qp_ptr(&self) -> *const BoundQp<T> {
        self.bound_qp.load(Ordering::Acquire)
    }

    fn setup(&self) -> MutexGuard<'_, Setup<T>> {
        self.setup.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The current state.
    pub fn state(&self) -> State {
        self.shared.state.get()
    }

    /// Applies an event that a service point or a connection request causes.
    pub(crate) fn apply(&self, event: Event) -> Result<()> {
        self.shared.apply(event).map(drop)
    }

    /// The current queue pair.
    fn current_qp<'a>(&'a self, _: &'a Setup<T>) -> Option<&'a BoundQp<T>> {
        // SAFETY: a call that replaces the queue pair changes the setup, which is borrowed here. A
        // call that frees the endpoint requires that nobody has a reference to it.
        unsafe { self.bound_qp_ptr().as_ref() }
    }

    /// Why the connection of the endpoint ended, its operation failed or its message waits.
    pub fn last_cause(&self) -> &LastCause {
        &self.shared.last_cause
    }

    /// Implements dat_ep_get_status. Returns the state, whether the receive queue is idle, and
    /// whether the request queue is idle.
    ///
    /// # Safety
    /// During this call no other thread posts requests to the endpoint. The functions of a
    /// thread-safe adapter ensure that with a lock.
    pub unsafe fn status(&self) -> (DAT_EP_STATE, bool, bool) {
        let setup = self.setup();
        let bound = self.current_qp(&setup);
        let receives = match bound {
            Some(bound) => bound.flow.receives_idle::<T>(&bound.qp),
            None => setup.movable_recvs.is_empty(),
        };
        // SAFETY: the caller guarantees that no other thread posts requests during this call.
        let carried_out = |bound: &BoundQp<T>| unsafe { bound.qp.carried_out() };
        let requests = bound.is_none_or(|bound| bound.flow.requests.is_idle(|| carried_out(bound)));
        (self.state() as DAT_EP_STATE, receives, requests)
    }

    /// Implements dat_ep_recv_query. Returns the number of buffers that are allocated to the
    /// endpoint and have not completed, and their span. Both are DAT_VALUE_UNKNOWN if the provider
    /// attribute ep_recv_info_supported does not list them (uDAPL 1.2, dat_ep_recv_query, usage).
    pub fn allocated(&self) -> [DAT_COUNT; 2] {
        if !self.ia.transport.attrs().knows_allocated {
            return [DAT_VALUE_UNKNOWN; 2];
        }
        let setup = self.setup();
        let allocated = match self.current_qp(&setup) {
            Some(bound) => bound.qp.allocated(),
            // The endpoint has lost its protection zone (dat_ep_modify). Its receives wait until it
            // gets a new zone.
            None => {
                let buffers = setup.movable_recvs.len();
                Some(Allocated { buffers, span: buffers })
            }
        };
        match allocated {
            Some(Allocated { buffers, span }) => {
                [buffers, span].map(|count| DAT_COUNT::try_from(count).unwrap_or(DAT_COUNT::MAX))
            }
            None => [DAT_VALUE_UNKNOWN; 2],
        }
    }

    /// The first half of dat_ep_set_watermark, which is legal in every state. The caller passes the
    /// result to [`Ep::apply_exceeded`], which is the second half.
    pub fn set_watermarks(&self, soft: DAT_COUNT, hard: DAT_COUNT) -> Result<Exceeded> {
        for (mark, arg) in [(soft, 2), (hard, 3)] {
            if !watermark::is_valid(mark) {
                return Err(Error::arg(arg));
            }
        }
        let mut setup = self.setup();
        setup.attr.srq_soft_hw = soft;
        setup.holding.set_soft(soft);
        setup.holding.set_hard(hard);
        let Some(bound) = self.current_qp(&setup) else { return Ok(Exceeded::default()) };
        // This call takes the lock under which the transport counts buffers. So each message either
        // has already taken its buffer, which `check` then counts, or sees the new watermarks.
        bound.qp.allocated();
        Ok(setup.holding.check())
    }

    /// The second half of dat_ep_set_watermark: reports an exceeded soft watermark, and breaks the
    /// connection if the hard watermark is exceeded. This half is separate because it causes
    /// upcalls, in which the consumer's CNO agent may use the endpoint.
    pub fn apply_exceeded(&self, exceeded: Exceeded) {
        if exceeded.soft {
            self.shared.exceeds_soft_watermark();
        }
        if exceeded.hard && matches!(self.state(), State::Connected | State::DisconnectPending) {
            self.shared.mark_breaking();
            if let Some(bound) = self.current_qp(&self.setup()) {
                bound.qp.disconnect(Close::Abrupt);
            }
        }
    }

    /// Implements dat_ep_query. The addresses in the result point into the endpoint.
    pub fn query(&self, param: &mut DAT_EP_PARAM) {
        fn raw<O: Object>(object: &Option<impl Deref<Target = Node<O>>>) -> *mut c_void {
            object.as_ref().map_or(std::ptr::null_mut(), |o| o.handle())
        }
        let setup = self.setup();
        let conn = self.shared.conn();
        *param = DAT_EP_PARAM {
            ia_handle: self.ia.consumer_handle(),
            ep_state: self.state() as DAT_EP_STATE,
            local_ia_address_ptr: conn.local.sockaddr.as_ptr(),
            local_port_qual: conn.local.port,
            remote_ia_address_ptr: conn.remote.sockaddr.as_ptr(),
            remote_port_qual: conn.remote.port,
            pz_handle: raw(&setup.pz),
            recv_evd_handle: raw(&setup.recv_evd),
            request_evd_handle: raw(&setup.request_evd),
            connect_evd_handle: raw(&conn.evd),
            srq_handle: raw(&setup.srq),
            ep_attr: setup.attr,
            ..DAT_EP_PARAM::zeroed()
        };
    }

    /// Implements dat_ep_reset: prepares the endpoint for the next connection.
    pub fn reset(&self) -> Result<()> {
        let mut control = self.ia.control();
        match effect_of_reset(self.state())? {
            Effect::To(_) => {}
            _ => return Ok(()),
        }
        let mut setup = self.setup();
        let bound = self.new_bound_qp(&mut setup)?;
        self.replace_bound_qp(&mut control, bound, setup.evds());
        self.forget_attempts();
        setup.movable_recvs.clear();
        self.shared.prepare_reconnect();
        self.shared.apply(Event::Reset).map(drop)
    }
}

fn effect_of_reset(state: State) -> Result<Effect> {
    match state::effect(state, Event::Reset) {
        Effect::Refuse => Err(state.refusal()),
        effect => Ok(effect),
    }
}

/// The EVDs of receives and of requests.
type Evds<T> = [Option<Ref<Evd<T>>>; 2];

impl<T: Transport> Setup<T> {
    fn evds(&self) -> Evds<T> {
        [&self.recv_evd, &self.request_evd].map(|stream| stream.as_ref().map(CompletionStream::evd))
    }
}
