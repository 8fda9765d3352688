//! The results of experiments, in tables that are reviewed like code. A change of the engine
//! changes them: `INSTA_UPDATE=always cargo test -p simulation --test golden` writes them anew.
//!
//! A table has a line for each scenario, with the text that `dat bench --network` takes, and below
//! it a line for each protocol. Below these lines are the bars that apply, with softroce's results.
#![forbid(unsafe_code)]

use std::fmt::Write;
use std::time::Duration;

use simulation::{Bar, Protocol, Report, Scenario, bars, run};

const ALL: [Protocol; 4] = [Protocol::OpenDat, Protocol::Cubic, Protocol::Reno, Protocol::Rxe];

/// Returns the table of these scenarios, each with the protocols that suit it.
fn table(protocols: &[Protocol], scenarios: impl IntoIterator<Item = String>) -> String {
    let mut table = String::new();
    let mut line = |cells: [&str; 10]| {
        let [first, rest @ ..] = cells;
        write!(table, "  {first:<8}").expect("a string takes everything");
        rest.iter().zip([9, 9, 7, 6, 15, 8, 8, 8, 6]).for_each(|(cell, width)| {
            write!(table, " {cell:>width$}").expect("a string takes everything");
        });
        table.push('\n');
    };
    line([
        "",
        "time",
        "Mbit/s",
        "waste",
        "Jain",
        "queue mean/max",
        "p99",
        "dropped",
        "marked",
        "open",
    ]);
    for text in scenarios {
        let scenario: Scenario = text.parse().unwrap_or_else(|error| panic!("{error}"));
        let suited = protocols.iter().filter(|&&protocol| scenario.suits(protocol));
        let reports: Vec<Report> = suited.map(|&protocol| run(&scenario, protocol)).collect();
        writeln!(table, "{text}").expect("a string takes everything");
        for report in &reports {
            table.push_str(&row(report));
        }
        table.push_str(&verdicts(&scenario, &reports));
    }
    table
}

/// Returns a line for each bar that applies.
fn verdicts(scenario: &Scenario, reports: &[Report]) -> String {
    let line = |bar: Bar| {
        let verdict = if bar.is_met() { "met" } else { "MISSED" };
        let sign = if bar.is_minimum { ">=" } else { "<=" };
        format!("    {verdict}: {} {:.3} {sign} {}\n", bar.what, bar.value, bar.limit)
    };
    bars(scenario, reports).into_iter().map(line).collect()
}

