//! Communication management of InfiniBand (IBA volume 1, chapter 12), without I/O: how queue pairs
//! get connected and disconnected.
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
//!             both sides, when no packet of the connection can be under way any more:
//!             Event::Released
//! ```
//!
//! | file | what |
//! |---|---|
//! | [`state`] | the state chart: the effect of a message, a call or a timer in each state |
//! | `manager` | [`Cm`]: the connections of an adapter, and the calls of its program |
//! | `params` | the configuration, and the parameters of the calls |
//! | `event` | the events that the program gets |
//! | `actions` | performs the actions of the state chart |
//! | `receive` | finds the connection that a message belongs to |
//! | `hand_over` | moves a request from one [`Cm`] to another before it is answered |
//! | `incoming_req` | new REQs: which callers may connect, and which REQs are refused without keeping state |
//! | `connection` | one connection: its ends, its messages, and their repetition |
//! | `half_open` | limits on the acceptances that wait for their RTU; deferred REQs |
//! | `ids` | communication and transaction IDs |
//! | [`sidr`] | service ID resolution: how datagram queue pairs are found |
//!
//! A message about a connection counts only if it comes from the peer's address and names the
//! connection's IDs. A DREQ must also name the connection's queue pair number. A REQ that names a
//! queue pair in use does not prove that the peer sent it: anybody who has had a connection with
//! the peer's adapter may know the fields of such a REQ. So the program first asks the peer over
//! the existing connection ([`Event::Stale`]).
//!
//! Strangers can make this module keep only the following state. The amount of each kind is
//! limited.
//!
//! - requests, one for each place of a listener's backlog
//! - acceptances that wait for their RTU (`half_open`), or were given up a short time ago
//! - deferred REQs, of each listener and in all
//! - records of requests that another [`Cm`] answers (`hand_over`)
//! - refusals
//!
//! The number of answers to messages that belong to no connection is limited, too
//! ([`rate_limit`](crate::rate_limit)).

mod actions;
mod connection;
mod event;
mod half_open;
mod hand_over;
mod ids;
mod incoming_req;
mod manager;
mod params;
mod receive;
pub mod sidr;
pub mod state;

pub use event::{Accepted, Event, IncomingRequest};
pub use hand_over::HandedOver;
pub use ids::{LowBits, Random};
pub use manager::{Cm, FreeQueuePairs, PathLimit};
pub use params::{Accept, Cfg, CmError, Connect, Ending, Transmit};

/// Names a connection of a [`Cm`] by its communication ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u32);

#[cfg(test)]
mod tests;
