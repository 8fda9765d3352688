//! The results of experiments, in tables that are reviewed like code. A change of the engine
//! changes them: `INSTA_UPDATE=always cargo test -p simulation --test golden` writes them anew.
//!
//! A table has a line for each scenario, with the text that `cargo xtask network` takes, and below
//! it a line for each protocol. Below these lines are the bars that apply, with softroce's results.
//! `known_misses` counts the missed bars of all tables, so it fails if another bar is missed and if
//! one of these is met.
#![forbid(unsafe_code)]

use std::sync::LazyLock;
use std::time::Duration;

use simulation::{Bar, Protocol, Report, Scenario, bars, run};

const ALL: [Protocol; 4] = [Protocol::OpenDat, Protocol::Cubic, Protocol::Reno, Protocol::Rxe];

/// The results of some scenarios.
struct GoldenTable {
    name: String,
    text: String,
    /// Each bar, with the text of its scenario.
    bars: Vec<(String, Bar)>,
}

impl GoldenTable {
    fn new(name: impl Into<String>) -> Self {
        GoldenTable { name: name.into(), text: String::new(), bars: Vec::new() }
    }

    fn line(&mut self, line: &str) {
        self.text += line;
        self.text.push('\n');
    }

    /// Runs a scenario with the protocols that suit it. Adds its bars to those of the table.
    fn run(&mut self, text: &str, protocols: &[Protocol]) -> (Vec<Report>, Vec<Bar>) {
        let scenario: Scenario = text.parse().unwrap_or_else(|error| panic!("{error}"));
        let suited = protocols.iter().filter(|&&protocol| scenario.suits(protocol));
        let reports: Vec<Report> = suited.map(|&protocol| run(&scenario, protocol)).collect();
        let bars = bars(&scenario, &reports);
        self.bars.extend(bars.iter().map(|bar| (text.to_owned(), bar.clone())));
        (reports, bars)
    }

    /// Adds a line for each scenario, for each of its protocols and for each of its bars.
    fn with(mut self, protocols: &[Protocol], scenarios: impl IntoIterator<Item = String>) -> Self {
        let head =
            ["time", "Mbit/s", "waste", "Jain", "queue mean/max", "p99", "dropped", "marked"];
        self.line(&cells("", head.map(str::to_owned), "open"));
        for text in scenarios {
            let (reports, bars) = self.run(&text, protocols);
            self.line(&text);
            reports.iter().for_each(|report| self.line(&row(report)));
            bars.iter().for_each(|bar| self.line(&verdict(bar)));
        }
        self
    }
}

fn cells(first: &str, middle: [String; 8], last: &str) -> String {
    let mut line = format!("  {first:<8}");
    for (cell, width) in middle.iter().zip([9, 9, 7, 6, 15, 8, 8, 8]) {
        line += &format!(" {cell:>width$}");
    }
    line + &format!(" {last:>6}")
}

/// Returns the line of a bar.
fn verdict(bar: &Bar) -> String {
    let verdict = if bar.is_met() { "met" } else { "MISSED" };
    format!("    {verdict}: {} {:.3} {} {}", bar.what, bar.value, sign(bar), bar.limit)
}

fn sign(bar: &Bar) -> &'static str {
    if bar.is_minimum { ">=" } else { "<=" }
}

/// Returns the line of a report.
fn row(report: &Report) -> String {
    let kib = |octets: u64| format!("{:.0}K", octets as f64 / 1024.0);
    let middle = [
        time(report.elapsed),
        format!("{:.1}", report.goodput as f64 / 1e6),
        format!("{:.1}%", report.waste * 100.0),
        format!("{:.3}", report.fairness),
        format!("{}/{}", kib(report.queue_mean), kib(report.queue_max)),
        time(report.completion_p99),
        report.dropped.to_string(),
        report.marked.to_string(),
    ];
    let mut line = cells(report.protocol.word(), middle, &report.unfinished.to_string());
    for (protocol, goodput) in &report.cross_traffic {
        line += &format!("  {protocol} {:.1} Mbit/s", *goodput as f64 / 1e6);
    }
    let mut failures = report.failures.clone();
    failures.dedup();
    failures.iter().for_each(|failure| line += &format!("  {failure}"));
    line
}

