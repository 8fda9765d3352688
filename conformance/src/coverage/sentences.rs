//! The sentences of the five pages that the suite covers one by one.
//!
//! The place of a sentence is the section and the paragraph of the page, the sentence in the
//! paragraph, or an item of a list. `about` summarizes the sentence in other words. Names of cases
//! omit the function if it is that of the page.

use super::{Point, at, untested};

const UNDEFINED: &str = "the standard leaves this undefined";
const PERMITTED: &str = "the sentence permits the provider to do this";
const CONSUMERS: &str = "the sentence is about consumers";
const INSIDE: &str = "the sentence is about the inside of a provider";

/// The pages, each as the function and its sentences.
pub(super) const PAGES: &[(&str, &[Point])] = &[
    ("dat_ep_create", EP_CREATE),
    ("dat_ep_create_with_srq", EP_CREATE_WITH_SRQ),
    ("dat_ep_post_rdma_write", EP_POST_RDMA_WRITE),
    ("dat_ep_recv_query", EP_RECV_QUERY),
    ("dat_ia_query", IA_QUERY),
];

const EP_CREATE: &[Point] = &[
    at("PARAMETERS 1", "the IA of the EP", "parameters, null-ia"),
    at("PARAMETERS 2", "the protection zone", "parameters, freed-pz, pz-other-ia, evd-as-pz"),
    at(
        "PARAMETERS 3",
        "The receive EVD may be null if the consumer needs no events about receives",
        "parameters, null-recv-evd, evd-recv-*",
    ),
    at(
        "PARAMETERS 4",
        "The request EVD may be null if the consumer needs no events about requests",
        "parameters, null-request-evd, evd-request-*",
    ),
    at(
        "PARAMETERS 5",
        "The connect EVD may be null, and can be set later",
        "parameters, null-connect-evd, evd-connect-*",
    ),
    at(
        "PARAMETERS 6",
        "The attributes may be null",
        "attributes, null-attributes, max-message-size, max-rdma-size",
    ),
    at("PARAMETERS 7", "the pointer for the handle that the call returns", "handle-type, null-out"),
    at("DESCRIPTION 1.1", "The call creates an EP", "handle-type"),
    untested("DESCRIPTION 1.2", "The handle is undefined if the call fails", UNDEFINED),
    at("DESCRIPTION 2", "The EP is unconnected", "unconnected, idle"),
    at(
        "DESCRIPTION 3.1-2",
        "The zone determines which local and remote memory can be used",
        "other-pz-in-segment, other-pz-at-target",
    ),
    at("DESCRIPTION 4.1-2", "the EVDs to which completions go", "completions-go-to-their-evd"),
    at("DESCRIPTION 4.3", "Binds complete on the request EVD", "binds-complete-on-request-evd"),
    at(
        "DESCRIPTION 5",
        "the EVD to which connection events go",
        "connection-events-go-to-connect-evd",
    ),
    at("DESCRIPTION 6.1", "the initial attributes of the EP", "attributes"),
    at(
        "DESCRIPTION 6.2",
        "With null attributes the EP has the provider's attributes",
        "null-attributes",
    ),
    untested(
        "DESCRIPTION 6.3-4",
        "An EP with the provider's attributes may not be what the consumer needs",
        PERMITTED,
    ),
    untested(
        "RETURN VALUES 1",
        "success of the call",
        "no case of its own: most cases need a call that succeeds",
    ),
    untested(
        "RETURN VALUES 2",
        "insufficient resources",
        "no case creates more EPs than max_eps, but the test in `dat-core/tests/limits.rs` does",
    ),
    at(
        "RETURN VALUES 3",
        "invalid handle",
        "null-ia, freed-pz, pz-other-ia, evd-as-pz, evd-*, pz-as-evd",
    ),
    at(
        "RETURN VALUES 4",
        "invalid parameter, also for invalid combinations",
        "dat_ia_query/max-dto-per-ep, dat_ia_query/max-iov-segments, negative-counts, recv-flags, \
         request-flags, read-and-write-iov, specific-attributes, null-out, flags-differ-*",
    ),
    at("RETURN VALUES 5", "model not supported", "service-type, qos"),
    at("USAGE 1.1-2", "An EP is created before it connects, and is unconnected", "unconnected"),
    at(
        "USAGE 1, item 1",
        "The EP can connect with dat_ep_connect and dat_ep_dup_connect",
        "connects, dup-connects",
    ),
    at("USAGE 1, item 2", "The EP can accept a connection request", "accepts"),
    at("USAGE 1, item 3", "The EP can be reserved for a service point", "reserves"),
    at(
        "USAGE 4.1",
        "Streams on one EVD must have the same flags",
        "flags-differ-on-one-request-evd, flags-differ-on-one-recv-evd, threshold-and-default, \
         same-flags-share-an-evd",
    ),
    at(
        "USAGE 4.2",
        "If an EVD gets completions of an EP and also events of other kinds, the threshold flag is \
         the only flag that those completions may have",
        "solicited-wait-evd-for-recv-only, unsignalled-beside-connections, \
         default-beside-connections, threshold-beside-connections, \
         unsignalled-beside-software-events",
    ),
    at(
        "USAGE 4.3",
        "If one completion stream on an EVD has the flag for unsignalled completions, all others \
         must have it, too",
        "unsignalled-request-and-default-recv, unsignalled-recv-and-default-request",
    ),
    at(
        "USAGE 4.4",
        "Only receive streams may have the flag for solicited wait. If one of the receive streams \
         on an EVD has it, all others must have it, too",
        "flags-differ-on-one-recv-evd, solicited-wait-evd-for-recv-only, \
         solicited-recv-and-request",
    ),
    at("USAGE 5.1", "Null attributes mean defaults", "null-attributes"),
    untested("USAGE 5.2", "Consumers should not rely on the defaults", CONSUMERS),
    at("USAGE 5.3", "the changes of an EP that are always possible", "defaults-can-be-modified"),
    at("USAGE 6.1", "Defaults should be reasonable", "reasonable-defaults"),
    untested(
        "USAGE 6.2-4",
        "Consumers should look at the defaults, and avoid overflows",
        CONSUMERS,
    ),
    at("USAGE 6.5", "dat_ep_modify configures the EP", "defaults-can-be-modified"),
    untested("USAGE 7-9", "the purpose of null attributes", CONSUMERS),
];

