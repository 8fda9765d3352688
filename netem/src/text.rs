//! Conversion of conditions from and to text.
//!
//! A text is a list of words, separated by commas. Each word is a key and a value. A format with
//! more keys passes the words that it does not know to the format that it extends.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;
use std::time::Duration;

use crate::channel::MAX_DELAY;
use crate::{Conditions, Probability};

/// An error in a text of conditions: the wrong part, and what was expected instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {expected}", if word.is_empty() { "an empty condition" } else { word })]
pub struct ConditionsError {
    /// The wrong part: the text between two commas.
    pub word: String,
    /// A description of the values that are valid instead of `word`.
    pub expected: &'static str,
}

const EXPECTED_PERCENTAGE: &str =
    "expected a percentage from 0% to 100%, with at most 4 decimal places";
const EXPECTED_TIME: &str = "expected a time of at most 1 hour, such as 200us (ns, us, ms, s)";
const EXPECTED_RATE: &str =
    "expected bits a second, at least 1, such as 1gbit (bit, kbit, mbit, gbit)";
const EXPECTED_LIMIT: &str = "expected a number of packets, at least 1";
const EXPECTED_SEED: &str = "expected a number from 0 to 18446744073709551615";
const EXPECTED_OCTETS: &str = "expected a number of octets, at least 1, such as 1500, 128K or 1M";
const EXPECTED_KEY: &str =
    "expected key=value with loss, duplicate, reorder, delay, jitter, rate, limit or seed, or off";

/// The unit of a percentage, in parts of a million.
const PERCENT_UNIT: Units = &[("%", 10_000)];
/// Units of time in nanoseconds, in descending order.
const TIME_UNITS: Units = &[("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];
/// Units of rate in bits per second, in descending order.
const RATE_UNITS: Units =
    &[("gbit", 1_000_000_000), ("mbit", 1_000_000), ("kbit", 1_000), ("bit", 1)];

/// Units of memory in octets, in descending order.
const OCTET_UNITS: Units = &[("M", 1 << 20), ("K", 1 << 10), ("", 1)];

type Units = &'static [(&'static str, u64)];

impl FromStr for Conditions {
    type Err = ConditionsError;

    fn from_str(text: &str) -> Result<Self, ConditionsError> {
        let mut conditions = Self::OFF;
        if text != "off" {
            parse_words(text, EXPECTED_KEY, |key, value| conditions.set(key, value))?;
        }
        Ok(conditions)
    }
}

/// Parses a list of words. `set` handles the value of a key, and returns false if it does not know
/// the key. `expected_key` describes the valid keys.
pub fn parse_words(
    text: &str,
    expected_key: &'static str,
    mut set: impl FnMut(&str, &str) -> Result<bool, &'static str>,
) -> Result<(), ConditionsError> {
    for word in text.split(',') {
        let known = word.split_once('=').map_or(Ok(false), |(key, value)| set(key, value));
        let known = known.and_then(|known| if known { Ok(()) } else { Err(expected_key) });
        known.map_err(|expected| ConditionsError { word: word.into(), expected })?;
    }
    Ok(())
}

impl Conditions {
    /// Sets the property with this key. Returns false if there is no such key.
    ///
    /// # Errors
    /// If the value is wrong, returns a description of the valid values.
    pub fn set(&mut self, key: &str, value: &str) -> Result<bool, &'static str> {
        match key {
            "loss" => self.loss = parse_probability(value)?,
            "duplicate" => self.duplicate = parse_probability(value)?,
            "reorder" => self.reorder = parse_probability(value)?,
            "delay" => self.delay = parse_time(value)?,
            "jitter" => self.jitter = parse_time(value)?,
            "rate" => {
                self.rate = Some(
                    parse_quantity(value, RATE_UNITS)
                        .and_then(NonZeroU64::new)
                        .ok_or(EXPECTED_RATE)?,
                )
            }
            "limit" => {
                self.limit =
                    value.parse().ok().filter(|&packets| packets > 0).ok_or(EXPECTED_LIMIT)?
            }
            "seed" => self.seed = value.parse().map_err(|_| EXPECTED_SEED)?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Parses a number in a range.
pub fn parse_number(text: &str, range: &std::ops::RangeInclusive<usize>) -> Option<usize> {
    text.parse().ok().filter(|number| range.contains(number))
}

/// Parses a number of octets, which is at least 1.
pub fn parse_octets(text: &str) -> Result<u64, &'static str> {
    parse_quantity(text, OCTET_UNITS).filter(|&octets| octets > 0).ok_or(EXPECTED_OCTETS)
}

fn parse_probability(text: &str) -> Result<Probability, &'static str> {
    let times = parse_quantity(text, PERCENT_UNIT).and_then(|times| u32::try_from(times).ok());
    times
        .filter(|&times| times <= Probability::ALWAYS.as_per_million())
        .map(Probability::per_million)
        .ok_or(EXPECTED_PERCENTAGE)
}

