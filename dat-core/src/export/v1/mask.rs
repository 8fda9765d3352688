//! Converts masks of uDAPL 1.2 to 2.0. A bit that 1.2 does not define becomes a bit that 2.0 does
//! not define, so that the 2.0 function refuses it.

use dat_sys::*;

/// Shifts the bits of `shifted` up by `places`, and keeps the other bits of `all` where they are.
/// Returns `unknown` if the mask contains a bit that is not in `all`.
const fn translate(mask: u64, all: u64, shifted: u64, places: u32, unknown: u64) -> u64 {
    let known = mask & !shifted | (mask & shifted) << places;
    if mask & !all == 0 { known } else { unknown }
}

/// A bit that no field has, in a mask of 64 bits and in a mask of 32 bits.
const UNKNOWN: u64 = 1 << 63;
const UNKNOWN_32: u64 = 1 << 31;

pub(super) fn ia(mask: v1::DAT_IA_ATTR_MASK) -> DAT_IA_ATTR_MASK {
    let shifted = v1::DAT_IA_FIELD_ALL & !(v1::DAT_IA_FIELD_IA_NUM_TRANSPORT_ATTR - 1);
    translate(mask, v1::DAT_IA_FIELD_ALL, shifted, 3, UNKNOWN)
}

pub(super) fn provider(mask: v1::DAT_PROVIDER_ATTR_MASK) -> DAT_PROVIDER_ATTR_MASK {
    let shifted =
        v1::DAT_PROVIDER_FIELD_ALL & !(v1::DAT_PROVIDER_FIELD_NUM_PROVIDER_SPECIFIC_ATTR - 1);
    translate(mask, v1::DAT_PROVIDER_FIELD_ALL, shifted, 5, UNKNOWN)
}

pub(super) fn ep(mask: v1::DAT_EP_PARAM_MASK) -> DAT_EP_PARAM_MASK {
    let shifted = (v1::DAT_EP_FIELD_SRQ_HANDLE << 1) - v1::DAT_EP_FIELD_LOCAL_IA_ADDRESS_PTR;
    translate(mask, v1::DAT_EP_FIELD_ALL, shifted, 1, UNKNOWN)
}

pub(super) fn lmr(mask: v1::DAT_LMR_PARAM_MASK) -> DAT_LMR_PARAM_MASK {
    let shifted = v1::DAT_LMR_FIELD_ALL & !(v1::DAT_LMR_FIELD_LMR_CONTEXT - 1);
    translate(mask.into(), v1::DAT_LMR_FIELD_ALL.into(), shifted.into(), 1, UNKNOWN_32)
        as DAT_LMR_PARAM_MASK
}

pub(super) fn rmr(mask: v1::DAT_RMR_PARAM_MASK) -> DAT_RMR_PARAM_MASK {
    translate(mask.into(), v1::DAT_RMR_FIELD_ALL.into(), 0, 0, UNKNOWN_32) as DAT_RMR_PARAM_MASK
}

/// Converts a mask for a CNO. The masks of 2.0 overlap: the mask of the proxy is 3, and the mask of
/// all fields is 4.
pub(super) fn cno(mask: v1::DAT_CNO_PARAM_MASK) -> DAT_CNO_PARAM_MASK {
    match mask {
        0 | DAT_CNO_FIELD_IA_HANDLE => mask,
        v1::DAT_CNO_FIELD_AGENT => DAT_CNO_FIELD_PROXY,
        v1::DAT_CNO_FIELD_ALL => DAT_CNO_FIELD_ALL,
        _ => UNKNOWN_32 as DAT_CNO_PARAM_MASK,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks every constant of 1.2 whose name has this beginning: its translated value must equal
    /// the constant of 2.0 with the same name.
    fn check_constants(beginning: &str, translate: impl Fn(u64) -> u64) -> usize {
        let new = |name: &str| {
            let all = describe::CONSTANTS.iter().copied().flatten();
            all.clone().find(|constant| constant.name == name).expect("a name of 2.0").value as u64
        };
        let old = v1::constants().filter(|constant| constant.name.starts_with(beginning));
        old.filter(|constant| {
            !constant.name.ends_with("ALL") && constant.name != "DAT_CNO_FIELD_AGENT"
        })
        .map(|constant| {
            assert_eq!(translate(constant.value as u64), new(constant.name), "{}", constant.name)
        })
        .count()
    }

    #[test]
    fn every_field_keeps_its_name() {
        assert_eq!(check_constants("DAT_IA_FIELD_", ia), 37);
        assert_eq!(check_constants("DAT_PROVIDER_FIELD_", provider), 27);
        assert_eq!(check_constants("DAT_EP_FIELD_", ep), 30);
        assert_eq!(check_constants("DAT_LMR_FIELD_", |mask| lmr(mask as u32).into()), 10);
        assert_eq!(check_constants("DAT_RMR_FIELD_", |mask| rmr(mask as u32).into()), 5);
        assert_eq!(check_constants("DAT_CNO_FIELD_", |mask| cno(mask as u32).into()), 1);
    }

    #[test]
    fn unknown_bits_stay_unknown() {
        assert_ne!(ia(v1::DAT_IA_FIELD_ALL + 1) & !DAT_IA_FIELD_ALL, 0);
        assert_ne!(provider(v1::DAT_PROVIDER_FIELD_ALL + 1) & !DAT_PROVIDER_FIELD_ALL, 0);
        assert_ne!(ep(0x800) & !DAT_EP_FIELD_ALL, 0, "no field of 1.2 has this bit");
        assert_ne!(lmr(0x400) & !DAT_LMR_FIELD_ALL, 0);
        assert_ne!(rmr(0x20) & !DAT_RMR_FIELD_ALL, 0);
        assert_ne!(cno(4) & !(DAT_CNO_FIELD_ALL | DAT_CNO_FIELD_PROXY), 0);
    }
}
