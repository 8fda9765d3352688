//! The configuration of an iWARP adapter.

use crate::shm::TRANSFERS_BEFORE_OFFER;
use crate::socket::PeerTimeout;

/// The configuration of an iWARP adapter, except for what all adapters have in common
/// ([`adapter::Config`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Whether this side requests CRCs. If not, which is the default, CRCs are used only if the
    /// peer requests them.
    pub crc: bool,
    /// Whether a signalled RDMA write to another OpenDAT completes when it is placed in the peer's
    /// memory, which is the default. If not, it completes when TCP has accepted it.
    pub completes_placed: bool,
    /// Whether the operations of RFC 7306 (immediate data and atomic operations) are available with
    /// peers that support them. The default is true.
    pub extended: bool,
    /// The TCP congestion control of all connections. `None`, the default, means `cubic` or `reno`
    /// for connections within the host, and the system's default for other connections.
    pub cc: Option<String>,
    /// The size of the largest FPDU that is sent, in octets, 128 to 65536, which is the default. If
    /// the peer accepts no FPDUs above the MSS, the MSS is the limit.
    pub fpdu: usize,
    /// The times after which a silent peer on another host counts as dead.
    pub peer_timeout: PeerTimeout,
    /// Whether a message of an OpenDAT waits for a receive, which is the default. If not, a message
    /// without a posted receive ends the connection.
    pub rnr_wait: bool,
    /// The number of transfers after which a connection to a process of the same user on this host
    /// moves from TCP to shared memory. A transfer is a read or write of the socket. The side that
    /// connects decides. `None` at either side keeps the connection with TCP. The default is
    /// [`Config::TRANSFERS_BEFORE_OFFER`].
    pub shm: Option<u32>,
}

impl Config {
    /// The default of [`Config::shm`].
    pub const TRANSFERS_BEFORE_OFFER: u32 = TRANSFERS_BEFORE_OFFER;
}

impl Default for Config {
    fn default() -> Self {
        Config {
            crc: false,
            completes_placed: true,
            extended: true,
            cc: None,
            fpdu: 65536,
            peer_timeout: PeerTimeout::default(),
            rnr_wait: true,
            shm: Some(Config::TRANSFERS_BEFORE_OFFER),
        }
    }
}
