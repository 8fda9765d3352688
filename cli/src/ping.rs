//! `dat ping`: checks whether a peer answers, and how long each answer takes.

use std::io::{Write, stdout};

use anyhow::{Result, ensure};
use clap::Args;
use measurement::arguments::{CommonArguments, report_registry_errors};
use measurement::operation::{ATOMIC_BYTES, Operation};
use measurement::pair::{Pair, Placement, exit_code_of};
use measurement::peer::{ConnectionInfo, Message, Plan};
use measurement::text_table::{Align::*, Colour, TextTable, colour, wrapped};
use measurement::wait_mode::{Role, WaitMode};
use measurement::{cpu, units};
use serde::Serialize;

use crate::arguments::{resolve, size};
use crate::output::{print, print_json};
use crate::progress::Progress;
use crate::tasks::ping::{self, MAX_COUNT, MAX_INTERVAL_SECONDS};
use crate::tasks::{Report, Task};
use crate::times::Times;

#[derive(Args)]
pub(crate) struct Options {
    /// The host where `dat serve` runs, with the port after a colon if it is not 7471; without
    /// HOST, the peer is a process on this host
    #[arg(value_name = "HOST")]
    host: Option<String>,
    #[command(flatten)]
    common: CommonArguments,
    /// Message size in bytes: 64 by default; atomic operations always use 8 bytes
    #[arg(long, short, value_parser = size)]
    size: Option<usize>,
    /// The number of messages that are measured
    #[arg(long, short, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_COUNT)))]
    count: u32,
    /// Seconds between an answer and the next message; 0 sends the next one at once. After each
    /// pause, up to 100 messages that are not measured come first, so that the time is that of a
    /// connection in use
    #[arg(long, short, value_name = "SECONDS", default_value_t = 0.1, value_parser = interval)]
    interval: f64,
    /// Print only the summary; with --json, leave out the answers
    #[arg(long, short)]
    quiet: bool,
    /// The operation to measure
    #[arg(long, short, value_enum, default_value = "send")]
    operation: Operation,
    /// Sleep while waiting; the default is to poll if there are two processors
    #[arg(long)]
    block: bool,
}

fn interval(text: &str) -> Result<f64, String> {
    let seconds =
        text.parse().ok().filter(|seconds| (0.0..=MAX_INTERVAL_SECONDS).contains(seconds));
    seconds.ok_or_else(|| format!("expected 0 to {MAX_INTERVAL_SECONDS} seconds"))
}

#[derive(Serialize)]
struct Document<'a> {
    adapter: &'a str,
    provider: &'a str,
    /// The address of the peer.
    address: String,
    operation: Operation,
    size: usize,
    /// The number of answers.
    count: usize,
    wait: WaitMode,
    /// The times of the round trips, in seconds.
    times: Times,
    /// The time of each round trip, unless --quiet is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    answers: Option<Vec<f64>>,
}

/// Runs the pings. Fails if the peer does not answer. A signal that ends the program ends the
/// pings, and the summary is that of the answers so far.
pub(crate) fn run(options: &Options) -> Result<bool> {
    report_registry_errors();
    let Options { common, count, operation, .. } = options;
    let size = options.size.unwrap_or(if operation.is_atomic() { ATOMIC_BYTES } else { 64 });
    let host = options.host.as_deref().map(resolve).transpose()?;
    let address = match host {
        None => common.address(&[])?.to_string(),
        Some(host) => host.ip().to_string(),
    };
    let wait = if options.block || cpu::two_processors().is_none() {
        WaitMode::Block
    } else {
        WaitMode::Poll
    };
    // Atomic operations have a fixed size. Another size on the command line is an error.
    ensure!(
        !operation.is_atomic() || size == ATOMIC_BYTES,
        "{} uses {ATOMIC_BYTES} bytes: use --size {ATOMIC_BYTES}",
        operation.name()
    );
    let tells_each = !options.quiet;
    let task = ping::Task {
        size,
        count: *count as usize,
        operation: *operation,
        interval: options.interval,
        tells_each,
    };
    let plan = Plan {
        role: Role::Server,
        adapters: vec![common.adapter.clone()],
        address: address.clone(),
        server: None,
        cpu: None,
        wait,
        raw_wait: WaitMode::Block,
        task: Task::Ping(task),
    };
    let processors = cpu::assign(&[], host.is_none())?;
    let mut pair = Pair::start_interruptible(&plan, Placement { params: "", host, processors })?;
    let (mut info, mut answers, mut interrupted) = (ConnectionInfo::default(), Vec::new(), None);
    let progress = Progress::new(*count as usize);
    while let Some(message) = pair.next_message()? {
        match message {
            (Role::Client, Message::Connected(connected)) => {
                info = connected;
                if !common.json {
                    let head = head(&common.adapter, &address, *operation, size);
                    progress.suspend(|| print(&format!("{}\n", colour(&head, Colour::Strong))))?;
                }
            }
            (Role::Client, Message::Report(Report::Answered(times))) => {
                for time in times {
                    answers.push(time);
                    if tells_each && !common.json {
                        progress.suspend(|| print_answer(answers.len(), time))?;
                    }
                }
                progress.show(answers.len() as f64);
            }
            (_, Message::Interrupted(signal)) => {
                interrupted = Some(signal);
                break;
            }
            _ => {}
        }
    }
    drop(progress);
    if let Some(signal) = interrupted.filter(|_| answers.is_empty()) {
        std::process::exit(exit_code_of(signal));
    }
    ensure!(!answers.is_empty(), "the client process has measured nothing");
    let document = Document {
        adapter: &common.adapter,
        provider: info.provider(),
        address,
        operation: *operation,
        size,
        count: answers.len(),
        wait,
        times: Times::of(answers.clone()),
        answers: tells_each.then_some(answers),
    };
    match common.json {
        true => print_json(&document)?,
        false => print(&summary(&document))?,
    }
    Ok(true)
}

