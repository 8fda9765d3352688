//! Starts the provider of an entry in a process of its own, because the provider may crash or hang.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use measurement::json_lines::{self, START_LIMIT};
use registry::LoadError;
use registry::entry::Entry;
use serde::{Deserialize, Serialize};

/// Why a library does not provide an entry, and the remedy, if one is known.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct LibraryFault {
    pub(super) why: String,
    pub(super) remedy: Option<String>,
    /// The fault affects every entry that names the library: the library is not a provider at all,
    /// or its start does not end.
    pub(super) of_library: bool,
}

impl LibraryFault {
    /// Returns a fault that does not affect other entries of the library and has no known remedy.
    fn of_entry(why: String) -> LibraryFault {
        LibraryFault { why, remedy: None, of_library: false }
    }
}

/// Starts an entry's provider in a process of its own, because the provider may crash or hang.
pub(super) fn inspect_library(entry: &Entry) -> Option<LibraryFault> {
    let answer = || {
        let mut command = Command::new(std::env::current_exe().context("finding this program")?);
        command.arg("inspect");
        start(command, entry, START_LIMIT)
    };
    answer().unwrap_or_else(|error| Some(LibraryFault::of_entry(format!("{error:#}"))))
}

/// Runs a process that starts an entry's provider, and returns what it reports. A process that
/// reports nothing or does not end is a fault of the library.
fn start(mut command: Command, entry: &Entry, limit: Duration) -> Result<Option<LibraryFault>> {
    // The output of the library is discarded. The library would block on a pipe that nobody reads.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let line = registry::conf::write(std::slice::from_ref(entry));
    let library = &entry.library;
    Ok(match json_lines::ask(command, &line, limit)? {
        (Some(fault), Some(_)) => fault,
        (None, Some(status)) => Some(LibraryFault::of_entry(format!(
            "starting {library} terminates the program ({status})"
        ))),
        // The fault counts for all entries of the library, because another start of the library
        // would take as long.
        (_, None) => Some(LibraryFault {
            why: format!("starting {library} does not end within {} s", limit.as_secs_f32()),
            remedy: None,
            of_library: true,
        }),
    })
}

/// Starts the provider of the entry that the parent sends as a line of dat.conf, and tells the
/// parent why the entry's library is not a provider.
pub(crate) fn inspect() -> Result<bool> {
    let line: String = json_lines::receive_plan()?;
    let (entries, _) = registry::conf::parse(Path::new("dat.conf"), line.as_bytes());
    let entry = entries.first().context("the parent sent no entry of dat.conf")?;
    let fault = registry::check_starts(entry).err();
    json_lines::send(&fault.map(|error| LibraryFault {
        why: error.to_string(),
        of_library: matches!(error, LoadError::Open(_) | LoadError::Symbol(_)),
        remedy: error.remedy().map(|remedy| remedy.replace("in the entry", "in this line")),
    }));
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Runs this shell script in place of the process that starts a library, and returns the fault
    /// that is found. The script's standard input is the socket.
    fn started(script: &str, limit: Duration) -> Option<LibraryFault> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let line = "x u2.0 nonthreadsafe default libx.so v.1.0 \"\" \"\"";
        let (entries, _) = registry::conf::parse(Path::new("dat.conf"), line.as_bytes());
        start(command, &entries[0], limit).expect("sh starts")
    }

    /// Runs the script without a time limit, and returns the text of the fault.
    fn why(script: &str) -> Option<String> {
        started(script, Duration::MAX).map(|fault| fault.why)
    }

    #[test]
    fn a_library_whose_start_does_not_end_is_stopped_at_the_limit() {
        let fault = started("exec sleep 1000", Duration::from_millis(50)).expect("a fault");
        assert_eq!(fault.why, "starting libx.so does not end within 0.05 s");
        assert!(fault.of_library, "a fault of the library must not be tried again");
    }

    #[test]
    fn a_library_that_prints_much_is_heard() {
        assert_eq!(
            why("head -c 1000000 /dev/zero; head -c 1000000 /dev/zero >&2; echo null >&0"),
            None
        );
    }

    #[test]
    fn nobody_waits_for_a_process_that_a_library_leaves_behind() {
        let dir = tempfile::tempdir().expect("a directory");
        let fifo = dir.path().join("fifo");
        let made = Command::new("mkfifo").arg(&fifo).status().expect("mkfifo starts");
        assert!(made.success());
        // The process has the socket as its descriptor 3, and runs until the FIFO is written.
        let stays = format!("exec 3<&0; cat {} &", fifo.display());
        assert_eq!(why(&format!("{stays} echo null >&0")), None);
        fs::write(&fifo, "").expect("the process reads the pipe");
        let ends = "starting libx.so terminates the program (exit status: 3)";
        assert_eq!(why(&format!("{stays} exit 3")).as_deref(), Some(ends));
        fs::write(&fifo, "").expect("the process reads the pipe");
    }
}