fn time(time: Duration) -> String {
    match time.as_secs_f64() {
        seconds if seconds >= 1.0 => format!("{seconds:.2}s"),
        seconds if seconds >= 1e-3 => format!("{:.2}ms", seconds * 1e3),
        seconds => format!("{:.1}us", seconds * 1e6),
    }
}

/// Returns the texts in which `{}` stands for each of the values.
fn each(template: &str, values: &[&str]) -> Vec<String> {
    values.iter().map(|value| template.replace("{}", value)).collect()
}

static FLOWS: LazyLock<GoldenTable> = LazyLock::new(|| {
    let network = "rate=200mbit,delay=500us,queue=128K,flows={},size=64K,depth=4,time=2s";
    GoldenTable::new("flows").with(&ALL, each(network, &["1", "2", "8", "10", "20", "100"]))
});

static LOSS: LazyLock<GoldenTable> = LazyLock::new(|| {
    let near = "rate=1gbit,delay=50us,queue=256K,loss={},messages=16,depth=4,seed=1";
    let far = "rate=100mbit,delay=10ms,queue=256K,loss={},messages=24,depth=4,seed=1";
    let losses = ["0%", "0.1%", "1%", "2%", "5%"];
    GoldenTable::new("loss").with(&ALL, [each(near, &losses), each(far, &losses)].concat())
});

static DELAY: LazyLock<GoldenTable> = LazyLock::new(|| {
    let network = "rate=1gbit,delay={},queue=1M,messages=32,depth=8";
    GoldenTable::new("delay").with(&ALL, each(network, &["50us", "500us", "5ms", "50ms"]))
});

static RATE: LazyLock<GoldenTable> = LazyLock::new(|| {
    let network = "rate={},messages=32,depth=8";
    let rates = [
        "100mbit,delay=50us,queue=64K",
        "1gbit,delay=50us,queue=128K",
        "10gbit,delay=50us,queue=512K,mtu=9000",
        "100gbit,delay=50us,queue=4M,mtu=9000",
    ];
    GoldenTable::new("rate").with(&ALL, each(network, &rates))
});

static INCAST: LazyLock<GoldenTable> = LazyLock::new(|| {
    let network = "rate=200mbit,delay=100us,{}";
    let loads = [
        "queue=128K,operation=read,flows=8,size=1M,messages=4",
        "queue=64K,operation=read,flows=8,size=1M,messages=4",
        "queue=128K,operation=read,flows=20,size=256K,messages=4",
        "queue=64K,operation=read,flows=20,size=256K,messages=4",
        "queue=128K,operation=write,flows=20,size=1M",
        "queue=64K,operation=write,flows=20,size=1M",
        "queue=128K,operation=send,flows=20,size=1M",
        "queue=128K,operation=send,flows=100,size=64K",
    ];
    GoldenTable::new("incast").with(&ALL, each(network, &loads))
});

static RECEIVER_NOT_READY: LazyLock<GoldenTable> = LazyLock::new(|| {
    let scenarios = [
        "rate=10gbit,delay=5us,operation=send,receives=none,size=1M,depth=4,time=100ms",
        "rate=10gbit,delay=5us,operation=send,receives=none,size=64,depth=16,time=100ms",
        "rate=10gbit,delay=5us,operation=send,receives=one,size=64,messages=1000",
        "rate=10gbit,delay=5us,operation=send,receives=one,size=64,messages=1000,depth=16",
        "rate=1gbit,delay=500us,operation=send,receives=one,size=64K,messages=50,depth=4",
    ];
    GoldenTable::new("receiver not ready").with(&ALL, scenarios.map(str::to_owned))
});

static REORDERING: LazyLock<GoldenTable> = LazyLock::new(|| {
    let network = "rate=200mbit,{},depth=4,seed=1";
    let paths = [
        "delay=500us,queue=128K,reorder=5%,messages=8",
        "delay=10ms,queue=512K,reorder=5%,messages=8",
        "delay=500us,queue=128K,paths=2,skew=100us,balance=packet,messages=1",
    ];
    GoldenTable::new("reordering").with(&ALL, each(network, &paths))
});

static MARKS: LazyLock<GoldenTable> = LazyLock::new(|| {
    let network = "rate=200mbit,delay=500us,{},depth=4,size=64K,time=3s";
    let queues = [
        "queue=256K,mark=32K,flows=2",
        "queue=256K,mark=32K,flows=10",
        "queue=256K,red=30K-90K,flows=2",
        "queue=256K,mark=32K,operation=read,flows=2",
    ];
    GoldenTable::new("marks").with(&ALL, each(network, &queues))
});

