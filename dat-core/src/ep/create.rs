//! Creating and freeing endpoints.

use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex};

use dat_sys::*;

use super::network::EpShared;
use super::state::{Event, State};
use super::{Ep, FreedFlows, Setup, params};
use crate::counters::EpCounters;
use crate::error::{Error, Result};
use crate::evd::{CompletionStream, Evd, Stream};
use crate::handle::{self, Node, Pin, Ref};
use crate::ia::Ia;
use crate::mem::Pz;
use crate::provider::{Close, Queue, ServiceType, Transport};
use crate::srq::Srq;

/// The objects with which an endpoint is created. Each of them may be absent.
pub struct Handles<'a, T: Transport> {
    /// The protection zone.
    pub pz: Option<&'a Node<Pz<T>>>,
    /// The EVD for completions of receives.
    pub recv: Option<&'a Node<Evd<T>>>,
    /// The EVD for completions of requests.
    pub request: Option<&'a Node<Evd<T>>>,
    /// The EVD for connection events.
    pub connect: Option<&'a Node<Evd<T>>>,
    /// The shared receive queue.
    pub srq: Option<&'a Node<Srq<T>>>,
}

/// Implements dat_ep_create and dat_ep_create_with_srq.
pub fn create<T: Transport>(
    ia: &Node<Ia<T>>,
    handles: Handles<'_, T>,
    attr: Option<&DAT_EP_ATTR>,
) -> Result<&'static Node<Ep<T>>> {
    let limits = ia.transport.attrs();
    let attr_arg = if handles.srq.is_some() { 7 } else { 6 };
    let (attr, unset_flags) = match attr {
        Some(attr) => (*attr, 0),
        None if handles.srq.is_some() => return Err(Error::arg(attr_arg)),
        None => (params::defaults(limits, ServiceType::Connection), params::COMPLETION_FLAGS),
    };
    params::check(&attr, limits, handles.srq.is_some(), attr_arg)?;
    let mut attr = params::without_named_attrs(&attr);
    handles.check(ia)?;
    let evds = [handles.recv, handles.request].map(|evd| evd.map(|evd| &**evd));
    params::choose_flags(&mut attr, unset_flags, evds);
    if !pz_permits_srq(handles.pz, handles.srq) {
        return Err(Error::arg(6));
    }
    let _control = ia.control();
    let setup = Setup {
        pz: handles.pz.map(Ref::new),
        recv_evd: open_stream(handles.recv, params::recv_stream(&attr))
            .ok_or(Error::arg(attr_arg))?,
        request_evd: open_stream(handles.request, params::request_stream(&attr))
            .ok_or(Error::arg(attr_arg))?,
        srq: handles.srq.map(Ref::new),
        attr,
        unset_flags,
        holding: Arc::default(),
        peer: None,
        movable_recvs: Vec::new(),
    };
    setup.holding.set_soft(params::soft_watermark(&setup.attr, limits));
    let state =
        if setup.pz.is_some() { State::Unconnected } else { State::UnconfiguredUnconnected };
    build(ia, setup, handles.connect.map(Ref::new), state)
}

/// Whether an endpoint of this protection zone may use this SRQ. The SRQ may belong to another zone
/// only if an attribute of the adapter permits that (uDAPL 1.2, dat_ep_create_with_srq).
pub(super) fn pz_permits_srq<T: Transport>(
    pz: Option<&Node<Pz<T>>>,
    srq: Option<&Node<Srq<T>>>,
) -> bool {
    let (Some(pz), Some(srq)) = (pz, srq) else { return true };
    srq.ia.transport.attrs().srq_across_pds || srq.pz.handle() == pz.handle()
}

/// Opens a completion stream to an EVD. Returns `None` if the stream does not match the EVD's other
/// streams, and `Some(None)` if there is no EVD.
pub(super) fn open_stream<T: Transport>(
    evd: Option<&Node<Evd<T>>>,
    stream: Stream,
) -> Option<Option<CompletionStream<T>>> {
    match evd {
        Some(evd) => CompletionStream::new(evd, stream).map(Some),
        None => Some(None),
    }
}

