//! Converts structures that functions fill in, and structures that are passed to functions.
// `copied!` sets all members that are not listed to zero. In a few structures all members are
// listed.
#![allow(clippy::needless_update)]

use std::ptr::{from_ref, null, null_mut};

use dat_sys::*;

use super::functions::{changed, filled, status};
use super::mask;

/// Copies the members of a structure that have the same type in uDAPL 1.2 and 2.0.
macro_rules! copied {
    ($from:ident, $($to:ident)::+ { $($same:ident),* $(,)? } $(, $changed:ident: $value:expr)* $(,)?) => {
        $($to)::+ { $($same: $from.$same,)* $($changed: $value,)* ..$($to)::+::zeroed() }
    };
}

/// Converts a length, which has 64 bits in uDAPL 1.2 and 32 bits in 2.0.
fn length(bytes: DAT_VLEN) -> DAT_SEG_LENGTH {
    bytes.try_into().unwrap_or(DAT_SEG_LENGTH::MAX)
}

pub(super) unsafe extern "C" fn ia_query(
    ia: DAT_HANDLE,
    async_evd: *mut DAT_EVD_HANDLE,
    ia_mask: DAT_IA_ATTR_MASK,
    ia_attr: *mut DAT_IA_ATTR,
    provider_mask: DAT_PROVIDER_ATTR_MASK,
    provider_attr: *mut DAT_PROVIDER_ATTR,
) -> DAT_RETURN {
    let (mut old_ia, mut old_provider) =
        (v1::DAT_IA_ATTR::zeroed(), v1::DAT_PROVIDER_ATTR::zeroed());
    let to_ia = if ia_attr.is_null() { null_mut() } else { &raw mut old_ia };
    let to_provider = if provider_attr.is_null() { null_mut() } else { &raw mut old_provider };
    let (ia_mask, provider_mask) = (mask::ia(ia_mask), mask::provider(provider_mask));
    // SAFETY: the function comes from the loaded library. The out arguments are null or writable.
    unsafe {
        let requested = changed().dat_ia_query;
        let answer = status(requested(ia, async_evd, ia_mask, to_ia, provider_mask, to_provider));
        if answer == DAT_SUCCESS && ia_mask != 0 {
            ia_attr.write(ia_attr_of_2_0(&old_ia));
        }
        if answer == DAT_SUCCESS && provider_mask != 0 {
            provider_attr.write(provider_attr_of_2_0(&old_provider));
        }
        answer
    }
}

fn ia_attr_of_2_0(old: &v1::DAT_IA_ATTR) -> DAT_IA_ATTR {
    copied!(
        old,
        DAT_IA_ATTR {
            adapter_name, vendor_name, hardware_version_major, hardware_version_minor, firmware_version_major,
            firmware_version_minor, ia_address_ptr, max_eps, max_dto_per_ep, max_rdma_read_per_ep_in,
            max_rdma_read_per_ep_out, max_evds, max_evd_qlen, max_iov_segments_per_dto, max_lmrs,
            max_lmr_virtual_address, max_pzs, max_rmrs, max_rmr_target_address, max_srqs, max_ep_per_srq,
            max_recv_per_srq, max_iov_segments_per_rdma_read, max_iov_segments_per_rdma_write, max_rdma_read_in,
            max_rdma_read_out, max_rdma_read_per_ep_in_guaranteed, max_rdma_read_per_ep_out_guaranteed,
            num_transport_attr, transport_attr, num_vendor_attr, vendor_attr,
        },
        max_lmr_block_size: length(old.max_lmr_block_size),
        max_message_size: length(old.max_message_size),
        max_rdma_size: length(old.max_rdma_size),
    )
}

/// Converts the attributes of a provider from uDAPL 1.2 to 2.0. The attributes that only 2.0 has
/// become zero, for example the scope of RMRs.
fn provider_attr_of_2_0(old: &v1::DAT_PROVIDER_ATTR) -> DAT_PROVIDER_ATTR {
    let version = match (old.dapl_version_major, old.dapl_version_minor) {
        (1, 2) => (2, 0),
        other => other,
    };
    copied!(
        old,
        DAT_PROVIDER_ATTR {
            provider_name, provider_version_major, provider_version_minor, lmr_mem_types_supported,
            iov_ownership_on_return, dat_qos_supported, completion_flags_supported, is_thread_safe,
            max_private_data_size, supports_multipath, ep_creator, pz_support, optimal_buffer_alignment,
            evd_stream_merging_supported, srq_supported, srq_watermarks_supported,
            srq_ep_pz_difference_supported, srq_info_supported, ep_recv_info_supported, lmr_sync_req,
            dto_async_return_guaranteed, rdma_write_for_rdma_read_req, num_provider_specific_attr,
            provider_specific_attr,
        },
        dapl_version_major: version.0,
        dapl_version_minor: version.1,
    )
}

