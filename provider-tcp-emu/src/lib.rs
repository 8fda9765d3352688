//! A DAT provider that needs no RDMA device: iWARP (MPA, DDP, RDMAP) over TCP sockets, from user space.
//!
//! | file | what |
//! |---|---|
//! | `params` | ia_params: which addresses, which options |
//! | `netdev`, `socket` | the host's devices and addresses; sockets and their options |
//! | `transport`, `map` | dat-core's contract, over rnic's queues |
//! | `engine` | all that touches sockets, under one lease |
//! | `call` | the passive side before a queue pair is involved: service points and callers |
//! | `link` | a queue pair and its connection, from the first SYN to the last completion |
//! | `linger` | sockets that wait for their peers to close |
//! | `lease`, `dirty`, `board` | who works on the engine, and how others leave work for it |
//! | `drive` | who makes progress: polling consumers, blocking consumers, a background thread |
//!
//! The protocol itself is in `rnic` and `wire`.

mod board;
mod call;
mod dirty;
mod drive;
mod engine;
mod lease;
mod linger;
mod link;
mod map;
mod netdev;
mod params;
mod socket;
mod sync;
mod table;
mod transport;

use dat_core::OpenError;
use dat_core::provider::Provider;

pub use transport::{Cq, Listener, Mr, Mw, Pd, Qp, Request, Srq, Tcp};

/// The provider: opens adapters.
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpEmu;

impl Provider for TcpEmu {
    type Transport = Tcp;
    const NAME: &'static str = "tcp-emu";

    fn open(&self, ia: &str, params: &str) -> Result<Tcp, OpenError> {
        Tcp::open(ia, params)
    }
}
