//! What is tested of every software adapter, whatever its wire. A provider includes it in a test of its own (`#[path]`), which
//! says `PROVIDER`, its `NAME`, the `Tested` transport, and `WIRES`: ia_params that change how data is moved.

mod agent;
mod attended;
mod panic;
mod progress;
