//! The server that tells other programs the statistics of the adapters of this process.
//!
//! A thread serves the statistics on a Unix socket in the
//! [directory of the user](crate::user_directory), which only the user and root can enter. The name
//! of the socket is `NETNS/stats/PID-COPY`.
//! Several copies of this code may be loaded into one process, and each copy has adapters of its
//! own; COPY identifies the copy. The server creates the text about each adapter when a client
//! connects.
//!
//! If a process is killed, the file of its socket remains. The next process of the user removes the
//! file.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::fs::{AtFlags, unlinkat};
use tracing::warn;

use crate::threads;
use crate::user_directory::{NoDirectory, create_files};

/// A function that appends the statistics of one adapter to a text.
type Report = Box<dyn Fn(&mut String) + Send>;

/// The open adapters with their handles, and the server.
#[derive(Default)]
struct ServedAdapters {
    /// The process that the adapters belong to.
    process: u32,
    adapters: Vec<(usize, Report)>,
    server: Option<StatsServer>,
}

struct StatsServer {
    stop: Arc<AtomicBool>,
    file: SocketFile,
    listener: UnixListener,
    thread: JoinHandle<()>,
}

/// The file of a socket. Dropping the value removes the file.
struct SocketFile {
    path: PathBuf,
    /// A lock on the directory. It keeps systemd-tmpfiles from removing old files in the directory.
    _lock: File,
}

static SERVED_ADAPTERS: Mutex<ServedAdapters> =
    Mutex::new(ServedAdapters { process: 0, adapters: Vec::new(), server: None });

/// The directory of the sockets, inside the directory of the network namespace.
pub const DIRECTORY: &str = "stats";
/// The suffix that the name of a socket has until its process listens.
const UNREADY_SUFFIX: &str = ".new";
/// The delay after a failed accept before the next attempt.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);
/// A client that does not read the answer within this time is disconnected.
const WRITE_TIMEOUT: Duration = Duration::from_secs(1);

fn served_adapters() -> MutexGuard<'static, ServedAdapters> {
    SERVED_ADAPTERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Serves the statistics of the adapter with this handle until [`remove_adapter`] is called.
/// `report` appends the statistics to a text.
pub fn add_adapter(handle: usize, report: impl Fn(&mut String) + Send + 'static) {
    let mut served_adapters = served_adapters();
    if served_adapters.process != std::process::id() {
        // In a child of fork(2), the entries are the adapters of the parent, and the server's
        // thread does not exist.
        let of_parent = std::mem::take(&mut *served_adapters);
        std::mem::forget(of_parent);
        served_adapters.process = std::process::id();
    }
    served_adapters.adapters.push((handle, Box::new(report)));
    if served_adapters.server.is_none() {
        // If the server cannot start, the program works without statistics.
        served_adapters.server = StatsServer::start();
    }
}

/// Removes an adapter that is about to be closed. After this call the server does not use the
/// adapter any more.
pub fn remove_adapter(handle: usize) {
    let mut served_adapters = served_adapters();
    if served_adapters.process != std::process::id() {
        return;
    }
    served_adapters.adapters.retain(|(served, _)| *served != handle);
    if served_adapters.adapters.is_empty()
        && let Some(server) = served_adapters.server.take()
    {
        let StatsServer { stop, file, listener, thread } = server;
        // Remove the file before releasing the lock: as soon as the lock is free, another thread
        // may start a server with the same file.
        drop(file);
        drop(served_adapters);
        stop.store(true, Ordering::Release);
        // SAFETY: the socket is open. The shutdown ends the accept of the server's thread.
        unsafe { libc::shutdown(listener.as_raw_fd(), libc::SHUT_RDWR) };
        let _ = thread.join();
    }
}

impl StatsServer {
    fn start() -> Option<StatsServer> {
        let (listener, file) = match listen() {
            Ok(both) => both,
            Err((path, error)) => {
                let path = path.display();
                warn!(
                    target: "dat::ia",
                    "dat top cannot read the counters of this process: {path}: {error}"
                );
                return None;
            }
        };
        let accepting = listener.try_clone().ok()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let answer = move || {
            for client in accepting.incoming() {
                if stopped.load(Ordering::Acquire) {
                    return;
                }
                match client {
                    Ok(client) => drop(serve(&client)),
                    // If no file descriptor is free now, a later attempt may succeed.
                    Err(_) => std::thread::sleep(ACCEPT_RETRY_DELAY),
                }
            }
        };
        let thread = threads::spawn("dat-stats", answer).ok()?;
        Some(StatsServer { stop, file, listener, thread })
    }
}

