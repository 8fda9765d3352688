//! Communication management of InfiniBand (IBA volume 1, chapter 12), without I/O: which queue pairs are connected to
//! which, and how they came to be.
//!
//! ```text
//! active                                                passive
//! Cm::connect ───── REQ ─────────────────────────────►  Event::Request
//!                                                       Cm::accept / Cm::reject
//! Event::Accepted ◄──── REP ──────────────────────────
//!                 ───── RTU ─────────────────────────►  Event::Established
//!
//! Cm::disconnect ────── DREQ ────────────────────────►  Event::Disconnecting
//!                                                       Cm::disconnect
//! Event::Disconnected ◄─ DREP ────────────────────────  Event::Disconnected
//!             both sides, when nothing of it can be under way any more: Event::Released
//! ```
//!
//! | file | what |
//! |---|---|
//! | [`state`] | what a message, a call or a timer does in each state: one table |
//! | `manager` | [`Cm`]: the connections of an adapter, and what its consumer calls |
//! | `call` | what the consumer says |
//! | `act` | what the table says, done |
//! | `receive` | which connection a message belongs to, if it does |
//! | `request` | new REQs: who may connect; what of them is answered without a trace |
//! | `conn` | one connection: who is at its ends, what it says, when it says it again |
//! | `event` | what the consumer is told |
//! | `half_open` | how many acceptances may wait for their RTU, and for how long; deferred REQs |
//! | `ids` | communication and transaction IDs |
//!
//! Nothing is believed that does not come from a connection's peer, that is from its address, with
//! the IDs and for a DREQ the queue pair number of the connection. A REQ that names a queue pair in
//! use proves nothing, since anybody who has had a connection with its adapter may know what is in
//! it: the peer is asked first ([`Event::Stale`]). All that strangers can make this keep is a
//! request for each place of a listener's backlog, acceptances that wait for their RTU
//! (`half_open`) or have just been given up, deferred REQs, and a number of refusals; these have
//! bounds. The number of answers to messages that belong to no connection is limited, too
//! ([`allowance`](crate::allowance)).

mod act;
mod call;
mod conn;
mod event;
mod half_open;
mod ids;
mod manager;
mod receive;
mod request;
pub mod state;

pub use call::{Accept, Cfg, CmError, Connect, Ending, Transmit};
pub use event::{Accepted, Event, Request};
pub use ids::Random;
pub use manager::Cm;

/// A connection of a [`Cm`], by its communication ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u32);

#[cfg(test)]
mod tests;
