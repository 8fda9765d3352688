//! The tools of cases: an open adapter, objects with reasonable defaults, connected pairs of
//! endpoints, and waits with a time limit.
//!
//! When a case has ended, the suite closes the adapter abruptly. According to the standard, an
//! abrupt close destroys all objects of the adapter, so cases need not free them.

mod adapter;
mod connect;
mod datagrams;
mod events;
mod memory;
mod named;
mod objects;
pub(crate) mod peer;
mod shared_memory;
mod threads;

pub(crate) use self::adapter::{Rig, event_timeout_us, text};
pub(crate) use self::connect::{CommonPoint, Listener, Pair, RequestEvent};
pub(crate) use self::datagrams::{DatagramPair, PeerEvent, to_port};
pub(crate) use self::events::{async_error, cookie, dto_completion, event_name, software_value};
pub(crate) use self::memory::{Region, private};
pub(crate) use self::named::{named, named_infos};
pub(crate) use self::objects::{EVD_QUEUE_LENGTH, Ep};
pub(crate) use self::threads::{AgentCalls, until};
