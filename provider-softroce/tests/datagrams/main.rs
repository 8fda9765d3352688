//! Tests of datagrams over RoCEv2.

mod ends;
mod network;
mod topology;
