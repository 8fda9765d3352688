//! Prints the result as comma-separated values (RFC 4180, but with LF line ends). There is a line
//! for each row and adapter, which is printed as soon as it is measured.

use std::io::{Write, stdout};

use anyhow::Result;

use super::result::Measured;
use crate::work::bench::Figures;

/// The column names. Latencies and processor times are in seconds; a spread is a share of the
/// median of the same figure.
const COLUMNS: &str = "adapter,operation,size,depth,connections,wait,rounds,operations,noisy,\
                       latency_min,latency_p50,latency_p90,latency_p99,latency_p999,latency_max,\
                       latency_mean,latency_spread,operations_per_second,bytes_per_second,\
                       rate_spread,client_cpu,server_cpu";

pub(super) fn head() -> Result<()> {
    Ok(writeln!(stdout(), "{COLUMNS}")?)
}

pub(super) fn row(adapters: &[String], row: &Measured) -> Result<()> {
    for (adapter, figures) in adapters.iter().zip(&row.figures) {
        writeln!(stdout(), "{}", line(adapter, row, figures))?;
    }
    Ok(())
}

fn line(adapter: &str, row: &Measured, figures: &Figures) -> String {
    let known = |value: Option<f64>| value.map_or_else(String::new, number);
    let times = &figures.latency;
    [
        quoted(adapter),
        row.operation.word().to_owned(),
        row.size.to_string(),
        row.depth.to_string(),
        row.connections.to_string(),
        format!("{:?}", row.wait).to_lowercase(),
        figures.rounds.to_string(),
        figures.operations.to_string(),
        figures.noisy.to_string(),
        number(times.min),
        number(times.p50),
        known(times.p90),
        known(times.p99),
        known(times.p999),
        number(times.max),
        number(times.mean),
        known(figures.latency_spread),
        number(figures.operations_per_second),
        number(figures.bytes_per_second),
        known(figures.rate_spread),
        number(figures.client_cpu),
        number(figures.server_cpu),
    ]
    .join(",")
}

/// Formats a number with six significant digits.
fn number(value: f64) -> String {
    format!("{value:.5e}")
        .parse()
        .map_or_else(|_| value.to_string(), |rounded: f64| rounded.to_string())
}

/// Quotes a name, which may contain any characters.
fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::result::tests::measured;
    use super::*;

    #[test]
    fn a_line_has_a_value_for_each_column() {
        let row = measured(64, 1);
        let line = line("a,\"b\"", &row, &row.figures[0]);
        let (adapter, rest) = line.split_at("\"a,\"\"b\"\"\"".len());
        assert_eq!(adapter, "\"a,\"\"b\"\"\"");
        let columns: Vec<&str> = COLUMNS.split(',').skip(1).collect();
        let values: Vec<&str> = rest[1..].split(',').collect();
        assert_eq!(columns.len(), values.len(), "{line}");
        let of =
            |name: &str| values[columns.iter().position(|column| *column == name).expect(name)];
        assert_eq!(
            [of("operation"), of("size"), of("wait"), of("noisy")],
            ["send", "64", "poll", "false"]
        );
        assert_eq!(
            [1.0 / 3.0, 123_456_789.0, 3.5100000000000003e-6].map(number),
            ["0.333333", "123457000", "0.00000351"]
        );
        assert_eq!(
            [of("latency_p50"), of("latency_p999"), of("bytes_per_second")],
            ["0.0009994", "", "64000000000"]
        );
    }
}
