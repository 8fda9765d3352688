//! Writes the result as a page with plots: one file without scripts or external resources.

use std::collections::BTreeSet;
use std::fmt::Write;

use measurement::machine::MeasurementInfo;
use measurement::operation::Operation;
use measurement::units;

use super::result::{Document, Measured};
use super::text;
use crate::tasks::bench::Figures;
use crate::times::Times;

/// The size of a plot and the margins around its area, in pixels.
const WIDTH: f64 = 400.0;
const HEIGHT: f64 = 270.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 52.0;

/// The dash patterns of an adapter's lines. Each line has the pattern with the line's index.
const DASHES: [&str; 5] = ["", "7 3", "2 3", "9 3 2 3", "1 5"];

/// A line of a plot.
struct Line {
    name: String,
    /// The index of the adapter.
    adapter: usize,
    /// The index of the line among the lines of its adapter.
    nth: usize,
    points: Vec<PlotPoint>,
}

/// A point of a line.
struct PlotPoint {
    size: usize,
    value: f64,
    /// The value as text.
    text: String,
    is_noisy: bool,
    /// The value in the other state of the machine, and this value as text.
    other_state: Option<(f64, String)>,
}

/// A figure that is plotted.
struct Plot {
    title: &'static str,
    /// The label of the vertical axis, with its unit.
    axis: &'static str,
    /// Formats a value.
    unit: fn(f64) -> String,
    value: fn(&Figures) -> Option<f64>,
    /// Returns the value in the other state of the machine.
    other_state: fn(&Figures, usize) -> Option<f64>,
}

const PLOTS: &[Plot] = &[
    Plot {
        title: "latency, p50",
        axis: TIME_AXIS,
        unit: units::time,
        value: |figures| Some(figures.latency.p50),
        other_state: |figures, _| Some(figures.latency_other_state?.median),
    },
    Plot {
        title: "latency, p99",
        axis: TIME_AXIS,
        unit: units::time,
        value: |figures| figures.latency.p99,
        other_state: |_, _| None,
    },
    Plot {
        title: "latency, p99.9",
        axis: TIME_AXIS,
        unit: units::time,
        value: |figures| figures.latency.p999,
        other_state: |_, _| None,
    },
    Plot {
        title: "bandwidth",
        axis: "bytes per second (kB/s, MB/s, GB/s)",
        unit: units::bandwidth,
        value: |figures| Some(figures.bytes_per_second),
        other_state: |figures, size| Some(figures.rate_other_state?.median * size as f64),
    },
    Plot {
        title: "operations per second",
        axis: "operations per second (/s, k/s, M/s)",
        unit: units::rate,
        value: |figures| Some(figures.operations_per_second),
        other_state: |figures, _| Some(figures.rate_other_state?.median),
    },
    Plot {
        title: "processor time of an operation, both ends",
        axis: TIME_AXIS,
        unit: units::time,
        value: |figures| Some(figures.client_cpu + figures.server_cpu),
        other_state: |_, _| None,
    },
];

const PLOT_MARKS: &str = "<p class=\"notes\">An empty circle is a point of a noisy row. If the \
                          machine has two states, a square is the value in the other state.</p>\n";

const TIME_AXIS: &str = "time (µs, ms, s)";
const SIZE_AXIS: &str = "message size (bytes; KiB and MiB are powers of two)";

/// Returns the whole page.
pub(super) fn page(document: &Document) -> String {
    let names = document.adapters.iter().map(|adapter| escaped(&adapter.name)).collect::<Vec<_>>();
    let title = format!("dat bench: {}", names.join(" and "));
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>\n\
         <link rel=\"icon\" href=\"data:,\">\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <h1>{title}</h1>\n\
         <p class=\"notes\">{}</p>\n",
        text::notes(document)
            .iter()
            .map(|note| escaped(note))
            .collect::<Vec<_>>()
            .join("</p>\n<p class=\"notes\">")
    );
    page += &circumstances(document);
    page += PLOT_MARKS;
    for operation in operations(document) {
        let rows: Vec<&Measured> =
            document.points.iter().filter(|row| row.operation == operation).collect();
        let sizes: BTreeSet<usize> = rows.iter().map(|row| row.size).collect();
        let _ = writeln!(page, "<h2>{}</h2>\n<div class=\"plots\">", operation.name());
        for figure in PLOTS {
            page += &plot(figure, &sizes, &lines(document, &rows, figure));
        }
        page += "</div>\n";
    }
    page += &table(document);
    page += "</body>\n</html>\n";
    page
}

