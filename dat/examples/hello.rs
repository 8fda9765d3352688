//! A client and a server: the client sends, writes into the server's memory, and reads from it.

use dat::{Access, Adapter, Close, ConnectionEvent, Event, EventDispatcher, Flags, RemoteRegion};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let adapter = Adapter::open("tcp-emu")?;
    let zone = adapter.zone()?;

    // The server: memory that peers may use, an endpoint, a place for the first message, a listener.
    let mut server_events = adapter.dispatcher(8)?;
    let server_memory = zone.register(b"________________RDMA read".to_vec(), Access::ALL)?;
    let mut server = adapter.endpoint().zone(&zone).events(&server_events).create()?;
    server.post_receive(&[server_memory.segment(0..6)?], 1)?;
    let listener = adapter.listen_any(&server_events)?;

    // The client asks for a connection; the server accepts, and says where its memory is.
    let mut events = adapter.dispatcher(8)?;
    let memory = zone.register(b"sendRDMA write.........".to_vec(), Access::LOCAL)?;
    let mut client = adapter.endpoint().zone(&zone).events(&events).create()?;
    client.connect("127.0.0.1".parse()?, listener.qualifier(), b"hello", None)?;
    let Event::ConnectionRequest(request) = server_events.wait(None)? else {
        return Err("no request".into());
    };
    println!("private data: {:?}", String::from_utf8(request.private_data()?)?);
    request.accept(&mut server, &server_memory.remote().to_bytes())?;
    let Event::Connection { event: ConnectionEvent::Established { private_data }, .. } = events.wait(None)?
    else {
        return Err("not connected".into());
    };
    let remote = RemoteRegion::from_bytes(&private_data).ok_or("no memory in the private data")?;

    client.post_write(&[memory.segment(4..14)?], remote.segment(6..16)?, 2, Flags::default())?;
    client.post_send(&[memory.segment(0..4)?], 3, Flags::default())?;
    client.post_read(&[memory.segment(14..23)?], remote.segment(16..25)?, 4, Flags::default())?;
    show(&mut events, 3)?;
    show(&mut server_events, 2)?; // that it is connected, and a message
    println!("server has {:?}", String::from_utf8(server_memory.to_vec(0..16)?)?);
    println!("client has {:?}", String::from_utf8(memory.to_vec(14..23)?)?);
    client.disconnect(Close::Graceful)?;
    Ok(show(&mut server_events, 1)?)
}

fn show(events: &mut EventDispatcher, count: usize) -> dat::Result<()> {
    for _ in 0..count {
        match events.wait(None)? {
            Event::Completion(c) => {
                println!("{} {}: {}, {} bytes", c.operation, c.cookie, c.status, c.length)
            }
            Event::Connection { event, .. } => println!("{event}"),
            other => println!("{other:?}"),
        }
    }
    Ok(())
}
