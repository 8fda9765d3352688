//! dat_ep_modify.

use dat_sys::*;

use super::create::{Handles, feed, may_draw};
use super::link::discard;
use super::state::Event;
use super::{Ep, Evds, Setup, params};
use crate::error::{Error, Result};
use crate::evd::{Evd, Order};
use crate::handle::{self, Node, Pin, Ref};
use crate::mem::Pz;
use crate::provider::{Queue, RecvWr, Segment, Token, Transport, Wc, WcOp, WcStatus};

/// A receive that may have to move to another queue pair.
pub(super) struct EarlyRecv {
    segments: Box<[Segment]>,
    cookie: u64,
    quiet: bool,
}

/// The objects that dat_ep_modify is given, pinned; or what is wrong with a handle, which is told of only if
/// nothing else is wrong.
pub struct Named<T: Transport> {
    pz: Result<Option<Pin<Pz<T>>>>,
    recv: Result<Option<Pin<Evd<T>>>>,
    request: Result<Option<Pin<Evd<T>>>>,
    connect: Result<Option<Pin<Evd<T>>>>,
}

impl<T: Transport> Named<T> {
    /// Those that the mask names.
    ///
    /// # Safety
    /// As [`handle::pin`].
    pub unsafe fn pin(mask: DAT_EP_PARAM_MASK, param: &DAT_EP_PARAM) -> Self {
        let named = |bit, handle| if mask & bit != 0 { handle } else { std::ptr::null_mut() };
        // SAFETY: as the caller promised.
        unsafe {
            let pz = handle::pin_or_null(named(DAT_EP_FIELD_PZ_HANDLE, param.pz_handle));
            let [recv, request, connect] = handle::pin_all([
                named(DAT_EP_FIELD_RECV_EVD_HANDLE, param.recv_evd_handle),
                named(DAT_EP_FIELD_REQUEST_EVD_HANDLE, param.request_evd_handle),
                named(DAT_EP_FIELD_CONNECT_EVD_HANDLE, param.connect_evd_handle),
            ]);
            Named {
                pz,
                recv: recv.map_err(|error| error.about(DAT_INVALID_HANDLE_EVD_RECV)),
                request: request.map_err(|error| error.about(DAT_INVALID_HANDLE_EVD_REQUEST)),
                connect: connect.map_err(|error| error.about(DAT_INVALID_HANDLE_EVD_CONN)),
            }
        }
    }
}

impl<T: Transport> Ep<T> {
    /// dat_ep_modify.
    ///
    /// # Safety
    /// No other thread posts to the endpoint meanwhile (thread-safe tables see to it).
    pub unsafe fn modify(
        &self,
        mask: DAT_EP_PARAM_MASK,
        param: &DAT_EP_PARAM,
        named: Named<T>,
    ) -> Result<()> {
        let mut control = self.ia.control();
        let state = self.state();
        params::check_modify(mask, state, !self.setup().early.is_empty())?;
        let (pz, recv) = (named.pz?, named.recv?);
        let (request, connect) = (named.request?, named.connect?);
        let (pz, recv) = (pz.as_deref(), recv.as_deref());
        let (request, connect) = (request.as_deref(), connect.as_deref());
        Handles { pz, recv, request, connect, srq: None }.check(&self.ia)?;
        let mut attr = self.setup().attr;
        params::merge(&mut attr, &param.ep_attr, mask);
        params::check(&attr, self.ia.transport.attrs(), self.setup().srq.is_some(), 3)?;
        let attr = params::kept(&attr);
        if !may_draw(pz, self.setup().srq.as_deref()) {
            return Err(Error::arg(3));
        }
        if mask & !DAT_EP_FIELD_CONNECT_EVD_HANDLE != 0 {
            let mut setup = self.setup();
            setup.check_early(&attr)?;
            let before = setup.before();
            let [old_recv, old_request] = setup.evds();
            setup.feed(
                if mask & DAT_EP_FIELD_RECV_EVD_HANDLE != 0 { recv } else { old_recv.as_deref() },
                if mask & DAT_EP_FIELD_REQUEST_EVD_HANDLE != 0 {
                    request
                } else {
                    old_request.as_deref()
                },
                attr,
            )?;
            if mask & DAT_EP_FIELD_PZ_HANDLE != 0 {
                setup.pz = pz.map(Ref::new);
            }
            let configured = if setup.pz.is_some() { Event::Configure } else { Event::Unconfigure };
            let link =
                self.new_link(&mut setup).and_then(|link| match self.shared.apply(configured) {
                    Ok(_) => Ok(link),
                    Err(error) => {
                        discard(link);
                        Err(error)
                    }
                });
            // All of it or nothing.
            let link = link.inspect_err(|_| setup.restore(before))?;
            if mask & DAT_EP_FIELD_EP_ATTR_SRQ_SOFT_HW != 0 {
                setup
                    .holding
                    .set_soft(params::soft_watermark(&attr, self.ia.transport.attrs().strict));
            }
            self.relink(&mut control, link, [old_recv, old_request]);
            self.repost(&mut setup);
        }
        if mask & DAT_EP_FIELD_CONNECT_EVD_HANDLE != 0 {
            self.shared.conn().evd = connect.map(Ref::new);
        }
        Ok(())
    }

