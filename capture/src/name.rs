//! The name of a capture file, as a user writes it: `[append:]PATTERN[,max=SIZE]`.

use std::fmt::Write as _;
use std::path::PathBuf;

use crate::OpenError;

/// The prefix of a name that allows the file to exist already.
const APPEND_PREFIX: &str = "append:";
/// The word between the pattern and the limit.
const MAX_KEY: &str = ",max=";
/// The smallest limit, in octets. The blocks before the first packet fit.
const MIN_LIMIT: u64 = 4 << 10;

/// A name whose pattern is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Name<'n> {
    pattern: &'n str,
    /// Whether the file may exist already.
    pub(crate) may_append: bool,
    /// The largest length of the file, in octets.
    pub(crate) max: u64,
}

/// Checks the name of a capture file. Does not look for the file.
///
/// # Errors
/// The name is empty, or a pattern in it or the limit is wrong.
pub fn check(name: &str) -> Result<(), OpenError> {
    Name::parse(name).map(drop)
}

impl<'n> Name<'n> {
    pub(crate) fn parse(name: &'n str) -> Result<Self, OpenError> {
        let (name, max) = match name.rsplit_once(MAX_KEY) {
            Some((name, size)) => (name, limit(size)?),
            None => (name, u64::MAX),
        };
        let (pattern, may_append) =
            name.strip_prefix(APPEND_PREFIX).map_or((name, false), |pattern| (pattern, true));
        if pattern.is_empty() {
            return Err(OpenError::EmptyName);
        }
        expand(pattern, 0, 0)?;
        Ok(Self { pattern, may_append, max })
    }

    /// Returns the path of the capture with this number in the process.
    pub(crate) fn path(&self, process: u32, number: u32) -> Result<PathBuf, OpenError> {
        expand(self.pattern, process, number).map(PathBuf::from)
    }
}

/// Parses a limit in octets: `65536`, `64K`, `1M`, `2G`.
fn limit(size: &str) -> Result<u64, OpenError> {
    let unit_at = size.find(|c: char| !c.is_ascii_digit()).unwrap_or(size.len());
    let (number, unit) = size.split_at(unit_at);
    let scale = match unit {
        "" => Some(1),
        "K" => Some(1 << 10),
        "M" => Some(1 << 20),
        "G" => Some(1 << 30),
        _ => None,
    };
    let octets = scale.zip(number.parse().ok()).and_then(|(scale, n)| u64::checked_mul(scale, n));
    octets.filter(|&octets| octets >= MIN_LIMIT).ok_or_else(|| OpenError::Limit(size.into()))
}

fn expand(pattern: &str, process: u32, number: u32) -> Result<String, OpenError> {
    let mut path = String::new();
    let mut rest = pattern;
    while let Some((before, after)) = rest.split_once('%') {
        path.push_str(before);
        let mut chars = after.chars();
        match chars.next() {
            Some('p') => write!(path, "{process}").unwrap_or_default(),
            Some('n') => write!(path, "{number}").unwrap_or_default(),
            Some('%') => path.push('%'),
            _ => {
                let before = pattern[..pattern.len() - after.len() - 1].into();
                return Err(OpenError::Pattern { before });
            }
        }
        rest = chars.as_str();
    }
    path.push_str(rest);
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(name: &str) -> String {
        check(name).expect_err(name).to_string()
    }

    #[test]
    fn patterns() {
        let expanded = |name| {
            let name = Name::parse(name).unwrap_or_else(|e| panic!("{name}: {e}"));
            name.path(4711, 2).expect("the pattern is valid").display().to_string()
        };
        assert_eq!(expanded("a.pcapng"), "a.pcapng");
        assert_eq!(expanded("%p"), "4711");
        assert_eq!(expanded("/tmp/é-%n-%p%%.pcapng"), "/tmp/é-2-4711%.pcapng");
        assert_eq!(expanded("append:a,b-%p,max=1M"), "a,b-4711");
        for name in ["", "append:", ",max=1M", "append:,max=1M"] {
            assert!(matches!(check(name), Err(OpenError::EmptyName)), "{name}");
        }
        let expected =
            "expected %p (process id), %n (number of the capture in the process) or %% after";
        assert_eq!(error("a%p%"), format!("{expected} \"a%p\""));
        assert_eq!(error("%x%p"), format!("{expected} \"\""));
        assert_eq!(error("ü%ü,max=1M"), format!("{expected} \"ü\""));
    }

    #[test]
    fn limits() {
        let parsed = |name| {
            let name = Name::parse(name).unwrap_or_else(|e| panic!("{name}: {e}"));
            (name.pattern, name.may_append, name.max)
        };
        assert_eq!(parsed("a"), ("a", false, u64::MAX));
        assert_eq!(parsed("a,max=4096"), ("a", false, 4096));
        assert_eq!(parsed("append:a,max=64K"), ("a", true, 65_536));
        assert_eq!(parsed("a,max=3M"), ("a", false, 3 << 20));
        assert_eq!(parsed("a,b,max=2G"), ("a,b", false, 2 << 30));
        let largest = format!("a,max={}", u64::MAX);
        assert_eq!(parsed(&largest).2, u64::MAX);
        for size in
            ["", "0", "4095", "3K", "M", "1T", "1m", "1.5M", "+4096", "1M,x", "20000000000G"]
        {
            let expected = format!("max={size}: expected at least 4K octets, as in 64M or 1G");
            assert_eq!(error(&format!("a,max={size}")), expected);
        }
    }
}
