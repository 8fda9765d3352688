//! A panic of the progress thread, which ends the process. So it happens in a process of its own.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use dat_core::provider::{Port, Provider, Receiver, Sink, Transport, Upcall};
use provider_loopback::contract::rig::{End, PATIENCE};

use crate::{NAME, PROVIDER, Tested};

struct Panics;

impl Receiver<Tested> for Panics {
    fn upcall(&self, _: Upcall<'_, Tested>) {
        panic!("as the test wants");
    }
}

#[test]
fn a_panic_of_the_background_thread_is_reported_and_ends_the_process() {
    let this = std::env::current_exe().expect("the test has a path");
    let mut child = Command::new(this);
    child.args(["--ignored", "--exact", "suite::panic::panic_in_the_background", "--nocapture"]);
    let output = child.output().expect("the test program starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{}: {stderr}", output.status);
    let expected = format!("dat: {NAME}: the thread that makes progress panicked");
    assert!(stderr.contains(&expected), "{stderr}");
}

#[test]
#[ignore = "not a test: a child of the test above"]
fn panic_in_the_background() {
    let open = || PROVIDER.open(NAME, "127.0.0.1").expect("adapter");
    let (ta, tb) = (open(), open());
    // SAFETY: a static outlives the service point.
    let sink = unsafe { Sink::new(&Panics) };
    let listener = tb.listen(Port::Any, 1, sink).expect("listen");
    let caller = End::new(&ta);
    caller.connect(tb.port(&listener), b"", None);
    // No thread calls into the adapters any more: the progress thread, which takes the call, must
    // end the process.
    std::thread::park_timeout(PATIENCE);
}
