//! Runs a program, captures its output line by line, enforces a deadline, and prints backtraces if
//! it hangs.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::Registry;

/// A started program. Dropping this structure kills the program.
pub struct Running {
    label: String,
    child: Child,
    output: Arc<Output>,
    reader: Option<JoinHandle<()>>,
    deadline: Instant,
}

/// The output of a program, and the way in which the program ended.
#[derive(Debug)]
pub struct Ended {
    /// How the program ended: with an exit code, or by a signal.
    pub status: ExitStatus,
    /// Standard output and standard error in the order in which they were written.
    pub text: String,
}

#[derive(Default)]
struct Output {
    state: Mutex<OutputState>,
    changed: Condvar,
}

#[derive(Default)]
struct OutputState {
    text: String,
    ended: bool,
}

/// Runs one of our C programs under `registry`. The program must succeed, and its last line must be
/// `ok`.
pub fn ends_with_ok(
    label: &str,
    command: Command,
    registry: &Registry,
    limit: Duration,
) -> Result<(), String> {
    let ended = Running::start(label, command, registry, Instant::now() + limit)?.end()?;
    ended.succeeded(label)?;
    match ended.text.trim_end().lines().last() {
        Some("ok") => Ok(()),
        _ => Err(format!("{label} does not end with ok\n{}", both_ends(&ended.text))),
    }
}

