//! The cases that are known not to pass in this project's own test runs, with the reasons.
//!
//! A run fails if a listed case passes. A run also fails if a binding requirement (MUST) that is
//! not listed fails or is unsupported. Listed cases are not counted as passed.

use conformance::matches_pattern;

/// A set of tests that are known not to pass.
struct Known {
    /// The names of the tests, `PROVIDER::BINDING::CASE`, in which `*` stands for any text.
    tests: &'static str,
    how: KnownOutcome,
    reason: &'static str,
}

/// The known outcome of a test that does not pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KnownOutcome {
    /// The provider violates the requirement.
    Fails,
    /// The provider lacks an optional feature.
    Unsupported,
}

use KnownOutcome::*;

const fn known(tests: &'static str, how: KnownOutcome, reason: &'static str) -> Known {
    Known { tests, how, reason }
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
    known("*in-connected-single-path", Unsupported, ONE_PATH),
    known("*in-connected-multi-path", Unsupported, ONE_PATH),
    known("mem::*in-completion-pending", Unsupported, NO_PEER),
    known("mem::*in-disconnect-pending", Unsupported, NO_PEER),
    known("mem::*::dat_ep_connect/another-process", Unsupported, NO_PEER),
    known("mem::*/silent-peer", Unsupported, NO_PEER),
    known("mem::*/peer-dies", Unsupported, NO_PEER),
    known("mem::*/half-received*", Unsupported, NO_PEER),
    known("mem::*/peer-is-gone", Unsupported, NO_PEER),
    known("softroce::*::dat_ia_query/private-data-size", Fails, ROOM_IN_A_REQ),
    known("tcp-emu::*::dat_extension_op/ud-*", Unsupported, NO_DATAGRAMS),
    known("mem::*::dat_extension_op/datagrams-by-name-only", Unsupported, DATAGRAMS),
    known("mem::*::dat_extension_op/known-but-unsupported", Unsupported, DATAGRAMS),
    known("softroce::*::dat_extension_op/datagrams-by-name-only", Unsupported, DATAGRAMS),
    known("softroce::*::dat_extension_op/known-but-unsupported", Unsupported, DATAGRAMS),
    // The reason of the following entries is the distribution's library, not a provider.
    known("*::debian::dat_cno_fd_create/*", Unsupported, NOT_EXPORTED),
    known("*::debian::dat_cno_trigger/*", Unsupported, NOT_EXPORTED),
    known("*::debian::dat_csp_*", Unsupported, NOT_EXPORTED),
    known("*::debian::dat_ep_common_connect/*", Unsupported, NOT_EXPORTED),
    known("*::debian::dat_ep_post_rdma_read_to_rmr/*", Unsupported, NOT_EXPORTED),
    known("*::debian::dat_ep_post_send_with_invalidate/*", Unsupported, NOT_EXPORTED),
    known("*::debian::dat_registry_providers_related/*", Unsupported, NOT_EXPORTED),
    known("*::debian::dat_rmr_create_for_ep/*", Unsupported, NOT_EXPORTED),
    known("*::debian::dat_registry_add_provider/null-arguments", Fails, DEREFERENCES_NULL),
    known("*::debian::dat_registry_remove_provider/null-arguments", Fails, DEREFERENCES_NULL),
    known("*::debian::dat_strerror/null-texts", Fails, DEREFERENCES_NULL),
    known(
        "*::debian::dat_ib_open_query/bad-arguments",
        Fails,
        "OFED's libdat2 reports a null name as an invalid handle",
    ),
    known(
        "*::debian::dat_ib_close_query/once",
        Fails,
        "OFED's libdat2 uses the handle of a query that has ended",
    ),
    known(
        "*::debian::dat_strerror/every-status",
        Fails,
        "OFED's dat_strerror crashes on some statuses",
    ),
];

/// Returns the reason for which this test is known not to pass.
pub(crate) fn entry(test: &str) -> Option<(KnownOutcome, &'static str)> {
    KNOWN
        .iter()
        .find(|known| matches_pattern(known.tests, test))
        .map(|known| (known.how, known.reason))
}
