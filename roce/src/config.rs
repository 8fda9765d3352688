//! The configuration of a RoCEv2 adapter.

use netem::Conditions;
use wire::cm::Timeout;
use wire::rocev2::PathMtu;

/// The configuration of a RoCEv2 adapter, except for what all adapters have in common
/// ([`adapter::Config`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The largest path MTU. The interface may have a smaller one. The default is the largest of
    /// RoCEv2, 4096 octets.
    pub mtu: PathMtu,
    /// Whether the kernel splits batches into packets. `None`, the default, means that it does if
    /// its IP headers fit the ICRC ([`gso_headers_fit_icrc`](crate::gso_headers_fit_icrc)).
    pub gso: Option<bool>,
    /// The DSCP in the IP header of packets (RFC 2474), 0 to 63. The default is 0.
    pub dscp: u8,
    /// The time to wait for an acknowledgement. `None` means the default: a constant on the side
    /// that connects, the value in the connection request on the side that accepts.
    pub timeout: Option<Timeout>,
    /// The number of times that a packet is sent again, 0 to 7. `None` means the default: a
    /// constant on the side that connects, the value in the connection request on the side that
    /// accepts.
    pub retries: Option<u8>,
    /// The conditions of the emulated network. The default is none, so that packets leave at once.
    pub conditions: Conditions,
    /// Whether queue pairs get their numbers when they are created, valid at each address of the
    /// adapter. Then the adapter opens all its addresses at once, and datagram queue pairs receive
    /// from their creation on. The default is false: a queue pair gets a number when it connects,
    /// or when it first uses datagrams at an address.
    pub numbers_at_creation: bool,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            mtu: PathMtu::Octets4096,
            gso: None,
            dscp: 0,
            timeout: None,
            retries: None,
            conditions: Conditions::default(),
            numbers_at_creation: false,
        }
    }
}
