//! Stores the duration of each job that passed in the last run: a file in the target directory has
//! a line for each job, with seconds and name. The first run uses the times of another machine with
//! two processors, in `times/`. The longest jobs start first. The run shows no remaining time,
//! because the load of other programs changes the times more than twofold.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

pub(crate) struct Times {
    path: PathBuf,
    /// The times of earlier runs.
    earlier: BTreeMap<String, Duration>,
    /// The times of this run. Only these times are saved, so that the file does not keep the names
    /// of jobs that no longer exist.
    now: BTreeMap<String, Duration>,
}

impl Times {
    /// Loads the times from the file. The times of jobs that are not in the file come from
    /// `typical`. If `typical` has several lines about a job, the last line counts. Unreadable
    /// lines are ignored.
    pub(crate) fn load(path: PathBuf, typical: &str) -> Self {
        let text = fs::read_to_string(&path).unwrap_or_default();
        let line = |line: &str| {
            let (seconds, name) = line.split_once(' ')?;
            Some((name.to_owned(), Duration::try_from_secs_f64(seconds.parse().ok()?).ok()?))
        };
        let earlier = typical.lines().chain(text.lines()).filter_map(line).collect();
        Self { path, earlier, now: BTreeMap::new() }
    }

    pub(crate) fn of(&self, job: &str) -> Option<Duration> {
        self.now.get(job).or_else(|| self.earlier.get(job)).copied()
    }

    pub(crate) fn set(&mut self, job: String, time: Duration) {
        self.now.insert(job, time);
    }

    /// Writes the file. The times only order the jobs, so errors are ignored.
    pub(crate) fn save(&self) {
        let mut text = String::new();
        for (name, time) in &self.now {
            let _ = writeln!(text, "{:.1} {name}", time.as_secs_f64());
        }
        fs::write(&self.path, text).ok();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Times;

    #[test]
    fn what_was_saved_is_loaded() {
        let path = std::env::temp_dir().join(format!("opendat-times-{}", std::process::id()));
        let typical = "7.0 a job\n1.5 another\n";
        let mut times = Times::load(path.clone(), typical);
        assert_eq!(times.of("a job"), Some(Duration::from_secs(7)));
        times.set("a job".to_owned(), Duration::from_millis(2500));
        times.save();
        let loaded = Times::load(path.clone(), typical);
        let text = std::fs::read_to_string(&path).expect("the file was written");
        assert_eq!(text, "2.5 a job\n", "a job that did not run may have been removed");
        std::fs::remove_file(path).expect("the file was written");
        let of = |job| loaded.of(job).map(|time| time.as_millis());
        assert_eq!([of("a job"), of("another"), of("a third")], [Some(2500), Some(1500), None]);
    }
}