const EP_CREATE_WITH_SRQ: &[Point] = &[
    at(
        "PARAMETERS 1-6",
        "the IA, the zone, the EVDs and the SRQ",
        "parameters, null-recv-evd, null-recv-evd-frees-buffers, null-request-evd, \
         null-connect-evd, null-srq",
    ),
    at("PARAMETERS 7", "The attributes must not be null", "null-attributes"),
    at("PARAMETERS 8", "the pointer for the handle that the call returns", "handle-type, null-out"),
    at("DESCRIPTION 1.1", "The call creates an EP on an SRQ", "takes-from-srq"),
    untested("DESCRIPTION 1.2", "The handle is undefined if the call fails", UNDEFINED),
    at("DESCRIPTION 2", "The EP is unconnected", "unconnected"),
    at(
        "DESCRIPTION 3.1-2",
        "An operation other than a receive can only use memory of its own zone",
        "other-pz-in-segment, rdma-stays-in-its-zone",
    ),
    at("DESCRIPTION 3.3", "Receives use the zone of the SRQ", "recv-of-other-pz"),
    at(
        "DESCRIPTION 3.4-5",
        "The zones may differ if an attribute of the provider allows it",
        "different-pz",
    ),
    at(
        "DESCRIPTION 4",
        "the EVDs to which completions go",
        "completions-go-to-their-evd, dat_ep_create/binds-complete-on-request-evd",
    ),
    at("DESCRIPTION 5", "the EVD to which connection events go", "connection-events"),
    at("DESCRIPTION 6", "The EP takes its receives from the SRQ", "takes-from-srq"),
    at("DESCRIPTION 7", "A reset does not remove the EP from the SRQ", "reset"),
    at(
        "DESCRIPTION 8",
        "The EP cannot change to another SRQ. It leaves the SRQ only when it is freed",
        "srq-cannot-be-replaced, free-lets-go",
    ),
    at("DESCRIPTION 9", "Receives cannot be posted to the EP", "no-post-recv"),
    at(
        "DESCRIPTION 10",
        "The attributes must not be null",
        "null-attributes, soft-watermark, soft-watermark-of-zero",
    ),
    at(
        "DESCRIPTION 11.1-2",
        "Some attributes are minima: the EP has at least these values",
        "requests-at-least",
    ),
    at("DESCRIPTION 11.3", "Some attributes are exact", "exact"),
    at(
        "DESCRIPTION 11.4",
        "All other attributes are exact; the number of receive segments is ignored",
        "exact-others",
    ),
    at(
        "DESCRIPTION 11.5",
        "The call fails if the provider cannot satisfy the attributes",
        "cannot-satisfy",
    ),
    untested(
        "RETURN VALUES 2",
        "insufficient resources",
        "no case creates more EPs than max_eps, but the test in `dat-core/tests/limits.rs` does",
    ),
    at(
        "RETURN VALUES 3",
        "invalid handle",
        "null-ia, null-srq, freed-srq, pz-as-srq, srq-of-other-ia, freed-pz, freed-recv-evd, \
         bad-evds",
    ),
    at(
        "RETURN VALUES 4",
        "invalid parameter: the zone, the read segments, or attributes that the adapter does not \
         have",
        "cannot-satisfy, different-pz, read-iov-too-large, null-attributes",
    ),
    at("RETURN VALUES 5", "model not supported", "service-type, dat_ep_create/qos"),
    at("USAGE 1-3", "The EP can connect, accept and be reserved", "connects, accepts, reserves"),
    at(
        "USAGE 4.1-3",
        "the flags of streams on one EVD",
        "flags-differ-on-one-request-evd, flags-differ-on-one-recv-evd",
    ),
    at("USAGE 4.4", "Receives of an SRQ are signalled", "signalled-receives"),
    at("USAGE 4.5", "the rules for solicited wait", "solicited-wait"),
    at(
        "USAGE 4.6-7",
        "If one completion stream on an EVD has the threshold flag, all others must have it, too. \
         Events of other kinds may use the same EVD",
        "threshold",
    ),
    untested("USAGE 5", "the purpose of each flag", CONSUMERS),
    at("USAGE 6", "EPs of different zones can share an SRQ", "eps-of-different-pz"),
    at("USAGE 7", "the purpose of different zones", "rdma-stays-in-its-zone"),
    at(
        "USAGE 8.1-2",
        "An EP is ready to be connected, without any state of earlier connections",
        "ready-to-connect, reset",
    ),
    untested(
        "USAGE 8, items 1-3, 9, 10",
        "how a provider can make an EP ready to be connected",
        INSIDE,
    ),
    at(
        "USAGE 11.1",
        "A connection does not change attributes that the consumer has set",
        "attributes-survive-connecting",
    ),
    untested("USAGE 11.2-3", "A connection may change other attributes", PERMITTED),
    at(
        "USAGE 11.4-5",
        "By default, an EP has no RDMA reads, and a connection attempt does not fail because of \
         that",
        "reads-default-to-none",
    ),
    untested(
        "USAGE 12.1-2",
        "A provider may check whether the attributes of both sides match",
        PERMITTED,
    ),
    at("USAGE 12.3", "The EP has resources for all RDMA reads", "reads-have-resources"),
];

