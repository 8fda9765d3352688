//! Measures round trips. Run `ping_pong server [ADAPTER]`, which prints a connection qualifier, and
//! on the same or another host `ping_pong client ADDRESS QUALIFIER [ADAPTER]`.

use std::env;
use std::error::Error;
use std::time::Instant;

use dat::{Access, Adapter, Close, Endpoint, EventDispatcher, Flags, MemoryRegion, Operation};

const ROUND_TRIPS: u32 = 1000;
const SIZE: usize = 64;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["server"] => server("tcp-emu"),
        ["server", adapter] => server(adapter),
        ["client", address, qualifier] => client("tcp-emu", address, qualifier),
        ["client", address, qualifier, adapter] => client(adapter, address, qualifier),
        _ => Err("usage: ping_pong server [ADAPTER] | client ADDRESS QUALIFIER [ADAPTER]".into()),
    }
}

/// One side: an endpoint with a buffer to send and a buffer to receive.
struct Side {
    endpoint: Endpoint,
    events: EventDispatcher,
    outgoing: MemoryRegion<'static>,
    incoming: MemoryRegion<'static>,
}

impl Side {
    /// The receive is posted before the endpoint is connected, so that no message comes too early.
    fn new(adapter: &Adapter) -> dat::Result<Self> {
        let zone = adapter.zone()?;
        let events = adapter.dispatcher(8)?;
        let mut endpoint = adapter.endpoint().zone(&zone).events(&events).create()?;
        let outgoing = zone.register(vec![7; SIZE], Access::LOCAL)?;
        let incoming = zone.register(vec![0; SIZE], Access::LOCAL)?;
        endpoint.post_receive(&[incoming.segment(0..SIZE)?], 0)?;
        Ok(Side { endpoint, events, outgoing, incoming })
    }

    fn send(&mut self) -> dat::Result<()> {
        self.endpoint.post_send(&[self.outgoing.segment(0..SIZE)?], 0, Flags::default())
    }

    /// Waits until the last message was sent and the next one has arrived. Posts the receive for
    /// the message after that.
    fn receive(&mut self) -> Result<(), Box<dyn Error>> {
        while self.events.wait(None)?.completion()?.operation != Operation::Receive {}
        Ok(self.endpoint.post_receive(&[self.incoming.segment(0..SIZE)?], 0)?)
    }
}

/// Returns each message.
fn server(adapter: &str) -> Result<(), Box<dyn Error>> {
    let adapter = Adapter::open(adapter)?;
    let mut side = Side::new(&adapter)?;
    let listener = adapter.listen_any(&side.events)?;
    println!("listening at {}", listener.qualifier());
    side.events.wait(None)?.request()?.accept(&mut side.endpoint, b"")?;
    side.events.wait(None)?.established()?;
    for _ in 0..ROUND_TRIPS {
        side.receive()?;
        side.send()?;
    }
    // The last message was sent, and the client disconnects: the receive that is left is flushed.
    for event in side.events.incoming(None) {
        if event?.disconnected().is_ok() {
            break;
        }
    }
    println!("{ROUND_TRIPS} messages returned");
    Ok(())
}

fn client(adapter: &str, address: &str, qualifier: &str) -> Result<(), Box<dyn Error>> {
    let adapter = Adapter::open(adapter)?;
    let mut side = Side::new(&adapter)?;
    side.endpoint.connect(address.parse()?, qualifier.parse()?, b"", None)?;
    side.events.wait(None)?.established()?;
    let start = Instant::now();
    for _ in 0..ROUND_TRIPS {
        side.send()?;
        side.receive()?;
    }
    println!("{ROUND_TRIPS} round trips of {SIZE} bytes, {:?} each", start.elapsed() / ROUND_TRIPS);
    Ok(side.endpoint.disconnect(Close::Graceful)?)
}
