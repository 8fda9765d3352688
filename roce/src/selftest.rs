//! Checks whether this host sends packets with the IP headers that the ICRC assumes.
//!
//! A socket does not show these headers. However, if a socket requests transmit timestamps
//! (SO_TIMESTAMPING), the kernel returns its packets as they were sent, with their headers.

use std::mem::zeroed;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::socket::{Sent, Udp};

/// The time that the kernel may take to return a packet.
const RETURN_TIMEOUT: Duration = Duration::from_millis(100);

/// Whether a batch of packets (UDP_SEGMENT) from this IPv4 address starts with identification 0 and
/// has the flag "don't fragment". The kernel numbers the further packets of the batch
/// consecutively.
pub(crate) fn gso_headers_fit_icrc(address: SocketAddr) -> bool {
    /// The result, which is the same for all adapters of the process. If the kernel returns no
    /// packet, the test waits for its whole timeout, so it runs only once.
    static ANSWER: OnceLock<bool> = OnceLock::new();
    let mut address = address;
    address.set_port(0);
    *ANSWER.get_or_init(|| {
        sent_batch_header(address).is_some_and(|header| header.id == 0 && header.dont_fragment)
    })
}

fn sent_batch_header(address: SocketAddr) -> Option<Header> {
    let socket = Udp::bind_exclusive(address).ok()?;
    let to = socket.local_addr().ok()?;
    sent_header(&socket, to, &[0; 3 * 64], 64)
}

/// The fields of an IPv4 header that the ICRC covers and a socket cannot set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) id: u16,
    pub(crate) dont_fragment: bool,
}

/// Sends one packet or a batch and returns the IPv4 header of the first packet as it was sent.
pub(crate) fn sent_header(
    socket: &Udp,
    to: SocketAddr,
    packets: &[u8],
    segment: usize,
) -> Option<Header> {
    socket.return_sent_packets(true).ok()?;
    if socket.send(to, packets, segment) != Sent::All {
        return None;
    }
    let deadline = Instant::now() + RETURN_TIMEOUT;
    loop {
        if let Some(header) = read_returned_header(socket) {
            return Some(header);
        }
        if Instant::now() >= deadline {
            return None;
        }
        std::thread::yield_now();
    }
}

/// Returns the IPv4 header of a packet that the kernel has returned. The packet may start with an
/// Ethernet header.
fn read_returned_header(socket: &Udp) -> Option<Header> {
    let mut octets = [0u8; 512];
    let mut control = [0u64; 32];
    // SAFETY: `msghdr` is plain data and valid when zeroed.
    let mut msg: libc::msghdr = unsafe { zeroed() };
    let mut iov = libc::iovec { iov_base: octets.as_mut_ptr().cast(), iov_len: octets.len() };
    msg.msg_iov = &mut iov;
    msg.msg_iovlen = 1;
    msg.msg_control = control.as_mut_ptr().cast();
    msg.msg_controllen = size_of_val(&control) as _;
    // SAFETY: all pointers in `msg` refer to memory that is valid during the call.
    let n = unsafe {
        libc::recvmsg(socket.as_raw_fd(), &mut msg, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT)
    };
    let octets = octets.get(..usize::try_from(n).ok()?)?;
    // The IPv4 header follows the Ethernet header, if there is one.
    let is_ipv4 = |at: &usize| octets.get(*at) == Some(&0x45) && octets.get(at + 9) == Some(&17);
    let at = [14, 0].into_iter().find(is_ipv4)?;
    let header = octets.get(at..at + 20)?;
    Some(Header {
        id: u16::from_be_bytes([header[4], header[5]]),
        dont_fragment: header[6] == 0x40,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_of_this_host_fit_the_icrc() {
        let address = "127.0.0.1:0".parse().expect("an address");
        // Repeat the test, because on a busy machine the kernel may return the packet too late.
        let header = (0..600).find_map(|_| sent_batch_header(address));
        assert_eq!(header, Some(Header { id: 0, dont_fragment: true }));
    }
}
