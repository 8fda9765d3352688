//! A server and a client in two threads: the client sends, writes into the server's memory and reads from it.

use dat::{Access, Adapter, ConnectionEvent, Event, EventDispatcher, Flags, RemoteRegion};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let adapter = Adapter::open("tcp-emu")?;
    let mut events = adapter.dispatcher(16)?;
    let listener = adapter.listen_any(&events)?;
    let qualifier = listener.qualifier();
    let client = std::thread::spawn(move || client(qualifier).map_err(|error| error.to_string()));

    let zone = adapter.zone()?;
    let mut memory = zone.register(vec![0; 64], Access::ALL)?;
    let mut endpoint = adapter.endpoint().zone(&zone).events(&events).create()?;
    memory.store(32, b"RDMA read")?;
    endpoint.post_receive(&[memory.segment(0..16)?], 1)?; // before the client can send
    let Event::ConnectionRequest(request) = events.wait(None)? else { return Err("no request".into()) };
    request.accept(&mut endpoint, &memory.remote().to_bytes())?; // says where the client may write and read
    expect(&mut events, "established")?;
    let length = expect(&mut events, "receive")? as usize; // comes after what the client wrote
    println!("server: {:?}", String::from_utf8(memory.to_vec(0..length)?)?);
    println!("server: {:?}", String::from_utf8(memory.to_vec(16..26)?)?);
    expect(&mut events, "disconnected")?;
    Ok(client.join().map_err(|_| "the client panicked")??)
}

fn client(qualifier: u64) -> Result<(), Box<dyn std::error::Error>> {
    let adapter = Adapter::open("tcp-emu")?;
    let (mut events, zone) = (adapter.dispatcher(16)?, adapter.zone()?);
    let mut memory = zone.register(b"sendRDMA writeRDMA ....".to_vec(), Access::LOCAL)?;
    let mut endpoint = adapter.endpoint().zone(&zone).events(&events).create()?;
    endpoint.connect("127.0.0.1".parse()?, qualifier, b"", None)?;
    let Event::Connection { event: ConnectionEvent::Established { private_data }, .. } = events.wait(None)?
    else {
        return Err("not connected".into());
    };
    let server = RemoteRegion::from_bytes(&private_data).ok_or("no memory in the private data")?;
    endpoint.post_write(&[memory.segment(4..14)?], server.segment(16..26)?, 2, Flags::default())?;
    endpoint.post_send(&[memory.segment(0..4)?], 3, Flags::default())?;
    endpoint.post_read(&[memory.segment(14..23)?], server.segment(32..41)?, 4, Flags::default())?;
    for operation in ["RDMA write", "send", "RDMA read"] {
        expect(&mut events, operation)?;
    }
    println!("client: {:?}", String::from_utf8(memory.to_vec(14..23)?)?);
    memory.store(0, b"bye!")?;
    Ok(endpoint.disconnect(dat::Close::Graceful)?)
}

/// Waits for a connection event or a successful completion; returns how many bytes were moved.
fn expect(events: &mut EventDispatcher, what: &str) -> Result<u32, Box<dyn std::error::Error>> {
    match events.wait(None)? {
        Event::Completion(c) if c.status == dat::Status::Success && c.operation.to_string() == what => {
            Ok(c.length)
        }
        Event::Connection { event, .. } if event.to_string() == what => Ok(0),
        other => Err(format!("expected {what}, got {other:?}").into()),
    }
}
