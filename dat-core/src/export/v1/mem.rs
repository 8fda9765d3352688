//! The functions of the 1.2 table for memory regions and shared receive queues.

use dat_sys::*;

use super::convert::{query, refuse, renumber, v1_functions};
use super::record::lmr_triplet_to_2_0;
use super::{mask, record};
use crate::error::Error;
use crate::export::convert::{Call, control_call};
use crate::export::mem::{self, segments_to_sync};
use crate::handle::{self, Node};
use crate::ia::Ia;
use crate::mem::lmr::{self, Lmr};
use crate::mem::rmr::Rmr;
use crate::provider::Transport;

v1_functions! {
    /// dat_lmr_create. In uDAPL 1.2 a region is always addressed by virtual addresses.
    fn lmr_create<T>(
        ia: DAT_IA_HANDLE,
        mem_type: DAT_MEM_TYPE,
        region: DAT_REGION_DESCRIPTION,
        length: DAT_VLEN,
        pz: DAT_PZ_HANDLE,
        privileges: DAT_MEM_PRIV_FLAGS,
        lmr: *mut DAT_LMR_HANDLE,
        lmr_context: *mut DAT_LMR_CONTEXT,
        rmr_context: *mut DAT_RMR_CONTEXT,
        registered_length: *mut DAT_VLEN,
        registered_address: *mut DAT_VADDR,
    ) {
        let status = mem::lmr_create::<T>(
            ia, mem_type, region, length, pz, privileges, DAT_VA_TYPE_VA, lmr, lmr_context,
            rmr_context, registered_length, registered_address,
        );
        // The seventh argument of 2.0 is the type of addresses. It does not exist in 1.2.
        renumber(status, |argument| if argument > 7 { argument - 1 } else { argument })
    }

    /// dat_lmr_query.
    fn lmr_query<T>(
        lmr: DAT_LMR_HANDLE,
        mask: v1::DAT_LMR_PARAM_MASK,
        param: *mut v1::DAT_LMR_PARAM,
    ) {
        let ask = |param: *mut _| mem::lmr_query::<T>(lmr, mask::lmr(mask), param);
        query(mask != 0, param, DAT_LMR_PARAM::zeroed(), ask, record::lmr_param)
    }

    /// dat_lmr_sync_rdma_read.
    fn lmr_sync_rdma_read<T>(ia: DAT_IA_HANDLE, iov: *const v1::DAT_LMR_TRIPLET, count: DAT_VLEN) {
        sync::<T>(&const { Call::new("lmr_sync_rdma_read") }, ia, iov, count)
    }

    /// dat_lmr_sync_rdma_write.
    fn lmr_sync_rdma_write<T>(ia: DAT_IA_HANDLE, iov: *const v1::DAT_LMR_TRIPLET, count: DAT_VLEN) {
        sync::<T>(&const { Call::new("lmr_sync_rdma_write") }, ia, iov, count)
    }

    /// dat_rmr_query.
    fn rmr_query<T>(
        rmr: DAT_RMR_HANDLE,
        mask: v1::DAT_RMR_PARAM_MASK,
        param: *mut v1::DAT_RMR_PARAM,
    ) {
        let ask = |param: *mut _| mem::rmr_query::<T>(rmr, mask::rmr(mask), param);
        query(mask != 0, param, DAT_RMR_PARAM::zeroed(), ask, record::rmr_param)
    }

    /// dat_rmr_bind. The context in the triplet names the region. If the length in the triplet is
    /// 0, the call unbinds the RMR, and there is no region.
    fn rmr_bind<T, THREAD_SAFE>(
        rmr: DAT_RMR_HANDLE,
        triplet: *const v1::DAT_LMR_TRIPLET,
        privileges: DAT_MEM_PRIV_FLAGS,
        ep: DAT_EP_HANDLE,
        cookie: DAT_RMR_COOKIE,
        flags: DAT_COMPLETION_FLAGS,
        context: *mut DAT_RMR_CONTEXT,
    ) {
        const TRIPLET_ARG: u32 = 2;
        let triplet = (!triplet.is_null()).then(|| lmr_triplet_to_2_0(&triplet.read_unaligned()));
        let Some(Ok(triplet)) = triplet else {
            return refuse::<Rmr<T>>(rmr, Error::arg(TRIPLET_ARG));
        };
        let named = handle::with_object::<Rmr<T>, _>(rmr, |rmr| match triplet.segment_length {
            0 => Ok(DAT_HANDLE_NULL),
            _ => find(rmr, triplet.lmr_context).ok_or(Error::arg(TRIPLET_ARG)),
        });
        let lmr = match named {
            Ok(lmr) => lmr,
            Err(error) if error == Error::arg(TRIPLET_ARG) => return refuse::<Rmr<T>>(rmr, error),
            // The 2.0 function refuses the RMR before it uses the region.
            Err(_) => DAT_HANDLE_NULL,
        };
        let status = mem::rmr_bind::<T, THREAD_SAFE>(
            rmr, lmr, &triplet, privileges, DAT_VA_TYPE_VA, ep, cookie, flags, context,
        );
        renumber(status, |argument| match argument {
            1 => 1,
            // In 1.2 the triplet alone names the region, and there is no argument for the type of
            // addresses. So errors about both become errors about the triplet.
            2 | 3 | 5 => TRIPLET_ARG,
            4 => 3,
            later => later - 2,
        })
    }

    /// dat_srq_query.
    fn srq_query<T>(srq: DAT_SRQ_HANDLE, mask: DAT_SRQ_PARAM_MASK, param: *mut DAT_SRQ_PARAM) {
        let ask = |param: *mut _| mem::srq_query::<T>(srq, mask, param);
        query(mask != 0, param, DAT_SRQ_PARAM::zeroed(), ask, record::srq_param)
    }
}

