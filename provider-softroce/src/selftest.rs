//! Whether the IP headers of this host's packets are what the ICRC needs.
//!
//! A socket does not show them. But a socket that asks when its packets left (SO_TIMESTAMPING) is given the packets back, as
//! they left.

use std::mem::zeroed;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::socket::{Sent, Udp};

/// How long a packet to ourselves may take.
const PATIENCE: Duration = Duration::from_millis(100);

/// Whether a batch of packets from this IPv4 address begins with identification 0 and must not be fragmented; the kernel
/// numbers the others from there.
pub(crate) fn batches_are_as_they_should(address: SocketAddr) -> bool {
    /// The same kernel answers for all adapters of the process; where it tells nothing, that takes its time.
    static ANSWER: OnceLock<bool> = OnceLock::new();
    let mut address = address;
    address.set_port(0);
    *ANSWER.get_or_init(|| {
        header_of_a_batch(address).is_some_and(|header| header.id == 0 && header.dont_fragment)
    })
}

fn header_of_a_batch(address: SocketAddr) -> Option<Header> {
    let socket = Udp::bind_alone(address).ok()?;
    let to = socket.local_addr().ok()?;
    header_of(&socket, to, &[0; 3 * 64], 64)
}

/// What is of interest in a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) id: u16,
    pub(crate) dont_fragment: bool,
}

/// Sends packets, and gives the IPv4 header that they leave with: that of the first, where they are a batch.
pub(crate) fn header_of(
    socket: &Udp,
    to: SocketAddr,
    packets: &[u8],
    segment: usize,
) -> Option<Header> {
    socket.ask_for_headers(true).ok()?;
    if socket.send(to, packets, segment) != Sent::All {
        return None;
    }
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(header) = returned(socket) {
            return Some(header);
        }
        if Instant::now() >= deadline {
            return None;
        }
        std::thread::yield_now();
    }
}

/// The IPv4 header of a packet that came back, whatever is before it.
fn returned(socket: &Udp) -> Option<Header> {
    let mut octets = [0u8; 512];
    let mut control = [0u64; 32];
    // SAFETY: plain data, valid when zero.
    let mut msg: libc::msghdr = unsafe { zeroed() };
    let mut iov = libc::iovec { iov_base: octets.as_mut_ptr().cast(), iov_len: octets.len() };
    msg.msg_iov = &mut iov;
    msg.msg_iovlen = 1;
    msg.msg_control = control.as_mut_ptr().cast();
    msg.msg_controllen = size_of_val(&control) as _;
    // SAFETY: everything `msg` leads to is alive during the call.
    let n = unsafe {
        libc::recvmsg(socket.as_raw_fd(), &mut msg, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT)
    };
    let octets = octets.get(..usize::try_from(n).ok()?)?;
    // Behind the Ethernet header, if there is one.
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
    fn this_host_is_as_it_should() {
        let address = "127.0.0.1:0".parse().expect("an address");
        // It comes back at once, unless this machine is busy with others.
        let header = (0..600).find_map(|_| header_of_a_batch(address));
        assert_eq!(header, Some(Header { id: 0, dont_fragment: true }));
    }
}
