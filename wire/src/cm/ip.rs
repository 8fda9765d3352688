//! IP connections (IBA volume 1, annex A11). The service ID of a REQ or SIDR REQ contains the port,
//! and the private data of the message start with the addresses.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The service that a REQ or SIDR REQ addresses.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ServiceId(pub u64);

/// The prefix of the RDMA CM's TCP port space. The low 16 bits are the port.
const TCP_PORT_SPACE: u64 = 0x0106;
/// The prefix of the RDMA CM's UDP port space, the services of which are datagram services.
const UDP_PORT_SPACE: u64 = 0x0111;

/// The Q_Key of the queue pairs that the RDMA CM of Linux configures in the UDP port space. If a
/// program has such a queue pair, Linux refuses a SIDR REP with another Q_Key on its behalf. A
/// program over IP cannot choose another one for its SIDR REP.
pub const UDP_Q_KEY: u32 = 0x0123_4567;

impl ServiceId {
    /// The service ID of a port in the TCP port space.
    pub const fn tcp(port: u16) -> Self {
        ServiceId(TCP_PORT_SPACE << 16 | port as u64)
    }

    /// The port, if the service ID is in the TCP port space.
    pub const fn tcp_port(self) -> Option<u16> {
        self.port_in(TCP_PORT_SPACE)
    }

    /// The service ID of a port in the UDP port space.
    pub const fn udp(port: u16) -> Self {
        ServiceId(UDP_PORT_SPACE << 16 | port as u64)
    }

    /// The port, if the service ID is in the UDP port space.
    pub const fn udp_port(self) -> Option<u16> {
        self.port_in(UDP_PORT_SPACE)
    }

    const fn port_in(self, space: u64) -> Option<u16> {
        if self.0 >> 16 == space { Some(self.0 as u16) } else { None }
    }
}

impl fmt::Debug for ServiceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#018x}", self.0)
    }
}

/// The header of an IP connection: the first 36 octets of the private data of a REQ or SIDR REQ.
/// The destination port is not in this header but in the service ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpHeader {
    /// The caller's port.
    pub source_port: u16,
    /// The caller's address.
    pub source: IpAddr,
    /// The address that is called. It is of the same family as the caller's address.
    pub destination: IpAddr,
}

impl IpHeader {
    /// The size on the wire in octets.
    pub const SIZE: usize = 36;

    /// Reads the header at the start of private data. Returns the header, and the consumer's
    /// private data, which follow it.
    pub fn parse(private: &[u8]) -> Result<(Self, &[u8]), IpHeaderError> {
        let (header, consumer) =
            private.split_first_chunk::<{ Self::SIZE }>().ok_or(IpHeaderError::Size)?;
        let &[version, ip_version, ..] = header;
        if version != 0 {
            return Err(IpHeaderError::Version(version));
        }
        let address = |at| match ip_version >> 4 {
            // An IPv4 address occupies the last four octets of the field.
            4 => Ok(IpAddr::from(Ipv4Addr::from_octets(octets_at(header, at + 12)))),
            6 => Ok(IpAddr::from(Ipv6Addr::from_octets(octets_at(header, at)))),
            other => Err(IpHeaderError::IpVersion(other)),
        };
        let source_port = u16::from_be_bytes(octets_at(header, 2));
        Ok((IpHeader { source_port, source: address(4)?, destination: address(20)? }, consumer))
    }

    /// Returns the octets of the header on the wire.
    pub fn emit(&self) -> [u8; Self::SIZE] {
        let mut header = [0; Self::SIZE];
        header[1] = if self.source.is_ipv4() { 0x40 } else { 0x60 };
        header[2..4].copy_from_slice(&self.source_port.to_be_bytes());
        for (address, end) in [(self.source, 20), (self.destination, 36)] {
            match address {
                IpAddr::V4(v4) => header[end - 4..end].copy_from_slice(&v4.octets()),
                IpAddr::V6(v6) => header[end - 16..end].copy_from_slice(&v6.octets()),
            }
        }
        header
    }
}

fn octets_at<const N: usize>(header: &[u8; IpHeader::SIZE], at: usize) -> [u8; N] {
    let mut octets = [0; N];
    octets.copy_from_slice(&header[at..at + N]);
    octets
}

/// The reason why private data do not start with the header of an IP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IpHeaderError {
    /// There are fewer than 36 octets.
    #[error("private data are too short for the RDMA IP CM header")]
    Size,
    /// The header's version is not 0.
    #[error("RDMA IP CM header has the unknown version {0}")]
    Version(u8),
    /// The IP version is neither 4 nor 6.
    #[error("RDMA IP CM header has addresses of the unknown IP version {0}")]
    IpVersion(u8),
}