/// Returns the region that has this context, among the regions of the RMR's adapter.
fn find<T: Transport>(rmr: &Node<Rmr<T>>, context: DAT_LMR_CONTEXT) -> Option<DAT_LMR_HANDLE> {
    let _control = rmr.ia.control();
    // SAFETY: the control lock is held, and the region is not used outside this function.
    let lmr = unsafe { rmr.ia.find::<Lmr<T>>(|lmr| lmr.context() == context) };
    lmr.map(Node::handle)
}

/// The size of a process's address space in bytes. No region is larger.
const ADDRESSES: u64 = 1 << 47;

/// Implements dat_lmr_sync_rdma_read and dat_lmr_sync_rdma_write.
///
/// # Safety
/// `iov` is NULL or leads to `count` triplets, which need not be aligned.
unsafe fn sync<T: Transport>(
    call: &Call,
    ia: DAT_IA_HANDLE,
    iov: *const v1::DAT_LMR_TRIPLET,
    count: DAT_VLEN,
) -> DAT_RETURN {
    // SAFETY: the caller fulfils the contract of this function.
    control_call(call, ia as usize, || unsafe {
        let ia = handle::pin::<Ia<T>>(ia)?;
        let segments = segments_to_sync(iov, count)?;
        if segments.clone().any(|segment| segment.segment_length > ADDRESSES) {
            return Err(Error::arg(2));
        }
        lmr::sync(&ia, segments.flat_map(parts))
    })
}

/// Splits a segment whose length has 64 bits into segments whose lengths have 32 bits.
fn parts(segment: v1::DAT_LMR_TRIPLET) -> impl Iterator<Item = DAT_LMR_TRIPLET> {
    const MAX_PART_BYTES: u64 = DAT_SEG_LENGTH::MAX as u64;
    let (start, length) = (segment.virtual_address, segment.segment_length);
    let lmr_context = segment.lmr_context;
    (0..length.div_ceil(MAX_PART_BYTES)).map(move |part| DAT_LMR_TRIPLET {
        virtual_address: start.wrapping_add(part * MAX_PART_BYTES),
        segment_length: (length - part * MAX_PART_BYTES).min(MAX_PART_BYTES) as DAT_SEG_LENGTH,
        lmr_context,
    })
}
