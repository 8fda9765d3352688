//! The members of the structures of 2.0 that describe endpoints, queues, event dispatchers,
//! adapters and providers. `about` says what the value of the member does:
//!
//! - *Enforced*: the provider refuses or prevents what exceeds the value.
//! - *Refused*: a value that the provider does not support makes the call fail. The member has no
//!   other effect.
//! - *Reported*: the member only informs the consumer. The provider does not enforce it.
//! - *Behaves as it says*: the member describes what the provider does.

use super::{Point, at, untested};

/// The structures, each with the function that has it as an argument, and its members.
pub(super) const STRUCTURES: &[(&str, &str, &[Point])] = &[
    ("DAT_EP_ATTR", "dat_ep_create", EP_ATTR),
    ("DAT_SRQ_ATTR", "dat_srq_create", SRQ_ATTR),
    ("DAT_EVD_PARAM", "dat_evd_query", EVD_PARAM),
    ("DAT_IA_ATTR", "dat_ia_query", IA_ATTR),
    ("DAT_PROVIDER_ATTR", "dat_ia_query", PROVIDER_ATTR),
];

const EP_ATTR: &[Point] = &[
    at(
        "service_type",
        "Reliable connections, and datagrams if the provider lists DAT_IB_UD. Other values are \
         refused",
        "dat_ep_create/service-type, dat_extension_op/datagrams-by-name-only, \
         dat_extension_op/ud-service-type",
    ),
    at(
        "max_message_size",
        "A value above the adapter's maximum is refused. The value is enforced with `strict=on`, \
         and otherwise reported",
        "dat_ep_create/max-message-size, dat_ia_query/max-message-and-rdma-size",
    ),
    at(
        "max_rdma_size",
        "A value above the adapter's maximum is refused. The value is enforced with `strict=on`, \
         and otherwise reported",
        "dat_ep_create/max-rdma-size, dat_ia_query/max-message-and-rdma-size",
    ),
    at("qos", "Only best effort is available. Other values are refused", "dat_ep_create/qos"),
    at(
        "recv_completion_flags",
        "Flags that the stream cannot have are refused. The other flags are enforced",
        "dat_ep_create/recv-flags, dat_ep_post_recv/flags, dat_ep_post_send/solicited-wait",
    ),
    at(
        "request_completion_flags",
        "Flags that the stream cannot have are refused. The other flags are enforced",
        "dat_ep_create/request-flags, dat_ep_post_rdma_write/unsignalled-not-configured, \
         dat_ep_post_send/unsignalled-not-configured",
    ),
    at(
        "max_recv_dtos",
        "A value above the adapter's maximum is refused. The value is enforced; for an EP on an \
         SRQ it is only reported",
        "dat_ep_post_recv/too-many, dat_ia_query/max-dto-per-ep, dat_ep_create_with_srq/exact",
    ),
    at(
        "max_request_dtos",
        "A value above the adapter's maximum is refused. The value is enforced",
        "dat_ep_post_send/too-many, dat_ep_post_rdma_write/out-of-resources, \
         dat_ia_query/max-dto-per-ep",
    ),
    at(
        "max_recv_iov",
        "A value above the adapter's maximum is refused. The value is enforced; for an EP on an \
         SRQ it is ignored",
        "dat_ep_post_recv/bad-arguments, dat_ia_query/max-iov-segments, \
         dat_ep_create_with_srq/exact-others",
    ),
    at(
        "max_request_iov",
        "A value above the adapter's maximum is refused. The value is enforced",
        "dat_ep_post_send/bad-arguments, dat_ia_query/max-iov-segments",
    ),
    at(
        "max_rdma_read_in",
        "A value above the adapter's maximum is refused. The value is reported: reads of the peer \
         beyond it wait",
        "dat_ia_query/max-rdma-reads, dat_ep_create_with_srq/reads-have-resources",
    ),
    at(
        "max_rdma_read_out",
        "A value above the adapter's maximum is refused. The value is enforced: posted reads \
         beyond it wait",
        "dat_ia_query/max-rdma-reads, dat_ep_post_rdma_read/more-than-the-depth",
    ),
    at(
        "srq_soft_hw",
        "A value below -1 is refused. An event reports that the value is exceeded. Without \
         `strict=on`, 0 means that there is no watermark",
        "dat_ep_create_with_srq/soft-watermark, dat_ep_create_with_srq/soft-watermark-of-zero",
    ),
    at(
        "max_rdma_read_iov",
        "A value above the adapter's maximum is refused. The value is enforced",
        "dat_ep_post_rdma_read/too-many-segments, dat_ep_create/read-and-write-iov, \
         dat_ep_create_with_srq/read-iov-too-large",
    ),
    at(
        "max_rdma_write_iov",
        "A value above the adapter's maximum is refused. The value is enforced",
        "dat_ep_post_rdma_write/too-many-segments, dat_ep_create/read-and-write-iov",
    ),
    at(
        "ep_transport_specific_count, ep_transport_specific",
        "Named attributes are refused, because the provider knows none",
        "dat_ep_create/specific-attributes",
    ),
    at(
        "ep_provider_specific_count, ep_provider_specific",
        "Named attributes are refused, because the provider knows none",
        "dat_ep_create/specific-attributes",
    ),
];

