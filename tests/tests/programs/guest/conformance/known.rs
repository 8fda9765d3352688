//! What does not pass, each with the reason.

use super::Verdict;

/// Tests, `PROVIDER::CASE`; a star stands for any text.
const KNOWN: &[(&str, &str)] = &[
    (
        "verbs::dat_ia_query/private-data-size",
        "56 octets: the REQ has no room for the 64 that the standard asks for",
    ),
    ("verbs::dat_ep_disconnect/peer-dies", ANSWERED),
    ("verbs_on_siw::dat_ia_query/private-data-size", "56 octets: rdma_cm leaves as many of every request"),
    ("verbs_on_siw::dat_ep_connect/times-out", SIW_CALLS),
    ("verbs_on_siw::dat_ep_connect/silent-peer", SIW_CALLS),
    ("verbs_on_siw::dat_ep_post_rdma_read/no-remote-read", "siw lets peers read whatever is registered"),
    ("verbs_on_siw::dat_ep_disconnect/peer-dies", ANSWERED),
    ("verbs_on_siw::dat_cr_accept/peer-is-gone", ANSWERED),
    ("ofa::dat_ia_query/thread-safety", HANGS),
    ("ofa::dat_ia_openv/thread-safety", HANGS),
    ("ofa::dat_ia_openv/bad-async-evd", HANGS),
    ("ofa::dat_evd_resize/while-connected", HANGS),
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
    (
        "verbs*::dat_ep_disconnect/silent-peer",
        "the kernel answers for a peer that is held still: the read may be done before it is given up",
    ),
    (
        "verbs_on_siw::*in-completion-pending",
        "the kernel answers for a peer that is held still: the state may be over at once",
    ),
];

/// What a test means to keep from happening happens.
const ANSWERED: &str =
    "the kernel answers for a peer that is held still: what is asked of it before it dies succeeds";

/// Such cases are not asked.
const HANGS: &str = "OFED's provider does not return, or dies";

/// Nor are these.
const SIW_CALLS: &str = "siw does not let go of who calls until TCP gives up";

/// Cases that OFED's provider does not survive, in its own code.
const DEADLY: &[&str] = &[
    "*/in-passive-connection-pending",
    "*/*-in-passive-connection-pending",
    "*/in-unconfigured-passive",
    "*/*-in-unconfigured-passive",
    "dat_ep_modify/*",
    "*/null-*",
    "dat_ep_create/evd-recv-other-ia",
    "dat_ep_free/subtypes",
    "dat_evd_resize/*",
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
    KNOWN.iter().find(|(tests, _)| conformance::fits(tests, test)).map(|(_, why)| *why)
}

/// Why a test may not pass.
pub(super) fn sometimes(test: &str) -> Option<&'static str> {
    SOMETIMES.iter().find(|(tests, _)| conformance::fits(tests, test)).map(|(_, why)| *why)
}

/// Whether asking would take the machine's time for nothing.
pub(super) fn hangs(test: &str) -> bool {
    known(test).is_some_and(|why| [HANGS, SIW_CALLS].contains(&why))
}

/// What of OFED's provider is said: it is not ours to mend, so a case that fails over it is named, and no failure of ours;
/// but where a process dies it must be known that it is of that provider.
pub(super) fn ofa(case: &str, verdict: &Verdict) -> Option<String> {
    match verdict {
        Verdict::Failed(reason) if reason.contains("the process died") => {
            let is_known = DEADLY.iter().any(|deadly| conformance::fits(deadly, case));
            is_known.then(|| format!("unsupported: asked so, OFED's provider ends the process ({reason})"))
        }
        Verdict::Failed(reason) => Some(format!("OFED's provider does otherwise: {reason}")),
        _ => None,
    }
}
