//! What the adapters of this process have done, for whoever asks while it runs: with `OPENDAT_STATS=1` a
//! thread answers on an abstract Unix socket, `opendat-stats-PID-N`. It costs the data path nothing: the
//! counters are there anyway ([`crate::counters`]), and are read when somebody asks.
//!
//! The answer is lines of words: `ia NAME PROVIDER HANDLE`, then what counts for it, `COUNTER NUMBER`, those
//! that are not 0; `ep HANDLE STATE` and what counts for that; `sum ep` and `sum evd`, and what all of them
//! come to.

use std::fmt::Write as _;
use std::io::Write as _;
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
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
    listener: UnixListener,
    thread: JoinHandle<()>,
}

static OFFICE: Mutex<Office> = Mutex::new(Office { process: 0, adapters: Vec::new(), clerk: None });

/// Several copies of this code may be in one process, each with adapters of its own.
const COPIES: u32 = 16;
/// Until the next caller, when one could not be let in.
const PAUSE: Duration = Duration::from_millis(100);
/// Until the next caller, when one of another user has called. Without a pause, a user who calls all the time
/// would take as much of a processor as the thread can get.
const PAUSE_AFTER_STRANGER: Duration = Duration::from_millis(10);
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
        let bind = |n| {
            let address =
                SocketAddr::from_abstract_name(format!("opendat-stats-{}-{n}", std::process::id())).ok()?;
            UnixListener::bind_addr(&address).ok()
        };
        let Some(listener) = (0..COPIES).find_map(bind) else {
            warn!(target: "dat::ia", "dat top cannot ask this process: no name for its socket is free");
            return None;
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
                    Ok(caller) if is_allowed(&caller) => drop(serve(&caller)),
                    Ok(stranger) => {
                        drop(stranger);
                        std::thread::sleep(PAUSE_AFTER_STRANGER);
                    }
                    // No descriptor is left, say, and there will be none at once.
                    Err(_) => std::thread::sleep(PAUSE),
                }
            }
        };
        let thread = threads::spawn("dat-stats", answer).ok()?;
        Some(Clerk { stop, listener, thread })
    }

    fn end(self) {
        self.stop.store(true, Ordering::Release);
        // SAFETY: a socket that is open. Who waits for callers there is told that none will come.
        unsafe { libc::shutdown(self.listener.as_raw_fd(), libc::SHUT_RDWR) };
        let _ = self.thread.join();
    }
}

/// Whether the caller is the same user, or the one who may do anything.
fn is_allowed(caller: &UnixStream) -> bool {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: a socket, and room for the answer of this length.
    let asked = unsafe {
        let option = (&raw mut peer).cast();
        libc::getsockopt(caller.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, option, &mut length)
    };
    // SAFETY: no arguments, cannot fail.
    let own = unsafe { libc::geteuid() };
    asked == 0 && (peer.uid == own || peer.uid == 0)
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
    let _ = writeln!(text, "ia {} {} {:#x}", word(&ia.name), word(ia.provider), ia.handle() as usize);
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
