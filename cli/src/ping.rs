//! `dat ping`: whether a peer answers, and how long it takes, in percentiles.

use std::net::{SocketAddr, ToSocketAddrs};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};

use crate::link::Link;
use crate::measure::{Operation, Role, WORD, Wait, latency};
use crate::output::{print, print_json};
use crate::pair::Pair;
use crate::parent::say;
use crate::peer::{self, Facts, Plan, Said};
use crate::progress::Progress;
use crate::raw::Raw;
use crate::table::{Colour, colour};
use crate::times::Times;
use crate::{Common, cpu, serve, units};

/// Bytes of a message.
const LARGEST: u32 = 1 << 24;
/// How often it is sent.
const MOST: u32 = 10_000_000;
/// After so many the client says how far it is.
const SLICE: usize = 1000;

#[derive(Args)]
pub(crate) struct Options {
    /// The host, where `dat serve` runs, and its port after a colon if it is another than 7471; without it a process on this host
    #[arg(value_name = "HOST")]
    host: Option<String>,
    #[command(flatten)]
    common: Common,
    /// Bytes of a message: 64; 8 of an atomic operation
    #[arg(long, short, value_parser = crate::bench::size)]
    size: Option<usize>,
    /// How often
    #[arg(long, short, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST)))]
    count: u32,
    /// What is done
    #[arg(long, short, value_enum, default_value = "send")]
    operation: Operation,
    /// Sleep while waiting, where the default is to poll if there are two processors
    #[arg(long)]
    block: bool,
}

/// What both processes do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Work {
    pub(crate) size: usize,
    count: usize,
    operation: Operation,
}

#[derive(Serialize)]
struct Document<'a> {
    adapter: &'a str,
    provider: &'a str,
    /// Where the peer is.
    address: String,
    operation: Operation,
    size: usize,
    count: u32,
    wait: Wait,
    /// Seconds, there and back.
    times: Times,
}

/// Pings; an error is that nobody answers.
pub(crate) fn run(options: &Options) -> Result<bool> {
    crate::say_mistakes();
    let Options { common, count, operation, .. } = options;
    let size = options.size.unwrap_or(if operation.is_atomic() { WORD } else { 64 });
    let host = options.host.as_deref().map(resolve).transpose()?;
    let address = match host {
        None => common.address(&[])?.to_string(),
        Some(host) => host.ip().to_string(),
    };
    let wait = if options.block || cpu::two().is_none() { Wait::Block } else { Wait::Poll };
    // Whoever asks for another size is told.
    ensure!(
        !operation.is_atomic() || size == WORD,
        "{} is of {WORD} bytes: add --size {WORD}",
        operation.name()
    );
    let work = Work { size, count: *count as usize, operation: *operation };
    let plan = Plan {
        role: Role::Server,
        adapters: vec![common.adapter.clone()],
        address: address.clone(),
        server: None,
        cpu: None,
        wait,
        raw_wait: Wait::Block,
        work: peer::Work::Ping(work),
    };
    let mut pair = Pair::start_with(&plan, &[], host)?;
    let (mut facts, mut times) = (Facts::default(), None);
    let progress = Progress::new(*count as usize);
    while let Some(said) = pair.next()? {
        match said {
            (Role::Client, Said::Connected(said)) => facts = said,
            (Role::Client, Said::Progress(done)) => progress.show(done),
            (Role::Client, Said::Pinged(said)) => times = Some(said),
            _ => {}
        }
    }
    drop(progress);
    let times = times.context("the client process has measured nothing")?;
    let document = Document {
        adapter: &common.adapter,
        provider: facts.provider(),
        address,
        operation: *operation,
        size,
        count: *count,
        wait,
        times,
    };
    match common.json {
        true => print_json(&document)?,
        false => print(&text(&document))?,
    }
    Ok(true)
}

