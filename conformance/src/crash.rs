//! Reports in which library and function a process crashes. The exit status does not show whether
//! the provider or its consumer has the fault.

use std::ffi::{CStr, c_void};
use std::io::{Cursor, Write};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, Ordering};

/// The prefix of the last line that a crashing process prints to standard output. In the line, the
/// library and the function follow.
pub(crate) const LINE_PREFIX: &str = "conformance died: ";

/// The text that reports the death of a process. If the place of the crash is known, the word "in"
/// and the place follow.
pub(crate) const DIED: &str = "the process died";

/// The text that stands for the place of a crash which the process could not report. A thread that
/// blocks the signal of its own fault cannot report the place.
pub(crate) const UNREPORTED_PLACE: &str = "an unreported place";

/// The time limit for reporting a crash, in seconds. The report may need a lock that another thread
/// holds, such as the dynamic linker's lock.
const REPORT_TIMEOUT_SECONDS: libc::c_uint = 5;

/// The signals that a fault or `abort` causes.
pub(crate) const FATAL_SIGNALS: [libc::c_int; 5] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGABRT];

/// The size of the signal stack in octets. The handler runs on the signal stack, because the
/// thread's own stack may be exhausted.
const SIGNAL_STACK_BYTES: usize = 64 << 10;

/// Makes this process report its crashes. The report works even if this thread exhausts its stack.
/// Each other thread has the signal stack with which it was created: about 8 KiB if Rust created
/// the thread, and none if C code did.
pub(crate) fn report_crashes() {
    let stack = Box::leak(vec![0_u8; SIGNAL_STACK_BYTES].into_boxed_slice());
    let stack = libc::stack_t {
        ss_sp: stack.as_mut_ptr().cast(),
        ss_flags: 0,
        ss_size: SIGNAL_STACK_BYTES,
    };
    // SAFETY: no other code uses these octets, which are never freed. There is room for one frame.
    // This first call loads the unwinder, which a signal handler could not do.
    unsafe {
        libc::sigaltstack(&stack, null_mut());
        libc::backtrace([null_mut(); 1].as_mut_ptr(), 1);
    }
    FATAL_SIGNALS.into_iter().for_each(|signal| handle(signal, report_crash as *const () as usize));
}

fn handle(signal: libc::c_int, handler: libc::sighandler_t) {
    // SAFETY: the structure is complete, and the handler is a signal handler or SIG_DFL.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = libc::SA_ONSTACK | libc::SA_SIGINFO | libc::SA_NODEFER;
        libc::sigaction(signal, &action, null_mut());
    }
}

/// Handles the signal of a crash. The handler must not allocate memory, because the heap may be
/// corrupt.
extern "C" fn report_crash(
    signal: libc::c_int,
    _: *const libc::siginfo_t,
    context: *const libc::ucontext_t,
) {
    static REPORTING_THREAD: AtomicI32 = AtomicI32::new(0);
    // SAFETY: these system calls take no pointers.
    let this = unsafe {
        libc::alarm(REPORT_TIMEOUT_SECONDS);
        libc::gettid()
    };
    match REPORTING_THREAD.compare_exchange(0, this, Ordering::Relaxed, Ordering::Relaxed) {
        // SAFETY: the kernel has passed this context.
        Ok(_) => report_line(unsafe { locate_crash(context) }),
        // Another thread has crashed before this thread. When that thread has printed its report,
        // the process ends.
        Err(first) if first != this => loop {
            // SAFETY: this system call takes no pointers.
            unsafe { libc::pause() };
        },
        // This thread has crashed while it reported its first crash, so the stack cannot be walked.
        Err(_) => report_line((None, None)),
    }
    handle(signal, libc::SIG_DFL);
    // SAFETY: the signal is neither handled nor blocked any more, so it ends the process.
    unsafe { libc::raise(signal) };
}

/// Returns the place of the crash. If the crash happened inside of the C library, the place is that
/// of its caller, and the second value is the function that was called, for example `free` with a
/// corrupt heap.
///
/// # Safety
/// `context` must be the context that the kernel passes to a signal handler.
unsafe fn locate_crash(
    context: *const libc::ucontext_t,
) -> (Option<CodeLocation>, Option<&'static str>) {
    // SAFETY: the caller guarantees that `context` is from the kernel.
    if let Some(at) = unsafe { interrupted(context) }
        && !at.is_libc()
    {
        return (Some(at), None);
    }
    let mut frames = [null_mut(); 64];
    // SAFETY: the array has room for this many frames.
    let count = unsafe { libc::backtrace(frames.as_mut_ptr(), 64) };
    let places = frames.iter().take(usize::try_from(count).unwrap_or(0)).map(|frame| place(*frame));
    // The frames are: this handler, the signal frame of the C library, and then the interrupted
    // code. In the interrupted code, frames of the C library are skipped, because its faults come
    // from the arguments of its callers.
    let mut called = None;
    for place in places.skip_while(|place| !place.is_libc()).skip(1) {
        if !place.is_libc() {
            return (Some(place), called);
        }
        called = place.function;
    }
    (None, called)
}

