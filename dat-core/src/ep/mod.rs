//! Endpoints.

mod bind;
mod connect;
mod create;
mod extended;
mod flow;
mod link;
mod modify;
mod network;
mod params;
pub mod post;
mod requests;
pub mod state;
mod watermark;

use std::ffi::c_void;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dat_sys::*;

pub use self::connect::Model;
pub use self::create::{Handles, create, create_tentative, free};
pub(crate) use self::create::{retire_tentative, retire_untold};
pub use self::extended::Atomic;
pub use self::flow::{Flow, Orphans};
use self::link::Link;
use self::modify::EarlyRecv;
pub use self::modify::Named;
use self::network::Shared;
use self::state::{Effect, Event, State};
pub use self::watermark::{Exceeded, Holding};
use crate::counters::EpCounters;
use crate::error::{Error, Result};
use crate::evd::{Evd, Feed};
use crate::handle::{Node, Object, Ref};
use crate::ia::Ia;
use crate::mem::Pz;
use crate::provider::{Allocated, Close, Queue, Transport};
use crate::srq::Srq;

/// An endpoint.
pub struct Ep<T: Transport> {
    /// Its adapter.
    pub ia: Ref<Ia<T>>,
    /// What is connected; NULL while the endpoint lacks a protection zone.
    link: AtomicPtr<Link<T>>,
    setup: Mutex<Setup<T>>,
    shared: Arc<Shared<T>>,
    /// What it has done.
    pub counters: EpCounters,
}

/// What the consumer configured.
struct Setup<T: Transport> {
    pz: Option<Ref<Pz<T>>>,
    recv_evd: Option<Feed<T>>,
    request_evd: Option<Feed<T>>,
    srq: Option<Ref<Srq<T>>>,
    attr: DAT_EP_ATTR,
    /// The watermarks, and what the queue pair of now holds.
    holding: Arc<Holding>,
    /// Where dat_ep_connect went: dat_ep_dup_connect goes there too.
    peer: Option<(SocketAddr, DAT_CONN_QUAL)>,
    /// Receives posted while dat_ep_modify may still replace the queue pair.
    early: Vec<EarlyRecv>,
}

// SAFETY: the attribute pointers in `attr` are the consumer's; they are only handed back.
unsafe impl<T: Transport> Send for Setup<T> {}

impl<T: Transport> Object for Ep<T> {
    const KIND: DAT_HANDLE_TYPE = DAT_HANDLE_TYPE_EP;
    const INVALID: DAT_RETURN = DAT_INVALID_HANDLE_EP;
}

impl<T: Transport> Ep<T> {
    #[inline]
    fn link_ptr(&self) -> *const Link<T> {
        self.link.load(Ordering::Acquire)
    }

    fn setup(&self) -> MutexGuard<'_, Setup<T>> {
        self.setup.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state now.
    pub fn state(&self) -> State {
        self.shared.state.get()
    }

    /// Applies what a service point or connection request does to the endpoint.
    pub(crate) fn apply(&self, event: Event) -> Result<()> {
        self.shared.apply(event).map(drop)
    }

    /// The queue pair of now.
    fn linked<'a>(&'a self, _: &'a Setup<T>) -> Option<&'a Link<T>> {
        // SAFETY: whoever replaces it changes the setup, which is borrowed; who frees the endpoint has
        // promised that there are no references to it.
        unsafe { self.link_ptr().as_ref() }
    }

    /// dat_ep_get_status: the state, and whether each queue is idle.
    ///
    /// # Safety
    /// No other thread posts requests to the endpoint meanwhile (thread-safe tables see to it).
    pub unsafe fn status(&self) -> (DAT_EP_STATE, bool, bool) {
        let setup = self.setup();
        let link = self.linked(&setup);
        let receives = match link {
            Some(link) => link.flow.receives_idle::<T>(&link.qp),
            None => setup.early.is_empty(),
        };
        // SAFETY: as the caller promised.
        let carried_out = |link: &Link<T>| unsafe { link.qp.carried_out() };
        let requests = link.is_none_or(|link| link.flow.requests.is_idle(|| carried_out(link)));
        (self.state() as DAT_EP_STATE, receives, requests)
    }

    /// dat_ep_recv_query: the buffers allocated to the endpoint and not completed, and their span.
    pub fn allocated(&self) -> Allocated {
        let setup = self.setup();
        match self.linked(&setup) {
            Some(link) => link.qp.allocated(),
            // It has lost its protection zone (dat_ep_modify): its receives wait for the next one.
            None => Allocated { buffers: setup.early.len(), span: setup.early.len() },
        }
    }

    /// dat_ep_set_watermark; legal in every state. What is exceeded already is for [`Ep::exceeds`].
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
        let Some(link) = self.linked(&setup) else { return Ok(Exceeded::default()) };
        // The transport looks under its own lock: a message either took its buffer before, and is counted below, or
        // finds the new watermarks.
        link.qp.allocated();
        Ok(setup.holding.test())
    }

    /// The other half of dat_ep_set_watermark: reports the soft watermark, breaks the connection for the hard one. Apart
    /// because upcalls follow, in which the consumer's CNO agent may use the endpoint.
    pub fn exceeds(&self, exceeded: Exceeded) {
        if exceeded.soft {
            self.shared.exceeds_soft_watermark();
        }
        if exceeded.hard && matches!(self.state(), State::Connected | State::DisconnectPending) {
            self.shared.break_off();
            if let Some(link) = self.linked(&self.setup()) {
                link.qp.disconnect(Close::Abrupt);
            }
        }
    }

    /// dat_ep_query. Addresses point into the endpoint.
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

    /// dat_ep_reset: ready for the next connection.
    pub fn reset(&self) -> Result<()> {
        let mut control = self.ia.control();
        match effect_of_reset(self.state())? {
            Effect::To(_) => {}
            _ => return Ok(()),
        }
        let mut setup = self.setup();
        let link = self.new_link(&mut setup)?;
        self.relink(&mut control, link, setup.evds());
        setup.early.clear();
        self.shared.renew();
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
        [&self.recv_evd, &self.request_evd].map(|feed| feed.as_ref().map(Feed::evd))
    }
}
