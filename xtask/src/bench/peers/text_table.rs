//! Prints the figures of the rounds as a table.

use std::fmt::Write;

use super::{Library, Row};
use crate::spread::Spread;

pub(super) const FOOT: &str = "\
Each ratio is OpenDAT to the peer within a round: the median, with the smallest and the largest
round. A bar is the ratio that a row should reach. All processes poll, and client and server have
different processors. OpenDAT: dat bench, the median of its own rounds. UCX: ucx_perftest, tag_lat
for half a round trip, tag_bw -O 64 for sends, ucp_put_bw -O 16 for writes and ucp_get -O 16 for
reads. libfabric: fi_pingpong, which prints only the mean of half a round trip. Its package has no
program for sends, writes and reads, so UCX is the better of the two there. OpenDAT has 16 writes or
reads outstanding.";

/// A row with the figures of all rounds. A peer that does not measure the row has no figures.
pub(super) struct Measured {
    pub(super) row: Row,
    pub(super) ours: Vec<f64>,
    pub(super) ucx: Vec<f64>,
    pub(super) libfabric: Vec<f64>,
}

impl Measured {
    pub(super) fn new(row: Row) -> Self {
        Self { row, ours: Vec::new(), ucx: Vec::new(), libfabric: Vec::new() }
    }

    /// Returns the spread of the ratios of OpenDAT to a peer within the rounds.
    fn ratio(&self, peer: Library) -> Option<Spread> {
        let theirs = match peer {
            Library::Ucx => &self.ucx,
            Library::Libfabric => &self.libfabric,
        };
        let ratios = self.ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs);
        (!theirs.is_empty()).then(|| Spread::of(ratios))
    }

    /// Returns the row's bar, and whether the row misses it.
    fn bar(&self) -> String {
        let Some((bar, peer)) = self.row.bar else { return String::new() };
        let name = match peer {
            Library::Ucx => "UCX",
            Library::Libfabric => "libfabric",
        };
        let is_missed = self.ratio(peer).is_some_and(|ratio| !bar.is_met_by(ratio.median));
        format!("{bar} × {name}{}", if is_missed { ", missed" } else { "" })
    }
}

pub(super) fn print(measured: &[Measured]) -> String {
    let median = |figures: &[f64]| match figures {
        [] => String::new(),
        figures => format!("{:.2}", Spread::of(figures.iter().copied()).median),
    };
    let ratio = |ratio: Option<Spread>| ratio.map_or_else(String::new, |ratio| ratio.to_string());
    let mut text =
        "| row | OpenDAT | UCX | libfabric | OpenDAT : UCX | OpenDAT : libfabric | bar |\n\
                    |---|---|---|---|---|---|---|\n"
            .to_owned();
    for row in measured {
        let figures = [&row.ours, &row.ucx, &row.libfabric].map(|figures| median(figures));
        let ratios = [Library::Ucx, Library::Libfabric].map(|peer| ratio(row.ratio(peer)));
        let (name, figures, ratios) = (row.row.name, figures.join(" | "), ratios.join(" | "));
        writeln!(text, "| {name} | {figures} | {ratios} | {} |", row.bar())
            .expect("a String grows");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::{Network, rows};
    use super::{Measured, print};

    #[test]
    fn the_table_has_medians_and_ratios_within_rounds() {
        let mut rows = rows(&Network::SharedMemory).into_iter().skip(1);
        let mut row = || Measured::new(rows.next().expect("there are three rows of 64 B"));
        let (mean, sends) = (row(), row());
        let mean = Measured {
            ours: vec![0.3, 0.6, 0.2],
            ucx: vec![0.2, 0.3, 0.2],
            libfabric: vec![0.3, 0.3, 0.4],
            ..mean
        };
        let sends = Measured { ours: vec![9.0], ucx: vec![6.0], ..sends };
        let alone = Measured { row: sends.row, ours: vec![9.0], ucx: vec![], libfabric: vec![] };
        assert_eq!(
            print(&[mean, sends, alone]),
            "| row | OpenDAT | UCX | libfabric | OpenDAT : UCX | OpenDAT : libfabric | bar |\n\
             |---|---|---|---|---|---|---|\n\
             | 64 B half round trip, mean, µs | 0.30 | 0.20 | 0.30 | 1.50 (1.00–2.00) \
             | 1.00 (0.50–2.00) | ≤ 1.50 × libfabric |\n\
             | 64 B sends, window 64, million/s | 9.00 | 6.00 |  | 1.50 (1.50–1.50) |  \
             | ≥ 2.00 × UCX, missed |\n\
             | 64 B sends, window 64, million/s | 9.00 |  |  |  |  | ≥ 2.00 × UCX |\n"
        );
    }
}
