//! The mistakes of docs/causes.md over RoCEv2: what both ends say about them.

#[path = "../../dat-core/tests/table/causes.rs"]
mod causes;
#[path = "../../dat-core/tests/table/client.rs"]
#[allow(dead_code)] // Other tests use the rest.
mod client;

#[test]
fn causes_are_told_at_both_ends() {
    let table = client::register::<provider_softroce::SoftRoce>("causes", "127.0.0.1", false);
    causes::sentences_are_right(table, "causes", causes::Protocol::Roce);
}
