//! Converts masks of uDAPL 2.0 to masks of uDAPL 1.2. A bit that 2.0 does not define is converted
//! to a bit that 1.2 does not define. Fields that only 2.0 has are left out.

use dat_sys::*;

/// A bit that no mask of 64 bits defines, and a bit that no mask of 32 bits defines.
const UNKNOWN: u64 = 1 << 63;
const UNKNOWN_32: u64 = 1 << 31;

/// Moves the bits of a mask, from the field `first` upward, down by `places` bits. If the mask has
/// a bit that is not in `all`, returns `unknown`.
const fn down(mask: u64, all: u64, first: u64, places: u32, unknown: u64) -> u64 {
    let before = first - 1;
    if mask & !all == 0 { mask & before | mask >> places & !before } else { unknown }
}

pub(super) fn ia(mask: DAT_IA_ATTR_MASK) -> v1::DAT_IA_ATTR_MASK {
    down(mask, DAT_IA_FIELD_ALL, v1::DAT_IA_FIELD_IA_NUM_TRANSPORT_ATTR, 3, UNKNOWN)
}

pub(super) fn provider(mask: DAT_PROVIDER_ATTR_MASK) -> v1::DAT_PROVIDER_ATTR_MASK {
    down(
        mask,
        DAT_PROVIDER_FIELD_ALL,
        v1::DAT_PROVIDER_FIELD_NUM_PROVIDER_SPECIFIC_ATTR,
        5,
        UNKNOWN,
    )
}

/// Converts the mask of dat_ep_query. The fields between the state and the attributes are one bit
/// lower in 1.2 than in 2.0. The attributes have the same bits in both versions.
pub(super) fn ep(mask: DAT_EP_PARAM_MASK) -> v1::DAT_EP_PARAM_MASK {
    let attributes = mask & !(DAT_EP_FIELD_EP_ATTR_SERVICE_TYPE - 1);
    let others = mask & (DAT_EP_FIELD_EP_ATTR_SERVICE_TYPE - 1);
    let first = v1::DAT_EP_FIELD_LOCAL_IA_ADDRESS_PTR;
    if mask & !DAT_EP_FIELD_ALL == 0 {
        attributes | down(others, !0, first, 1, UNKNOWN)
    } else {
        UNKNOWN
    }
}

pub(super) fn lmr(mask: DAT_LMR_PARAM_MASK) -> v1::DAT_LMR_PARAM_MASK {
    let all = DAT_LMR_FIELD_ALL.into();
    down(mask.into(), all, v1::DAT_LMR_FIELD_LMR_CONTEXT.into(), 1, UNKNOWN_32)
        as v1::DAT_LMR_PARAM_MASK
}

pub(super) fn rmr(mask: DAT_RMR_PARAM_MASK) -> v1::DAT_RMR_PARAM_MASK {
    match mask & !DAT_RMR_FIELD_ALL {
        0 => mask & v1::DAT_RMR_FIELD_ALL,
        _ => UNKNOWN_32 as v1::DAT_RMR_PARAM_MASK,
    }
}

/// Converts the mask of dat_cno_query. The masks of 2.0 overlap: the value 3 selects the proxy, and
/// the value 4 selects all fields.
pub(super) fn cno(mask: DAT_CNO_PARAM_MASK) -> v1::DAT_CNO_PARAM_MASK {
    match mask {
        0 | DAT_CNO_FIELD_IA_HANDLE => mask,
        DAT_CNO_FIELD_PROXY => v1::DAT_CNO_FIELD_AGENT,
        DAT_CNO_FIELD_ALL => v1::DAT_CNO_FIELD_ALL,
        _ => UNKNOWN_32 as v1::DAT_CNO_PARAM_MASK,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that the conversion of each field of 2.0 is the field with the same name in 1.2.
    fn agree(beginning: &str, convert: impl Fn(u64) -> u64) -> usize {
        let new = |name: &str| {
            let mut all = describe::CONSTANTS.iter().copied().flatten();
            all.find(|constant| constant.name == name).expect("a name of 2.0").value as u64
        };
        let old = v1::constants().filter(|constant| constant.name.starts_with(beginning));
        old.filter(|constant| constant.name != "DAT_CNO_FIELD_AGENT")
            .map(|constant| {
                assert_eq!(convert(new(constant.name)), constant.value as u64, "{}", constant.name)
            })
            .count()
    }

    #[test]
    fn every_field_keeps_its_name() {
        assert_eq!(agree("DAT_IA_FIELD_", ia), 38);
        assert_eq!(agree("DAT_PROVIDER_FIELD_", provider), 28);
        assert_eq!(agree("DAT_EP_FIELD_", ep), 32);
        assert_eq!(agree("DAT_LMR_FIELD_", |mask| lmr(mask as u32).into()), 11);
        assert_eq!(agree("DAT_RMR_FIELD_", |mask| rmr(mask as u32).into()), 6);
        assert_eq!(agree("DAT_CNO_FIELD_", |mask| cno(mask as u32).into()), 2);
    }

    #[test]
    fn unknown_bits_stay_unknown() {
        assert_ne!(ia(DAT_IA_FIELD_ALL + 1) & !v1::DAT_IA_FIELD_ALL, 0);
        assert_ne!(provider(DAT_PROVIDER_FIELD_ALL + 1) & !v1::DAT_PROVIDER_FIELD_ALL, 0);
        assert_ne!(ep(DAT_EP_FIELD_ALL + 1) & !v1::DAT_EP_FIELD_ALL, 0);
        assert_ne!(lmr(DAT_LMR_FIELD_ALL + 1) & !v1::DAT_LMR_FIELD_ALL, 0);
        assert_ne!(rmr(DAT_RMR_FIELD_ALL + 1) & !v1::DAT_RMR_FIELD_ALL, 0);
    }
}
