//! Why this host cannot begin to call a peer.

use std::io;
use std::net::SocketAddr;

use dat_core::Error;

use crate::transport::no_resources;

/// What an attempt to connect fails of before a packet leaves.
#[derive(Debug)]
pub enum LocalFailure {
    /// The process or the host has none left of something that a call needs.
    Exhausted(String),
    /// Something that does not change by itself.
    Lasting(String),
}

impl LocalFailure {
    /// What an error means that a system call returned when this host chose its end of the way.
    pub fn of(error: &io::Error) -> LocalFailure {
        let used_up = match error.raw_os_error() {
            Some(libc::EMFILE) => "this process has no file descriptor left (RLIMIT_NOFILE)",
            Some(libc::ENFILE) => "this host has no file descriptor left (fs.file-max)",
            Some(libc::ENOBUFS | libc::ENOMEM) => "this host has no memory left for a socket",
            Some(libc::ENOSPC) => {
                "this user may watch no more descriptors (fs.epoll.max_user_watches)"
            }
            Some(libc::EAGAIN | libc::EADDRINUSE) => NO_PORT,
            Some(libc::EPERM | libc::EACCES) => {
                return LocalFailure::lasting("this host's firewall forbids the way");
            }
            Some(libc::ENETUNREACH | libc::EHOSTUNREACH) => {
                return LocalFailure::lasting("this host has no route to the peer");
            }
            Some(libc::ENETDOWN) => {
                return LocalFailure::lasting("the network interface on the way is down");
            }
            _ => {
                return LocalFailure::Lasting(format!(
                    "this host cannot send to the peer: {error}"
                ));
            }
        };
        LocalFailure::Exhausted(used_up.to_owned())
    }

    /// The same of connect(2), to which an address that is not available means that no port of it is.
    pub fn of_connect(error: &io::Error) -> LocalFailure {
        match error.raw_os_error() {
            Some(libc::EADDRNOTAVAIL) => LocalFailure::Exhausted(NO_PORT.to_owned()),
            _ => LocalFailure::of(error),
        }
    }

    /// Something that does not change by itself.
    pub fn lasting(why: &str) -> LocalFailure {
        LocalFailure::Lasting(why.to_owned())
    }

    /// The answer to the consumer's call, which says no more than that something is used up; the log says of
    /// what. Ok: the call is taken, and an event tells of the failure, with these words.
    ///
    /// # Errors
    /// `DAT_INSUFFICIENT_RESOURCES`.
    pub fn answer(self, to: SocketAddr) -> Result<String, Error> {
        match self {
            LocalFailure::Lasting(why) => Ok(why),
            LocalFailure::Exhausted(why) => {
                tracing::warn!(target: "dat::cm", %to, because = %why, "no call is possible");
                Err(no_resources(io::ErrorKind::OutOfMemory.into()))
            }
        }
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
    fn what_is_used_up_is_told_from_what_is_not_there() {
        let to = SocketAddr::from(([192, 0, 2, 1], 7));
        for errno in [
            libc::EMFILE,
            libc::ENFILE,
            libc::ENOBUFS,
            libc::ENOMEM,
            libc::ENOSPC,
            libc::EADDRINUSE,
        ] {
            assert_eq!(
                of(errno).answer(to).map_err(|e| e.kind()),
                Err(dat_sys::DAT_INSUFFICIENT_RESOURCES)
            );
        }
        assert_eq!(of(libc::ENETUNREACH).answer(to).unwrap(), "this host has no route to the peer");
        let gone = io::Error::from_raw_os_error(libc::EADDRNOTAVAIL);
        assert!(
            matches!(LocalFailure::of_connect(&gone), LocalFailure::Exhausted(why) if why == NO_PORT)
        );
        assert!(
            LocalFailure::of(&gone).answer(to).unwrap().contains("Cannot assign requested address")
        );
    }
}
