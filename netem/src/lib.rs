//! An emulated network without I/O: packets and `Instant`s go in, packets and deadlines come out.
//!
//! | file | what |
//! |---|---|
//! | `conditions` | the properties of the network: [`Conditions`] |
//! | `text` | the same properties as text: `loss=1%,delay=200us,rate=1gbit,seed=7` |
//! | `link` | one direction between two hosts: [`Link`] |
//! | `random` | probabilities, and the reproducible random numbers |
//!
//! The network runs in tests, under a clock that the test controls. It also runs in production: a
//! user can test a program under a bad network on a host whose network the user may not configure.
//!
//! ```
//! use std::time::{Duration, Instant};
//! use netem::{Conditions, Link};
//!
//! let conditions: Conditions = "loss=1%,delay=200us,seed=7".parse()?;
//! let mut link = Link::new(conditions);
//! let now = Instant::now();
//! link.send(now, "hello", 5);
//! assert_eq!(link.receive(now), None);
//! assert_eq!(link.deadline(), Some(now + Duration::from_micros(200)));
//! assert_eq!(link.receive(now + Duration::from_micros(200)), Some("hello"));
//! # Ok::<(), netem::ConditionsError>(())
//! ```

#![forbid(unsafe_code)]

mod conditions;
mod link;
mod random;
mod text;

pub use conditions::Conditions;
pub use link::{Counters, Link, MAX_DELAY, MAX_OVERTAKERS, OVERTAKING_TIME};
pub use random::Probability;
pub use text::ConditionsError;
