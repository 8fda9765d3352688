//! The reasons for which this host cannot start to connect to a peer.

use std::io;
use std::net::SocketAddr;

use crate::error::Error;

/// The reason for which an attempt to connect fails before a packet is sent.
#[derive(Debug)]
pub enum LocalFailure {
    /// The process or the host has exhausted a resource that a connection needs.
    Exhausted(String),
    /// All ports of a local address are in use.
    NoPort(String),
    /// A condition that lasts until the configuration of this host or of its network changes.
    Lasting(String),
}

impl LocalFailure {
    /// Classifies an error that a system call has returned while this host chose a local address
    /// and a port for the connection.
    pub fn of(error: &io::Error) -> LocalFailure {
        let used_up = match error.raw_os_error() {
            Some(libc::EMFILE) => "this process has no file descriptor left (RLIMIT_NOFILE)",
            Some(libc::ENFILE) => "this host has no file descriptor left (fs.file-max)",
            Some(libc::ENOBUFS | libc::ENOMEM) => "this host has no memory left for a socket",
            Some(libc::ENOSPC) => {
                "this user has reached the limit of epoll (fs.epoll.max_user_watches)"
            }
            Some(libc::EAGAIN | libc::EADDRINUSE) => {
                return LocalFailure::NoPort(NO_PORT.to_owned());
            }
            Some(libc::EPERM | libc::EACCES) => {
                return LocalFailure::lasting("this host's firewall blocks packets to the peer");
            }
            Some(libc::ENETUNREACH | libc::EHOSTUNREACH) => {
                return LocalFailure::lasting("this host has no route to the peer");
            }
            Some(libc::ENETDOWN) => {
                return LocalFailure::lasting("the network interface to the peer is down");
            }
            _ => {
                return LocalFailure::Lasting(format!(
                    "this host cannot send to the peer: {error}"
                ));
            }
        };
        LocalFailure::Exhausted(used_up.to_owned())
    }

    /// Classifies an error of connect(2), where EADDRNOTAVAIL means that the address has no port
    /// left.
    pub fn of_connect(error: &io::Error) -> LocalFailure {
        match error.raw_os_error() {
            Some(libc::EADDRNOTAVAIL) => LocalFailure::NoPort(NO_PORT.to_owned()),
            _ => LocalFailure::of(error),
        }
    }

    /// Creates a failure that lasts until the configuration of this host or of its network changes.
    pub fn lasting(why: &str) -> LocalFailure {
        LocalFailure::Lasting(why.to_owned())
    }

    /// The reason, as a text for the log.
    pub fn why(&self) -> &str {
        match self {
            LocalFailure::Exhausted(why)
            | LocalFailure::NoPort(why)
            | LocalFailure::Lasting(why) => why,
        }
    }

    /// Converts the failure to the result of the consumer's call. An exhausted resource is an
    /// error, and the log says which resource it is. For any other failure the call succeeds, and
    /// an event reports the failure with the returned text.
    ///
    /// # Errors
    /// [`Error::NoLocalPort`] if ports are used up, and [`Error::NoMemory`] for other resources.
    pub fn answer(self, to: SocketAddr) -> Result<String, Error> {
        let (why, error) = match self {
            LocalFailure::Lasting(why) => return Ok(why),
            LocalFailure::Exhausted(why) => (why, Error::NoMemory),
            LocalFailure::NoPort(why) => (why, Error::NoLocalPort),
        };
        tracing::warn!(target: "dat::cm", %to, because = %why, "cannot connect");
        Err(error)
    }
}

const NO_PORT: &str =
    "this host has no local port left for a connection to the peer (net.ipv4.ip_local_port_range)";

#[cfg(test)]
mod tests {
    use super::*;

    fn of(errno: i32) -> LocalFailure {
        LocalFailure::of(&io::Error::from_raw_os_error(errno))
    }

    #[test]
    fn exhausted_resources_are_told_from_missing_routes() {
        let to = SocketAddr::from(([192, 0, 2, 1], 7));
        for errno in [
            libc::EMFILE,
            libc::ENFILE,
            libc::ENOBUFS,
            libc::ENOMEM,
            libc::ENOSPC,
            libc::EADDRINUSE,
        ] {
            let error = of(errno).answer(to).expect_err("a resource is exhausted");
            assert!(matches!(error, Error::NoMemory | Error::NoLocalPort), "{error}");
        }
        assert_eq!(of(libc::ENETUNREACH).answer(to).unwrap(), "this host has no route to the peer");
        let gone = io::Error::from_raw_os_error(libc::EADDRNOTAVAIL);
        assert!(
            matches!(LocalFailure::of_connect(&gone), LocalFailure::NoPort(why) if why == NO_PORT)
        );
        let code = |failure: LocalFailure| failure.answer(to).expect_err("no resources");
        let ports = [code(LocalFailure::of_connect(&gone)), code(of(libc::EADDRINUSE))];
        assert_eq!(ports, [Error::NoLocalPort; 2]);
        assert_eq!(code(of(libc::ENOBUFS)), Error::NoMemory);
        assert!(
            LocalFailure::of(&gone).answer(to).unwrap().contains("Cannot assign requested address")
        );
    }
}
