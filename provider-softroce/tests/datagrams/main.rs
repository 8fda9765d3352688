//! Tests of datagrams over RoCEv2.

mod capture;
mod ends;
mod network;
#[path = "../../../capture/tests/reader/mod.rs"]
#[expect(dead_code, reason = "only the tests of the crate capture use the rest")]
mod reader;
mod topology;