static CROSS_TRAFFIC: LazyLock<GoldenTable> = LazyLock::new(|| {
    let network = "rate=200mbit,delay=500us,queue=128K,flows=4,{}=4,size=64K,depth=4,time=2s";
    GoldenTable::new("cross traffic").with(&ALL, each(network, &["cubic", "reno"]))
});

/// rxe as it is, and softroce as its peer, with the load of `ib_write_bw -s 1048576 -n 8`.
static RXE: LazyLock<GoldenTable> = LazyLock::new(|| {
    let near = "rate=1gbit,delay=100us,queue=1M,size=1M,messages=8,depth=8,time=120s,loss={}";
    let losses =
        ["0%", "1%,seed=1", "2%,seed=1", "2%,seed=2", "3%,seed=1", "5%,seed=1", "5%,seed=2"];
    let between = |peer: &str| -> Vec<String> {
        each(near, &losses).iter().map(|text| format!("{text},peer={peer}")).collect()
    };
    GoldenTable::new("rxe")
        .with(&[Protocol::Rxe], [between("same"), between("opendat")].concat())
        .with(&[Protocol::OpenDat], between("rxe"))
});

static COMBINATIONS: LazyLock<[GoldenTable; 4]> = LazyLock::new(|| {
    let rates = [("100mbit", 100), ("1gbit", 1_000), ("10gbit", 10_000), ("100gbit", 100_000)];
    std::thread::scope(|scope| {
        let threads = rates.map(|rate| scope.spawn(move || combinations_at(rate)));
        threads.map(|thread| thread.join().expect("the simulation does not panic"))
    })
});

/// The width of the first column of the combinations.
const COMBINATION_WIDTH: usize = 58;

/// All combinations of flows, losses and round trips at this rate, also given in megabits per
/// second: a line for each loss and round trip. The queue holds what the path holds in a round
/// trip, within limits.
fn combinations_at((rate, megabits): (&str, u64)) -> GoldenTable {
    const LOADS: [(usize, usize); 5] = [(1, 64), (2, 32), (8, 8), (20, 3), (100, 1)];
    let mtu = if megabits < 10_000 { 1500 } else { 9000 };
    let mut all = GoldenTable::new(format!("combinations at {rate}"));
    for (delay, micros) in [("50us", 50), ("500us", 500), ("5ms", 5_000), ("50ms", 50_000)] {
        let queue = (megabits * 2 * micros / 8 / 1024).clamp(128, 64 << 10);
        for loss in ["0%", "0.1%", "1%", "5%"] {
            let network = format!("rate={rate},delay={delay},loss={loss},queue={queue}K,mtu={mtu}");
            let mut line = format!("{network:<COMBINATION_WIDTH$}");
            for (flows, messages) in LOADS {
                let text =
                    format!("{network},flows={flows},size=256K,messages={messages},depth=4,seed=1");
                let (reports, bars) = all.run(&text, &[Protocol::OpenDat, Protocol::Cubic]);
                let [ours, cubic] = &reports[..] else { panic!("{text}") };
                let cell = match ours.unfinished {
                    0 => format!("{:.2}", ours.elapsed.as_secs_f64() / cubic.elapsed.as_secs_f64()),
                    _ => "open".to_owned(),
                };
                let mark = if bars.iter().all(Bar::is_met) { ' ' } else { '!' };
                line += &format!(" {cell:>6}{mark}");
            }
            all.line(line.trim_end());
        }
    }
    all
}

