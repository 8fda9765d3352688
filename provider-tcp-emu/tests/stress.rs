//! dat-core's stress test of many threads on two thread-safe adapters, over TCP.

#[path = "../../dat-core/tests/table/client.rs"]
#[allow(dead_code)] // Other tests use the rest.
mod client;
#[path = "../../dat-core/tests/stress/freed_objects.rs"]
mod freed_objects;
#[path = "../../dat-core/tests/stress/race.rs"]
mod race;
#[path = "../../dat-core/tests/stress/random.rs"]
mod random;

#[test]
fn threads_race_on_shared_objects_over_tcp() {
    let table = client::register::<provider_tcp_emu::TcpEmu>("stress", "127.0.0.1 threads=3", true);
    race::rounds(30, table, "stress");
}
