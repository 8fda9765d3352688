//! What the library tells its user: the log, messages about errors, and counters.
//!
//! The environment decides where the log and the messages go, and whether their lines are text or
//! JSON (docs/dat-conf.md). Nothing is logged unless the environment asks for it, but a message
//! goes to standard error by default.
//! # Example
//!
//! A caller that returns an error of its own collects the messages that belong to it. All other
//! failures go to standard error, or to where the environment says:
//!
//! ```
//! use telemetry::{Category, collect, log, report};
//!
//! let load = |library: &str| {
//!     report(Category::Library, format_args!("loads {library}"));
//!     report(Category::Error, format_args!("{library} exports no dat_provider_init"));
//!     None::<fn()>
//! };
//! let (provider, messages) = collect(|| load("libvendor.so"));
//! assert!(provider.is_none());
//! assert_eq!(messages, ["libvendor.so exports no dat_provider_init"]);
//!
//! // `OPENDAT_LOG` asks for the log. A mistake in its value is explained.
//! assert!(log::check("json,dat::cm=debug").is_ok());
//! let mistake = log::check("degub").unwrap_err();
//! assert!(mistake.starts_with("degub is neither a level nor a target; for example debug"));
//! ```

// The modules, from the highest layer to the lowest. Other crates write and report through these
// modules:
pub mod log;
mod message;
pub mod stats;
pub mod trace;

// The contents of lines, the variables that select what is written, and the destination of lines:
mod line;
mod settings;

mod clocks;
mod destination;

// The process and its user:
pub mod environment;
pub mod threads;
pub mod user_directory;

pub use line::Hex;
pub use message::{Category, collect, complain, printable, report};
