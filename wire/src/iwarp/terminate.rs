//! TERMINATE: the last message of a failed stream (RFC 5040, section 4.8), and its causes.

use std::fmt;

use super::ddp::{self, TAGGED_SIZE, UNTAGGED_SIZE};
use super::rdmap::{Header, ReadRequest};

/// The reason for which a stream ended: layer, error type and error code in the numbering of RFC
/// 5040 (figure 9), RFC 5041 (section 7.2), RFC 5044 (section 8) and RFC 6581 (section 8). It may
/// contain any numbers, because a peer may send any.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cause {
    /// The layer, 4 bits on the wire: 0 is RDMAP, 1 is DDP, 2 is LLP (MPA).
    pub layer: u8,
    /// The type of error within the layer, 4 bits on the wire.
    pub etype: u8,
    /// The error within its type.
    pub code: u8,
}

/// Defines the causes of the standards in one place: the constants and their descriptions.
macro_rules! causes {
    ($($name:ident $layer:literal/$etype:literal/$code:literal $description:literal)*) => {
        impl Cause {
            $(
                #[doc = $description]
                pub const $name: Self = Self { layer: $layer, etype: $etype, code: $code };
            )*

            /// Every cause that the standards define.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            const fn description(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => Some($description),)*
                    _ => None,
                }
            }
        }
    };
}

causes! {
    RDMAP_CATASTROPHIC        0/0/0    "RDMAP local catastrophic error"

    PROTECTION_STAG           0/1/0    "RDMAP remote protection: invalid STag"
    PROTECTION_BOUNDS         0/1/1    "RDMAP remote protection: base/bounds violation"
    PROTECTION_ACCESS         0/1/2    "RDMAP remote protection: access rights violation"
    PROTECTION_NOT_ASSOCIATED 0/1/3    "RDMAP remote protection: STag not associated with the \
                                        stream"
    PROTECTION_TO_WRAP        0/1/4    "RDMAP remote protection: TO wrap"
    PROTECTION_INVALIDATE     0/1/9    "RDMAP remote protection: STag cannot be invalidated"
    PROTECTION_UNSPECIFIED    0/1/0xFF "RDMAP remote protection: unspecified error"

    RDMAP_VERSION             0/2/5    "RDMAP remote operation: invalid RDMAP version"
    UNEXPECTED_OPCODE         0/2/6    "RDMAP remote operation: unexpected opcode"
    STREAM_CATASTROPHIC       0/2/7    "RDMAP remote operation: catastrophic error of the stream"
    GLOBAL_CATASTROPHIC       0/2/8    "RDMAP remote operation: catastrophic error, global"
    OPERATION_INVALIDATE      0/2/9    "RDMAP remote operation: STag cannot be invalidated"
    OPERATION_UNSPECIFIED     0/2/0xFF "RDMAP remote operation: unspecified error"

    DDP_CATASTROPHIC          1/0/0    "DDP local catastrophic error"

    TAGGED_STAG               1/1/0    "DDP tagged buffer: invalid STag"
    TAGGED_BOUNDS             1/1/1    "DDP tagged buffer: base/bounds violation"
    TAGGED_NOT_ASSOCIATED     1/1/2    "DDP tagged buffer: STag not associated with the stream"
    TAGGED_TO_WRAP            1/1/3    "DDP tagged buffer: TO wrap"
    TAGGED_VERSION            1/1/4    "DDP tagged buffer: invalid DDP version"

    UNTAGGED_QN               1/2/1    "DDP untagged buffer: invalid queue number"
    UNTAGGED_NO_BUFFER        1/2/2    "DDP untagged buffer: invalid MSN, no buffer available"
    UNTAGGED_MSN              1/2/3    "DDP untagged buffer: invalid MSN, out of range"
    UNTAGGED_MO               1/2/4    "DDP untagged buffer: invalid message offset"
    UNTAGGED_TOO_LONG         1/2/5    "DDP untagged buffer: message too long for its buffer"
    UNTAGGED_VERSION          1/2/6    "DDP untagged buffer: invalid DDP version"

    MPA_STREAM_LOST           2/0/1    "MPA: TCP connection lost"
    MPA_CRC                   2/0/2    "MPA: CRC mismatch"
    MPA_LENGTH                2/0/3    "MPA: marker and ULPDU length disagree"
    MPA_SETUP                 2/0/4    "MPA: invalid request or reply frame"
    MPA_CATASTROPHIC          2/0/5    "MPA: local catastrophic error"
    MPA_IRD                   2/0/6    "MPA: insufficient IRD resources"
    MPA_RTR                   2/0/7    "MPA: no matching RTR option"
}

