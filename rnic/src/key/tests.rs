use std::collections::{HashMap, HashSet};
use std::sync::atomic::AtomicBool;

use proptest::prelude::*;

use super::*;

const ALL: Access = Access {
    local_read: true,
    local_write: true,
    remote_read: true,
    remote_write: true,
    remote_atomic: true,
};
const RIGHTS: [Right; 5] = [
    Right::LocalRead,
    Right::LocalWrite,
    Right::RemoteRead,
    Right::RemoteWrite,
    Right::RemoteAtomic,
];

#[test]
fn each_check() {
    let keys = Keys::new();
    let (pd, other) = (keys.pd(), keys.pd());
    let stag = keys.register(pd, 1000, 100, ALL, false).unwrap();
    let check =
        |pd: Pd, addr, len| keys.check(stag, pd.into(), addr, len, Right::RemoteRead).map(drop);
    assert_eq!(check(pd, 1000, 100), Ok(()));
    assert_eq!(check(pd, 1100, 0), Ok(()));
    assert_eq!(check(pd, 1099, 1), Ok(()));
    assert_eq!(check(other, 1000, 100), Err(KeyError::Domain));
    for (addr, len) in [(999, 1), (1000, 101), (1100, 1), (1101, 0), (0, 2000), (u64::MAX, 0)] {
        assert_eq!(check(pd, addr, len), Err(KeyError::Bounds), "{addr} {len}");
    }
    assert_eq!(check(pd, u64::MAX, 1), Err(KeyError::Wrap));
    assert_eq!(check(pd, 1000, u64::MAX), Err(KeyError::Wrap));
    for unknown in [0, stag ^ 1, stag ^ 0x8000_0000, stag.wrapping_add(64)] {
        assert_eq!(
            keys.check(unknown, pd.into(), 1000, 1, Right::RemoteRead),
            Err(KeyError::Invalid)
        );
    }
    keys.deregister(stag);
    assert_eq!(check(pd, 1000, 100), Err(KeyError::Invalid));
    keys.deregister(stag);
    assert_eq!(keys.live(), 0);
}

#[test]
fn each_right_is_its_own() {
    let keys = Keys::new();
    let pd = keys.pd();
    for (n, right) in RIGHTS.into_iter().enumerate() {
        let access = Access {
            local_read: n == 0,
            local_write: n == 1,
            remote_read: n == 2,
            remote_write: n == 3,
            remote_atomic: n == 4,
        };
        let stag = keys.register(pd, 0, 10, access, false).unwrap();
        for asked in RIGHTS {
            let expected = if asked == right { Ok(()) } else { Err(KeyError::Access) };
            assert_eq!(keys.check(stag, pd.into(), 0, 10, asked).map(drop), expected);
        }
        assert_eq!(access.is_remote(), n >= 2);
    }
}

#[test]
fn a_zero_based_region_is_named_by_offsets() {
    let keys = Keys::new();
    let pd = keys.pd();
    let stag = keys.register(pd, 0x7000, 100, ALL, true).unwrap();
    let check = |to, len| keys.check(stag, pd.into(), to, len, Right::RemoteWrite);
    assert_eq!(check(0, 100), Ok(0x7000));
    assert_eq!(check(99, 1), Ok(0x7063));
    assert_eq!(check(100, 0), Ok(0x7064));
    for (to, len) in [(0, 101), (100, 1), (0x7000, 1), (u64::MAX, 0)] {
        assert_eq!(check(to, len), Err(KeyError::Bounds));
    }
    let by_address = keys.register(pd, 0x7000, 100, ALL, false).unwrap();
    assert_eq!(keys.check(by_address, pd.into(), 0x7001, 1, Right::LocalRead), Ok(0x7001));
}

#[test]
fn a_region_does_not_wrap() {
    let keys = Keys::new();
    let pd = keys.pd();
    assert_eq!(keys.register(pd, u64::MAX, 1, ALL, false), Err(RegisterError::Range));
    assert!(keys.register(pd, u64::MAX, 0, ALL, false).is_ok());
}

