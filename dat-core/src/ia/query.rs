//! dat_ia_query.

use std::ffi::{CStr, CString, c_char};

use dat_sys::ib::*;
use dat_sys::*;

use super::Ia;
use crate::addr::SockAddr;
use crate::provider::{Attrs, Transport};

/// The named attributes of features that every transport has. Consumers written for OFED (dtest and
/// dtestx) read these attributes before they use the features.
const PROVIDER: &[&CStr] = &[c"DAT_IB_RDMA_READ", c"DAT_EXTENSION_INTERFACE", DAT_IB_ATTR_COUNTERS];
/// The named attributes of atomic operations, which not every transport has.
const ATOMICS: &[&CStr] = &[DAT_IB_ATTR_FETCH_AND_ADD, DAT_IB_ATTR_CMP_AND_SWAP];
/// The named attributes of immediate data, which not every transport has.
const IMMEDIATE: &[&CStr] = &[DAT_IB_ATTR_IMMED_DATA];
/// The named attribute of datagrams, which not every transport has.
const DATAGRAMS: &[&CStr] = &[DAT_IB_ATTR_UD];
/// The name of the attribute that consumers such as dtestsrq use as the default length of their
/// buffers. Its value is the longest datagram.
const MTU: &CStr = c"DAT_IB_TRANSPORT_MTU";
/// The value of [`MTU`] for a transport without datagrams: the largest packet of InfiniBand. It
/// limits nothing.
const LARGEST_PACKET: u32 = 4096;

/// The attribute that says whether the adapter was opened with `strict=on`. Its value is `on` or
/// `off`.
const STRICT: &CStr = c"strict";

/// The data to which the results of queries point. It is valid as long as the adapter is open.
pub(super) struct QueryData {
    address: SockAddr,
    named: Vec<DAT_NAMED_ATTR>,
    provider: Vec<DAT_NAMED_ATTR>,
    /// The texts that `named` points to.
    _texts: Vec<CString>,
}

impl QueryData {
    pub(super) fn new(attrs: &Attrs) -> Self {
        let Attrs { address, named, atomics, immediate, strict, max_datagram, .. } = attrs;
        let mut texts = Vec::with_capacity(2 * named.len());
        let mut keep = |text: &str| {
            // A C string ends at the first NUL, so drop the rest of the text.
            let bytes: Vec<u8> = text.bytes().take_while(|b| *b != 0).collect();
            let text = CString::new(bytes).unwrap_or_default();
            let ptr = text.as_ptr();
            texts.push(text);
            ptr
        };
        let mtu = keep(&max_datagram.unwrap_or(LARGEST_PACKET).to_string());
        let named = named
            .iter()
            .map(|(name, value)| DAT_NAMED_ATTR { name: keep(name), value: keep(value) });
        let (name, value) = (STRICT.as_ptr(), if *strict { c"on" } else { c"off" }.as_ptr());
        let named = named.chain([DAT_NAMED_ATTR { name, value }]).collect();
        let atomics = if *atomics { ATOMICS } else { &[] };
        let immediate = if *immediate { IMMEDIATE } else { &[] };
        let datagrams = if max_datagram.is_some() { DATAGRAMS } else { &[] };
        let provider = PROVIDER.iter().chain(atomics).chain(immediate).chain(datagrams);
        let provider = provider
            .map(|name| DAT_NAMED_ATTR { name: name.as_ptr(), value: c"TRUE".as_ptr() })
            .chain([DAT_NAMED_ATTR { name: MTU.as_ptr(), value: mtu }]);
        QueryData { address: (*address).into(), named, provider: provider.collect(), _texts: texts }
    }
}

impl<T: Transport> Ia<T> {
    /// The EVD of asynchronous errors, as dat_ia_query reports it.
    pub fn async_evd_handle(&self) -> DAT_EVD_HANDLE {
        self.async_evd().map_or(DAT_EVD_OUT_OF_SCOPE, |evd| evd.handle())
    }

    /// The adapter's attributes.
    pub fn attributes(&self, out: &mut DAT_IA_ATTR) {
        let attrs = self.transport.attrs();
        let reads = attrs.max_read_depth as usize;
        *out = DAT_IA_ATTR {
            adapter_name: text(&attrs.adapter),
            vendor_name: text(&attrs.vendor),
            firmware_version_major: version().0,
            firmware_version_minor: version().1,
            ia_address_ptr: self.query_data.address.as_ptr(),
            max_eps: count(attrs.max_eps),
            max_dto_per_ep: count(attrs.max_dtos),
            max_rdma_read_per_ep_in: count(reads),
            max_rdma_read_per_ep_out: count(reads),
            max_evds: count(attrs.max_evds),
            max_evd_qlen: count(attrs.max_evd_depth),
            max_iov_segments_per_dto: count(attrs.max_segments),
            max_lmrs: count(attrs.max_regions),
            max_lmr_block_size: u32::try_from(attrs.max_region_size).unwrap_or(u32::MAX),
            max_lmr_virtual_address: usize::MAX as u64,
            max_pzs: count(attrs.max_pds),
            max_message_size: attrs.max_message,
            max_rdma_size: attrs.max_message,
            max_rmrs: count(attrs.max_windows),
            max_rmr_target_address: usize::MAX as u64,
            max_srqs: count(attrs.max_srqs),
            max_ep_per_srq: if attrs.max_srqs == 0 { 0 } else { count(attrs.max_eps) },
            max_recv_per_srq: count(attrs.max_srq_depth),
            max_iov_segments_per_rdma_read: count(attrs.max_read_segments),
            max_iov_segments_per_rdma_write: count(attrs.max_segments),
            max_rdma_read_in: count(reads.saturating_mul(attrs.max_eps)),
            max_rdma_read_out: count(reads.saturating_mul(attrs.max_eps)),
            max_rdma_read_per_ep_in_guaranteed: DAT_TRUE,
            max_rdma_read_per_ep_out_guaranteed: DAT_TRUE,
            zb_supported: dat_boolean(attrs.zero_based),
            num_transport_attr: count(self.query_data.named.len()),
            transport_attr: match self.query_data.named.as_slice() {
                [] => std::ptr::null_mut(),
                named => named.as_ptr().cast_mut(),
            },
            // Every adapter supports the extension, because the counters are always available.
            extension_supported: DAT_EXTENSION_IB,
            extension_version: DAT_IB_EXTENSION_VERSION as DAT_COUNT,
            // There are no vendor-specific attributes.
            ..DAT_IA_ATTR::zeroed()
        };
    }

