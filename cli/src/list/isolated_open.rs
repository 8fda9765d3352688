//! Opens one entry of the registry in a process of its own, because a foreign library may crash,
//! hang, or print anything.

use std::fs::File;
use std::io::{Read, Seek};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use dat::Adapter;
use measurement::json_lines::{self, START_LIMIT};
use registry::{Candidate, Entry, Origin};
use rustix::fs::MemfdFlags;
use serde::{Deserialize, Serialize};

/// Opens an entry. Returns why it does not open.
pub(crate) fn open(candidate: &Candidate) -> std::result::Result<(), String> {
    match open_isolated(candidate) {
        Ok(Answer::Opens(_)) => Ok(()),
        Ok(Answer::Fails(reason) | Answer::Broken(reason)) => Err(reason),
        Err(error) => Err(format!("{error:#}")),
    }
}

/// The result of opening an entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Answer {
    /// The entry opens. Contains the adapter's attributes: names and values.
    Opens(Vec<(String, String)>),
    /// The entry does not open, for this reason.
    Fails(String),
    /// No entry of the library opens, for this reason.
    Broken(String),
}

/// The variable for the resolver (resolv.conf(5)). A device that the host does not have is looked
/// up as a host name, and by default each answer of a name server that is lost costs 5 s.
const RESOLVER_OPTIONS: &str = "RES_OPTIONS";

/// Opens an entry. The reason why it does not open includes what the library printed.
pub(super) fn open_isolated(candidate: &Candidate) -> Result<Answer> {
    let program = std::env::current_exe().context("finding this program")?;
    let mut command = Command::new(&program);
    command.arg("open-entry");
    // These variables could direct the messages of the process elsewhere, or into a log. The
    // messages must be text on standard error, because they become part of the reason.
    for variable in ["DAT_DBG_DEST", "DAPL_DBG_DEST", "DAPL_DBG_TYPE", "OPENDAT_LOG"] {
        command.env_remove(variable);
    }
    if std::env::var_os(RESOLVER_OPTIONS).is_none() {
        command.env(RESOLVER_OPTIONS, "timeout:1 attempts:2");
    }
    run_probe(command, &Plan::new(candidate), START_LIMIT)
        .with_context(|| format!("running {}", program.display()))
}

/// The entry that the process opens. The parent sends the entry, so that the process need not read
/// the registry file again. That file may be long.
#[derive(Serialize, Deserialize)]
struct Plan {
    name: String,
    api: String,
    thread_safe: bool,
    library: String,
    version: String,
    parameters: String,
    /// File, line and column of the entry. `None` for an entry that is not from a file.
    place: Option<(String, usize, usize)>,
    /// The name of the built-in adapter that serves the entry.
    builtin: Option<String>,
}

impl Plan {
    fn new(candidate: &Candidate) -> Plan {
        let Entry { ia_name, api, threadsafe, library, provider_version, ia_params, .. } =
            &candidate.entry;
        Plan {
            name: ia_name.clone(),
            api: api.to_string(),
            thread_safe: *threadsafe,
            library: library.clone(),
            version: provider_version.to_string(),
            parameters: ia_params.clone(),
            place: match &candidate.entry.origin {
                Origin::File { path, line, column } => {
                    Some((path.display().to_string(), *line, *column))
                }
                Origin::Builtin | Origin::Program => None,
            },
            builtin: candidate.builtin.map(|builtin| builtin.name.to_owned()),
        }
    }

    fn candidate(self) -> Result<Candidate> {
        let entry = Entry {
            ia_name: self.name,
            api: self.api.parse().map_err(|()| anyhow!("{}: no API version", self.api))?,
            threadsafe: self.thread_safe,
            default: true,
            library: self.library,
            provider_version: self
                .version
                .parse()
                .map_err(|()| anyhow!("{}: no provider version", self.version))?,
            ia_params: self.parameters,
            platform_params: String::new(),
            origin: match self.place {
                Some((path, line, column)) => {
                    Origin::File { path: Path::new(&path).into(), line, column }
                }
                None => Origin::Builtin,
            },
        };
        let builtin = self.builtin.and_then(|name| {
            let mut all = dat::builtins().adapters.iter().copied().flatten();
            all.find(|builtin| builtin.name == name)
        });
        Ok(Candidate { entry, builtin })
    }
}