const EP_POST_RDMA_WRITE: &[Point] = &[
    untested(
        "SYNOPSIS",
        "The synopsis says dat_ep_post_rdma_read",
        "an error of the page; the headers are right",
    ),
    at("PARAMETERS 1", "the EP", "null-handle, freed-handle, other-kind-of-handle"),
    at(
        "PARAMETERS 2",
        "the number of segments",
        "segments-beyond-count, no-segments, negative-count, too-many-segments",
    ),
    at("PARAMETERS 3", "the array of local segments (IOV)", "null-iov, iov-order"),
    at("PARAMETERS 4", "The completion returns the cookie", "completion, same-cookie"),
    at(
        "PARAMETERS 5",
        "the remote buffer (the page says by mistake that it \"is read\")",
        "null-remote-buffer, only-there",
    ),
    at("PARAMETERS 6", "the flag for suppressed completions", "suppressed, suppressed-failure"),
    at(
        "PARAMETERS 6",
        "the flag for unsignalled completions",
        "unsignalled, unsignalled-not-configured",
    ),
    at("PARAMETERS 6", "the flag for a barrier fence", "barrier-fence"),
    at(
        "DESCRIPTION 1",
        "All data arrive in the remote buffer",
        "transfers-all, only-there, shorter-than-remote, not-reported-at-target",
    ),
    at("DESCRIPTION 2.1", "the number of segments", "segments-beyond-count"),
    at("DESCRIPTION 2.2", "The segments are used in order", "iov-order, empty-segments"),
    untested(
        "DESCRIPTION 3.1-2",
        "The consumer must not change the IOV until it gets the ownership back",
        UNDEFINED,
    ),
    at(
        "DESCRIPTION 3.3-6",
        "An attribute says who owns the IOV after the call",
        "dat_ia_query/iov-ownership",
    ),
    untested(
        "DESCRIPTION 4",
        "Success means that the operation is posted, without any allocation",
        INSIDE,
    ),
    at("DESCRIPTION 5.1", "A DTO completion event reports the completion", "completion, operation"),
    at(
        "DESCRIPTION 5.2-3",
        "Unsignalled completions require an EP that is configured for them, otherwise the \
         parameter is invalid",
        "unsignalled, unsignalled-not-configured",
    ),
    at("DESCRIPTION 6.1-3", "Cookies are opaque and need not differ", "same-cookie"),
    at("DESCRIPTION 6.4", "The completion returns the cookie", "completion"),
    at(
        "DESCRIPTION 7.1",
        "The call is valid only in the states connected and disconnected",
        "in-*",
    ),
    at(
        "DESCRIPTION 7.2",
        "On a disconnected EP, the operation is flushed at once",
        "flushed-when-disconnected, in-disconnected",
    ),
    at("RETURN VALUES 2", "insufficient resources", "out-of-resources"),
    at(
        "RETURN VALUES 3",
        "invalid parameter, if a segment is outside its LMR",
        "outside-lmr, negative-count, too-many-segments, null-*, unknown-flags",
    ),
    at("RETURN VALUES 4", "invalid handle", "null-handle, freed-handle, other-kind-of-handle"),
    at("RETURN VALUES 5", "invalid state", "in-*"),
    at("RETURN VALUES 6", "length error", "remote-too-small"),
    at(
        "RETURN VALUES 7",
        "protection violation, local or remote",
        "local-pz, remote-pz, outside-remote-lmr",
    ),
    at(
        "RETURN VALUES 8",
        "privileges violation, local or remote",
        "freed-lmr, no-local-read, no-remote-write, freed-remote-lmr",
    ),
    at("USAGE", "Alignment only affects performance", "dat_ia_query/optimal-alignment")
        .except("that buffers are aligned: the sentence is about consumers"),
];

