//! Prints the result as a table.

use std::io::{Write, stdout};

use anyhow::Result;
use measurement::schedule::{self, MIN_OPERATIONS, MIN_TRIAL_TIME};
use measurement::text_table::{Align::*, Colour, TextTable, colour, wrapped};
use measurement::units;
use measurement::wait_mode::WaitMode;

use super::result::{Document, Measured, Subject};
use crate::copying::COPY_BYTES;
use crate::tasks::bench::{Figures, MAX_TRIAL_TIME};
use crate::times::Times;

/// The table of one adapter.
const ONE_ADAPTER: TextTable<8> = TextTable {
    columns: [
        (Left, 19),
        (Right, 5),
        (Right, 7),
        (Right, 7),
        (Right, 9),
        (Right, 6),
        (Right, 7),
        (Right, 6),
    ],
};

/// The table of one adapter with `--wide`.
const ONE_ADAPTER_WIDE: TextTable<12> = TextTable {
    columns: [
        (Left, 19),
        (Right, 5),
        (Right, 5),
        (Right, 7),
        (Right, 7),
        (Right, 7),
        (Right, 6),
        (Right, 9),
        (Right, 6),
        (Right, 6),
        (Right, 17),
        (Right, 5),
    ],
};

/// The table of two adapters.
const TWO_ADAPTERS: TextTable<7> = TextTable {
    columns: [(Left, 19), (Right, 5), (Left, 9), (Right, 11), (Right, 11), (Right, 5), (Right, 6)],
};

/// The table of two adapters with `--wide`, which shows the spread of each.
const TWO_ADAPTERS_WIDE: TextTable<9> = TextTable {
    columns: [
        (Left, 19),
        (Right, 5),
        (Right, 5),
        (Left, 9),
        (Right, 18),
        (Right, 18),
        (Right, 6),
        (Right, 9),
        (Right, 5),
    ],
};

pub(super) fn print(document: &Document, wide: bool) -> Result<()> {
    let names: Vec<String> = document.adapters.iter().map(|adapter| adapter.name.clone()).collect();
    for line in header_lines(&names, wide) {
        writeln!(stdout(), "{}", colour(&line, Colour::Strong))?;
    }
    for row in &document.points {
        writeln!(stdout(), "{}", line(row, wide))?;
        for remark in remarks(row, &names) {
            writeln!(stdout(), "{}", wrapped(&format!("  {remark}"), "    "))?;
        }
    }
    let text = notes(document).iter().map(|note| wrapped(note, "")).collect::<Vec<_>>().join("\n");
    writeln!(stdout(), "\n{}", colour(&text, Colour::Faint))?;
    Ok(())
}

fn header_lines(adapters: &[String], wide: bool) -> Vec<String> {
    let first = format!("{:<12}{:>7}", "operation", "size");
    match (adapters, wide) {
        ([a, b], false) => {
            vec![TWO_ADAPTERS.row([
                &first,
                "depth",
                "",
                &cut(a, 11),
                &cut(b, 11),
                "ratio",
                "spread",
            ])]
        }
        ([a, b], true) => vec![TWO_ADAPTERS_WIDE.row([
            &first,
            "depth",
            "conns",
            "",
            &cut(a, 18),
            &cut(b, 18),
            "ratio",
            "CPU ratio",
            "",
        ])],
        (_, false) => vec![
            ONE_ADAPTER.row(["", "", "latency", "", "", "", "CPU", ""]),
            ONE_ADAPTER.row([
                &first,
                "depth",
                "p50",
                "p99",
                "bandwidth",
                "ops/s",
                "each",
                "spread",
            ]),
        ],
        (_, true) => vec![
            ONE_ADAPTER_WIDE.row([
                "",
                "",
                "",
                "latency",
                "",
                "",
                "",
                "",
                "",
                "",
                "CPU time, each",
                "",
            ]),
            ONE_ADAPTER_WIDE.row([
                &first,
                "depth",
                "conns",
                "p50",
                "p99",
                "p99.9",
                "spread",
                "bandwidth",
                "ops/s",
                "spread",
                "client + server",
                "",
            ]),
        ],
    }
}