pub(super) unsafe extern "C" fn cno_query(
    cno: DAT_HANDLE,
    fields: DAT_CNO_PARAM_MASK,
    param: *mut DAT_CNO_PARAM,
) -> DAT_RETURN {
    // SAFETY: the function comes from the loaded library. The conformance case passes pointers that
    // are null or valid.
    let ask = |param| unsafe { (changed().dat_cno_query)(cno, mask::cno(fields), param) };
    let convert = |old: &v1::DAT_CNO_PARAM| DAT_CNO_PARAM {
        ia_handle: old.ia_handle,
        proxy_type: match old.agent.instance_data.is_null() && old.agent.proxy_agent_func.is_none()
        {
            true => DAT_PROXY_TYPE_NONE,
            false => DAT_PROXY_TYPE_AGENT,
        },
        proxy: DAT_CNO_PROXY { agent: old.agent },
    };
    // SAFETY: the conformance case passes a pointer that is null or valid.
    unsafe { filled(param, v1::DAT_CNO_PARAM::zeroed(), ask, convert) }
}

fn ep_attr(new: &DAT_EP_ATTR) -> v1::DAT_EP_ATTR {
    copied!(
        new,
        v1::DAT_EP_ATTR {
            service_type, qos, recv_completion_flags, request_completion_flags, max_recv_dtos, max_request_dtos,
            max_recv_iov, max_request_iov, max_rdma_read_in, max_rdma_read_out, srq_soft_hw, max_rdma_read_iov,
            max_rdma_write_iov, ep_transport_specific_count, ep_transport_specific, ep_provider_specific_count,
            ep_provider_specific,
        },
        max_message_size: new.max_message_size.into(),
        max_rdma_size: new.max_rdma_size.into(),
    )
}

fn ep_attr_of_2_0(old: &v1::DAT_EP_ATTR) -> DAT_EP_ATTR {
    copied!(
        old,
        DAT_EP_ATTR {
            service_type, qos, recv_completion_flags, request_completion_flags, max_recv_dtos, max_request_dtos,
            max_recv_iov, max_request_iov, max_rdma_read_in, max_rdma_read_out, srq_soft_hw, max_rdma_read_iov,
            max_rdma_write_iov, ep_transport_specific_count, ep_transport_specific, ep_provider_specific_count,
            ep_provider_specific,
        },
        max_message_size: length(old.max_message_size),
        max_rdma_size: length(old.max_rdma_size),
    )
}

pub(super) unsafe extern "C" fn ep_create(
    ia: DAT_HANDLE,
    pz: DAT_PZ_HANDLE,
    recv: DAT_EVD_HANDLE,
    request: DAT_EVD_HANDLE,
    connect: DAT_EVD_HANDLE,
    attr: *const DAT_EP_ATTR,
    ep: *mut DAT_EP_HANDLE,
) -> DAT_RETURN {
    // SAFETY: the function comes from the loaded library. The conformance case passes a pointer
    // that is null or valid.
    unsafe {
        let attr = attr.as_ref().map(ep_attr);
        let attr = attr.as_ref().map_or(null(), from_ref);
        status((changed().dat_ep_create)(ia, pz, recv, request, connect, attr, ep))
    }
}

#[allow(clippy::too_many_arguments)] // the standard's prototype
pub(super) unsafe extern "C" fn ep_create_with_srq(
    ia: DAT_HANDLE,
    pz: DAT_PZ_HANDLE,
    recv: DAT_EVD_HANDLE,
    request: DAT_EVD_HANDLE,
    connect: DAT_EVD_HANDLE,
    srq: DAT_SRQ_HANDLE,
    attr: *const DAT_EP_ATTR,
    ep: *mut DAT_EP_HANDLE,
) -> DAT_RETURN {
    // SAFETY: the function comes from the loaded library. The conformance case passes a pointer
    // that is null or valid.
    unsafe {
        let attr = attr.as_ref().map(ep_attr);
        let attr = attr.as_ref().map_or(null(), from_ref);
        status((changed().dat_ep_create_with_srq)(ia, pz, recv, request, connect, srq, attr, ep))
    }
}

pub(super) unsafe extern "C" fn ep_query(
    ep: DAT_HANDLE,
    fields: DAT_EP_PARAM_MASK,
    param: *mut DAT_EP_PARAM,
) -> DAT_RETURN {
    // SAFETY: the function comes from the loaded library. The conformance case passes pointers that
    // are null or valid.
    let ask = |param| unsafe { (changed().dat_ep_query)(ep, mask::ep(fields), param) };
    let convert = |old: &v1::DAT_EP_PARAM| {
        copied!(
            old,
            DAT_EP_PARAM {
                ia_handle, ep_state, local_ia_address_ptr, local_port_qual, remote_ia_address_ptr,
                remote_port_qual, pz_handle, recv_evd_handle, request_evd_handle, connect_evd_handle, srq_handle,
            },
            ep_attr: ep_attr_of_2_0(&old.ep_attr),
        )
    };
    // SAFETY: the conformance case passes a pointer that is null or valid.
    unsafe { filled(param, v1::DAT_EP_PARAM::zeroed(), ask, convert) }
}

