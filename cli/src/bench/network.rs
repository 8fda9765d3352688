//! `dat bench --network`: moves messages through a simulated network, with softroce's engine and
//! with models of other protocols. No adapter is opened, and no time is measured: the result is the
//! same on every host.

use std::fmt::Write;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;
use simulation::{Bar, Protocol, Report, Scenario, bars};

use crate::output::{print, print_json};
use crate::table::{Align::*, Colour, Table, colour};
use crate::units;

/// A scenario with its text.
#[derive(Clone)]
pub(super) struct Network {
    text: String,
    scenario: Box<Scenario>,
}

/// Parses the argument of `--network`.
pub(super) fn network(text: &str) -> Result<Network, netem::ConditionsError> {
    Ok(Network { text: text.to_owned(), scenario: Box::new(text.parse()?) })
}

/// The keys of the conditions, for `--help` and the manual page.
pub(super) const CONDITIONS: &str = "\
Conditions of --network, separated by commas without spaces. Without rate and
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

const TABLE: Table<8> = Table {
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

pub(super) fn run(Network { text, scenario }: &Network, json: bool) -> Result<bool> {
    let suited = PROTOCOLS.into_iter().filter(|&protocol| scenario.suits(protocol));
    let reports: Vec<Report> = suited.map(|protocol| simulation::run(scenario, protocol)).collect();
    let bars = bars(scenario, &reports);
    if json {
        print_json(&Document::new(text, &reports, &bars))?;
    } else {
        print(&page(&reports, &bars))?;
    }
    Ok(true)
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

/// The result as JSON.
#[derive(Serialize)]
struct Document<'a> {
    network: &'a str,
    results: Vec<ResultEntry<'a>>,
    bars: Vec<BarEntry>,
}

#[derive(Serialize)]
struct ResultEntry<'a> {
    protocol: &'static str,
    seconds: f64,
    messages: u64,
    unfinished: usize,
    failures: &'a [String],
    bits_per_second: u64,
    waste: f64,
    fairness: f64,
    completion_median: f64,
    completion_p99: f64,
    queue_mean: u64,
    queue_max: u64,
    packets: u64,
    dropped: u64,
    marked: u64,
    cross_traffic: Vec<CrossTrafficEntry>,
    /// The seconds of one value of the series.
    interval: f64,
    arrived: Vec<Vec<u64>>,
    queue: Vec<u64>,
}

#[derive(Serialize)]
struct CrossTrafficEntry {
    protocol: &'static str,
    bits_per_second: u64,
}

#[derive(Serialize)]
struct BarEntry {
    what: &'static str,
    value: f64,
    limit: f64,
    is_minimum: bool,
    met: bool,
}

impl<'a> Document<'a> {
    fn new(network: &'a str, reports: &'a [Report], bars: &[Bar]) -> Self {
        let bars = bars.iter().map(|bar| BarEntry {
            what: bar.what,
            value: bar.value,
            limit: bar.limit,
            is_minimum: bar.is_minimum,
            met: bar.is_met(),
        });
        let results = reports.iter().map(ResultEntry::new).collect();
        Document { network, results, bars: bars.collect() }
    }
}

impl<'a> ResultEntry<'a> {
    fn new(report: &'a Report) -> Self {
        let part: Duration = report.elapsed / COLUMNS as u32;
        // A value of the series is in octets per interval of the series.
        let per_part = |series: &simulation::Series| -> Vec<u64> {
            let scale = part.as_secs_f64() / series.interval().as_secs_f64();
            let values = series.parts(report.elapsed, COLUMNS).into_iter();
            values.map(|value| (value as f64 * scale).round() as u64).collect()
        };
        let cross_traffic = report.cross_traffic.iter().map(|&(protocol, bits_per_second)| {
            CrossTrafficEntry { protocol: protocol.word(), bits_per_second }
        });
        ResultEntry {
            protocol: report.protocol.word(),
            seconds: report.elapsed.as_secs_f64(),
            messages: report.messages,
            unfinished: report.unfinished,
            failures: &report.failures,
            bits_per_second: report.goodput,
            waste: report.waste,
            fairness: report.fairness,
            completion_median: report.completion_median.as_secs_f64(),
            completion_p99: report.completion_p99.as_secs_f64(),
            queue_mean: report.queue_mean,
            queue_max: report.queue_max,
            packets: report.packets,
            dropped: report.dropped,
            marked: report.marked,
            cross_traffic: cross_traffic.collect(),
            interval: part.as_secs_f64(),
            arrived: report.arrivals.iter().map(per_part).collect(),
            queue: report.queue.parts(report.elapsed, COLUMNS),
        }
    }
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