/// Runs a process that opens an entry, and returns its answer.
fn run_probe(mut command: Command, plan: &Plan, limit: Duration) -> Result<Answer> {
    // The output goes to files, because a full pipe that nobody reads would block the process, or a
    // process that the library leaves running.
    let file = |name| rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC).map(File::from);
    let printed = [file("stdout")?, file("stderr")?];
    let [output, complaints] = [printed[0].try_clone()?, printed[1].try_clone()?];
    command.stdout(output).stderr(complaints);
    let reason = match json_lines::ask(command, plan, limit)? {
        (Some(Answer::Fails(reason)), _) => reason,
        (Some(answer), Some(_)) => return Ok(answer),
        (None, Some(status)) => format!("opening it terminated the program ({status})"),
        // The answer counts for all entries of the library, because opening another of them would
        // take as long.
        (_, None) => {
            let reason = format!("opening it does not end within {} s", limit.as_secs_f32());
            return Ok(Answer::Broken(append_output(reason, printed)?));
        }
    };
    Ok(Answer::Fails(append_output(reason, printed)?))
}

/// Appends what the library has printed to the reason.
fn append_output(mut reason: String, printed: [File; 2]) -> Result<String> {
    for mut file in printed {
        for line in read_output(&mut file)?.lines() {
            reason += &format!("\n{line}");
        }
    }
    Ok(reason)
}

fn read_output(file: &mut File) -> std::io::Result<String> {
    /// The maximum size of the output that becomes part of the reason. Further output is left out.
    const MAX_OUTPUT_BYTES: u64 = 1 << 20;
    let mut bytes = Vec::new();
    file.rewind()?;
    file.take(MAX_OUTPUT_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Opens and closes the entry that the parent sends, and sends the result to the parent.
pub(crate) fn open_received() -> Result<bool> {
    let candidate = &json_lines::receive_plan::<Plan>()?.candidate()?;
    let answer = match Adapter::open_entry(candidate) {
        Ok(adapter) => Answer::Opens(adapter.attributes().named.clone()),
        Err(reason)
            if candidate.builtin.is_none()
                && registry::check_loads(&candidate.entry.library).is_err() =>
        {
            Answer::Broken(reason)
        }
        Err(reason) => Answer::Fails(reason),
    };
    json_lines::send(&answer);
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "\"a b\" u2.1 threadsafe default \"lib \\\"x.so\" v.1.2 \"lo crc=on\" \"\"";

    fn plan() -> Plan {
        let (entries, _) = registry::conf::parse(Path::new("dat.conf"), LINE.as_bytes());
        Plan::new(&Candidate { entry: entries[0].clone(), builtin: None })
    }

    #[test]
    fn the_process_gets_the_entry_as_it_is_in_the_registry() {
        let (entries, _) = registry::conf::parse(Path::new("dat.conf"), LINE.as_bytes());
        assert_eq!(plan().candidate().expect("an entry").entry, entries[0]);
        for candidate in registry::List::new(None, None, dat::builtins()).candidates() {
            let Some(builtin) = candidate.builtin else { continue };
            let sent = Plan::new(candidate).candidate().expect("an entry");
            assert_eq!(sent.entry, candidate.entry);
            assert_eq!(sent.builtin.map(|sent| sent.name), Some(builtin.name));
        }
    }

    /// Runs this shell script in place of the process that opens an entry, and returns the answer.
    /// The script's standard input is the socket.
    fn opened(script: &str, limit: Duration) -> Answer {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        run_probe(command, &plan(), limit).expect("sh starts")
    }

    fn fails(script: &str, limit: Duration) -> String {
        match opened(script, limit) {
            Answer::Fails(reason) => reason,
            _ => panic!("{script}: the entry must not open"),
        }
    }

    #[test]
    fn an_entry_whose_opening_does_not_end_is_stopped_at_the_limit() {
        let answer = opened("echo said; exec sleep 1000", Duration::from_millis(50));
        let Answer::Broken(reason) = answer else {
            panic!("other entries of the library would also be opened")
        };
        assert!(reason.starts_with("opening it does not end within 0.05 s"), "{reason}");
    }

    #[test]
    fn what_is_printed_comes_with_the_reason_but_not_with_an_answer() {
        let fails_with = "echo out; echo err >&2; echo '{\"Fails\":\"why\"}' >&0";
        assert_eq!(fails(fails_with, Duration::MAX), "why\nout\nerr");
        assert_eq!(
            fails("echo out; exit 3", Duration::MAX),
            "opening it terminated the program (exit status: 3)\nout"
        );
        let much = "head -c 3000000 /dev/zero; echo '{\"Opens\":[[\"a\",\"b\"]]}' >&0";
        assert!(matches!(opened(much, Duration::MAX), Answer::Opens(pairs)
                if pairs == [("a".into(), "b".into())]));
    }
}
