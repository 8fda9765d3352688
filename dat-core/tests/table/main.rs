//! The exported function table, called as C calls it, over the loopback transport.

mod arguments;
mod client;
mod closing;
mod counters;
mod crowd;
mod dispatchers;
mod extended;
mod flags;
mod handles;
mod memory;
mod opening;
mod places;
mod queries;
mod shared;
mod told;
mod transfer;
mod unconfigured;
mod watermarks;
mod windows;

#[test]
fn limits_are_as_told() {
    let (table, name) = client::loopback(false);
    told::limits_hold(table, &name);
}
