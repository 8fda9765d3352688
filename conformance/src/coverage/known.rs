//! The cases that are known not to pass over this project's own providers, with the reasons.
//!
//! A run of `conformance/tests/suite.rs` fails if a listed case passes. It also fails if a binding
//! requirement (MUST) that is not listed fails or is unsupported. Listed cases are not counted as
//! passed.

use serde::Serialize;

use crate::case::matches_pattern;

/// Cases that are known not to pass.
#[derive(Debug, Serialize)]
pub struct Known {
    /// The provider over which the cases do not pass. `*` stands for every provider.
    pub provider: &'static str,
    /// The way in which the suite calls the provider: `debian` is OFED's libdat2 of the
    /// distribution, and `*` is every way.
    pub binding: &'static str,
    #[serde(skip)]
    cases: &'static str,
    /// What becomes of the cases.
    pub outcome: KnownOutcome,
    /// Why the cases do not pass.
    pub reason: &'static str,
}

/// The known outcome of a case that does not pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum KnownOutcome {
    /// The provider violates the requirement.
    Fails,
    /// The provider lacks an optional feature.
    Unsupported,
}

use KnownOutcome::*;

/// Returns an entry about a provider, through every binding.
const fn over(
    provider: &'static str,
    cases: &'static str,
    outcome: KnownOutcome,
    reason: &'static str,
) -> Known {
    Known { provider, binding: "*", cases, outcome, reason }
}

/// Returns an entry whose reason is the distribution's library, not a provider.
const fn debian(cases: &'static str, outcome: KnownOutcome, reason: &'static str) -> Known {
    Known { provider: "*", binding: "debian", cases, outcome, reason }
}

const ONE_PATH: &str = "the transport has only one path, as all transports of this project";
const NO_PEER: &str = "the adapter cannot connect to another process, which the test could stop";
const ROOM_IN_A_REQ: &str =
    "RoCE's REQ has room for 56 octets of private data, not for the 64 of the standard";
const DEREFERENCES_NULL: &str = "OFED's libdat2 dereferences a null argument";
const NO_DATAGRAMS: &str = "iWARP has no datagrams";
const DATAGRAMS: &str = "the case is about providers without datagrams";
const NOT_EXPORTED: &str = "OFED's libdat2 does not export this function of uDAPL 2.0";

const KNOWN: &[Known] = &[
    over("*", "*in-connected-single-path", Unsupported, ONE_PATH),
    over("*", "*in-connected-multi-path", Unsupported, ONE_PATH),
    over("mem", "*in-completion-pending", Unsupported, NO_PEER),
    over("mem", "*in-disconnect-pending", Unsupported, NO_PEER),
    over("mem", "dat_ep_connect/another-process", Unsupported, NO_PEER),
    over("mem", "*/silent-peer", Unsupported, NO_PEER),
    over("mem", "*/peer-dies", Unsupported, NO_PEER),
    over("mem", "*/half-received*", Unsupported, NO_PEER),
    over("mem", "*/peer-is-gone", Unsupported, NO_PEER),
    over("softroce", "dat_ia_query/private-data-size", Fails, ROOM_IN_A_REQ),
    over("tcp-emu", "dat_extension_op/ud-*", Unsupported, NO_DATAGRAMS),
    over("mem", "dat_extension_op/datagrams-by-name-only", Unsupported, DATAGRAMS),
    over("mem", "dat_extension_op/known-but-unsupported", Unsupported, DATAGRAMS),
    over("softroce", "dat_extension_op/datagrams-by-name-only", Unsupported, DATAGRAMS),
    over("softroce", "dat_extension_op/known-but-unsupported", Unsupported, DATAGRAMS),
    debian("dat_cno_fd_create/*", Unsupported, NOT_EXPORTED),
    debian("dat_cno_trigger/*", Unsupported, NOT_EXPORTED),
    debian("dat_csp_*", Unsupported, NOT_EXPORTED),
    debian("dat_ep_common_connect/*", Unsupported, NOT_EXPORTED),
    debian("dat_ep_post_rdma_read_to_rmr/*", Unsupported, NOT_EXPORTED),
    debian("dat_ep_post_send_with_invalidate/*", Unsupported, NOT_EXPORTED),
    debian("dat_registry_providers_related/*", Unsupported, NOT_EXPORTED),
    debian("dat_rmr_create_for_ep/*", Unsupported, NOT_EXPORTED),
    debian("dat_registry_add_provider/null-arguments", Fails, DEREFERENCES_NULL),
    debian("dat_registry_remove_provider/null-arguments", Fails, DEREFERENCES_NULL),
    debian("dat_strerror/null-texts", Fails, DEREFERENCES_NULL),
    debian(
        "dat_ib_open_query/bad-arguments",
        Fails,
        "OFED's libdat2 reports a null name as an invalid handle",
    ),
    debian(
        "dat_ib_close_query/once",
        Fails,
        "OFED's libdat2 uses the handle of a query that has ended",
    ),
    debian("dat_strerror/every-status", Fails, "OFED's dat_strerror crashes on some statuses"),
];

/// Returns the entry about a case over a provider, through a binding.
pub fn known(provider: &str, binding: &str, case: &str) -> Option<&'static Known> {
    KNOWN.iter().find(|known| {
        [provider, "*"].contains(&known.provider)
            && [binding, "*"].contains(&known.binding)
            && known.is_about(case)
    })
}

/// Returns all entries about a case.
pub(super) fn about(case: &str) -> impl Iterator<Item = &'static Known> {
    KNOWN.iter().filter(move |known| known.is_about(case))
}

impl Known {
    fn is_about(&self, case: &str) -> bool {
        matches_pattern(self.cases, case)
    }
}
