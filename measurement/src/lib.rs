//! Measurements of DAT between two processes, next to plain sockets: what the programs `dat` and
//! `workshop` have in common.
//!
//! | module | contents |
//! |---|---|
//! | [`arguments`] | arguments that commands of both programs have |
//! | [`pair`] | starts the two processes, and receives their messages |
//! | [`peer`] | one of the two processes; what it does is the program's [`peer::Task`] |
//! | [`json_lines`] | lines of JSON between a process and the process that has started it |
//! | [`measure`] | latency and bandwidth of one connection |
//! | [`connection`] | a DAT connection with its memory |
//! | [`plain_sockets`] | the TCP connection that DAT is compared with |
//! | [`operation`] | the operations that are measured |
//! | [`wait_mode`] | how the two processes wait for each other |
//! | [`schedule`] | how many times a row is measured, and medians with their spread |
//! | [`states`] | two states of a machine in the rounds of a row |
//! | [`machine`], [`cpu`] | this host and its processors |
//! | [`text_table`], [`units`] | text output |
#![forbid(unsafe_code)]

pub mod arguments;
pub mod connection;
pub mod cpu;
pub mod json_lines;
pub mod machine;
pub mod measure;
pub mod operation;
pub mod pair;
pub mod peer;
pub mod plain_sockets;
pub mod schedule;
pub mod states;
pub mod text_table;
pub mod units;
pub mod wait_mode;
