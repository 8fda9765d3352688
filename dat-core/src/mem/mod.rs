//! Memory, and who may access it.

pub mod lmr;
pub(crate) mod mapping;
pub mod pz;
pub mod rmr;
pub mod shared;

pub use lmr::Lmr;
pub use pz::Pz;
pub use rmr::Rmr;
