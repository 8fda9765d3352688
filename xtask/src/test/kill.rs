//! Kills the processes of a test run that hangs, and lists them.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

/// A process in /proc (proc(5)).
struct Process {
    id: u32,
    parent: u32,
    /// The kernel function in which the process waits, or `0` if the process does not wait or the
    /// kernel does not tell.
    waits_in: String,
    arguments: String,
}

/// Kills the descendants of a process, beginning with this generation: 0 is the process itself, and
/// 1 its children. Returns a line about each killed process.
pub(crate) fn descendants(root: u32, generation: usize) -> Vec<String> {
    let all = processes();
    let family = family(root, &all);
    let killed: Vec<_> = family.iter().filter(|(depth, _)| *depth >= generation).collect();
    let lines = killed.iter().map(|(depth, process)| {
        let Process { id, waits_in, arguments, .. } = process;
        format!("{:indent$}{id} (in {waits_in}) {arguments}", "", indent = 2 * depth)
    });
    let lines = lines.collect();
    for (_, process) in killed {
        // The process may have ended by itself, so errors are ignored.
        let mut kill = Command::new("kill");
        kill.args(["-KILL", &process.id.to_string()]).output().ok();
    }
    lines
}

/// Returns a process and its descendants, each with its generation. Each process comes after its
/// parent.
fn family(root: u32, all: &[Process]) -> Vec<(usize, &Process)> {
    let mut children: BTreeMap<u32, Vec<&Process>> = BTreeMap::new();
    for process in all {
        children.entry(process.parent).or_default().push(process);
    }
    let mut family = Vec::new();
    let mut open = vec![(0, root)];
    while let Some((depth, id)) = open.pop() {
        family.extend(all.iter().find(|process| process.id == id).map(|process| (depth, process)));
        // Processes are removed from the list, so that a reused process ID cannot create a cycle.
        let below = children.remove(&id).unwrap_or_default();
        open.extend(below.iter().rev().map(|child| (depth + 1, child.id)));
    }
    family
}

fn processes() -> Vec<Process> {
    let Ok(directory) = fs::read_dir("/proc") else { return Vec::new() };
    let ids = directory.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    ids.filter_map(process).collect()
}

fn process(id: u32) -> Option<Process> {
    let read = |file: &str| fs::read(format!("/proc/{id}/{file}")).ok();
    let text = |file: &str| Some(String::from_utf8_lossy(&read(file)?).into_owned());
    // The format is `id (name) state parent …`. The name may contain any character.
    let stat = text("stat")?;
    let parent = stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()?;
    let arguments = text("cmdline")?.replace('\0', " ");
    Some(Process { id, parent, waits_in: text("wchan").unwrap_or_default(), arguments })
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read};
    use std::process::{Command, Stdio};

    use super::descendants;

    #[test]
    fn ends_descendants_and_names_them() {
        let mut shell = Command::new("sh");
        let lines = "sh -c 'sleep 1000 & echo ready; wait'; true";
        shell.args(["-c", lines]).stdout(Stdio::piped());
        let mut shell = shell.spawn().expect("a shell");
        let mut output = BufReader::new(shell.stdout.take().expect("the output is piped"));
        let mut text = String::new();
        output.read_line(&mut text).expect("a line");
        let ended = descendants(shell.id(), 1);
        // The read ends when all three processes have closed the pipe.
        output.read_to_string(&mut text).expect("text");
        assert!(shell.wait().expect("the program ends").success());
        assert_eq!((ended.len(), text.as_str()), (2, "ready\n"), "{ended:?}");
        assert!(ended[0].contains("echo ready"), "{ended:?}");
    }
}
