//! Endpoints come and go.

use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex};

use dat_sys::*;

use super::network::Shared;
use super::state::{Event, State};
use super::{Ep, Orphans, Setup, params};
use crate::counters::EpCounters;
use crate::error::{Error, Result};
use crate::evd::{Evd, Feed};
use crate::handle::{self, Node, Pin, Ref};
use crate::ia::Ia;
use crate::mem::Pz;
use crate::provider::{Close, Queue, Transport};
use crate::srq::Srq;

/// The objects an endpoint is made of; each may be NULL.
pub struct Handles<'a, T: Transport> {
    /// Protection zone.
    pub pz: Option<&'a Node<Pz<T>>>,
    /// Event dispatcher of receives.
    pub recv: Option<&'a Node<Evd<T>>>,
    /// Event dispatcher of requests.
    pub request: Option<&'a Node<Evd<T>>>,
    /// Event dispatcher of the connection.
    pub connect: Option<&'a Node<Evd<T>>>,
    /// Shared receive queue.
    pub srq: Option<&'a Node<Srq<T>>>,
}

/// dat_ep_create and dat_ep_create_with_srq.
pub fn create<T: Transport>(
    ia: &Node<Ia<T>>,
    handles: Handles<'_, T>,
    attr: Option<&DAT_EP_ATTR>,
) -> Result<&'static Node<Ep<T>>> {
    let limits = ia.transport.attrs();
    let attr_arg = if handles.srq.is_some() { 7 } else { 6 };
    let attr = match attr {
        Some(attr) => *attr,
        None if handles.srq.is_some() => return Err(Error::arg(attr_arg)),
        None => params::defaults(limits),
    };
    params::check(&attr, limits, handles.srq.is_some(), attr_arg)?;
    let attr = params::kept(&attr);
    handles.check(ia)?;
    if !may_draw(handles.pz, handles.srq) {
        return Err(Error::arg(6));
    }
    let _control = ia.control();
    let setup = Setup {
        pz: handles.pz.map(Ref::new),
        recv_evd: feed(handles.recv, params::recv_stream_flags(&attr))
            .ok_or(Error::arg(attr_arg))?,
        request_evd: feed(handles.request, params::request_stream_flags(&attr))
            .ok_or(Error::arg(attr_arg))?,
        srq: handles.srq.map(Ref::new),
        attr,
        holding: Arc::default(),
        peer: None,
        early: Vec::new(),
    };
    setup.holding.set_soft(params::soft_watermark(&setup.attr, limits.strict));
    let state =
        if setup.pz.is_some() { State::Unconnected } else { State::UnconfiguredUnconnected };
    build(ia, setup, handles.connect.map(Ref::new), state)
}

/// uDAPL 1.2, dat_ep_create_with_srq: an endpoint is of another zone than its SRQ only where an attribute says so.
pub(super) fn may_draw<T: Transport>(pz: Option<&Node<Pz<T>>>, srq: Option<&Node<Srq<T>>>) -> bool {
    let (Some(pz), Some(srq)) = (pz, srq) else { return true };
    srq.ia.transport.attrs().srq_across_pds || srq.pz.handle() == pz.handle()
}

/// A completion stream to an EVD, if there is one. `None`: the flags do not match those of its other streams.
pub(super) fn feed<T: Transport>(
    evd: Option<&Node<Evd<T>>>,
    flags: DAT_COMPLETION_FLAGS,
) -> Option<Option<Feed<T>>> {
    match evd {
        Some(evd) => Feed::new(evd, flags).map(Some),
        None => Some(None),
    }
}

/// An endpoint that the provider makes for a connection request (PSP with `DAT_PSP_PROVIDER_FLAG`): the consumer
/// configures it before it accepts. Allowed inside upcalls.
pub fn create_tentative<T: Transport>(ia: &Node<Ia<T>>) -> Result<&'static Node<Ep<T>>> {
    let attr = params::defaults(ia.transport.attrs());
    let setup = Setup {
        pz: None,
        recv_evd: None,
        request_evd: None,
        srq: None,
        attr,
        holding: Arc::default(),
        peer: None,
        early: Vec::new(),
    };
    build(ia, setup, None, State::UnconfiguredTentative)
}

