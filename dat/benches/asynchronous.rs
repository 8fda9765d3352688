//! Measures futures beside blocking calls, and beside an event loop that sleeps in poll(2): round
//! trips of 64 octets, and RDMA writes of 4 KiB with 64 in progress. Each round measures the three
//! in turn, over TCP and over shared memory. The peer, in another process, always blocks.
//!
//! `cargo bench -p opendat --bench asynchronous`

use std::collections::VecDeque;
use std::env;
use std::error::Error;
use std::io::{BufRead, BufReader};
use std::os::fd::{AsFd, AsRawFd};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use dat::asynchronous::{AsyncAdapter, Tokio, Transfer};
use dat::{
    Access, Adapter, Close, Completion, Endpoint, Event, EventDispatcher, Flags, MemoryRegion,
    NotificationDescriptor, Operation, ProtectionZone, RemoteRegion, Streams,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const ADAPTER: &str = "tcp-emu";
const ROUNDS: usize = 5;
const SMALL: usize = 64;
const LARGE: usize = 4096;
const IN_PROGRESS: usize = 64;
const ROUND_TRIPS: u32 = 20_000;
const WRITES: u32 = 100_000;

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("serve") => serve(),
        Some("measure") => measure(),
        // cargo passes arguments of its own.
        _ => {
            for (name, params) in [("TCP", "shm=off"), ("shared memory", "shm=1")] {
                println!("{name}:");
                let status = this_program("measure").env("OPENDAT_PARAMS", params).status()?;
                if !status.success() {
                    return Err(format!("the measurement over {name} has failed").into());
                }
            }
            Ok(())
        }
    }
}

fn this_program(argument: &str) -> Command {
    let mut program = Command::new(env::current_exe().expect("the path of this program"));
    program.arg(argument);
    program
}

// ---- The peer -----------------------------------------------------------------------------------

/// Returns the messages of each client until the client disconnects.
fn serve() -> Result<()> {
    let adapter = Adapter::open(ADAPTER)?;
    let zone = adapter.zone()?;
    let mut events = adapter.dispatcher(8)?;
    let mut requests = adapter.dispatcher(8)?;
    let listener = adapter.listen_any(&requests)?;
    println!("{}", listener.qualifier());
    let target = zone.register(vec![0; LARGE], Access::ALL)?;
    let [outgoing, incoming] = buffers(&zone)?;
    loop {
        let mut endpoint = adapter.endpoint().zone(&zone).events(&events).create()?;
        endpoint.post_receive(&[incoming.segment(0..SMALL)?], 0)?;
        endpoint.post_receive(&[incoming.segment(0..SMALL)?], 0)?;
        let request = requests.wait(None)?.request()?;
        request.accept(&mut endpoint, &target.remote().to_bytes())?;
        events.wait(None)?.established()?;
        for event in events.incoming(None) {
            match event? {
                Event::Completion(done) if is_message(&done) => {
                    endpoint.post_receive(&[incoming.segment(0..SMALL)?], 0)?;
                    endpoint.post_send(&[outgoing.segment(0..SMALL)?], 0, Flags::SUPPRESS)?;
                }
                Event::Completion(_) => {}
                _ => break,
            }
        }
    }
}

fn buffers(zone: &ProtectionZone) -> Result<[MemoryRegion<'static>; 2]> {
    let buffer = || zone.register(vec![7; SMALL], Access::LOCAL);
    Ok([buffer()?, buffer()?])
}

fn is_message(completion: &Completion) -> bool {
    completion.operation == Operation::Receive && completion.status == dat::Status::Success
}

struct Peer {
    process: Child,
    qualifier: u64,
}

