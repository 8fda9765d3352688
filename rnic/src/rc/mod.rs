//! The reliable connection of InfiniBand, as RoCEv2 carries it (IBA, chapter 9): the engine between a queue pair and packets.
//!
//! | file | what |
//! |---|---|
//! | [`engine`] | the engine's interface, and what both its halves share |
//! | `requester` | the send queue's requests: which of them are acknowledged, in flight, to be sent |
//! | `requests`, `responses` | the requester's two directions: from work requests to packets, from answers to completions |
//! | `responder` | which of the peer's requests are carried out, and what is acknowledged |
//! | `messages` | carrying them out: from packets to memory and completions |
//! | `answers` | the peer's READs and atomic operations: their responses, also when it asks again |
//! | [`rest`] | what this side still answers when it has ended the connection |
//! | `challenge` | asking an idle peer whether it still has the connection |
//! | `pace` | the window, and the clocks of a requester that hears nothing |
//! | [`burst`] | datagrams on their way out |
//! | [`wheel`] | the deadlines of all queue pairs of an adapter |

mod answers;
pub mod burst;
mod challenge;
pub mod engine;
mod messages;
mod pace;
mod requester;
mod requests;
mod responder;
mod responses;
pub mod rest;
pub mod wheel;

pub use burst::Burst;
pub use engine::{Failure, MAX_MESSAGE, Rc, RcCfg, Stats};
pub use rest::Rest;
pub use wheel::Wheel;

#[cfg(test)]
mod tests;
