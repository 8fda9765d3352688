//! Our providers.

/// A provider of ours, as the tests see it: every suite runs over each.
#[derive(Debug)]
pub struct Provider {
    /// The IA name of its entries.
    pub ia: &'static str,
    /// Its loadable form, in the directory of the libraries.
    pub library: &'static str,
    /// Adapters that can be open at a time, if that is to be noticed.
    pub most_ias: Option<u32>,
    /// It sends packets itself: it has emulated networks, and gives up a peer that is silent.
    pub packets: bool,
}

/// The one for RDMA devices, which the kernel of a guest has (`tests/programs/guest`).
pub const VERBS: Provider =
    Provider { ia: "verbs", library: "libdat_verbs.so", most_ias: None, packets: false };

/// All that need no device. The suite in `conformance/tests/suite.rs` has a list of its own providers beside.
pub const PROVIDERS: &[Provider] = &[
    Provider { ia: "tcp-emu", library: "libdat_tcp_emu.so", most_ias: None, packets: false },
    Provider { ia: "softroce", library: "libdat_softroce.so", most_ias: Some(127), packets: true },
];
