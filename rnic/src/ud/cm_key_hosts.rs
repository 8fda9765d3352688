//! The hosts whose datagrams may carry the Q_Key of Linux's RDMA CM.

use std::collections::HashSet;
use std::net::IpAddr;

/// The maximum number of hosts that are remembered.
pub(super) const HOSTS_MAX: usize = 4096;

/// The hosts whose datagrams may carry [`UDP_Q_KEY`](wire::cm::UDP_Q_KEY).
///
/// Each accepted request of a stranger may add a host, so the number of hosts is limited. If there
/// are more, or if there is no memory, every host may use the key: no peer is shut out because of
/// others.
#[derive(Default)]
pub(super) struct CmKeyHosts {
    hosts: HashSet<IpAddr>,
    is_for_all: bool,
}

impl CmKeyHosts {
    /// Adds a host.
    pub(super) fn add(&mut self, host: IpAddr) {
        if self.contain(host) {
            return;
        }
        if self.hosts.len() < HOSTS_MAX && self.hosts.try_reserve(1).is_ok() {
            self.hosts.insert(host.to_canonical());
        } else {
            *self = CmKeyHosts { hosts: HashSet::new(), is_for_all: true };
        }
    }

    /// Whether datagrams of this host may carry the key.
    pub(super) fn contain(&self, host: IpAddr) -> bool {
        self.is_for_all || self.hosts.contains(&host.to_canonical())
    }
}
