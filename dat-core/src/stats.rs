//! What the adapters of this process have done, for whoever asks while it runs: with `OPENDAT_STATS=1` a
//! thread answers on a Unix socket in the [directory of the user](UserDirectory), which only the user and
//! root can enter: `NETNS/stats/PID-COPY`, since several copies of this code may be in one process, each with
//! adapters of its own. It costs the data path nothing: the counters are there anyway ([`crate::counters`]),
//! and are read when somebody asks.
//!
//! A socket's file outlives a process that is killed. The next process of the user removes it.
//!
//! The answer is lines of words: `ia NAME PROVIDER HANDLE`, then what counts for it, `COUNTER NUMBER`, those
//! that are not 0; `ep HANDLE STATE` and what counts for that; `sum ep` and `sum evd`, and what all of them
//! come to.

use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write as _};
use std::os::fd::AsRawFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use dat_sys::*;
use tracing::warn;

use crate::counters::{Ask, EP, EP_ALL, EP_OWN, EVD, names};
use crate::environment;
use crate::ep::Ep;
use crate::evd::Evd;
use crate::handle::{self, Node};
use crate::ia::Ia;
use crate::provider::Transport;
use crate::threads;
use crate::user_directory::{NoDirectory, UserDirectory};

/// Adds what an adapter has done.
type Report = Box<dyn Fn(&mut String) + Send>;

/// The adapters that are open, by their handles, and who answers for them.
#[derive(Default)]
struct Office {
    /// Whose they are.
    process: u32,
    adapters: Vec<(usize, Report)>,
    clerk: Option<Clerk>,
}

struct Clerk {
    stop: Arc<AtomicBool>,
    file: SocketFile,
    listener: UnixListener,
    thread: JoinHandle<()>,
}

/// The name of a socket, until this is dropped.
struct SocketFile {
    path: PathBuf,
    /// systemd-tmpfiles removes no file, however old, from a directory that somebody has locked.
    _lock: File,
}

static OFFICE: Mutex<Office> = Mutex::new(Office { process: 0, adapters: Vec::new(), clerk: None });

/// The sockets' directory, in that of the network namespace.
pub const DIRECTORY: &str = "stats";
/// The end of a socket's name until its process listens there.
const UNREADY: &str = ".new";
/// So often the directory is made again, where the last one of others who have left removes it meanwhile.
const ATTEMPTS: usize = 100;
/// Until the next caller, when one could not be let in.
const PAUSE: Duration = Duration::from_millis(100);
/// Who asks takes the answer, or leaves.
const PATIENCE: Duration = Duration::from_secs(1);

fn office() -> MutexGuard<'static, Office> {
    OFFICE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An adapter was opened.
pub(crate) fn enter<T: Transport>(ia: &'static Node<Ia<T>>) {
    if environment::variable("OPENDAT_STATS").is_none_or(|value| value.is_empty() || value == "0") {
        return;
    }
    let mut office = office();
    if office.process != std::process::id() {
        // What a child of fork has from its parent: adapters that are not its own, and a thread that is not there.
        let of_parent = std::mem::take(&mut *office);
        std::mem::forget(of_parent);
        office.process = std::process::id();
    }
    office.adapters.push((ia.handle() as usize, Box::new(|text| report(ia, text))));
    if office.clerk.is_none() {
        // Without an answer the program works all the same.
        office.clerk = Clerk::start();
    }
}

/// An adapter is about to be closed: nobody looks at it any more when this returns.
pub(crate) fn leave<T: Transport>(ia: &Node<Ia<T>>) {
    let mut office = office();
    if office.process != std::process::id() {
        return;
    }
    office.adapters.retain(|(handle, _)| *handle != ia.handle() as usize);
    if office.adapters.is_empty()
        && let Some(clerk) = office.clerk.take()
    {
        drop(office);
        clerk.end();
    }
}

