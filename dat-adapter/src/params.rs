//! The ia_params of an entry: the words of [`adapter::params`], and the keys that DAT adds.
//!
//! - `stats`: `on` makes the adapter's counters available to `dat top`. The default is `off`.
//! - `strict`: `on` makes no exception from the letter of the standard, even where a program needs
//!   one (docs/compatibility.md). The default is `off`.
//!
//! In the variable `OPENDAT_PARAMS`, an adapter ignores two kinds of keys: the keys of other
//! adapters, and `builtin`, which is for the registry.

use adapter::params::{self, Words, on};
use adapter::{Config, Error};
use dat_core::OpenError;

use crate::error::open_error;

/// Parsed ia_params, except for the provider's own keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    /// The configuration of the adapter.
    pub adapter: Config,
    /// Whether the adapter is strict: it makes no exception from the letter of the standard, even
    /// where a program needs one.
    pub strict: bool,
    /// Whether the adapter's counters are available to other processes.
    pub stats: bool,
}

/// All keys that `OPENDAT_PARAMS` may have: those of the registry, of DAT and of all adapters of
/// this project.
pub const KEYS: &[&str] = &[
    "builtin",
    "crc",
    "extended",
    "rnr",
    "cc",
    "fpdu",
    "engine",
    "mtu",
    "gso",
    "dscp",
    "timeout",
    "retries",
    "shm",
    "completion",
    "net",
    "threads",
    "spin",
    "strict",
    "stats",
    "capture",
];

impl Params {
    /// Parses ia_params. `defaults` is the value of `OPENDAT_PARAMS`. `keys` are all keys that the
    /// provider has. `own` is called for each key of the provider; see [`params::parse`].
    ///
    /// # Errors
    /// `DAT_INVALID_PARAMETER` for what [`Params::check`] refuses, else `DAT_INVALID_ADDRESS` for
    /// an address that is not of this host.
    pub fn parse(
        text: &str,
        defaults: &str,
        keys: &[&str],
        mut own: impl FnMut(&str, &str) -> Result<(), String>,
    ) -> Result<Self, OpenError> {
        let mut flags = Flags::default();
        let set = |key: &str, value: &str| flags.set(keys, (key, value), &mut own);
        let adapter = params::parse(&words(text, defaults, keys), set).map_err(open_error)?;
        let Flags { strict, stats } = flags;
        Ok(Params { adapter, strict, stats })
    }

    /// Checks ia_params without looking up the address on the host or with its resolver. The
    /// arguments are those of [`Params::parse`].
    ///
    /// # Errors
    /// `DAT_INVALID_PARAMETER` for a word that is out of place, an unknown key, a key that occurs
    /// twice, or an invalid value, in ia_params or in `OPENDAT_PARAMS`.
    pub fn check(
        text: &str,
        defaults: &str,
        keys: &[&str],
        mut own: impl FnMut(&str, &str) -> Result<(), String>,
    ) -> Result<(), OpenError> {
        let mut flags = Flags::default();
        let set = |key: &str, value: &str| flags.set(keys, (key, value), &mut own);
        params::read(&words(text, defaults, keys), set).map(drop).map_err(open_error)
    }
}

/// The values of DAT's keys.
#[derive(Default)]
struct Flags {
    strict: bool,
    stats: bool,
}

impl Flags {
    /// Sets the value of a key of DAT, and passes a key of the provider to `own`.
    fn set(
        &mut self,
        keys: &[&str],
        (key, value): (&str, &str),
        own: &mut impl FnMut(&str, &str) -> Result<(), String>,
    ) -> Result<(), String> {
        match key {
            "builtin" => drop(on(value)?),
            // The key is in `OPENDAT_PARAMS`, and is for other adapters.
            _ if !keys.contains(&key) => {}
            "strict" => self.strict = on(value)?,
            "stats" => self.stats = on(value)?,
            _ => own(key, value)?,
        }
        Ok(())
    }
}

fn words<'t>(text: &'t str, defaults: &'t str, keys: &'t [&'t str]) -> Words<'t> {
    Words { name: IA_PARAMS, text, defaults, keys, default_keys: KEYS }
}

/// The name of ia_params in messages.
const IA_PARAMS: &str = "ia_params";

/// Creates the error for invalid ia_params.
pub fn invalid(reason: String) -> OpenError {
    open_error(params::in_source(IA_PARAMS, Error::InvalidArgument, reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str, defaults: &str) -> Result<Params, String> {
        let keys = ["strict", "stats", "crc"];
        let own = |_: &str, value: &str| on(value).map(drop);
        let checked = Params::check(text, defaults, &keys, own);
        let parsed = Params::parse(text, defaults, &keys, own);
        assert_eq!(checked.is_ok(), parsed.is_ok(), "{text}");
        parsed.map_err(|error| error.reason)
    }

    #[test]
    fn keys_of_dat_and_of_the_provider() {
        let flags = |text, defaults| parse(text, defaults).map(|of| (of.strict, of.stats));
        assert_eq!(flags("", ""), Ok((false, false)));
        assert_eq!(flags("lo stats=on crc=on", "strict=on"), Ok((true, true)));
        assert_eq!(flags("strict=off", "strict=on"), Ok((false, false)));
        let reason = |text| parse(text, "").expect_err(text);
        assert_eq!(reason("strict=maybe"), "ia_params: strict=maybe: expected on or off");
        assert_eq!(reason("crc=maybe"), "ia_params: crc=maybe: expected on or off");
        let twice = "the key strict occurs twice; expected it once";
        assert_eq!(reason("strict=on strict=on"), format!("ia_params: strict=on: {twice}"));
        assert_eq!(
            parse("", "lo").expect_err("no place"),
            "OPENDAT_PARAMS: lo: expected key=value; an address belongs in ia_params"
        );
    }

    #[test]
    fn the_environment_may_have_keys_of_others() {
        assert_eq!(parse("", "mtu=7 net=? builtin=off"), parse("", ""));
        assert!(parse("mtu=7", "").expect_err("not a key here").contains("unknown key"));
        assert!(parse("builtin=off", "").expect_err("not a key here").contains("unknown key"));
        let reason = |defaults| parse("", defaults).expect_err(defaults);
        assert_eq!(reason("builtin=0"), "OPENDAT_PARAMS: builtin=0: expected on or off");
        let unknown = reason("mut=1024");
        assert!(
            unknown.starts_with("OPENDAT_PARAMS: mut=1024: unknown key; known are builtin, crc,"),
            "{unknown}"
        );
    }
}
