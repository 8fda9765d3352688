//! The file: its name, who shares it, how it is written.

use std::collections::HashSet;
use std::fmt::Write as _;
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

use crate::{Direction, pcapng};

/// Why a capture cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The name is empty.
    #[error("expected the name of a file")]
    Nameless,
    /// The name contains a `%` that stands for nothing.
    #[error(
        "{name}: expected %p (process id), %n (number of the capture in the process) or %% after {before:?}"
    )]
    Pattern {
        /// The name as given.
        name: String,
        /// The part of it before the `%`.
        before: String,
    },
    /// Another process, or another library in this process, has the file open for the same purpose.
    #[error("{}: another process is capturing to it; put %p, the process id, into the name", .0.display())]
    InUse(PathBuf),
    /// It is there already, and whose it is, or what, nobody has said.
    #[error(
        "{}: the file is there already: remove it, take another name (%p is the process id), or write append: \
         before the name",
        .0.display()
    )]
    Exists(PathBuf),
    /// It was made by another user, who may read what is appended.
    #[error("{}: the file belongs to another user", .0.display())]
    Foreign(PathBuf),
    /// It has something else in it, and what is appended would spoil that.
    #[error("{}: is not a pcapng file, so nothing is appended to it; take another name", .0.display())]
    NotACapture(PathBuf),
    /// It is a directory, a device, a pipe.
    #[error("{}: is not a regular file", .0.display())]
    NotAFile(PathBuf),
    /// It cannot be opened, replaced or written to.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// What a section says about itself.
const COMMENT: &str = "Recorded at sockets. Ethernet, IP, UDP and TCP headers are synthesised, and so are TCP's \
                       segments without data.";
/// Before the name of a file that may be there already.
const APPEND: &str = "append:";
/// Octets kept back before they are written, in a batch.
const BUFFER: usize = 256 << 10;

/// A file that is being written.
#[derive(Debug)]
pub(crate) struct Output {
    path: PathBuf,
    /// One moment on two clocks.
    started: (Instant, Duration),
    state: Mutex<State>,
}

#[derive(Debug)]
pub(crate) struct State {
    /// None: writing has failed, or nobody wants to write any more.
    file: Option<File>,
    /// It was made for this, and no packet has been recorded.
    is_new: bool,
    /// Octets of the whole blocks in it.
    length: u64,
    /// Whole blocks, to be written.
    blocks: Vec<u8>,
    interfaces: u32,
    /// Connections that are being recorded: local address, peer's address.
    flows: HashSet<(SocketAddr, SocketAddr)>,
}

/// A file that this process has begun.
struct Begun {
    process: u32,
    path: PathBuf,
    output: Weak<Output>,
}

/// All of them.
static FILES: Mutex<Vec<Begun>> = Mutex::new(Vec::new());

impl Output {
    pub(crate) fn open(name: &str) -> Result<Arc<Self>, OpenError> {
        static CAPTURES: AtomicU32 = AtomicU32::new(0);
        let process = std::process::id();
        let (name, append) = name.strip_prefix(APPEND).map_or((name, false), |name| (name, true));
        let path = expand(name, process, CAPTURES.fetch_add(1, Ordering::Relaxed))?;
        let mut files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
        let begun = files.iter_mut().find(|begun| begun.process == process && begun.path == path);
        let shared = begun.as_ref().and_then(|begun| begun.output.upgrade());
        if let Some(output) = shared.filter(|output| output.lock().file.is_some()) {
            return Ok(output);
        }
        let output = Arc::new(Self::create(&path, append || begun.is_some())?);
        match begun {
            Some(begun) => begun.output = Arc::downgrade(&output),
            None => files.push(Begun { process, path, output: Arc::downgrade(&output) }),
        }
        Ok(output)
    }

