//! Where a process dies: in whose code. A provider's fault is not its consumer's, and the exit status does not tell them apart.

use std::ffi::{CStr, c_void};
use std::io::{Cursor, Write};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, Ordering};

/// What a dying process begins its last line of standard output with; the library and the function follow.
pub(crate) const MARK: &str = "conformance died: ";

/// How a report says it; `in` and the place follow, if there is one.
pub(crate) const DIED: &str = "the process died";

/// In place of the place: it had no time to say so. A thread that blocks the signal of its own fault has none.
pub(crate) const UNTOLD: &str = "an untold place";

/// Seconds for the last words. What they take, a lock of the dynamic linker for one, may be with another thread.
const PATIENCE: libc::c_uint = 5;

/// The signals of faults and of `abort`.
pub(crate) const DEADLY: [libc::c_int; 5] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGABRT];

/// Octets for the handler where the stack itself has ended.
const STACK: usize = 64 << 10;

/// From now on this process says where it dies. This thread may use up its stack; others have as much room for the handler as they
/// were given, by Rust some 8 KiB, by C none.
pub(crate) fn say_where() {
    let stack = Box::leak(vec![0_u8; STACK].into_boxed_slice());
    let stack = libc::stack_t { ss_sp: stack.as_mut_ptr().cast(), ss_flags: 0, ss_size: STACK };
    // SAFETY: nothing else has these octets, ever. There is room for one frame; this first use loads the unwinder, which a
    // handler could not.
    unsafe {
        libc::sigaltstack(&stack, null_mut());
        libc::backtrace([null_mut(); 1].as_mut_ptr(), 1);
    }
    DEADLY.into_iter().for_each(|signal| handle(signal, last_words as *const () as usize));
}

fn handle(signal: libc::c_int, handler: libc::sighandler_t) {
    // SAFETY: the record is complete, and the handler one for signals, or SIG_DFL.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = libc::SA_ONSTACK | libc::SA_SIGINFO | libc::SA_NODEFER;
        libc::sigaction(signal, &action, null_mut());
    }
}

/// Allocates nothing: the heap may be what is broken.
extern "C" fn last_words(
    signal: libc::c_int,
    _: *const libc::siginfo_t,
    context: *const libc::ucontext_t,
) {
    static SPEAKER: AtomicI32 = AtomicI32::new(0);
    // SAFETY: system calls without pointers.
    let this = unsafe {
        libc::alarm(PATIENCE);
        libc::gettid()
    };
    match SPEAKER.compare_exchange(0, this, Ordering::Relaxed, Ordering::Relaxed) {
        // SAFETY: the kernel's own record.
        Ok(_) => say(unsafe { died(context) }),
        // Another thread was first; the process ends when it has spoken.
        Err(first) if first != this => loop {
            // SAFETY: a system call without pointers.
            unsafe { libc::pause() };
        },
        // The stack is such that nobody can walk it.
        Err(_) => say((None, None)),
    }
    handle(signal, libc::SIG_DFL);
    // SAFETY: nothing handles or blocks the signal any more: this is the end.
    unsafe { libc::raise(signal) };
}

/// Where it died, and what of the C library was called there: `free`, for one, of a broken heap.
///
/// # Safety
/// It is the record that a handler of a signal is given.
unsafe fn died(context: *const libc::ucontext_t) -> (Option<Place>, Option<&'static str>) {
    // SAFETY: as the caller promised.
    if let Some(at) = unsafe { interrupted(context) }
        && !at.is_libc()
    {
        return (Some(at), None);
    }
    let mut frames = [null_mut(); 64];
    // SAFETY: room for as many frames.
    let count = unsafe { libc::backtrace(frames.as_mut_ptr(), 64) };
    let places = frames.iter().take(usize::try_from(count).unwrap_or(0)).map(|frame| place(*frame));
    // The handler, the C library's frame of the signal, then what it interrupted; of that, not the C library, which dies of
    // what it is given.
    let mut called = None;
    for place in places.skip_while(|place| !place.is_libc()).skip(1) {
        if !place.is_libc() {
            return (Some(place), called);
        }
        called = place.function;
    }
    (None, called)
}

/// What was being executed; where there is no code, whoever has called it.
///
/// # Safety
/// As [`died`].
#[cfg(target_arch = "x86_64")]
unsafe fn interrupted(context: *const libc::ucontext_t) -> Option<Place> {
    // SAFETY: as the caller promised.
    let registers = unsafe { (*context).uc_mcontext.gregs };
    let register = |index: libc::c_int| registers[index as usize] as usize;
    let at = place(std::ptr::without_provenance_mut(register(libc::REG_RIP)));
    if at.library != NO_LIBRARY {
        return Some(at);
    }
    let return_address = std::ptr::with_exposed_provenance::<*mut c_void>(register(libc::REG_RSP));
    // SAFETY: the top of the stack; should that be no memory either, this handler is called once more, and says so.
    let caller = place(unsafe { return_address.read_unaligned() });
    (caller.library != NO_LIBRARY).then_some(caller)
}

