//! A client and a server: the client sends, writes into the server's memory, and reads from it.

use dat::{Access, Adapter, Close, Flags, RemoteRegion};

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
    let request = server_events.wait(None)?.request()?;
    println!("private data: {:?}", String::from_utf8(request.private_data()?)?);
    request.accept(&mut server, &server_memory.remote().to_bytes())?;
    let answer = events.wait(None)?.established()?;
    let remote = RemoteRegion::from_bytes(&answer).ok_or("the answer does not describe memory")?;

    // The client does all the work; the server only sees the message arrive.
    client.post_write(&[memory.segment(4..14)?], remote.segment(6..16)?, 2, Flags::default())?;
    client.post_send(&[memory.segment(0..4)?], 3, Flags::default())?;
    client.post_read(&[memory.segment(14..23)?], remote.segment(16..25)?, 4, Flags::default())?;
    for _ in 0..3 {
        println!("client: {}", events.wait(None)?);
    }
    for _ in 0..2 {
        println!("server: {}", server_events.wait(None)?); // that it is connected, and the message
    }
    println!("server has {:?}", String::from_utf8(server_memory.to_vec(0..16)?)?);
    println!("client has {:?}", String::from_utf8(memory.to_vec(14..23)?)?);
    client.disconnect(Close::Graceful)?;
    Ok(server_events.wait(None)?.disconnected()?)
}