/// The bars, each in the network for which it was set.
static SUMMARY: LazyLock<GoldenTable> = LazyLock::new(|| {
    let mut table = GoldenTable::new("summary");
    for text in [
        "rate=200mbit,delay=100us,queue=128K,operation=read,flows=8,size=1M",
        "rate=200mbit,delay=100us,queue=64K,operation=read,flows=20,size=256K",
        "rate=200mbit,delay=100us,queue=128K,operation=write,flows=20,size=1M",
        "rate=200mbit,delay=500us,queue=128K,flows=10,size=64K,depth=4,time=4s",
        "rate=100mbit,delay=10ms,queue=256K,loss=1%,messages=24,depth=4,seed=1",
        "rate=200mbit,delay=500us,queue=128K,reorder=5%,messages=8,depth=4,seed=1",
        "rate=200mbit,delay=500us,queue=256K,mark=32K,flows=2,size=64K,depth=4,time=3s",
        "rate=10gbit,delay=5us,operation=send,receives=none,size=1M,depth=4,time=100ms",
        "rate=10gbit,delay=5us,operation=send,receives=one,size=64,messages=1000,depth=16",
    ] {
        let (_, bars) = table.run(text, &[Protocol::OpenDat, Protocol::Cubic]);
        table.line(text);
        bars.iter().for_each(|bar| table.line(&verdict(bar)));
    }
    let from_rxe = "rate=1gbit,delay=100us,loss=2%,messages=8,depth=8,peer=opendat,seed=1";
    let (_, bars) = table.run(from_rxe, &[Protocol::Rxe]);
    table.line(from_rxe);
    bars.iter().for_each(|bar| table.line(&verdict(bar)));
    table
});

#[test]
fn combinations() {
    let mut page = String::from(
        "\
The time of softroce as a multiple of CUBIC's: 1 flow with 64 messages, 2 flows with 32 messages
each, 8 with 8, 20 with 3, and 100 with 1; size=256K,depth=4,seed=1. `open` means that flows of
softroce are unfinished after 120 s, and a mark (!) that a bar is missed.
",
    );
    page += &format!(
        "{:<COMBINATION_WIDTH$} {:>6}  {:>6}  {:>6}  {:>6}  {:>6}\n",
        "flows", 1, 2, 8, 20, 100
    );
    COMBINATIONS.iter().for_each(|table| page += &table.text);
    insta::assert_snapshot!(page);
}

#[test]
fn flows() {
    insta::assert_snapshot!(FLOWS.text);
}

#[test]
fn loss() {
    insta::assert_snapshot!(LOSS.text);
}

#[test]
fn delay() {
    insta::assert_snapshot!(DELAY.text);
}

#[test]
fn rate() {
    insta::assert_snapshot!(RATE.text);
}

#[test]
fn incast() {
    insta::assert_snapshot!(INCAST.text);
}

#[test]
fn receiver_not_ready() {
    insta::assert_snapshot!(RECEIVER_NOT_READY.text);
}

#[test]
fn reordering() {
    insta::assert_snapshot!(REORDERING.text);
}

#[test]
fn marks() {
    insta::assert_snapshot!(MARKS.text);
}

#[test]
fn cross_traffic() {
    insta::assert_snapshot!(CROSS_TRAFFIC.text);
}

#[test]
fn rxe() {
    insta::assert_snapshot!(RXE.text);
}

#[test]
fn summary() {
    insta::assert_snapshot!(SUMMARY.text);
}

/// The bars that are missed: for each table and bar, the number of scenarios that miss it, the
/// worst value, and the scenario of that value.
#[test]
fn known_misses() {
    let tables: [&GoldenTable; 11] = [
        &SUMMARY,
        &FLOWS,
        &LOSS,
        &DELAY,
        &RATE,
        &INCAST,
        &RECEIVER_NOT_READY,
        &REORDERING,
        &MARKS,
        &CROSS_TRAFFIC,
        &RXE,
    ];
    let misses = tables.into_iter().chain(&*COMBINATIONS).map(misses);
    insta::assert_snapshot!(misses.collect::<String>());
}

/// Returns two lines for each bar that a scenario of the table misses.
fn misses(table: &GoldenTable) -> String {
    let mut whats: Vec<&str> = table.bars.iter().map(|(_, bar)| bar.what).collect();
    whats.sort_unstable();
    whats.dedup();
    let lines = |what| {
        let all = table.bars.iter().filter(|(_, bar)| bar.what == what);
        let missed: Vec<_> = all.clone().filter(|(_, bar)| !bar.is_met()).collect();
        let (text, bar) = missed.iter().max_by(|(_, a), (_, b)| excess(a).total_cmp(&excess(b)))?;
        Some(format!(
            "{}: {} of {} miss {what} {} {}, the worst with {:.3}\n    {text}\n",
            table.name,
            missed.len(),
            all.count(),
            sign(bar),
            bar.limit,
            bar.value,
        ))
    };
    whats.into_iter().filter_map(lines).collect()
}

/// How far a value is beyond its limit.
fn excess(bar: &Bar) -> f64 {
    if bar.is_minimum { bar.limit - bar.value } else { bar.value - bar.limit }
}
