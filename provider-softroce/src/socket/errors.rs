//! What the network says about packets that it did not deliver.

use std::mem::zeroed;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use super::{Udp, address_of};

/// A packet of ours that came back.
pub(crate) struct Undelivered<'a> {
    /// Where it should have gone.
    pub(crate) to: SocketAddr,
    /// Its first octets, from the BTH on.
    pub(crate) packet: &'a [u8],
    /// The host is there, and nobody has the port.
    pub(crate) refused: bool,
}

/// Reports that are read in one go: whoever sends forged ones must not keep the reader busy. What is left is
/// read with the next one that comes.
const MOST_AT_ONCE: usize = 1024;

/// Room for the control messages.
#[repr(align(8))]
struct Control([u8; 512]);

impl Udp {
    /// Calls `each` for what has been reported since, 1,024 reports at most.
    pub(crate) fn errors(&self, mut each: impl FnMut(Undelivered<'_>)) {
        let mut octets = [0u8; 256];
        let mut control = Control([0; 512]);
        for _ in 0..MOST_AT_ONCE {
            // SAFETY: plain data, valid when zero.
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
            // SAFETY: everything `msg` leads to is alive during the call.
            let n = unsafe { libc::recvmsg(self.as_raw_fd(), &mut msg, flags) };
            let Ok(n) = usize::try_from(n) else { return };
            let refused =
                reported(&msg).is_some_and(|error| error.ee_errno == libc::ECONNREFUSED as u32);
            if let Some(to) = address_of(&name, msg.msg_namelen) {
                each(Undelivered { to, packet: &octets[..n.min(octets.len())], refused });
            }
        }
    }
}

/// What went wrong, in the words of the kernel.
fn reported(msg: &libc::msghdr) -> Option<libc::sock_extended_err> {
    // SAFETY: the kernel filled the control buffer that `msg` leads to.
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
