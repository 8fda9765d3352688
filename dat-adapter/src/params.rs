//! The ia_params of an entry: the words of [`adapter::params`], and the keys that DAT adds.
//!
//! - `stats`: `on` makes the adapter's counters available to `dat top`. The default is `off`.
//! - `strict`: `on` makes no exception from the letter of the standard, even where a program needs
//!   one (docs/compatibility.md). The default is `off`.

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
        let (mut strict, mut stats) = (false, false);
        let words = Words { name: IA_PARAMS, text, defaults, keys };
        let adapter = params::parse(&words, |key, value| {
            match key {
                "strict" => strict = on(value)?,
                "stats" => stats = on(value)?,
                _ => return own(key, value),
            }
            Ok(())
        });
        Ok(Params { adapter: adapter.map_err(open_error)?, strict, stats })
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
        let words = Words { name: IA_PARAMS, text, defaults, keys };
        let read = params::read(&words, |key, value| match key {
            "strict" | "stats" => on(value).map(drop),
            _ => own(key, value),
        });
        read.map(drop).map_err(open_error)
    }
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
}
