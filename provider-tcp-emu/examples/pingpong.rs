//! The transport beside raw TCP sockets, two processes on this host, in turns: `cargo run --release --example pingpong`.
//!
//! Each row is a median of the ratios of several rounds, since a machine may change its speed between rounds.
//! Beside it stands the ratio of the best rounds, which other programs on the machine disturb less.
//! Arguments: `[rounds]`; `only=TEXT` runs the rows whose name contains it; `short` makes rounds a tenth as long.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dat_core::provider::*;
use dat_core::wake::Wake;
use provider_tcp_emu::{Tcp, TcpEmu};

type Qp = <Tcp as Transport>::Qp;
type Cq = <Tcp as Transport>::Cq;
type Mr = <Tcp as Transport>::Mr;

const SMALL: usize = 64;
const LARGE: usize = 1 << 20;
const WINDOW: usize = 16;
const BURST: usize = 64;
const ACK_EVERY: usize = 16;
const RECVS: usize = 256;

/// What client and server do together. The client says which, and how often.
#[derive(Clone, Copy, PartialEq, Debug)]
#[repr(u8)]
enum Step {
    RawSpin,
    RawBlocking,
    RawStream,
    RawSends,
    Spin,
    Blocking,
    Adaptive,
    Write,
    Read,
    Sends,
}

const STEPS: [Step; 10] = [
    Step::RawSpin,
    Step::RawBlocking,
    Step::RawStream,
    Step::RawSends,
    Step::Spin,
    Step::Blocking,
    Step::Adaptive,
    Step::Write,
    Step::Read,
    Step::Sends,
];

/// Name, what is measured, what it is compared with, how often, and whether more is better.
const ROWS: [(&str, Step, Step, u64, bool); 6] = [
    ("64 B ping-pong, polling, us one way", Step::Spin, Step::RawSpin, 20_000, false),
    ("64 B ping-pong, blocking, us one way", Step::Blocking, Step::RawBlocking, 3_000, false),
    (
        "64 B ping-pong, adaptive, us one way / raw spin",
        Step::Adaptive,
        Step::RawSpin,
        20_000,
        false,
    ),
    ("1 MiB RDMA write, window 16, GB/s", Step::Write, Step::RawStream, 2_000, true),
    ("1 MiB RDMA read, window 16, GB/s", Step::Read, Step::RawStream, 2_000, true),
    (
        "64 B sends, 64 outstanding, M/s / one write() each",
        Step::Sends,
        Step::RawSends,
        300_000,
        true,
    ),
];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.first().map(String::as_str) {
        Some("server") => server(),
        _ => client(&args),
    }
}

/// Upcalls, remembered.
struct Log {
    t: &'static Tcp,
    events: Mutex<VecDeque<Event>>,
    wake: Wake,
}

enum Event {
    Request(<Tcp as Transport>::Request),
    Established,
    Other,
}

impl Receiver<Tcp> for Log {
    fn upcall(&self, up: Upcall<'_, Tcp>) {
        let event = match up {
            Upcall::CqReady => None,
            Upcall::Request { request, .. } => Some(Event::Request(request)),
            Upcall::Established { .. } => Some(Event::Established),
            _ => Some(Event::Other),
        };
        self.events.lock().expect("no panics in upcalls").extend(event);
        if self.wake.signal() {
            self.t.interrupt();
        }
    }
}

/// One end of a connection, with one buffer that all goes through.
struct End {
    t: &'static Tcp,
    log: &'static Log,
    qp: Qp,
    requests: Cq,
    recvs: Cq,
    mr: Mr,
    /// The address of the registered memory. There is no reference to it: the peer writes there.
    mem: u64,
    requests_done: usize,
    recvs_done: usize,
}

impl End {
    fn new(params: &str) -> Self {
        let t: &'static Tcp = Box::leak(Box::new(TcpEmu.open("tcp-emu", params).expect("adapter")));
        let log: &'static Log =
            Box::leak(Box::new(Log { t, events: Mutex::default(), wake: Wake::new() }));
        // SAFETY: the log lives forever.
        let sink = unsafe { Sink::new(log) };
        let pd = t.pd().expect("protection domain");
        let mem = vec![1u8; WINDOW * LARGE].leak();
        let all = Access {
            local_read: true,
            local_write: true,
            remote_read: true,
            remote_write: true,
            remote_atomic: false,
        };
        // SAFETY: the memory is leaked.
        let mr = unsafe {
            t.mr(&pd, Mem { addr: mem.as_mut_ptr(), len: mem.len(), zero_based: false }, all)
        }
        .expect("region");
        let (requests, recvs) = (t.cq(4096, sink).expect("cq"), t.cq(4096, sink).expect("cq"));
        let cfg = QpCfg {
            pd: &pd,
            request_cq: Some(&requests),
            recv_cq: Some(&recvs),
            srq: None,
            // SAFETY: the queues are polled here, not by an EVD.
            token: unsafe { Token::from_bits(0) },
            holding: Arc::default(),
            sender_wakes: true,
            max_requests: 512,
            max_recvs: 512,
            max_request_segments: 1,
            max_recv_segments: 1,
        };
        let qp = t.qp(cfg, sink).expect("queue pair");
        let mem = mem.as_mut_ptr() as u64;
        let end = End { t, log, qp, requests, recvs, mr, mem, requests_done: 0, recvs_done: 0 };
        for i in 0..RECVS {
            end.post_recv(i);
        }
        end
    }

