//! dat-core's test in which several threads make random calls in any order, over RoCEv2.

#[path = "../../dat-core/tests/anything/calls.rs"]
mod calls;
#[path = "../../dat-core/tests/table/client.rs"]
#[allow(dead_code)] // Other tests use the rest.
mod client;
#[path = "../../dat-core/tests/stress/random.rs"]
mod random;
#[path = "../../dat-core/tests/anything/world.rs"]
mod world;

#[test]
fn any_calls_of_any_threads_in_any_order_answer() {
    let table = client::register::<provider_softroce::SoftRoce>("anything", "127.0.0.1", true);
    world::run(1_000_000, 200_000, 8, table, "anything");
}
