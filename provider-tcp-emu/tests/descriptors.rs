//! Tests that silent callers at several adapters leave descriptors for the process, and that a
//! second call needs no further descriptor. This file has only one test, because the test lowers
//! the limit of its process.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use dat_core::provider::{Provider, Queue, Transport};
use provider_mem::contract::rig::{DEPTH, End, Event, Rig, Service};
use provider_tcp_emu::{Tcp, TcpEmu};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// siw's request as initiator: no peer-to-peer model, one RDMA read each way.
const REQUEST: &[u8] = b"MPA ID Req Frame\x10\x02\x00\x04\x00\x01\x00\x01";
/// siw's reply as responder.
const REPLY: &[u8] = b"MPA ID Rep Frame\x10\x02\x00\x04\x00\x01\x00\x01";

const ADAPTERS: usize = 4;
/// The number of descriptors that the process may have.
const LIMIT: usize = 256;
/// The number of descriptors that all silent callers together may hold.
const SHARE: usize = LIMIT / 4;
const RESERVE: usize = 64;
/// The number of descriptors by which the callers of all adapters may exceed their limit. One
/// caller of each adapter is always admitted, and each adapter accepts the next caller before it
/// evicts another one.
const ALLOWANCE: usize = 2 * ADAPTERS;
/// The number of silent callers at each adapter.
const CALLS: usize = 120;

/// An environment variable with ports. A process that has this variable only calls at these ports.
const PORTS: &str = "OPENDAT_TEST_PORTS";
/// The line that the calling process prints when it has made all calls.
const HAVE_CALLED: &str = "all have called";

/// Calls at all ports, and holds the connections until the standard input ends.
fn call(ports: &str) {
    // The test has lowered the limit, and this process inherits it.
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).expect("a higher limit");
    let ports: Vec<u16> = ports.split(' ').map(|port| port.parse().expect("a port")).collect();
    let mut held = Vec::new();
    for _ in 0..CALLS {
        for &port in &ports {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("connect");
            // The kernel holds back connections on which no octets are sent.
            stream.write_all(&REQUEST[..1]).expect("room");
            held.push(stream);
        }
    }
    println!("{HAVE_CALLED}");
    std::io::stdin().read_to_end(&mut Vec::new()).expect("the parent's pipe");
}

/// A process that calls silently at all adapters.
struct Callers {
    process: Child,
    /// A thread that waits until all callers have called. It returns the end of the pipe at which
    /// this process reads the other process's output.
    have_called: JoinHandle<Option<ChildStdout>>,
}

impl Callers {
    /// The number of descriptors that the test needs for the pipes to the calling process.
    const DESCRIPTORS: usize = 2;

    fn new(ports: &str, test: &str) -> Self {
        let mut process = Command::new(std::env::current_exe().expect("this program has a name"))
            .args(["--exact", test, "--nocapture"])
            .env(PORTS, ports)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let mut output = BufReader::new(process.stdout.take().expect("a pipe"));
        let have_called = thread::spawn(move || {
            let mut lines = output.by_ref().lines().map_while(Result::ok);
            let have_called = lines.any(|line| line.contains(HAVE_CALLED));
            have_called.then(|| output.into_inner())
        });
        Callers { process, have_called }
    }
}

/// The number of descriptors that this process has.
fn descriptors() -> usize {
    // The count includes the descriptor that reads the directory, so subtract 1.
    std::fs::read_dir("/proc/self/fd").expect("a free descriptor").count() - 1
}

/// Makes all adapters progress until all callers have called and `most` descriptors have been in
/// use at the same time. Never more than `limit` descriptors may be in use.
fn serve(adapters: &[Tcp], callers: &Callers, most: usize, limit: usize) {
    let mut seen = 0;
    let rig = Rig { a: &adapters[0], b: &adapters[1] };
    rig.until("the callers", || {
        adapters.iter().for_each(Transport::progress);
        let now = descriptors();
        assert!(now <= limit, "{now} descriptors are in use, and {limit} are allowed");
        seen = seen.max(now);
        (callers.have_called.is_finished() && seen >= most).then_some(())
    });
}

