//! A bar on a terminal, while something takes its time.

use std::io::{IsTerminal, stderr};

/// How far it is, where somebody looks at standard error.
pub(crate) struct Progress(Option<indicatif::ProgressBar>);

impl Progress {
    pub(crate) fn new(points: usize) -> Self {
        let bar = || {
            let style = indicatif::ProgressStyle::with_template("{bar:30} {pos}/{len}, {eta} left")
                .unwrap_or_else(|_| indicatif::ProgressStyle::default_bar());
            indicatif::ProgressBar::new(points as u64).with_style(style)
        };
        Progress(stderr().is_terminal().then(bar))
    }

    pub(crate) fn show(&self, done: usize) {
        if let Some(bar) = &self.0 {
            bar.set_position(done as u64);
        }
    }

    /// Prints something else.
    pub(crate) fn aside<R>(&self, print: impl FnOnce() -> R) -> R {
        match &self.0 {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