/// Returns the time, version, command line and machine of the measurement.
fn circumstances(document: &Document) -> String {
    let MeasurementInfo { date, version, command, cpu, processors, kernel } =
        &document.circumstances;
    let processors = format!("{cpu}, {}", units::plural(*processors, "processor", "processors"));
    let kernel = format!("Linux {kernel}");
    let rows = [
        ("date", date.as_str()),
        ("version", version),
        ("command", command),
        ("CPU", &processors),
        ("kernel", &kernel),
    ];
    let mut list = "<dl>\n".to_owned();
    for (name, value) in rows {
        let _ = writeln!(list, "<dt>{name}<dd>{}", escaped(value));
    }
    list + "</dl>\n"
}

/// Returns the operations in the order of measurement.
fn operations(document: &Document) -> Vec<Operation> {
    let mut operations = Vec::new();
    for row in &document.points {
        if !operations.contains(&row.operation) {
            operations.push(row.operation);
        }
    }
    operations
}

/// Returns a line for each adapter, depth and number of connections.
fn lines(document: &Document, rows: &[&Measured], plot: &Plot) -> Vec<Line> {
    let Plot { unit, value, other_state, .. } = plot;
    let kinds: BTreeSet<(usize, usize)> =
        rows.iter().map(|row| (row.connections, row.depth)).collect();
    let mut lines = Vec::new();
    for (adapter, subject) in document.adapters.iter().enumerate() {
        for (nth, &(connections, depth)) in kinds.iter().enumerate() {
            let of_kind =
                rows.iter().filter(|row| (row.connections, row.depth) == (connections, depth));
            let points = of_kind.filter_map(|row| {
                let figures = &row.figures[adapter];
                let value = value(figures)?;
                let other_state = other_state(figures, row.size).map(|value| (value, unit(value)));
                let (text, is_noisy) = (unit(value), figures.noisy);
                Some(PlotPoint { size: row.size, value, text, is_noisy, other_state })
            });
            let mut name = format!("{} depth {depth}", subject.name);
            if connections > 1 {
                let _ = write!(name, " × {connections}");
            }
            lines.push(Line { name, adapter, nth, points: points.collect() });
        }
    }
    lines
}

