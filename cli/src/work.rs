//! What the two processes do for each command. The modules do not know how a process reports to its
//! parent: they call functions that they are given.

pub(crate) mod bench;
pub(crate) mod demo;
pub(crate) mod ping;
pub(crate) mod plain;

use serde::{Deserialize, Serialize};

/// The work of the two processes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Work {
    Demo(demo::Work),
    Plain(plain::Work),
    Bench(bench::Work),
    Ping(ping::Work),
}

impl Work {
    /// Returns the size of the largest message in bytes.
    pub(crate) fn largest(&self) -> usize {
        match self {
            Work::Demo(work) => work.largest(),
            Work::Plain(work) => work.what.size(),
            Work::Bench(work) => work.largest(),
            Work::Ping(work) => work.size,
        }
    }

    /// Returns further ia_params for a second adapter of the same name, if the work needs one.
    pub(crate) fn baseline_params(&self) -> Option<&'static str> {
        match self {
            Work::Plain(work) => work.against.adapter_params(),
            Work::Demo(_) | Work::Bench(_) | Work::Ping(_) => None,
        }
    }

    /// Returns the number of connections per adapter.
    pub(crate) fn connections(&self) -> usize {
        match self {
            Work::Plain(work) => work.what.connections(),
            Work::Bench(work) => work.connections(),
            Work::Demo(_) | Work::Ping(_) => 1,
        }
    }
}
