//! Subjects that are spread over the standard, each with its cases.

use super::{Point, on, untested};

pub(super) const SUBJECTS: &[Point] = &[
    on(
        "dat_evd_wait reports all data of an event; the queries of an EVD and of a CNO return all \
         parameters",
        "dat_evd_wait/event, dat_evd_query/*, dat_cno_query/parameters, dat_cno_create/bad-ia",
    ),
    on(
        "dat_evd_wait with a threshold out of range, or above 1 on an EVD with an unsignalled or \
         solicited stream",
        "dat_evd_wait/threshold-range, dat_evd_wait/threshold-on-unsignalled",
    ),
    on(
        "dat_evd_wait with null arguments and bad handles",
        "dat_evd_wait/null-arguments, dat_evd_wait/null-handle",
    ),
    on(
        "dat_evd_wait: the number of events that remain queued, a wait that times out, and time \
         limits (0, finite, infinite)",
        "dat_evd_wait/threshold-reached, dat_evd_wait/threshold-not-reached, \
         dat_evd_wait/threshold-wakes, dat_evd_wait/poll, dat_evd_wait/times-out, \
         dat_evd_wait/infinite",
    ),
    on(
        "while one thread waits on an EVD, another wait and a dequeue are refused",
        "dat_evd_wait/one-waiter",
    ),
    on(
        "an unsignalled completion does not end dat_evd_wait, but one of an operation that fails \
         does",
        "dat_evd_wait/unsignalled-completion, dat_evd_wait/failed-unsignalled-completion",
    ),
    on(
        "dat_evd_set_unwaitable wakes the waiting thread and refuses further waits; dequeuing \
         still works",
        "dat_evd_set_unwaitable/*, dat_evd_clear_unwaitable/waits-again",
    ),
    on(
        "the close of the adapter and a signal each end dat_evd_wait",
        "dat_ia_close/wakes-waiters, dat_evd_wait/interrupted",
    ),
    on(
        "an EVD does not trigger its CNO while a thread waits on the EVD",
        "dat_cno_wait/not-while-waited-for",
    ),
    on(
        "dat_evd_dequeue: an empty queue, the order of events, and several threads, of which one \
         gets each event",
        "dat_evd_dequeue/*",
    ),
    on(
        "dat_evd_create: the queue length is a minimum; a length of 0, a bad CNO, and no streams \
         are refused",
        "dat_evd_create/*",
    ),
    on(
        "which event streams can share an EVD",
        "dat_ia_query/merging-matrix, dat_ia_query/merges-everything",
    ),
    on(
        "dat_evd_resize loses no event, and refuses a length below the number of queued events",
        "dat_evd_resize/*",
    ),
    on("an EVD or a CNO that is in use cannot be freed", "dat_evd_free/*, dat_cno_free/in-use"),
    on(
        "dat_evd_post_se: the event number, the stream, and a full queue, which causes no overflow",
        "dat_evd_post_se/*",
    ),
    on("an EVD overflow is reported once, and no event follows it", "dat_evd_create/overflow"),
    on(
        "dat_cno_wait: the first event, several EVDs, no event, and a bad handle",
        "dat_cno_wait/triggered, dat_cno_wait/each-evd, dat_cno_wait/completion, \
         dat_cno_wait/unsignalled-completion, dat_cno_wait/failed-unsignalled-completion, \
         dat_cno_wait/times-out, dat_cno_wait/bad-handle",
    ),
    on(
        "dat_cno_wait with several waiting threads; what happens to them and to the agent when the \
         adapter is closed or the last EVD is freed",
        "dat_cno_wait/several-waiters, dat_ia_close/wakes-cno-waiters, \
         dat_ia_close/calls-agents-off, dat_evd_free/wakes-cno-waiters",
    ),
    on("a signal ends dat_cno_wait", "dat_cno_wait/interrupted"),
    on("a CNO that an EVD uses, or on which a thread waits, cannot be freed", "dat_cno_free/*"),
    on(
        "the CNO of an EVD can be changed, disabled and enabled",
        "dat_evd_modify_cno/*, dat_evd_disable/no-trigger, dat_evd_enable/triggers-again",
    ),
    on(
        "the agent of a CNO is called in addition to waiting threads, and for every trigger (the \
         page of dat_cno_create says for the first trigger, the page of dat_cno_modify_agent for \
         any)",
        "dat_cno_create/agent, dat_cno_modify_agent/any-trigger",
    ),
    on(
        "a CNO with a file descriptor, and a trigger by the consumer (2.0)",
        "dat_cno_fd_create/descriptor, dat_cno_trigger/wakes",
    ),
    on(
        "dat_cr_accept with an EP for a request that already has an EP, and without an EP for a \
         request that needs an EP",
        "dat_cr_accept/without-ep, dat_cr_accept/with-ep-at-rsp, dat_cr_accept/in-*",
    ),
    on(
        "private data: too much, a null pointer, both directions, in a rejection, and how long \
         they stay valid",
        "dat_ep_connect/too-much-private-data, dat_ep_connect/null-private-data, \
         dat_cr_accept/too-much-private-data, dat_ep_connect/private-data, \
         dat_cr_reject/private-data, dat_ep_connect/answer-stays",
    ),
    on(
        "the handle of a request is invalid after it was answered or handed off",
        "dat_cr_accept/handle-is-dead",
    ),
    on(
        "a request is handed off to another service point, or to a qualifier on which nobody \
         listens",
        "dat_cr_handoff/*",
    ),
    on(
        "PSPs: a qualifier in use, any free qualifier, a freed qualifier, the backlog, and an EVD \
         of other streams",
        "dat_psp_create/qualifier-in-use, dat_psp_create_any/qualifier, dat_psp_create/free-again, \
         dat_psp_create/backlog, dat_psp_create/evd-of-other-stream",
    ),
    on(
        "PSPs whose EPs the provider creates",
        "dat_ia_query/ep-creator, dat_cr_accept/provider-made-ep",
    ),
    on(
        "after dat_psp_free, requests that have arrived stay valid, and later requests are \
         rejected",
        "dat_psp_free/pending-requests-stay",
    ),
    on(
        "RSPs: one request at most, dat_rsp_free, and dat_rsp_query",
        "dat_rsp_create/one-request, dat_rsp_free/releases-the-ep, dat_rsp_query/parameters",
    ),
    on(
        "an event reports a connection request; the caller can be in another process",
        "dat_psp_create/reports-requests, dat_ep_connect/another-process",
    ),
    on(
        "dat_ep_connect on an EP without a connect EVD or without a zone",
        "dat_ep_connect/no-connect-evd, dat_ep_connect/in-unconfigured-unconnected",
    ),
    on(
        "functions of EPs with bad handles, unknown flags and unknown fields",
        "dat_ep_connect/bad-handle, dat_ep_disconnect/unknown-flags, dat_ep_modify/bad-arguments, \
         dat_ep_post_send/bad-arguments, dat_ep_post_recv/bad-arguments",
    ),
    on(
        "dat_ep_connect with a quality of service, several paths, and unknown flags",
        "dat_ep_connect/quality-of-service, dat_ep_connect/several-paths, \
         dat_ep_connect/unknown-flags",
    ),
    on(
        "dat_ep_connect with an invalid or a null address",
        "dat_ep_connect/address-family, dat_ep_connect/null-address",
    ),
    on(
        "the time limit of dat_ep_connect, and a peer that does not answer",
        "dat_ep_connect/timeouts, dat_ep_connect/times-out, dat_ep_connect/silent-peer",
    ),
    on(
        "the number of RDMA reads that an EP can have in progress",
        "dat_ep_create_with_srq/reads-*, dat_ep_create_with_srq/attributes-survive-connecting, \
         dat_ep_post_rdma_read/more-than-the-depth",
    ),
    on("each side of a connection gets the port of the other side", "dat_ep_query/ports"),
    on(
        "dat_ep_dup_connect connects an EP in the same way as another EP",
        "dat_ep_dup_connect/*, dat_ep_create/dup-connects",
    ),
    on(
        "common service points (2.0)",
        "dat_ep_common_connect/connects, dat_csp_create/*, dat_csp_query/parameters, \
         dat_csp_free/dead",
    ),
    on(
        "the states in which DTOs are valid; receives are valid in all states",
        "dat_ep_post_send/in-*, dat_ep_post_recv/in-*, dat_ep_post_rdma_read/in-*, \
         dat_ep_post_rdma_write/in-*",
    ),
    on(
        "messages and RDMA reads with several segments; receives that are posted before the \
         connection",
        "dat_ep_post_send/scatter, dat_ep_post_rdma_read/reads, dat_ep_post_recv/early",
    ),
    on(
        "the operation code of a completion (2.0)",
        "dat_ep_post_send/operation, dat_ep_post_rdma_read/operation",
    ),
    on(
        "segments of DTOs: none, too many, empty, their order, outside of their LMR, of another \
         zone",
        "dat_ep_post_rdma_write/no-segments, dat_ep_post_rdma_write/too-many-segments, \
         dat_ep_post_rdma_write/empty-segments, dat_ep_post_rdma_write/iov-order, \
         dat_ep_post_rdma_write/outside-lmr, dat_ep_post_rdma_write/local-pz, \
         dat_ep_create/other-pz-in-segment, dat_ep_post_recv/other-pz",
    ),
    on(
        "local and remote privileges; both ends of the connection get the error",
        "dat_ep_post_rdma_write/no-remote-write, dat_ep_post_rdma_read/no-remote-read, \
         dat_ep_post_recv/needs-local-write, dat_ep_post_rdma_write/no-local-read",
    ),
    on(
        "lengths of DTOs: a receive that is too small, a read longer than its local segments, \
         empty messages",
        "dat_ep_post_send/too-long-for-receive, dat_ep_post_rdma_read/longer-than-local, \
         dat_ep_post_rdma_read/too-many-segments, dat_ep_post_send/empty, \
         dat_ep_post_rdma_read/empty",
    ),
    on(
        "more requests or receives than may be outstanding",
        "dat_ep_post_send/too-many, dat_ep_post_recv/too-many, \
         dat_ep_post_rdma_write/out-of-resources",
    ),
    on(
        "completions: their lengths, cookies and order, and flushing",
        "dat_ep_post_rdma_write/completion, dat_ep_post_send/message, dat_ep_post_send/in-order, \
         dat_ep_disconnect/abrupt-flushes-in-order",
    ),
    on(
        "completion flags: suppressed, unsignalled, solicited, fenced",
        "dat_ep_post_send/suppressed, dat_ep_post_send/suppressed-only, \
         dat_ep_post_rdma_write/suppressed-failure, dat_ep_post_rdma_write/unsignalled*, \
         dat_ep_post_send/unsignalled-not-configured, dat_ep_post_send/solicited-wait, \
         dat_ep_post_rdma_write/barrier-fence, dat_ep_post_recv/flags",
    ),
    on(
        "completion flags of EPs that share an EVD",
        "dat_ep_create/flags-differ-*, dat_ep_create/same-flags-share-an-evd, \
         dat_ep_create/solicited-wait-evd-for-recv-only, dat_ep_create_with_srq/threshold",
    ),
    on(
        "LMRs: the registered range, no remote privilege, an LMR of an LMR, a length of 0, no zone",
        "dat_lmr_create/covers, dat_lmr_create/no-remote-privilege, dat_lmr_create/of-an-lmr, \
         dat_lmr_create/bad-arguments, dat_lmr_query/parameters",
    ),
    on(
        "shared LMRs: their cookies, and several processes",
        "dat_lmr_create/shared-virtual, dat_lmr_create/shared-by-processes, \
         dat_lmr_create/shared-cookie, dat_lmr_create/not-shared",
    ),
    on(
        "an LMR to which an RMR is bound, and a freed LMR",
        "dat_rmr_bind/keeps-the-lmr, dat_lmr_free/dead, dat_ep_post_recv/freed-lmr, \
         dat_ep_post_rdma_write/freed-*",
    ),
    on(
        "dat_rmr_bind: states, new context, length 0, zone, privileges, limits, event",
        "dat_rmr_bind/*",
    ),
    on("a bound RMR that is freed, and a new RMR", "dat_rmr_free/bound, dat_rmr_create/query"),
    on(
        "RMRs with the scope of an EP (2.0), and zero-based LMRs (2.0)",
        "dat_rmr_create_for_ep/*, dat_lmr_create/zero-based",
    ),
    on(
        "sends that invalidate an RMR, and RDMA reads into an RMR (2.0)",
        "dat_ep_post_send_with_invalidate/kills-a-context, dat_ep_post_rdma_read_to_rmr/reads",
    ),
    on("a zone in use cannot be freed", "dat_pz_free/in-use, dat_pz_create/query"),
    on(
        "SRQs: at least the requested number of receives, low watermark, no receives to the EP \
         itself, no null attributes, zones",
        "dat_srq_create/*, dat_ep_create_with_srq/no-post-recv, \
         dat_ep_create_with_srq/null-attributes, dat_ep_create_with_srq/different-pz, \
         dat_ep_create_with_srq/recv-of-other-pz",
    ),
    on(
        "dat_srq_query: the counts of the standard's example, and unknown counts",
        "dat_srq_query/*",
    ),
    on(
        "SRQs: resizing, one event for a low watermark, an SRQ in use, and receives that stay \
         after a disconnect",
        "dat_srq_resize/*, dat_srq_set_lw/*, dat_srq_free/in-use, dat_srq_post_recv/*",
    ),
    on(
        "the watermarks of an EP; both buffer counts of an EP in one query",
        "dat_ep_set_watermark/*, dat_ep_recv_query/*",
    ),
    on(
        "dat_ia_open: a second open, the asynchronous EVD of another open, names, versions, thread \
         safety",
        "dat_ia_openv/*, dat_ia_query/async-evd",
    ),
    on(
        "dat_ia_close: a graceful close is refused while objects exist, an abrupt close destroys \
         all objects, unknown flags",
        "dat_ia_close/graceful-with-objects, dat_ia_close/abrupt, dat_ia_close/unknown-flags",
    ),
    on(
        "masks of dat_ia_query",
        "dat_ia_query/one-field, dat_ia_query/null-structures-with-empty-masks, \
         dat_ia_query/unknown-mask-bit",
    ),
    on(
        "the consumer contexts and the handle types of all objects",
        "dat_set_consumer_context/every-kind, dat_get_consumer_context/bad-handle, \
         dat_get_handle_type/*",
    ),
    on(
        "the registry: the list of providers, their relations (2.0), a provider that is registered \
         twice",
        "dat_registry_list_providers/*, dat_registry_providers_related/unknown-name, \
         dat_registry_add_provider/twice",
    ),
    untested(
        "dat_registry_remove_provider",
        "the registry unloads a provider, and refuses to remove one in use",
        "each case has an adapter open; the tests are in `registry/tests/`",
    ),
    on("dat_strerror returns the texts of statuses", "dat_strerror/every-status"),
    on(
        "dat_lmr_sync_rdma_read and dat_lmr_sync_rdma_write check their segments",
        "dat_lmr_sync_rdma_read/checks, dat_lmr_sync_rdma_write/checks",
    ),
    on("the IB extension", "dat_extension_op/*, dat_ib_open_query/*, dat_ib_close_query/*"),
    on("dat_ep_get_status reports idle queues", "dat_ep_get_status/idle"),
    on("the crate `dat`", "rust/*"),
];
