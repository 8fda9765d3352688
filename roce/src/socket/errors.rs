//! The error queue of a socket: reports of packets that were not delivered.

use std::mem::zeroed;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use super::{Udp, address_of};

/// A packet that was not delivered.
pub(crate) struct Undelivered<'a> {
    /// The destination of the packet.
    pub(crate) to: SocketAddr,
    /// The first octets of the packet, starting with the BTH.
    pub(crate) packet: &'a [u8],
    pub(crate) cause: SendFailure,
}

/// The reason for which a packet was not delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendFailure {
    /// An ICMP message says that no process has the port. The message may be forged.
    Refused,
    /// This host has not sent the packet, because it is longer than the MTU of the interface, `mtu`
    /// octets of an IP packet. `packet` is empty, because the kernel returns no part of the packet.
    /// No other host can cause such a report.
    TooLongForInterface {
        mtu: usize,
    },
    /// An ICMP message says that a router carries only IP packets of at most `mtu` octets. The
    /// message may be forged.
    TooLongForRouter {
        mtu: usize,
    },
    Other,
}

/// The maximum number of reports that one call reads, so that forged reports cannot keep the reader
/// busy. The next call reads the remaining ones.
const REPORTS_PER_CALL_MAX: usize = 1024;

/// A buffer for control messages.
#[repr(align(8))]
struct Control([u8; 512]);

impl Udp {
    /// Calls `each` for the reports that the socket's error queue holds, up to 1,024 reports, and
    /// removes them. The kernel drops reports for which the socket's receive buffer has no room.
    pub(crate) fn read_errors(&self, mut each: impl FnMut(Undelivered<'_>)) {
        let mut octets = [0u8; 256];
        let mut control = Control([0; 512]);
        for _ in 0..REPORTS_PER_CALL_MAX {
            // SAFETY: both types are plain data and valid when zeroed.
            let (mut name, mut msg): (libc::sockaddr_storage, libc::msghdr) =
                unsafe { (zeroed(), zeroed()) };
            let mut iov =
                libc::iovec { iov_base: octets.as_mut_ptr().cast(), iov_len: octets.len() };
            msg.msg_name = (&raw mut name).cast();
            msg.msg_namelen = size_of_val(&name) as libc::socklen_t;
            msg.msg_iov = &mut iov;
            msg.msg_iovlen = 1;
            msg.msg_control = control.0.as_mut_ptr().cast();
            msg.msg_controllen = control.0.len() as _;
            let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
            // SAFETY: all pointers in `msg` refer to memory that is valid during the call.
            let n = unsafe { libc::recvmsg(self.as_raw_fd(), &mut msg, flags) };
            let Ok(n) = usize::try_from(n) else { return };
            let cause = extended_error(&msg).map_or(SendFailure::Other, |error| cause(&error));
            if let Some(to) = address_of(&name, msg.msg_namelen) {
                each(Undelivered { to, packet: &octets[..n.min(octets.len())], cause });
            }
        }
    }
}

fn cause(error: &libc::sock_extended_err) -> SendFailure {
    let mtu = error.ee_info as usize;
    match (error.ee_errno as libc::c_int, error.ee_origin) {
        (libc::ECONNREFUSED, _) => SendFailure::Refused,
        (libc::EMSGSIZE, libc::SO_EE_ORIGIN_LOCAL) => SendFailure::TooLongForInterface { mtu },
        (libc::EMSGSIZE, _) => SendFailure::TooLongForRouter { mtu },
        _ => SendFailure::Other,
    }
}

/// Returns the kernel's description of the error.
fn extended_error(msg: &libc::msghdr) -> Option<libc::sock_extended_err> {
    // SAFETY: the kernel has filled the control buffer that `msg` refers to, and has set its
    // length.
    unsafe {
        let mut cmsg = libc::CMSG_FIRSTHDR(msg);
        while let Some(header) = cmsg.as_ref() {
            let kind = (header.cmsg_level, header.cmsg_type);
            if matches!(
                kind,
                (libc::SOL_IP, libc::IP_RECVERR) | (libc::SOL_IPV6, libc::IPV6_RECVERR)
            ) {
                return Some(
                    libc::CMSG_DATA(header).cast::<libc::sock_extended_err>().read_unaligned(),
                );
            }
            cmsg = libc::CMSG_NXTHDR(msg, header);
        }
    }
    None
}
