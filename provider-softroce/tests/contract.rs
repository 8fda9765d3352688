//! Runs the contract of provider-mem, which every transport must meet, over IPv4 and IPv6,
//! with several engines, with small packets, and over an unreliable network.

use dat_core::provider::Provider;
use provider_mem::contract::rig::{expect_losses, occupy_first_engine};
use provider_softroce::{Roce, SoftRoce};

/// Two adapters with the same ia_params.
fn pair(params: &str) -> (Roce, Roce) {
    expect_losses(params.contains("loss="));
    (open(params), open(params))
}

/// Two adapters whose endpoints belong to other engines than their listeners.
fn with_several_engines(params: &str) -> (Roce, Roce) {
    let (a, b) = pair(params);
    occupy_first_engine(&a);
    occupy_first_engine(&b);
    (a, b)
}

fn open(params: &str) -> Roce {
    SoftRoce.open("softroce", params).unwrap_or_else(|e| panic!("{params}: {e}"))
}

mod every_address {
    provider_mem::transport_contract!(|| super::pair(""));
}

mod ipv6 {
    provider_mem::transport_contract!(|| super::pair("::1"));
}

mod several_engines {
    provider_mem::transport_contract!(|| super::with_several_engines("127.0.0.5 threads=3"));
}

mod small_packets_without_spinning {
    provider_mem::transport_contract!(|| super::pair("127.0.0.2 mtu=256 spin=0"));
}

mod without_batches {
    provider_mem::transport_contract!(|| super::pair("127.0.0.3 gso=off"));
}

mod under_a_bad_network {
    provider_mem::transport_contract!(|| super::pair(
        "127.0.0.4 net=loss=1%,duplicate=1%,reorder=1%,seed=1"
    ));
}
