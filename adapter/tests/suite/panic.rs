//! A panic of the thread that makes progress: in a process of its own, which does not survive it.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use dat_core::mem_transport::contract::rig::{EVENT_TIMEOUT, End};
use dat_core::provider::{Port, Provider, Receiver, Sink, Transport, Upcall};

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
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{}: {said}", output.status);
    let expected = format!("dat: {NAME}: the thread that makes progress panicked");
    assert!(said.contains(&expected), "{said}");
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
    // Nobody calls into the adapters any more: what ends this is the thread that takes the call.
    std::thread::park_timeout(EVENT_TIMEOUT);
}
