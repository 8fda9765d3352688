//! What cases require of an adapter besides the letter of the standard.

use serde::Serialize;

/// What cases require of adapters with the named attribute `strict` if its value is `off`. Programs
/// need these exceptions (docs/compatibility.md, Exceptions). For every other adapter, including
/// adapters of other vendors, the cases require the letter of the standard.
#[derive(Debug, Serialize)]
pub struct Strictness {
    #[serde(skip)]
    pub(super) cases: &'static str,
    /// The letter of the standard.
    pub on: &'static str,
    /// What the cases require if the attribute is `off`.
    pub off: &'static str,
}

pub(super) const STRICT: &[Strictness] = &[
    Strictness {
        cases: "dat_ep_create/unsignalled-request-and-default-recv",
        on: "DAT_INVALID_PARAMETER, because the completion flags of streams that share an EVD must \
             match",
        off: "the EP is created. Each completion wakes a waiter or not, as the flags of its own \
              stream say",
    },
    Strictness {
        cases: "dat_ep_create/unsignalled-beside-software-events",
        on: "DAT_INVALID_PARAMETER, because completions on an EVD that also gets other events may \
             have only the threshold flag",
        off: "the EP is created. Each completion wakes a waiter or not, as the flags of its own \
              stream say",
    },
    Strictness {
        cases: "dat_ep_create/max-message-size, dat_ep_post_send_with_invalidate/too-long",
        on: "DAT_LENGTH_ERROR, because the message is longer than the EP's max_message_size",
        off: "the message is sent",
    },
    Strictness {
        cases: "dat_ep_create/max-rdma-size",
        on: "DAT_LENGTH_ERROR, because the RDMA operation is longer than the EP's max_rdma_size",
        off: "the operation is carried out",
    },
    Strictness {
        cases: "dat_ep_create_with_srq/soft-watermark-of-zero",
        on: "an event reports the first buffer of the SRQ that the EP uses",
        off: "a watermark of 0 means that there is no watermark",
    },
    Strictness {
        cases: "dat_ep_post_rdma_write/no-local-read, dat_ep_post_send/no-local-read, \
                dat_ep_post_send_with_invalidate/local-memory, \
                dat_extension_op/write-immed-no-local-read, \
                dat_extension_op/ud-send-no-local-read",
        on: "DAT_PRIVILEGES_VIOLATION, because the region has no local read privilege",
        off: "the privilege is implied, and all data arrive. For an adapter without the attribute \
              strict, the case accepts either result, because verbs have no privilege for reading \
              local memory",
    },
];

/// A rule of the standard that permits several results, and those that the cases accept from every
/// adapter.
#[derive(Debug, Serialize)]
pub struct Room {
    #[serde(skip)]
    pub(super) cases: &'static str,
    /// What the standard says.
    pub standard: &'static str,
    /// What the cases accept, and why.
    pub accepted: &'static str,
}

pub(super) const ROOM: &[Room] = &[
    Room {
        cases: "dat_ep_create/other-pz-in-segment, dat_ep_create_with_srq/other-pz-in-segment, \
                dat_ep_post_rdma_write/outside-lmr, dat_ep_post_rdma_write/local-pz, \
                dat_ep_post_rdma_write/freed-lmr, dat_ep_post_send/bad-arguments, \
                dat_lmr_free/dead, dat_extension_op/atomic-no-local-write",
        standard: "if a request names memory that it must not use, the post fails, or the \
                   completion has DAT_DTO_ERR_LOCAL_PROTECTION (the pages have both)",
        accepted: "both, because adapters over RDMA devices check the memory only when they carry \
                   out the request. An atomic operation has then already changed the target",
    },
    Room {
        cases: "dat_ep_post_recv/needs-local-write, dat_ep_post_recv/other-pz, \
                dat_ep_post_recv/bad-arguments, dat_srq_post_recv/needs-local-write, \
                dat_srq_post_recv/bad-arguments, dat_ep_create_with_srq/recv-of-other-pz",
        standard: "if a receive names memory that it must not use, the post fails, or the \
                   completion has DAT_DTO_ERR_LOCAL_PROTECTION",
        accepted: "both. If the post succeeds, the peer sends a message. The message must not be \
                   written to memory, the receive must fail with DAT_DTO_ERR_LOCAL_PROTECTION, and \
                   the connection must break",
    },
    Room {
        cases: "dat_evd_create/overflow",
        standard: "completions for which the queue has no room cause an EVD overflow. The \
                   requested length of the queue is a minimum",
        accepted: "the case causes 600 completions more than the reported length. It accepts an \
                   overflow event, and it accepts that no completion is lost",
    },
    Room {
        cases: "dat_ep_post_send_with_invalidate/kills-a-context",
        standard: "a peer can invalidate an RMR",
        accepted: "the case uses an RMR with the scope of an EP if the adapter has such RMRs. Over \
                   RDMA devices, an RMR for a whole zone is a memory window of type 1, which no \
                   peer can invalidate",
    },
];
