//! An emulated network without I/O: packets and `Instant`s go in, packets and deadlines come out.
//!
//! | file | what |
//! |---|---|
//! | [`text`] | conditions as text: `loss=1%,delay=200us,rate=1gbit,seed=7` |
//! | `channel` | one direction between two hosts: [`Channel`] |
//! | `conditions` | the properties of a channel: [`Conditions`] |
//! | `random` | probabilities, and the reproducible random numbers |
//!
//! A [`Channel`] runs in tests, under a clock that the test controls. It also runs in production: a
//! user can test a program under a bad network on a host whose network the user may not configure.
//! The crate `simulation` builds whole networks of channels. Times are whole numbers of
//! nanoseconds, so a simulation has the same result on every machine.
//!
//! ```
//! use std::time::{Duration, Instant};
//! use netem::{Channel, Conditions};
//!
//! let conditions: Conditions = "loss=1%,delay=200us,seed=7".parse()?;
//! let mut channel = Channel::new(conditions);
//! let now = Instant::now();
//! channel.send(now, "hello", 5);
//! assert_eq!(channel.receive(now), None);
//! assert_eq!(channel.deadline(), Some(now + Duration::from_micros(200)));
//! assert_eq!(channel.receive(now + Duration::from_micros(200)), Some("hello"));
//! # Ok::<(), netem::ConditionsError>(())
//! ```

#![forbid(unsafe_code)]

pub mod text;

mod channel;
mod conditions;
mod random;

pub use channel::{Bottleneck, Channel, Counters, MAX_DELAY, MAX_OVERTAKERS, OVERTAKING_TIME};
pub use conditions::Conditions;
pub use random::{Probability, SplitMix64};
pub use text::ConditionsError;
