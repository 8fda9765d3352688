//! Our providers.

/// One of our providers. Every suite runs over each of them.
#[derive(Debug)]
pub struct Provider {
    /// The IA name of its entries.
    pub ia: &'static str,
    /// The file name of its loadable form, in the directory of the libraries.
    pub library: &'static str,
    /// The maximum number of open adapters, if tests can reach it.
    pub most_ias: Option<u32>,
    /// Whether it sends packets itself: then networks can be emulated, and it detects silent peers.
    pub packets: bool,
}

/// The provider for RDMA devices, which the guest's kernel has (`tests/programs/guest`).
pub const VERBS: Provider =
    Provider { ia: "verbs", library: "libdat_verbs.so", most_ias: None, packets: false };

/// The providers that need no device. `conformance/tests/suite.rs` has its own list.
pub const PROVIDERS: &[Provider] = &[
    Provider { ia: "tcp-emu", library: "libdat_tcp_emu.so", most_ias: None, packets: false },
    Provider { ia: "softroce", library: "libdat_softroce.so", most_ias: Some(127), packets: true },
];