impl Running {
    /// Starts `command` under `registry`. The program must end before `deadline`.
    ///
    /// The program runs under stdbuf, so that its output is complete if it is killed at the
    /// deadline.
    pub fn start(
        label: &str,
        mut command: Command,
        registry: &Registry,
        deadline: Instant,
    ) -> Result<Self, String> {
        registry.apply(&mut command);
        let (reader, writer) = io::pipe().map_err(|error| format!("no pipe: {error}"))?;
        let stderr =
            writer.try_clone().map_err(|error| format!("cannot duplicate the pipe: {error}"))?;
        let mut line_buffered = Command::new("stdbuf");
        line_buffered
            .args(["-oL", "-eL", "--"])
            .arg(command.get_program())
            .args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => line_buffered.env(name, value),
                None => line_buffered.env_remove(name),
            };
        }
        line_buffered.stdin(Stdio::null()).stdout(writer).stderr(stderr);
        let child =
            line_buffered.spawn().map_err(|error| format!("{label} does not start: {error}"))?;
        drop(line_buffered);

        let output = Arc::new(Output::default());
        let sink = Arc::clone(&output);
        let reader = thread::spawn(move || sink.collect(reader));
        Ok(Self { label: label.to_owned(), child, output, reader: Some(reader), deadline })
    }

    /// Returns the process ID.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns /proc/PID/maps, or an empty text if the process has ended.
    pub fn maps(&self) -> String {
        fs::read_to_string(format!("/proc/{}/maps", self.id())).unwrap_or_default()
    }

    /// Waits until the program has printed `text`. Returns the program's output so far.
    pub fn wait_for(&self, text: &str) -> Result<String, String> {
        self.wait_for_times(text, 1)
    }

    /// Waits until the program has printed `text` this many times. Returns the program's output so
    /// far.
    pub fn wait_for_times(&self, text: &str, times: usize) -> Result<String, String> {
        let mut state = self.output.lock();
        while state.text.matches(text).count() < times {
            let left = self.deadline.saturating_duration_since(Instant::now());
            if state.ended || left.is_zero() {
                let why = if state.ended { "ended" } else { "reached its deadline" };
                drop(state);
                return Err(self.report(&format!("{why} without printing {text:?} {times} times")));
            }
            let timed = self.output.changed.wait_timeout(state, left);
            state = timed.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(state.text.clone())
    }

    /// Returns the program's output so far.
    pub fn said(&self) -> String {
        self.output.lock().text.clone()
    }

    /// Returns whether the program has printed `text`.
    pub fn has_said(&self, text: &str) -> bool {
        self.output.lock().text.contains(text)
    }

    /// Returns whether the output has ended: the program, and every child that shares its output,
    /// has closed the output.
    pub fn has_ended(&self) -> bool {
        self.output.lock().ended
    }

    /// Waits for the end of the program.
    pub fn end(mut self) -> Result<Ended, String> {
        loop {
            let status =
                self.child.try_wait().map_err(|error| format!("{}: {error}", self.label))?;
            if let Some(status) = status {
                // The thread that reads the output ends when the last process that writes to the
                // pipe has closed it. That process may be a child that the program has left
                // running.
                while !self.has_ended() {
                    if Instant::now() >= self.deadline {
                        return Err(self.report("has ended but left processes running"));
                    }
                    thread::sleep(Duration::from_millis(2));
                }
                if let Some(reader) = self.reader.take() {
                    let _ = reader.join();
                }
                return Ok(Ended { status, text: self.output.lock().text.clone() });
            }
            if Instant::now() >= self.deadline {
                return Err(self.report("has not ended in time"));
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Kills the program.
    pub fn kill(mut self) -> Result<Ended, String> {
        self.child.kill().map_err(|error| format!("{}: {error}", self.label))?;
        self.end()
    }

    /// Returns a report for diagnosis: the output, and the stack of each thread.
    pub fn report(&self, complaint: &str) -> String {
        let mut report = format!("{} (pid {}) {complaint}\n", self.label, self.id());
        let state = self.output.lock();
        let _ = writeln!(report, "--- output of {}\n{}", self.label, both_ends(&state.text));
        if !state.ended {
            let _ = write!(report, "--- threads of {}\n{}", self.label, backtraces(self.id()));
        }
        report
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Ended {
    /// Returns an error unless the exit code is 0.
    pub fn succeeded(&self, label: &str) -> Result<(), String> {
        if self.status.success() {
            return Ok(());
        }
        Err(format!(
            "{label} ended with {}\n--- output of {label}\n{}",
            self.status,
            both_ends(&self.text)
        ))
    }
}

impl Output {
    fn lock(&self) -> std::sync::MutexGuard<'_, OutputState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn collect(&self, reader: impl io::Read) {
        for line in BufReader::new(reader).split(b'\n') {
            let Ok(line) = line else { break };
            let mut state = self.lock();
            state.text.push_str(&String::from_utf8_lossy(&line));
            state.text.push('\n');
            drop(state);
            self.changed.notify_all();
        }
        self.lock().ended = true;
        self.changed.notify_all();
    }
}

/// Returns the first 30 lines and the last 100. A failing program reports the reason at its end,
/// but a sanitizer prints many lines after the reason.
fn both_ends(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let skipped = lines.len().saturating_sub(130);
    if skipped == 0 {
        return lines.join("\n");
    }
    let (first, last) = (&lines[..30], &lines[lines.len() - 100..]);
    format!("{}\n({skipped} lines)\n{}", first.join("\n"), last.join("\n"))
}

/// Returns gdb's backtraces of all threads or, without gdb, what the kernel reports about each
/// thread.
fn backtraces(pid: u32) -> String {
    let gdb = Command::new("gdb")
        .args(["-batch", "-nx", "-iex", "set debuginfod enabled off", "-p", &pid.to_string()])
        .args(["-ex", "thread apply all bt 24"])
        .stdin(Stdio::null())
        .output();
    match gdb {
        Ok(output) => String::from_utf8_lossy(&output.stdout)
            .lines()
            .filter(|line| line.starts_with('#') || line.starts_with("Thread"))
            .map(|line| format!("{line}\n"))
            .collect(),
        Err(_) => threads_by_proc(pid),
    }
}

fn threads_by_proc(pid: u32) -> String {
    let mut text = String::new();
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return "gone\n".into() };
    for task in tasks.flatten() {
        let read = |file: &str| {
            fs::read_to_string(task.path().join(file)).unwrap_or_default().trim().to_owned()
        };
        let _ = writeln!(
            text,
            "{} {}: waits in {}, system call {}",
            task.file_name().display(),
            read("comm"),
            read("wchan"),
            read("syscall")
        );
    }
    text
}
