//! The conformance suite of uDAPL: the standard's requirements, sentence by sentence, as cases that
//! run against any provider.
//!
//! A [`Case`] names a function, a clause and a requirement. Cases use raw handles, because half of
//! the standard is about calls with wrong arguments. A case depends neither on the provider nor on
//! the way in which the suite calls the functions. A [`Binding`] is this way: the registry linked
//! into this program, a `libdat2.so.2` or a `libdat.so.1`. A provider is a name in the registry of
//! the binding. [`Pool`] runs cases in processes of their own, so that a case that hangs or crashes
//! is a single failure. [`explain`] says which part of the standard a case tests, and
//! [`return_values`] which cases cause a status.

// The modules, from the highest layer to the lowest. First the modules that run cases:
mod report;
mod worker;

// The cases, and what they cover:
mod case;
mod cases;
mod coverage;

// The modules that cases use:
mod check;
mod crash;
mod rig;
mod time_limits;

// The functions under test, and the ways in which the suite calls them:
mod api;
mod binding;
mod calls;
mod functions;

pub use binding::{Binding, Version};
pub use calls::{Call, Calls};
pub use case::{Case, Level, is_selected_by, matches_pattern};
pub use cases::all;
pub use check::NotPassed;
pub use coverage::{
    Caused, Explanation, Gap, Known, KnownOutcome, ReturnValue, Room, Strictness, Tested, explain,
    gaps, known, return_values,
};
pub use report::{Format, Record, Report, Verdict};
pub use time_limits::{DEFAULT_EVENT_TIMEOUT, MAX_EVENT_TIMEOUT};
pub use worker::{Pool, Target, serve};
