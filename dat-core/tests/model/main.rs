//! Random calls, legal and not, against a small model of the standard; a failure shrinks to the calls that show it.
//!
//! | file | what |
//! |---|---|
//! | `call` | the calls, and how they are made up |
//! | `world` | makes them, through the provider table |
//! | `model`, `rules`, `queue` | what the standard says they answer, and what must come out of the dispatchers |
//! | `sequence` | one thread: every answer and every event is checked |
//! | `accounts` | where each request and each receive is |
//! | `conservation` | one thread, any transport: nothing is lost, nothing ends twice, whatever is called; also run by the providers |
//! | `threads` | several threads on one thread-safe adapter: nothing is lost, doubled, reordered or left over |
//!
//! `PROPTEST_CASES` says how many sequences are tried.

#[path = "../table/client.rs"]
#[allow(dead_code)] // the other tests' part
mod client;

mod accounts;
mod call;
mod conservation;
mod model;
mod queue;
mod rules;
mod sequence;
mod threads;
mod world;

use std::sync::{Mutex, MutexGuard, PoisonError};

use proptest::test_runner::Config;

/// The tests count the handles of the process: one at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// So many sequences, unless `PROPTEST_CASES` says otherwise.
fn cases(by_default: u32) -> Config {
    let default = Config::default();
    let cases =
        if std::env::var_os("PROPTEST_CASES").is_some() { default.cases } else { by_default };
    Config { cases, max_shrink_iters: 20_000, failure_persistence: None, ..default }
}

#[test]
fn every_request_and_receive_ends_in_exactly_one_place() {
    let _alone = alone();
    conservation::sequences(cases(2000), 60, || {
        let (table, name) = client::loopback(false);
        conservation::Place { table, name, address: std::net::Ipv4Addr::LOCALHOST, at_once: true }
    });
}
