//! Sends packets.

use std::io;
use std::mem::zeroed;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use super::Udp;

/// The maximum number of packets in one batch (the kernel's UDP_MAX_SEGMENTS).
pub(crate) const MAX_SEGMENTS: usize = 64;
/// The maximum length of one batch: the maximum of UDP's length field minus the headers of UDP and
/// IPv4.
pub(crate) const MAX_BATCH_BYTES: usize = 65_507;

/// The result of sending a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The kernel has accepted the batch.
    All,
    /// The socket's buffer has no room.
    NoRoom,
    /// A packet is longer than the MTU of the interface. If the socket has an error queue, the
    /// reason may also be that an ICMP message has arrived; the queue tells which.
    TooLong,
    /// The batch was not sent, for example because there is no route. The protocol retransmits the
    /// packets.
    Failed,
}

impl Udp {
    /// Sends packets that are stored one after the other. Each has `segment` octets, except that
    /// the last one may be shorter.
    pub(crate) fn send(&self, to: SocketAddr, packets: &[u8], segment: usize) -> Sent {
        // The kernel reports an error of an earlier packet once, instead of sending. Therefore the
        // call is repeated.
        for _ in 0..2 {
            match self.send_once(to, packets, segment) {
                Ok(()) => return Sent::All,
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => return Sent::NoRoom,
                    Some(libc::EMSGSIZE) => return Sent::TooLong,
                    // Some kernels refuse a batch in this way if its packets are longer than the
                    // MTU. A single packet shows the reason.
                    Some(libc::EINVAL) if packets.len() > segment => {
                        return match self.send(to, &packets[..segment], segment) {
                            Sent::All => Sent::Failed,
                            reason => reason,
                        };
                    }
                    _ => {}
                },
            }
        }
        Sent::Failed
    }

    /// Sends a packet to the address that the socket is connected to.
    #[inline]
    pub(crate) fn send_connected(&self, packet: &[u8]) -> Sent {
        let flags = libc::MSG_NOSIGNAL;
        // SAFETY: `packet` is valid for reads during the call, which does not write to it.
        let sent =
            unsafe { libc::send(self.as_raw_fd(), packet.as_ptr().cast(), packet.len(), flags) };
        if sent < 0 { Sent::Failed } else { Sent::All }
    }

    fn send_once(&self, to: SocketAddr, packets: &[u8], segment: usize) -> io::Result<()> {
        let to = socket2::SockAddr::from(to);
        if packets.len() <= segment {
            let (fd, len) = (self.as_raw_fd(), packets.len());
            // SAFETY: `packets` and `to` are valid for reads during the call, which does not write
            // to them.
            return check_result(unsafe {
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
        // SAFETY: `msghdr` is plain data, and a zeroed one is empty.
        let mut msg: libc::msghdr = unsafe { zeroed() };
        msg.msg_name = to.as_ptr().cast_mut().cast();
        msg.msg_namelen = to.len();
        msg.msg_iov = &mut iov;
        msg.msg_iovlen = 1;
        let mut space = Control([0; 32]);
        // SAFETY: `space` is aligned for a cmsghdr and has room for one with 16 bits of data.
        unsafe {
            msg.msg_control = space.0.as_mut_ptr().cast();
            msg.msg_controllen = libc::CMSG_SPACE(size_of::<u16>() as u32) as _;
            let cmsg = &mut *libc::CMSG_FIRSTHDR(&msg);
            cmsg.cmsg_level = libc::SOL_UDP;
            cmsg.cmsg_type = libc::UDP_SEGMENT;
            cmsg.cmsg_len = libc::CMSG_LEN(size_of::<u16>() as u32) as _;
            libc::CMSG_DATA(cmsg).cast::<u16>().write_unaligned(segment as u16);
        }
        // SAFETY: all pointers in `msg` refer to memory that is valid during the call, which only
        // reads it.
        check_result(unsafe { libc::sendmsg(self.as_raw_fd(), &msg, libc::MSG_NOSIGNAL) })
    }
}

fn check_result(result: isize) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A buffer for one control message. It is initialised because the kernel copies its padding, too.
#[repr(align(8))]
struct Control([u8; 32]);