const SRQ_ATTR: &[Point] = &[
    at(
        "max_recv_dtos",
        "A value above the adapter's maximum is refused. The value is enforced: the queue has at \
         least this size",
        "dat_srq_post_recv/too-many, dat_srq_create/at-least, dat_srq_create/bad-arguments",
    ),
    at(
        "max_recv_iov",
        "A value above the adapter's maximum is refused. The value is enforced: the queue has at \
         least this size",
        "dat_srq_post_recv/bad-arguments, dat_srq_create/impossible-attributes",
    ),
    at(
        "low_watermark",
        "A value above max_recv_dtos is refused. An event reports that the SRQ has fewer buffers \
         than the value",
        "dat_srq_create/low-watermark, dat_srq_create/impossible-attributes, dat_srq_set_lw/*",
    ),
];

/// The result of dat_evd_query. Its members are also the parameters of dat_evd_create.
const EVD_PARAM: &[Point] = &[
    at("ia_handle", "The value is enforced", "dat_evd_create/null-ia, dat_evd_query/parameters"),
    at(
        "evd_qlen",
        "A value above the adapter's maximum is refused. The value is enforced: the queue has at \
         least this size, and then overflows",
        "dat_evd_create/overflow, dat_evd_create/queue-length-is-a-minimum, \
         dat_evd_create/no-queue, dat_ia_query/max-evd-qlen",
    ),
    at(
        "evd_state",
        "The value is enforced: the state determines waiting, notification and configuration",
        "dat_evd_set_unwaitable/*, dat_evd_disable/no-trigger, dat_evd_enable/triggers-again, \
         dat_evd_query/parameters",
    ),
    at(
        "cno_handle",
        "The value is enforced",
        "dat_evd_create/freed-cno, dat_evd_modify_cno/*, dat_cno_wait/each-evd",
    ),
    at(
        "evd_flags",
        "Unknown flags, and no flags at all, are refused. The flags are enforced",
        "dat_evd_create/no-streams, dat_evd_create/impossible-parameters, \
         dat_evd_post_se/other-stream, dat_ep_create/evd-recv-other-stream",
    ),
];

const IA_ATTR: &[Point] = &[
    at("adapter_name", "The member is only reported", "dat_ia_query/adapter-name"),
    at("vendor_name", "The member is only reported", "dat_ia_query/names-are-terminated"),
    untested(
        "hardware_version_major, hardware_version_minor, firmware_version_major, \
         firmware_version_minor",
        "The member is only reported",
        "every number is correct",
    ),
    at(
        "ia_address_ptr",
        "The member is only reported: peers reach the adapter at this address",
        "dat_ia_query/address",
    ),
    at(
        "max_eps, max_evds, max_lmrs, max_pzs",
        "The value is enforced",
        "dat_ia_query/limits-are-positive",
    )
    .except(
        "the limits themselves, because so many objects would take all memory of the machine. \
          `dat-core/tests/limits.rs` tests a transport with small limits",
    ),
    at("max_dto_per_ep", "The value is enforced", "dat_ia_query/max-dto-per-ep"),
    at(
        "max_rdma_read_per_ep_in, max_rdma_read_per_ep_out",
        "The value is enforced",
        "dat_ia_query/max-rdma-reads",
    ),
    at("max_evd_qlen", "The value is enforced", "dat_ia_query/max-evd-qlen"),
    at("max_iov_segments_per_dto", "The value is enforced", "dat_ia_query/max-iov-segments"),
    at("max_lmr_block_size", "The value is enforced", "dat_ia_query/limits-are-positive")
        .except("the limit itself, which is larger than the memory of a machine"),
    at(
        "max_lmr_virtual_address, max_rmr_target_address",
        "The member is only reported: every address is allowed",
        "dat_ia_query/max-lmr-virtual-address",
    ),
    at(
        "max_message_size, max_rdma_size",
        "The value is enforced",
        "dat_ia_query/max-message-and-rdma-size",
    ),
    at("max_rmrs", "The value is enforced", "dat_ia_query/max-rmrs"),
    at(
        "max_srqs, max_ep_per_srq",
        "The value is enforced, and tested like max_eps",
        "dat_ia_query/srq-limits",
    ),
    at(
        "max_recv_per_srq",
        "The value is enforced",
        "dat_ia_query/srq-limits, dat_srq_create/bad-arguments",
    ),
    at(
        "max_iov_segments_per_rdma_read, max_iov_segments_per_rdma_write",
        "The value is enforced",
        "dat_ep_create/read-and-write-iov, dat_ia_query/iov-and-read-limits",
    ),
    at(
        "max_rdma_read_in, max_rdma_read_out",
        "The member is only reported: the value is the total of all EPs",
        "dat_ia_query/iov-and-read-limits",
    ),
    at(
        "max_rdma_read_per_ep_in_guaranteed, max_rdma_read_per_ep_out_guaranteed",
        "The member is only reported",
        "dat_ia_query/iov-and-read-limits",
    ),
    at(
        "zb_supported",
        "The value is enforced",
        "dat_lmr_create/zero-based, dat_ia_query/truth-values-of-2-0",
    ),
    at(
        "extension_supported, extension_version",
        "The member is only reported",
        "dat_extension_op/attributes",
    ),
    at(
        "num_transport_attr, transport_attr, num_vendor_attr, vendor_attr",
        "The member is only reported",
        "dat_ia_query/named-attributes",
    ),
];