    fn segment(&self, offset: usize, len: usize) -> Segment {
        Segment { addr: self.mem + offset as u64, len: len as u32, key: self.mr.lkey() }
    }

    fn post_recv(&self, i: usize) {
        let wr = RecvWr {
            id: i as u64,
            segments: &[self.segment(i % RECVS * SMALL, SMALL)],
            quiet: false,
        };
        // SAFETY: the memory is leaked.
        unsafe { self.qp.post_recv(&wr) }.expect("receive");
    }

    fn post(&self, op: SendOp, segment: Segment) {
        let wr = SendWr {
            id: 0,
            op,
            segments: &[segment],
            signalled: true,
            solicited: false,
            fence: false,
            quiet: false,
        };
        // SAFETY: the memory is leaked.
        unsafe { self.qp.post_send(&wr) }.expect("request");
    }

    fn send(&self) {
        self.post(SendOp::Send { invalidate: None }, self.segment(RECVS * SMALL, SMALL));
    }

    fn event(&self) -> Event {
        loop {
            if let Some(event) = self.log.events.lock().expect("no panics in upcalls").pop_front() {
                return event;
            }
            self.t.progress();
        }
    }

    fn poll(cq: &Cq) -> usize {
        let mut places = [const { MaybeUninit::uninit() }; 64];
        let mut polled = Polled::new(&mut places);
        // SAFETY: one thread uses the queue.
        unsafe { cq.poll(&mut polled) };
        assert!(polled.completions().iter().all(|wc| wc.status == WcStatus::Success));
        polled.completions().len()
    }

    fn reap_requests(&mut self) -> usize {
        let n = Self::poll(&self.requests);
        self.requests_done += n;
        n
    }

    /// As a consumer that polls: a look at the queue, and one at everything if there is nothing.
    fn reap_recvs(&mut self) -> usize {
        let n = match Self::poll(&self.recvs) {
            0 => {
                self.t.progress();
                Self::poll(&self.recvs)
            }
            n => n,
        };
        for i in 0..n {
            self.post_recv(self.recvs_done + i);
        }
        self.recvs_done += n;
        n
    }

    fn wait_recv(&mut self) {
        while self.reap_recvs() == 0 {}
    }

    /// As a consumer that blocks.
    fn sleep_recv(&mut self) {
        loop {
            self.log.wake.reset();
            if self.reap_recvs() > 0 {
                return;
            }
            // SAFETY: one thread uses the queue.
            if unsafe { self.recvs.arm(false) } {
                self.t.sleep(&self.log.wake, None);
            }
        }
    }

    fn ping(&mut self, n: u64, first: bool, wait: fn(&mut Self)) {
        for _ in 0..n {
            if first {
                self.send();
                wait(self);
            } else {
                wait(self);
                self.send();
            }
            self.reap_requests();
        }
    }

    /// Keeps `WINDOW` one-sided operations in flight.
    fn stream(&mut self, n: u64, op: impl Fn(usize) -> SendOp) {
        let (mut posted, end) = (self.requests_done, self.requests_done + n as usize);
        while self.requests_done < end {
            while posted < end && posted < self.requests_done + WINDOW {
                let slot = posted % WINDOW * LARGE;
                self.post(op(slot), self.segment(slot, LARGE));
                posted += 1;
            }
            if self.reap_requests() == 0 {
                self.t.progress();
            }
        }
    }

    fn flood(&mut self, n: usize) {
        let (mut sent, acks) = (0, self.recvs_done);
        let requests = self.requests_done;
        while (self.recvs_done - acks) * ACK_EVERY < n {
            while sent < n
                && sent < (self.recvs_done - acks) * ACK_EVERY + BURST
                && sent < self.requests_done - requests + BURST
            {
                self.send();
                sent += 1;
            }
            self.reap_requests();
            self.reap_recvs();
        }
        while self.requests_done - requests < n {
            self.t.progress();
            self.reap_requests();
        }
    }

    fn drain(&mut self, n: usize) {
        let start = self.recvs_done;
        let mut acked = 0;
        while acked * ACK_EVERY < n {
            self.reap_recvs();
            while (acked + 1) * ACK_EVERY <= self.recvs_done - start {
                self.send();
                acked += 1;
            }
            self.reap_requests();
        }
    }
}

