//! Tests that the transport keeps dat-core's contract for transports.

use dat_core::provider::{Provider, Transport};
use dat_loop::Loop;
use provider_mem::contract::rig::expect_receives_to_be_there;

fn open(params: &str) -> impl Transport {
    expect_receives_to_be_there(true);
    Loop.open("loop", params).unwrap_or_else(|e| panic!("{params}: {e}"))
}

// ANCHOR: contract
mod two_adapters {
    provider_mem::transport_contract!(|| (super::open(""), super::open("")));
}
// ANCHOR_END: contract

mod without_spinning {
    provider_mem::transport_contract!(|| (
        super::open("127.0.0.1 spin=0"),
        super::open("127.0.0.1 spin=0")
    ));
}