pub(super) unsafe extern "C" fn ep_modify(
    ep: DAT_HANDLE,
    fields: DAT_EP_PARAM_MASK,
    param: *const DAT_EP_PARAM,
) -> DAT_RETURN {
    // SAFETY: the conformance case passes a pointer that is null or valid.
    let old = unsafe { param.as_ref() }.map(|new| {
        copied!(
            new,
            v1::DAT_EP_PARAM {
                ia_handle, ep_state, local_ia_address_ptr, local_port_qual, remote_ia_address_ptr,
                remote_port_qual, pz_handle, recv_evd_handle, request_evd_handle, connect_evd_handle, srq_handle,
            },
            ep_attr: ep_attr(&new.ep_attr),
        )
    });
    // SAFETY: the function comes from the loaded library. The converted structure exists during the
    // call.
    status(unsafe {
        (changed().dat_ep_modify)(ep, mask::ep(fields), old.as_ref().map_or(null(), from_ref))
    })
}

#[allow(clippy::too_many_arguments)] // the standard's prototype
pub(super) unsafe extern "C" fn lmr_create(
    ia: DAT_HANDLE,
    mem_type: DAT_MEM_TYPE,
    region: DAT_REGION_DESCRIPTION,
    size: DAT_VLEN,
    pz: DAT_PZ_HANDLE,
    privileges: DAT_MEM_PRIV_FLAGS,
    _va_type: DAT_VA_TYPE,
    lmr: *mut DAT_LMR_HANDLE,
    lmr_context: *mut DAT_LMR_CONTEXT,
    rmr_context: *mut DAT_RMR_CONTEXT,
    registered: *mut DAT_VLEN,
    address: *mut DAT_VADDR,
) -> DAT_RETURN {
    let create = changed().dat_lmr_create;
    // SAFETY: the function comes from the loaded library. The conformance case passes pointers that
    // are null or valid.
    status(unsafe {
        create(
            ia,
            mem_type,
            region,
            size,
            pz,
            privileges,
            lmr,
            lmr_context,
            rmr_context,
            registered,
            address,
        )
    })
}

pub(super) unsafe extern "C" fn lmr_query(
    lmr: DAT_HANDLE,
    fields: DAT_LMR_PARAM_MASK,
    param: *mut DAT_LMR_PARAM,
) -> DAT_RETURN {
    // SAFETY: the function comes from the loaded library. The conformance case passes pointers that
    // are null or valid.
    let ask = |param| unsafe { (changed().dat_lmr_query)(lmr, mask::lmr(fields), param) };
    let convert = |old: &v1::DAT_LMR_PARAM| {
        copied!(
            old,
            DAT_LMR_PARAM {
                ia_handle,
                mem_type,
                region_desc,
                length,
                pz_handle,
                mem_priv,
                lmr_context,
                rmr_context,
                registered_size,
                registered_address,
            },
        )
    };
    // SAFETY: the conformance case passes a pointer that is null or valid.
    unsafe { filled(param, v1::DAT_LMR_PARAM::zeroed(), ask, convert) }
}

pub(super) unsafe extern "C" fn rmr_query(
    rmr: DAT_HANDLE,
    fields: DAT_RMR_PARAM_MASK,
    param: *mut DAT_RMR_PARAM,
) -> DAT_RETURN {
    // SAFETY: the function comes from the loaded library. The conformance case passes pointers that
    // are null or valid.
    let ask = |param| unsafe { (changed().dat_rmr_query)(rmr, mask::rmr(fields), param) };
    let convert = |old: &v1::DAT_RMR_PARAM| {
        let segment = old.lmr_triplet;
        copied!(
            old,
            DAT_RMR_PARAM { ia_handle, pz_handle, mem_priv, rmr_context },
            lmr_triplet: DAT_LMR_TRIPLET {
                virtual_address: segment.virtual_address,
                segment_length: length(segment.segment_length),
                lmr_context: segment.lmr_context,
            },
        )
    };
    // SAFETY: the conformance case passes a pointer that is null or valid.
    unsafe { filled(param, v1::DAT_RMR_PARAM::zeroed(), ask, convert) }
}

/// Calls dat_srq_query. The structure is the same in uDAPL 1.2 and 2.0, but the states have
/// different numbers.
pub(super) unsafe extern "C" fn srq_query(
    srq: DAT_HANDLE,
    fields: DAT_SRQ_PARAM_MASK,
    param: *mut DAT_SRQ_PARAM,
) -> DAT_RETURN {
    // SAFETY: the function comes from the loaded library. The conformance case passes pointers that
    // are null or valid.
    let ask = |param| unsafe { (changed().dat_srq_query)(srq, fields, param) };
    let convert = |old: &DAT_SRQ_PARAM| DAT_SRQ_PARAM {
        srq_state: match old.srq_state {
            v1::DAT_SRQ_STATE_OPERATIONAL => DAT_SRQ_STATE_OPERATIONAL,
            _ => DAT_SRQ_STATE_ERROR,
        },
        ..*old
    };
    // SAFETY: the conformance case passes a pointer that is null or valid.
    unsafe { filled(param, DAT_SRQ_PARAM::zeroed(), ask, convert) }
}
