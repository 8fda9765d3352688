//! Tests of the exported function table over the provider mem. The tests call the functions
//! as C code does.

mod adapter_limits;
mod arguments;
mod causes;
mod client;
mod closing;
mod counters;
mod datagrams;
mod dispatchers;
mod extended;
mod flags;
mod handles;
mod memory;
mod one_of_everything;
mod opening;
mod queries;
mod queue_slots;
mod shared_regions;
mod transfer;
mod unconfigured;
mod watermarks;
mod windows;

#[test]
fn limits_are_as_reported() {
    let (table, name) = client::mem(false);
    adapter_limits::limits_hold(table, &name);
}

#[test]
fn causes_are_told_at_both_ends() {
    let (table, name) = client::mem(false);
    causes::sentences_are_right(table, &name, causes::Protocol::Mem);
}

#[test]
fn the_document_of_causes_lists_each_case() {
    causes::the_document_lists_each_case(include_str!("../../../docs/causes.md"));
}

#[test]
fn the_arguments_of_the_last_cause_are_checked() {
    let (table, name) = client::mem(false);
    causes::arguments_are_checked(table, &name);
}