fn head(adapter: &str, address: &str, operation: Operation, size: usize) -> String {
    let head = format!(
        "{} of {} to {address} and back, over {adapter}:",
        operation.name(),
        units::size(size)
    );
    wrapped(&head, "  ")
}

/// Prints an answer and flushes, so that a reader sees it at once, also through a pipe.
fn print_answer(number: usize, seconds: f64) -> Result<()> {
    let mut out = stdout().lock();
    writeln!(out, "answer {number}: {}", units::time(seconds))?;
    Ok(out.flush()?)
}

const TABLE: TextTable<7> = TextTable { columns: [(Right, 7); 7] };

fn summary(document: &Document<'_>) -> String {
    let Times { samples: _, min, p50, p90, p99, p999, max, mean } = document.times;
    // A percentile without enough samples is shown as "-".
    let known = |time: Option<f64>| time.map_or_else(|| "-".to_owned(), units::time);
    let cells = [
        units::time(min),
        units::time(p50),
        known(p90),
        known(p99),
        known(p999),
        units::time(max),
        units::time(mean),
    ];
    format!(
        "{}, round trip:\n{}\n{}\n",
        units::plural(document.count, "answer", "answers"),
        colour(&TABLE.row(["min", "p50", "p90", "p99", "p99.9", "max", "mean"]), Colour::Strong),
        TABLE.row(cells)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_fit_a_terminal() {
        let longest = "fe80:1234:5678:9abc:def0:1234:5678:9abc%123";
        let head = head("verbs-mlx5_0-2", longest, Operation::Send, 16 << 20);
        assert_eq!(
            head.replace("\n ", ""),
            format!("send/receive of 16 MiB to {longest} and back, over verbs-mlx5_0-2:")
        );
        let times = Times {
            samples: 10,
            min: 123e-6,
            p50: 999e-6,
            p90: Some(12.3e-3),
            p99: None,
            p999: Some(123e-3),
            max: 1.0,
            mean: 1e-3,
        };
        let (adapter, provider) = ("tcp-emu", "tcp-emu");
        let (address, operation, size) = (longest.to_owned(), Operation::Send, 64);
        let document = Document {
            adapter,
            provider,
            address,
            operation,
            size,
            count: 10,
            wait: WaitMode::Poll,
            times,
            answers: None,
        };
        let text = summary(&document);
        assert_eq!(
            text,
            "10 answers, round trip:\n\
             \x20   min      p50      p90      p99    p99.9      max     mean\n \
             123 µs   999 µs  12.3 ms        -   123 ms   1.00 s  1.00 ms\n"
        );
        assert!(
            head.lines().chain(text.lines()).all(|line| line.chars().count() <= 80),
            "{head}\n{text}"
        );
    }

    #[test]
    fn the_other_process_does_not_give_up_between_two() {
        assert_eq!([interval("0"), interval("0.1"), interval("5")], [Ok(0.0), Ok(0.1), Ok(5.0)]);
        for text in ["-1", "6", "nan", "often"] {
            assert_eq!(interval(text), Err("expected 0 to 5 seconds".to_owned()), "{text}");
        }
    }
}