    /// Keeps an early receive for the next dat_ep_modify.
    #[cold]
    pub(super) fn remember(&self, segments: &[Segment], cookie: u64, quiet: bool) {
        self.setup().early.push(EarlyRecv { segments: segments.into(), cookie, quiet });
    }

    /// Moves the early receives to the new queue pair. One that does not fit the new protection zone fails (uDAPL 1.2,
    /// dat_ep_modify, protection zone).
    fn repost(&self, setup: &mut Setup<T>) {
        // SAFETY: made by the caller, who holds the control lock.
        let Some(link) = (unsafe { self.link_ptr().as_ref() }) else { return };
        let Setup { early, recv_evd, .. } = setup;
        early.retain(|early| {
            let EarlyRecv { segments, cookie, quiet } = early;
            // SAFETY: the consumer leaves the memory alone until the receive completes.
            let posted =
                unsafe { link.qp.post_recv(&RecvWr { id: *cookie, segments, quiet: *quiet }) };
            // There is room for all of them: `check_early`.
            link.flow.receives.posted_one();
            if posted.is_err()
                && let Some(evd) = recv_evd
            {
                let failed = Wc {
                    id: early.cookie,
                    qp: Token::new(&link.flow),
                    bytes: 0,
                    invalidated: None,
                    immediate: None,
                    op: WcOp::Recv,
                    status: WcStatus::LocalProtection,
                };
                link.flow.holding.count();
                let data = DAT_EVENT_DATA { dto_completion_event_data: link.flow.retire(&failed) };
                evd.post_or_report(DAT_DTO_COMPLETION_EVENT, data, Order::Now);
            }
            posted.is_ok()
        });
    }
}

/// What dat_ep_modify changes and can take back.
struct Before<T: Transport> {
    evds: Evds<T>,
    pz: Option<Ref<Pz<T>>>,
    attr: DAT_EP_ATTR,
}

impl<T: Transport> Setup<T> {
    fn before(&self) -> Before<T> {
        Before { evds: self.evds(), pz: self.pz.clone(), attr: self.attr }
    }

    fn restore(&mut self, Before { evds: [recv, request], pz, attr }: Before<T>) {
        self.pz = pz;
        // Nobody else has come under the control lock: the flags match as they did.
        let fed = self.feed(recv.as_deref(), request.as_deref(), attr);
        debug_assert!(fed.is_ok());
    }

    /// uDAPL 1.2, dat_ep_modify: an attribute that is invalid, or cannot be modified, is an invalid parameter. So are those that
    /// would leave no room for receives that are posted.
    fn check_early(&self, attr: &DAT_EP_ATTR) -> Result<()> {
        let count = |n: DAT_COUNT| usize::try_from(n).unwrap_or(0);
        let lacks = |new: DAT_COUNT, old: DAT_COUNT, used: usize| new < old && count(new) < used;
        let segments = self.early.iter().map(|early| early.segments.len()).max().unwrap_or(0);
        let too_small = lacks(attr.max_recv_dtos, self.attr.max_recv_dtos, self.early.len())
            || lacks(attr.max_recv_iov, self.attr.max_recv_iov, segments);
        if too_small { Err(Error::arg(3)) } else { Ok(()) }
    }

    /// Feeds these EVDs with these attributes from now on; as before, if the attributes' completion flags do not match
    /// those of the EVDs' other streams.
    fn feed(
        &mut self,
        recv: Option<&Node<Evd<T>>>,
        request: Option<&Node<Evd<T>>>,
        attr: DAT_EP_ATTR,
    ) -> Result<()> {
        let feeds = |[recv, request]: [Option<&Node<Evd<T>>>; 2], attr: &DAT_EP_ATTR| {
            let recv = feed(recv, params::recv_stream_flags(attr))?;
            Some((recv, feed(request, params::request_stream_flags(attr))?))
        };
        let old = self.evds();
        // The endpoint's own streams are none of the others.
        (self.recv_evd, self.request_evd) = (None, None);
        match feeds([recv, request], &attr) {
            Some(new) => {
                (self.recv_evd, self.request_evd) = new;
                self.attr = attr;
                Ok(())
            }
            None => {
                let [recv, request] = &old;
                // Nobody else has come under the control lock.
                if let Some(old) = feeds([recv.as_deref(), request.as_deref()], &self.attr) {
                    (self.recv_evd, self.request_evd) = old;
                }
                Err(Error::arg(3))
            }
        }
    }
}
