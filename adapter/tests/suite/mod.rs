//! Tests of every software adapter, whatever its wire protocol. A provider includes them in a test
//! of its own (`#[path]`), which defines `PROVIDER`, its `NAME`, the `Tested` transport, and
//! `WIRES`: ia_params that change how data are moved.

mod agent;
mod attended;
mod panic;
mod progress;
