//! Mutants that no test can catch, each with the reason.

/// A mutant: its file, the change in cargo-mutants' words, and why nobody can tell.
const SURVIVORS: &[(&str, &str, &str)] = &[
    ("dat-core/src/evd/mod.rs", "replace | with ^", APART),
    ("dat-core/src/evd/mod.rs", "replace | with ^ in Evd<T>::state", APART),
    ("dat-core/src/ep/bind.rs", "replace | with ^", APART),
    ("dat-core/src/ep/params.rs", "replace | with ^", APART),
    ("dat-core/src/ep/requests.rs", "replace | with ^ in Requests::claim", APART),
    (
        "dat-core/src/ep/params.rs",
        "delete field service_type from struct DAT_EP_ATTR expression in defaults",
        ZERO,
    ),
    (
        "dat-core/src/ep/params.rs",
        "delete field qos from struct DAT_EP_ATTR expression in defaults",
        ZERO,
    ),
    (
        "dat-core/src/ep/params.rs",
        "delete field recv_completion_flags from struct DAT_EP_ATTR expression in defaults",
        ZERO,
    ),
    (
        "dat-core/src/ep/params.rs",
        "delete field request_completion_flags from struct DAT_EP_ATTR expression in defaults",
        ZERO,
    ),
    (
        "dat-core/src/ep/requests.rs",
        "replace >> with << in Requests::claim",
        "the place that is not seen at once is found by the search: only the time differs",
    ),
    ("rnic/src/rdmap/frame.rs", "replace > with == in Framing<H, P>::put", SAME_OCTETS),
    ("rnic/src/rdmap/frame.rs", "replace < with <= in Framing<H, P>::put", SAME_OCTETS),
];

const APART: &str = "the operands have no bit in common";
const SAME_OCTETS: &str =
    "the same octets leave: only whether they are copied, or how many by one system call, differs";
const ZERO: &str = "the value is 0, and so is that of a field that is not named";

/// Why nobody can tell this mutant from the product; none: a test should.
pub(super) fn reason(mutant: &str) -> Option<&'static str> {
    let (place, change) = mutant.split_once(": ")?;
    let file = place.split(':').next()?;
    SURVIVORS.iter().find(|(of, what, _)| (*of, *what) == (file, change)).map(|(.., why)| *why)
}
