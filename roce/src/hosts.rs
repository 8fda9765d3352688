//! Records what the engines of an adapter know of the hosts of peers.
//!
//! The first part is which hosts are up. The engine needs this for peers that do not answer. A host
//! that is up reports by ICMP that no process has a port (see [`host_probe`](crate::host_probe)).
//! Hosts limit the rate of such reports to one address, so the engines share what they know.
//!
//! The second part is which paths carry less than the interface, as connections have learned from
//! the reports of routers. Only reports that such a connection has checked count. The kernel also
//! knows path MTUs, but it believes forged reports.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use wire::rocev2::PathMtu;

/// The minimum time between two probes of one host.
const PROBE_INTERVAL: Duration = Duration::from_millis(500);
/// The time for which an answer is valid. It is longer than several probe intervals, because some
/// answers are lost, and a host may send only one answer per second.
const ANSWER_VALIDITY: Duration = Duration::from_millis(2500);
/// The maximum number of hosts that are recorded as up, and of paths.
const HOSTS_MAX: usize = 4096;
/// The time for which the length that a path carries is valid. The path may change. Linux keeps
/// what it has learned for the same time.
const PATH_VALIDITY: Duration = Duration::from_secs(600);

/// What the engines of an adapter know of hosts, for each of the adapter's local addresses. The
/// number of an address is its position.
#[derive(Default)]
pub(crate) struct HostsOfAdapter(Mutex<Vec<(SocketAddr, SharedHosts)>>);

/// What the engines of an adapter know of hosts, for one local address.
#[derive(Clone, Default)]
pub(crate) struct SharedHosts(Arc<Mutex<Hosts>>);

/// What is known of hosts.
#[derive(Default)]
pub(crate) struct Hosts {
    /// The hosts that have been probed recently.
    probed: HashMap<IpAddr, Host>,
    /// The length of the longest IP packet that the path to a host carries, and the time at which
    /// it was reported.
    paths: HashMap<IpAddr, (usize, Instant)>,
}

impl HostsOfAdapter {
    /// What is known of hosts, for a local address, and the number of the local address in the
    /// adapter.
    pub(crate) fn of(&self, local: SocketAddr) -> (SharedHosts, u32) {
        let mut addresses = lock(&self.0);
        let known = addresses.iter().position(|(address, _)| *address == local);
        let number = known.unwrap_or_else(|| {
            addresses.push((local, SharedHosts::default()));
            addresses.len() - 1
        });
        (addresses[number].1.clone(), number as u32)
    }

    /// The local address with this number, which an engine of the adapter has opened.
    pub(crate) fn address(&self, number: u32) -> Option<SocketAddr> {
        lock(&self.0).get(number as usize).map(|(address, _)| *address)
    }
}

impl SharedHosts {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Hosts> {
        lock(&self.0)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Host {
    probed: Instant,
    answered: Option<Instant>,
    /// The nonce that the host must repeat. Only a host that receives the probe can know the nonce.
    nonce: u64,
}

impl Hosts {
    /// Returns the nonce for a probe of a host, and records the probe. Returns `None` if the host
    /// was probed a moment ago, or if too many hosts are being probed.
    pub(crate) fn nonce_to_send(
        &mut self,
        ip: IpAddr,
        now: Instant,
        random: impl FnOnce() -> u64,
    ) -> Option<u64> {
        if let Some(host) = self.probed.get_mut(&ip) {
            let is_time = now >= host.probed + PROBE_INTERVAL;
            return is_time.then(|| {
                host.probed = now;
                host.nonce
            });
        }
        if self.probed.len() >= HOSTS_MAX {
            self.probed.retain(|_, host| now <= host.probed + ANSWER_VALIDITY);
        }
        let nonce = random();
        (self.probed.len() < HOSTS_MAX)
            .then(|| self.probed.insert(ip, Host { probed: now, answered: None, nonce }))?;
        Some(nonce)
    }

    /// Records an answer with this nonce. Ignores the answer if the host has not been probed
    /// recently, or if the nonce is not the one that was sent to the host.
    pub(crate) fn note_answer(&mut self, ip: IpAddr, nonce: u64, now: Instant) {
        if let Some(host) = self
            .probed
            .get_mut(&ip)
            .filter(|host| host.nonce == nonce && now <= host.probed + ANSWER_VALIDITY)
        {
            host.answered = Some(now);
        }
    }

    /// Whether the host is known to be up.
    pub(crate) fn is_up(&self, ip: IpAddr, now: Instant) -> bool {
        let answered = self.probed.get(&ip).and_then(|host| host.answered);
        answered.is_some_and(|answered| now <= answered + ANSWER_VALIDITY)
    }

    /// Records that the path to a host carries IP packets of at most `octets` octets.
    pub(crate) fn note_path(&mut self, ip: IpAddr, octets: usize, now: Instant) {
        if self.paths.len() >= HOSTS_MAX {
            self.paths.retain(|_, &mut (_, reported)| now <= reported + PATH_VALIDITY);
        }
        if self.paths.len() >= HOSTS_MAX && !self.paths.contains_key(&ip) {
            // A peer with many addresses could fill the table. The other paths are then learned
            // again.
            let oldest = self.paths.iter().min_by_key(|(_, (_, reported))| *reported);
            if let Some(oldest) = oldest.map(|(&ip, _)| ip) {
                self.paths.remove(&oldest);
            }
        }
        self.paths.insert(ip, (octets, now));
    }