/// Draws a plot. Both axes are logarithmic. All plots of an operation have the same size axis. A
/// point of a noisy row is a circle without a filling. A value of the other state of the machine is
/// a square beside the line.
fn plot(Plot { title, axis, unit, .. }: &Plot, sizes: &BTreeSet<usize>, lines: &[Line]) -> String {
    let points = || lines.iter().flat_map(|line| &line.points);
    let other_states = points().filter_map(|point| Some(point.other_state.as_ref()?.0));
    let all: Vec<f64> = points().map(|point| point.value).chain(other_states).collect();
    let all = || all.iter().filter(|value| **value > 0.0);
    let (Some(&least), Some(&most), Some(_)) = (sizes.first(), sizes.last(), all().next()) else {
        return String::new();
    };
    let low = all().map(|value| value.log10()).fold(f64::INFINITY, f64::min);
    let high = all().map(|value| value.log10()).fold(f64::NEG_INFINITY, f64::max);
    // The margin ensures that the range is not empty if all values are equal.
    let (low, high) = (low - 0.1, high + 0.1);
    let (least, most) = ((least as f64).log2() - 0.5, (most as f64).log2() + 0.5);
    let x = |size: usize| {
        LEFT + ((size as f64).log2() - least) / (most - least) * (WIDTH - LEFT - RIGHT)
    };
    let y = |value: f64| {
        HEIGHT - BOTTOM - (value.log10() - low) / (high - low) * (HEIGHT - TOP - BOTTOM)
    };

    let (middle, centre) = ((LEFT + WIDTH - RIGHT) / 2.0, (TOP + HEIGHT - BOTTOM) / 2.0);
    let mut svg = format!(
        "<figure>\n<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}\">\n\
         <text class=\"title\" x=\"{LEFT}\" y=\"16\">{title}</text>\n\
         <text class=\"axis\" text-anchor=\"middle\" x=\"{middle}\" y=\"{}\">{SIZE_AXIS}</text>\n\
         <text class=\"axis\" text-anchor=\"middle\" \
         transform=\"translate(12 {centre}) rotate(-90)\">{axis}</text>\n",
        HEIGHT - 8.0
    );
    for tick in ticks(low, high) {
        let (y, right) = (y(tick), WIDTH - RIGHT);
        let _ = writeln!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text class=\"tick\" text-anchor=\"end\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            LEFT - 6.0,
            y + 4.0,
            unit(tick)
        );
    }
    for size in labelled_sizes(sizes) {
        let (x, bottom) = (x(size), HEIGHT - BOTTOM);
        let _ = writeln!(
            svg,
            "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{bottom}\" y2=\"{}\"/>\
             <text class=\"tick\" text-anchor=\"middle\" x=\"{x:.1}\" y=\"{}\">{}</text>",
            bottom + 4.0,
            bottom + 18.0,
            units::size(size)
        );
    }
    for line in lines {
        let Line { name, adapter, nth, points } = line;
        let mut points: Vec<_> = points.iter().filter(|point| point.value > 0.0).collect();
        points.sort_by_key(|point| point.size);
        let path: Vec<String> = points
            .iter()
            .map(|point| format!("{:.1},{:.1}", x(point.size), y(point.value)))
            .collect();
        let dash = DASHES[nth % DASHES.len()];
        let _ = writeln!(
            svg,
            "<polyline class=\"a{adapter}\" stroke-dasharray=\"{dash}\" points=\"{}\"/>",
            path.join(" ")
        );
        for PlotPoint { size, value, text, is_noisy, other_state } in points {
            let label = format!("{}, {}", escaped(name), units::size(*size));
            let (class, remark) = if *is_noisy { (" noisy", ", noisy") } else { ("", "") };
            let _ = writeln!(
                svg,
                "<circle class=\"a{adapter}{class}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\">\
                 <title>{label}: {text}{remark}</title></circle>",
                x(*size),
                y(*value),
            );
            if let Some((value, text)) = other_state.as_ref().filter(|(value, _)| *value > 0.0) {
                let _ = writeln!(
                    svg,
                    "<rect class=\"a{adapter}\" x=\"{:.1}\" y=\"{:.1}\" width=\"5\" \
                     height=\"5\"><title>{label}, other state: {text}</title></rect>",
                    x(*size) - 2.5,
                    y(*value) - 2.5,
                );
            }
        }
    }
    svg += "</svg>\n<figcaption>";
    for Line { name, adapter, nth, .. } in lines {
        let dash = DASHES[nth % DASHES.len()];
        let _ = write!(
            svg,
            "<span><svg class=\"key\" viewBox=\"0 0 26 8\"><polyline class=\"a{adapter}\" \
             stroke-dasharray=\"{dash}\" points=\"0,4 26,4\"/></svg>{}</span> ",
            escaped(name)
        );
    }
    svg += "</figcaption>\n</figure>\n";
    svg
}

/// Returns round numbers between two logarithms: up to five per power of ten, fewer in a wide
/// range.
fn ticks(low: f64, high: f64) -> Vec<f64> {
    let steps: &[f64] = match high - low {
        wide if wide > 2.5 => &[1.0],
        wide if wide > 1.2 => &[1.0, 3.0],
        _ => &[1.0, 2.0, 3.0, 5.0, 7.0],
    };
    let powers = low.floor() as i32..=high.ceil() as i32;
    let all = powers.flat_map(|power| steps.iter().map(move |step| step * 10f64.powi(power)));
    all.filter(|tick| (low..=high).contains(&tick.log10())).collect()
}

