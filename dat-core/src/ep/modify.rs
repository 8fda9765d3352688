//! dat_ep_modify.

use dat_sys::*;

use super::bound_qp::discard;
use super::create::{Handles, open_stream, pz_permits_srq};
use super::state::Event;
use super::{Ep, Evds, Setup, params};
use crate::error::{Error, Result};
use crate::evd::{Evd, Order};
use crate::handle::{self, Node, Pin, Ref};
use crate::mem::Pz;
use crate::provider::{Queue, RecvWr, Segment, Token, Transport, Wc, WcOp, WcStatus};

/// A posted receive that is posted again if dat_ep_modify replaces the queue pair.
pub(super) struct MovableRecv {
    segments: Box<[Segment]>,
    cookie: u64,
    quiet: bool,
}

/// The objects that a dat_ep_modify call names, which are pinned. An error about a handle is kept
/// here, so that dat_ep_modify can check the mask and the endpoint's state before it returns that
/// error.
pub struct PinnedParams<T: Transport> {
    pz: Result<Option<Pin<Pz<T>>>>,
    recv: Result<Option<Pin<Evd<T>>>>,
    request: Result<Option<Pin<Evd<T>>>>,
    connect: Result<Option<Pin<Evd<T>>>>,
}

impl<T: Transport> PinnedParams<T> {
    /// Pins the objects whose fields `mask` selects.
    ///
    /// # Safety
    /// The requirements of [`handle::pin`] apply.
    pub unsafe fn pin(mask: DAT_EP_PARAM_MASK, param: &DAT_EP_PARAM) -> Self {
        let if_named = |bit, handle| if mask & bit != 0 { handle } else { std::ptr::null_mut() };
        // SAFETY: the caller guarantees that no other thread frees the objects during this call,
        // unless their adapter is thread-safe.
        unsafe {
            let pz = handle::pin_or_null(if_named(DAT_EP_FIELD_PZ_HANDLE, param.pz_handle));
            let [recv, request, connect] = handle::pin_all([
                if_named(DAT_EP_FIELD_RECV_EVD_HANDLE, param.recv_evd_handle),
                if_named(DAT_EP_FIELD_REQUEST_EVD_HANDLE, param.request_evd_handle),
                if_named(DAT_EP_FIELD_CONNECT_EVD_HANDLE, param.connect_evd_handle),
            ]);
            PinnedParams {
                pz,
                recv: recv.map_err(|error| error.with_subtype(DAT_INVALID_HANDLE_EVD_RECV)),
                request: request
                    .map_err(|error| error.with_subtype(DAT_INVALID_HANDLE_EVD_REQUEST)),
                connect: connect.map_err(|error| error.with_subtype(DAT_INVALID_HANDLE_EVD_CONN)),
            }
        }
    }
}

impl<T: Transport> Ep<T> {
    /// Implements dat_ep_modify.
    ///
    /// # Safety
    /// During this call no other thread posts to the endpoint. The functions of a thread-safe
    /// adapter ensure that with a lock.
    pub unsafe fn modify(
        &self,
        mask: DAT_EP_PARAM_MASK,
        param: &DAT_EP_PARAM,
        pinned: PinnedParams<T>,
    ) -> Result<()> {
        let mut control = self.ia.control();
        let state = self.state();
        params::check_modify(mask, state, !self.setup().movable_recvs.is_empty())?;
        let (pz, recv) = (pinned.pz?, pinned.recv?);
        let (request, connect) = (pinned.request?, pinned.connect?);
        let (pz, recv) = (pz.as_deref(), recv.as_deref());
        let (request, connect) = (request.as_deref(), connect.as_deref());
        Handles { pz, recv, request, connect, srq: None }.check(&self.ia)?;
        let mut attr = self.setup().attr;
        params::merge(&mut attr, &param.ep_attr, mask);
        params::check(&attr, self.ia.transport.attrs(), self.setup().srq.is_some(), 3)?;
        // As in OFED's library, an endpoint keeps the service that it was created with.
        if params::service(&attr)? != self.service() {
            return Err(Error::of(DAT_MODEL_NOT_SUPPORTED));
        }
        let mut attr = params::without_named_attrs(&attr);
        if !pz_permits_srq(pz, self.setup().srq.as_deref()) {
            return Err(Error::arg(3));
        }
        if mask & !DAT_EP_FIELD_CONNECT_EVD_HANDLE != 0 {
            let mut setup = self.setup();
            setup.check_movable_recvs(&attr)?;
            let before = setup.save();
            let [old_recv, old_request] = setup.evds();
            let if_named = |bit, new, old| if mask & bit != 0 { new } else { old };
            let recv = if_named(DAT_EP_FIELD_RECV_EVD_HANDLE, recv, old_recv.as_deref());
            let request =
                if_named(DAT_EP_FIELD_REQUEST_EVD_HANDLE, request, old_request.as_deref());
            let unset_flags = setup.unset_flags & !mask;
            let evds = [recv, request].map(|evd| evd.map(|evd| &**evd));
            params::choose_flags(&mut attr, unset_flags, evds);
            setup.open_streams(recv, request, attr)?;
            let had_pz = setup.pz.as_ref().map(|pz| pz.handle());
            if mask & DAT_EP_FIELD_PZ_HANDLE != 0 {
                setup.pz = pz.map(Ref::new);
            }
            let configured = if setup.pz.is_some() { Event::Configure } else { Event::Unconfigure };
            let bound = self.new_bound_qp(&mut setup).and_then(|bound| {
                match self.shared.apply(configured) {
                    Ok(_) => Ok(bound),
                    Err(error) => {
                        discard(bound);
                        Err(error)
                    }
                }
            });
            // If no new queue pair was created, restore the former setup.
            let bound = bound.inspect_err(|_| setup.restore(before))?;
            setup.unset_flags = unset_flags;
            if mask & DAT_EP_FIELD_EP_ATTR_SRQ_SOFT_HW != 0 {
                setup.holding.set_soft(params::soft_watermark(&attr, self.ia.transport.attrs()));
            }
            self.replace_bound_qp(&mut control, bound, [old_recv, old_request]);
            // Address handles belong to a protection zone, which may now be freed.
            if setup.pz.as_ref().map(|pz| pz.handle()) != had_pz {
                self.free_addresses();
            }
            self.repost(&mut setup);
        }
        if mask & DAT_EP_FIELD_CONNECT_EVD_HANDLE != 0 {
            self.shared.conn().evd = connect.map(Ref::new);
        }
        Ok(())
    }

