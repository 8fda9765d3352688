//! The hosts whose datagrams may carry the Q_Key of Linux's RDMA CM, 0x01234567.
//!
//! Each side sends with the Q_Key that the other side has told. The Q_Key of a queue pair is
//! random. It is told in the SIDR REP, or in the [trailer](wire::cm::sidr_trailer) of its SIDR REQ.
//! Programs over the RDMA CM do not read the trailer:
//!
//! - If such a program calls, its REQ has no trailer, and its kernel refuses a SIDR REP with
//!   another Q_Key (`cma_set_qkey` in Linux's cma.c). So it sends with 0x01234567.
//! - If it is called, it answers with 0x01234567, and sends with it, too.
//!
//! provider-verbs has 0x01234567 as well, but reads the trailer, so it sends with the key in it.

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
