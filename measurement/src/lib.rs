//! Measurements of DAT between two processes, next to plain sockets: what the programs `dat` and
//! `workshop` have in common.
//!
//! | module | contents |
//! |---|---|
//! | [`arguments`] | arguments that commands of both programs have |
//! | [`pair`] | starts the two processes, and receives their messages |
//! | [`peer`] | one of the two processes; what it does is the program's [`peer::Work`] |
//! | [`parent`] | lines of JSON between a process and the process that has started it |
//! | [`measure`] | latency and bandwidth of one connection |
//! | [`connection`] | a DAT connection with its memory |
//! | [`plain_sockets`] | the TCP connection that DAT is compared with |
//! | [`operation`] | the operations that are measured |
//! | [`wait`] | how the two processes wait for each other |
//! | [`rounds`] | how many times a row is measured, and medians with their spread |
//! | [`states`] | two states of a machine in the rounds of a row |
//! | [`machine`], [`cpu`] | this host and its processors |
//! | [`table`], [`units`] | text output |
#![forbid(unsafe_code)]

pub mod arguments;
pub mod connection;
pub mod cpu;
pub mod machine;
pub mod measure;
pub mod operation;
pub mod pair;
pub mod parent;
pub mod peer;
pub mod plain_sockets;
pub mod rounds;
pub mod states;
pub mod table;
pub mod units;
pub mod wait;
