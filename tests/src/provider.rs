//! The list of our providers.

/// One of our providers. Every test suite runs over each provider.
#[derive(Debug)]
pub struct Provider {
    /// The IA name of the provider's entries.
    pub ia: &'static str,
    /// The file name of the provider's loadable library, in the directory of the libraries.
    pub library: &'static str,
    /// The maximum number of open adapters, if it is small enough for tests to reach.
    pub most_ias: Option<u32>,
    /// Whether the provider sends packets itself. Such a provider can emulate networks and detects
    /// silent peers.
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
