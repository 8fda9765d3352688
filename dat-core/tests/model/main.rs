//! Random calls, legal and illegal, checked against a small model of the standard. A failure
//! shrinks to the calls that cause it.
//!
//! | file | content |
//! |---|---|
//! | `call` | the calls and their random generation |
//! | `world` | makes the calls, through the provider table |
//! | `model`, `rules`, `queue` | the results and events that the standard requires |
//! | `sequence` | checks every result and every event of one thread |
//! | `accounts` | records how each request and each receive ends |
//! | `conservation` | checks the accounts after each call; providers run this test, too |
//! | `threads` | calls from several threads; checks that no event is lost or duplicated |
//!
//! `PROPTEST_CASES` sets the number of sequences.

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

/// The tests count the handles of the process, so only one runs at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The number of sequences if `PROPTEST_CASES` is not set.
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
        let (table, name) = client::mem(false);
        conservation::ProviderUnderTest {
            table,
            name,
            address: std::net::Ipv4Addr::LOCALHOST,
            at_once: true,
        }
    });
}