/// Parses a time of at most an hour.
pub fn parse_time(text: &str) -> Result<Duration, &'static str> {
    parse_quantity(text, TIME_UNITS)
        .map(Duration::from_nanos)
        .filter(|&time| time <= MAX_DELAY)
        .ok_or(EXPECTED_TIME)
}

/// Parses a decimal number with its unit. `None` if it is not a whole number of the smallest unit.
fn parse_quantity(text: &str, units: Units) -> Option<u64> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let scale = units.iter().find(|(name, _)| *name == unit)?.1;
    let (whole, decimals) = match number.split_once('.') {
        Some((whole, decimals)) => (whole, Some(decimals)),
        None => (number, None),
    };
    let whole = whole.parse::<u64>().ok()?.checked_mul(scale)?;
    let Some(decimals) = decimals else { return Some(whole) };
    let divisor = 10u64.checked_pow(decimals.len().try_into().ok()?)?;
    let part = decimals.parse::<u64>().ok()?.checked_mul(scale)?;
    if part % divisor == 0 { whole.checked_add(part / divisor) } else { None }
}

impl fmt::Display for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { loss, duplicate, reorder, delay, jitter, rate, limit, seed } = self;
        let mut words = Vec::new();
        for (key, probability) in [("loss", loss), ("duplicate", duplicate), ("reorder", reorder)] {
            if *probability != Probability::NEVER {
                words.push(format!("{key}={probability}"));
            }
        }
        for (key, time) in [("delay", delay), ("jitter", jitter)] {
            if !time.is_zero() {
                let nanos = time.as_nanos().try_into().unwrap_or(u64::MAX);
                words.push(format!("{key}={}", in_units(nanos, TIME_UNITS)));
            }
        }
        if let Some(rate) = rate {
            words.push(format!("rate={}", in_units(rate.get(), RATE_UNITS)));
        }
        if *limit != Self::OFF.limit {
            words.push(format!("limit={limit}"));
        }
        if *seed != Self::OFF.seed {
            words.push(format!("seed={seed}"));
        }
        f.write_str(if words.is_empty() { "off".into() } else { words.join(",") }.as_str())
    }
}

impl fmt::Display for Probability {
    /// A percentage: `0.5%`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, decimals) = (self.as_per_million() / 10_000, self.as_per_million() % 10_000);
        match decimals {
            0 => write!(f, "{whole}%"),
            _ => write!(f, "{whole}.{}%", format!("{decimals:04}").trim_end_matches('0')),
        }
    }
}

/// Formats a value in the largest unit of which it is a whole multiple.
fn in_units(value: u64, units: Units) -> String {
    let fitting = units.iter().find(|(_, scale)| value.is_multiple_of(*scale));
    fitting.map_or_else(|| value.to_string(), |(name, scale)| format!("{}{name}", value / scale))
}

#[cfg(test)]
mod tests {
    use proptest::option;
    use proptest::prelude::*;

    use super::*;

    fn error(text: &str) -> String {
        text.parse::<Conditions>().expect_err(text).to_string()
    }

    #[test]
    fn every_key() {
        let text =
            "loss=1%,duplicate=0.5%,reorder=2%,delay=200us,jitter=50us,rate=1gbit,limit=64,seed=7";
        let conditions: Conditions = text.parse().expect(text);
        let expected = Conditions {
            loss: Probability::percent(1),
            duplicate: Probability::per_million(5_000),
            reorder: Probability::percent(2),
            delay: Duration::from_micros(200),
            jitter: Duration::from_micros(50),
            rate: NonZeroU64::new(1_000_000_000),
            limit: 64,
            seed: 7,
        };
        assert_eq!(conditions, expected);
        assert_eq!(conditions.to_string(), text);
    }

