//! A client and a server. Run `hello server`, and on the same or another host `hello client
//! ADDRESS`. A further argument selects another adapter than tcp-emu.

use std::env;
use std::error::Error;

use dat::{Access, Adapter, Close, Flags, RemoteRegion};

const QUALIFIER: u64 = 7778;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["server"] => server("tcp-emu"),
        ["server", adapter] => server(adapter),
        ["client", address] => client("tcp-emu", address),
        ["client", address, adapter] => client(adapter, address),
        _ => Err("usage: hello server [ADAPTER] | hello client ADDRESS [ADAPTER]".into()),
    }
}

/// Offers memory to the peer, for writing and reading.
fn server(adapter: &str) -> Result<(), Box<dyn Error>> {
    let adapter = Adapter::open(adapter)?;
    let zone = adapter.zone()?;
    let mut events = adapter.dispatcher(8)?;
    let memory = zone.register(b"________________RDMA read".to_vec(), Access::ALL)?;
    let mut endpoint = adapter.endpoint().zone(&zone).events(&events).create()?;
    // A receive must be posted before the message arrives.
    endpoint.post_receive(&[memory.segment(0..6)?], 1)?;
    let _listener = adapter.listen(QUALIFIER, &events)?;
    println!("listening");

    let request = events.wait(None)?.request()?;
    // Some providers pad private data with zeros.
    let private_data = String::from_utf8(request.private_data()?)?;
    println!("connection request: {}", private_data.trim_end_matches('\0'));
    request.accept(&mut endpoint, &memory.remote().to_bytes())?;
    events.wait(None)?.established()?;
    println!("{}", events.wait(None)?); // The message.
    println!("memory: {}", String::from_utf8(memory.to_vec(0..16)?)?);
    Ok(events.wait(None)?.disconnected()?)
}

// ANCHOR: client
/// Writes, reads and sends. Only the send notifies the server.
fn client(adapter: &str, address: &str) -> Result<(), Box<dyn Error>> {
    let adapter = Adapter::open(adapter)?;
    let zone = adapter.zone()?;
    let mut events = adapter.dispatcher(8)?;
    let memory = zone.register(b"sendRDMA write.........".to_vec(), Access::LOCAL)?;
    let mut endpoint = adapter.endpoint().zone(&zone).events(&events).create()?;
    endpoint.connect(address.parse()?, QUALIFIER, b"hello", None)?;
    let answer = events.wait(None)?.established()?;
    let remote = RemoteRegion::from_bytes(&answer).ok_or("the answer does not describe memory")?;

    endpoint.post_write(&[memory.segment(4..14)?], remote.segment(6..16)?, 2, Flags::default())?;
    endpoint.post_read(&[memory.segment(14..23)?], remote.segment(16..25)?, 3, Flags::default())?;
    endpoint.post_send(&[memory.segment(0..4)?], 4, Flags::default())?;
    for _ in 0..3 {
        println!("{}", events.wait(None)?);
    }
    println!("read: {}", String::from_utf8(memory.to_vec(14..23)?)?);
    endpoint.disconnect(Close::Graceful)?;
    Ok(events.wait(None)?.disconnected()?)
}
// ANCHOR_END: client