impl Cause {
    const fn is_known(self) -> bool {
        // RDMAP's local catastrophic error may have any code.
        self.description().is_some() || (self.layer == 0 && self.etype == 0)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { layer, etype, code } = *self;
        if let Some(description) = self.description() {
            return f.write_str(description);
        }
        match (layer, etype) {
            (0, 0) => f.write_str("RDMAP local catastrophic error")?,
            (0, 1) => f.write_str("RDMAP remote protection")?,
            (0, 2) => f.write_str("RDMAP remote operation")?,
            (1, 1) => f.write_str("DDP tagged buffer")?,
            (1, 2) => f.write_str("DDP untagged buffer")?,
            (2, 0) => f.write_str("MPA")?,
            _ => write!(f, "layer {layer}, error type {etype}")?,
        }
        write!(f, ": error code {code:#04x}")
    }
}

impl fmt::Debug for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cause({}/{}/{}: {self})", self.layer, self.etype, self.code)
    }
}

/// The payload of a TERMINATE message.
///
/// RFC 5040's figure 10 says which headers the message includes, depending on the cause:
///
/// - An error of DDP: the DDP header. An error of RDMAP: the DDP header, if possible.
/// - A remote protection error of a READ request: also that READ request.
/// - An error of MPA, or a catastrophic error: no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terminate {
    /// The reason why the stream ended.
    pub cause: Cause,
    /// The ULPDU length of the offending segment in octets. The bit M shows whether it is present.
    pub segment_len: Option<u16>,
    /// The DDP header of the offending segment. The bit D shows whether it is present.
    pub header: Option<TerminatedHeader>,
    /// The offending READ request, advanced to the position of the failure. The bit R shows whether
    /// it is present.
    pub read_request: Option<ReadRequest>,
}

/// The order of the bits in a TERMINATE's control field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BitOrder {
    /// The order of RFC 5040, which is always emitted.
    Standard,
    /// The order of siw on little-endian hosts (Linux 6.1 to 7.2). The fields within each octet are
    /// in the reverse order.
    Mirrored,
}

const SEGMENT_LEN: u8 = 0x80;
const DDP_HEADER: u8 = 0x40;
const RDMAP_HEADER: u8 = 0x20;

impl Terminate {
    /// The maximum size in octets.
    pub const MAX_SIZE: usize = 4 + 2 + UNTAGGED_SIZE + ReadRequest::SIZE;

    /// A TERMINATE with only the cause.
    pub const fn new(cause: Cause) -> Self {
        Self { cause, segment_len: None, header: None, read_request: None }
    }