/// Returns the message sizes that get a label on the axis: at most 7, evenly spread.
fn labelled_sizes(sizes: &BTreeSet<usize>) -> Vec<usize> {
    let every = sizes.len().div_ceil(7).max(1);
    sizes.iter().copied().step_by(every).collect()
}

fn table(document: &Document) -> String {
    let mut table = "<h2>Figures</h2>\n<table>\n\
                     <tr><th>operation<th>size<th>depth<th>connections<th>adapter\
                     <th>p50<th>p99<th>p99.9<th>spread<th>bandwidth<th>rate<th>spread\
                     <th>client CPU<th>server CPU<th>copy<th><th></tr>\n"
        .to_owned();
    let names: Vec<String> = document.adapters.iter().map(|adapter| adapter.name.clone()).collect();
    for row in &document.points {
        let copy = row.copy.map_or_else(String::new, |copy| units::bandwidth(copy.main.median));
        let remarks = escaped(&text::remarks(row, &names).join("; "));
        for (figures, adapter) in row.figures.iter().zip(&document.adapters) {
            let latency = |time: Option<f64>| time.map_or_else(String::new, units::time);
            let spread = |spread: Option<f64>| spread.map_or_else(String::new, units::spread);
            let Times { p50, p99, p999, .. } = figures.latency;
            let cells = [
                row.operation.name().to_owned(),
                units::size(row.size),
                row.depth.to_string(),
                row.connections.to_string(),
                escaped(&adapter.name),
                units::time(p50),
                latency(p99),
                latency(p999),
                spread(figures.latency_spread),
                units::bandwidth(figures.bytes_per_second),
                units::rate(figures.operations_per_second),
                spread(figures.rate_spread),
                units::time(figures.client_cpu),
                units::time(figures.server_cpu),
                copy.clone(),
                if figures.noisy { "noisy" } else { "" }.to_owned(),
                remarks.clone(),
            ];
            let _ = writeln!(table, "<tr><td>{}</tr>", cells.join("<td>"));
        }
    }
    table + "</table>\n"
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

const STYLE: &str = "
:root { color-scheme: light dark; --ink: #1c2733; --faint: #6b7785; --grid: #e3e7eb;
  --paper: #fff; --a0: #1f6fb2; --a1: #d2691e }
@media (prefers-color-scheme: dark) {
  :root { --ink: #dfe5ea; --faint: #93a0ac; --grid: #333d47; --paper: #171c21;
    --a0: #6db3ee; --a1: #f0a060 }
}
body { font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 86em; margin: 2em auto; padding: 0 1em }
h1 { font-size: 1.5em } h2 { font-size: 1.15em; margin-top: 2em }
.notes { color: var(--faint) }
dl { display: grid; grid-template-columns: max-content auto; gap: .1em 1em }
dt { color: var(--faint) } dd { margin: 0 }
.plots { display: flex; flex-wrap: wrap; gap: 1.2em 2em }
figure { margin: 0; width: 400px }
figcaption { color: var(--faint); font-size: 12px }
figcaption span { white-space: nowrap; margin-right: .8em }
svg { width: 100%; height: auto } svg.key { width: 26px; height: 8px; margin-right: .4em }
polyline { fill: none; stroke-width: 1.8 }
polyline.a0 { stroke: var(--a0) } polyline.a1 { stroke: var(--a1) }
circle.a0, rect.a0 { fill: var(--a0) } circle.a1, rect.a1 { fill: var(--a1) }
circle.noisy { fill: var(--paper); stroke-width: 1.5 }
circle.noisy.a0 { stroke: var(--a0) } circle.noisy.a1 { stroke: var(--a1) }
.grid { stroke: var(--grid) }
text { font-size: 11px; fill: var(--faint) } text.axis { font-size: 10px }
text.title { font-size: 13px; fill: var(--ink) }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 13px }
th, td { padding: .2em .7em; text-align: right; border-bottom: 1px solid var(--grid) }
th:first-child, td:first-child, th:nth-child(5), td:nth-child(5) { text-align: left }
";

#[cfg(test)]
mod tests {
    use super::super::result::tests::{document, measured, measured_in_two_states};
    use super::*;

    #[test]
    fn axes_have_a_few_round_numbers() {
        assert_eq!(ticks(0.0, 3.0), [1.0, 10.0, 100.0, 1000.0]);
        assert_eq!(ticks(0.0, 2.0), [1.0, 3.0, 10.0, 30.0, 100.0]);
        assert_eq!(ticks(0.2, 0.8), [2.0, 3.0, 5.0]);
    }

    /// Returns the labels below the size axes, with their positions.
    fn labels(page: &str) -> Vec<Vec<(String, String)>> {
        let plots = page.split("<figure>").skip(1);
        let label = |line: &str| {
            let (_, rest) = line.split_once("<text class=\"tick\" text-anchor=\"middle\" x=\"")?;
            let (x, rest) = rest.split_once('"')?;
            let (_, text) = rest.split_once('>')?;
            Some((x.to_owned(), text.split('<').next()?.to_owned()))
        };
        plots.map(|plot| plot.lines().filter_map(label).collect()).collect()
    }

    #[test]
    fn plots_have_the_sizes_of_their_operation_below_and_name_both_axes() {
        let atomic = Measured { operation: Operation::FetchAdd, ..measured(8, 1) };
        let page =
            page(&document(vec![measured(64, 1), measured(1 << 20, 1), measured(64, 16), atomic]));
        let labels = labels(&page);
        // p99.9 has no plot, because there were too few samples for it.
        let plots = PLOTS.len() - 1;
        assert_eq!(labels.len(), 2 * plots, "{page}");
        let texts = |plot: usize| -> Vec<&str> {
            labels[plot].iter().map(|(_, text)| text.as_str()).collect()
        };
        assert_eq!((texts(0), texts(plots)), (vec!["64 B", "1 MiB"], vec!["8 B"]));
        for (first, others) in [(0, 1..plots), (plots, plots + 1..2 * plots)] {
            assert!(labels[others].iter().all(|other| *other == labels[first]), "{labels:?}");
        }
        assert_eq!(page.matches(SIZE_AXIS).count(), labels.len());
        for axis in [TIME_AXIS, "bytes per second (kB/s", "operations per second (/s"] {
            assert!(page.contains(axis), "{axis}");
        }
    }

    #[test]
    fn plots_mark_noisy_points_and_both_states() {
        let mut noisy = measured(64, 1);
        noisy.figures[0].noisy = true;
        let quiet = page(&document(vec![measured(64, 1)]));
        assert!(!quiet.contains("a0 noisy") && !quiet.contains("<rect"), "{quiet}");
        let page = page(&document(vec![noisy, measured_in_two_states(4096, 1)]));
        // The four figures that every row has: p50, bandwidth, rate, processor time; and p99.
        assert_eq!(page.matches("<circle class=\"a0 noisy\"").count(), 5, "{page}");
        assert!(page.contains("<title>tcp-emu depth 1, 64 B: 999 µs, noisy</title>"), "{page}");
        // p50, bandwidth and rate have another state.
        assert_eq!(page.matches("<rect class=\"a0\"").count(), 3, "{page}");
        for words in [
            "<title>tcp-emu depth 1, 4 KiB, other state: 500 µs</title>",
            "<td>latency: two states, 999 µs ±4 % in 3 rounds and 500 µs ±2 % in 2; ",
            "copy: two states, 4.00 GB/s ±1 % in 3 rounds and 9.05 GB/s ±0 % in 2",
        ] {
            assert!(page.contains(words), "{words}: {page}");
        }
    }

    #[test]
    fn a_page_says_when_and_on_what_it_was_measured() {
        let page = page(&document(vec![measured(64, 1)]));
        for words in [
            "<dt>date<dd>2026-11-25T07:03:04Z",
            "<dt>version<dd>0.1.0",
            "<dt>command<dd>dat bench --html 'a &lt;b&gt;'",
            "<dt>CPU<dd>A CPU, 2 processors",
            "<dt>kernel<dd>Linux 6.1",
        ] {
            assert!(page.contains(words), "{words}: {page}");
        }
        assert!(page.contains("<td>±4 %") && !page.contains("<script"), "{page}");
    }
}
