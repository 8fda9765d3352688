//! Prints the result as comma-separated values (RFC 4180, but with LF line ends). There is a line
//! for each row and adapter.

use std::io::{Write, stdout};

use anyhow::Result;
use measurement::schedule::State;

use super::result::{Document, Measured};
use crate::tasks::bench::Figures;

/// The column names. Latencies and processor times are in seconds; a spread is a share of the
/// median of the same figure. The columns with `other` in their names are empty if there was one
/// state.
const COLUMNS: &str = "adapter,operation,size,depth,connections,wait,rounds,operations,noisy,\
                       latency_min,latency_p50,latency_p90,latency_p99,latency_p999,latency_max,\
                       latency_mean,latency_spread,operations_per_second,bytes_per_second,\
                       rate_spread,client_cpu,server_cpu,latency_other_state,\
                       latency_other_rounds,operations_per_second_other_state,rate_other_rounds,\
                       copy_bytes_per_second,copy_spread,copy_other_state,copy_other_rounds";

pub(super) fn print(document: &Document) -> Result<()> {
    writeln!(stdout(), "{COLUMNS}")?;
    for row in &document.points {
        for (adapter, figures) in document.adapters.iter().zip(&row.figures) {
            writeln!(stdout(), "{}", line(&adapter.name, row, figures))?;
        }
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
        other(figures.latency_other_state),
        other(figures.rate_other_state),
        known(row.copy.map(|copy| copy.main.median)),
        known(row.copy.and_then(|copy| copy.main.spread)),
        other(row.copy.and_then(|copy| copy.other_state)),
    ]
    .join(",")
}

/// Formats the value of another state and its number of rounds, which are two columns.
fn other(state: Option<State>) -> String {
    state.map_or_else(|| ",".to_owned(), |s| format!("{},{}", number(s.median), s.rounds))
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
    use super::super::result::tests::{measured, measured_in_two_states};
    use super::*;

    #[test]
    fn a_line_has_a_value_for_each_column() {
        let row = measured(64, 1);
        let text = line("a,\"b\"", &row, &row.figures[0]);
        let (adapter, rest) = text.split_at("\"a,\"\"b\"\"\"".len());
        assert_eq!(adapter, "\"a,\"\"b\"\"\"");
        let columns: Vec<&str> = COLUMNS.split(',').skip(1).collect();
        let values: Vec<&str> = rest[1..].split(',').collect();
        assert_eq!(columns.len(), values.len(), "{text}");
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
        assert_eq!([of("latency_other_state"), of("rate_other_rounds")], ["", ""]);
        assert_eq!([of("copy_bytes_per_second"), of("copy_other_state")], ["9100000000", ""]);
        let row = measured_in_two_states(64, 1);
        let text = line("a", &row, &row.figures[0]);
        assert!(
            text.ends_with(",0.0004997,2,2000000000,2,4000000000,0.00625,9050000000,2"),
            "{text}"
        );
    }
}
