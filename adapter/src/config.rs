//! The configuration that all adapters have in common: [`Config`].

use std::net::{SocketAddr, ToSocketAddrs};
use std::thread::available_parallelism;
use std::time::Duration;

use crate::error::{Error, OpenError, no_resources};
use crate::netdev::{self, NetAddr};

/// The configuration of an adapter, except for that of its protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The one address that is served, with port 0; `None` for all addresses of the host.
    pub bind: Option<SocketAddr>,
    /// The address that the adapter reports as its own, with port 0.
    pub address: SocketAddr,
    /// All addresses of the host.
    pub host: Vec<NetAddr>,
    /// How many threads can move data at the same time: the maximum number of engines of the
    /// adapter; `None` if not specified.
    pub threads: Option<usize>,
    /// How long a blocking wait polls before it sleeps; `None` if not specified.
    pub spin: Option<Duration>,
    /// The capture file, as [`capture::Capture::open`] takes it.
    pub capture: Option<String>,
}

/// The maximum number of engines of one adapter.
pub(crate) const MAX_ENGINES: usize = 64;
/// The default of `threads` on a host with many processors. A thread that uses the queue pairs of
/// all engines asks the poller of each.
const DEFAULT_THREADS_MAX: usize = 8;
const DEFAULT_SPIN: Duration = Duration::from_micros(30);

impl Config {
    /// The configuration of an adapter at one place, or at every address of the host if `place` is
    /// `None`. A place is a network device, an address or a host name of this host. Only a name
    /// that is neither an address nor a device is looked up by the host's resolver.
    ///
    /// # Errors
    /// [`Error::NoSuchAddress`] if the address is not of this host, and the errors of listing the
    /// host's addresses.
    pub fn new(place: Option<&str>) -> Result<Self, OpenError> {
        let host = netdev::addresses().map_err(|e| {
            let reason = format!("listing network devices: {e}");
            let error = match e.raw_os_error() {
                Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => no_resources(e),
                _ => Error::NoSuchAddress,
            };
            OpenError::new(error, reason)
        })?;
        let bind = place.map(|place| locate(place, &host)).transpose()?;
        let address = bind.unwrap_or_else(|| netdev::of_host(&host));
        Ok(Config { bind, address, host, threads: None, spin: None, capture: None })
    }

    /// The maximum number of engines of the adapter. More engines than processors would not make
    /// progress at the same time.
    pub fn engines(&self) -> usize {
        let of_processors = || available_parallelism().map_or(1, usize::from);
        self.threads.unwrap_or_else(|| of_processors().min(DEFAULT_THREADS_MAX))
    }

    /// How long a blocking wait polls before it sleeps.
    pub fn spin(&self) -> Duration {
        self.spin.unwrap_or_else(|| default_spin(online_processors()))
    }
}

/// Returns the default of `spin`. With a single processor the default is 0, because polling would
/// keep the sender of the message from running.
fn default_spin(processors: libc::c_long) -> Duration {
    if processors >= 2 { DEFAULT_SPIN } else { Duration::ZERO }
}

/// Returns the number of processors of the host. The number that the calling thread may use does
/// not matter: a consumer that is bound to one processor leaves the others to its peers.
fn online_processors() -> libc::c_long {
    // SAFETY: sysconf takes no pointers.
    unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }
}

/// Returns the local address that a word denotes.
fn locate(place: &str, devices: &[NetAddr]) -> Result<SocketAddr, OpenError> {
    if let Some(address) = address::from_text(place) {
        return local(address, devices)
            .ok_or_else(|| no_address(format!("{place} is not an address of this host")));
    }
    if let Some(found) = netdev::of_device(devices, place) {
        return match found.up {
            true => Ok(found.addr),
            false => Err(no_address(format!("network device {place} is down"))),
        };
    }
    let addrs: Vec<SocketAddr> = (place, 0)
        .to_socket_addrs()
        .map_err(|e| {
            no_address(format!(
                "\"{place}\" is neither a network device with an address nor a host name that \
                 resolves: {e}"
            ))
        })?
        .collect();
    addrs.iter().find_map(|&a| local(a, devices)).ok_or_else(|| {
        let ips: Vec<String> = addrs.iter().map(|a| a.ip().to_string()).collect();
        no_address(format!("{place} resolves to {}, which is not this host", ips.join(", ")))
    })
}

/// Returns the address if it belongs to this host, with its scope. If the scope is not given and
/// several devices have the address, the address of the first device is returned.
fn local(address: SocketAddr, devices: &[NetAddr]) -> Option<SocketAddr> {
    let address = ::address::normalized(address);
    let ip = address.ip();
    let is_it = |of: SocketAddr| {
        of.ip() == ip
            && ::address::with_scope(address, netdev::interface_of(of))
                .is_some_and(|address| address == of)
    };
    let exact = devices.iter().map(|device| device.addr).find(|&of| is_it(of));
    // All addresses of 127/8 belong to this host, although the device lists only one of them.
    exact.or_else(|| (ip.is_ipv4() && ip.is_loopback()).then(|| SocketAddr::new(ip, 0)))
}

fn no_address(reason: String) -> OpenError {
    OpenError::new(Error::NoSuchAddress, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_processor_does_not_spin() {
        assert_eq!(
            [-1, 1, 2, 64].map(default_spin),
            [Duration::ZERO, Duration::ZERO, DEFAULT_SPIN, DEFAULT_SPIN]
        );
    }

    /// The default of `spin` does not depend on the processors that the thread is bound to: a
    /// consumer that is bound to one processor leaves the other processors to its peers.
    #[test]
    fn affinity_does_not_count() {
        let spin = Config::new(None).expect("addresses").spin();
        let bound = std::thread::spawn(|| {
            // SAFETY: the set belongs to this thread, is zeroed, and is alive during the calls.
            unsafe {
                let mut set: libc::cpu_set_t = std::mem::zeroed();
                libc::sched_getaffinity(0, size_of_val(&set), &mut set);
                let first = (0..libc::CPU_SETSIZE as usize)
                    .find(|&cpu| libc::CPU_ISSET(cpu, &set))
                    .expect("one");
                libc::CPU_ZERO(&mut set);
                libc::CPU_SET(first, &mut set);
                assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &set), 0);
            }
            Config::new(None).expect("addresses").spin()
        });
        assert_eq!(bound.join().expect("no panic"), spin);
    }
}
