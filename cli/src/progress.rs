//! A progress bar on a terminal.

use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

/// A progress bar, if standard error is a terminal.
pub(crate) struct Progress(Option<Bar>);

struct Bar {
    bar: indicatif::ProgressBar,
    /// The total number of items.
    total: usize,
    started: Instant,
}

/// The number of steps of the bar per item.
const STEPS_PER_ITEM: f64 = 1000.0;

/// The remaining time is shown only after this time, because earlier it would be a guess.
const MIN_TIME_FOR_ESTIMATE: Duration = Duration::from_secs(1);

impl Progress {
    pub(crate) fn new(total: usize) -> Self {
        let bar = || {
            let style = indicatif::ProgressStyle::with_template("{bar:30} {msg}")
                .unwrap_or_else(|_| indicatif::ProgressStyle::default_bar());
            let bar =
                indicatif::ProgressBar::new(total as u64 * STEPS_PER_ITEM as u64).with_style(style);
            Bar { bar, total, started: Instant::now() }
        };
        Progress(stderr().is_terminal().then(bar))
    }

    /// Shows the number of items that are done. The fraction is the progress of the current item.
    pub(crate) fn show(&self, done: f64) {
        if let Some(Bar { bar, total, started }) = &self.0 {
            bar.set_message(text(done, *total, started.elapsed()));
            bar.set_position((done * STEPS_PER_ITEM) as u64);
        }
    }

    /// Runs a function that prints, with the bar hidden.
    pub(crate) fn suspend<R>(&self, print: impl FnOnce() -> R) -> R {
        match &self.0 {
            Some(bar) => bar.bar.suspend(print),
            None => print(),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.bar.finish_and_clear();
        }
    }
}

fn text(done: f64, total: usize, elapsed: Duration) -> String {
    let remaining_time = remaining_time(done / total as f64, elapsed)
        .map_or_else(String::new, |remaining_time| format!(", {remaining_time} left"));
    format!("{}/{total}{remaining_time}", done as usize)
}

/// Returns the remaining time, assuming a constant speed.
fn remaining_time(share: f64, elapsed: Duration) -> Option<String> {
    if elapsed < MIN_TIME_FOR_ESTIMATE || share <= 0.0 {
        return None;
    }
    let seconds = elapsed.as_secs_f64() * (1.0 - share).max(0.0) / share;
    Some(match seconds.ceil() as u64 {
        seconds @ ..120 => format!("{seconds} s"),
        seconds @ ..7200 => format!("{} min", seconds.div_ceil(60)),
        seconds => format!("{} h", seconds.div_ceil(3600)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_takes_as_long_as_what_is_done() {
        let seconds = Duration::from_secs_f64;
        assert_eq!(text(0.0, 12, seconds(0.0)), "0/12");
        assert_eq!(
            text(0.0, 12, seconds(5.0)),
            "0/12",
            "nothing is known yet, so no time may be shown"
        );
        assert_eq!(
            text(0.1, 12, seconds(0.2)),
            "0/12",
            "the beginning says too little for an estimate"
        );
        assert_eq!(text(1.0, 12, seconds(1.5)), "1/12, 17 s left");
        assert_eq!(text(3.5, 12, seconds(4.0)), "3/12, 10 s left");
        assert_eq!(text(12.0, 12, seconds(15.0)), "12/12, 0 s left");
        assert_eq!(text(1.0, 100, seconds(3.0)), "1/100, 5 min left");
        assert_eq!(text(1.0, 10_000, seconds(10.0)), "1/10000, 28 h left");
    }
}
