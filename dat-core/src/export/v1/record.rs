//! Converts structures of 2.0 to 1.2, and structures that the consumer passes from 1.2 to 2.0.

use dat_sys::ib::DAT_IB_DTO_EVENT;
use dat_sys::*;

/// The error for a size that does not fit: sizes in arguments have 64 bits in 1.2 and 32 bits in
/// 2.0.
pub(super) struct TooLarge;

fn size(size: DAT_VLEN) -> Result<DAT_SEG_LENGTH, TooLarge> {
    DAT_SEG_LENGTH::try_from(size).map_err(|_| TooLarge)
}

/// Copies the members that have the same type in both versions.
macro_rules! copy_members {
    (
        $from:ident, $($to:ident)::+ { $($same:ident),* $(,)? }
        $(, $changed:ident: $value:expr)* $(,)?
    ) => {
        $($to)::+ { $($same: $from.$same,)* $($changed: $value,)* }
    };
}

pub(super) fn ep_attr_to_2_0(attr: &v1::DAT_EP_ATTR) -> Result<DAT_EP_ATTR, TooLarge> {
    Ok(copy_members!(
        attr,
        DAT_EP_ATTR {
            service_type, qos, recv_completion_flags, request_completion_flags, max_recv_dtos,
            max_request_dtos, max_recv_iov, max_request_iov, max_rdma_read_in, max_rdma_read_out,
            srq_soft_hw, max_rdma_read_iov, max_rdma_write_iov, ep_transport_specific_count,
            ep_transport_specific, ep_provider_specific_count, ep_provider_specific,
        },
        max_message_size: size(attr.max_message_size)?,
        max_rdma_size: size(attr.max_rdma_size)?,
    ))
}

pub(super) fn ep_attr(attr: &DAT_EP_ATTR) -> v1::DAT_EP_ATTR {
    copy_members!(
        attr,
        v1::DAT_EP_ATTR {
            service_type, qos, recv_completion_flags, request_completion_flags, max_recv_dtos,
            max_request_dtos, max_recv_iov, max_request_iov, max_rdma_read_in, max_rdma_read_out,
            srq_soft_hw, max_rdma_read_iov, max_rdma_write_iov, ep_transport_specific_count,
            ep_transport_specific, ep_provider_specific_count, ep_provider_specific,
        },
        max_message_size: attr.max_message_size.into(),
        max_rdma_size: attr.max_rdma_size.into(),
    )
}

/// Converts the parameters of dat_ep_modify. `mask` is a mask of 2.0. A size that the mask does not
/// select is ignored, because the consumer need not initialize it.
pub(super) fn ep_param_to_2_0(
    param: &v1::DAT_EP_PARAM,
    mask: DAT_EP_PARAM_MASK,
) -> Result<DAT_EP_PARAM, TooLarge> {
    let mut attr = param.ep_attr;
    if mask & DAT_EP_FIELD_EP_ATTR_MAX_MESSAGE_SIZE == 0 {
        attr.max_message_size = 0;
    }
    if mask & DAT_EP_FIELD_EP_ATTR_MAX_RDMA_SIZE == 0 {
        attr.max_rdma_size = 0;
    }
    Ok(copy_members!(
        param,
        DAT_EP_PARAM {
            ia_handle, ep_state, local_ia_address_ptr, local_port_qual, remote_ia_address_ptr,
            remote_port_qual, pz_handle, recv_evd_handle, request_evd_handle, connect_evd_handle,
            srq_handle,
        },
        comm: DAT_COMM::zeroed(),
        ep_attr: ep_attr_to_2_0(&attr)?,
    ))
}

pub(super) fn ep_param(param: &DAT_EP_PARAM) -> v1::DAT_EP_PARAM {
    copy_members!(
        param,
        v1::DAT_EP_PARAM {
            ia_handle, local_ia_address_ptr, local_port_qual, remote_ia_address_ptr,
            remote_port_qual, pz_handle, recv_evd_handle, request_evd_handle, connect_evd_handle,
            srq_handle,
        },
        ep_state: ep_state(param.ep_state),
        ep_attr: ep_attr(&param.ep_attr),
    )
}

