//! Prints the table of the demonstration, and an explanation of it.

use std::fmt::Write as _;
use std::io::{Write as _, stdout};

use anyhow::Result;
use measurement::peer::ConnectionInfo;
use measurement::schedule::{self, MIN_OPERATIONS};
use measurement::text_table::{Align::*, Colour, TextTable, colour, wrapped};
use measurement::{cpu, units};

use crate::tasks::demo::{RULES, Row, UNMEASURED};

const NARROW: TextTable<8> = TextTable {
    columns: [
        (Left, 12),
        (Right, 6),
        (Right, 8),
        (Right, 8),
        (Right, 9),
        (Right, 9),
        (Right, 6),
        (Left, 8),
    ],
};

/// The table with `--wide`, in which each figure has its spread next to it.
const WIDE: TextTable<8> = TextTable {
    columns: [
        (Left, 12),
        (Right, 6),
        (Right, 14),
        (Right, 14),
        (Right, 16),
        (Right, 16),
        (Right, 6),
        (Left, 8),
    ],
};

fn table(wide: bool) -> &'static TextTable<8> {
    if wide { &WIDE } else { &NARROW }
}

pub(super) fn head(
    adapter: &str,
    address: &dat::Address,
    info: &ConnectionInfo,
    wide: bool,
) -> Result<()> {
    let opening = format!(
        "Two processes on this host, {adapter} at {address} (provider {}). They are connected, and \
         have exchanged private data in both directions.",
        info.provider()
    );
    let table = table(wide);
    let above = table.row(["", "", "latency", "", "bandwidth", "", "", ""]);
    let head =
        table.row(["operation", "size", "DAT", "raw TCP", "DAT", "raw TCP", "spread", "content"]);
    let strong = |line: &str| colour(line, Colour::Strong);
    writeln!(stdout(), "{}\n\n{}\n{}", wrapped(&opening, ""), strong(&above), strong(&head))?;
    Ok(())
}

pub(super) fn row(row: &Row, wide: bool) -> Result<()> {
    writeln!(stdout(), "{}", line(row, wide))?;
    for remark in remarks(row) {
        writeln!(stdout(), "{}", wrapped(&format!("  {remark}"), "    "))?;
    }
    Ok(())
}