    /// The provider's attributes.
    pub fn provider_attributes(&self, out: &mut DAT_PROVIDER_ATTR) {
        let attrs = self.transport.attrs();
        *out = DAT_PROVIDER_ATTR {
            provider_name: text(self.provider),
            provider_version_major: version().0,
            provider_version_minor: version().1,
            dapl_version_major: DAT_VERSION_MAJOR as u32,
            dapl_version_minor: DAT_VERSION_MINOR as u32,
            lmr_mem_types_supported: DAT_MEM_TYPE_VIRTUAL
                | DAT_MEM_TYPE_LMR
                | DAT_MEM_TYPE_SHARED_VIRTUAL,
            iov_ownership_on_return: DAT_IOV_CONSUMER,
            dat_qos_supported: DAT_QOS_BEST_EFFORT,
            completion_flags_supported: DAT_COMPLETION_SUPPRESS_FLAG
                | DAT_COMPLETION_SOLICITED_WAIT_FLAG
                | DAT_COMPLETION_UNSIGNALLED_FLAG
                | DAT_COMPLETION_BARRIER_FENCE_FLAG
                | DAT_COMPLETION_EVD_THRESHOLD_FLAG,
            is_thread_safe: dat_boolean(self.thread_safe),
            max_private_data_size: count(attrs.max_private),
            ep_creator: DAT_PSP_CREATES_EP_IFASKED,
            pz_support: DAT_PZ_UNIQUE,
            optimal_buffer_alignment: attrs.optimal_alignment,
            evd_stream_merging_supported: [[DAT_TRUE; 6]; 6],
            srq_supported: dat_boolean(attrs.max_srqs > 0),
            srq_watermarks_supported: EP_SOFT_WATERMARK
                | EP_HARD_WATERMARK
                | if attrs.max_srqs > 0 { SRQ_LOW_WATERMARK } else { 0 },
            srq_ep_pz_difference_supported: dat_boolean(attrs.max_srqs > 0 && attrs.srq_across_pds),
            srq_info_supported: if attrs.max_srqs > 0 {
                SRQ_AVAILABLE | SRQ_OUTSTANDING
            } else {
                0
            },
            ep_recv_info_supported: if attrs.knows_allocated {
                RECV_BUFFERS | RECV_SPAN
            } else {
                0
            },
            dto_async_return_guaranteed: DAT_TRUE,
            // The type has no value for "no scope". An adapter without windows reports 0 in
            // max_rmrs, and the value of this attribute then has no meaning.
            rmr_scope_supported: attrs.window_scopes,
            num_provider_specific_attr: count(self.query_data.provider.len()),
            provider_specific_attr: self.query_data.provider.as_ptr().cast_mut(),
            // The attributes that are zero say:
            //
            // - Memory is coherent.
            // - Peers need no access to the memory into which an RDMA read writes, and do not learn
            //   its address.
            // - There is one network path.
            // - No call may be made in a signal handler.
            ..DAT_PROVIDER_ATTR::zeroed()
        };
    }
}

// The constants are bits of three attributes. The headers define no names for these bits. The
// values are those in OFED's documentation.
const SRQ_LOW_WATERMARK: DAT_COUNT = 0x1;
const EP_SOFT_WATERMARK: DAT_COUNT = 0x10;
const EP_HARD_WATERMARK: DAT_COUNT = 0x100;
const SRQ_AVAILABLE: DAT_COUNT = 0x1;
const SRQ_OUTSTANDING: DAT_COUNT = 0x10;
const RECV_BUFFERS: DAT_COUNT = 0x1;
const RECV_SPAN: DAT_COUNT = 0x10;

/// The version of this library, as major and minor number.
fn version() -> (u32, u32) {
    let number = |text: &str| text.parse().unwrap_or(0);
    (number(env!("CARGO_PKG_VERSION_MAJOR")), number(env!("CARGO_PKG_VERSION_MINOR")))
}

fn count(n: usize) -> DAT_COUNT {
    DAT_COUNT::try_from(n).unwrap_or(DAT_COUNT::MAX)
}

/// Converts a text to a C field of fixed length. The text is cut if it does not fit, and the field
/// always ends with a NUL.
fn text(text: &str) -> [c_char; DAT_NAME_MAX_LENGTH] {
    let mut field = [0; DAT_NAME_MAX_LENGTH];
    let (_terminator, room) = field.split_last_mut().unwrap_or((&mut 0, &mut []));
    for (to, from) in room.iter_mut().zip(text.bytes()) {
        *to = from as c_char;
    }
    field
}

fn dat_boolean(yes: bool) -> DAT_BOOLEAN {
    if yes { DAT_TRUE } else { DAT_FALSE }
}
