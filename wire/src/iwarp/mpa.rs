//! MPA: what turns a TCP stream into a sequence of records.
//!
//! First one setup frame in each direction ([`Setup`]), then FPDUs ([`fpdu`]), one record (ULPDU) in each. Markers are
//! known as the flag by which a peer asks for them; frames with markers are neither read nor written.

pub mod fpdu;
mod setup;

pub use fpdu::Fpdu;
pub use setup::{
    Enhanced, MAX_PRIVATE_DATA, MAX_SETUP, ReadDepth, Revision, SETUP_SIZE, Setup, SetupError,
    SetupKind, SetupProgress,
};