const EP_RECV_QUERY: &[Point] = &[
    at("PARAMETERS 1", "the EP", "null-handle, freed-handle, other-kind-of-handle"),
    at("PARAMETERS 2-3", "the two counts that the call returns", "posted-without-srq, span-idle"),
    at("DESCRIPTION 1.1", "The counts are a snapshot", "changes-nothing"),
    untested("DESCRIPTION 1.2", "The counts are undefined if the call fails", UNDEFINED),
    at(
        "DESCRIPTION 2.1-2",
        "An attribute says which of the two counts the provider supports",
        "attribute, unknown",
    ),
    at(
        "DESCRIPTION 2.3",
        "If neither count is supported, the call may return DAT_MODEL_NOT_SUPPORTED",
        "unsupported-model",
    ),
    at(
        "DESCRIPTION 3",
        "The first count is the number of buffers that are allocated and not completed",
        "posted-without-srq, half-received, completed, null-count",
    ),
    at(
        "DESCRIPTION 4.1",
        "An allocated buffer will complete on the EVD",
        "completed, never-more-than-span",
    ),
    at(
        "DESCRIPTION 4.2",
        "Without an SRQ, a buffer is allocated when it is posted",
        "posted-without-srq",
    ),
    at(
        "DESCRIPTION 4.3",
        "With an SRQ, a buffer is allocated when a message takes it",
        "srq-not-taken, half-received-of-srq",
    ),
    at("DESCRIPTION 5.1-2", "the span of the buffers", "span-idle, null-span"),
    at(
        "DESCRIPTION 6, 7",
        "The span is a difference of sequence numbers",
        "never-more-than-span, half-received",
    ),
    at("DESCRIPTION 8", "An unknown count is DAT_VALUE_UNKNOWN", "unknown"),
    untested(
        "RETURN VALUES 2",
        "invalid parameter",
        "the page names no parameter that could be invalid (both counts may be null)",
    ),
    at("RETURN VALUES 3", "invalid handle", "null-handle, freed-handle, other-kind-of-handle"),
    at("RETURN VALUES 4", "model not supported", "unsupported-model"),
    at("USAGE 1", "An unsupported count must be DAT_VALUE_UNKNOWN", "attribute, unknown"),
    untested("USAGE 2-5", "how a provider can count, with an example", INSIDE),
    at(
        "USAGE 6",
        "The provider must determine both counts in a single scan of the buffers, not in two",
        "never-more-than-span",
    )
    .except("whether there is only one scan; the case finds the inconsistent counts of two scans"),
    untested("USAGE 7", "A provider may keep the counts in atomic variables", INSIDE),
    at(
        "USAGE 8",
        "The span is never smaller than the number of buffers",
        "never-more-than-span, half-received",
    ),
];