/// Checks that each adapter serves a caller that sends its whole request.
fn serve_real_callers(adapters: &[Tcp], services: &[Service<'_, Tcp>]) {
    for (t, service) in adapters.iter().zip(services) {
        let rig = Rig { a: t, b: t };
        let end = End::new(t);
        let port = service.port(t);
        let mut caller = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("connect");
        caller.set_read_timeout(Some(Duration::from_secs(60))).expect("timeout");
        caller.write_all(REQUEST).expect("request");
        let (request, ..) = service.request(&rig);
        end.qp.accept(request, b"", DEPTH).expect("accept");
        assert!(matches!(rig.next("the connection", &end.log), Event::Established { .. }));
        let mut reply = [0; 24];
        caller.read_exact(&mut reply).expect("a reply");
        assert_eq!(reply, REPLY);
    }
}

/// Checks that an attempt whose first call gets no answer calls again with the descriptor of the
/// first call, because there is no other one.
fn call_again_without_descriptors(t: &Tcp) {
    let rig = Rig { a: t, b: t };
    let end = End::new(t);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("port");
    end.connect(listener.local_addr().expect("the socket is bound").port(), b"", None);
    let (mut first, _) = listener.accept().expect("a call");
    let mut request = [0; 24];
    first.read_exact(&mut request).expect("a request");
    let mut files = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        files.push(file);
    }
    first.shutdown(Shutdown::Write).expect("connected");
    first.set_nonblocking(true).expect("a socket");
    rig.until("the end of the first call", || first.read(&mut [0]).ok());
    drop(files);
    listener.set_nonblocking(true).expect("a socket");
    let (mut second, _) = rig.until("the second call", || listener.accept().ok());
    second.write_all(REPLY).expect("a reply");
    assert!(matches!(rig.next("the connection", &end.log), Event::Established { .. }));
}

#[test]
fn silent_callers_at_many_adapters_share_a_limit() {
    if let Ok(ports) = std::env::var(PORTS) {
        return call(&ports);
    }
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let limit = Rlimit { current: Some(LIMIT as u64), maximum };
    setrlimit(Resource::Nofile, limit).expect("a lower limit");

    let open = |_| TcpEmu.open("tcp-emu", "127.0.0.1").expect("adapter");
    let adapters: Vec<Tcp> = (0..ADAPTERS).map(open).collect();
    let services: Vec<_> = adapters.iter().map(|t| Service::new(t, 8)).collect();
    let ports = adapters.iter().zip(&services).map(|(t, service)| service.port(t).to_string());
    let ports = ports.collect::<Vec<_>>().join(" ");
    let test = "silent_callers_at_many_adapters_share_a_limit";
    call_again_without_descriptors(&adapters[0]);
    let idle = descriptors();
    // In the first round, the process uses few descriptors. In the second round, it uses nearly all
    // of them except the reserve.
    for is_scarce in [false, true] {
        let before = idle + Callers::DESCRIPTORS;
        let used = if is_scarce { LIMIT - RESERVE - 2 * ADAPTERS } else { before };
        let files: Vec<File> =
            (before..used).map(|_| File::open("/dev/null").expect("a file")).collect();
        let mut callers = Callers::new(&ports, test);
        match is_scarce {
            false => serve(&adapters, &callers, used + SHARE, used + SHARE + ALLOWANCE),
            true => serve(&adapters, &callers, used + ADAPTERS, LIMIT - RESERVE + ALLOWANCE),
        }
        serve_real_callers(&adapters, &services);
        drop(callers.process.stdin.take());
        let output = callers.have_called.join().expect("no panic");
        // Keep `output`, the pipe, open until the process ends, because the process writes to it.
        assert!(callers.process.wait().expect("the end of the process").success());
        assert!(output.is_some(), "not all callers have called");
        drop((files, output));
        let rig = Rig { a: &adapters[0], b: &adapters[1] };
        rig.until("the end of all connections", || {
            adapters.iter().for_each(Transport::progress);
            (descriptors() == idle).then_some(())
        });
    }
}
