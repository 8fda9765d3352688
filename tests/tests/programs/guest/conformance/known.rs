//! Conformance cases that do not pass in the guest, each with its reason.

use super::Verdict;

/// The tests that do not pass, as `PROVIDER::CASE`. A star stands for any text.
const KNOWN: &[(&str, &str)] = &[
    (
        "verbs::dat_ia_query/private-data-size",
        "56 octets: the REQ has no room for the 64 octets that the standard requires",
    ),
    (
        "verbs_on_siw::dat_ia_query/private-data-size",
        "56 octets: the limit over siw is the same as over rxe",
    ),
    ("verbs_on_siw::dat_ep_connect/times-out", SIW_HOLDS_CALLER),
    ("verbs_on_siw::dat_ep_connect/silent-peer", SIW_HOLDS_CALLER),
    (
        "verbs_on_siw::dat_ep_post_rdma_read/no-remote-read",
        "siw lets peers read all registered memory",
    ),
    ("verbs_on_siw::dat_cr_accept/peer-is-gone", KERNEL_ANSWERS),
    ("ofa::dat_ia_query/thread-safety", HANGS),
    ("ofa::dat_ia_openv/thread-safety", HANGS),
    ("ofa::dat_ia_openv/bad-async-evd", HANGS),
    ("ofa::dat_evd_resize/*", CORRUPTS_HEAP),
    ("ofa::dat_cr_reject/reserved-ep", HANGS),
    ("ofa::dat_evd_dequeue/exactly-once", HANGS),
    ("ofa::dat_ep_create/defaults-can-be-modified", HANGS),
    ("ofa::dat_ep_modify/every-attribute", HANGS),
    ("ofa::dat_ep_modify/request-evd-in-reserved", HANGS),
    ("ofa::dat_ep_modify/request-evd-in-unconnected", HANGS),
    ("ofa::dat_ep_modify/transport-attributes-*", HANGS),
];

/// Tests that pass only sometimes.
const FLAKY: &[(&str, &str)] = &[
    (
        "verbs*::*in-disconnect-pending",
        "the kernel answers for a stopped peer: the state under test may end at once",
    ),
    ("verbs*::dat_ep_disconnect/peer-dies", KERNEL_ANSWERS),
    (
        "verbs*::dat_ep_disconnect/silent-peer",
        "the kernel answers for a stopped peer: the read may complete before it is given up",
    ),
    ("verbs*::dat_cno_wait/unsignalled-completion", UNSIGNALLED),
    ("verbs*::dat_evd_wait/unsignalled-completion", UNSIGNALLED),
    (
        "verbs*::dat_rmr_bind/read-privilege",
        "a device has no access right for local reads, so the bind may succeed",
    ),
    (
        "verbs*::dat_evd_dequeue/after-overflow",
        "a device may still add events while the remaining ones are taken",
    ),
    (
        "verbs*::dat_ep_recv_query/half-received-of-srq",
        "the kernel continues for a stopped peer, and a device need not flush a buffer of a shared \
         queue that it fills",
    ),
    (
        "verbs_on_siw::*in-completion-pending",
        "the kernel answers for a stopped peer: the state under test may end at once",
    ),
];

/// The reason of a case that passes only if the completion arrived before the device was armed.
const UNSIGNALLED: &str = "a device reports all completions of requests or none: an unsignalled \
     one triggers the CNO, too";

/// The reason of cases in which the peer must not answer. The kernel answers by itself, and a case
/// cannot prevent that.
const KERNEL_ANSWERS: &str =
    "the kernel answers for a stopped peer: requests made before it dies succeed";

/// The reason of cases that hang or die. Cases with this reason are not run.
const HANGS: &str = "OFED's provider does not return, or dies";

/// The reason of cases that corrupt the heap. Cases with this reason are not run.
const CORRUPTS_HEAP: &str =
    "OFED's provider corrupts the heap, so that the process dies at a later free";

/// The reason of cases in which siw holds up the caller. Cases with this reason are not run.
const SIW_HOLDS_CALLER: &str = "siw holds up the caller until TCP gives up";

/// The libraries in which OFED's provider crashes: its own libraries, and the libraries that they
/// call. A crash also counts as OFED's if its place is not reported, because the threads of OFED's
/// provider block all signals. The list has no library of this project.
const OFED: &[&str] =
    &["libdaplofa.so", "librdmacm.so", "libibverbs.so", "librxe-", "an unreported place"];

/// Cases in which OFED's provider ends the process.
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
    "dat_extension_op/post-bad-arguments",
    "dat_ib_open_query/bad-arguments",
];

/// Returns the reason why a test is known not to pass, if there is one.
pub(super) fn known(test: &str) -> Option<&'static str> {
    KNOWN.iter().find(|(tests, _)| conformance::matches_pattern(tests, test)).map(|(_, why)| *why)
}

/// Returns the reason why a test is allowed to fail, if it passes only sometimes.
pub(super) fn flaky(test: &str) -> Option<&'static str> {
    FLAKY.iter().find(|(tests, _)| conformance::matches_pattern(tests, test)).map(|(_, why)| *why)
}

/// Returns whether the case hangs or dies, so that running it would only waste the machine's time.
pub(super) fn hangs(test: &str) -> bool {
    known(test).is_some_and(|why| [HANGS, CORRUPTS_HEAP, SIW_HOLDS_CALLER].contains(&why))
}

/// Returns the reason why a case does not pass over OFED's provider. This project does not fix
/// OFED's provider, so such a case is reported and does not count as a failure. If the process
/// dies, this holds only for a case in the list `DEADLY` and a crash in OFED's code.
pub(super) fn reason_over_ofed(case: &str, verdict: &Verdict) -> Option<String> {
    match verdict {
        Verdict::Failed(reason) if dies(reason) => (is_deadly(case) && in_ofed(reason))
            .then(|| format!("unsupported: OFED's provider ends the process here ({reason})")),
        Verdict::Failed(reason) => Some(format!("OFED's provider behaves differently: {reason}")),
        _ => None,
    }
}

/// Returns whether a case that is not listed has died in OFED's code, perhaps because a thread of
/// an adapter that an earlier case closed ran late.
pub(super) fn may_be_late(case: &str, verdict: &Verdict) -> bool {
    let Verdict::Failed(reason) = verdict else { return false };
    dies(reason) && in_ofed(reason) && !is_deadly(case)
}

fn is_deadly(case: &str) -> bool {
    DEADLY.iter().any(|deadly| conformance::matches_pattern(deadly, case))
}

fn in_ofed(reason: &str) -> bool {
    reason
        .split_once(" in ")
        .is_some_and(|(_, place)| OFED.iter().any(|library| place.starts_with(library)))
}

/// Returns whether a process has died: the process of the case or its peer.
fn dies(reason: &str) -> bool {
    reason.contains("the process died") || reason.contains("the peer is gone")
}

/// Returns whether a failure can be one of the known failures. In none of the known failures does a
/// library of this project crash or hang, so a failure of that kind is always new.
pub(super) fn may_be_known(reason: &str) -> bool {
    !dies(reason) && !["has not returned", "panicked"].iter().any(|bad| reason.contains(bad))
}