    /// The largest path MTU that the path to a host carries, if a limit is known.
    pub(crate) fn path_mtu(&self, ip: IpAddr, now: Instant) -> Option<PathMtu> {
        let (octets, _) =
            self.paths.get(&ip).filter(|(_, reported)| now <= *reported + PATH_VALIDITY)?;
        Some(PathMtu::of_interface(*octets).unwrap_or(PathMtu::Octets256))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_counts_as_up_for_a_while_after_its_answer() {
        let (ip, start) = (IpAddr::from([10, 0, 0, 1]), Instant::now());
        let mut hosts = Hosts::default();
        hosts.note_answer(ip, 7, start);
        assert!(!hosts.is_up(ip, start), "a host that was not probed must not be up");
        assert_eq!(hosts.nonce_to_send(ip, start, || 7), Some(7));
        assert_eq!(hosts.nonce_to_send(ip, start + PROBE_INTERVAL / 2, || 8), None);
        hosts.note_answer(ip, 8, start);
        assert!(!hosts.is_up(ip, start), "an answer with another nonce must not count");
        let ms = Duration::from_millis(1);
        hosts.note_answer(ip, 7, start + ANSWER_VALIDITY + ms);
        assert!(!hosts.is_up(ip, start + ANSWER_VALIDITY + ms), "an old answer must not count");
        hosts.note_answer(ip, 7, start);
        assert!(hosts.is_up(ip, start + ANSWER_VALIDITY));
        assert!(!hosts.is_up(ip, start + ANSWER_VALIDITY + ms));
        assert_eq!(hosts.nonce_to_send(ip, start + PROBE_INTERVAL, || 8), Some(7));
    }

    #[test]
    fn the_length_that_a_path_carries_is_valid_for_ten_minutes() {
        let (ip, start, mut hosts) = (IpAddr::from([10; 4]), Instant::now(), Hosts::default());
        assert_eq!(hosts.path_mtu(ip, start), None);
        for (octets, mtu) in [(1500, PathMtu::Octets1024), (68, PathMtu::Octets256)] {
            hosts.note_path(ip, octets, start);
            assert_eq!(hosts.path_mtu(ip, start + PATH_VALIDITY), Some(mtu));
        }
        let later = start + PATH_VALIDITY + Duration::from_millis(1);
        assert_eq!(hosts.path_mtu(ip, later), None);
        // The number of paths is limited. Paths that are no longer valid are removed to make room.
        let other = |n: usize| IpAddr::from((0x0B00_0000 + n as u32).to_be_bytes());
        (1..=HOSTS_MAX).for_each(|n| {
            hosts.note_path(other(n), 1500, start + Duration::from_nanos(n as u64));
        });
        assert_eq!(hosts.paths.len(), HOSTS_MAX);
        // If all are valid, the latest replaces the oldest.
        hosts.note_path(other(HOSTS_MAX + 1), 1500, start + Duration::from_micros(500));
        assert_eq!((hosts.paths.len(), hosts.path_mtu(ip, start)), (HOSTS_MAX, None));
        assert_eq!(hosts.path_mtu(other(1), start), None);
        assert!(hosts.path_mtu(other(2), start).is_some());
        hosts.note_path(ip, 9000, later);
        assert_eq!((hosts.path_mtu(ip, later), hosts.paths.len()), (Some(PathMtu::Octets4096), 1));
    }

    #[test]
    fn engines_share_the_hosts_of_a_local_address() {
        let (local, peer, now) = (IpAddr::from([10; 4]), IpAddr::from([11; 4]), Instant::now());
        let [local, other] = [local, peer].map(|ip| SocketAddr::new(ip, 0));
        let hosts = HostsOfAdapter::default();
        assert_eq!(hosts.of(local).0.lock().nonce_to_send(peer, now, || 7), Some(7));
        assert_eq!(hosts.of(local).0.lock().nonce_to_send(peer, now, || 8), None);
        hosts.of(local).0.lock().note_answer(peer, 7, now);
        assert!(hosts.of(local).0.lock().is_up(peer, now));
        assert!(!hosts.of(other).0.lock().is_up(peer, now));
        assert_eq!((hosts.of(local).1, hosts.of(other).1), (0, 1));
        assert_eq!([0, 1, 2].map(|n| hosts.address(n)), [Some(local), Some(other), None]);
    }

    #[test]
    fn hosts_that_are_probed_are_kept() {
        let (start, mut hosts) = (Instant::now(), Hosts::default());
        let ip = |n: usize| IpAddr::from((0x0A00_0000 + n as u32).to_be_bytes());
        for n in 0..HOSTS_MAX {
            assert_eq!(hosts.nonce_to_send(ip(n), start, || n as u64), Some(n as u64));
            hosts.note_answer(ip(n), n as u64, start);
        }
        // The first host is already recorded. The last host would exceed the limit.
        assert_eq!(hosts.nonce_to_send(ip(0), start + PROBE_INTERVAL, || 0), Some(0));
        assert_eq!(hosts.nonce_to_send(ip(HOSTS_MAX), start + PROBE_INTERVAL, || 0), None);
        assert!((0..HOSTS_MAX).all(|n| hosts.is_up(ip(n), start + PROBE_INTERVAL)));
        // Hosts that are no longer probed make room for new hosts.
        let later = start + PROBE_INTERVAL + ANSWER_VALIDITY;
        assert_eq!(hosts.nonce_to_send(ip(HOSTS_MAX), later, || 9), Some(9));
        assert_eq!(hosts.probed.len(), 2);
    }
}