impl Clerk {
    fn start() -> Option<Clerk> {
        let (listener, file) = match listen() {
            Ok(both) => both,
            Err((path, error)) => {
                let path = path.display();
                warn!(target: "dat::ia", "dat top cannot ask this process: {path}: {error}");
                return None;
            }
        };
        let calls = listener.try_clone().ok()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let answer = move || {
            for caller in calls.incoming() {
                if stopped.load(Ordering::Acquire) {
                    return;
                }
                match caller {
                    Ok(caller) => drop(serve(&caller)),
                    // No descriptor is left, say, and there will be none at once.
                    Err(_) => std::thread::sleep(PAUSE),
                }
            }
        };
        let thread = threads::spawn("dat-stats", answer).ok()?;
        Some(Clerk { stop, file, listener, thread })
    }

    fn end(self) {
        drop(self.file);
        self.stop.store(true, Ordering::Release);
        // SAFETY: a socket that is open. Who waits for callers there is told that none will come.
        unsafe { libc::shutdown(self.listener.as_raw_fd(), libc::SHUT_RDWR) };
        let _ = self.thread.join();
    }
}

impl Drop for SocketFile {
    /// The last one removes the directories, too.
    fn drop(&mut self) {
        fs::remove_file(&self.path).ok();
        self.path.ancestors().skip(1).take(2).for_each(|directory| drop(fs::remove_dir(directory)));
    }
}

/// Makes the socket of this copy, in its directory.
fn listen() -> Result<(UnixListener, SocketFile), NoDirectory> {
    let of_user = UserDirectory::find()?;
    let directory = of_user.of_network_namespace()?.join(DIRECTORY);
    let mut attempt = Err(io::ErrorKind::NotFound.into());
    for _ in 0..ATTEMPTS {
        attempt = listen_in(&directory);
        if !attempt.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            break;
        }
    }
    // Somebody may have removed it meanwhile, and another user may have made it.
    of_user.check()?;
    attempt.map_err(|error| (directory, error))
}

fn listen_in(directory: &Path) -> io::Result<(UnixListener, SocketFile)> {
    DirBuilder::new().mode(0o700).recursive(true).create(directory)?;
    let lock = File::open(directory)?;
    // Who holds it alone is about to remove old files. That ends, and hinders nobody.
    let _ = lock.try_lock_shared();
    remove_files_of_the_dead(directory)?;
    let name = format!("{}-{:x}", std::process::id(), (&raw const OFFICE).addr());
    let (path, unready) = (directory.join(&name), directory.join(name + UNREADY));
    // A process that was killed may have had the same number.
    fs::remove_file(&unready).ok();
    let listener = UnixListener::bind(&unready)?;
    fs::rename(&unready, &path)?;
    Ok((listener, SocketFile { path, _lock: lock }))
}

fn remove_files_of_the_dead(directory: &Path) -> io::Result<()> {
    for path in sockets_in(directory)? {
        if !lives(&path)? {
            fs::remove_file(&path).ok();
        }
    }
    Ok(())
}

/// The sockets in one directory of them, also those of processes that were killed.
///
/// # Errors
///
/// The directory cannot be read.
pub fn sockets_in(directory: &Path) -> io::Result<impl Iterator<Item = PathBuf> + use<>> {
    let paths = fs::read_dir(directory)?.filter_map(|entry| Some(entry.ok()?.path()));
    Ok(paths.filter(|path| path.to_str().is_some_and(|path| !path.ends_with(UNREADY))))
}

/// Whether somebody has the socket of this name. Only the kernel's refusal means that nobody has it: a datagram socket
/// cannot be connected to it in any case, and so disturbs nobody.
///
/// # Errors
///
/// There is no descriptor to ask with.
pub fn lives(path: &Path) -> io::Result<bool> {
    let answer = UnixDatagram::unbound()?.connect(path);
    Ok(!answer.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused))
}

