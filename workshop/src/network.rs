//! `workshop network`: moves messages through a simulated network, with softroce's engine and
//! with models of other protocols. No adapter is opened, and no time is measured: the result is the
//! same on every host.

use std::fmt::Write as _;
use std::io::{Write as _, stdout};

use anyhow::Result;
use clap::Args;
use measurement::text_table::{Align::*, Colour, TextTable, colour};
use measurement::units;
use simulation::{Bar, Protocol, Report, Scenario, bars};

#[derive(Args)]
#[command(after_help = CONDITIONS)]
pub(crate) struct Options {
    /// The network and its load: keys as below, as in
    /// rate=200mbit,delay=1ms,queue=128K,operation=read,flows=8
    #[arg(value_parser = scenario)]
    conditions: Box<Scenario>,
}

fn scenario(text: &str) -> Result<Box<Scenario>, netem::ConditionsError> {
    Ok(Box::new(text.parse()?))
}

/// The keys of the conditions, for `--help`.
const CONDITIONS: &str = "\
Conditions, separated by commas without spaces. Without rate and
delay, packets take no time.
  loss, duplicate, reorder=PERCENTAGE
                        as in net=, in each direction of the bottleneck
  delay, jitter=TIME    the time that a packet travels, and what is added at
                        random: 1ms
  rate=BITS             bits a second: 1gbit
  limit=N               the maximum number of packets in the queue
  seed=N                the seed of the random numbers
  queue=OCTETS          the queue in front of the bottleneck: 128K
  mark=OCTETS           packets that find as many octets in the queue are marked
                        (ECN)
  red=MIN-MAX           random early detection: 30K-90K
  paths=N, skew=TIME    parallel bottlenecks, and how much longer each one takes
  balance=flow, packet  whether flows or packets are spread over the paths
  mtu=OCTETS            the size of an IP packet; by default 1500
  flows=N               the number of connections; by default 1
  operation=write, read, send
                        by default write
  size=OCTETS           the size of a message; by default 1M
  messages=N, depth=N   messages of each flow, and how many are outstanding; by
                        default 1
  time=TIME             the experiment ends after this time, whatever has
                        arrived: 5s
  receives=many, one, none
                        the receives that the peers of sends have posted; by
                        default many
  peer=same, opendat, rxe
                        the other end of the flows of softroce and rxe; by
                        default same
  cubic, reno, rxe=N    flows of cross traffic, which share the network; by
                        default none";

/// The protocols in the order of the table.
const PROTOCOLS: [Protocol; 4] =
    [Protocol::OpenDat, Protocol::Cubic, Protocol::Reno, Protocol::Rxe];
/// The protocols whose flows are drawn.
const DRAWN: [Protocol; 2] = [Protocol::OpenDat, Protocol::Cubic];
/// The columns of a drawing.
const COLUMNS: usize = 54;
/// The maximum number of flows that are drawn one by one.
const DRAWN_FLOWS: usize = 8;
/// The heights of a column, from nothing to the maximum.
const HEIGHTS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

const TABLE: TextTable<8> = TextTable {
    columns: [
        (Left, 8),
        (Right, 7),
        (Right, 12),
        (Right, 6),
        (Right, 8),
        (Right, 10),
        (Right, 7),
        (Right, 7),
    ],
};

/// Runs the scenario for each protocol that suits it, and prints the results.
pub(crate) fn run(Options { conditions }: &Options) -> Result<()> {
    let suited = PROTOCOLS.into_iter().filter(|&protocol| conditions.suits(protocol));
    let reports: Vec<Report> =
        suited.map(|protocol| simulation::run(conditions, protocol)).collect();
    write!(stdout(), "{}", page(&reports, &bars(conditions, &reports)))?;
    Ok(())
}

/// Returns the drawings, the table and the bars.
fn page(reports: &[Report], bars: &[Bar]) -> String {
    let mut page = String::new();
    for report in reports.iter().filter(|report| DRAWN.contains(&report.protocol)) {
        page += &drawing(report);
    }
    let head = ["", "time", "goodput", "waste", "fairness", "queue, KiB", "p99", "dropped"];
    page += &(colour(&TABLE.row(head), Colour::Strong) + "\n");
    for report in reports {
        page += &(TABLE.row(cells(report)) + "\n");
    }
    for report in reports {
        page += &notes(report);
    }
    if !bars.is_empty() {
        page += &(colour("What softroce must reach in this network:", Colour::Strong) + "\n");
    }
    for bar in bars {
        let (verdict, look) =
            if bar.is_met() { ("met", Colour::Good) } else { ("missed", Colour::Bad) };
        let limit = if bar.is_minimum { "at least" } else { "at most" };
        page += &format!(
            "{}  {}: {}, {limit} {}\n",
            colour(&format!("{verdict:<6}"), look),
            bar.what,
            number(bar.value),
            number(bar.limit)
        );
    }
    page
}

fn cells(report: &Report) -> [String; 8] {
    [
        name(report.protocol).to_owned(),
        units::time(report.elapsed.as_secs_f64()),
        bit_rate(report.goodput as f64),
        format!("{:.1} %", report.waste * 100.0),
        format!("{:.3}", report.fairness),
        format!("{}/{}", kib(report.queue_mean), kib(report.queue_max)),
        units::time(report.completion_p99.as_secs_f64()),
        report.dropped.to_string(),
    ]
}