const PROVIDER_ATTR: &[Point] = &[
    at("provider_name", "The member is only reported", "dat_ia_query/names-are-terminated"),
    untested(
        "provider_version_major, provider_version_minor",
        "The member is only reported",
        "every number is correct",
    ),
    at(
        "dapl_version_major, dapl_version_minor",
        "The member is only reported",
        "dat_ia_query/api-version",
    ),
    at(
        "lmr_mem_types_supported",
        "The value is enforced",
        "dat_ia_query/memory-types, dat_lmr_create/shared-virtual, dat_lmr_create/of-an-lmr",
    ),
    at(
        "iov_ownership_on_return",
        "The provider behaves as the member says",
        "dat_ia_query/iov-ownership",
    ),
    at("dat_qos_supported", "The value is enforced", "dat_ia_query/qos, dat_ep_create/qos"),
    at(
        "completion_flags_supported",
        "The provider behaves as the member says",
        "dat_ia_query/completion-flags",
    ),
    at(
        "is_thread_safe",
        "The provider behaves as the member says",
        "dat_ia_query/thread-safety, dat_ia_query/provider-truth-values",
    ),
    at(
        "max_private_data_size",
        "The value is enforced",
        "dat_ia_query/private-data-size, dat_ep_connect/too-much-private-data",
    ),
    at("supports_multipath", "The value is enforced", "dat_ia_query/multipath"),
    at("ep_creator", "The value is enforced", "dat_ia_query/ep-creator"),
    at("pz_support", "The value is enforced", "dat_ia_query/pz-support, dat_ep_create/pz-other-ia"),
    at("optimal_buffer_alignment", "The member is only reported", "dat_ia_query/optimal-alignment"),
    at("evd_stream_merging_supported", "The value is enforced", "dat_ia_query/merging-matrix"),
    at("srq_supported", "The value is enforced", "dat_ia_query/srq-limits"),
    at("srq_watermarks_supported", "The value is enforced", "dat_ia_query/watermarks"),
    at(
        "srq_ep_pz_difference_supported",
        "The value is enforced",
        "dat_ep_create_with_srq/different-pz",
    ),
    at("srq_info_supported", "The provider behaves as the member says", "dat_ia_query/srq-info"),
    at(
        "ep_recv_info_supported",
        "The provider behaves as the member says",
        "dat_ep_recv_query/attribute",
    ),
    at(
        "lmr_sync_req",
        "The member is only reported: consumers need not synchronize memory, because it is \
         coherent",
        "dat_ia_query/provider-truth-values, dat_lmr_sync_rdma_read/checks",
    ),
    at(
        "dto_async_return_guaranteed",
        "The provider behaves as the member says",
        "dat_ia_query/asynchronous-returns",
    ),
    at(
        "rdma_write_for_rdma_read_req",
        "The provider behaves as the member says",
        "dat_ia_query/reads-and-remote-write",
    ),
    at(
        "rdma_read_lmr_rmr_context_exposure",
        "The member is only reported: no peer learns the context of a read's memory",
        "dat_ia_query/truth-values-of-2-0",
    ),
    at("rmr_scope_supported", "The value is enforced", "dat_ia_query/rmr-scopes"),
    at(
        "is_signal_safe",
        "The member is only reported: calls in signal handlers are not allowed",
        "dat_ia_query/truth-values-of-2-0",
    ),
    at(
        "ha_supported, ha_loadbalancing",
        "The member is only reported: the provider supports neither high availability nor load \
         balancing",
        "dat_ia_query/truth-values-of-2-0",
    ),
    at(
        "num_provider_specific_attr, provider_specific_attr",
        "The member is only reported",
        "dat_ia_query/named-attributes, dat_extension_op/attributes",
    ),
];
