//! Formats numbers.

/// Formats a size in bytes, for example as `64 B`, `4 KiB` or `16 MiB`.
pub fn size(bytes: usize) -> String {
    const KIB: usize = 1 << 10;
    const MIB: usize = 1 << 20;
    match bytes {
        n if n >= MIB && n.is_multiple_of(MIB) => format!("{} MiB", n / MIB),
        n if n >= KIB && n.is_multiple_of(KIB) => format!("{} KiB", n / KIB),
        n => format!("{n} B"),
    }
}

/// Formats seconds as microseconds, milliseconds or seconds.
pub fn time(seconds: f64) -> String {
    match seconds * 1e6 {
        us if us >= 999_500.0 => format!("{} s", digits(us / 1e6)),
        us if us >= 999.5 => format!("{} ms", digits(us / 1000.0)),
        us => format!("{} µs", digits(us)),
    }
}

/// Formats bytes per second, in powers of ten as is usual for networks.
pub fn bandwidth(bytes_per_second: f64) -> String {
    match bytes_per_second / 1e6 {
        mb if mb >= 999_500.0 => format!("{} TB/s", digits(mb / 1e6)),
        mb if mb >= 999.5 => format!("{} GB/s", digits(mb / 1000.0)),
        mb if mb >= 0.0995 => format!("{} MB/s", digits(mb)),
        mb => format!("{} kB/s", digits(mb * 1000.0)),
    }
}

/// Formats messages per second.
pub fn rate(messages_per_second: f64) -> String {
    match messages_per_second {
        rate if rate >= 999.5 => format!("{}/s", count(rate)),
        rate => format!("{} /s", count(rate)),
    }
}

/// Formats a number, with k for thousands and M for millions.
pub fn count(number: f64) -> String {
    match number {
        number if number >= 99_950.0 => format!("{} M", digits(number / 1e6)),
        number if number >= 999.5 => format!("{} k", digits(number / 1e3)),
        number => digits(number),
    }
}

/// Formats a ratio.
pub fn ratio(ratio: f64) -> String {
    digits(ratio)
}

/// Formats a spread (see `schedule.rs`), which is a share, in per cent, such as `±3 %`.
pub fn spread(share: f64) -> String {
    format!("±{:.0} %", share * 100.0)
}

/// Formats an integer with separators, such as `1,000`.
pub fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats sorted integers as ranges, such as `1-3,7`.
pub fn ranges(numbers: &[usize]) -> String {
    let runs = numbers.chunk_by(|a, b| a + 1 == *b);
    let runs = runs.map(|run| match run {
        [first, .., last] => format!("{first}-{last}"),
        _ => run[0].to_string(),
    });
    runs.collect::<Vec<_>>().join(",")
}

/// Formats a count with its noun, such as `1 entry` or `2 entries`.
pub fn plural(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Formats the number of rounds of several rows, such as `5 rounds` or `2 to 5 rounds`.
pub fn rounds(counts: impl Iterator<Item = usize> + Clone) -> String {
    let (fewest, most) = (counts.clone().min().unwrap_or(0), counts.max().unwrap_or(0));
    match fewest == most {
        true => plural(fewest, "round", "rounds"),
        false => format!("{fewest} to {most} rounds"),
    }
}

/// Formats a number with three significant digits.
fn digits(value: f64) -> String {
    match value {
        v if v >= 99.95 => format!("{v:.0}"),
        v if v >= 9.995 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_a_unit() {
        assert_eq!(
            [1, 64, 4096, 1500, 16 << 20].map(size),
            ["1 B", "64 B", "4 KiB", "1500 B", "16 MiB"]
        );
        assert_eq!(
            [3.126e-6, 99.97e-6, 999.7e-6, 1.5e-3, 0.9997, 2.5].map(time),
            ["3.13 µs", "100 µs", "1.00 ms", "1.50 ms", "1.00 s", "2.50 s"]
        );
        assert_eq!(
            [12.34e9, 999.7e6, 999.4e6, 0.5e6, 1234.0].map(bandwidth),
            ["12.3 GB/s", "1.00 GB/s", "999 MB/s", "0.50 MB/s", "1.23 kB/s"]
        );
        assert_eq!(
            [13.2e6, 0.21e6, 12_340.0, 56.0].map(count),
            ["13.2 M", "0.21 M", "12.3 k", "56.0"]
        );
        assert_eq!([0.034, 0.125, 1.5].map(spread), ["±3 %", "±12 %", "±150 %"]);
        assert_eq!(
            [&[5, 5][..], &[2, 5], &[1]].map(|all| rounds(all.iter().copied())),
            ["5 rounds", "2 to 5 rounds", "1 round"]
        );
        assert_eq!([7, 999, 1000, 1_234_567].map(thousands), ["7", "999", "1,000", "1,234,567"]);
        assert_eq!([1, 2].map(|count| plural(count, "entry", "entries")), ["1 entry", "2 entries"]);
        assert_eq!(
            [13.2e6, 0.21e6, 12_340.0, 56.0].map(rate),
            ["13.2 M/s", "0.21 M/s", "12.3 k/s", "56.0 /s"]
        );
    }
}