#[cfg(not(target_arch = "x86_64"))]
unsafe fn interrupted(_: *const libc::ucontext_t) -> Option<Place> {
    None
}

/// The last line of standard output.
fn say((place, called): (Option<Place>, Option<&'static str>)) {
    let mut line = Cursor::new([0; 512]);
    let _ = write!(line, "\n{MARK}");
    let _ = match place {
        Some(Place { library, function: Some(function) }) => write!(line, "{library} ({function})"),
        Some(Place { library, function: None }) => write!(line, "{library}"),
        None => write!(line, "an unknown place"),
    };
    let _ = match called {
        Some(function) => writeln!(line, ", calling {function}"),
        None => writeln!(line),
    };
    let length = usize::try_from(line.position()).unwrap_or(0);
    // SAFETY: as many bytes are written there.
    unsafe { libc::write(1, line.get_ref().as_ptr().cast(), length) };
}

struct Place {
    library: &'static str,
    function: Option<&'static str>,
}

/// Where there is no library, or none that the dynamic linker knows.
const NO_LIBRARY: &str = "no library";

impl Place {
    fn is_libc(&self) -> bool {
        self.library.starts_with("libc.") || self.library.starts_with("libc-")
    }
}

/// What the dynamic linker knows of an address.
fn place(address: *mut c_void) -> Place {
    // SAFETY: the record is plain data, for dladdr to fill.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    let text = |text: *const libc::c_char| match text.is_null() {
        true => None,
        // SAFETY: the texts of libraries that stay loaded while they are on the stack.
        false => unsafe { CStr::from_ptr(text) }.to_str().ok(),
    };
    // SAFETY: any address may be asked for.
    if unsafe { libc::dladdr(address, &mut found) } == 0 {
        return Place { library: NO_LIBRARY, function: None };
    }
    let path = text(found.dli_fname).unwrap_or("a library without a name");
    Place { library: path.rsplit('/').next().unwrap_or(path), function: text(found.dli_sname) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;
    use std::ptr::null_mut;

    const CHILD: &str = "CONFORMANCE_DIES";

    /// Has no end.
    fn deep(n: usize) -> usize {
        let octets = std::hint::black_box([n; 100]);
        if n == 0 { 0 } else { deep(n + 1) + octets[n % 100] }
    }

    #[test]
    fn a_death_is_of_the_code_that_was_called() {
        let this = std::env::current_exe().unwrap();
        match std::env::var(CHILD).as_deref() {
            Ok("abort") => {
                super::say_where();
                // SAFETY: that is the end of this process.
                unsafe { libc::abort() }
            }
            Ok("nowhere") => {
                super::say_where();
                let nowhere = std::hint::black_box(std::ptr::without_provenance::<()>(8));
                // SAFETY: none; there is no code at 8.
                unsafe { std::mem::transmute::<*const (), extern "C" fn()>(nowhere)() };
            }
            Ok("overflow") => {
                super::say_where();
                std::hint::black_box(deep(1));
            }
            Ok(way) => {
                super::say_where();
                if way == "blocked" {
                    // SAFETY: a set of this thread's own.
                    unsafe {
                        let mut all = std::mem::zeroed();
                        libc::sigfillset(&mut all);
                        libc::pthread_sigmask(libc::SIG_BLOCK, &all, null_mut());
                    }
                }
                let nowhere = std::hint::black_box(std::ptr::without_provenance(8));
                // SAFETY: none; this process is to die of it.
                std::hint::black_box(unsafe { libc::strlen(nowhere) });
                unreachable!("there is nothing at 8");
            }
            Err(_) => {}
        }
        // In the C library it is its caller's.
        for (way, signal) in [
            ("blocked", libc::SIGSEGV),
            ("nowhere", libc::SIGSEGV),
            ("abort", libc::SIGABRT),
            ("fault", libc::SIGSEGV),
            ("overflow", libc::SIGSEGV),
        ] {
            let name = "death::tests::a_death_is_of_the_code_that_was_called";
            let child = Command::new(&this)
                .args(["--exact", name, "--nocapture"])
                .env(CHILD, way)
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&child.stdout);
            let place = said.lines().find_map(|line| line.strip_prefix(super::MARK));
            let file = this.file_name().unwrap().to_str().unwrap();
            match way {
                "blocked" => assert_eq!(place, None, "it has no time for that"),
                _ => assert!(place.is_some_and(|place| place.starts_with(file)), "{way}: {said}"),
            }
            assert_eq!(child.status.signal(), Some(signal), "{way}");
        }
    }
}