impl Drop for SocketFile {
    /// Removes the file of the socket, and its directories if they are empty.
    fn drop(&mut self) {
        fs::remove_file(&self.path).ok();
        self.path.ancestors().skip(1).take(2).for_each(|directory| drop(fs::remove_dir(directory)));
    }
}

/// Creates the socket of this copy of the code, in the directory of sockets.
fn listen() -> Result<(UnixListener, SocketFile), NoDirectory> {
    create_files(DIRECTORY, listen_in)
}

fn listen_in(directory: &Path, opened: &File) -> io::Result<(UnixListener, SocketFile)> {
    let lock = opened.try_clone()?;
    // The lock fails if a process that removes old files holds the exclusive lock. That does no
    // harm.
    let _ = lock.try_lock_shared();
    remove_stale_sockets(directory, opened)?;
    let name = format!("{}-{:x}", std::process::id(), (&raw const SERVED_ADAPTERS).addr());
    let (path, unready) = (directory.join(&name), directory.join(name + UNREADY_SUFFIX));
    // A killed process that had the same process ID may have left its file.
    fs::remove_file(&unready).ok();
    let listener = UnixListener::bind(&unready)?;
    fs::rename(&unready, &path)?;
    Ok((listener, SocketFile { path, _lock: lock }))
}

/// Removes the sockets of killed processes. Only files in the open directory are removed, wherever
/// its path leads now.
fn remove_stale_sockets(directory: &Path, opened: &File) -> io::Result<()> {
    for path in sockets_in(directory)? {
        if !has_listener(&path)?
            && let Some(name) = path.file_name()
        {
            unlinkat(opened, name, AtFlags::empty()).ok();
        }
    }
    Ok(())
}

/// The sockets in a directory, including those of processes that were killed.
///
/// # Errors
///
/// The directory cannot be read.
pub fn sockets_in(directory: &Path) -> io::Result<impl Iterator<Item = PathBuf> + use<>> {
    let paths = fs::read_dir(directory)?.filter_map(|entry| Some(entry.ok()?.path()));
    Ok(paths.filter(|path| path.to_str().is_some_and(|path| !path.ends_with(UNREADY_SUFFIX))))
}

/// Whether a process listens on the socket with this name. If the kernel refuses the connection, no
/// process listens. This function uses a datagram socket. A datagram socket can never connect to a
/// listening socket, so the process is not disturbed.
///
/// # Errors
///
/// Fails if no file descriptor is free.
pub fn has_listener(path: &Path) -> io::Result<bool> {
    let answer = UnixDatagram::unbound()?.connect(path);
    Ok(!answer.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused))
}

/// Sends the statistics to a client. An error means that the client has disconnected, so the caller
/// can ignore it.
fn serve(mut client: &UnixStream) -> std::io::Result<()> {
    client.set_write_timeout(Some(WRITE_TIMEOUT))?;
    let mut text = String::new();
    for (_, report) in &served_adapters().adapters {
        report(&mut text);
    }
    client.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listen_at(directory: &Path) -> (UnixListener, SocketFile) {
        fs::create_dir_all(directory).expect("a directory");
        let opened = File::open(directory).expect("the directory can be read");
        listen_in(directory, &opened).expect("the socket can be made")
    }

    #[test]
    fn a_socket_has_a_name_while_it_is_there() {
        let place = tempfile::tempdir().expect("a directory");
        let directory = place.path().join("4").join(DIRECTORY);
        let (first, of_first) = listen_at(&directory);
        assert!(has_listener(&of_first.path).expect("a descriptor"));
        drop((of_first, first));
        assert!(!place.path().join("4").exists(), "the last listener must remove the directories");
    }

    #[test]
    fn sockets_of_killed_processes_are_removed() {
        let place = tempfile::tempdir().expect("a directory");
        let of_killed = place.path().join("1-a");
        drop(UnixListener::bind(&of_killed).expect("the address is free"));
        assert!(!has_listener(&of_killed).expect("a descriptor"));
        let of_other = place.path().join("2-b");
        let _other = UnixListener::bind(&of_other).expect("the address is free");
        // Until a process listens, its socket has another name, and other processes do not remove
        // it.
        let unready = place.path().join(format!("3-c{UNREADY_SUFFIX}"));
        fs::write(&unready, "").expect("the file can be written");
        let (_listener, own) = listen_at(place.path());
        let mut sockets: Vec<_> =
            sockets_in(place.path()).expect("the directory can be read").collect();
        sockets.sort();
        assert!(
            sockets == [of_other.clone(), own.path.clone()]
                || sockets == [own.path.clone(), of_other]
        );
        assert!(!of_killed.exists() && unready.exists());
    }
}
