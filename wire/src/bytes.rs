//! Reads and writes numbers in network byte order in arrays. If a caller passes a constant offset,
//! the compiler removes the bounds checks.

/// Reads 2 octets.
#[inline(always)]
pub(crate) fn be16<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Reads 3 octets.
#[inline(always)]
pub(crate) fn be24<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes([0, bytes[at], bytes[at + 1], bytes[at + 2]])
}

/// Reads 4 octets.
#[inline(always)]
pub(crate) fn be32<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Reads 8 octets.
#[inline(always)]
pub(crate) fn be64<const N: usize>(bytes: &[u8; N], at: usize) -> u64 {
    u64::from(be32(bytes, at)) << 32 | u64::from(be32(bytes, at + 4))
}

/// Returns one octet and the low 24 bits of `number`. Several headers pack such a pair into 4
/// octets.
#[inline(always)]
pub(crate) fn octet_and_24(octet: u8, number: u32) -> [u8; 4] {
    debug_assert!(number < 1 << 24, "{number:#x} has more than 24 bits");
    (u32::from(octet) << 24 | number & 0xFF_FFFF).to_be_bytes()
}