/// Returns what the table has no column for.
fn notes(report: &Report) -> String {
    let mut notes = String::new();
    let name = name(report.protocol);
    let mut note = |text: String| {
        writeln!(notes, "{name}: {text}").expect("a string takes everything");
    };
    if report.unfinished > 0 {
        note(format!("{} unfinished", units::plural(report.unfinished, "flow", "flows")));
    }
    let mut failures: Vec<&String> = report.failures.iter().collect();
    failures.dedup();
    failures.into_iter().for_each(|failure| note(failure.clone()));
    if report.marked > 0 {
        note(format!("{} packets marked", report.marked));
    }
    for (protocol, goodput) in &report.cross_traffic {
        note(format!("cross traffic of {}: {}", self::name(*protocol), bit_rate(*goodput as f64)));
    }
    notes
}

/// Draws the rate at which payload arrives for each flow, and the queue of the bottleneck.
fn drawing(report: &Report) -> String {
    let mut lines = format!(
        "{}\n",
        colour(
            &format!("{}: payload that arrives, and the queue", name(report.protocol)),
            Colour::Strong
        )
    );
    let part = report.elapsed / COLUMNS as u32;
    for (number, series) in report.arrivals.iter().enumerate().take(DRAWN_FLOWS) {
        let per_second = 8.0 / series.interval().as_secs_f64();
        let values = series.parts(report.elapsed, COLUMNS);
        let most = bit_rate(values.iter().copied().max().unwrap_or(0) as f64 * per_second);
        lines += &line(&format!("flow {}", number + 1), &values, &most);
    }
    if report.arrivals.len() > DRAWN_FLOWS {
        let further = report.arrivals.len() - DRAWN_FLOWS;
        lines += &format!("and {}\n", units::plural(further, "more flow", "more flows"));
    }
    let values = report.queue.parts(report.elapsed, COLUMNS);
    let most = values.iter().copied().max().unwrap_or(0);
    lines += &line("queue", &values, &format!("{} KiB", kib(most)));
    lines += &format!(
        "{:<8} one column is {}, and the full height is the number at the right\n\n",
        "",
        units::time(part.as_secs_f64())
    );
    lines
}

fn line(name: &str, values: &[u64], most: &str) -> String {
    let highest = values.iter().copied().max().unwrap_or(0).max(1);
    let steps = HEIGHTS.len() as u64 - 1;
    // A value that is not 0 is visible.
    let height = |value: u64| HEIGHTS[(value * steps).div_ceil(highest) as usize];
    let columns: String = values.iter().map(|&value| height(value)).collect();
    format!("{name:<8} {columns}  {most}\n")
}

fn name(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::OpenDat => "softroce",
        Protocol::Rxe => "rxe",
        Protocol::Cubic => "CUBIC",
        Protocol::Reno => "Reno",
    }
}

/// Formats bits per second.
fn bit_rate(bits: f64) -> String {
    match bits {
        bits if bits >= 999.5e6 => format!("{:.2} Gbit/s", bits / 1e9),
        bits if bits >= 99.95e6 => format!("{:.0} Mbit/s", bits / 1e6),
        bits => format!("{:.1} Mbit/s", bits / 1e6),
    }
}

/// Formats a value of a bar: a whole number, or three digits.
fn number(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value:.0}") } else { units::ratio(value) }
}

/// Formats octets in KiB, without the unit.
fn kib(octets: u64) -> String {
    format!("{:.0}", octets as f64 / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_a_column_for_each_value() {
        assert_eq!(line("queue", &[0, 1, 4, 8, 16], "2 KiB"), "queue     ▁▂▄█  2 KiB\n");
        assert_eq!(line("flow 1", &[0, 0], "0"), "flow 1       0\n");
    }

    #[test]
    fn the_page_fits_a_terminal_and_has_a_row_for_each_protocol() {
        let text = "rate=100mbit,delay=1ms,queue=32K,flows=10,size=64K,cubic=1";
        let scenario: Scenario = text.parse().expect(text);
        let reports = PROTOCOLS.map(|protocol| simulation::run(&scenario, protocol));
        let page = page(&reports, &bars(&scenario, &reports));
        assert!(page.lines().all(|line| line.chars().count() <= 80), "{page}");
        for start in ["softroce: ", "flow 8", "and 2 more flows", "queue", "cross traffic of CUBIC"]
        {
            assert!(page.contains(start), "{start}: {page}");
        }
        for protocol in PROTOCOLS {
            let rows = page.lines().filter(|line| line.starts_with(name(protocol)));
            assert!(rows.clone().any(|row| row.contains("bit/s")), "{page}");
        }
        assert!(page.lines().any(|line| line.starts_with("met") || line.starts_with("missed")));
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(
            [0.0, 1.1, 20_000.0, 0.9567, 747.83].map(number),
            ["0", "1.10", "20000", "0.96", "748"]
        );
    }

    #[test]
    fn bit_rates_have_a_unit() {
        assert_eq!(
            [0.0, 12_340_000.0, 123_400_000.0, 12.34e9].map(bit_rate),
            ["0.0 Mbit/s", "12.3 Mbit/s", "123 Mbit/s", "12.34 Gbit/s"]
        );
    }
}