/// Cuts a name to the width of its column.
fn cut(name: &str, width: usize) -> String {
    match name.chars().count() {
        fits if fits <= width => name.to_owned(),
        _ => name.chars().take(width - 1).chain(['…']).collect(),
    }
}

/// Returns a row without its newline.
fn line(row: &Measured, wide: bool) -> String {
    match (&row.figures[..], wide) {
        ([one], false) => one_adapter(row, one),
        ([one], true) => one_adapter_wide(row, one),
        ([first, second], false) => two_adapters(row, first, second),
        ([first, second], true) => two_adapters_wide(row, first, second),
        _ => String::new(),
    }
}

/// Returns the operation and the size, which share a column.
fn point(row: &Measured) -> String {
    format!("{:<12}{:>7}", row.operation.short(), units::size(row.size))
}

/// Returns the depth, with the number of connections if there are several.
fn depth(row: &Measured) -> String {
    match row.connections {
        1 => row.depth.to_string(),
        many => format!("{many}×{}", row.depth),
    }
}

fn spread(spread: Option<f64>) -> String {
    spread.map_or_else(String::new, units::spread)
}

/// Returns the largest spread of figures, with a mark if one of them is noisy.
fn largest_spread<'a>(figures: impl IntoIterator<Item = &'a Figures> + Clone) -> String {
    let spread = figures.clone().into_iter().filter_map(Figures::spread).max_by(f64::total_cmp);
    let is_noisy = figures.into_iter().any(|figures| figures.noisy);
    let text = schedule::spread_with_mark(spread, is_noisy);
    if is_noisy { colour(&format!("{text:>6}"), Colour::Bad) } else { text }
}

/// Returns what a table has no column for: the figures that have two states, and beside them the
/// speed of the machine.
pub(super) fn remarks(row: &Measured, adapters: &[String]) -> Vec<String> {
    let mut remarks = Vec::new();
    for (figures, name) in row.figures.iter().zip(adapters) {
        let of = |what: &str| match adapters {
            [_] => what.to_owned(),
            _ => format!("{name} {what}"),
        };
        remarks.extend(schedule::two_states(
            &of("latency"),
            &figures.latency_figure(),
            units::time,
        ));
        let rate = figures.rate_figure();
        remarks.extend(match row.size {
            ..1024 => schedule::two_states(&of("rate"), &rate, units::rate),
            size => schedule::two_states(&of("bandwidth"), &rate, |operations| {
                units::bandwidth(operations * size as f64)
            }),
        });
    }
    let is_steady = remarks.is_empty() && !row.figures.iter().any(|figures| figures.noisy);
    if let Some(copy) = row.copy.filter(|_| !is_steady) {
        let one_state = || {
            let spread = spread(copy.main.spread);
            format!("copy: {} {spread}", units::bandwidth(copy.main.median)).trim_end().to_owned()
        };
        let two_states = schedule::two_states("copy", &copy, units::bandwidth);
        remarks.push(two_states.unwrap_or_else(one_state));
    }
    remarks
}

fn one_adapter(row: &Measured, figures: &Figures) -> String {
    let Times { p50, p99, .. } = figures.latency;
    ONE_ADAPTER.row([
        point(row),
        depth(row),
        units::time(p50),
        p99.map_or_else(String::new, units::time),
        units::bandwidth(figures.bytes_per_second),
        units::count(figures.operations_per_second),
        units::time(figures.client_cpu + figures.server_cpu),
        largest_spread([figures]),
    ])
}

fn one_adapter_wide(row: &Measured, figures: &Figures) -> String {
    let latency = |time: Option<f64>| time.map_or_else(String::new, units::time);
    let Times { p50, p99, p999, .. } = figures.latency;
    ONE_ADAPTER_WIDE.row([
        point(row),
        row.depth.to_string(),
        row.connections.to_string(),
        units::time(p50),
        latency(p99),
        latency(p999),
        spread(figures.latency_spread),
        units::bandwidth(figures.bytes_per_second),
        units::count(figures.operations_per_second),
        spread(figures.rate_spread),
        format!("{} + {}", units::time(figures.client_cpu), units::time(figures.server_cpu)),
        noisy([figures]),
    ])
}

