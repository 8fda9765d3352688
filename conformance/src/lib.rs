//! The conformance suite of uDAPL: what the standard says, sentence by sentence, as cases that any provider can be
//! asked.
//!
//! A [`Case`] names a function, a clause and a requirement. It works on raw handles, because half of the standard is
//! about calls that are wrong, and knows neither its provider nor how the functions are reached: a [`Door`] is the
//! registry linked into this program, a `libdat2.so.2` or a `libdat.so.1`, and a provider is a name in its registry.
//! [`Pool`] runs cases in processes of their own, so that one that hangs or crashes is one failure and no more.
//! docs/conformance.md maps the sentences of the manual to cases.

mod api;
mod case;
mod cases;
mod check;
mod death;
mod door;
mod functions;
mod patience;
mod report;
mod rig;
mod worker;

pub use case::{Case, Level, Stop, fits};
pub use cases::all;
pub use door::{Door, Version};
pub use patience::PATIENCE;
pub use report::{Format, Record, Report, Verdict};
pub use worker::{Pool, Target, serve};
