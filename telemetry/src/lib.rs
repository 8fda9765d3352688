//! What the library tells its user: the log, messages about errors, and counters.
//!
//! The environment decides where the log and the messages go, and whether their lines are text or
//! JSON (docs/dat-conf.md). Nothing is logged unless the environment asks for it, but a message
//! goes to standard error by default.

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
