//! The functions of the function table that handle protection zones, memory regions and shared
//! receive queues.

use dat_sys::*;

use super::convert::{control_functions, out, query, with_lock};
use crate::ep::Ep;
use crate::error::{Error, Result};
use crate::handle::{self, Node};
use crate::ia::Ia;
use crate::mem::lmr::{self, Lmr, Memory};
use crate::mem::pz::{self, Pz};
use crate::mem::rmr::{self, Rmr};
use crate::provider::Transport;
use crate::srq::{self, Srq};

control_functions! {
    /// dat_pz_create.
    fn pz_create<T>(ia: DAT_IA_HANDLE, pz: *mut DAT_PZ_HANDLE) {
        let ia = handle::pin::<Ia<T>>(ia)?;
        let pz = out(pz, 2)?;
        pz.write(handle::pin_created(pz::create(&ia)?).handle());
        Ok(())
    }

    /// dat_pz_query.
    fn pz_query<T>(pz: DAT_PZ_HANDLE, mask: DAT_PZ_PARAM_MASK, param: *mut DAT_PZ_PARAM) {
        let fields = (mask.into(), DAT_PZ_FIELD_ALL.into(), 2);
        handle::with_object::<Pz<T>, _>(pz, |pz| {
            query(fields, param, DAT_PZ_PARAM::zeroed(), |param| pz.query(param))
        })
    }

    /// dat_pz_free.
    fn pz_free<T>(pz: DAT_PZ_HANDLE) {
        handle::with_exclusive(pz, |pz: &Node<Pz<T>>| pz::free(pz))
    }

    /// dat_lmr_create. As in OFED, `lmr` is required, and the pointers to the other results may be
    /// NULL.
    fn lmr_create<T>(
        ia: DAT_IA_HANDLE,
        mem_type: DAT_MEM_TYPE,
        region: DAT_REGION_DESCRIPTION,
        length: DAT_VLEN,
        pz: DAT_PZ_HANDLE,
        privileges: DAT_MEM_PRIV_FLAGS,
        va_type: DAT_VA_TYPE,
        lmr: *mut DAT_LMR_HANDLE,
        lmr_context: *mut DAT_LMR_CONTEXT,
        rmr_context: *mut DAT_RMR_CONTEXT,
        registered_length: *mut DAT_VLEN,
        registered_address: *mut DAT_VADDR,
    ) {
        handle::check::<Ia<T>>(ia)?;
        let pz = handle::pin::<Pz<T>>(pz);
        let of_region;
        let memory = match mem_type {
            DAT_MEM_TYPE_VIRTUAL => Memory::Virtual { addr: region.for_va, length },
            DAT_MEM_TYPE_LMR => {
                of_region = handle::pin::<Lmr<T>>(region.for_lmr_handle)?;
                Memory::Lmr(&of_region)
            }
            DAT_MEM_TYPE_SHARED_VIRTUAL => {
                let DAT_SHARED_MEMORY { virtual_address: addr, shared_memory_id } =
                    region.for_shared_memory;
                let cookie = *shared_memory_id.as_ref().ok_or(Error::arg(3))?;
                Memory::Shared { addr, length, cookie }
            }
            _ => return Err(Error::arg(2)),
        };
        // An error about the region takes precedence over an error about the protection zone.
        let pz = pz?;
        let lmr = out(lmr, 8)?;
        let mut param = DAT_LMR_PARAM::zeroed();
        let ia = handle::pin(ia)?;
        let made = handle::pin_created(lmr::create(&ia, memory, &pz, privileges, va_type)?);
        made.query(&mut param);
        lmr.write(made.handle());
        for (ptr, context) in [(lmr_context, param.lmr_context), (rmr_context, param.rmr_context)] {
            if let Some(out) = ptr.as_mut() {
                *out = context;
            }
        }
        for (ptr, value) in
            [
                (registered_length, param.registered_size),
                (registered_address, param.registered_address),
            ]
        {
            if let Some(out) = ptr.as_mut() {
                *out = value;
            }
        }
        Ok(())
    }

    /// dat_lmr_query.
    fn lmr_query<T>(lmr: DAT_LMR_HANDLE, mask: DAT_LMR_PARAM_MASK, param: *mut DAT_LMR_PARAM) {
        let fields = (mask.into(), DAT_LMR_FIELD_ALL.into(), 2);
        handle::with_object::<Lmr<T>, _>(lmr, |lmr| {
            query(fields, param, DAT_LMR_PARAM::zeroed(), |param| lmr.query(param))
        })
    }

    /// dat_lmr_free.
    fn lmr_free<T>(lmr: DAT_LMR_HANDLE) {
        handle::with_exclusive(lmr, |lmr: &Node<Lmr<T>>| lmr::free(lmr))
    }

    /// dat_rmr_create.
    fn rmr_create<T>(pz: DAT_PZ_HANDLE, rmr: *mut DAT_RMR_HANDLE) {
        handle::check::<Pz<T>>(pz)?;
        let rmr = out(rmr, 2)?;
        let create = |pz: &Node<Pz<T>>| rmr::create(pz, DAT_RMR_SCOPE_PZ);
        let made = handle::pin_created(handle::with_object(pz, create)?);
        rmr.write(made.handle());
        Ok(())
    }

    /// dat_rmr_create_for_ep.
    fn rmr_create_for_ep<T>(pz: DAT_PZ_HANDLE, rmr: *mut DAT_RMR_HANDLE) {
        handle::check::<Pz<T>>(pz)?;
        let rmr = out(rmr, 2)?;
        let create = |pz: &Node<Pz<T>>| rmr::create(pz, DAT_RMR_SCOPE_EP);
        let made = handle::pin_created(handle::with_object(pz, create)?);
        rmr.write(made.handle());
        Ok(())
    }

    /// dat_rmr_bind.
    fn rmr_bind<T, THREAD_SAFE>(
        rmr: DAT_RMR_HANDLE,
        lmr: DAT_LMR_HANDLE,
        triplet: *const DAT_LMR_TRIPLET,
        privileges: DAT_MEM_PRIV_FLAGS,
        va_type: DAT_VA_TYPE,
        ep: DAT_EP_HANDLE,
        cookie: DAT_RMR_COOKIE,
        flags: DAT_COMPLETION_FLAGS,
        context: *mut DAT_RMR_CONTEXT,
    ) {
        let rmr = handle::pin::<Rmr<T>>(rmr)?;
        if triplet.is_null() {
            return Err(Error::arg(3));
        }
        let to = triplet.read_unaligned();
        let context = out(context, 9)?;
        let cookie = cookie.as_64;
        handle::check::<Ep<T>>(ep)?;
        let lmr = if to.segment_length == 0 { None } else { Some(handle::pin::<Lmr<T>>(lmr)?) };
        let request = rmr::BindRequest { to, privileges, va_type, cookie, flags };
        with_lock::<THREAD_SAFE, _>(ep, || {
            let ep = handle::get::<Ep<T>>(ep)?;
            context.write(rmr::bind(&rmr, lmr.as_deref(), ep, &request)?);
            Ok(())
        })
    }

    /// dat_rmr_query.
    fn rmr_query<T>(rmr: DAT_RMR_HANDLE, mask: DAT_RMR_PARAM_MASK, param: *mut DAT_RMR_PARAM) {
        let fields = (mask.into(), DAT_RMR_FIELD_ALL.into(), 2);
        handle::with_object::<Rmr<T>, _>(rmr, |rmr| {
            query(fields, param, DAT_RMR_PARAM::zeroed(), |param| rmr.query(param))
        })
    }

    /// dat_rmr_free.
    fn rmr_free<T>(rmr: DAT_RMR_HANDLE) {
        handle::with_exclusive(rmr, |rmr: &Node<Rmr<T>>| rmr::free(rmr))
    }

    /// dat_lmr_sync_rdma_read.
    fn lmr_sync_rdma_read<T>(ia: DAT_IA_HANDLE, iov: *const DAT_LMR_TRIPLET, count: DAT_VLEN) {
        lmr::sync(&*handle::pin::<Ia<T>>(ia)?, segments_to_sync(iov, count)?)
    }

    /// dat_lmr_sync_rdma_write.
    fn lmr_sync_rdma_write<T>(ia: DAT_IA_HANDLE, iov: *const DAT_LMR_TRIPLET, count: DAT_VLEN) {
        lmr::sync(&*handle::pin::<Ia<T>>(ia)?, segments_to_sync(iov, count)?)
    }

    /// dat_srq_create.
    fn srq_create<T>(
        ia: DAT_IA_HANDLE,
        pz: DAT_PZ_HANDLE,
        attr: *mut DAT_SRQ_ATTR,
        srq: *mut DAT_SRQ_HANDLE,
    ) {
        handle::check::<Ia<T>>(ia)?;
        let pz = handle::pin::<Pz<T>>(pz)?;
        let attr = attr.as_ref().ok_or(Error::arg(3))?;
        let srq = out(srq, 4)?;
        let ia = handle::pin(ia)?;
        srq.write(handle::pin_created(srq::create(&ia, &pz, attr)?).handle());
        Ok(())
    }

    /// dat_srq_query.
    fn srq_query<T>(srq: DAT_SRQ_HANDLE, mask: DAT_SRQ_PARAM_MASK, param: *mut DAT_SRQ_PARAM) {
        let fields = (mask.into(), DAT_SRQ_FIELD_ALL.into(), 2);
        handle::with_object::<Srq<T>, _>(srq, |srq| {
            query(fields, param, DAT_SRQ_PARAM::zeroed(), |param| srq.query(param))
        })
    }

    /// dat_srq_resize.
    fn srq_resize<T, THREAD_SAFE>(srq: DAT_SRQ_HANDLE, max_recv_dtos: DAT_COUNT) {
        with_lock::<THREAD_SAFE, _>(srq, || handle::get::<Srq<T>>(srq)?.resize(max_recv_dtos))
    }

    /// dat_srq_set_lw.
    fn srq_set_lw<T>(srq: DAT_SRQ_HANDLE, low_watermark: DAT_COUNT) {
        handle::with_object::<Srq<T>, _>(srq, |srq| srq.set_low_watermark(low_watermark))
    }

    /// dat_srq_free.
    fn srq_free<T, THREAD_SAFE>(srq: DAT_SRQ_HANDLE) {
        handle::with_exclusive(srq, |srq: &Node<Srq<T>>| srq::free(srq))
    }
}

/// Returns the segments of a dat_lmr_sync call. `V` is the triplet of uDAPL 1.2 or 2.0. The
/// argument at position 2 is the pointer to them, and the argument at position 3 is their number.
///
/// # Safety
/// `iov` is NULL or leads to `count` triplets, which need not be aligned. They exist as long as the
/// result.
pub(super) unsafe fn segments_to_sync<V: Copy>(
    iov: *const V,
    count: DAT_VLEN,
) -> Result<impl Iterator<Item = V> + Clone> {
    let count = usize::try_from(count).map_err(|_| Error::arg(3))?;
    if count > isize::MAX as usize / size_of::<V>() {
        return Err(Error::arg(3));
    }
    if count > 0 && iov.is_null() {
        return Err(Error::arg(2));
    }
    // SAFETY: the caller fulfils the contract of this function.
    Ok((0..count).map(move |at| unsafe { iov.add(at).read_unaligned() }))
}
