//! InfiniBand's unreliable datagrams as RoCEv2 carries them (IBA, section 9.8). Each message is one
//! packet, which goes to any queue pair. Nothing is acknowledged or sent again.
//!
//! | file | what |
//! |---|---|
//! | `cm_key_hosts` | the hosts that use the Q_Key of Linux's RDMA CM |
//! | `datagram_qp` | sends posted datagrams, and places received ones |
//! | `posted_datagram` | a datagram in its slot of the send queue |
//! | `stats` | the counters |

mod cm_key_hosts;
mod datagram_qp;
mod posted_datagram;
mod stats;

pub use datagram_qp::{DatagramQp, Failure, HEADER_SIZE, UdCfg};
pub use stats::Stats;

#[cfg(test)]
mod tests;
