//! Silent callers at several adapters of a process leave descriptors for the process. The only test
//! here lowers the limit of its process.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use dat_core::provider::{Provider, Queue, Transport};
use provider_loopback::contract::rig::{DEPTH, End, Event, Rig, Service};
use provider_tcp_emu::{Tcp, TcpEmu};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// siw's request as initiator: no peer-to-peer model, one RDMA read each way.
const REQUEST: &[u8] = b"MPA ID Req Frame\x10\x02\x00\x04\x00\x01\x00\x01";
/// siw's reply as responder.
const REPLY: &[u8] = b"MPA ID Rep Frame\x10\x02\x00\x04\x00\x01\x00\x01";

const ADAPTERS: usize = 4;
/// The number of descriptors that the process may have.
const LIMIT: usize = 256;
/// The share of silent callers.
const SHARE: usize = LIMIT / 4;
const RESERVE: usize = 64;
/// What the callers of all adapters may hold beyond the limits: one caller of each adapter is
/// always admitted, and each adapter accepts the next caller before it evicts another one.
const ALLOWANCE: usize = 2 * ADAPTERS;
/// The number of silent callers at each adapter.
const CALLS: usize = 120;

/// If this variable is set, the process calls at the ports that it names.
const PORTS: &str = "OPENDAT_TEST_PORTS";
/// What the calling process writes when it has made all calls.
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
    /// Returns the other end of the process's output when all callers have called.
    have_called: JoinHandle<Option<ChildStdout>>,
}

impl Callers {
    /// The descriptors that this process needs for the other one.
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
    // One of them reads the directory.
    std::fs::read_dir("/proc/self/fd").expect("a free descriptor").count() - 1
}

/// Makes all adapters progress until all callers have called, and `most` descriptors have been in
/// use. There must never be more than `limit`.
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

/// A caller that sends its request is served at each adapter.
fn serve_real_callers(adapters: &[Tcp], services: &[Service<'_, Tcp>]) {
    for (t, service) in adapters.iter().zip(services) {
        let rig = Rig { a: t, b: t };
        let end = End::new(t);
        let port = service.port(t) as u16;
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
    let idle = descriptors();
    // The rest of the limit is free, or the process itself uses nearly all but the reserve.
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
        // The process writes to the pipe until it ends.
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