fn noisy<'a>(figures: impl IntoIterator<Item = &'a Figures>) -> String {
    let is_noisy = figures.into_iter().any(|figures| figures.noisy);
    if is_noisy { colour("noisy", Colour::Bad) } else { String::new() }
}

/// A figure to print: its name, its value, and the format of the value.
type Figure = (&'static str, fn(&Figures) -> f64, fn(f64) -> String);

/// Returns the most important figure of a row: the latency if only one operation is outstanding,
/// else the rate if the messages are small, else the bandwidth.
fn figure(row: &Measured) -> Figure {
    match row {
        Measured { depth: 1, connections: 1, .. } => {
            ("p50", |figures| figures.latency.p50, units::time)
        }
        Measured { size: ..1024, .. } => {
            ("rate", |figures| figures.operations_per_second, units::rate)
        }
        _ => ("bandwidth", |figures| figures.bytes_per_second, units::bandwidth),
    }
}

fn two_adapters(row: &Measured, first: &Figures, second: &Figures) -> String {
    let (what, value, text) = figure(row);
    let (a, b) = (value(first), value(second));
    TWO_ADAPTERS.row([
        point(row),
        depth(row),
        what.to_owned(),
        text(a),
        text(b),
        units::ratio(a / b),
        largest_spread([first, second]),
    ])
}

fn two_adapters_wide(row: &Measured, first: &Figures, second: &Figures) -> String {
    let (what, value, text) = figure(row);
    let (a, b) = (value(first), value(second));
    let cpu = |figures: &Figures| figures.client_cpu + figures.server_cpu;
    let of = |figures: &Figures, value: f64| {
        let its = if what == "p50" { figures.latency_spread } else { figures.rate_spread };
        format!("{} {:>6}", text(value), spread(its))
    };
    TWO_ADAPTERS_WIDE.row([
        point(row),
        row.depth.to_string(),
        row.connections.to_string(),
        what.to_owned(),
        of(first, a),
        of(second, b),
        units::ratio(a / b),
        units::ratio(cpu(first) / cpu(second)),
        noisy([first, second]),
    ])
}

/// Returns paragraphs that explain how the figures were measured.
pub(super) fn notes(document: &Document) -> Vec<String> {
    let Document { adapters, address, circumstances, pinned, points, .. } = document;
    let subject = |subject: &Subject| format!("{} (provider {})", subject.name, subject.provider);
    let subjects = adapters.iter().map(subject).collect::<Vec<_>>().join(" and ");
    let processors = circumstances.processors;
    let place = match pinned {
        Some([Some(client), Some(server)]) => {
            format!("pinned to processors {client} and {server} of {processors}")
        }
        Some([Some(client), None]) => {
            format!("the client pinned to processor {client} of {processors} here")
        }
        _ => format!("{processors} processors here"),
    };
    let polls = |point: &Measured| point.wait == WaitMode::Poll;
    let waits = match (points.iter().any(polls), points.iter().all(polls)) {
        (_, true) => "A waiting process polls, which uses processor time",
        (true, false) => {
            "A waiting process polls, which uses processor time; with several connections it sleeps"
        }
        (false, false) => "A waiting process sleeps",
    };
    let several = match points.iter().any(|point| point.connections > 1) {
        true => {
            " Depth 4×16: 4 connections with 16 operations outstanding on each. Their threads \
             share the processors, so a few operations take long, and the rate is lower than \
             the median latency suggests."
        }
        false => "",
    };
    let turns = if adapters.len() == 2 {
        " The adapters take turns; ratio: first adapter to second."
    } else {
        ""
    };
    let mut notes = vec![
        format!("{subjects} at {address}; {place}, Linux {}.", circumstances.kernel),
        rounds(document) + turns,
        format!(
            "Latency: half a round trip of a send, or of a write and the send that announces it; \
             the whole round trip of a read or an atomic operation. The depth is the number of \
             outstanding operations. Bandwidth and rate: in one direction, from the same rounds; \
             whenever an operation completes at its sender, the sender posts another.{several} \
             {waits}."
        ),
    ];
    let noisy =
        points.iter().filter(|point| point.figures.iter().any(|figures| figures.noisy)).count();
    notes.extend(document.interrupted.then(|| INTERRUPTED.to_owned()));
    notes.extend(machine(points));
    notes.extend((noisy > 0).then(|| schedule::noise(noisy)));
    notes
}

/// The note on a measurement that a signal has ended.
const INTERRUPTED: &str =
    "Interrupted: the figures are those of the rounds before. Rows without a round are left out.";

/// Returns a text about the copies that were measured beside the rounds.
fn machine(points: &[Measured]) -> Option<String> {
    let copies = points.iter().filter_map(|point| point.copy);
    let speeds = copies.flat_map(|copy| [Some(copy.main), copy.other_state]).flatten();
    let speeds: Vec<f64> = speeds.map(|state| state.median).collect();
    let slowest = speeds.iter().copied().min_by(f64::total_cmp)?;
    let fastest = speeds.iter().copied().max_by(f64::total_cmp)?;
    let [slowest, fastest] = [slowest, fastest].map(units::bandwidth);
    let range = if slowest == fastest { slowest } else { format!("{slowest} to {fastest}") };
    Some(format!(
        "Copy: after each round, one processor copied {} that the other had just written, at \
         {range}. This is the speed of the machine without DAT. Two states: the rounds of a row \
         form two clusters. The row then has the figures of the state with more rounds.",
        units::size(COPY_BYTES)
    ))
}

/// Returns a text with the number of rounds and operations on which each figure is based.
fn rounds(document: &Document) -> String {
    let figures = || document.points.iter().flat_map(|point| &point.figures);
    let count = units::rounds(figures().map(|figures| figures.rounds));
    let mut text = format!(
        "Each figure is the median of {count}; the rows take turns; a round lasts at least {} ms \
         and has at least {} operations",
        MIN_TRIAL_TIME.as_millis(),
        units::thousands(MIN_OPERATIONS)
    );
    let few =
        |point: &&Measured| point.figures.iter().any(|figures| figures.operations < MIN_OPERATIONS);
    let mut sizes: Vec<usize> =
        document.points.iter().filter(few).map(|point| point.size).collect();
    sizes.sort_unstable();
    sizes.dedup();
    if !sizes.is_empty() {
        let sizes = sizes.into_iter().map(units::size).collect::<Vec<_>>().join(", ");
        text += &format!(" ({sizes}: as many as fit into {} ms)", MAX_TRIAL_TIME.as_millis());
    }
    text + ". Spread: half the distance between the quartiles of the rounds, as a share of the \
            median; of latency or rate, whichever is larger."
}

#[cfg(test)]
mod tests {
    use super::super::result::tests::{document, measured, measured_in_two_states};
    use super::*;

    /// A row with figures of the maximum width.
    fn longest() -> Measured {
        let mut row = measured(64 << 10, 1);
        row.operation = measurement::operation::Operation::CompareSwap;
        row.figures[0].latency.p99 = Some(12.34e-3);
        row
    }

    #[test]
    fn lines_fit_a_terminal() {
        let mut row = longest();
        assert_eq!(
            line(&row, false),
            "compare-swap 64 KiB      1   999 µs  12.3 ms  65.5 TB/s  1000 M   700 µs    ±4 %"
        );
        assert!(line(&row, false).chars().count() <= 80);
        row.figures[0].noisy = true;
        assert!(line(&row, false).ends_with("  !±4 %") && line(&row, false).chars().count() <= 80);
        let names = ["tcp-emu".to_owned(), "a-very-long-adapter".to_owned()];
        let both = Measured { figures: vec![row.figures[0]; 2], depth: 16, ..longest() };
        let several = Measured { connections: 64, depth: 16, ..longest() };
        let lines = [
            header_lines(&names[..1], false),
            header_lines(&names, false),
            vec![line(&both, false), line(&several, false)],
        ];
        for line in lines.concat() {
            assert!(line.chars().count() <= 80, "{line}");
        }
        assert!(
            header_lines(&names, false)[0].contains(" a-very-lon… "),
            "{:?}",
            header_lines(&names, false)
        );
        assert!(
            line(&both, false).contains(" bandwidth ") && line(&several, false).contains(" 64×16 ")
        );
    }

    #[test]
    fn wide_lines_have_everything_in_its_column() {
        let row = longest();
        let wide = line(&row, true);
        for words in ["12.3 ms", " 300 µs + 400 µs", " ±4 % ", " ±1 % "] {
            assert!(wide.contains(words), "{words}: {wide}");
        }
        let names = ["tcp-emu".to_owned(), "softroce".to_owned()];
        let [_, head] = &header_lines(&names[..1], true)[..] else {
            panic!("the table must have two header lines")
        };
        assert_eq!(head.find("client + server").map(|at| at + 15), Some(head.len()));
        assert_eq!(wide.chars().count(), head.chars().count());
        let both = Measured { figures: vec![row.figures[0]; 2], ..longest() };
        assert!(line(&both, true).contains("999 µs   ±4 %"), "{}", line(&both, true));
    }

    #[test]
    fn the_notes_say_how_it_was_measured_and_what_is_noisy() {
        let quiet = document(vec![measured(64, 1), measured(64, 16)]);
        let text = notes(&quiet).join(" ");
        for words in [
            "tcp-emu (provider tcp-emu) at 127.0.0.1; pinned to processors 0 and 1 of 2, \
             Linux 6.1.",
            "the median of 5 rounds; the rows take turns; a round lasts at least 50 ms and has at \
             least 1,000 operations. Spread:",
            "copied 64 KiB that the other had just written, at 9.10 GB/s.",
            "A waiting process polls, which uses processor time.",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert!(!text.contains("noisy"), "{text}");
        let mut row = measured(1 << 20, 1);
        row.connections = 4;
        row.figures[0].noisy = true;
        row.figures[0].rate_spread = Some(0.4);
        row.figures[0].operations = 30;
        row.figures[0].rounds = 3;
        let text = notes(&document(vec![measured(64, 1), row])).join(" ");
        for words in [
            "the median of 3 to 5 rounds",
            "(1 MiB: as many as fit into 250 ms)",
            "Depth 4×16: 4 connections",
            "One row is noisy (!): ",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }

    #[test]
    fn a_row_with_two_states_shows_both_and_the_speed_of_the_machine() {
        let names = ["tcp-emu".to_owned(), "softroce".to_owned()];
        assert_eq!(remarks(&measured(64, 1), &names[..1]), [""; 0]);
        let row = measured_in_two_states(64 << 10, 1);
        assert_eq!(
            remarks(&row, &names[..1]),
            [
                "latency: two states, 999 µs ±4 % in 3 rounds and 500 µs ±2 % in 2",
                "bandwidth: two states, 65.5 TB/s ±1 % in 3 rounds and 131 TB/s ±2 % in 2",
                "copy: two states, 4.00 GB/s ±1 % in 3 rounds and 9.05 GB/s ±0 % in 2",
            ]
        );
        let mut both = measured_in_two_states(64, 1);
        both.figures.insert(0, measured(64, 1).figures[0]);
        both.copy = measured(64, 1).copy;
        assert_eq!(
            remarks(&both, &names)[1..],
            [
                "softroce rate: two states, 1000 M/s ±1 % in 3 rounds and 2000 M/s ±2 % in 2",
                "copy: 9.10 GB/s ±1 %"
            ]
        );
        let mut document = document(vec![measured(64, 1), row]);
        assert!(!notes(&document).contains(&INTERRUPTED.to_owned()));
        document.interrupted = true;
        assert!(notes(&document).contains(&INTERRUPTED.to_owned()));
        let text = notes(&document).join(" ");
        assert!(text.contains("just written, at 4.00 GB/s to 9.10 GB/s."), "{text}");
    }
}
