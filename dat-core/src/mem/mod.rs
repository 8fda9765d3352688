//! Memory: who may touch which bytes.

pub mod lmr;
pub mod pz;

pub use lmr::Lmr;
pub use pz::Pz;
