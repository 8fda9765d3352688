//! The CRC register as a polynomial over GF(2), modulo the CRC-32 polynomial, reflected: bit 31 is
//! the coefficient of x^0. A zero octet multiplies the register by x^8. Any other octet is first
//! added to the low eight bits.

/// The polynomial of CRC-32 (IEEE 802.3), reflected.
const POLYNOMIAL: u32 = 0xEDB8_8320;
/// The polynomial 1, which is x^0.
const ONE: u32 = 1 << 31;
/// The register after the eight octets of ones with which an ICRC starts.
pub(super) const ALL_ONES_8: u32 = {
    let mut register = u32::MAX;
    let mut octets = 0;
    while octets < 8 {
        register = advance(register ^ 0xFF, 1);
        octets += 1;
    }
    register
};

/// The product of two polynomials.
#[inline]
pub(super) const fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    let mut bit = 0;
    while bit < 32 {
        // The loop has no branch, because a branch would be mispredicted half of the time.
        product ^= b & ((a << bit) as i32 >> 31) as u32;
        b = times_x(b);
        bit += 1;
    }
    product
}

/// For each value of an octet, the effect of the octet on the CRC register at a certain point. The
/// octet starts `octets_before` octets before that point. If the number is negative, the octet
/// comes after the point. In that case the result is the change of the register at the point that
/// has the same effect as the octet.
pub(super) const fn effect_of_octet(octets_before: i32) -> [u32; 256] {
    let mut effect = [0; 256];
    // By linearity, the effects of all other values are sums of the effects of single bits.
    let mut bit = 0;
    while bit < 8 {
        effect[1 << bit] = advance(1 << bit, octets_before);
        bit += 1;
    }
    let mut value = 1_usize;
    while value < 256 {
        let low = value & value.wrapping_neg();
        effect[value] = effect[low] ^ effect[value ^ low];
        value += 1;
    }
    effect
}

/// For each n below `N`, the factor that moves a register back by `octets` + 4 n octets.
pub(super) const fn powers_back<const N: usize>(octets: i32) -> [u32; N] {
    let mut powers = [0; N];
    let mut power = advance(ONE, -octets);
    let mut n = 0;
    while n < N {
        powers[n] = power;
        power = advance(power, -4);
        n += 1;
    }
    powers
}

/// Returns the CRC register after this number of zero octets. For a negative number, returns the
/// register before that many zero octets.
const fn advance(mut register: u32, octets: i32) -> u32 {
    let mut bit = 0;
    while bit < octets.abs() * 8 {
        register = if octets > 0 { times_x(register) } else { divided_by_x(register) };
        bit += 1;
    }
    register
}

const fn times_x(p: u32) -> u32 {
    p >> 1 ^ POLYNOMIAL & (p & 1).wrapping_neg()
}

const fn divided_by_x(p: u32) -> u32 {
    // The highest bit shows whether `times_x` has added the polynomial.
    if p >> 31 == 1 { (p ^ POLYNOMIAL) << 1 | 1 } else { p << 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn back_is_the_way_back() {
        for register in [1, 0x8000_0000, 0xDEAD_BEEF, u32::MAX] {
            for octets in [1, 4, 28, 1000] {
                assert_eq!(advance(advance(register, octets), -octets), register);
                assert_eq!(advance(advance(register, -octets), octets), register);
            }
        }
    }

    #[test]
    fn products() {
        assert_eq!(ALL_ONES_8, 0xDEBB_20E3);
        for (a, b, c) in [(1, 2, 3), (0xDEAD_BEEF, 0x1234_5678, 0x8765_4321), (u32::MAX, 0, 5)] {
            assert_eq!(multiply(a, ONE), a);
            assert_eq!(multiply(a, b), multiply(b, a));
            assert_eq!(multiply(a, multiply(b, c)), multiply(multiply(a, b), c));
            assert_eq!(multiply(a, b ^ c), multiply(a, b) ^ multiply(a, c));
            assert_eq!(multiply(a, advance(ONE, 7)), advance(a, 7));
        }
    }

    #[test]
    fn factors_step_back() {
        let back: [u32; 9] = powers_back(24);
        assert_eq!(multiply(advance(0xDEAD_BEEF, 24 + 4 * 8), back[8]), 0xDEAD_BEEF);
        assert_eq!(multiply(advance(0xDEAD_BEEF, 24), back[0]), 0xDEAD_BEEF);
    }
}