/// The raw socket beside.
struct Raw(TcpStream);

impl Raw {
    fn new(stream: TcpStream) -> Self {
        stream.set_nodelay(true).expect("nodelay");
        let socket = socket2::SockRef::from(&stream);
        // The same advantage that the provider takes.
        let _ = socket.set_tcp_congestion(b"cubic").or_else(|_| socket.set_tcp_congestion(b"reno"));
        Raw(stream)
    }

    fn spinning<R>(&mut self, f: impl FnOnce(&mut Self) -> R) -> R {
        self.0.set_nonblocking(true).expect("nonblocking");
        let r = f(self);
        self.0.set_nonblocking(false).expect("blocking");
        r
    }

    fn read_exact(&mut self, mut buf: &mut [u8]) {
        while !buf.is_empty() {
            match self.0.read(buf) {
                Ok(0) => panic!("the peer has gone"),
                Ok(n) => buf = &mut buf[n..],
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(e) => panic!("{e}"),
            }
        }
    }

    fn write_all(&mut self, mut buf: &[u8]) {
        while !buf.is_empty() {
            match self.0.write(buf) {
                Ok(n) => buf = &buf[n..],
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(e) => panic!("{e}"),
            }
        }
    }

    fn ping(&mut self, n: u64, first: bool) {
        let mut buf = [0; SMALL];
        for _ in 0..n {
            if first {
                self.write_all(&buf);
                self.read_exact(&mut buf);
            } else {
                self.read_exact(&mut buf);
                self.write_all(&buf);
            }
        }
    }

    fn receive(&mut self, mut n: usize, buf: &mut [u8]) {
        while n > 0 {
            let len = n.min(buf.len());
            match self.0.read(&mut buf[..len]) {
                Ok(0) => panic!("the peer has gone"),
                Ok(got) => n -= got,
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(e) => panic!("{e}"),
            }
        }
    }
}

struct Side {
    /// Default parameters; and without spinning.
    ends: [End; 2],
    raw: Raw,
    remote: Remote,
    /// As large as the ends' memory, and walked through as they do: caches matter.
    buf: Vec<u8>,
}

impl Side {
    fn step(&mut self, step: Step, n: u64, first: bool) {
        let [end, sleepy] = &mut self.ends;
        let (raw, remote) = (&mut self.raw, self.remote);
        match step {
            Step::RawSpin => raw.spinning(|raw| raw.ping(n, first)),
            Step::RawBlocking => raw.ping(n, first),
            Step::RawStream if first => raw.spinning(|raw| {
                for i in 0..n as usize {
                    raw.write_all(&self.buf[i % WINDOW * LARGE..][..LARGE]);
                }
                raw.read_exact(&mut [0]);
            }),
            Step::RawStream => raw.spinning(|raw| {
                for i in 0..n as usize {
                    raw.receive(LARGE, &mut self.buf[i % WINDOW * LARGE..][..LARGE]);
                }
                raw.write_all(&[0]);
            }),
            Step::RawSends if first => raw.spinning(|raw| {
                for _ in 0..n {
                    raw.write_all(&[0; SMALL]);
                }
                raw.read_exact(&mut [0]);
            }),
            Step::RawSends => raw.spinning(|raw| {
                raw.receive(n as usize * SMALL, &mut self.buf[..LARGE]);
                raw.write_all(&[0]);
            }),
            Step::Spin => end.ping(n, first, End::wait_recv),
            Step::Adaptive => end.ping(n, first, End::sleep_recv),
            Step::Blocking => sleepy.ping(n, first, End::sleep_recv),
            Step::Write if first => {
                end.stream(n, |slot| {
                    SendOp::Write(Remote { addr: remote.addr + slot as u64, ..remote })
                });
                end.ping(1, true, End::wait_recv);
            }
            Step::Write => end.ping(1, false, End::wait_recv),
            Step::Read if first => {
                end.stream(n, |slot| {
                    SendOp::Read(Remote { addr: remote.addr + slot as u64, ..remote })
                });
                end.ping(1, true, End::wait_recv);
            }
            Step::Read => end.ping(1, false, End::wait_recv),
            Step::Sends if first => end.flood(n as usize),
            Step::Sends => end.drain(n as usize),
        }
    }
}

