//! dat-core's contract for transports, kept by this one: over IPv4 and IPv6, with CRCs, without RFC 7306, by the letter of
//! RFC 5041.

use dat_core::provider::Provider;
use provider_loopback::contract::rig::expect_receives_to_be_there;
use provider_tcp_emu::{Tcp, TcpEmu};

/// Two adapters with the same ia_params.
fn pair(params: &str) -> (Tcp, Tcp) {
    (open(params), open(params))
}

/// Two that take each other for strangers, or do as they would towards one: no message waits for a receive.
fn strangers(a: &str, b: &str) -> (Tcp, Tcp) {
    expect_receives_to_be_there(true);
    (open(a), open(b))
}

fn open(params: &str) -> Tcp {
    TcpEmu.open("tcp-emu", params).unwrap_or_else(|e| panic!("{params}: {e}"))
}

mod every_address {
    provider_loopback::transport_contract!(|| super::pair(""));
}

mod ipv4_with_crc {
    provider_loopback::transport_contract!(|| super::pair("127.0.0.1 crc=on"));
}

mod ipv6 {
    provider_loopback::transport_contract!(|| super::pair("::1"));
}

mod small_fpdus_without_spinning {
    provider_loopback::transport_contract!(|| super::pair("lo fpdu=1460 spin=0"));
}

/// RFC 7306 is for two. A peer without it is taken for a stranger.
mod towards_a_peer_without_rfc_7306 {
    provider_loopback::transport_contract!(|| super::strangers("", "extended=off"));
}

mod without_rfc_7306 {
    provider_loopback::transport_contract!(|| super::strangers("extended=off", ""));
}

mod by_the_letter {
    provider_loopback::transport_contract!(|| super::strangers("rnr=terminate", "rnr=terminate"));
}