    /// The size on the wire in octets.
    #[expect(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        let segment_len = if self.has_segment_len() { 2 } else { 0 };
        let read_request = if self.read_request.is_some() { ReadRequest::SIZE } else { 0 };
        4 + segment_len + self.header.map_or(0, |header| header.as_bytes().len()) + read_request
    }

    /// Whether the length field is present. If the DDP header is present, the length field is
    /// always present, even if the length is unknown.
    fn has_segment_len(&self) -> bool {
        self.segment_len.is_some() || self.header.is_some()
    }

    /// Reads a TERMINATE's payload and returns it with its sender's bit order.
    ///
    /// If the message includes no header, the bit order can be ambiguous. In that case the standard
    /// order applies if it gives a known cause. Otherwise the mirrored order applies if that order
    /// gives a known cause. If no order gives a known cause, the standard order applies.
    pub fn parse(bytes: &[u8]) -> Result<(Self, BitOrder), TerminateError> {
        let too_short = TerminateError { len: bytes.len() };
        let (&[kind, code, included, _], mut rest) = bytes.split_first_chunk().ok_or(too_short)?;
        let standard = Cause { layer: kind >> 4, etype: kind & 0xF, code };
        let mirrored = Cause { layer: standard.etype, etype: standard.layer, code };

        let order = match included {
            _ if included & (SEGMENT_LEN | DDP_HEADER | RDMAP_HEADER) != 0 => BitOrder::Standard,
            _ if included & 0x07 != 0 => BitOrder::Mirrored,
            _ if !standard.is_known() && mirrored.is_known() => BitOrder::Mirrored,
            _ => BitOrder::Standard,
        };
        let (cause, included) = match order {
            BitOrder::Standard => (standard, included),
            BitOrder::Mirrored => (mirrored, included.reverse_bits()),
        };

        let mut terminate = Self::new(cause);
        if included & (SEGMENT_LEN | DDP_HEADER) != 0 {
            let (len, after) = rest.split_first_chunk().ok_or(too_short)?;
            terminate.segment_len = (included & SEGMENT_LEN != 0).then(|| u16::from_be_bytes(*len));
            rest = after;
        }
        if included & DDP_HEADER != 0 {
            let header = TerminatedHeader::new(rest).ok_or(too_short)?;
            rest = &rest[header.as_bytes().len()..];
            terminate.header = Some(header);
        }
        if included & RDMAP_HEADER != 0 {
            terminate.read_request = Some(ReadRequest::parse(rest).ok_or(too_short)?);
        }
        Ok((terminate, order))
    }

    /// Writes the payload in the standard order at the start of `buf` and returns its size.
    ///
    /// # Panics
    /// If `buf` is shorter than [`len`](Self::len). [`MAX_SIZE`](Self::MAX_SIZE) octets are always
    /// enough.
    pub fn emit(&self, buf: &mut [u8]) -> usize {
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let Cause { layer, etype, code } = self.cause;
        let included = flag(self.segment_len.is_some(), SEGMENT_LEN)
            | flag(self.header.is_some(), DDP_HEADER)
            | flag(self.read_request.is_some(), RDMAP_HEADER);

        let size = self.len();
        let (control, mut rest) = buf[..size].split_at_mut(4);
        control.copy_from_slice(&[layer << 4 | etype & 0xF, code, included, 0]);
        if self.has_segment_len() {
            let len;
            (len, rest) = rest.split_at_mut(2);
            len.copy_from_slice(&self.segment_len.unwrap_or(0).to_be_bytes());
        }
        if let Some(header) = &self.header {
            let place;
            (place, rest) = rest.split_at_mut(header.as_bytes().len());
            place.copy_from_slice(header.as_bytes());
        }
        if let Some(read_request) = &self.read_request {
            read_request.emit(rest);
        }
        size
    }
}

impl fmt::Display for Terminate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cause.fmt(f)?;
        if let Some(header) = &self.header {
            write!(f, "; in {header}")?;
        }
        if let Some(len) = self.segment_len {
            write!(f, " ulpdu={len}")?;
        }
        if let Some(read_request) = &self.read_request {
            write!(f, " ({read_request})")?;
        }
        Ok(())
    }
}

/// The error that a TERMINATE message ends before the headers that it announces. The stream ends in
/// any case, because a peer sends a TERMINATE only after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("TERMINATE of {len} octets ends before the headers it announces")]
pub struct TerminateError {
    /// The number of octets received.
    pub len: usize,
}

/// The DDP header of an offending segment, unchanged. [`Header::parse`] need not accept it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TerminatedHeader([u8; UNTAGGED_SIZE]);

impl TerminatedHeader {
    /// The header at the start of a ULPDU, complete but otherwise unchecked. `None` if it is
    /// incomplete.
    pub fn new(ulpdu: &[u8]) -> Option<Self> {
        let mut header = [0; UNTAGGED_SIZE];
        let len = Self::len(*ulpdu.first()?);
        header[..len].copy_from_slice(ulpdu.get(..len)?);
        Some(Self(header))
    }

    /// The octets on the wire, 14 or 18.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0[..Self::len(self.0[0])]
    }

    const fn len(control: u8) -> usize {
        if control & ddp::TAGGED != 0 { TAGGED_SIZE } else { UNTAGGED_SIZE }
    }
}

impl From<Header> for TerminatedHeader {
    fn from(header: Header) -> Self {
        let mut bytes = [0; UNTAGGED_SIZE];
        header.emit(&mut bytes);
        Self(bytes)
    }
}

impl fmt::Display for TerminatedHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Header::parse(self.as_bytes()) {
            Ok(Some((header, _))) => header.fmt(f),
            Ok(None) => write!(f, "header cut short"),
            Err(error) => write!(f, "bad header: {error}"),
        }
    }
}

impl fmt::Debug for TerminatedHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TerminatedHeader({:02x?})", self.as_bytes())
    }
}

#[cfg(test)]
mod tests;