fn build<T: Transport>(
    ia: &Node<Ia<T>>,
    setup: Setup<T>,
    connect_evd: Option<Ref<Evd<T>>>,
    state: State,
) -> Result<&'static Node<Ep<T>>> {
    let on_srq = setup.srq.is_some();
    ia.add(|handle| {
        let ep = Ep {
            ia: Ref::new(ia),
            link: AtomicPtr::new(std::ptr::null_mut()),
            setup: Mutex::new(setup),
            shared: Arc::new(Shared::new(handle, Ref::new(ia), on_srq, state, connect_evd)),
            counters: EpCounters::default(),
        };
        let link = ep.new_link(&mut ep.setup())?;
        ep.link.store(link, Ordering::Release);
        Ok(ep)
    })
}

/// dat_ep_free. A connection is ended abruptly; completions not yet taken stay on their EVDs.
///
/// # Safety
/// Nobody uses a reference to it any more, if this succeeds.
pub unsafe fn free<T: Transport>(ep: &Node<Ep<T>>) -> Result<()> {
    let (ia, handle) = (ep.ia.clone(), ep.handle());
    let mut control = ia.control_to_free::<Ep<T>>(handle)?;
    if ep.in_use() {
        return Err(ep.state().refusal());
    }
    let was = ep.shared.apply(Event::Free)?.from;
    destroy(ep, was, &mut control);
    Ok(())
}

/// Takes a tentative endpoint back from the consumer (dat_cr_reject). Called under the control lock, when no
/// other call uses the endpoint.
pub(crate) fn retire_tentative<T: Transport>(ep: &Node<Ep<T>>, control: &mut Orphans) {
    destroy(ep, State::TentativePending, control);
}

/// Takes a tentative endpoint back that the consumer was not told of. It has no queue pair yet whose
/// completions could be queued. In an upcall.
pub(crate) fn retire_untold<T: Transport>(ep: Pin<Ep<T>>) {
    let ia = ep.ia.clone();
    // SAFETY: nobody else knows of the endpoint, or it stays until the adapter is closed.
    if let Some(retired) = unsafe { handle::retire_untold(ep) } {
        ia.delist(&retired);
        retired.unlink(&mut Orphans::default(), retired.setup().evds());
        // SAFETY: as above.
        drop(unsafe { retired.reclaim() });
    }
}

/// Called under the control lock, by whom nobody precedes.
fn destroy<T: Transport>(ep: &Node<Ep<T>>, was: State, control: &mut Orphans) {
    let ia = ep.ia.clone();
    let live = [
        State::Connected,
        State::DisconnectPending,
        State::ActivePending,
        State::CompletionPending,
    ];
    // SAFETY: the link is ours until it is dropped below.
    if let Some(link) = unsafe { ep.link_ptr().as_ref() }
        && live.contains(&was)
    {
        // The state says Disconnected already, so no event comes of it; but what was posted is flushed.
        link.qp.disconnect(Close::Abrupt);
    }
    ia.delist(ep);
    // SAFETY: the caller made sure that nobody depends on the endpoint.
    if let Some(gone) = unsafe { handle::remove(ep) } {
        gone.unlink(control, gone.setup().evds());
        drop(gone);
    }
}

impl<T: Transport> Handles<'_, T> {
    /// All of one adapter, and each EVD fed by the stream it is named for.
    pub(super) fn check(&self, ia: &Node<Ia<T>>) -> Result<()> {
        check_evd(ia, self.recv, DAT_EVD_DTO_FLAG, DAT_INVALID_HANDLE_EVD_RECV)?;
        check_evd(ia, self.request, DAT_EVD_DTO_FLAG, DAT_INVALID_HANDLE_EVD_REQUEST)?;
        check_evd(ia, self.connect, DAT_EVD_CONNECTION_FLAG, DAT_INVALID_HANDLE_EVD_CONN)?;
        if self.pz.is_some_and(|pz| pz.ia.handle() != ia.handle()) {
            return Err(Error::handle(DAT_INVALID_HANDLE_PZ));
        }
        if self.srq.is_some_and(|srq| srq.ia.handle() != ia.handle()) {
            return Err(Error::handle(DAT_INVALID_HANDLE_SRQ));
        }
        Ok(())
    }
}

fn check_evd<T: Transport>(
    ia: &Node<Ia<T>>,
    evd: Option<&Node<Evd<T>>>,
    stream: DAT_EVD_FLAGS,
    invalid: DAT_RETURN,
) -> Result<()> {
    match evd {
        Some(evd) if evd.flags & stream == 0 || evd.ia.handle() != ia.handle() => {
            Err(Error::handle(invalid))
        }
        _ => Ok(()),
    }
}
