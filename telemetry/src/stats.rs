//! The server that tells other programs the statistics of the adapters of this process.
//!
//! A thread serves them on a Unix socket in the [directory of the user](UserDirectory), which only
//! the user and root can enter. The name is `NETNS/stats/PID-COPY`, where COPY numbers the copies
//! of this code in one process, each of which has adapters of its own. The text of each adapter is
//! made on request.
//!
//! The socket's file outlives a process that is killed. The next process of the user removes it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tracing::warn;

use crate::threads;
use crate::user_directory::{NoDirectory, UserDirectory, create_with_parents};

/// Appends the statistics of one adapter to a text.
type Report = Box<dyn Fn(&mut String) + Send>;

/// The open adapters, by their handles, and the server.
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

/// The file name of a socket. Dropping the value removes the file.
struct SocketFile {
    path: PathBuf,
    /// A lock on the directory, because systemd-tmpfiles removes no files, however old, from a
    /// locked directory.
    _lock: File,
}

static SERVED_ADAPTERS: Mutex<ServedAdapters> =
    Mutex::new(ServedAdapters { process: 0, adapters: Vec::new(), server: None });

/// The directory of the sockets, below that of the network namespace.
pub const DIRECTORY: &str = "stats";
/// The suffix of a socket's name until its process listens.
const UNREADY_SUFFIX: &str = ".new";
/// How often the directory is created again, if other processes that end remove it meanwhile.
const CREATE_ATTEMPT_COUNT: usize = 100;
/// The delay before the next accept after one has failed.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);
/// A client that does not read the answer within this time is disconnected.
const WRITE_TIMEOUT: Duration = Duration::from_secs(1);

fn served_adapters() -> MutexGuard<'static, ServedAdapters> {
    SERVED_ADAPTERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Serves the statistics of an adapter, by its handle, until [`remove_adapter`]. `report` appends
/// them to a text.
pub fn add_adapter(handle: usize, report: impl Fn(&mut String) + Send + 'static) {
    let mut served_adapters = served_adapters();
    if served_adapters.process != std::process::id() {
        // In a child of fork(2), the entries are the parent's adapters, and the server's thread
        // does not exist.
        let of_parent = std::mem::take(&mut *served_adapters);
        std::mem::forget(of_parent);
        served_adapters.process = std::process::id();
    }
    served_adapters.adapters.push((handle, Box::new(report)));
    if served_adapters.server.is_none() {
        // The program works even if the server cannot start.
        served_adapters.server = StatsServer::start();
    }
}

/// Removes an adapter that is about to be closed. When this returns, the server does not use it any
/// more.
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
        // A server that another thread starts as soon as the lock is free has the same file.
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
                    // Perhaps no file descriptor is free now. Try again later.
                    Err(_) => std::thread::sleep(ACCEPT_RETRY_DELAY),
                }
            }
        };
        let thread = threads::spawn("dat-stats", answer).ok()?;
        Some(StatsServer { stop, file, listener, thread })
    }
}

impl Drop for SocketFile {
    /// Removes the file, and the directories if they are empty.
    fn drop(&mut self) {
        fs::remove_file(&self.path).ok();
        self.path.ancestors().skip(1).take(2).for_each(|directory| drop(fs::remove_dir(directory)));
    }
}

/// Creates the socket of this copy, in its directory.
fn listen() -> Result<(UnixListener, SocketFile), NoDirectory> {
    let of_user = UserDirectory::find()?;
    let directory = of_user.of_network_namespace()?.join(DIRECTORY);
    let mut attempt = Err(io::ErrorKind::NotFound.into());
    for _ in 0..CREATE_ATTEMPT_COUNT {
        attempt = listen_in(&directory);
        if !attempt.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            break;
        }
    }
    // Another process may have removed the directory meanwhile, and another user may have created
    // it.
    of_user.check()?;
    attempt.map_err(|error| (directory, error))
}

fn listen_in(directory: &Path) -> io::Result<(UnixListener, SocketFile)> {
    create_with_parents(directory)?;
    let lock = File::open(directory)?;
    // A process with the exclusive lock is about to remove old files. That does no harm, so the
    // lock may fail.
    let _ = lock.try_lock_shared();
    remove_stale_sockets(directory)?;
    let name = format!("{}-{:x}", std::process::id(), (&raw const SERVED_ADAPTERS).addr());
    let (path, unready) = (directory.join(&name), directory.join(name + UNREADY_SUFFIX));
    // A process that was killed may have had the same number and left its file.
    fs::remove_file(&unready).ok();
    let listener = UnixListener::bind(&unready)?;
    fs::rename(&unready, &path)?;
    Ok((listener, SocketFile { path, _lock: lock }))
}

fn remove_stale_sockets(directory: &Path) -> io::Result<()> {
    for path in sockets_in(directory)? {
        if !has_listener(&path)? {
            fs::remove_file(&path).ok();
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

/// Whether a process has the socket with this name. No process has it if the kernel refuses the
/// connection. A datagram socket can never be connected to it, so the check does not disturb its
/// owner.
///
/// # Errors
///
/// The check found no free file descriptor.
pub fn has_listener(path: &Path) -> io::Result<bool> {
    let answer = UnixDatagram::unbound()?.connect(path);
    Ok(!answer.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused))
}

/// Sends the statistics to a client. An error means that the client has left, so it can be ignored.
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

    #[test]
    fn a_socket_has_a_name_while_it_is_there() {
        let place = tempfile::tempdir().expect("a directory");
        let directory = place.path().join("4").join(DIRECTORY);
        let (first, of_first) = listen_in(&directory).expect("the socket can be made");
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
        // A process that is about to listen uses another name. Nobody removes a file of that name.
        let unready = place.path().join(format!("3-c{UNREADY_SUFFIX}"));
        fs::write(&unready, "").expect("the file can be written");
        let (_listener, own) = listen_in(place.path()).expect("the socket can be made");
        let mut sockets: Vec<_> = sockets_in(place.path()).expect("read").collect();
        sockets.sort();
        assert!(
            sockets == [of_other.clone(), own.path.clone()]
                || sockets == [own.path.clone(), of_other]
        );
        assert!(!of_killed.exists() && unready.exists());
    }
}
