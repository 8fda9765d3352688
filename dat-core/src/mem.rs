//! Memory regions, and the protection zones that control the access to them.

pub mod lmr;
pub(crate) mod mapping;
pub mod pz;
pub mod rmr;
pub mod shared_region;

pub use lmr::Lmr;
pub use pz::Pz;
pub use rmr::Rmr;
