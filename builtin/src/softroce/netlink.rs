//! A request to the kernel by RDMA netlink, which creates an rxe device. `rdma link add NAME type
//! rxe netdev DEVICE` sends the same request (include/uapi/rdma/rdma_netlink.h).

use std::io;

use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with,
};

/// The message type `RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_NEWLINK)`.
const NEW_LINK: u16 = (5 << 10) + 3;
/// The attribute numbers `RDMA_NLDEV_ATTR_…`.
const DEV_NAME: u16 = 2;
const NDEV_NAME: u16 = 51;
const LINK_TYPE: u16 = 65;

/// The flags `NLM_F_REQUEST | NLM_F_ACK`.
const FLAGS: u16 = 1 | 4;
/// The message type `NLMSG_ERROR`, which also reports success (code 0).
const MESSAGE_ERROR: u16 = 2;
/// The length of a message's header: length, type, flags, sequence number, sender.
const HEADER_BYTES: usize = 16;
const SEQUENCE: u32 = 1;

/// Creates an rxe device. The kernel loads its module rdma_rxe if necessary.
///
/// # Errors
/// Returns the kernel's error: `PermissionDenied` if the process is not root, or if the network
/// device cannot have an rxe device.
pub(crate) fn add_rxe(name: &str, netdev: &str) -> io::Result<()> {
    let socket = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        Some(netlink::RDMA),
    )?;
    sendto(&socket, &request(name, netdev), SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut answer = [0; 4096];
    let (length, _) = recv(&socket, &mut answer, RecvFlags::empty())?;
    parse_answer(&answer[..length])
}

fn request(name: &str, netdev: &str) -> Vec<u8> {
    let mut message = vec![0; HEADER_BYTES];
    for (attribute, text) in [(DEV_NAME, name), (LINK_TYPE, "rxe"), (NDEV_NAME, netdev)] {
        // An attribute consists of its length including this header, its number, and the text with
        // a NUL, padded to a multiple of 4 octets.
        let length = 4 + text.len() + 1;
        message.extend((length as u16).to_ne_bytes());
        message.extend(attribute.to_ne_bytes());
        message.extend(text.as_bytes());
        message.resize((message.len() + 1).next_multiple_of(4), 0);
    }
    let length = message.len() as u32;
    message[..4].copy_from_slice(&length.to_ne_bytes());
    message[4..6].copy_from_slice(&NEW_LINK.to_ne_bytes());
    message[6..8].copy_from_slice(&FLAGS.to_ne_bytes());
    message[8..12].copy_from_slice(&SEQUENCE.to_ne_bytes());
    message
}

/// Parses the kernel's answer, which contains 0 or a negative error number.
fn parse_answer(answer: &[u8]) -> io::Result<()> {
    let kind = answer.get(4..6).map(|kind| u16::from_ne_bytes([kind[0], kind[1]]));
    let code = answer
        .get(HEADER_BYTES..HEADER_BYTES + 4)
        .map(|code| i32::from_ne_bytes([code[0], code[1], code[2], code[3]]));
    match (kind, code) {
        (Some(MESSAGE_ERROR), Some(0)) => Ok(()),
        (Some(MESSAGE_ERROR), Some(code)) => {
            Err(io::Error::from_raw_os_error(code.saturating_neg()))
        }
        _ => Err(io::Error::other("RDMA netlink sent no valid answer")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The request consists of the header, then name, kind and network device.
    #[test]
    fn the_request_is_that_of_rdma_link_add() {
        let message = request("rxe0", "eth0");
        let words = [
            &[0x30, 0, 0, 0, 0x03, 0x14, 0x05, 0, 1, 0, 0, 0, 0, 0, 0, 0][..],
            b"\x09\x00\x02\x00rxe0\0\0\0\0",
            b"\x08\x00\x41\x00rxe\0",
            b"\x09\x00\x33\x00eth0\0\0\0\0",
        ]
        .concat();
        if cfg!(target_endian = "little") {
            assert_eq!(message, words);
        }
        assert_eq!(request("abc", "d").len() % 4, 0);
    }

    #[test]
    fn the_answer_is_an_error_or_none() {
        let answer = |code: i32| {
            let mut answer = vec![0; HEADER_BYTES];
            answer[4..6].copy_from_slice(&MESSAGE_ERROR.to_ne_bytes());
            answer.extend(code.to_ne_bytes());
            parse_answer(&answer).map_err(|e| e.kind())
        };
        assert_eq!(answer(0), Ok(()));
        assert_eq!(answer(-1), Err(io::ErrorKind::PermissionDenied));
        assert_eq!(answer(-17), Err(io::ErrorKind::AlreadyExists));
        assert!(
            parse_answer(&[]).is_err()
                && parse_answer(&[0; HEADER_BYTES]).is_err()
                && answer(i32::MIN).is_err()
        );
    }
}
