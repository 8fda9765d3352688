//! InfiniBand's reliable connection as RoCEv2 carries it (IBA, chapter 9): the engine between a
//! queue pair and packets.
//!
//! | file | what |
//! |---|---|
//! | [`engine`] | the engine's interface, and the state that its two halves share |
//! | `requester` | tracks which requests are acknowledged, in flight, or to be sent |
//! | `read_requests` | the requester's READs: which responses are requested, awaited and kept |
//! | `recovery` | when new packets may be sent although a packet is missing |
//! | `requests` | the requester's packets, created from work requests |
//! | `responses` | the peer's responses, and the completions that follow from them |
//! | `responder` | decides which requests of the peer are carried out, and which are acknowledged |
//! | `gap` | when the responder reports a missing packet |
//! | [`early`] | the packets that arrived before a missing packet |
//! | `messages` | carries out the peer's requests: from packets to memory and completions |
//! | `responder_resources` | the peer's READs and atomic operations, and their responses |
//! | [`ack_only`] | the answers of an end that has closed the connection |
//! | `challenge` | asks an idle peer whether it still has the connection |
//! | `congestion` | the congestion window and the pacing |
//! | `retransmission` | the retransmission timer |
//! | `path_check` | notices that full packets do not get through although short packets do |
//! | `notification` | tells the peer that a switch has marked its packets (CNP) |
//! | [`burst`] | outgoing datagrams |
//! | [`wheel`] | the deadlines of all queue pairs of an adapter |

pub mod ack_only;
pub mod burst;
mod challenge;
mod congestion;
pub mod early;
pub mod engine;
mod gap;
mod messages;
mod notification;
mod path_check;
mod read_requests;
mod recovery;
mod requester;
mod requests;
mod responder;
mod responder_resources;
mod responses;
mod retransmission;
pub mod wheel;

pub use ack_only::AckOnlyResponder;
pub use burst::Burst;
pub use early::EarlyPool;
pub use engine::{
    Failure, MAX_MESSAGE, OldestPacket, RcCfg, ReliableConnection, RepeatedRead, Stats,
};
pub(crate) use requests::convert_immediate;
pub use wheel::Wheel;

#[cfg(test)]
mod tests;
