//! The limits that dat_ia_query reports hold over TCP: exactly that many objects can be created.

#[path = "../../dat-core/tests/table/client.rs"]
#[allow(dead_code)] // the other tests' part
mod client;
#[path = "../../dat-core/tests/table/told.rs"]
mod told;

#[test]
fn reported_limits_hold() {
    let table = client::register::<provider_tcp_emu::TcpEmu>("limits", "127.0.0.1", false);
    told::limits_hold(table, "limits");
}
