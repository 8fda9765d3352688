//! Experiments in simulated networks: softroce's engine, a model of the kernel's rxe, and TCP with
//! Reno or CUBIC carry the same load through the same network, and the results are compared.
//!
//! | file | what |
//! |---|---|
//! | `bars` | the results that softroce must reach, against CUBIC in the same network |
//! | `experiment` | runs a scenario: [`run`] |
//! | `report` | the results: [`Report`] |
//! | `ends` | the two ends of a flow: the engine, rxe, TCP |
//! | `requests` | which messages an end posts, and when they complete |
//! | `queue_pair` | queue pairs with registered memory, for the engine |
//! | `scenario` | a network and its load, also as text: [`Scenario`] |
//! | `series` | values over time: [`Series`] |
//! | `tcp` | senders that behave like TCP with Reno or CUBIC |
//! | `network` | nodes, links and queues; the dumbbell: [`Dumbbell`] |
//! | `agenda` | the deadlines of many parts of a simulation |
//!
//! There is one clock, which jumps from event to event. All times are whole numbers of nanoseconds,
//! and all random numbers follow from the seed, so a scenario has the same result in every run and
//! on every machine. Hosts take no time: an end reacts at the moment at which a packet arrives,
//! unless its send buffer is full. A connection exists before its first message.
//!
//! ```
//! use simulation::{Protocol, Scenario};
//!
//! let scenario: Scenario = "rate=100mbit,delay=1ms,queue=64K,flows=2,size=64K".parse()?;
//! let report = simulation::run(&scenario, Protocol::OpenDat);
//! assert_eq!((report.messages, report.unfinished), (2, 0));
//! # Ok::<(), netem::ConditionsError>(())
//! ```

mod agenda;
mod bars;
mod ends;
mod experiment;
mod network;
mod posted_messages;
mod queue_pair;
mod report;
mod scenario;
mod series;
mod tcp;

pub use bars::{Bar, bars};
pub use experiment::run;
pub use network::{Balance, Discipline, Dumbbell};
pub use report::Report;
pub use scenario::{Operation, Protocol, Receives, Scenario};
pub use series::Series;

#[cfg(test)]
mod tests;
