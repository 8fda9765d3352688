//! What does not pass, each with the reason.

use super::Verdict;

/// Tests, `PROVIDER::CASE`; a star stands for any text.
const KNOWN: &[(&str, &str)] = &[
    (
        "verbs::dat_ia_query/private-data-size",
        "56 octets: the REQ has no room for the 64 that the standard asks for",
    ),
    (
        "verbs_on_siw::dat_ia_query/private-data-size",
        "56 octets: rdma_cm leaves as many of every request",
    ),
    ("verbs_on_siw::dat_ep_connect/times-out", SIW_CALLS),
    ("verbs_on_siw::dat_ep_connect/silent-peer", SIW_CALLS),
    (
        "verbs_on_siw::dat_ep_post_rdma_read/no-remote-read",
        "siw lets peers read whatever is registered",
    ),
    ("verbs_on_siw::dat_cr_accept/peer-is-gone", ANSWERED),
    ("ofa::dat_ia_query/thread-safety", HANGS),
    ("ofa::dat_ia_openv/thread-safety", HANGS),
    ("ofa::dat_ia_openv/bad-async-evd", HANGS),
    ("ofa::dat_evd_resize/*", BREAKS),
    ("ofa::dat_cr_reject/reserved-ep", HANGS),
    ("ofa::dat_evd_dequeue/exactly-once", HANGS),
    ("ofa::dat_ep_create/defaults-can-be-modified", HANGS),
    ("ofa::dat_ep_modify/every-attribute", HANGS),
    ("ofa::dat_ep_modify/request-evd-in-reserved", HANGS),
    ("ofa::dat_ep_modify/request-evd-in-unconnected", HANGS),
    ("ofa::dat_ep_modify/transport-attributes-*", HANGS),
];

/// Tests that pass or not, as it happens.
const SOMETIMES: &[(&str, &str)] = &[
    (
        "verbs*::*in-disconnect-pending",
        "the kernel answers for a peer that is held still: the state may be over at once",
    ),
    ("verbs*::dat_ep_disconnect/peer-dies", ANSWERED),
    (
        "verbs*::dat_ep_disconnect/silent-peer",
        "the kernel answers for a peer that is held still: the read may be done before it is given up",
    ),
    ("verbs*::dat_cno_wait/unsignalled-completion", UNSIGNALLED),
    ("verbs*::dat_evd_wait/unsignalled-completion", UNSIGNALLED),
    (
        "verbs*::dat_ep_recv_query/half-received-of-srq",
        "a device does not tell which buffers of a shared queue it is filling; and the kernel goes on for a peer that is held still",
    ),
    (
        "verbs_on_siw::*in-completion-pending",
        "the kernel answers for a peer that is held still: the state may be over at once",
    ),
];

/// It passes where the completion was there before the device was to tell of any.
const UNSIGNALLED: &str = "a device tells of each completion of a request, or of none: an unsignalled one triggers the CNO, too";

/// What a test means to keep from happening happens.
const ANSWERED: &str =
    "the kernel answers for a peer that is held still: what is asked of it before it dies succeeds";

/// Such cases are not asked.
const HANGS: &str = "OFED's provider does not return, or dies";

/// Nor are these.
const BREAKS: &str =
    "OFED's provider breaks the heap, so that whoever frees something next dies of it";

/// Nor are these.
const SIW_CALLS: &str = "siw does not let go of who calls until TCP gives up";

/// Where it dies, if in code of its own: in its libraries, the ones that it is made of, and without a word in its threads, which
/// block all signals. Nothing of ours does.
const OFED: &[&str] =
    &["libdaplofa.so", "librdmacm.so", "libibverbs.so", "librxe-", "an unreported place"];

/// Cases that it does not survive.
const DEADLY: &[&str] = &[
    "*/in-passive-connection-pending",
    "*/*-in-passive-connection-pending",
    "*/in-unconfigured-passive",
    "*/*-in-unconfigured-passive",
    "dat_ep_modify/*",
    "*/null-*",
    "dat_ep_create/evd-recv-other-ia",
    "dat_ep_free/subtypes",
    "dat_cno_create/bad-ia",
    "dat_ia_openv/shared-async-evd",
    "dat_ia_openv/async-evd-elsewhere",
    "dat_ia_close/wakes-cno-waiters",
    "dat_get_handle_type/bad-arguments",
    "dat_psp_create/backlog",
    "dat_rsp_create/one-request",
    "dat_cr_accept/with-ep-at-rsp",
    "dat_cr_accept/too-much-private-data",
    "dat_ep_post_recv/bad-arguments",
];

/// Why a test is known not to pass.
pub(super) fn known(test: &str) -> Option<&'static str> {
    KNOWN.iter().find(|(tests, _)| conformance::matches_pattern(tests, test)).map(|(_, why)| *why)
}

/// Why a test may not pass.
pub(super) fn sometimes(test: &str) -> Option<&'static str> {
    SOMETIMES
        .iter()
        .find(|(tests, _)| conformance::matches_pattern(tests, test))
        .map(|(_, why)| *why)
}

/// Whether asking would take the machine's time for nothing.
pub(super) fn hangs(test: &str) -> bool {
    known(test).is_some_and(|why| [HANGS, BREAKS, SIW_CALLS].contains(&why))
}

/// What of OFED's provider is said: it is not ours to mend, so a case that fails over it is named, and no failure of ours.
/// Where a process dies it must be known to, and the place must be in that provider.
pub(super) fn ofa(case: &str, verdict: &Verdict) -> Option<String> {
    match verdict {
        Verdict::Failed(reason) if dies(reason) => (is_deadly(case) && in_ofed(reason))
            .then(|| format!("unsupported: asked so, OFED's provider ends the process ({reason})")),
        Verdict::Failed(reason) => Some(format!("OFED's provider does otherwise: {reason}")),
        _ => None,
    }
}

/// Whether it has died where nobody knew that it would, in OFED's code: a thread of an adapter that was closed before may have been
/// behind its time.
pub(super) fn may_be_late(case: &str, verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Failed(reason) if dies(reason) && in_ofed(reason) && !is_deadly(case))
}

fn is_deadly(case: &str) -> bool {
    DEADLY.iter().any(|deadly| conformance::matches_pattern(deadly, case))
}

fn in_ofed(reason: &str) -> bool {
    reason
        .split_once(" in ")
        .is_some_and(|(_, place)| OFED.iter().any(|library| place.starts_with(library)))
}

/// Whether a process has died, this one or its peer.
fn dies(reason: &str) -> bool {
    reason.contains("the process died") || reason.contains("the peer is gone")
}

/// Whether a failure may be one that is known, for a reason that has been looked at: no library of ours dies or hangs for it.
pub(super) fn may_be_known(reason: &str) -> bool {
    !dies(reason) && !["has not returned", "panicked"].iter().any(|bad| reason.contains(bad))
}