const OPERATIONS: usize = if cfg!(miri) { 60 } else { 600 };

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 40 }))]

    /// Compares the table with a map: keys stay valid while the table grows, and no key names a
    /// region other than its own.
    #[test]
    fn behaves_as_a_map(ops in proptest::collection::vec((0u8..3, any::<u16>()), 1..OPERATIONS)) {
        let keys = Keys::new();
        let pd = keys.pd();
        let mut model = HashMap::new();
        let mut gone = Vec::new();
        for (op, n) in ops {
            if op < 2 {
                let base = u64::from(n) << 20;
                let stag = keys.register(pd, base, 16, ALL, false).unwrap();
                prop_assert!(model.insert(stag, base).is_none());
            } else if let Some(&stag) = model.keys().nth(usize::from(n) % model.len().max(1)) {
                keys.deregister(stag);
                model.remove(&stag);
                gone.push(stag);
            }
        }
        prop_assert_eq!(keys.live(), model.len());
        for (&stag, &base) in &model {
            let check = |to| keys.check(stag, pd.into(), to, 16, Right::LocalRead);
            prop_assert_eq!(check(base), Ok(base));
            prop_assert_eq!(check(base + 1), Err(KeyError::Bounds));
        }
        for stag in gone.into_iter().filter(|stag| !model.contains_key(stag)) {
            let check = keys.check(stag, pd.into(), 0, 0, Right::LocalRead);
            prop_assert_eq!(check, Err(KeyError::Invalid));
        }
    }
}

/// The owner of a key could use all keys that differ from it in the low 8 bits only: no other key
/// has them. They grant nothing until then, although they have the same index.
#[test]
fn the_low_8_bits_are_free() {
    let keys = Keys::new();
    let pd = keys.pd();
    let mut indices = HashSet::new();
    for _ in 0..if cfg!(miri) { 70 } else { 10_000 } {
        let stag = keys.register(pd, 0, 1, ALL, false).unwrap();
        assert!(indices.insert(stag >> 8), "two keys have the index of {stag:#x}");
        for tag in (0..=0xff).filter(|&tag| tag != stag & 0xff) {
            let other = keys.check(stag & !0xff | tag, pd.into(), 0, 1, Right::RemoteRead);
            assert_eq!(other, Err(KeyError::Invalid));
        }
    }
}

/// A peer cannot derive one STag from another, because the STags are spread over all 32 bits.
#[test]
#[cfg_attr(miri, ignore = "not a test: it takes hours in Miri, which would find nothing new")]
fn stags_are_spread() {
    let keys = Keys::new();
    let pd = keys.pd();
    let mut stags: Vec<u32> =
        (0..4096).map(|_| keys.register(pd, 0, 1, ALL, false).unwrap()).collect();
    for bit in 0..32 {
        let ones = stags.iter().filter(|&&stag| stag & (1 << bit) != 0).count();
        assert!(
            (1700..2400).contains(&ones),
            "bit {bit} is set in {ones} of 4096 STags; expected about half"
        );
    }
    stags.sort_unstable();
    stags.dedup();
    assert_eq!(stags.len(), 4096);
    let near = stags.windows(2).filter(|pair| pair[1] - pair[0] < 16).count();
    assert!(near < 20, "{near} pairs of STags are close; expected fewer than 20");
    // Another adapter chooses other STags.
    let other = Keys::new();
    let again =
        (0..100).filter(|_| stags.contains(&other.register(pd, 0, 1, ALL, false).unwrap())).count();
    assert!(again < 5);
}

/// While other keys are added and removed and the table grows, every lookup of a key that stays
/// succeeds, and no lookup returns a mixture of two regions.
#[test]
fn look_ups_during_changes() {
    const CHANGES: u64 = if cfg!(miri) { 60 } else { 40_000 };
    const KEPT: usize = if cfg!(miri) { 8 } else { 500 };
    let keys = Keys::new();
    let pd = keys.pd();
    let stays = keys.register(pd, 4096, 4096, ALL, false).unwrap();
    let (done, shown) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut live = Vec::new();
            for n in 0..CHANGES {
                let base = (n % 7 + 1) << 32;
                let stag = keys.register(pd, base, n % 7 + 1, ALL, false).unwrap();
                shown.store(stag, Ordering::Relaxed);
                live.push(stag);
                if live.len() > KEPT + (n / 50) as usize {
                    keys.deregister(live.swap_remove(n as usize % (KEPT * 4 / 5)));
                }
            }
            done.store(true, Ordering::Relaxed);
        });
        while !done.load(Ordering::Relaxed) {
            assert_eq!(keys.check(stays, pd.into(), 4096, 4096, Right::RemoteRead), Ok(4096));
            let stag = shown.load(Ordering::Relaxed);
            let fits = (1..8)
                .filter(|n| keys.check(stag, pd.into(), n << 32, *n, Right::LocalRead).is_ok())
                .count();
            assert!(fits <= 1);
        }
    });
}