/// Creates a tentative endpoint for a request of this service that arrives at a PSP with
/// `DAT_PSP_PROVIDER_FLAG`. The consumer configures the endpoint before it accepts the request. May
/// be called in upcalls.
pub fn create_tentative<T: Transport>(
    ia: &Node<Ia<T>>,
    service: ServiceType,
) -> Result<&'static Node<Ep<T>>> {
    let attr = params::defaults(ia.transport.attrs(), service);
    let setup = Setup {
        pz: None,
        recv_evd: None,
        request_evd: None,
        srq: None,
        attr,
        unset_flags: params::COMPLETION_FLAGS,
        holding: Arc::default(),
        peer: None,
        movable_recvs: Vec::new(),
    };
    build(ia, setup, None, State::UnconfiguredTentative)
}

fn build<T: Transport>(
    ia: &Node<Ia<T>>,
    setup: Setup<T>,
    connect_evd: Option<Ref<Evd<T>>>,
    state: State,
) -> Result<&'static Node<Ep<T>>> {
    let service = params::service(&setup.attr)?;
    let kind = (service, setup.srq.is_some());
    ia.add(|handle| {
        let ep = Ep {
            ia: Ref::new(ia),
            bound_qp: AtomicPtr::new(std::ptr::null_mut()),
            setup: Mutex::new(setup),
            shared: Arc::new(EpShared::new(handle, Ref::new(ia), kind, state, connect_evd)),
            counters: EpCounters::default(),
        };
        let bound = ep.new_bound_qp(&mut ep.setup())?;
        ep.bound_qp.store(bound, Ordering::Release);
        Ok(ep)
    })
}

/// Implements dat_ep_free. If the endpoint is connected, the connection ends abruptly. Completions
/// that the consumer has not taken yet stay on their EVDs.
///
/// # Safety
/// If this call succeeds, nobody uses a reference to the endpoint after the call.
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

/// Frees a tentative endpoint whose connection request was withdrawn, for example by dat_cr_reject.
/// The caller holds the control lock, and no other call uses the endpoint.
pub(crate) fn retire_tentative<T: Transport>(ep: &Node<Ep<T>>, control: &mut FreedFlows) {
    destroy(ep, State::TentativePending, control);
}

/// Frees a tentative endpoint that was never reported to the consumer. The endpoint has no queue
/// pair yet, so no completions of it can be queued. Called in an upcall.
pub(crate) fn retire_unreported<T: Transport>(ep: Pin<Ep<T>>) {
    let ia = ep.ia.clone();
    // SAFETY: the consumer does not know the endpoint. If another thread has guessed its handle and
    // uses it, the endpoint stays until the adapter is closed.
    if let Some(retired) = unsafe { handle::retire_unreported(ep) } {
        ia.unregister_object(&retired);
        retired.drop_bound_qp(&mut FreedFlows::default(), retired.setup().evds());
        // SAFETY: nobody else uses the endpoint.
        drop(unsafe { retired.reclaim() });
    }
}

/// Ends the connection of an endpoint that was in state `was`, and frees the endpoint. The caller
/// holds the control lock.
fn destroy<T: Transport>(ep: &Node<Ep<T>>, was: State, control: &mut FreedFlows) {
    let ia = ep.ia.clone();
    let live = [
        State::Connected,
        State::DisconnectPending,
        State::ActivePending,
        State::CompletionPending,
    ];
    // SAFETY: nobody else uses the queue pair, which this function drops below.
    if let Some(bound) = unsafe { ep.bound_qp_ptr().as_ref() }
        && live.contains(&was)
    {
        // The disconnect causes no event, because the state is already Disconnected. It flushes the
        // posted work requests.
        bound.qp.disconnect(Close::Abrupt);
    }
    ia.unregister_object(ep);
    // SAFETY: the callers guarantee that nobody uses or depends on the endpoint.
    if let Some(removed) = unsafe { handle::remove(ep) } {
        removed.drop_bound_qp(control, removed.setup().evds());
        removed.free_addresses();
        drop(removed);
    }
}

impl<T: Transport> Handles<'_, T> {
    /// Checks that all objects belong to this adapter, and that each EVD accepts the kind of events
    /// for which the endpoint uses it.
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