fn server() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("port");
    let mut ends = [End::new("127.0.0.1"), End::new("127.0.0.1 spin=0")];
    let sinks = ends.each_ref().map(|end| {
        // SAFETY: the log lives forever.
        unsafe { Sink::new(end.log) }
    });
    let services = [0, 1].map(|i| ends[i].t.listen(Port::Any, 1, sinks[i]).expect("service point"));
    println!(
        "{} {} {} {} {}",
        listener.local_addr().expect("bound").port(),
        ends[0].t.port(&services[0]),
        ends[1].t.port(&services[1]),
        ends[0].mem,
        ends[0].mr.rkey()
    );
    for end in &mut ends {
        let Event::Request(request) = end.event() else { panic!("no request") };
        end.qp.accept(request, b"", ReadDepth { incoming: 16, outgoing: 16 }).expect("accept");
        let Event::Established = end.event() else { panic!("not established") };
    }
    let raw = Raw::new(listener.accept().expect("caller").0);
    let mut side = Side { ends, raw, remote: Remote::default(), buf: vec![1; WINDOW * LARGE] };
    let mut command = [0; 9];
    while side.raw.0.read_exact(&mut command).is_ok() {
        let n = u64::from_le_bytes(command[1..].try_into().expect("eight octets"));
        side.raw.write_all(&[1]);
        side.step(STEPS[command[0] as usize], n, false);
    }
}

fn client(args: &[String]) {
    let rounds = args.iter().find_map(|a| a.parse().ok()).unwrap_or(5);
    let divisor = if args.iter().any(|a| a == "short") { 10 } else { 1 };
    let only = args.iter().find_map(|a| a.strip_prefix("only=")).unwrap_or("");
    let mut server = Command::new(std::env::current_exe().expect("own path"))
        .arg("server")
        .stdout(Stdio::piped())
        .spawn()
        .expect("server");
    let mut line = String::new();
    std::io::BufRead::read_line(
        &mut std::io::BufReader::new(server.stdout.take().expect("piped")),
        &mut line,
    )
    .expect("the server's ports");
    let mut words = line.split_whitespace().map(|w| w.parse::<u64>().expect("a number"));
    let mut word = || words.next().expect("five words");
    let (raw_port, ports) = (word() as u16, [word(), word()]);
    let remote = Remote { addr: word(), key: word() as u32 };

    let ends = [End::new("127.0.0.1"), End::new("127.0.0.1 spin=0")];
    for (end, port) in ends.iter().zip(ports) {
        let addr = SocketAddr::from(([127, 0, 0, 1], 0));
        let depth = ReadDepth { incoming: 16, outgoing: 16 };
        let to = Connect { addr, port, private: b"", timeout: Some(Duration::from_secs(5)), depth };
        end.qp.connect(&to).expect("connect");
        let Event::Established = end.event() else { panic!("not established") };
    }
    let raw = Raw::new(TcpStream::connect(("127.0.0.1", raw_port)).expect("server"));
    let mut side = Side { ends, raw, remote, buf: vec![1; WINDOW * LARGE] };
    let mut run = |step: Step, n: u64| {
        let mut command = vec![step as u8];
        command.extend(n.to_le_bytes());
        side.raw.write_all(&command);
        side.raw.read_exact(&mut [0]);
        let start = Instant::now();
        side.step(step, n, true);
        start.elapsed().as_secs_f64()
    };
    // Acknowledgements are of so many messages at once.
    let whole = ACK_EVERY as u64;
    println!(
        "{:<52} {:>8} {:>8} {:>8} {:>8}   {:>8}..{:<8}",
        "", "here", "raw", "ratio", "best", "least", "most"
    );
    for (name, step, raw, n, more_is_better) in ROWS.into_iter().filter(|row| row.0.contains(only))
    {
        let n = n / divisor / whole * whole;
        run(step, n / 10 / whole * whole);
        run(raw, n / 10);
        let (mut ratios, mut here, mut beside) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..rounds {
            let (ours, theirs) = (figure(step, n, run(step, n)), figure(raw, n, run(raw, n)));
            ratios.push(ours / theirs);
            here.push(ours);
            beside.push(theirs);
        }
        let ratio = median(&mut ratios);
        let (least, most) = (ratios[0], ratios[ratios.len() - 1]);
        let sign = if more_is_better { '↑' } else { '↓' };
        let (here_median, beside_median) = (median(&mut here), median(&mut beside));
        let best = |values: &[f64]| values[if more_is_better { values.len() - 1 } else { 0 }];
        let best = best(&here) / best(&beside);
        println!(
            "{name:<52} {here_median:>8.3} {beside_median:>8.3} {ratio:>8.3} {best:>8.3} {sign} {least:>8.3}..{most:<8.3}"
        );
    }
    drop(side);
    server.wait().expect("server");
}

/// Seconds for `n`, as a latency in us, or a rate in GB/s or M/s.
fn figure(step: Step, n: u64, seconds: f64) -> f64 {
    match step {
        Step::Write | Step::Read | Step::RawStream => n as f64 * LARGE as f64 / seconds / 1e9,
        Step::Sends | Step::RawSends => n as f64 / seconds / 1e6,
        _ => seconds / n as f64 / 2.0 * 1e6,
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
