//! What our providers are known to do otherwise than the standard says, or not at all, each with the reason.
//!
//! The list only shrinks: a case in it that passes fails the run, and so does a MUST that fails or is unsupported and
//! is not in it. None of its cases is counted as passed.

/// Cases that do not pass.
struct Known {
    /// The name of a case; a star at its beginning or end stands for anything.
    cases: &'static str,
    /// The provider that it is about; empty for all.
    provider: &'static str,
    how: How,
    reason: &'static str,
}

/// How they do not pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// The provider does something else.
    Fails,
    /// The standard lets a provider do without.
    Unsupported,
    /// Whether it can be asked depends on who is faster: it passes or is unsupported.
    Fleeting,
}

use How::*;

const fn known(cases: &'static str, provider: &'static str, how: How, reason: &'static str) -> Known {
    Known { cases, provider, how, reason }
}

const KNOWN: &[Known] = &[
    known("*in-connected-single-path", "", Unsupported, "one path: no transport of ours has several"),
    known("*in-connected-multi-path", "", Unsupported, "one path: no transport of ours has several"),
    known(
        "*in-completion-pending",
        "",
        Fleeting,
        "the connection is up as soon as it is accepted, or soon after",
    ),
    known("*in-disconnect-pending", "", Fleeting, "what is outstanding may be done before one can look"),
    known(
        "dat_ep_post_rdma_write/no-local-read",
        "",
        Fails,
        "decided: local read is implied, because programs rely on it (docs/compatibility.md)",
    ),
];

/// How this case is known not to pass, and why: what it fails at may moreover be a state that is gone too soon.
pub(crate) fn entries(provider: &str, id: &str) -> Vec<(How, &'static str)> {
    let here = |known: &&Known| known.provider.is_empty() || known.provider == provider;
    let named = KNOWN.iter().filter(here).filter(|known| matches(known.cases, id));
    named.map(|known| (known.how, known.reason)).collect()
}

fn matches(pattern: &str, id: &str) -> bool {
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(end), _) => id.ends_with(end),
        (None, Some(start)) => id.starts_with(start),
        (None, None) => id == pattern,
    }
}
