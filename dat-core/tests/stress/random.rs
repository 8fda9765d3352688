//! Random numbers, and the settings of the tests that use them.

/// Returns a number from the environment variable `OPENDAT_TEST`. The variable contains settings of
/// the form `NAME=VALUE`, separated by semicolons.
pub(crate) fn setting(name: &str) -> Option<u64> {
    let settings = std::env::var("OPENDAT_TEST").ok()?;
    let mut settings = settings.split(';').filter_map(|setting| setting.split_once('='));
    let (_, value) = settings.find(|(found, _)| *found == name)?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name}={value}: not a number")))
}

/// The random number generator splitmix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }
}
