//! MPA: turns a TCP stream into a sequence of records.
//!
//! Each direction starts with one setup frame ([`Setup`]). FPDUs ([`fpdu`]) follow, with one record
//! (ULPDU) in each. Markers are not supported, except for the flag that requests them: frames with
//! markers are neither read nor written.

pub mod fpdu;
mod setup;

pub use fpdu::Fpdu;
pub use setup::{
    Enhanced, MAX_PRIVATE_DATA, MAX_SETUP, ReadDepth, Revision, SETUP_SIZE, Setup, SetupError,
    SetupKind, SetupProgress,
};
