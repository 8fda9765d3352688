//! The capture file: its sharing and writing.

use std::collections::HashSet;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::fs::OFlags;
use rustix::process::geteuid;
use telemetry::complain;

use crate::name::Name;
use crate::{Direction, pcapng};

/// The reason for which a capture cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The name is empty.
    #[error("expected the name of a file")]
    EmptyName,
    /// The name contains a `%` that is not followed by `p`, `n` or `%`.
    #[error(
        "expected %p (process id), %n (number of the capture in the process) or %% after {before:?}"
    )]
    Pattern {
        /// The part of the name before the `%`.
        before: String,
    },
    /// The limit of the file's length is not a size, or is too small.
    #[error("max={0}: expected at least 4K octets, as in 64M or 1G")]
    Limit(String),
    /// Another process, or another library in this process, is writing a capture to the file.
    #[error(
        "{}: another process is capturing to it; put %p, the process id, into the name",
        .0.display()
    )]
    InUse(PathBuf),
    /// The file exists already and appending was not requested.
    #[error(
        "{}: the file exists already: remove it, choose another name (%p is the process id), or \
         put append: before the name",
        .0.display()
    )]
    Exists(PathBuf),
    /// The file belongs to another user, who could read what this process appends.
    #[error("{}: the file belongs to another user", .0.display())]
    OtherOwner(PathBuf),
    /// The file is not a pcapng file, so that an append would corrupt it.
    #[error(
        "{}: is not a pcapng file, so nothing is appended to it; choose another name",
        .0.display()
    )]
    NotACapture(PathBuf),
    /// The path leads to a directory, a device or a pipe.
    #[error("{}: is not a regular file", .0.display())]
    NotAFile(PathBuf),
    /// The file cannot be opened or written to.
    #[error("{}: {source}", path.display())]
    Io {
        /// The path of the file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// The comment that each section of a capture file contains.
const SECTION_COMMENT: &str = "Recorded at sockets. Ethernet, IP, UDP and TCP headers are \
                               synthesised, and so are TCP's segments without data.";
/// The number of octets that a batch collects before it writes them.
const BUFFER_BYTES: usize = 256 << 10;

/// A file that is being written.
#[derive(Debug)]
pub(crate) struct Output {
    path: PathBuf,
    /// The largest length of the file, in octets.
    max: u64,
    /// The time at which the file was opened, on two clocks: the monotonic clock, and the time
    /// since 1970.
    started: (Instant, Duration),
    state: Mutex<State>,
}

#[derive(Debug)]
pub(crate) struct State {
    /// The open file. `None` if a write has failed, if the file is full, or if no capture uses the
    /// file any more.
    file: Option<File>,
    /// Whether the recording has ended because the file has reached its limit.
    is_full: bool,
    /// Whether this process has created the file and has not recorded a packet in it yet.
    is_new: bool,
    /// The length of the file up to the end of its last whole block, in octets.
    length: u64,
    /// Whole blocks that have not been written to the file yet.
    blocks: Vec<u8>,
    interfaces: u32,
    /// The connections that are being recorded, each as the local address and the peer's address.
    flows: HashSet<(SocketAddr, SocketAddr)>,
}

/// A capture file that this process has opened.
struct OpenedFile {
    process: u32,
    path: PathBuf,
    output: Weak<Output>,
}

/// All capture files that this process has opened.
static OPENED_FILES: Mutex<Vec<OpenedFile>> = Mutex::new(Vec::new());

impl Output {
    pub(crate) fn open(name: &str) -> Result<Arc<Self>, OpenError> {
        static CAPTURES: AtomicU32 = AtomicU32::new(0);
        let process = std::process::id();
        let name = Name::parse(name)?;
        let path = name.path(process, CAPTURES.fetch_add(1, Ordering::Relaxed))?;
        let mut files = OPENED_FILES.lock().unwrap_or_else(PoisonError::into_inner);
        let opened =
            files.iter_mut().find(|opened| opened.process == process && opened.path == path);
        let shared = opened.as_ref().and_then(|opened| opened.output.upgrade());
        if let Some(output) = shared.filter(|output| !output.lock().has_failed()) {
            return Ok(output);
        }
        let output = Arc::new(Self::create(&path, name.may_append || opened.is_some(), name.max)?);
        match opened {
            Some(opened) => opened.output = Arc::downgrade(&output),
            None => files.push(OpenedFile { process, path, output: Arc::downgrade(&output) }),
        }
        Ok(output)
    }

    fn create(path: &Path, may_append: bool, max: u64) -> Result<Self, OpenError> {
        let failed = |source| OpenError::Io { path: path.into(), source };
        let options = || {
            let mut options = OpenOptions::new();
            // NOFOLLOW: in a directory that others may write to, another user could have created a
            // link of this name to a file of this user. NONBLOCK: if the file is a pipe, the open
            // would otherwise wait for a reader of the pipe.
            let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
            options.read(true).append(true).mode(0o600).custom_flags(flags.bits() as i32);
            options
        };
        let in_use = |error| match error {
            TryLockError::WouldBlock => OpenError::InUse(path.into()),
            TryLockError::Error(source) => failed(source),
        };
        let mut is_new = false;
        let file = match options().create_new(true).open(path) {
            Ok(file) => {
                is_new = true;
                file
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let is_file =
                    std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_file());
                if !is_file {
                    return Err(OpenError::NotAFile(path.into()));
                }
                let file = options().open(path).map_err(failed)?;
                let metadata = file.metadata().map_err(failed)?;
                match (metadata.is_file(), metadata.uid() == geteuid().as_raw()) {
                    (true, true) => {}
                    (true, false) => return Err(OpenError::OtherOwner(path.into())),
                    (false, _) => return Err(OpenError::NotAFile(path.into())),
                }
                if !may_append {
                    file.try_lock().map_err(in_use)?;
                    return Err(OpenError::Exists(path.into()));
                }
                let mut begin = [0; pcapng::MAGIC.len()];
                let read = file.read_at(&mut begin, 0).map_err(failed)?;
                if read > 0 && begin != pcapng::MAGIC {
                    return Err(OpenError::NotACapture(path.into()));
                }
                file
            }
            Err(source) => return Err(failed(source)),
        };
        // The process holds this lock as long as the file is open.
        file.try_lock().map_err(in_use)?;
        let length = file.metadata().map_err(failed)?.len();
        let state = State {
            file: Some(file),
            is_full: false,
            is_new,
            length,
            blocks: Vec::new(),
            interfaces: 0,
            flows: HashSet::new(),
        };
        let epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let started = (Instant::now(), epoch);
        let output = Self { path: path.into(), max, started, state: Mutex::new(state) };
        let mut state = output.lock();
        output.add(&mut state, |blocks| pcapng::section(blocks, &application(), SECTION_COMMENT));
        state.write().map_err(failed)?;
        drop(state);
        Ok(output)
    }

    /// Ends one use of the file. The last use closes the file while it holds the lock that `open`
    /// takes, and removes a file without packets. Otherwise a program that only checks whether an
    /// adapter can be opened would leave a file, and the next program could not create its own.
    pub(crate) fn release(self: &Arc<Self>) {
        let _files = OPENED_FILES.lock().unwrap_or_else(PoisonError::into_inner);
        if Arc::strong_count(self) == 1 {
            let mut state = self.lock();
            if let Some(file) = state.file.take().filter(|_| state.is_new) {
                self.remove(&file);
            }
        }
    }

    /// Removes the file if the path of the capture still leads to it.
    fn remove(&self, file: &File) {
        let own_inode = file.metadata().map(|of| (of.dev(), of.ino())).ok();
        let path_inode = std::fs::symlink_metadata(&self.path).map(|of| (of.dev(), of.ino())).ok();
        if own_inode.is_some() && own_inode == path_inode {
            std::fs::remove_file(&self.path).ok();
        }
    }

    /// Adds an interface for an adapter that writes to the file. Returns the number of the
    /// interface.
    pub(crate) fn add_interface(&self, name: &str) -> Result<u32, OpenError> {
        let mut state = self.lock();
        self.add(&mut state, |blocks| pcapng::interface(blocks, name));
        state.write().map_err(|source| OpenError::Io { path: self.path.clone(), source })?;
        state.interfaces += 1;
        Ok(state.interfaces - 1)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn packet(
        &self,
        state: &mut State,
        interface: u32,
        at: Instant,
        direction: Direction,
        frame: impl FnOnce(&mut Vec<u8>),
    ) {
        if state.file.is_none() {
            return;
        }
        state.is_new = false;
        let nanos = self.nanos(at);
        self.add(state, |blocks| pcapng::packet(blocks, interface, nanos, direction, frame));
        if state.blocks.len() >= BUFFER_BYTES {
            self.write(state);
        }
    }

    /// Adds a block. If the file would become longer than its limit, the recording ends before the
    /// block, with a message.
    fn add(&self, state: &mut State, block: impl FnOnce(&mut Vec<u8>)) {
        let begin = state.blocks.len();
        block(&mut state.blocks);
        if state.length + state.blocks.len() as u64 <= self.max {
            return;
        }
        state.blocks.truncate(begin);
        self.write(state);
        if state.file.take().is_some() {
            state.is_full = true;
            let (path, max) = (self.path.display(), self.max);
            complain(format_args!(
                "{path}: the file has reached its limit, max={max}; the capture ends here"
            ));
        }
    }

    /// Converts a time to nanoseconds since 1970.
    fn nanos(&self, at: Instant) -> u64 {
        let (instant, epoch) = self.started;
        let time = match at.checked_duration_since(instant) {
            Some(since) => epoch + since,
            None => epoch.saturating_sub(instant.duration_since(at)),
        };
        time.as_nanos() as u64
    }

    /// Writes the recorded blocks. The first failure ends the recording.
    pub(crate) fn write(&self, state: &mut State) {
        if state.file.is_some()
            && let Err(error) = state.write()
        {
            complain(format_args!("{}: {error}; the capture ends here", self.path.display()));
        }
    }
}

impl State {
    /// Whether a write has failed, or no capture uses the file any more.
    fn has_failed(&self) -> bool {
        self.file.is_none() && !self.is_full
    }

    fn write(&mut self) -> io::Result<()> {
        let Some(file) = &mut self.file else {
            if self.is_full {
                self.blocks.clear();
                return Ok(());
            }
            return Err(io::Error::other("an earlier write to the file has failed"));
        };
        let written = file.write_all(&self.blocks);
        if written.is_ok() {
            self.length += self.blocks.len() as u64;
        } else {
            // Remove a partial block at the end, which would be an error for readers of the file.
            file.set_len(self.length).ok();
            self.file = None;
        }
        self.blocks.clear();
        written
    }

    /// Records that a connection is open. Returns false if the connection is already recorded from
    /// its other end.
    pub(crate) fn begin_flow(&mut self, local: SocketAddr, peer: SocketAddr) -> bool {
        let is_new = !self.flows.contains(&(peer, local));
        if is_new {
            self.flows.insert((local, peer));
        }
        is_new
    }

    pub(crate) fn end_flow(&mut self, local: SocketAddr, peer: SocketAddr) {
        self.flows.remove(&(local, peer));
    }
}

/// The name and version of the writing program.
fn application() -> String {
    let program = std::env::current_exe().ok();
    let program =
        program.as_deref().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
    format!("OpenDAT {} in {program}, process {}", env!("CARGO_PKG_VERSION"), std::process::id())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Held while a child starts. Until the child executes its program, it shares the open files of
    /// this process, and their locks.
    static STARTING: Mutex<()> = Mutex::new(());

    /// A failed write, for example on a full disk, ends the recording. The file can be opened again
    /// later.
    #[test]
    fn a_write_that_fails_is_the_last() {
        let _no_child_starts = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("capture.pcapng");
        let name = path.to_str().expect("UTF-8");
        let output = Output::open(name).expect("the file opens");
        output.lock().file = Some(File::open(&path).expect("the file can be opened for reading"));
        let length = path.metadata().expect("the file exists").len();

        let mut state = output.lock();
        output.packet(&mut state, 0, Instant::now(), Direction::Out, |frame| frame.push(1));
        state.write().expect_err("the file cannot be written to");
        assert!(state.file.is_none() && state.blocks.is_empty());
        output.packet(&mut state, 0, Instant::now(), Direction::Out, |frame| frame.push(1));
        assert!(state.blocks.is_empty());
        drop(state);
        assert!(matches!(output.add_interface("x"), Err(OpenError::Io { .. })));
        assert_eq!(path.metadata().expect("the file exists").len(), length);

        let again = Output::open(name).expect("the file opens");
        assert_eq!(again.add_interface("x").expect("the file can be written"), 0);
        assert!(path.metadata().expect("the file exists").len() > length);
    }

    #[test]
    #[ignore = "not a test: a child of the test below"]
    fn child_cannot_write() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("capture.pcapng");
        let output = Output::open(path.to_str().expect("UTF-8")).expect("the file opens");
        let mut state = output.lock();
        state.file = Some(File::open(&path).expect("the file can be opened for reading"));
        output.packet(&mut state, 0, Instant::now(), Direction::Out, |frame| frame.push(1));
        output.write(&mut state);
    }

    #[test]
    #[ignore = "not a test: a child of the test below"]
    fn child_reaches_the_limit() {
        let dir = tempfile::tempdir().expect("a directory");
        let name = format!("{},max=4K", dir.path().join("capture.pcapng").display());
        for _ in 0..2 {
            let output = Output::open(&name).expect("the file opens");
            for _ in 0..100 {
                let frame = |frame: &mut Vec<u8>| frame.extend([0; 100]);
                output.packet(&mut output.lock(), 0, Instant::now(), Direction::Out, frame);
            }
        }
    }

    /// Each opening of a full file causes one message. The packets that are not recorded cause
    /// none.
    #[test]
    fn the_limit_of_a_capture_is_told() {
        let [stdout, stderr] = told_by("child_reaches_the_limit", &[]);
        assert!(stdout.is_empty() && stderr.len() == 2, "{stdout:?} {stderr:?}");
        let expected =
            "capture.pcapng: the file has reached its limit, max=4096; the capture ends here";
        assert!(stderr.iter().all(|line| line.ends_with(expected)), "{stderr:?}");
    }

    #[test]
    fn the_end_of_a_capture_is_told_where_the_log_goes() {
        let lines = |variables: &[_]| told_by("child_cannot_write", variables);
        let [stdout, stderr] = lines(&[]);
        assert!(stdout.is_empty() && stderr.len() == 1, "{stdout:?} {stderr:?}");
        assert!(stderr[0].starts_with("dat: /"), "{stderr:?}");
        let [stdout, stderr] = lines(&[("DAPL_DBG_DEST", "1"), ("OPENDAT_LOG", "json")]);
        assert!(stderr.is_empty() && stdout.len() == 1, "{stdout:?} {stderr:?}");
        assert!(stdout[0].contains("\"message\":\"/"), "{stdout:?}");
    }

    /// Runs a child with environment variables. Returns the messages about the end of a capture on
    /// its standard output and its standard error.
    fn told_by(child: &str, variables: &[(&str, &str)]) -> [Vec<String>; 2] {
        let _starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        let output = Command::new(std::env::current_exe().expect("this program"))
            .args(["--ignored", "--exact", &format!("output::tests::{child}")])
            .env_remove("DAT_DBG_DEST")
            .envs(variables.iter().copied())
            .output()
            .expect("the test program starts");
        assert!(output.status.success(), "{output:?}");
        [output.stdout, output.stderr].map(|text| {
            let text = String::from_utf8(text).expect("text");
            let is_it = |line: &&str| line.contains("; the capture ends here");
            text.lines().filter(is_it).map(str::to_owned).collect::<Vec<_>>()
        })
    }
}
