//! Tests that the limits that dat_ia_query reports hold over RoCEv2: exactly as many objects can be
//! created as the limits say.

#[path = "../../dat-core/tests/table/adapter_limits.rs"]
mod adapter_limits;
#[path = "../../dat-core/tests/table/client.rs"]
#[allow(dead_code)] // Other tests use the rest.
mod client;

#[test]
fn reported_limits_hold() {
    let table = client::register::<provider_softroce::SoftRoce>("limits", "127.0.0.1", false);
    adapter_limits::limits_hold(table, "limits");
}
