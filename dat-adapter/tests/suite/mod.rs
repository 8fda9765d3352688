//! Tests that every software adapter must pass, whatever its wire protocol is. A provider includes
//! them in a test of its own (`#[path]`). That test defines `PROVIDER`, its `NAME`, the `Tested`
//! transport, and `WIRES`: ia_params that change how data are moved.

mod agent;
mod attended;
mod flushed;
mod panic;
mod progress;
mod qualifiers;
