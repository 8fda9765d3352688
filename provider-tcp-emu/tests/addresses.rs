//! Addresses of peers.

#[path = "../../dat-core/tests/table/client.rs"]
#[allow(dead_code, unused_imports)] // Other tests use the rest.
mod client;
#[path = "../../dat-core/tests/table/link_local.rs"]
mod link_local;

#[test]
fn peers_are_found_by_any_form_of_their_address() {
    link_local::peers_are_found_by_any_form_of_their_address::<provider_tcp_emu::TcpEmu>(
        &link_local::CONNECTIONS,
    );
}
