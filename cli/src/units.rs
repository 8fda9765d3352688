//! Numbers for people.

/// A size in bytes: `64 B`, `4 KiB`, `16 MiB`.
pub(crate) fn size(bytes: usize) -> String {
    const KIB: usize = 1 << 10;
    const MIB: usize = 1 << 20;
    match bytes {
        n if n >= MIB && n.is_multiple_of(MIB) => format!("{} MiB", n / MIB),
        n if n >= KIB && n.is_multiple_of(KIB) => format!("{} KiB", n / KIB),
        n => format!("{n} B"),
    }
}

/// Seconds, as microseconds or milliseconds.
pub(crate) fn time(seconds: f64) -> String {
    match seconds * 1e6 {
        us if us >= 1000.0 => format!("{} ms", digits(us / 1000.0)),
        us => format!("{} µs", digits(us)),
    }
}

/// Bytes for each second, in powers of ten as networks are measured.
pub(crate) fn bandwidth(bytes_per_second: f64) -> String {
    match bytes_per_second / 1e6 {
        mb if mb >= 1000.0 => format!("{} GB/s", digits(mb / 1000.0)),
        mb => format!("{} MB/s", digits(mb)),
    }
}

/// Messages for each second.
pub(crate) fn rate(messages_per_second: f64) -> String {
    match messages_per_second {
        rate if rate >= 99_950.0 => format!("{} M/s", digits(rate / 1e6)),
        rate if rate >= 999.5 => format!("{} k/s", digits(rate / 1e3)),
        rate => format!("{} /s", digits(rate)),
    }
}

/// Three digits that count.
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
        assert_eq!([1, 64, 4096, 1500, 16 << 20].map(size), ["1 B", "64 B", "4 KiB", "1500 B", "16 MiB"]);
        assert_eq!([3.126e-6, 99.97e-6, 1.5e-3].map(time), ["3.13 µs", "100 µs", "1.50 ms"]);
        assert_eq!([12.34e9, 999.4e6, 0.5e6].map(bandwidth), ["12.3 GB/s", "999 MB/s", "0.50 MB/s"]);
        assert_eq!(
            [13.2e6, 0.21e6, 12_340.0, 56.0].map(rate),
            ["13.2 M/s", "0.21 M/s", "12.3 k/s", "56.0 /s"]
        );
    }
}
