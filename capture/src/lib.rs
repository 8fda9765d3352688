//! What an adapter's sockets send and receive, as a pcapng file that Wireshark dissects.
//!
//! A socket shows neither Ethernet nor IP headers, and a TCP socket no segments. They are synthesised here, with the
//! lengths, checksums and sequence numbers that belong to the octets; so no privilege is needed.
//!
//! | file | what |
//! |---|---|
//! | `handle` | [`Capture`], the handle: datagrams, batches of them |
//! | `flow` | [`Flow`]: the segments that would carry the octets of a TCP socket |
//! | `headers` | Ethernet, IPv4, IPv6, UDP, TCP |
//! | `pcapng` | the blocks of the file (draft-ietf-opsawg-pcapng) |
//! | `output` | the file: its name, who shares it, how it is written |
//!
//! # The file
//!
//! The name may contain `%p` (the process id), `%n` (the number of the capture in the process, from 0) and `%%`. A file
//! that exists is replaced, unless somebody is writing to it: that is an error for another process. In one process all
//! captures of one name share the file, each as an interface of its own; one that is opened when the others have been
//! closed goes on behind them.
//!
//! Each call writes what it records: when it returns, the kernel has it, and a process that is killed leaves a file
//! that ends with a whole block. A file is readable by its owner only, since it holds the consumers' data. If writing
//! fails later (the disk is full), recording ends with a line on standard error.

#![forbid(unsafe_code)]

mod flow;
mod handle;
mod headers;
mod output;
mod pcapng;

pub use flow::Flow;
pub use handle::{Batch, Capture, Datagram, Direction};
pub use output::OpenError;
