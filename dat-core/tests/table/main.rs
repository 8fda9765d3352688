//! Tests of the exported function table over the loopback transport. The tests call the functions
//! as C code does.

mod adapter_limits;
mod arguments;
mod client;
mod closing;
mod counters;
mod dispatchers;
mod extended;
mod flags;
mod handles;
mod memory;
mod one_of_everything;
mod opening;
mod places;
mod queries;
mod shared;
mod transfer;
mod unconfigured;
mod watermarks;
mod windows;

#[test]
fn limits_are_as_reported() {
    let (table, name) = client::loopback(false);
    adapter_limits::limits_hold(table, &name);
}