/// Returns the place of the interrupted instruction. If that address contains no code, returns the
/// place of the caller.
///
/// # Safety
/// `context` must be the context that the kernel passes to a signal handler.
#[cfg(target_arch = "x86_64")]
unsafe fn interrupted(context: *const libc::ucontext_t) -> Option<CodeLocation> {
    // SAFETY: the caller guarantees that `context` is from the kernel.
    let registers = unsafe { (*context).uc_mcontext.gregs };
    let register = |index: libc::c_int| registers[index as usize] as usize;
    let at = place(std::ptr::without_provenance_mut(register(libc::REG_RIP)));
    if at.library != NO_LIBRARY {
        return Some(at);
    }
    let return_address = std::ptr::with_exposed_provenance::<*mut c_void>(register(libc::REG_RSP));
    // SAFETY: the address is the top of the stack. If it is unmapped, this handler is called again
    // and reports that.
    let caller = place(unsafe { return_address.read_unaligned() });
    (caller.library != NO_LIBRARY).then_some(caller)
}

#[cfg(not(target_arch = "x86_64"))]
unsafe fn interrupted(_: *const libc::ucontext_t) -> Option<CodeLocation> {
    None
}

/// Prints the report, which is the last line of standard output.
fn report_line((place, called): (Option<CodeLocation>, Option<&'static str>)) {
    let mut line = Cursor::new([0; 512]);
    let _ = write!(line, "\n{LINE_PREFIX}");
    let _ = match place {
        Some(CodeLocation { library, function: Some(function) }) => {
            write!(line, "{library} ({function})")
        }
        Some(CodeLocation { library, function: None }) => write!(line, "{library}"),
        None => write!(line, "an unknown place"),
    };
    let _ = match called {
        Some(function) => writeln!(line, ", calling {function}"),
        None => writeln!(line),
    };
    let length = usize::try_from(line.position()).unwrap_or(0);
    // SAFETY: the line has at least `length` bytes.
    unsafe { libc::write(1, line.get_ref().as_ptr().cast(), length) };
}

struct CodeLocation {
    library: &'static str,
    function: Option<&'static str>,
}

/// The name that stands for a library if the address is in no library that the dynamic linker
/// knows.
const NO_LIBRARY: &str = "no library";

impl CodeLocation {
    fn is_libc(&self) -> bool {
        self.library.starts_with("libc.") || self.library.starts_with("libc-")
    }
}

/// Asks the dynamic linker to which library and function an address belongs.
fn place(address: *mut c_void) -> CodeLocation {
    // SAFETY: the structure is plain data, which dladdr fills in.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    let text = |text: *const libc::c_char| match text.is_null() {
        true => None,
        // SAFETY: the strings belong to libraries, which stay loaded while their code is on the
        // stack.
        false => unsafe { CStr::from_ptr(text) }.to_str().ok(),
    };
    // SAFETY: dladdr accepts any address.
    if unsafe { libc::dladdr(address, &mut found) } == 0 {
        return CodeLocation { library: NO_LIBRARY, function: None };
    }
    let path = text(found.dli_fname).unwrap_or("a library without a name");
    CodeLocation {
        library: path.rsplit('/').next().unwrap_or(path),
        function: text(found.dli_sname),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;
    use std::ptr::null_mut;

    const CRASH_VARIABLE: &str = "CONFORMANCE_DIES";

    /// Calls itself without end, until the stack is exhausted.
    fn recurse(n: usize) -> usize {
        let octets = std::hint::black_box([n; 100]);
        if n == 0 { 0 } else { recurse(n + 1) + octets[n % 100] }
    }

    #[test]
    fn a_crash_is_attributed_to_the_code_that_was_called() {
        let this = std::env::current_exe().unwrap();
        match std::env::var(CRASH_VARIABLE).as_deref() {
            Ok("abort") => {
                super::report_crashes();
                // SAFETY: abort ends the process.
                unsafe { libc::abort() }
            }
            Ok("nowhere") => {
                super::report_crashes();
                let nowhere = std::hint::black_box(std::ptr::without_provenance::<()>(8));
                // SAFETY: this is not safe, because there is no code at address 8. This process
                // must crash.
                unsafe { std::mem::transmute::<*const (), extern "C" fn()>(nowhere)() };
            }
            Ok("overflow") => {
                super::report_crashes();
                std::hint::black_box(recurse(1));
            }
            Ok(way) => {
                super::report_crashes();
                if way == "blocked" {
                    // SAFETY: the signal set is a local of this thread.
                    unsafe {
                        let mut all = std::mem::zeroed();
                        libc::sigfillset(&mut all);
                        libc::pthread_sigmask(libc::SIG_BLOCK, &all, null_mut());
                    }
                }
                let nowhere = std::hint::black_box(std::ptr::without_provenance(8));
                // SAFETY: this is not safe. This process must crash.
                std::hint::black_box(unsafe { libc::strlen(nowhere) });
                unreachable!("no memory is mapped at address 8");
            }
            Err(_) => {}
        }
        // A fault in the C library is attributed to the caller of the C library.
        for (way, signal) in [
            ("blocked", libc::SIGSEGV),
            ("nowhere", libc::SIGSEGV),
            ("abort", libc::SIGABRT),
            ("fault", libc::SIGSEGV),
            ("overflow", libc::SIGSEGV),
        ] {
            let name = "crash::tests::a_crash_is_attributed_to_the_code_that_was_called";
            let child = Command::new(&this)
                .args(["--exact", name, "--nocapture"])
                .env(CRASH_VARIABLE, way)
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&child.stdout);
            let place = said.lines().find_map(|line| line.strip_prefix(super::LINE_PREFIX));
            let file = this.file_name().unwrap().to_str().unwrap();
            match way {
                "blocked" => assert_eq!(place, None, "the process has no time to report a place"),
                _ => assert!(place.is_some_and(|place| place.starts_with(file)), "{way}: {said}"),
            }
            assert_eq!(child.status.signal(), Some(signal), "{way}");
        }
    }
}
