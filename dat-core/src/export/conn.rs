//! The functions of the function table that handle service points and connection requests.

use dat_sys::*;

use super::convert::{control_functions, out, pin_evd, private_slice, query};
use crate::addr;
use crate::conn::Qualifier;
use crate::conn::cr::{self, Cr};
use crate::conn::csp::{self, Csp};
use crate::conn::psp::{self, Psp};
use crate::conn::rsp::{self, Rsp};
use crate::ep::Ep;
use crate::error::Error;
use crate::handle::{self, Node};
use crate::ia::Ia;
use crate::provider::Transport;

control_functions! {
    /// dat_psp_create.
    fn psp_create<T>(
        ia: DAT_IA_HANDLE,
        qualifier: DAT_CONN_QUAL,
        cr_evd: DAT_EVD_HANDLE,
        flags: DAT_PSP_FLAGS,
        psp: *mut DAT_PSP_HANDLE,
    ) {
        handle::check::<Ia<T>>(ia)?;
        let cr_evd = pin_evd::<T>(cr_evd, DAT_INVALID_HANDLE_EVD_CR)?;
        let psp = out(psp, 5)?;
        let ia = handle::pin(ia)?;
        let made = psp::create(&ia, Qualifier::Exactly(qualifier), &cr_evd, flags)?;
        let made = handle::pin_created(made);
        psp.write(made.handle());
        Ok(())
    }

    /// dat_psp_create_any.
    fn psp_create_any<T>(
        ia: DAT_IA_HANDLE,
        qualifier: *mut DAT_CONN_QUAL,
        cr_evd: DAT_EVD_HANDLE,
        flags: DAT_PSP_FLAGS,
        psp: *mut DAT_PSP_HANDLE,
    ) {
        handle::check::<Ia<T>>(ia)?;
        let qualifier = out(qualifier, 2)?;
        let cr_evd = pin_evd::<T>(cr_evd, DAT_INVALID_HANDLE_EVD_CR)?;
        let psp = out(psp, 5)?;
        let ia = handle::pin(ia)?;
        let made = handle::pin_created(psp::create(&ia, Qualifier::Any, &cr_evd, flags)?);
        qualifier.write(made.qualifier());
        psp.write(made.handle());
        Ok(())
    }

    /// dat_psp_query.
    fn psp_query<T>(psp: DAT_PSP_HANDLE, mask: DAT_PSP_PARAM_MASK, param: *mut DAT_PSP_PARAM) {
        let fields = (mask.into(), DAT_PSP_FIELD_ALL.into(), 2);
        handle::with_object::<Psp<T>, _>(psp, |psp| {
            query(fields, param, DAT_PSP_PARAM::zeroed(), |param| psp.query(param))
        })
    }

    /// dat_psp_free.
    fn psp_free<T>(psp: DAT_PSP_HANDLE) {
        handle::with_exclusive(psp, |psp: &Node<Psp<T>>| psp::free(psp))
    }

    /// dat_rsp_create.
    fn rsp_create<T>(
        ia: DAT_IA_HANDLE,
        qualifier: DAT_CONN_QUAL,
        ep: DAT_EP_HANDLE,
        cr_evd: DAT_EVD_HANDLE,
        rsp: *mut DAT_RSP_HANDLE,
    ) {
        handle::check::<Ia<T>>(ia)?;
        // An error about the endpoint takes precedence, so an error about the EVD is returned only
        // after the endpoint was checked.
        let cr_evd = pin_evd::<T>(cr_evd, DAT_INVALID_HANDLE_EVD_CR);
        let (ep, cr_evd) = (handle::pin::<Ep<T>>(ep)?, cr_evd?);
        let rsp = out(rsp, 5)?;
        let ia = handle::pin(ia)?;
        let made = handle::pin_created(rsp::create(&ia, qualifier, &ep, &cr_evd)?);
        rsp.write(made.handle());
        Ok(())
    }

    /// dat_rsp_query.
    fn rsp_query<T>(rsp: DAT_RSP_HANDLE, mask: DAT_RSP_PARAM_MASK, param: *mut DAT_RSP_PARAM) {
        let fields = (mask.into(), DAT_RSP_FIELD_ALL.into(), 2);
        handle::with_object::<Rsp<T>, _>(rsp, |rsp| {
            query(fields, param, DAT_RSP_PARAM::zeroed(), |param| rsp.query(param))
        })
    }

    /// dat_rsp_free.
    fn rsp_free<T>(rsp: DAT_RSP_HANDLE) {
        handle::with_exclusive(rsp, |rsp: &Node<Rsp<T>>| rsp::free(rsp))
    }

    /// dat_csp_create.
    fn csp_create<T>(
        ia: DAT_IA_HANDLE,
        comm: *mut DAT_COMM,
        address: DAT_IA_ADDRESS_PTR,
        cr_evd: DAT_EVD_HANDLE,
        csp: *mut DAT_CSP_HANDLE,
    ) {
        handle::check::<Ia<T>>(ia)?;
        let comm = comm.as_ref().ok_or(Error::arg(2))?;
        let cr_evd = pin_evd::<T>(cr_evd, DAT_INVALID_HANDLE_EVD_CR)?;
        let csp = out(csp, 5)?;
        let address = addr::parse(address)?;
        let ia = handle::pin(ia)?;
        let made = handle::pin_created(csp::create(&ia, comm, address, &cr_evd)?);
        csp.write(made.handle());
        Ok(())
    }

    /// dat_csp_query.
    fn csp_query<T>(csp: DAT_CSP_HANDLE, mask: DAT_CSP_PARAM_MASK, param: *mut DAT_CSP_PARAM) {
        let fields = (mask.into(), DAT_CSP_FIELD_ALL.into(), 2);
        handle::with_object::<Csp<T>, _>(csp, |csp| {
            query(fields, param, DAT_CSP_PARAM::zeroed(), |param| csp.query(param))
        })
    }

    /// dat_csp_free.
    fn csp_free<T>(csp: DAT_CSP_HANDLE) {
        handle::with_exclusive(csp, |csp: &Node<Csp<T>>| csp::free(csp))
    }

    /// dat_cr_query.
    fn cr_query<T>(cr: DAT_CR_HANDLE, mask: DAT_CR_PARAM_MASK, param: *mut DAT_CR_PARAM) {
        let fields = (mask.into(), DAT_CR_FIELD_ALL.into(), 2);
        handle::with_object::<Cr<T>, _>(cr, |cr| {
            query(fields, param, DAT_CR_PARAM::zeroed(), |param| cr.query(param))
        })
    }

    /// dat_cr_accept.
    fn cr_accept<T>(
        cr: DAT_CR_HANDLE,
        ep: DAT_EP_HANDLE,
        private_size: DAT_COUNT,
        private_data: DAT_PVOID,
    ) {
        handle::check::<Cr<T>>(cr)?;
        let ep = handle::pin_or_null::<Ep<T>>(ep)?;
        let private = private_slice(private_size, private_data, 3)?;
        handle::with_exclusive(cr, |cr| cr::accept(cr, ep.as_deref(), private))
    }

    /// dat_cr_reject.
    fn cr_reject<T>(cr: DAT_CR_HANDLE, private_size: DAT_COUNT, private_data: DAT_PVOID) {
        handle::check::<Cr<T>>(cr)?;
        let private = private_slice(private_size, private_data, 2)?;
        let begin = |cr: &Node<Cr<T>>| cr::begin_reject(cr, private);
        handle::with_exclusive(cr, begin)?.reject(private)
    }

    /// dat_cr_handoff.
    fn cr_handoff<T>(cr: DAT_CR_HANDLE, qualifier: DAT_CONN_QUAL) {
        let begin = |cr: &Node<Cr<T>>| cr::begin_hand_off(cr, qualifier);
        handle::with_exclusive(cr, begin)?.hand_off(qualifier);
        Ok(())
    }
}