const IA_QUERY: &[Point] = &[
    at("PARAMETERS 1", "the open IA", "null-handle, closed-handle, other-kind-of-handle"),
    at("PARAMETERS 2", "the asynchronous EVD", "async-evd, dat_ia_openv/async-evd-elsewhere"),
    at(
        "PARAMETERS 3-6",
        "the masks and the structures",
        "one-field, null-structures-with-empty-masks, null-ia-attributes, null-provider-attributes",
    ),
    at("DESCRIPTION 1", "The call fills both structures", "fills-structures"),
    at(
        "DESCRIPTION 2.1-2",
        "The masks select the fields",
        "one-field, null-structures-with-empty-masks",
    ),
    untested("DESCRIPTION 2.3", "Fields that are not selected may be filled, too", PERMITTED),
    at("IA 1.1", "The attributes are the same for all opens of the IA", "common-to-all-opens"),
    untested("IA 1.2", "The attributes cannot be modified", "there is no function for it"),
    untested("IA 1.3", "Each port is an IA of its own", "the sentence is about hardware"),
    at("adapter name", "the name with which the IA was opened", "adapter-name"),
    at("vendor name", "The name is terminated and not empty", "names-are-terminated"),
    untested(
        "versions of hardware and firmware",
        "the version numbers of the adapter",
        "every number is correct",
    ),
    at("address", "the address at which peers reach the adapter", "address"),
    at(
        "max EPs, EVDs, LMRs, PZs, LMR block",
        "the limits that every adapter has",
        "limits-are-positive",
    ),
    at(
        "max DTOs per EP",
        "the limit for each direction",
        "max-dto-per-ep, dat_ep_post_rdma_write/out-of-resources",
    ),
    at("max RDMA reads in, out", "the limits of RDMA reads for each EP", "max-rdma-reads"),
    at("max EVD queue", "the maximum length of an EVD's queue", "max-evd-qlen"),
    at("max IOV segments", "the maximum number of segments of a DTO", "max-iov-segments"),
    at(
        "LMR virtual address, RMR target address",
        "the highest addresses that can be registered and bound",
        "max-lmr-virtual-address",
    ),
    at(
        "max message, RDMA size",
        "the maximum sizes of a message and of an RDMA operation",
        "max-message-and-rdma-size",
    ),
    at(
        "SRQs; RDMA reads of the adapter, segments of RDMA",
        "the limits of SRQs, of all RDMA reads, and of the segments of RDMA operations",
        "srq-limits, iov-and-read-limits",
    ),
    at("max RMRs", "the maximum number of RMRs", "max-rmrs"),
    at(
        "transport- and vendor-specific attributes",
        "their count, names and values",
        "named-attributes",
    ),
    at("Provider 1.1", "The attributes are those of this open of the IA", "thread-safety"),
    untested("Provider 1.2", "The attributes cannot be modified", "there is no function for it"),
    at("provider name, version", "The name is terminated and not empty", "names-are-terminated")
        .except("the version, because every number is correct"),
    at("API version", "the version with which the adapter was opened", "api-version"),
    at("memory types", "all three types", "memory-types, dat_lmr_create/*"),
    at("IOV ownership", "one of three values", "iov-ownership"),
    untested(
        "IOV ownership, last sentence",
        "After the completion, the consumer owns the IOV",
        "a test could not notice a difference",
    ),
    at("QoS", "the qualities of service that the provider has", "qos, dat_ep_create/qos"),
    at("completion flags", "all four flags", "completion-flags"),
    at(
        "thread safety",
        "whether several threads may use the adapter at the same time",
        "thread-safety",
    ),
    at("private data", "The maximum size is at least 64 bytes", "private-data-size"),
    at("multipathing", "whether a connection can have several paths", "multipath"),
    at("EP creator", "whether the provider or the consumer creates the EPs of PSPs", "ep-creator"),
    at("PZ support", "whether a zone can be shared", "pz-support"),
    at("optimal alignment", "The value divides 256", "optimal-alignment"),
    at(
        "EVD stream merging 1-3",
        "The matrix is symmetric, and its values are correct",
        "merging-matrix",
    ),
    at("EVD stream merging 4", "A provider should merge all streams", "merges-everything"),
    untested("EVD stream merging 5", "Consumers should look at the matrix first", CONSUMERS),
    at(
        "watermarks and counts of SRQs, RMR scopes, boolean attributes",
        "The values are those that the standard allows, and the provider behaves as they say",
        "watermarks, srq-info, rmr-scopes, reads-and-remote-write, asynchronous-returns, \
         provider-truth-values, truth-values-of-2-0",
    ),
    at("provider-specific attributes", "their count, names and values", "named-attributes"),
    at(
        "RETURN VALUES 2",
        "invalid parameter",
        "null-ia-attributes, null-provider-attributes, unknown-mask-bit",
    ),
    at("RETURN VALUES 3", "invalid handle", "null-handle, closed-handle, other-kind-of-handle"),
];
