//! The state transitions of an endpoint. The place is the state before the transition.
//!
//! *Active*, *passive* and *tentative* are short for the states active, passive and tentative
//! connection pending.

use super::{Point, at};

pub(super) const STATES: &[Point] = &[
    at(
        "before the EP exists",
        "dat_ep_create creates an unconnected EP. Without a zone, the EP is also unconfigured",
        "dat_ep_create/unconnected, dat_ep_create_with_srq/unconnected, \
         dat_ep_query/in-unconfigured-unconnected",
    ),
    at(
        "unconnected",
        "dat_ep_connect, dat_ep_dup_connect and dat_ep_common_connect make the EP active",
        "dat_ep_connect/in-unconnected, dat_ep_dup_connect/in-unconnected, \
         dat_ep_common_connect/in-unconnected",
    ),
    at(
        "unconnected",
        "dat_rsp_create makes the EP reserved",
        "dat_rsp_create/in-unconnected, dat_rsp_create/in-unconfigured-unconnected",
    ),
    at("reserved", "dat_rsp_free makes the EP unconnected", "dat_rsp_free/releases-the-ep"),
    at(
        "reserved",
        "A connection request arrives, and the EP becomes passive. There is at most one request",
        "dat_rsp_create/one-request, dat_ep_query/in-passive-connection-pending, \
         dat_ep_query/in-unconfigured-passive",
    ),
    at(
        "before the EP exists",
        "A connection request arrives at a PSP whose EPs the provider creates. The provider \
         creates a tentative EP",
        "dat_ep_query/in-unconfigured-tentative, dat_ep_modify/pz-in-unconfigured-tentative",
    ),
    at(
        "unconnected, passive, tentative",
        "dat_cr_accept changes the state to completion pending",
        "dat_cr_accept/in-unconnected, dat_ep_create/reserves, dat_cr_accept/provider-made-ep, \
         dat_ep_query/in-completion-pending",
    ),
    at(
        "completion pending",
        "The setup succeeds, and the EP is connected. The event \"established\" has no private \
         data",
        "dat_ep_connect/private-data, dat_ep_create/accepts",
    ),
    at(
        "completion pending",
        "The setup fails, and the EP is disconnected. There is an accept completion error, and the \
         receives are flushed",
        "dat_cr_accept/peer-is-gone",
    ),
    at(
        "passive",
        "dat_cr_reject makes the EP unconnected, and the peer gets a rejection event",
        "dat_cr_reject/reserved-ep, dat_cr_reject/peer-is-told",
    ),
    at("tentative", "dat_cr_reject frees the EP", "dat_cr_reject/tentative-ep"),
    at(
        "active",
        "The peer accepts, and the EP is connected. The event \"established\" has all private data",
        "dat_ep_connect/private-data",
    ),
    at(
        "active",
        "The EP is disconnected if the peer rejects the request, nobody listens, the backlog is \
         full, the peer does not answer, or the time limit expires",
        "dat_cr_reject/peer-is-told, dat_ep_connect/no-listener, dat_psp_create/backlog, \
         dat_ep_connect/silent-peer, dat_ep_connect/times-out",
    ),
    at(
        "active, completion pending",
        "dat_ep_disconnect makes the EP disconnected, and the receives are flushed",
        "dat_ep_disconnect/pending-attempt, dat_ep_connect/failure-flushes-receives, \
         dat_ep_disconnect/*-in-active-connection-pending, \
         dat_ep_disconnect/*-in-completion-pending",
    ),
    at(
        "connected",
        "A graceful dat_ep_disconnect changes the state to disconnect pending. The EP is \
         disconnected when all its requests have completed",
        "dat_ep_disconnect/graceful-completes-first, dat_ep_query/in-disconnect-pending",
    ),
    at(
        "connected, disconnect pending",
        "An abrupt dat_ep_disconnect makes the EP disconnected. All outstanding operations are \
         flushed in order, and there is one disconnected event",
        "dat_ep_disconnect/abrupt-flushes-in-order, dat_ep_disconnect/one-event, \
         dat_ep_disconnect/abrupt-in-disconnect-pending, dat_ep_disconnect/silent-peer",
    ),
    at(
        "disconnect pending",
        "A graceful dat_ep_disconnect has no effect",
        "dat_ep_disconnect/graceful-in-disconnect-pending",
    ),
    at(
        "connected",
        "The EP is disconnected if the peer disconnects or dies, after an access that is not \
         permitted, and if the hard watermark is exceeded",
        "dat_ep_disconnect/peer-is-told, dat_ep_disconnect/peer-dies, \
         dat_ep_post_rdma_write/no-remote-write, dat_ep_set_watermark/hard",
    ),
    at("disconnected", "dat_ep_disconnect has no effect", "dat_ep_disconnect/*-in-disconnected"),
    at(
        "disconnected",
        "dat_ep_reset makes the EP unconnected",
        "dat_ep_reset/in-disconnected, dat_ep_reset/connects-again",
    ),
    at(
        "unconnected",
        "dat_ep_reset has no effect, and receives that were already posted stay",
        "dat_ep_reset/in-unconnected, dat_ep_reset/keeps-early-receives",
    ),
    at(
        "unconnected, reserved, passive, tentative",
        "dat_ep_disconnect returns DAT_INVALID_STATE",
        "dat_ep_disconnect/*-in-unconnected, dat_ep_disconnect/*-in-reserved, \
         dat_ep_disconnect/*-in-passive-connection-pending, \
         dat_ep_disconnect/*-in-tentative-connection-pending",
    ),
    at(
        "reserved, passive, tentative",
        "dat_ep_free returns DAT_INVALID_STATE, with the state as the subtype",
        "dat_ep_free/subtypes, dat_ep_free/in-reserved, dat_ep_free/in-passive-connection-pending, \
         dat_ep_free/in-tentative-connection-pending",
    ),
    at(
        "any except reserved, passive and tentative",
        "dat_ep_free frees the EP. If it was connected, the peer gets a disconnected event",
        "dat_ep_free/disconnects, dat_ep_free/in-connected",
    ),
    at(
        "any except unconnected and disconnected",
        "dat_ep_reset returns DAT_INVALID_STATE",
        "dat_ep_reset/in-*",
    ),
    at(
        "several",
        "dat_ep_modify can change some fields only in the state unconnected, some in every state \
         before the EP connects, and some never",
        "dat_ep_modify/every-attribute, dat_ep_modify/never, \
         dat_ep_modify/recv-flags-with-receives, dat_ep_modify/fewer-receives-than-posted, \
         dat_ep_modify/*-in-*",
    ),
    at(
        "unconfigured",
        "An EP without a zone behaves like other EPs, but connecting it is an invalid state",
        "dat_ep_connect/in-unconfigured-unconnected",
    ),
];