pub(crate) fn resolve(host: &str) -> Result<SocketAddr> {
    ensure!(!host.trim().is_empty(), "the host is an empty text; without a host, leave the argument out");
    if let Some((name, port)) = host.rsplit_once(':')
        && (!name.contains(':') || name.ends_with(']'))
    {
        let is_port = port.parse::<u16>().is_ok_and(|port| port != 0);
        ensure!(
            is_port,
            "{port:?} is no port: expected a number from 1 to 65535 after the colon, as in {name}:{}",
            serve::PORT
        );
    }
    let found = match host.to_socket_addrs() {
        Ok(found) => Ok(found),
        Err(_) => (host, serve::PORT).to_socket_addrs(),
    };
    let found = found.with_context(|| {
        format!("finding {host}: expected a host name or an address, as in 192.0.2.7 or node7:7471")
    })?;
    let all: Vec<SocketAddr> = found.collect();
    // Both providers of ours serve IPv4 unless they are told otherwise.
    let best = all.iter().find(|address| address.is_ipv4()).or(all.first());
    best.copied().with_context(|| format!("{host} has no address"))
}

fn text(document: &Document<'_>) -> String {
    let Document { adapter, address, operation, size, count, times, .. } = document;
    let head = format!(
        "{count} times {} of {} between this process and {address}, over {adapter}",
        operation.name(),
        units::size(*size)
    );
    let Times { samples: _, min, p50, p90, p99, p999, max, mean } = *times;
    let rows = [
        ("min", Some(min)),
        ("p50", Some(p50)),
        ("p90", p90),
        ("p99", p99),
        ("p99.9", p999),
        ("max", Some(max)),
        ("mean", Some(mean)),
    ];
    let line = rows.iter().filter_map(|(name, value)| Some(format!("{name} {}", units::time((*value)?))));
    let line: Vec<String> = line.collect();
    format!(
        "{}\n{}\n{}\n",
        colour(&head, Colour::Strong),
        line.join("  "),
        colour("there and back", Colour::Faint)
    )
}

impl Work {
    /// As the command line lets it be; a caller of `dat serve` may say anything.
    pub(crate) fn is_sound(&self) -> bool {
        (1..=LARGEST as usize).contains(&self.size) && (1..=MOST as usize).contains(&self.count)
    }

    /// The part of one process.
    pub(crate) fn run(&self, link: &mut Link, raw: &mut Raw, role: Role) -> Result<()> {
        raw.barrier()?;
        let warm = latency(link, role, self.operation, self.size, self.count.min(100), 1)?;
        drop(warm);
        raw.barrier()?;
        let mut times = Vec::new();
        for done in (0..self.count).step_by(SLICE) {
            times.extend(latency(link, role, self.operation, self.size, SLICE.min(self.count - done), 1)?);
            if role == Role::Client {
                say(&Said::Progress(times.len()));
            }
        }
        if role == Role::Client {
            // What is answered is there and back as it is; of the others half was measured.
            let whole = if self.operation.is_answered() { 1.0 } else { 2.0 };
            say(&Said::Pinged(Times::of(times.iter().map(|time| time * whole).collect())));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_the_port_of_dat_serve_unless_it_says_another() {
        assert_eq!(resolve("192.0.2.7").expect("an address").to_string(), "192.0.2.7:7471");
        assert_eq!(resolve("192.0.2.7:80").expect("an address").to_string(), "192.0.2.7:80");
        assert_eq!(resolve("::1").expect("an address").to_string(), "[::1]:7471");
        assert_eq!(resolve("[::1]:80").expect("an address").to_string(), "[::1]:80");
        let why = |host: &str| resolve(host).expect_err("no host").to_string();
        assert!(why("no such host").contains("expected a host name or an address"));
        assert!(why(" ").contains("leave the argument out"));
        for port in ["99999", "0", "http", ""] {
            let host = format!("192.0.2.7:{port}");
            let why = why(&host);
            assert!(
                why.starts_with(&format!("{port:?} is no port")) && why.ends_with("as in 192.0.2.7:7471"),
                "{why}"
            );
        }
    }
}