    #[test]
    fn off() {
        assert_eq!("off".parse(), Ok(Conditions::OFF));
        assert_eq!(Conditions::OFF.to_string(), "off");
        assert!("seed=9".parse::<Conditions>().expect("the conditions are valid").is_off());
        assert!("loss=0%".parse::<Conditions>().expect("the conditions are valid").is_off());
        assert!(!"loss=0.0001%".parse::<Conditions>().expect("the conditions are valid").is_off());
    }

    #[test]
    fn decimals_and_units() {
        for (text, shown) in [
            ("loss=0.0001%", "loss=0.0001%"),
            ("loss=12.50%", "loss=12.5%"),
            ("delay=1.5ms", "delay=1500us"),
            ("delay=0.000001ms", "delay=1ns"),
            ("delay=3600s", "delay=3600s"),
            ("rate=2.5gbit", "rate=2500mbit"),
            ("rate=1500bit", "rate=1500bit"),
            ("loss=1%,loss=2%", "loss=2%"),
        ] {
            assert_eq!(text.parse::<Conditions>().expect(text).to_string(), shown);
        }
    }

    #[test]
    fn errors_name_the_word() {
        assert_eq!(error("loss=1%,delay=soon"), format!("delay=soon: {EXPECTED_TIME}"));
        for text in [
            "loss=1",
            "loss=101%",
            "loss=0.00001%",
            "loss=%",
            "loss=.5%",
            "loss=1.%",
            "loss=-1%",
            "loss=",
        ] {
            assert_eq!(error(text), format!("{text}: {EXPECTED_PERCENTAGE}"));
        }
        for text in
            ["delay=1", "delay=0.5ns", "delay=3601s", "jitter=1min", "delay=99999999999999999999s"]
        {
            assert_eq!(error(text), format!("{text}: {EXPECTED_TIME}"));
        }
        for text in
            ["rate=0bit", "rate=1", "rate=0.5bit", "rate=99999999999999999999gbit", "rate=1gb"]
        {
            assert_eq!(error(text), format!("{text}: {EXPECTED_RATE}"));
        }
        assert_eq!(error("limit=0"), format!("limit=0: {EXPECTED_LIMIT}"));
        assert_eq!(error("seed=-1"), format!("seed=-1: {EXPECTED_SEED}"));
        for text in ["on", "speed=1", "loss 1%"] {
            assert_eq!(error(text), format!("{text}: {EXPECTED_KEY}"));
        }
        assert_eq!(error("loss=1%,off"), format!("off: {EXPECTED_KEY}"));
        for text in ["", "loss=1%,", "loss=1%,,seed=1"] {
            assert_eq!(error(text), format!("an empty condition: {EXPECTED_KEY}"));
        }
    }

    /// The parameter `net=` describes a channel, which has none of these keys.
    #[test]
    fn conditions_have_no_keys_of_a_dumbbell() {
        for text in ["queue=128K", "mark=1500", "red=1K-2K", "paths=2", "skew=1us", "mtu=1500"] {
            assert_eq!(error(text), format!("{text}: {EXPECTED_KEY}"));
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_parses_to_the_same(
            probabilities in any::<[u32; 3]>(),
            times in [0..=MAX_DELAY.as_nanos() as u64, 0..=MAX_DELAY.as_nanos() as u64],
            rate in option::of(1..=u64::MAX),
            limit in 1..=usize::MAX,
            seed in any::<u64>(),
        ) {
            let [loss, duplicate, reorder] = probabilities.map(|p| Probability::per_million(p % 1_000_001));
            let [delay, jitter] = times.map(Duration::from_nanos);
            let rate = rate.and_then(NonZeroU64::new);
            let conditions = Conditions { loss, duplicate, reorder, delay, jitter, rate, limit, seed };
            prop_assert_eq!(conditions.to_string().parse(), Ok(conditions));
        }

        #[test]
        fn any_text_is_taken_or_refused(text in "(loss|delay|rate|limit|seed)?=?[0-9.]{0,30}(%|us|s|gbit)?,?.{0,8}") {
            if let Ok(conditions) = text.parse::<Conditions>() {
                prop_assert_eq!(conditions.to_string().parse(), Ok(conditions));
            }
        }
    }
}
