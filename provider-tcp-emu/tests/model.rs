//! dat-core's test with random calls, over TCP. No request and no receive may be lost or counted
//! twice.

#[path = "../../dat-core/tests/model/accounts.rs"]
mod accounts;
#[path = "../../dat-core/tests/model/call.rs"]
#[allow(dead_code)] // Other tests use the rest.
mod call;
#[path = "../../dat-core/tests/table/client.rs"]
#[allow(dead_code)] // Other tests use the rest.
mod client;
#[path = "../../dat-core/tests/model/conservation.rs"]
mod conservation;
#[path = "../../dat-core/tests/model/world.rs"]
#[allow(dead_code)] // Other tests use the rest.
mod world;

use conservation::{ProviderUnderTest, own_address};

#[test]
fn every_request_and_receive_ends_in_exactly_one_place_over_tcp() {
    let (name, address) = ("model", own_address());
    let table =
        client::register::<provider_tcp_emu::TcpEmu>(name, &format!("{address} threads=3"), false);
    conservation::some_sequences(|| ProviderUnderTest {
        table,
        name: name.into(),
        address,
        at_once: false,
    });
}
