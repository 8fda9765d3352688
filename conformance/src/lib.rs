//! The conformance suite of uDAPL: the standard's requirements, sentence by sentence, as cases that
//! run against any provider.
//!
//! A [`Case`] names a function, a clause and a requirement. It uses raw handles, because half of
//! the standard is about calls with wrong arguments. It does not depend on the provider, and does
//! not depend on the way in which the functions are called. A [`Binding`] is the registry linked
//! into this program, a `libdat2.so.2` or a `libdat.so.1`. A provider is a name in the registry of
//! the binding. [`Pool`] runs cases in processes of their own, so that a case that hangs or crashes
//! is a single failure. docs/conformance.md maps the sentences of the manual to cases.

// The layers, from top to bottom. First running the cases:
mod report;
mod worker;

// The cases:
mod case;
mod cases;

// The tools of cases:
mod check;
mod crash;
mod rig;
mod time_limits;

// The functions under test, and the ways in which they are called:
mod api;
mod binding;
mod functions;

pub use binding::{Binding, Version};
pub use case::{Case, Level, matches_pattern};
pub use cases::all;
pub use check::NotPassed;
pub use report::{Format, Record, Report, Verdict};
pub use time_limits::{DEFAULT_EVENT_TIMEOUT, MAX_EVENT_TIMEOUT};
pub use worker::{Pool, Target, serve};
