//! Writes the result as a page with plots: one file without scripts or external resources.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::result::{Document, Measured};
use super::text;
use crate::machine::MeasurementInfo;
use crate::operation::Operation;
use crate::times::Times;
use crate::units;
use crate::work::bench::Figures;

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
    /// The points of the line: message size, value, and the value as text.
    points: Vec<(usize, f64, String)>,
}

/// A figure that is plotted.
struct Plot {
    title: &'static str,
    /// The label of the vertical axis, with its unit.
    axis: &'static str,
    /// Formats a value.
    unit: fn(f64) -> String,
    value: fn(&Figures) -> Option<f64>,
}

const PLOTS: &[Plot] = &[
    Plot {
        title: "latency, p50",
        axis: TIME_AXIS,
        unit: units::time,
        value: |figures| Some(figures.latency.p50),
    },
    Plot {
        title: "latency, p99",
        axis: TIME_AXIS,
        unit: units::time,
        value: |figures| figures.latency.p99,
    },
    Plot {
        title: "latency, p99.9",
        axis: TIME_AXIS,
        unit: units::time,
        value: |figures| figures.latency.p999,
    },
    Plot {
        title: "bandwidth",
        axis: "bytes a second (kB/s, MB/s, GB/s)",
        unit: units::bandwidth,
        value: |figures| Some(figures.bytes_per_second),
    },
    Plot {
        title: "operations for each second",
        axis: "operations a second (/s, k/s, M/s)",
        unit: units::rate,
        value: |figures| Some(figures.operations_per_second),
    },
    Plot {
        title: "processor time of an operation, both ends",
        axis: TIME_AXIS,
        unit: units::time,
        value: |figures| Some(figures.client_cpu + figures.server_cpu),
    },
];

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
    let sizes: BTreeSet<usize> = document.points.iter().map(|row| row.size).collect();
    for operation in operations(document) {
        let rows: Vec<&Measured> =
            document.points.iter().filter(|row| row.operation == operation).collect();
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
fn lines(document: &Document, rows: &[&Measured], Plot { unit, value, .. }: &Plot) -> Vec<Line> {
    let kinds: BTreeSet<(usize, usize)> =
        rows.iter().map(|row| (row.connections, row.depth)).collect();
    let mut lines = Vec::new();
    for (adapter, subject) in document.adapters.iter().enumerate() {
        for (nth, &(connections, depth)) in kinds.iter().enumerate() {
            let of_kind =
                rows.iter().filter(|row| (row.connections, row.depth) == (connections, depth));
            let points = of_kind.filter_map(|row| {
                let value = value(&row.figures[adapter])?;
                Some((row.size, value, unit(value)))
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

/// Draws a plot. Both axes are logarithmic. All plots of a page have the same size axis.
fn plot(Plot { title, axis, unit, .. }: &Plot, sizes: &BTreeSet<usize>, lines: &[Line]) -> String {
    let all = || lines.iter().flat_map(|line| &line.points).filter(|(_, value, _)| *value > 0.0);
    let (Some(&least), Some(&most), Some(_)) = (sizes.first(), sizes.last(), all().next()) else {
        return String::new();
    };
    let low = all().map(|(_, value, _)| value.log10()).fold(f64::INFINITY, f64::min);
    let high = all().map(|(_, value, _)| value.log10()).fold(f64::NEG_INFINITY, f64::max);
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
        let mut points: Vec<_> = points.iter().filter(|(_, value, _)| *value > 0.0).collect();
        points.sort_by_key(|(size, ..)| *size);
        let path: Vec<String> = points
            .iter()
            .map(|(size, value, _)| format!("{:.1},{:.1}", x(*size), y(*value)))
            .collect();
        let dash = DASHES[nth % DASHES.len()];
        let _ = writeln!(
            svg,
            "<polyline class=\"a{adapter}\" stroke-dasharray=\"{dash}\" points=\"{}\"/>",
            path.join(" ")
        );
        for (size, value, text) in points {
            let _ = writeln!(
                svg,
                "<circle class=\"a{adapter}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\">\
                 <title>{}, {}: {text}</title></circle>",
                x(*size),
                y(*value),
                escaped(name),
                units::size(*size)
            );
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
                     <th>client CPU<th>server CPU<th></tr>\n"
        .to_owned();
    for row in &document.points {
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
                if figures.noisy { "noisy" } else { "" }.to_owned(),
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
circle.a0 { fill: var(--a0) } circle.a1 { fill: var(--a1) }
.grid { stroke: var(--grid) }
text { font-size: 11px; fill: var(--faint) } text.axis { font-size: 10px }
text.title { font-size: 13px; fill: var(--ink) }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 13px }
th, td { padding: .2em .7em; text-align: right; border-bottom: 1px solid var(--grid) }
th:first-child, td:first-child, th:nth-child(5), td:nth-child(5) { text-align: left }
";

#[cfg(test)]
mod tests {
    use super::super::result::tests::{document, measured};
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
    fn all_plots_have_the_same_sizes_below_and_name_both_axes() {
        let atomic = Measured { operation: Operation::FetchAdd, ..measured(8, 1) };
        let page =
            page(&document(vec![measured(64, 1), measured(1 << 20, 1), measured(64, 16), atomic]));
        let labels = labels(&page);
        // p99.9 has no plot, because there were too few samples for it.
        assert_eq!(labels.len(), 2 * (PLOTS.len() - 1), "{page}");
        let texts: Vec<&str> = labels[0].iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(texts, ["8 B", "64 B", "1 MiB"]);
        assert!(labels.iter().all(|others| *others == labels[0]), "{labels:?}");
        assert_eq!(page.matches(SIZE_AXIS).count(), labels.len());
        for axis in [TIME_AXIS, "bytes a second (kB/s", "operations a second (/s"] {
            assert!(page.contains(axis), "{axis}");
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
