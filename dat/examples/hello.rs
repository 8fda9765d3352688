//! A client and a server: `hello server`, and on the same host or another `hello client ADDRESS`.

use std::env;
use std::error::Error;

use dat::{Access, Adapter, Close, Flags, RemoteRegion};

const QUALIFIER: u64 = 7778;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["server"] => server(),
        ["client", address] => client(address),
        _ => Err("say `server`, or `client` and an address".into()),
    }
}

/// Its memory is for its peer: to write into, and to read from.
fn server() -> Result<(), Box<dyn Error>> {
    let adapter = Adapter::open("tcp-emu")?;
    let zone = adapter.zone()?;
    let mut events = adapter.dispatcher(8)?;
    let memory = zone.register(b"________________RDMA read".to_vec(), Access::ALL)?;
    let mut endpoint = adapter.endpoint().zone(&zone).events(&events).create()?;
    // A message needs a place before it comes.
    endpoint.post_receive(&[memory.segment(0..6)?], 1)?;
    let _listener = adapter.listen(QUALIFIER, &events)?;
    println!("listening");

    let request = events.wait(None)?.request()?;
    println!("somebody calls: {}", String::from_utf8(request.private_data()?)?);
    request.accept(&mut endpoint, &memory.remote().to_bytes())?;
    events.wait(None)?.established()?;
    println!("{}", events.wait(None)?); // the message
    println!("memory: {}", String::from_utf8(memory.to_vec(0..16)?)?);
    Ok(events.wait(None)?.disconnected()?)
}

/// It does all the work; the server only sees a message arrive.
fn client(address: &str) -> Result<(), Box<dyn Error>> {
    let adapter = Adapter::open("tcp-emu")?;
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