impl Peer {
    fn start() -> Result<Self> {
        let mut process = this_program("serve").stdout(Stdio::piped()).spawn()?;
        let output = process.stdout.take().ok_or("no output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        Ok(Peer { process, qualifier: line.trim().parse()? })
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

// ---- The measurement ----------------------------------------------------------------------------

/// The time of a round trip, and the time of a write.
type Times = [Duration; 2];

fn measure() -> Result<()> {
    let peer = Peer::start()?;
    type Kind = (&'static str, fn(u64) -> Result<Times>);
    let kinds: [Kind; 3] =
        [("blocking calls", blocking), ("event loop", event_loop), ("futures (tokio)", futures)];
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let mut times = Vec::new();
        for (_, kind) in kinds {
            times.push(kind(peer.qualifier)?);
        }
        rounds.push(times);
    }
    for (at, (name, _)) in kinds.into_iter().enumerate() {
        let text = ["round trip", "write"].into_iter().enumerate().map(|(what, of)| {
            let time = sorted(rounds.iter().map(|round| round[at][what].as_secs_f64() * 1e6));
            let ratio = sorted(
                rounds
                    .iter()
                    .map(|round| round[at][what].as_secs_f64() / round[0][what].as_secs_f64()),
            );
            let [smallest, median, largest] = [0, ROUNDS / 2, ROUNDS - 1].map(|n| ratio[n]);
            format!(
                "{of} {:.2} µs, ratio {median:.2} ({smallest:.2} to {largest:.2})",
                time[ROUNDS / 2]
            )
        });
        println!("  {name:<16} {}", text.collect::<Vec<_>>().join("; "));
    }
    Ok(())
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

/// A way to wait for events.
trait Events {
    fn dispatcher(&self) -> &EventDispatcher;
    fn next(&mut self) -> Result<Event>;
}

struct Blocking(EventDispatcher);

impl Events for Blocking {
    fn dispatcher(&self) -> &EventDispatcher {
        &self.0
    }

    fn next(&mut self) -> Result<Event> {
        Ok(self.0.wait(None)?)
    }
}

struct EventLoop {
    events: EventDispatcher,
    notify: NotificationDescriptor,
}

impl Events for EventLoop {
    fn dispatcher(&self) -> &EventDispatcher {
        &self.events
    }

    fn next(&mut self) -> Result<Event> {
        loop {
            if let Some(event) = self.events.dequeue()? {
                return Ok(event);
            }
            // After a trigger was taken, the queue is looked at once more.
            if self.notify.take()?.is_none() {
                let fd = self.notify.as_fd().as_raw_fd();
                let mut record = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
                // SAFETY: there is one record, which is writable.
                unsafe { libc::poll(&mut record, 1, -1) };
            }
        }
    }
}

fn blocking(qualifier: u64) -> Result<Times> {
    let adapter = Adapter::open(ADAPTER)?;
    let events = Blocking(adapter.dispatcher(256)?);
    Client::connect(&adapter, events, qualifier)?.times()
}

fn event_loop(qualifier: u64) -> Result<Times> {
    let adapter = Adapter::open(ADAPTER)?;
    let notify = adapter.notification_descriptor()?;
    let events = adapter.dispatcher_for(256, Streams::default(), Some(&notify))?;
    Client::connect(&adapter, EventLoop { events, notify }, qualifier)?.times()
}

/// A connected client.
struct Client<E> {
    endpoint: Endpoint,
    events: E,
    buffers: [MemoryRegion<'static>; 2],
    source: MemoryRegion<'static>,
    target: RemoteRegion,
}

impl<E: Events> Client<E> {
    fn connect(adapter: &Adapter, mut events: E, qualifier: u64) -> Result<Self> {
        let zone = adapter.zone()?;
        let builder = adapter.endpoint().zone(&zone).events(events.dispatcher());
        let mut endpoint = builder.max_requests(2 * IN_PROGRESS).create()?;
        let buffers = buffers(&zone)?;
        endpoint.post_receive(&[buffers[1].segment(0..SMALL)?], 0)?;
        endpoint.connect("127.0.0.1".parse()?, qualifier, b"", None)?;
        let answer = events.next()?.established()?;
        let target = RemoteRegion::from_bytes(&answer).ok_or("the peer offers no memory")?;
        let source = zone.register(vec![7; LARGE], Access::LOCAL)?;
        Ok(Client { endpoint, events, buffers, source, target })
    }

    fn times(mut self) -> Result<Times> {
        self.round_trips(ROUND_TRIPS / 10)?;
        let round_trip = self.round_trips(ROUND_TRIPS)?;
        self.writes(WRITES / 10)?;
        let write = self.writes(WRITES)?;
        self.endpoint.disconnect(Close::Graceful)?;
        while !matches!(self.events.next()?, Event::Connection { .. }) {}
        Ok([round_trip, write])
    }

    fn round_trips(&mut self, count: u32) -> Result<Duration> {
        let start = Instant::now();
        for _ in 0..count {
            self.endpoint.post_send(&[self.buffers[0].segment(0..SMALL)?], 0, Flags::SUPPRESS)?;
            self.events.next()?.completion()?;
            self.endpoint.post_receive(&[self.buffers[1].segment(0..SMALL)?], 0)?;
        }
        Ok(start.elapsed() / count)
    }

    fn writes(&mut self, count: u32) -> Result<Duration> {
        let (start, target) = (Instant::now(), self.target.segment(0..LARGE)?);
        let source = [self.source.segment(0..LARGE)?];
        for posted in 0..count as usize + IN_PROGRESS {
            if posted >= IN_PROGRESS {
                self.events.next()?.completion()?;
            }
            if posted < count as usize {
                self.endpoint.post_write(&source, target, 0, Flags::default())?;
            }
        }
        Ok(start.elapsed() / count)
    }
}

fn futures(qualifier: u64) -> Result<Times> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(with_futures(qualifier))
}

async fn with_futures(qualifier: u64) -> Result<Times> {
    let adapter = AsyncAdapter::new(Adapter::open(ADAPTER)?, 256, &Tokio)?;
    let zone = adapter.adapter().zone()?;
    let builder = adapter.endpoint().zone(&zone).max_requests(2 * IN_PROGRESS);
    let mut endpoint = adapter.create(builder)?;
    let [mut outgoing, incoming] = buffers(&zone)?;
    let mut received = endpoint.receive(incoming, 0..SMALL);
    let answer = endpoint.connect("127.0.0.1".parse()?, qualifier, b"", None).await?;
    let target = RemoteRegion::from_bytes(&answer).ok_or("the peer offers no memory")?;

    let mut round_trip = Duration::ZERO;
    for count in [ROUND_TRIPS / 10, ROUND_TRIPS] {
        let start = Instant::now();
        for _ in 0..count {
            let sent = endpoint.send(outgoing, 0..SMALL);
            let (incoming, _) = received.await?;
            received = endpoint.receive(incoming, 0..SMALL);
            (outgoing, _) = sent.await?;
        }
        round_trip = start.elapsed() / count;
    }

    let (mut write, target) = (Duration::ZERO, target.segment(0..LARGE)?);
    let mut free = Vec::new();
    for _ in 0..IN_PROGRESS {
        free.push(zone.register(vec![7; LARGE], Access::LOCAL)?);
    }
    for count in [WRITES / 10, WRITES] {
        let start = Instant::now();
        let mut in_progress: VecDeque<Transfer<MemoryRegion<'static>>> = VecDeque::new();
        for _ in 0..count {
            let source = match free.pop() {
                Some(source) => source,
                None => {
                    let oldest = in_progress.pop_front().ok_or("all buffers are free")?;
                    oldest.await?.0
                }
            };
            in_progress.push_back(endpoint.write(source, 0..LARGE, target));
        }
        for oldest in in_progress {
            free.push(oldest.await?.0);
        }
        write = start.elapsed() / count;
    }
    endpoint.disconnect(Close::Graceful)?;
    endpoint.closed().await?;
    Ok([round_trip, write])
}
