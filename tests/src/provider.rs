//! The list of this project's providers.

/// One of this project's providers. Every test suite runs over each provider.
#[derive(Debug)]
pub struct Provider {
    /// The IA name in the registry entries of this provider.
    pub ia: &'static str,
    /// The file name of the provider's loadable library, in the directory of the libraries.
    pub library: &'static str,
    /// The number of adapters that can be open at least, or `None` if a test cannot reach the
    /// maximum. With more file descriptors, more adapters can be open.
    pub least_ias: Option<u32>,
    /// Whether the provider supports unreliable datagrams.
    pub datagrams: bool,
    /// Whether the provider sends packets itself. Such a provider can emulate networks and detects
    /// silent peers.
    pub packets: bool,
}

/// The provider for RDMA devices. The tests use the RDMA devices of the guest's kernel
/// (`tests/programs/guest`).
pub const VERBS: Provider = Provider {
    ia: "verbs",
    library: "libdat_verbs.so",
    least_ias: None,
    datagrams: true,
    packets: false,
};

/// The providers that need no device.
pub const PROVIDERS: &[Provider] = &[
    Provider {
        ia: "tcp-emu",
        library: "libdat_tcp_emu.so",
        least_ias: None,
        datagrams: false,
        packets: false,
    },
    Provider {
        ia: "softroce",
        library: "libdat_softroce.so",
        least_ias: Some(127),
        datagrams: true,
        packets: true,
    },
];
