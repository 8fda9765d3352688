//! Random calls of several threads on thread-safe adapters, over the provider mem. The test
//! is a program of its own, because it counts the handles that are left in the process.

mod calls;
#[path = "../table/client.rs"]
#[allow(dead_code)] // the other tests' part
mod client;
#[path = "../stress/random.rs"]
mod random;
mod world;

#[test]
fn random_calls_of_several_threads_return() {
    let (table, name) = client::mem(true);
    world::run(10_000_000, 1_000_000, 8, table, &name);
}
