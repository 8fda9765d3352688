//! Runs the contract of provider-mem, which every transport must meet, over IPv4 and IPv6,
//! with CRCs, with several engines, without RFC 7306, and with strict RFC 5041 behaviour.

use dat_core::provider::Provider;
use provider_mem::contract::rig::{expect_receives_to_be_there, occupy_first_engine};
use provider_tcp_emu::{Tcp, TcpEmu};

/// Two adapters with the same ia_params.
fn pair(params: &str) -> (Tcp, Tcp) {
    (open(params), open(params))
}

/// Two adapters that treat each other as another implementation: no message waits for a receive.
fn with_other_implementation(a: &str, b: &str) -> (Tcp, Tcp) {
    expect_receives_to_be_there(true);
    (open(a), open(b))
}

/// Two adapters whose endpoints belong to other engines than their listeners.
fn with_several_engines(params: &str) -> (Tcp, Tcp) {
    let (a, b) = pair(params);
    occupy_first_engine(&a);
    occupy_first_engine(&b);
    (a, b)
}

fn open(params: &str) -> Tcp {
    TcpEmu.open("tcp-emu", params).unwrap_or_else(|e| panic!("{params}: {e}"))
}

mod every_address {
    provider_mem::transport_contract!(|| super::pair(""));
}

mod ipv4_with_crc {
    provider_mem::transport_contract!(|| super::pair("127.0.0.1 crc=on"));
}

mod ipv6 {
    provider_mem::transport_contract!(|| super::pair("::1"));
}

mod several_engines {
    provider_mem::transport_contract!(|| super::with_several_engines("127.0.0.1 threads=3"));
}

/// The connections offer shared memory after their first transfer.
mod shared_memory_at_once {
    provider_mem::transport_contract!(|| super::pair("127.0.0.1 shm=1"));
}

mod small_fpdus_without_spinning {
    provider_mem::transport_contract!(|| super::pair("lo fpdu=1460 spin=0"));
}

/// The operations of RFC 7306 need the support of both sides. A peer that does not offer them
/// counts as another implementation.
mod towards_a_peer_without_rfc_7306 {
    provider_mem::transport_contract!(|| super::with_other_implementation("", "extended=off"));
}

mod without_rfc_7306 {
    provider_mem::transport_contract!(|| super::with_other_implementation("extended=off", ""));
}

mod by_the_letter {
    provider_mem::transport_contract!(|| super::with_other_implementation(
        "rnr=terminate",
        "rnr=terminate"
    ));
}
