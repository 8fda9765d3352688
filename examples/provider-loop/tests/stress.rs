//! Runs dat-core's race of many threads on two thread-safe adapters.

#[path = "../../../dat-core/tests/table/client.rs"]
#[allow(dead_code)] // Other tests use the rest.
mod client;
#[path = "../../../dat-core/tests/stress/race.rs"]
mod race;
#[path = "../../../dat-core/tests/stress/random.rs"]
mod random;
#[path = "../../../dat-core/tests/stress/victims.rs"]
mod victims;

#[test]
fn threads_race_on_shared_objects() {
    let table = client::register::<dat_loop::Loop>("stress", "127.0.0.1", true);
    race::rounds(30, table, "stress");
}