    fn create(path: &Path, go_on: bool) -> Result<Self, OpenError> {
        let failed = |source| OpenError::Io { path: path.into(), source };
        let options = || {
            let mut options = OpenOptions::new();
            // Where others may write to the directory, the name may be a link of theirs to a file of ours.
            // And to open a pipe is to wait for its reader.
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
                    (true, false) => return Err(OpenError::Foreign(path.into())),
                    (false, _) => return Err(OpenError::NotAFile(path.into())),
                }
                if !go_on {
                    file.try_lock().map_err(in_use)?;
                    return Err(OpenError::Exists(path.into()));
                }
                let mut begin = [0; pcapng::BEGIN.len()];
                let read = file.read_at(&mut begin, 0).map_err(failed)?;
                if read > 0 && begin != pcapng::BEGIN {
                    return Err(OpenError::NotACapture(path.into()));
                }
                file
            }
            Err(source) => return Err(failed(source)),
        };
        // Held for as long as the file is open.
        file.try_lock().map_err(in_use)?;
        let length = file.metadata().map_err(failed)?.len();
        let mut blocks = Vec::new();
        pcapng::section(&mut blocks, &application(), COMMENT);
        let file = Some(file);
        let state = State { file, is_new, length, blocks, interfaces: 0, flows: HashSet::new() };
        let epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let output =
            Self { path: path.into(), started: (Instant::now(), epoch), state: Mutex::new(state) };
        output.lock().write().map_err(failed)?;
        Ok(output)
    }

    /// One of those who write to the file goes. The last closes it, before anybody can look whether it is
    /// open, and leaves no file without a packet: whoever only looks whether an adapter opens would keep the
    /// next program from making its file.
    pub(crate) fn leave(self: &Arc<Self>) {
        let _files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
        if Arc::strong_count(self) == 1 {
            let mut state = self.lock();
            if let Some(file) = state.file.take().filter(|_| state.is_new) {
                self.remove(&file);
            }
        }
    }

    /// Removes the file, if its name still leads to it.
    fn remove(&self, file: &File) {
        let here = file.metadata().map(|of| (of.dev(), of.ino())).ok();
        let there = std::fs::symlink_metadata(&self.path).map(|of| (of.dev(), of.ino())).ok();
        if here.is_some() && here == there {
            std::fs::remove_file(&self.path).ok();
        }
    }

    /// Another adapter writes to the file; answers the number of its interface.
    pub(crate) fn add_interface(&self, name: &str) -> Result<u32, OpenError> {
        let mut state = self.lock();
        pcapng::interface(&mut state.blocks, name);
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
        pcapng::packet(&mut state.blocks, interface, self.nanos(at), direction, frame);
        if state.blocks.len() >= BUFFER {
            self.write(state);
        }
    }

    /// Since 1970 began.
    fn nanos(&self, at: Instant) -> u64 {
        let (instant, epoch) = self.started;
        let time = match at.checked_duration_since(instant) {
            Some(since) => epoch + since,
            None => epoch.saturating_sub(instant.duration_since(at)),
        };
        time.as_nanos() as u64
    }

    /// Writes what is recorded. The first failure ends the recording.
    pub(crate) fn write(&self, state: &mut State) {
        if state.file.is_some()
            && let Err(error) = state.write()
        {
            let line =
                format!("OpenDAT: {}: {error}; the capture ends here\n", self.path.display());
            // Where standard error is closed nobody wants to know.
            io::stderr().write_all(line.as_bytes()).ok();
        }
    }
}

impl State {
    fn write(&mut self) -> io::Result<()> {
        let Some(file) = &mut self.file else {
            return Err(io::Error::other("writing to it has failed before"));
        };
        let written = file.write_all(&self.blocks);
        if written.is_ok() {
            self.length += self.blocks.len() as u64;
        } else {
            // Half a block at the end would be an error to who reads the file.
            file.set_len(self.length).ok();
            self.file = None;
        }
        self.blocks.clear();
        written
    }

    /// Notes a connection. False: it is noted as seen from the other end.
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

fn expand(name: &str, process: u32, number: u32) -> Result<PathBuf, OpenError> {
    if name.is_empty() {
        return Err(OpenError::Nameless);
    }
    let mut path = String::new();
    let mut rest = name;
    while let Some((before, after)) = rest.split_once('%') {
        path.push_str(before);
        let mut chars = after.chars();
        match chars.next() {
            Some('p') => write!(path, "{process}").unwrap_or_default(),
            Some('n') => write!(path, "{number}").unwrap_or_default(),
            Some('%') => path.push('%'),
            _ => {
                let before = name[..name.len() - after.len() - 1].into();
                return Err(OpenError::Pattern { name: name.into(), before });
            }
        }
        rest = chars.as_str();
    }
    path.push_str(rest);
    Ok(path.into())
}

/// Who writes the file.
fn application() -> String {
    let program = std::env::current_exe().ok();
    let program =
        program.as_deref().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
    format!("OpenDAT {} in {program}, process {}", env!("CARGO_PKG_VERSION"), std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let expanded = |name| expand(name, 4711, 2).map(|path| path.display().to_string());
        assert_eq!(expanded("a.pcapng").expect("plain"), "a.pcapng");
        assert_eq!(expanded("%p").expect("process"), "4711");
        assert_eq!(expanded("/tmp/é-%n-%p%%.pcapng").expect("all"), "/tmp/é-2-4711%.pcapng");
        assert!(matches!(expanded(""), Err(OpenError::Nameless)));
        let error = |name| expanded(name).expect_err(name).to_string();
        let expected =
            "expected %p (process id), %n (number of the capture in the process) or %% after";
        assert_eq!(error("a%p%"), format!("a%p%: {expected} \"a%p\""));
        assert_eq!(error("%x%p"), format!("%x%p: {expected} \"\""));
        assert_eq!(error("ü%ü"), format!("ü%ü: {expected} \"ü\""));
    }

    /// As on a full disk: recording ends, but whoever opens the file again may try.
    #[test]
    fn a_write_that_fails_is_the_last() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("capture.pcapng");
        let name = path.to_str().expect("UTF-8");
        let output = Output::open(name).expect("opens");
        output.lock().file = Some(File::open(&path).expect("for reading"));
        let length = path.metadata().expect("it is there").len();

        let mut state = output.lock();
        output.packet(&mut state, 0, Instant::now(), Direction::Out, |frame| frame.push(1));
        state.write().expect_err("it cannot be written to");
        assert!(state.file.is_none() && state.blocks.is_empty());
        output.packet(&mut state, 0, Instant::now(), Direction::Out, |frame| frame.push(1));
        assert!(state.blocks.is_empty());
        drop(state);
        assert!(matches!(output.add_interface("x"), Err(OpenError::Io { .. })));
        assert_eq!(path.metadata().expect("it is there").len(), length);

        let again = Output::open(name).expect("opens");
        assert_eq!(again.add_interface("x").expect("writes"), 0);
        assert!(path.metadata().expect("it is there").len() > length);
    }
}