    /// Keeps a posted receive, so that the next dat_ep_modify can post it to a new queue pair.
    #[cold]
    pub(super) fn keep_movable_recv(&self, segments: &[Segment], cookie: u64, quiet: bool) {
        self.setup().movable_recvs.push(MovableRecv { segments: segments.into(), cookie, quiet });
    }

    /// Posts the kept receives to the new queue pair. A receive whose memory is not in the new
    /// protection zone completes with an error (uDAPL 1.2, dat_ep_modify, protection zone).
    fn repost(&self, setup: &mut Setup<T>) {
        // SAFETY: the caller has made the queue pair and holds the control lock.
        let Some(bound) = (unsafe { self.bound_qp_ptr().as_ref() }) else { return };
        let Setup { movable_recvs, recv_evd, .. } = setup;
        movable_recvs.retain(|recv| {
            let MovableRecv { segments, cookie, quiet } = recv;
            // SAFETY: the consumer does not touch the memory until the receive completes.
            let posted =
                unsafe { bound.qp.post_recv(&RecvWr { id: *cookie, segments, quiet: *quiet }) };
            // `check_movable_recvs` has ensured that the queue pair has room for the receive.
            bound.flow.receives.posted_one();
            if posted.is_err()
                && let Some(evd) = recv_evd
            {
                let failed = Wc {
                    id: recv.cookie,
                    qp: Token::new(&bound.flow),
                    bytes: 0,
                    invalidated: None,
                    immediate: None,
                    op: WcOp::Recv,
                    status: WcStatus::LocalProtection,
                };
                bound.flow.holding.count_taken();
                let data = DAT_EVENT_DATA { dto_completion_event_data: bound.flow.retire(&failed) };
                evd.post_or_report(DAT_DTO_COMPLETION_EVENT, data, Order::Now);
            }
            posted.is_ok()
        });
    }
}

/// The part of the setup that dat_ep_modify changes and restores on an error.
struct SavedSetup<T: Transport> {
    evds: Evds<T>,
    pz: Option<Ref<Pz<T>>>,
    attr: DAT_EP_ATTR,
}

impl<T: Transport> Setup<T> {
    fn save(&self) -> SavedSetup<T> {
        SavedSetup { evds: self.evds(), pz: self.pz.clone(), attr: self.attr }
    }

    fn restore(&mut self, SavedSetup { evds: [recv, request], pz, attr }: SavedSetup<T>) {
        self.pz = pz;
        // The caller holds the control lock, so no stream was added since `save`, and the flags
        // match again.
        let opened = self.open_streams(recv.as_deref(), request.as_deref(), attr);
        debug_assert!(opened.is_ok());
    }

    /// Checks that the new attributes leave room for the receives that are posted. If they do not,
    /// the error is the same as for attributes that are invalid or cannot be modified: an invalid
    /// parameter (uDAPL 1.2, dat_ep_modify).
    fn check_movable_recvs(&self, attr: &DAT_EP_ATTR) -> Result<()> {
        let count = |n: DAT_COUNT| usize::try_from(n).unwrap_or(0);
        let lacks = |new: DAT_COUNT, old: DAT_COUNT, used: usize| new < old && count(new) < used;
        let segments = self.movable_recvs.iter().map(|recv| recv.segments.len()).max().unwrap_or(0);
        let too_small =
            lacks(attr.max_recv_dtos, self.attr.max_recv_dtos, self.movable_recvs.len())
                || lacks(attr.max_recv_iov, self.attr.max_recv_iov, segments);
        if too_small { Err(Error::arg(3)) } else { Ok(()) }
    }

    /// Opens completion streams to the given EVDs, with the given attributes. If the completion
    /// flags of the attributes do not match those of the EVDs' other streams, fails and changes
    /// nothing.
    fn open_streams(
        &mut self,
        recv: Option<&Node<Evd<T>>>,
        request: Option<&Node<Evd<T>>>,
        attr: DAT_EP_ATTR,
    ) -> Result<()> {
        let open_both = |[recv, request]: [Option<&Node<Evd<T>>>; 2], attr: &DAT_EP_ATTR| {
            let recv = open_stream(recv, params::recv_stream(attr))?;
            Some((recv, open_stream(request, params::request_stream(attr))?))
        };
        let old = self.evds();
        // Drop the endpoint's own streams first, so that the new flags are not compared with them.
        (self.recv_evd, self.request_evd) = (None, None);
        match open_both([recv, request], &attr) {
            Some(new) => {
                (self.recv_evd, self.request_evd) = new;
                self.attr = attr;
                Ok(())
            }
            None => {
                let [recv, request] = &old;
                // The caller holds the control lock, so no other stream was added to the EVDs after
                // the endpoint's own streams were dropped.
                if let Some(old) = open_both([recv.as_deref(), request.as_deref()], &self.attr) {
                    (self.recv_evd, self.request_evd) = old;
                }
                Err(Error::arg(3))
            }
        }
    }
}
