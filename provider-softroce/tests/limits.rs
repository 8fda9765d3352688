//! What dat_ia_query tells over RoCEv2 holds: exactly so much, and not one more.

#[path = "../../dat-core/tests/table/adapter_limits.rs"]
mod adapter_limits;
#[path = "../../dat-core/tests/table/client.rs"]
#[allow(dead_code)] // the other tests' part
mod client;

#[test]
fn limits_are_as_told() {
    let table =
        client::register::<provider_softroce::SoftRoce>("limits", "127.0.0.1 engine=user", false);
    adapter_limits::limits_hold(table, "limits");
}