/// Returns the line of a report.
fn row(report: &Report) -> String {
    let kib = |octets: u64| format!("{:.0}K", octets as f64 / 1024.0);
    let cells = [
        time(report.elapsed),
        format!("{:.1}", report.goodput as f64 / 1e6),
        format!("{:.1}%", report.waste * 100.0),
        format!("{:.3}", report.fairness),
        format!("{}/{}", kib(report.queue_mean), kib(report.queue_max)),
        time(report.completion_p99),
        report.dropped.to_string(),
        report.marked.to_string(),
        report.unfinished.to_string(),
    ];
    let mut line = format!("  {:<8}", report.protocol.word());
    for (cell, width) in cells.iter().zip([9, 9, 7, 6, 15, 8, 8, 8, 6]) {
        write!(line, " {cell:>width$}").expect("a string takes everything");
    }
    for (protocol, goodput) in &report.cross {
        write!(line, "  {protocol} {:.1} Mbit/s", *goodput as f64 / 1e6)
            .expect("a string takes everything");
    }
    let mut failures = report.failures.clone();
    failures.dedup();
    for failure in failures {
        write!(line, "  {failure}").expect("a string takes everything");
    }
    line + "\n"
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

#[test]
fn flows() {
    let network = "rate=200mbit,delay=500us,queue=128K,flows={},size=64K,depth=4,time=2s";
    insta::assert_snapshot!(table(&ALL, each(network, &["1", "2", "8", "10", "20", "100"])));
}

#[test]
fn loss() {
    let near = "rate=1gbit,delay=50us,queue=256K,loss={},messages=16,depth=4,seed=1";
    let far = "rate=100mbit,delay=10ms,queue=256K,loss={},messages=24,depth=4,seed=1";
    let losses = ["0%", "0.1%", "1%", "2%", "5%"];
    insta::assert_snapshot!(table(&ALL, [each(near, &losses), each(far, &losses)].concat()));
}

#[test]
fn delay() {
    let network = "rate=1gbit,delay={},queue=1M,messages=32,depth=8";
    let delays = ["50us", "500us", "5ms", "50ms"];
    insta::assert_snapshot!(table(&ALL, each(network, &delays)));
}

#[test]
fn rate() {
    let network = "rate={},messages=32,depth=8";
    let rates = [
        "100mbit,delay=50us,queue=64K",
        "1gbit,delay=50us,queue=128K",
        "10gbit,delay=50us,queue=512K,mtu=9000",
        "100gbit,delay=50us,queue=4M,mtu=9000",
    ];
    insta::assert_snapshot!(table(&ALL, each(network, &rates)));
}

#[test]
fn incast() {
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
    insta::assert_snapshot!(table(&ALL, each(network, &loads)));
}

#[test]
fn receiver_not_ready() {
    let scenarios = [
        "rate=10gbit,delay=5us,operation=send,receives=none,size=1M,depth=4,time=100ms",
        "rate=10gbit,delay=5us,operation=send,receives=none,size=64,depth=16,time=100ms",
        "rate=10gbit,delay=5us,operation=send,receives=one,size=64,messages=1000",
        "rate=10gbit,delay=5us,operation=send,receives=one,size=64,messages=1000,depth=16",
        "rate=1gbit,delay=500us,operation=send,receives=one,size=64K,messages=50,depth=4",
    ];
    insta::assert_snapshot!(table(&ALL, scenarios.map(str::to_owned)));
}

#[test]
fn reordering() {
    let network = "rate=200mbit,{},depth=4,seed=1";
    let paths = [
        "delay=500us,queue=128K,reorder=5%,messages=8",
        "delay=10ms,queue=512K,reorder=5%,messages=8",
        "delay=500us,queue=128K,paths=2,skew=100us,balance=packet,messages=1",
    ];
    insta::assert_snapshot!(table(&ALL, each(network, &paths)));
}

#[test]
fn marks() {
    let network = "rate=200mbit,delay=500us,{},depth=4,size=64K,time=3s";
    let queues = [
        "queue=256K,mark=32K,flows=2",
        "queue=256K,mark=32K,flows=10",
        "queue=256K,red=30K-90K,flows=2",
    ];
    insta::assert_snapshot!(table(&ALL, each(network, &queues)));
}

/// Flows of softroce beside flows of TCP.
#[test]
fn beside_tcp() {
    let network = "rate=200mbit,delay=500us,queue=128K,flows=4,{}=4,size=64K,depth=4,time=2s";
    insta::assert_snapshot!(table(&ALL, each(network, &["cubic", "reno"])));
}

/// rxe as it is, and softroce as its peer.
#[test]
fn rxe() {
    // The load of `ib_write_bw -s 1048576 -n 8`.
    let near = "rate=1gbit,delay=100us,queue=1M,size=1M,messages=8,depth=8,time=120s,loss={}";
    let losses =
        ["0%", "1%,seed=1", "2%,seed=1", "2%,seed=2", "3%,seed=1", "5%,seed=1", "5%,seed=2"];
    let between = |peer: &str| -> Vec<String> {
        each(near, &losses).iter().map(|text| format!("{text},peer={peer}")).collect()
    };
    let from_rxe = table(&[Protocol::Rxe], [between("same"), between("opendat")].concat());
    insta::assert_snapshot!(from_rxe + &table(&[Protocol::OpenDat], between("rxe")));
}

/// The bars, each in the network for which it was set. docs/softroce.md quotes the lines between
/// the two marks.
#[test]
fn summary() {
    let mut summary = String::from("ANCHOR: bars\n");
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
        let scenario: Scenario = text.parse().unwrap_or_else(|error| panic!("{error}"));
        let suited = [Protocol::OpenDat, Protocol::Cubic];
        let suited = suited.into_iter().filter(|&protocol| scenario.suits(protocol));
        let reports: Vec<Report> = suited.map(|protocol| run(&scenario, protocol)).collect();
        summary += &format!("{text}\n{}", verdicts(&scenario, &reports));
    }
    insta::assert_snapshot!(summary + "ANCHOR_END: bars\n");
}

/// All combinations of flows, losses and round trips at this rate. The queue holds what the path
/// holds in a round trip, within limits.
fn combinations(megabits: u64, mtu: usize) -> String {
    let mut scenarios = Vec::new();
    for micros in [50, 500, 5_000, 50_000] {
        let queue = (megabits * 2 * micros / 8 / 1024).clamp(128, 64 << 10);
        for loss in ["0%", "0.1%", "1%", "5%"] {
            for (flows, messages) in [(1, 64), (2, 32), (8, 8), (20, 3), (100, 1)] {
                scenarios.push(format!(
                    "rate={megabits}mbit,delay={micros}us,loss={loss},queue={queue}K,mtu={mtu},\
                     flows={flows},size=256K,messages={messages},depth=4,seed=1"
                ));
            }
        }
    }
    table(&[Protocol::OpenDat, Protocol::Cubic], scenarios)
}

#[test]
fn combinations_at_100_megabits() {
    insta::assert_snapshot!(combinations(100, 1500));
}

#[test]
fn combinations_at_a_gigabit() {
    insta::assert_snapshot!(combinations(1_000, 1500));
}

#[test]
fn combinations_at_10_gigabits() {
    insta::assert_snapshot!(combinations(10_000, 9000));
}

#[test]
fn combinations_at_100_gigabits() {
    insta::assert_snapshot!(combinations(100_000, 9000));
}