/// Answers. An error means that the caller has left, and does not want to know.
fn serve(mut caller: &UnixStream) -> std::io::Result<()> {
    caller.set_write_timeout(Some(PATIENCE))?;
    let mut text = String::new();
    for (_, report) in &office().adapters {
        report(&mut text);
    }
    caller.write_all(text.as_bytes())
}

fn report<T: Transport>(ia: &Node<Ia<T>>, text: &mut String) {
    const ALL: Ask = Ask { which: None, reset: false };
    let _ =
        writeln!(text, "ia {} {} {:#x}", word(&ia.name), word(ia.provider), ia.handle() as usize);
    count(text, "DCNT_IA_PZ_CREATE", &ia.counters.read(ALL));
    for (name, value) in ia.transport.counters() {
        let _ = writeln!(text, "{name} {value}");
    }
    // Under this lock none of its objects goes away.
    let _control = ia.control();
    let mut sum = [0u64; EP_ALL];
    for handle in ia.objects(DAT_HANDLE_TYPE_EP) {
        // SAFETY: as above.
        let Ok(ep) = (unsafe { handle::get::<Ep<T>>(handle) }) else { continue };
        let counted = ep.counters.read(ALL);
        let _ = writeln!(text, "ep {:#x} {:?}", handle as usize, ep.state());
        count_ep(text, &counted);
        sum.iter_mut().zip(counted).for_each(|(sum, n)| *sum += n);
    }
    let _ = writeln!(text, "sum ep");
    count_ep(text, &sum);
    let mut sum = [0u64; EVD];
    for handle in ia.objects(DAT_HANDLE_TYPE_EVD) {
        // SAFETY: as above.
        let Ok(evd) = (unsafe { handle::get::<Evd<T>>(handle) }) else { continue };
        sum.iter_mut().zip(evd.counters(ALL)).for_each(|(sum, n)| *sum += n);
    }
    let _ = writeln!(text, "sum evd");
    count(text, "DCNT_EVD_WAIT", &sum);
}

fn count(text: &mut String, first: &'static str, counters: &[u64]) {
    for (name, value) in names(first).zip(counters).filter(|(_, value)| **value > 0) {
        let _ = writeln!(text, "{name} {value}");
    }
}

fn count_ep(text: &mut String, counters: &[u64; EP_ALL]) {
    let (of_the_header, own) = counters.split_at(EP);
    count(text, "DCNT_EP_CONNECT", of_the_header);
    for (name, value) in EP_OWN.iter().zip(own).filter(|(_, value)| **value > 0) {
        let _ = writeln!(text, "{name} {value}");
    }
}

/// A name without what would end it.
fn word(name: &str) -> String {
    name.split_whitespace().collect::<Vec<_>>().join("_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_has_a_name_while_it_is_there() {
        let place = tempfile::tempdir().expect("a directory");
        let directory = place.path().join("4").join(DIRECTORY);
        let (first, of_first) = listen_in(&directory).expect("made");
        assert!(lives(&of_first.path).expect("a descriptor"));
        drop((of_first, first));
        assert!(!place.path().join("4").exists(), "the last one removes the directories");
    }

    #[test]
    fn what_a_killed_process_leaves_is_removed() {
        let place = tempfile::tempdir().expect("a directory");
        let of_killed = place.path().join("1-a");
        drop(UnixListener::bind(&of_killed).expect("bound"));
        assert!(!lives(&of_killed).expect("a descriptor"));
        let of_other = place.path().join("2-b");
        let _other = UnixListener::bind(&of_other).expect("bound");
        // One who is about to listen has another name, which nobody removes.
        let unready = place.path().join(format!("3-c{UNREADY}"));
        fs::write(&unready, "").expect("written");
        let (_listener, own) = listen_in(place.path()).expect("made");
        let mut sockets: Vec<_> = sockets_in(place.path()).expect("read").collect();
        sockets.sort();
        assert!(
            sockets == [of_other.clone(), own.path.clone()]
                || sockets == [own.path.clone(), of_other]
        );
        assert!(!of_killed.exists() && unready.exists());
    }
}
