//! What dat_ia_query tells over TCP holds: exactly so much, and not one more.

#[path = "../../dat-core/tests/table/adapter_limits.rs"]
mod adapter_limits;
#[path = "../../dat-core/tests/table/client.rs"]
#[allow(dead_code)] // the other tests' part
mod client;

#[test]
fn limits_are_as_told() {
    let table = client::register::<provider_tcp_emu::TcpEmu>("limits", "127.0.0.1", false);
    adapter_limits::limits_hold(table, "limits");
}
