//! A panic of the progress thread ends the process. The test runs it in a process of its own.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use dat_core::provider::{Provider, Receiver, Sink, Transport, Upcall};
use provider_mem::contract::rig::{EVENT_TIMEOUT, End};

use crate::{NAME, PROVIDER, Tested};

struct Panics;

impl Receiver<Tested> for Panics {
    fn upcall(&self, _: Upcall<'_, Tested>) {
        panic!("intended by the test");
    }
}

#[test]
fn a_panic_of_the_progress_thread_is_reported_and_ends_the_process() {
    let this = std::env::current_exe().expect("the test has a path");
    let mut child = Command::new(this);
    child.args([
        "--ignored",
        "--exact",
        "suite::panic::panic_in_the_progress_thread",
        "--nocapture",
    ]);
    let output = child.output().expect("the test program starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{}: {stderr}", output.status);
    let expected = format!("dat: {NAME}: the progress thread panicked");
    assert!(stderr.contains(&expected), "{stderr}");

    // If the log has a destination and a format, the message has the same.
    child.env("DAPL_DBG_DEST", "1").env("OPENDAT_LOG", "json,warn");
    let output = child.output().expect("the test program starts");
    let stdout = String::from_utf8_lossy(&output.stdout);
    let expected =
        format!("\"message\":\"{NAME}: the progress thread panicked; the process ends\"");
    assert!(stdout.lines().any(|line| line.contains(&expected)), "{stdout}");
}

#[test]
#[ignore = "not a test: a child of the test above"]
fn panic_in_the_progress_thread() {
    let open = || PROVIDER.open(NAME, "127.0.0.1").expect("adapter");
    let (ta, tb) = (open(), open());
    // SAFETY: the sink is static, so it outlives the listener.
    let sink = unsafe { Sink::new(&Panics) };
    let listener = tb.listen(None, 1, sink).expect("listen");
    let caller = End::new(&ta);
    caller.connect(tb.port(&listener), b"", None);
    // No thread calls into the adapters any more. So the progress thread reports the request to the
    // sink, and the sink panics.
    std::thread::park_timeout(EVENT_TIMEOUT);
}