/// Returns what the table has no column for: the figures that have two states.
fn remarks(row: &Row) -> Vec<String> {
    let [latency, raw_latency, bandwidth, raw_bandwidth] = row.figures();
    [
        schedule::two_states("latency", &latency, units::time),
        schedule::two_states("raw TCP latency", &raw_latency, units::time),
        schedule::two_states("bandwidth", &bandwidth, units::bandwidth),
        schedule::two_states("raw TCP bandwidth", &raw_bandwidth, units::bandwidth),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Returns a row without its newline.
fn line(row: &Row, wide: bool) -> String {
    let figure = |figure: String, spread: Option<f64>| match wide {
        true => format!("{figure} {:>6}", spread.map_or_else(String::new, units::spread)),
        false => figure,
    };
    let spread = schedule::spread_with_mark(row.spread(), row.noisy);
    let spread = if row.noisy { colour(&format!("{spread:>6}"), Colour::Bad) } else { spread };
    table(wide).row([
        row.operation.name().to_owned(),
        units::size(row.size),
        figure(units::time(row.latency), row.latency_spread),
        figure(units::time(row.raw_latency), row.raw_latency_spread),
        figure(units::bandwidth(row.bandwidth), row.bandwidth_spread),
        figure(units::bandwidth(row.raw_bandwidth), row.raw_bandwidth_spread),
        spread,
        colour("verified", Colour::Good),
    ])
}

pub(super) fn foot(verified: bool, info: &ConnectionInfo, rows: &[Row]) -> Result<()> {
    let verdict = if verified {
        colour("All data arrived unchanged; disconnected gracefully.", Colour::Good)
    } else {
        colour("Not all rows were verified.", Colour::Bad)
    };
    let waits = if cpu::two_processors().is_some() {
        "poll"
    } else {
        "sleep while they wait (one processor)"
    };
    let notes = notes(waits, info, rows);
    writeln!(stdout(), "\n{verdict}\n{}", colour(&notes, Colour::Faint))?;
    Ok(())
}

/// The way that the data take in the demonstration of tcp-emu.
const SHARED_MEMORY: &str = "Between two processes of one user on one host, tcp-emu uses shared \
                             memory in place of TCP. With OPENDAT_PARAMS=shm=off it uses TCP.";

/// Returns an explanation of how the figures were measured.
fn notes(waits: &str, info: &ConnectionInfo, rows: &[Row]) -> String {
    let congestion_control = &info.congestion_control;
    let unmeasured = UNMEASURED.map(units::size).join(" and ");
    let how = format!(
        "Latency: half a round trip of a send, or of an RDMA write and the send that announces it; \
         the whole round trip of an RDMA read. Bandwidth: in one direction. Raw TCP: the same \
         sizes in the same rounds, with congestion control {congestion_control}. Both processes \
         {waits}. Messages of {unmeasured} were also verified."
    );
    let way = match info.provider() {
        "tcp-emu" => SHARED_MEMORY.to_owned(),
        _ => String::new(),
    };
    [how, way, measured(rows), noise(rows)].iter().filter(|text| !text.is_empty()).fold(
        String::new(),
        |mut notes, text| {
            let between = if notes.is_empty() { "" } else { "\n" };
            // Writing to a string cannot fail.
            let _ = write!(notes, "{between}{}", wrapped(text, ""));
            notes
        },
    )
}

/// Returns a text with the number of rounds and operations on which each figure is based.
fn measured(rows: &[Row]) -> String {
    let mut text = format!(
        "Each figure is the median of {}; the rows take turns; a round lasts at least {} ms and has \
         at least {} operations",
        units::rounds(rows.iter().map(|row| row.rounds)),
        RULES.min_trial_time.as_millis(),
        units::thousands(MIN_OPERATIONS)
    );
    let mut sizes: Vec<usize> =
        rows.iter().filter(|row| row.operations < MIN_OPERATIONS).map(|row| row.size).collect();
    sizes.dedup();
    if !sizes.is_empty() {
        let sizes: Vec<String> = sizes.into_iter().map(units::size).collect();
        let longest = RULES.max_trial_time.as_millis();
        text += &format!(" ({}: as many as fit into {longest} ms)", sizes.join(", "));
    }
    text + ". Spread: half the distance between the quartiles of the rounds, as a share of the \
            median; the largest spread of the row's figures."
}

fn noise(rows: &[Row]) -> String {
    schedule::noise(rows.iter().filter(|row| row.noisy).count())
}

#[cfg(test)]
mod tests {
    use super::*;
    use measurement::operation::Operation;
    use measurement::schedule::State;

    /// A row whose figures have the maximum width.
    fn row_of(operation: Operation, size: usize, noisy: bool) -> Row {
        Row {
            operation,
            size,
            latency: 999.4e-6,
            latency_spread: Some(0.12),
            latency_other_state: None,
            raw_latency: 12.34e-3,
            raw_latency_spread: Some(0.034),
            raw_latency_other_state: None,
            bandwidth: 1.234e9,
            bandwidth_spread: Some(if noisy { 1.23 } else { 0.05 }),
            bandwidth_other_state: None,
            raw_bandwidth: 999e6,
            raw_bandwidth_spread: None,
            raw_bandwidth_other_state: None,
            rounds: 5,
            operations: if size > 4096 { 12 } else { 1200 },
            noisy,
        }
    }

    #[test]
    fn rows_have_a_spread_and_fit_a_terminal() {
        let row = row_of(Operation::Send, 64 << 10, false);
        assert_eq!(
            line(&row, false),
            "send/receive  64 KiB    999 µs   12.3 ms  1.23 GB/s   999 MB/s   ±12 %  verified"
        );
        assert_eq!(line(&row, false).chars().count(), 80);
        let noisy = row_of(Operation::RdmaRead, 1 << 20, true);
        assert!(line(&noisy, false).ends_with("  !123%  verified"), "{}", line(&noisy, false));
        assert_eq!(
            line(&row, true),
            concat!(
                "send/receive  64 KiB   999 µs  ±12 %  12.3 ms   ±3 %  1.23 GB/s   ±5 %   999 MB/s",
                "          ±12 %  verified"
            )
        );
    }

    #[test]
    fn a_figure_with_two_states_shows_both() {
        let mut row = row_of(Operation::Send, 64 << 10, false);
        assert_eq!(remarks(&row), [""; 0]);
        let other = State { rounds: 2, median: 8.55e9, spread: Some(0.01) };
        row.bandwidth_other_state = Some(other);
        assert_eq!(
            remarks(&row),
            ["bandwidth: two states, 1.23 GB/s ±5 % in 3 rounds and 8.55 GB/s ±1 % in 2"]
        );
    }

    #[test]
    fn the_notes_say_what_does_not_hold() {
        let rows = [row_of(Operation::Send, 64, false), row_of(Operation::Send, 1 << 20, true)];
        let info = ConnectionInfo {
            providers: vec!["tcp-emu".to_owned()],
            congestion_control: "cubic".to_owned(),
        };
        let text = notes("poll", &info, &rows);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let flat = text.replace('\n', " ");
        for words in [
            "the median of 5 rounds; the rows take turns; a round lasts at least 50 ms and has at \
             least 1,000 operations",
            "(1 MiB: as many as fit into 55 ms)",
            "Messages of 1 B and 16 MiB were also verified.",
            "tcp-emu uses shared memory in place of TCP.",
            "One row is noisy (!): ",
        ] {
            assert!(flat.contains(words), "{words}: {flat}");
        }
        let quiet = notes("poll", &info, &rows[..1]);
        assert!(!quiet.contains("noisy") && !quiet.contains("as many as fit"), "{quiet}");
    }
}
