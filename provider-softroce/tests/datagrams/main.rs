//! Tests of datagrams over RoCEv2.

mod ends;
mod topology;
