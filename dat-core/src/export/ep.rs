//! The functions of the function table that handle endpoints, except for posts.

use dat_sys::*;

use super::convert::{control_functions, out, private_slice, query, with_lock};
use crate::addr;
use crate::ep::{self, Ep, Handles, PinnedParams};
use crate::error::{Error, Result};
use crate::evd::Evd;
use crate::handle::{self, Node, Pin};
use crate::ia::Ia;
use crate::mem::Pz;
use crate::provider::Transport;
use crate::srq::Srq;

control_functions! {
    /// dat_ep_create.
    fn ep_create<T>(
        ia: DAT_IA_HANDLE,
        pz: DAT_PZ_HANDLE,
        recv_evd: DAT_EVD_HANDLE,
        request_evd: DAT_EVD_HANDLE,
        connect_evd: DAT_EVD_HANDLE,
        attr: *const DAT_EP_ATTR,
        ep: *mut DAT_EP_HANDLE,
    ) {
        handle::check::<Ia<T>>(ia)?;
        let parts = PinnedParts::<T>::pin(pz, recv_evd, request_evd, connect_evd)?;
        let ep = out(ep, 7)?;
        let ia = handle::pin(ia)?;
        let made = handle::pin_created(ep::create(&ia, parts.handles(None), attr.as_ref())?);
        ep.write(made.handle());
        Ok(())
    }

    /// dat_ep_create_with_srq.
    fn ep_create_with_srq<T>(
        ia: DAT_IA_HANDLE,
        pz: DAT_PZ_HANDLE,
        recv_evd: DAT_EVD_HANDLE,
        request_evd: DAT_EVD_HANDLE,
        connect_evd: DAT_EVD_HANDLE,
        srq: DAT_SRQ_HANDLE,
        attr: *const DAT_EP_ATTR,
        ep: *mut DAT_EP_HANDLE,
    ) {
        handle::check::<Ia<T>>(ia)?;
        let parts = PinnedParts::<T>::pin(pz, recv_evd, request_evd, connect_evd)?;
        let srq = Some(handle::pin::<Srq<T>>(srq)?);
        let ep = out(ep, 8)?;
        let ia = handle::pin(ia)?;
        let made = ep::create(&ia, parts.handles(srq.as_deref()), attr.as_ref())?;
        let made = handle::pin_created(made);
        ep.write(made.handle());
        Ok(())
    }

    /// dat_ep_query.
    fn ep_query<T>(ep: DAT_EP_HANDLE, mask: DAT_EP_PARAM_MASK, param: *mut DAT_EP_PARAM) {
        let fields = (mask, DAT_EP_FIELD_ALL, 2);
        handle::with_object::<Ep<T>, _>(ep, |ep| {
            query(fields, param, DAT_EP_PARAM::zeroed(), |param| ep.query(param))
        })
    }

    /// dat_ep_modify.
    fn ep_modify<T, THREAD_SAFE>(
        ep: DAT_EP_HANDLE,
        mask: DAT_EP_PARAM_MASK,
        param: *const DAT_EP_PARAM,
    ) {
        handle::check::<Ep<T>>(ep)?;
        let param = param.as_ref().ok_or(Error::arg(3))?;
        let pinned = PinnedParams::<T>::pin(mask, param);
        with_lock::<THREAD_SAFE, _>(ep, || handle::get::<Ep<T>>(ep)?.modify(mask, param, pinned))
    }

    /// dat_ep_connect.
    fn ep_connect<T>(
        ep: DAT_EP_HANDLE,
        address: DAT_IA_ADDRESS_PTR,
        qualifier: DAT_CONN_QUAL,
        timeout: DAT_TIMEOUT,
        private_size: DAT_COUNT,
        private_data: DAT_PVOID,
        qos: DAT_QOS,
        flags: DAT_CONNECT_FLAGS,
    ) {
        handle::with_object::<Ep<T>, _>(ep, |ep| {
            let private = private_slice(private_size, private_data, 5)?;
            ep.connect(addr::parse(address)?, qualifier, timeout, private, qos, flags)
        })
    }

    /// dat_ep_dup_connect.
    fn ep_dup_connect<T>(
        ep: DAT_EP_HANDLE,
        model: DAT_EP_HANDLE,
        timeout: DAT_TIMEOUT,
        private_size: DAT_COUNT,
        private_data: DAT_PVOID,
        qos: DAT_QOS,
    ) {
        handle::check::<Ep<T>>(ep)?;
        // Do not pin the endpoint `model`, because a call on an endpoint must not pin another
        // endpoint.
        let source = handle::with_object::<Ep<T>, _>(model, |model| Ok(model.dup_source()))?;
        let private = private_slice(private_size, private_data, 4)?;
        handle::with_object::<Ep<T>, _>(ep, |ep| ep.dup_connect(source, timeout, private, qos))
    }

    /// dat_ep_common_connect.
    fn ep_common_connect<T>(
        ep: DAT_EP_HANDLE,
        address: DAT_IA_ADDRESS_PTR,
        timeout: DAT_TIMEOUT,
        private_size: DAT_COUNT,
        private_data: DAT_PVOID,
    ) {
        handle::with_object::<Ep<T>, _>(ep, |ep| {
            let private = private_slice(private_size, private_data, 4);
            ep.common_connect(addr::parse(address)?, timeout, private?)
        })
    }

    /// dat_ep_disconnect.
    fn ep_disconnect<T, THREAD_SAFE>(ep: DAT_EP_HANDLE, flags: DAT_CLOSE_FLAGS) {
        with_lock::<THREAD_SAFE, _>(ep, || handle::get::<Ep<T>>(ep)?.disconnect(flags))
    }

    /// dat_ep_get_status. As in OFED, the pointer to a value may be NULL if the caller does not
    /// need that value.
    fn ep_get_status<T, THREAD_SAFE>(
        ep: DAT_EP_HANDLE,
        state: *mut DAT_EP_STATE,
        recv_idle: *mut DAT_BOOLEAN,
        request_idle: *mut DAT_BOOLEAN,
    ) {
        let now = with_lock::<THREAD_SAFE, _>(ep, || Ok(handle::get::<Ep<T>>(ep)?.status()))?;
        let values = [(state, now.0), (recv_idle, now.1.into()), (request_idle, now.2.into())];
        for (ptr, value) in values {
            if let Some(out) = ptr.as_mut() {
                *out = value;
            }
        }
        Ok(())
    }

    /// dat_ep_recv_query. The pointer to a value may be NULL if the caller does not need that
    /// value.
    fn ep_recv_query<T, THREAD_SAFE>(
        ep: DAT_EP_HANDLE,
        buffers: *mut DAT_COUNT,
        span: *mut DAT_COUNT,
    ) {
        let now = with_lock::<THREAD_SAFE, _>(ep, || Ok(handle::get::<Ep<T>>(ep)?.allocated()))?;
        for (ptr, count) in [buffers, span].into_iter().zip(now) {
            if let Some(out) = ptr.as_mut() {
                *out = count;
            }
        }
        Ok(())
    }

    /// dat_ep_set_watermark.
    fn ep_set_watermark<T, THREAD_SAFE>(ep: DAT_EP_HANDLE, soft: DAT_COUNT, hard: DAT_COUNT) {
        with_lock::<THREAD_SAFE, _>(ep, || {
            let ep = handle::get::<Ep<T>>(ep)?;
            ep.apply_exceeded(ep.set_watermarks(soft, hard)?);
            Ok(())
        })
    }

    /// dat_ep_reset.
    fn ep_reset<T, THREAD_SAFE>(ep: DAT_EP_HANDLE) {
        with_lock::<THREAD_SAFE, _>(ep, || handle::get::<Ep<T>>(ep)?.reset())
    }

    /// dat_ep_free.
    fn ep_free<T, THREAD_SAFE>(ep: DAT_EP_HANDLE) {
        handle::with_exclusive(ep, |ep: &Node<Ep<T>>| ep::free(ep))
    }
}

