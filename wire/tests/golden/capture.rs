//! Reads captures. It supports only the parts of pcap, Ethernet, IPv4 and IPv6 that the captures of
//! this repository use, and panics on anything else.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// The directory of a protocol's captures.
pub(crate) fn root(protocol: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden").join(protocol)
}

/// The captures in a directory and its subdirectories, sorted, each with its path relative to the
/// directory.
pub(crate) fn captures(root: &Path) -> Vec<(String, Vec<u8>)> {
    let name =
        |path: &Path| path.strip_prefix(root).unwrap().with_extension("").display().to_string();
    let read =
        |path: &Path| fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    paths(root).iter().map(|path| (name(path), read(path))).collect()
}

fn paths(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let nested = paths
        .into_iter()
        .flat_map(|path| if path.is_dir() { self::paths(&path) } else { vec![path] });
    nested.filter(|path| path.extension().is_some_and(|extension| extension == "pcap")).collect()
}

/// A whole IP packet without options.
pub(crate) struct Ip<'a> {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) protocol: u8,
    pub(crate) header: &'a [u8],
    pub(crate) payload: &'a [u8],
}

/// The IP packets of a little-endian pcap file of Ethernet.
pub(crate) fn packets(file: &[u8]) -> impl Iterator<Item = Ip<'_>> {
    frames(file).filter_map(Ip::parse)
}

fn frames(file: &[u8]) -> impl Iterator<Item = &[u8]> {
    let le32 = |at: usize| u32::from_le_bytes(*file[at..].first_chunk().unwrap()) as usize;
    assert_eq!(le32(0), 0xA1B2_C3D4, "not a little-endian pcap file");
    assert_eq!(le32(20), 1, "link type is not Ethernet");
    let mut at = 24;
    std::iter::from_fn(move || {
        let (captured, sent) = (at < file.len()).then(|| (le32(at + 8), le32(at + 12)))?;
        assert_eq!(captured, sent, "a frame was cut short");
        let frame = &file[at + 16..][..captured];
        at += 16 + captured;
        Some(frame)
    })
}

impl<'a> Ip<'a> {
    /// Parses a frame. Returns `None` if it is not IP.
    fn parse(frame: &'a [u8]) -> Option<Self> {
        let packet = &frame[14..];
        match be16(frame, 12) {
            0x0800 => {
                assert_eq!(packet[0], 0x45, "the IPv4 header must have no options");
                assert_eq!(be16(packet, 6) & 0x3FFF, 0, "the packet must not be a fragment");
                let address = |at| IpAddr::from(*packet[at..].first_chunk::<4>().unwrap());
                let (header, payload) = packet[..usize::from(be16(packet, 2))].split_at(20);
                Some(Self {
                    source: address(12),
                    destination: address(16),
                    protocol: header[9],
                    header,
                    payload,
                })
            }
            0x86DD => {
                let address = |at| IpAddr::from(*packet[at..].first_chunk::<16>().unwrap());
                let (header, rest) = packet.split_at(40);
                let payload = &rest[..usize::from(be16(header, 4))];
                Some(Self {
                    source: address(8),
                    destination: address(24),
                    protocol: header[6],
                    header,
                    payload,
                })
            }
            _ => None,
        }
    }
}

pub(crate) fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}
