//! Many threads on two thread-safe adapters, over the provider mem. provider-tcp-emu runs the
//! same race over TCP.

#[path = "../table/client.rs"]
#[allow(dead_code)] // the other tests' part
mod client;
mod freed_objects;
mod race;
mod random;

#[test]
fn threads_race_on_shared_objects() {
    let (table, name) = client::mem(true);
    race::rounds(30, table, &name);
}
