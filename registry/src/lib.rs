//! The DAT registry: who is behind an IA name.

pub mod conf;
pub mod entry;
pub mod toml;
