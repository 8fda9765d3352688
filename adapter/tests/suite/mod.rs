//! The tests of every software adapter, whatever its transport. A provider includes this file in a
//! test of its own (`#[path]`), which defines `PROVIDER`, its `NAME`, the `Tested` transport, and
//! `WIRES`: ia_params that change how data is moved.

mod agent;
mod attended;
mod panic;
mod progress;
