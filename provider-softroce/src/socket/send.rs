//! Sending.

use std::io;
use std::mem::zeroed;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use super::Udp;

/// Packets of one batch at most (the kernel's UDP_MAX_SEGMENTS).
pub(crate) const MAX_SEGMENTS: usize = 64;
/// Octets of one batch at most: what UDP's length can say, less its header and IPv4's.
pub(crate) const MAX_BATCH: usize = 65_507;

/// What became of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The kernel has it.
    All,
    /// There is no room for it now.
    Full,
    /// A packet is longer than the way to the peer allows.
    TooLong,
    /// It went nowhere: no route, no address. What is lost is sent again in its time.
    Nowhere,
}

impl Udp {
    /// Sends packets that lie one behind the other, each of `segment` octets, the last perhaps shorter.
    pub(crate) fn send(&self, to: SocketAddr, packets: &[u8], segment: usize) -> Sent {
        // An error that an earlier packet met is reported once, in place of what is asked.
        for _ in 0..2 {
            match self.send_once(to, packets, segment) {
                Ok(()) => return Sent::All,
                Err(error) => match error.raw_os_error() {
                    Some(libc::EINTR | libc::ECONNREFUSED | libc::EHOSTUNREACH) => {}
                    Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => return Sent::Full,
                    Some(libc::EMSGSIZE) => return Sent::TooLong,
                    _ => return Sent::Nowhere,
                },
            }
        }
        Sent::Nowhere
    }

    /// Sends a packet to the peer that the socket is connected with.
    #[inline]
    pub(crate) fn send_connected(&self, packet: &[u8]) -> Sent {
        let flags = libc::MSG_NOSIGNAL;
        // SAFETY: the packet is alive during the call, which only reads it.
        let sent =
            unsafe { libc::send(self.as_raw_fd(), packet.as_ptr().cast(), packet.len(), flags) };
        if sent < 0 { Sent::Nowhere } else { Sent::All }
    }

    fn send_once(&self, to: SocketAddr, packets: &[u8], segment: usize) -> io::Result<()> {
        let to = socket2::SockAddr::from(to);
        if packets.len() <= segment {
            let (fd, len) = (self.as_raw_fd(), packets.len());
            // SAFETY: packets and address are alive during the call, which only reads them.
            return done(unsafe {
                libc::sendto(
                    fd,
                    packets.as_ptr().cast(),
                    len,
                    libc::MSG_NOSIGNAL,
                    to.as_ptr().cast(),
                    to.len(),
                )
            });
        }
        let mut iov =
            libc::iovec { iov_base: packets.as_ptr().cast_mut().cast(), iov_len: packets.len() };
        // SAFETY: an all-zero msghdr is an empty one.
        let mut msg: libc::msghdr = unsafe { zeroed() };
        msg.msg_name = to.as_ptr().cast_mut().cast();
        msg.msg_namelen = to.len();
        msg.msg_iov = &mut iov;
        msg.msg_iovlen = 1;
        let mut space = Control([0; 32]);
        // SAFETY: `space` is aligned for a cmsghdr and holds one with 16 bits of data.
        unsafe {
            msg.msg_control = space.0.as_mut_ptr().cast();
            msg.msg_controllen = libc::CMSG_SPACE(size_of::<u16>() as u32) as _;
            let cmsg = &mut *libc::CMSG_FIRSTHDR(&msg);
            cmsg.cmsg_level = libc::SOL_UDP;
            cmsg.cmsg_type = libc::UDP_SEGMENT;
            cmsg.cmsg_len = libc::CMSG_LEN(size_of::<u16>() as u32) as _;
            libc::CMSG_DATA(cmsg).cast::<u16>().write_unaligned(segment as u16);
        }
        // SAFETY: everything `msg` leads to is alive during the call, which only reads it.
        done(unsafe { libc::sendmsg(self.as_raw_fd(), &msg, libc::MSG_NOSIGNAL) })
    }
}

fn done(result: isize) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Room for one control message; the kernel copies its padding, too.
#[repr(align(8))]
struct Control([u8; 32]);