/// Converts the state of an endpoint. uDAPL 2.0 has different states for connections with one path
/// and with several paths, and 1.2 has one state for both.
pub(super) fn ep_state(state: DAT_EP_STATE) -> DAT_EP_STATE {
    match state {
        DAT_EP_STATE_CONNECTED_SINGLE_PATH | DAT_EP_STATE_CONNECTED_MULTI_PATH => {
            DAT_EP_STATE_CONNECTED
        }
        state => state,
    }
}

/// Converts the record of an SRQ. The structure is the same in both versions, but the numbers of
/// the states differ.
pub(super) fn srq_param(param: &DAT_SRQ_PARAM) -> DAT_SRQ_PARAM {
    let srq_state = match param.srq_state {
        DAT_SRQ_STATE_OPERATIONAL => v1::DAT_SRQ_STATE_OPERATIONAL,
        _ => v1::DAT_SRQ_STATE_ERROR,
    };
    DAT_SRQ_PARAM { srq_state, ..*param }
}

pub(super) fn lmr_param(param: &DAT_LMR_PARAM) -> v1::DAT_LMR_PARAM {
    copy_members!(
        param,
        v1::DAT_LMR_PARAM {
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
}

pub(super) fn rmr_param(param: &DAT_RMR_PARAM) -> v1::DAT_RMR_PARAM {
    let triplet = &param.lmr_triplet;
    copy_members!(
        param,
        v1::DAT_RMR_PARAM { ia_handle, pz_handle, mem_priv, rmr_context },
        lmr_triplet: v1::DAT_LMR_TRIPLET {
            lmr_context: triplet.lmr_context,
            pad: 0,
            virtual_address: triplet.virtual_address,
            segment_length: triplet.segment_length.into(),
        },
    )
}

/// Converts a segment to 2.0. The length of a segment has 64 bits in 1.2 and 32 bits in 2.0.
pub(super) fn lmr_triplet_to_2_0(
    triplet: &v1::DAT_LMR_TRIPLET,
) -> Result<DAT_LMR_TRIPLET, TooLarge> {
    Ok(DAT_LMR_TRIPLET {
        virtual_address: triplet.virtual_address,
        segment_length: size(triplet.segment_length)?,
        lmr_context: triplet.lmr_context,
    })
}

pub(super) fn cno_param(param: &DAT_CNO_PARAM) -> v1::DAT_CNO_PARAM {
    let agent = match param.proxy_type {
        // SAFETY: `proxy_type` says that this member of the union is valid.
        DAT_PROXY_TYPE_AGENT => unsafe { param.proxy.agent },
        _ => DAT_OS_WAIT_PROXY_AGENT_NULL,
    };
    v1::DAT_CNO_PARAM { ia_handle: param.ia_handle, agent }
}

pub(super) fn ia_attr(attr: &DAT_IA_ATTR) -> v1::DAT_IA_ATTR {
    copy_members!(
        attr,
        v1::DAT_IA_ATTR {
            adapter_name, vendor_name, hardware_version_major, hardware_version_minor,
            firmware_version_major, firmware_version_minor, ia_address_ptr, max_eps, max_dto_per_ep,
            max_rdma_read_per_ep_in, max_rdma_read_per_ep_out, max_evds, max_evd_qlen,
            max_iov_segments_per_dto, max_lmrs, max_lmr_virtual_address, max_pzs, max_rmrs,
            max_rmr_target_address, max_srqs, max_ep_per_srq, max_recv_per_srq,
            max_iov_segments_per_rdma_read, max_iov_segments_per_rdma_write, max_rdma_read_in,
            max_rdma_read_out, max_rdma_read_per_ep_in_guaranteed,
            max_rdma_read_per_ep_out_guaranteed, num_transport_attr, transport_attr,
            num_vendor_attr, vendor_attr,
        },
        max_lmr_block_size: attr.max_lmr_block_size.into(),
        max_message_size: attr.max_message_size.into(),
        max_rdma_size: attr.max_rdma_size.into(),
    )
}

/// Converts the attributes of a provider. `pz_support` needs no conversion, because its values are
/// the same in both versions on Linux.
pub(super) fn provider_attr(attr: &DAT_PROVIDER_ATTR) -> v1::DAT_PROVIDER_ATTR {
    copy_members!(
        attr,
        v1::DAT_PROVIDER_ATTR {
            provider_name, provider_version_major, provider_version_minor, lmr_mem_types_supported,
            iov_ownership_on_return, dat_qos_supported, is_thread_safe, max_private_data_size,
            supports_multipath, ep_creator, pz_support, optimal_buffer_alignment,
            evd_stream_merging_supported, srq_supported, srq_watermarks_supported,
            srq_ep_pz_difference_supported, srq_info_supported, ep_recv_info_supported,
            lmr_sync_req, dto_async_return_guaranteed, rdma_write_for_rdma_read_req,
            num_provider_specific_attr, provider_specific_attr,
        },
        dapl_version_major: v1::DAT_VERSION_MAJOR as u32,
        dapl_version_minor: v1::DAT_VERSION_MINOR as u32,
        completion_flags_supported: attr.completion_flags_supported
            & !DAT_COMPLETION_LMR_INVALIDATE_FENCE_FLAG,
    )
}

/// Converts an event and writes it to `to`.
///
/// # Safety
/// `event` has a number, a handle and the data that belong to the number. `to` may be written to.
#[inline]
pub(super) unsafe fn write_event(event: *const DAT_EVENT, to: *mut v1::DAT_EVENT) {
    // SAFETY: the caller guarantees that the event is complete and that `to` may be written to.
    // Only the union member that the number selects is read.
    unsafe {
        let mut number = (*event).event_number;
        let data = &raw const (*event).event_data;
        let event_data = match (*event).event_number {
            // A peer that uses 2.0 can send a write with immediate data. uDAPL 1.2 has no event
            // number for the peer's receive, so the receive is reported as a normal completion.
            DAT_DTO_COMPLETION_EVENT | DAT_IB_DTO_EVENT => {
                number = DAT_DTO_COMPLETION_EVENT;
                let dto = (*data).dto_completion_event_data;
                v1::DAT_EVENT_DATA {
                    dto_completion_event_data: v1::DAT_DTO_COMPLETION_EVENT_DATA {
                        ep_handle: dto.ep_handle,
                        user_cookie: dto.user_cookie,
                        status: dto_status(dto.status),
                        transfered_length: dto.transfered_length.into(),
                    },
                }
            }
            DAT_RMR_BIND_COMPLETION_EVENT => {
                v1::DAT_EVENT_DATA { rmr_completion_event_data: (*data).rmr_completion_event_data }
            }
            DAT_CONNECTION_REQUEST_EVENT => {
                let cr = (*data).cr_arrival_event_data;
                v1::DAT_EVENT_DATA {
                    cr_arrival_event_data: v1::DAT_CR_ARRIVAL_EVENT_DATA {
                        sp_handle: v1::DAT_SP_HANDLE { psp_handle: cr.sp_handle.psp_handle },
                        local_ia_address_ptr: cr.local_ia_address_ptr,
                        conn_qual: cr.conn_qual,
                        cr_handle: cr.cr_handle,
                    },
                }
            }
            DAT_CONNECTION_EVENT_ESTABLISHED..=DAT_CONNECTION_EVENT_UNREACHABLE => {
                v1::DAT_EVENT_DATA { connect_event_data: (*data).connect_event_data }
            }
            DAT_SOFTWARE_EVENT => {
                v1::DAT_EVENT_DATA { software_event_data: (*data).software_event_data }
            }
            // All other events are asynchronous errors, since an adapter of 1.2 has no extensions.
            _ => v1::DAT_EVENT_DATA { asynch_error_event_data: (*data).asynch_error_event_data },
        };
        to.write(v1::DAT_EVENT {
            event_number: number,
            evd_handle: (*event).evd_handle,
            event_data,
        });
    }
}

#[inline]
fn dto_status(status: DAT_DTO_COMPLETION_STATUS) -> DAT_DTO_COMPLETION_STATUS {
    if status == DAT_DTO_ERR_LOCAL_MM_ERROR { DAT_DTO_ERR_LOCAL_PROTECTION } else { status }
}