/// The objects with which an endpoint is created, pinned.
struct PinnedParts<T: Transport> {
    pz: Option<Pin<Pz<T>>>,
    recv: Option<Pin<Evd<T>>>,
    request: Option<Pin<Evd<T>>>,
    connect: Option<Pin<Evd<T>>>,
}

impl<T: Transport> PinnedParts<T> {
    /// # Safety
    /// The requirements of [`handle::pin`] apply.
    unsafe fn pin(
        pz: DAT_PZ_HANDLE,
        recv: DAT_EVD_HANDLE,
        request: DAT_EVD_HANDLE,
        connect: DAT_EVD_HANDLE,
    ) -> Result<Self> {
        // SAFETY: the caller fulfils the contract of this function.
        unsafe {
            let pz = handle::pin_or_null(pz)?;
            let [recv, request, connect] = handle::pin_all([recv, request, connect]);
            Ok(PinnedParts {
                pz,
                recv: recv.map_err(|error| error.with_subtype(DAT_INVALID_HANDLE_EVD_RECV))?,
                request: request
                    .map_err(|error| error.with_subtype(DAT_INVALID_HANDLE_EVD_REQUEST))?,
                connect: connect
                    .map_err(|error| error.with_subtype(DAT_INVALID_HANDLE_EVD_CONN))?,
            })
        }
    }

    fn handles<'a>(&'a self, srq: Option<&'a Node<Srq<T>>>) -> Handles<'a, T> {
        let PinnedParts { pz, recv, request, connect } = self;
        Handles {
            pz: pz.as_deref(),
            recv: recv.as_deref(),
            request: request.as_deref(),
            connect: connect.as_deref(),
            srq,
        }
    }
}
