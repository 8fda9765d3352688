//! An emulated network, sans-IO: packets and `Instant`s in, packets and deadlines out.
//!
//! | file | what |
//! |---|---|
//! | `conditions` | how bad the network is: [`Conditions`] |
//! | `text` | the same as one word: `loss=1%,delay=200us,rate=1gbit,seed=7` |
//! | `link` | one direction between two hosts: [`Link`] |
//! | `chance` | probabilities, and the reproducible source of choices |
//!
//! It runs in tests, under a clock that the test turns, and in production, so that a program can be tested under a bad
//! network where nobody may configure the host's.
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

mod chance;
mod conditions;
mod link;
mod text;

pub use chance::Probability;
pub use conditions::Conditions;
pub use link::{Counters, Link, MAX_DELAY, MAX_OVERTAKERS, OVERTAKING_TIME};
pub use text::ConditionsError;
