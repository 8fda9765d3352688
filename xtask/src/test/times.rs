//! How long each job took the last time: a line each, seconds and name, in the target directory.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

pub(crate) struct Times {
    path: PathBuf,
    of: BTreeMap<String, Duration>,
}

impl Times {
    /// What the file says. Without one, or where a line cannot be read, nothing is known.
    pub(crate) fn load(path: PathBuf) -> Self {
        let text = fs::read_to_string(&path).unwrap_or_default();
        let line = |line: &str| {
            let (seconds, name) = line.split_once(' ')?;
            Some((name.to_owned(), Duration::try_from_secs_f64(seconds.parse().ok()?).ok()?))
        };
        Self { path, of: text.lines().filter_map(line).collect() }
    }

    pub(crate) fn of(&self, job: &str) -> Option<Duration> {
        self.of.get(job).copied()
    }

    pub(crate) fn set(&mut self, job: String, time: Duration) {
        self.of.insert(job, time);
    }

    /// Writes the file. They only make an estimate better: where it cannot be written nothing is lost.
    pub(crate) fn save(&self) {
        let mut text = String::new();
        for (name, time) in &self.of {
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
        let mut times = Times::load(path.clone());
        assert_eq!(times.of("a job"), None);
        times.set("a job".to_owned(), Duration::from_millis(2500));
        times.save();
        let loaded = Times::load(path.clone());
        std::fs::remove_file(path).expect("it was written");
        assert_eq!(loaded.of("a job"), Some(Duration::from_millis(2500)));
    }
}
