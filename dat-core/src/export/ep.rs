//! Endpoints, but for the posts.

use dat_sys::*;

use super::convert::{alone, evd_or_null, out, private, query, slots};
use crate::addr;
use crate::ep::{self, Ep, Handles};
use crate::error::Error;
use crate::handle;
use crate::ia::Ia;
use crate::mem::Pz;
use crate::provider::Transport;
use crate::srq::Srq;

slots! {
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
        let ia = handle::get::<Ia<T>>(ia)?;
        let handles = Handles {
            pz: handle::get_or_null::<Pz<T>>(pz)?,
            recv: evd_or_null(recv_evd, DAT_INVALID_HANDLE_EVD_RECV)?,
            request: evd_or_null(request_evd, DAT_INVALID_HANDLE_EVD_REQUEST)?,
            connect: evd_or_null(connect_evd, DAT_INVALID_HANDLE_EVD_CONN)?,
            srq: None,
        };
        let ep = out(ep, 7)?;
        ep.write(ep::create(ia, handles, attr.as_ref())?.handle());
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
        let ia = handle::get::<Ia<T>>(ia)?;
        let handles = Handles {
            pz: handle::get_or_null::<Pz<T>>(pz)?,
            recv: evd_or_null(recv_evd, DAT_INVALID_HANDLE_EVD_RECV)?,
            request: evd_or_null(request_evd, DAT_INVALID_HANDLE_EVD_REQUEST)?,
            connect: evd_or_null(connect_evd, DAT_INVALID_HANDLE_EVD_CONN)?,
            srq: Some(handle::get::<Srq<T>>(srq)?),
        };
        let ep = out(ep, 8)?;
        ep.write(ep::create(ia, handles, attr.as_ref())?.handle());
        Ok(())
    }

    /// dat_ep_query.
    fn ep_query<T>(ep: DAT_EP_HANDLE, mask: DAT_EP_PARAM_MASK, param: *mut DAT_EP_PARAM) {
        let ep = handle::get::<Ep<T>>(ep)?;
        query((mask, DAT_EP_FIELD_ALL, 2), param, DAT_EP_PARAM::zeroed(), |param| ep.query(param))
    }

    /// dat_ep_modify.
    fn ep_modify<T, SAFE>(ep: DAT_EP_HANDLE, mask: DAT_EP_PARAM_MASK, param: *const DAT_EP_PARAM) {
        alone::<SAFE, _>(ep, || {
            let ep = handle::get::<Ep<T>>(ep)?;
            ep.modify(mask, param.as_ref().ok_or(Error::arg(3))?)
        })
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
        let ep = handle::get::<Ep<T>>(ep)?;
        let private = private(private_size, private_data, 5)?;
        ep.connect(addr::parse(address)?, qualifier, timeout, private, qos, flags)
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
        let (ep, model) = (handle::get::<Ep<T>>(ep)?, handle::get::<Ep<T>>(model)?);
        ep.dup_connect(model, timeout, private(private_size, private_data, 4)?, qos)
    }

    /// dat_ep_common_connect.
    fn ep_common_connect<T>(
        ep: DAT_EP_HANDLE,
        address: DAT_IA_ADDRESS_PTR,
        timeout: DAT_TIMEOUT,
        private_size: DAT_COUNT,
        private_data: DAT_PVOID,
    ) {
        let ep = handle::get::<Ep<T>>(ep)?;
        ep.common_connect(addr::parse(address)?, timeout, private(private_size, private_data, 4)?)
    }

    /// dat_ep_disconnect.
    fn ep_disconnect<T, SAFE>(ep: DAT_EP_HANDLE, flags: DAT_CLOSE_FLAGS) {
        alone::<SAFE, _>(ep, || handle::get::<Ep<T>>(ep)?.disconnect(flags))
    }

    /// dat_ep_get_status. What the caller does not want to know it leaves NULL, as with OFED.
    fn ep_get_status<T, SAFE>(
        ep: DAT_EP_HANDLE,
        state: *mut DAT_EP_STATE,
        recv_idle: *mut DAT_BOOLEAN,
        request_idle: *mut DAT_BOOLEAN,
    ) {
        let now = alone::<SAFE, _>(ep, || Ok(handle::get::<Ep<T>>(ep)?.status()))?;
        for (ptr, value) in [(state, now.0), (recv_idle, now.1.into()), (request_idle, now.2.into())] {
            if let Some(out) = ptr.as_mut() {
                *out = value;
            }
        }
        Ok(())
    }

    /// dat_ep_recv_query. What the caller does not want to know it leaves NULL.
    fn ep_recv_query<T, SAFE>(ep: DAT_EP_HANDLE, buffers: *mut DAT_COUNT, span: *mut DAT_COUNT) {
        let now = alone::<SAFE, _>(ep, || Ok(handle::get::<Ep<T>>(ep)?.allocated()))?;
        for (ptr, count) in [(buffers, now.buffers), (span, now.span)] {
            if let Some(out) = ptr.as_mut() {
                *out = DAT_COUNT::try_from(count).unwrap_or(DAT_COUNT::MAX);
            }
        }
        Ok(())
    }

    /// dat_ep_set_watermark.
    fn ep_set_watermark<T, SAFE>(ep: DAT_EP_HANDLE, soft: DAT_COUNT, hard: DAT_COUNT) {
        let exceeded = alone::<SAFE, _>(ep, || handle::get::<Ep<T>>(ep)?.set_watermarks(soft, hard))?;
        handle::get::<Ep<T>>(ep)?.exceeds(exceeded);
        Ok(())
    }

    /// dat_ep_reset.
    fn ep_reset<T, SAFE>(ep: DAT_EP_HANDLE) {
        alone::<SAFE, _>(ep, || handle::get::<Ep<T>>(ep)?.reset())
    }

    /// dat_ep_free.
    fn ep_free<T, SAFE>(ep: DAT_EP_HANDLE) {
        alone::<SAFE, _>(ep, || ep::free(handle::get::<Ep<T>>(ep)?))
    }
}
