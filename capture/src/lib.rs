//! Records what an adapter's sockets send and receive, as a pcapng file that Wireshark dissects.
//!
//! A socket shows neither Ethernet nor IP headers, and a TCP socket shows no segments. This crate
//! creates such headers, with correct lengths, checksums and sequence numbers. The program
//! therefore needs no privilege for a capture.
//! # Example
//!
//! A datagram and a TCP connection are recorded in one file:
//!
//! ```
//! use std::time::Instant;
//!
//! use capture::{Capture, Datagram, Direction};
//!
//! let directory = tempfile::tempdir()?;
//! let name = directory.path().join("%p.pcapng,max=1M");
//! let capture = Capture::open(name.to_str().ok_or("not UTF-8")?, "softroce")?;
//! let path = capture.path().to_owned();
//!
//! let (local, peer) = ("10.0.0.1:4791".parse()?, "10.0.0.2:4791".parse()?);
//! let sent =
//!     Datagram { src: local, dst: peer, id: 0, dont_fragment: true, payload: b"a datagram" };
//! capture.udp(Instant::now(), Direction::Out, &sent);
//!
//! let flow = capture.tcp(Instant::now(), local, peer, Direction::Out);
//! let mut flow = flow.ok_or("the other end of the connection is recorded")?;
//! flow.data(Instant::now(), Direction::In, b"octets of a stream");
//! flow.finish(Instant::now(), Direction::In);
//!
//! let file = std::fs::read(path)?;
//! assert_eq!(file[..4], [0x0a, 0x0d, 0x0d, 0x0a], "a section header begins the file");
//! for payload in [&b"a datagram"[..], b"octets of a stream"] {
//!     assert!(file.windows(payload.len()).any(|octets| octets == payload));
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | file | what |
//! |---|---|
//! | `handle` | [`Capture`]: records datagrams, singly or in batches |
//! | `flow` | [`Flow`]: the segments that would carry the octets of a TCP socket |
//! | `headers` | Ethernet, IPv4, IPv6, UDP, TCP |
//! | `pcapng` | the blocks of the file (draft-ietf-opsawg-pcapng) |
//! | `name` | the name of the file, and its limit; [`check`] checks it |
//! | `output` | the file: sharing and writing |
//!
//! # The file
//!
//! The name may contain `%p` (the process ID), `%n` (the number of the capture in the process, from
//! 0) and `%%`. The file must not exist, unless its name has the prefix `append:`. `,max=SIZE`
//! after the name limits the length of the file, in octets or with a unit (`K`, `M`, `G`). Within a
//! process all captures with the same name share the file, and each has its own interface in the
//! file. A capture that the process opens after it has closed all others appends to the file.
//! Another process cannot open the file while a capture is open.
//!
//! Each call writes its records before it returns, so the file of a killed process ends with a
//! whole block. Only the owner of the file can read it, because it contains the consumers' data. If
//! a write fails later (for example because the disk is full), or if the next packet would exceed
//! the limit, recording ends with a message ([`telemetry::complain`]). Captures that share a file
//! have the limit of the first one.

#![forbid(unsafe_code)]

mod flow;
mod handle;
mod headers;
mod name;
mod output;
mod pcapng;

pub use flow::Flow;
pub use handle::{Batch, Capture, Datagram, Direction};
pub use name::check;
pub use output::OpenError;
