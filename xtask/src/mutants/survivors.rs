//! Mutants that no test can catch, with the reasons.

/// A mutant: its file, the change in cargo-mutants' notation, and why no test can catch it.
const SURVIVORS: &[(&str, &str, &str)] = &[
    ("dat-core/src/evd.rs", "replace | with ^", NO_COMMON_BITS),
    ("dat-core/src/evd.rs", "replace | with ^ in Evd<T>::state", NO_COMMON_BITS),
    ("dat-core/src/ep/bind.rs", "replace | with ^", NO_COMMON_BITS),
    ("dat-core/src/ep/params.rs", "replace | with ^", NO_COMMON_BITS),
    ("dat-core/src/ep/request_cells.rs", "replace | with ^ in RequestCells::claim", NO_COMMON_BITS),
    (
        "dat-core/src/ep/params.rs",
        "delete field service_type from struct DAT_EP_ATTR expression in defaults",
        ZERO_FIELD,
    ),
    (
        "dat-core/src/ep/params.rs",
        "delete field qos from struct DAT_EP_ATTR expression in defaults",
        ZERO_FIELD,
    ),
    (
        "dat-core/src/ep/params.rs",
        "delete field recv_completion_flags from struct DAT_EP_ATTR expression in defaults",
        ZERO_FIELD,
    ),
    (
        "dat-core/src/ep/params.rs",
        "delete field request_completion_flags from struct DAT_EP_ATTR expression in defaults",
        ZERO_FIELD,
    ),
    (
        "dat-core/src/ep/request_cells.rs",
        "replace >> with << in RequestCells::claim",
        "a free cell that the quick check misses is found by the search: only the time differs",
    ),
    ("rnic/src/rdmap/frame.rs", "replace > with == in Framing<H, P>::put", SAME_OCTETS),
    ("rnic/src/rdmap/frame.rs", "replace < with <= in Framing<H, P>::put", SAME_OCTETS),
];

const NO_COMMON_BITS: &str = "the operands have no bit in common";
const SAME_OCTETS: &str =
    "the same octets are sent, but some are copied, or another number of system calls sends them";
const ZERO_FIELD: &str =
    "the field is set to 0, which is also its value if the expression does not name it";

/// Returns the reason why no test can catch this mutant, or `None` if a test should catch it.
pub(super) fn reason(mutant: &str) -> Option<&'static str> {
    let (place, change) = mutant.split_once(": ")?;
    let file = place.split(':').next()?;
    SURVIVORS.iter().find(|(of, what, _)| (*of, *what) == (file, change)).map(|(.., why)| *why)
}
