//! `dat` without a command, which shows whether DAT works on this host, and how fast it is.

mod text;

use std::collections::VecDeque;

use anyhow::Result;
use clap::Args;
use measurement::arguments::{CommonArguments, report_registry_errors};
use measurement::cpu;
use measurement::operation::Operation;
use measurement::pair::Pair;
use measurement::peer::{ConnectionInfo, Message, Plan};
use measurement::schedule::DEFAULT_ROUNDS;
use measurement::wait_mode::{Role, WaitMode};
use serde::Serialize;

use crate::output::print_json;
use crate::progress::Progress;
use crate::tasks::demo::{self, Row, SIZES, UNMEASURED};
use crate::tasks::{Report, Task};

#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: CommonArguments,
    /// Rounds of each figure, whose median is printed; fewer than 5 are not reliable
    #[arg(long, default_value_t = DEFAULT_ROUNDS as u32, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Print a wider table, with the spread of each figure
    #[arg(long, conflicts_with = "json")]
    wide: bool,
}

/// The JSON output.
#[derive(Serialize)]
struct Document<'a> {
    adapter: &'a str,
    address: String,
    provider: &'a str,
    congestion_control: &'a str,
    rows: Vec<VerifiedRow>,
    /// The sizes that were verified for each operation, but not measured.
    also_verified: [usize; UNMEASURED.len()],
    verified: bool,
}

#[derive(Serialize)]
struct VerifiedRow {
    #[serde(flatten)]
    row: Row,
    verified: bool,
}

/// Runs the two processes. Returns whether all data arrived unchanged.
pub(crate) fn run(options: &Options) -> Result<bool> {
    report_registry_errors();
    let CommonArguments { adapter, json, .. } = &options.common;
    let address = options.common.address(&[])?;
    // On a single processor, a process that polls would take processor time from the other.
    let wait = if cpu::two_processors().is_some() { WaitMode::Poll } else { WaitMode::Block };
    let plan = Plan {
        role: Role::Server,
        adapters: vec![adapter.clone()],
        address: address.to_string(),
        server: None,
        cpu: None,
        wait,
        raw_wait: wait,
        task: Task::Demo(demo::Task {
            sizes: SIZES.to_vec(),
            unmeasured: UNMEASURED.to_vec(),
            rounds: options.rounds as usize,
        }),
    };
    let expected = SIZES.len() * Operation::ALL.len();
    let mut pair = Pair::start(&plan)?;
    let progress = Progress::new(expected);
    let mut info = ConnectionInfo::default();
    let mut rows = Vec::new();
    // A row counts only when both processes have finished it.
    let (mut measured, mut checked) = (VecDeque::new(), 0);
    while let Some(message) = pair.next_message()? {
        match message {
            (Role::Client, Message::Connected(connected)) => {
                info = connected;
                if !json {
                    progress.suspend(|| text::head(adapter, &address, &info, options.wide))?;
                }
            }
            (Role::Client, Message::Progress(done)) => progress.show(done),
            (_, Message::Report(Report::Row(Some(row)))) => measured.push_back(*row),
            (_, Message::Report(Report::Row(None))) => checked += 1,
            _ => {}
        }
        while checked > 0
            && let Some(row) = measured.pop_front()
        {
            checked -= 1;
            if !json {
                progress.suspend(|| text::row(&row, options.wide))?;
            }
            rows.push(VerifiedRow { row, verified: true });
        }
    }
    drop(progress);
    let verified = rows.len() == expected;
    if *json {
        let address = address.to_string();
        let (provider, congestion_control) = (info.provider(), &info.congestion_control);
        print_json(&Document {
            adapter,
            address,
            provider,
            congestion_control,
            rows,
            also_verified: UNMEASURED,
            verified,
        })?;
    } else {
        let rows: Vec<Row> = rows.into_iter().map(|verified| verified.row).collect();
        text::foot(verified, &info, &rows)?;
    }
    Ok(verified)
}
