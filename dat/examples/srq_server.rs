//! A server for many clients, with tokio. All connections share one queue of receives, so the
//! memory of the server does not grow with their number. The server returns each message in upper
//! case.
//!
//! Run `srq_server server [ADAPTER]`, which prints a connection qualifier, and on the same or
//! another host `srq_server clients ADDRESS QUALIFIER [ADAPTER]`.

use std::collections::HashMap;
use std::env;
use std::error::Error;
use std::sync::{Arc, Mutex};

use dat::asynchronous::{
    AsyncAdapter, AsyncEndpoint, AsyncSharedReceiveQueue, OperationError, Tokio, TransferError,
};
use dat::{Access, Adapter, EndpointId, MemoryRegion, ProtectionZone};

const CLIENTS: usize = 10;
const MESSAGES: usize = 10;
const SIZE: usize = 64;
/// The number of receives in the queue.
const RECEIVES: usize = 16;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["server"] => server("tcp-emu").await,
        ["server", adapter] => server(adapter).await,
        ["clients", address, qualifier] => clients("tcp-emu", address, qualifier).await,
        ["clients", address, qualifier, adapter] => clients(adapter, address, qualifier).await,
        _ => Err("usage: srq_server server [ADAPTER] | clients ADDRESS QUALIFIER [ADAPTER]".into()),
    }
}

/// What the tasks of the server share.
struct Server {
    adapter: AsyncAdapter,
    zone: ProtectionZone,
    connections: Mutex<HashMap<EndpointId, AsyncEndpoint>>,
    queue: Mutex<AsyncSharedReceiveQueue>,
}

async fn server(adapter: &str) -> Result<(), Box<dyn Error>> {
    let adapter = AsyncAdapter::new(Adapter::open(adapter)?, 1024, &Tokio)?;
    let zone = adapter.adapter().zone()?;
    let queue = Mutex::new(adapter.shared_receive_queue(&zone, RECEIVES, 1)?);
    let mut listener = adapter.listen_any()?;
    println!("listening at {}", listener.qualifier());

    let server = Arc::new(Server { adapter, zone, connections: Mutex::default(), queue });
    for _ in 0..RECEIVES {
        let buffer = server.zone.register(vec![0; SIZE], Access::LOCAL)?;
        let server = server.clone();
        tokio::spawn(async {
            if let Err(error) = server.answer(buffer).await {
                eprintln!("messages are not answered any more: {error}");
            }
        });
    }
    loop {
        let request = listener.request().await?;
        let endpoint = {
            let queue = server.queue.lock().expect("no task panics with the lock");
            let builder = server.adapter.endpoint().zone(&server.zone);
            server.adapter.create(builder.shared_receive_queue(queue.as_queue()))?
        };
        tokio::spawn(server.clone().serve(endpoint, request));
    }
}

impl Server {
    /// Answers messages of any client. Each task has one receive in the queue.
    async fn answer(self: Arc<Self>, mut buffer: MemoryRegion<'static>) -> std::io::Result<()> {
        loop {
            let message = {
                let mut queue = self.queue.lock().expect("no task panics with the lock");
                queue.receive(buffer, 0..SIZE)
            };
            let completion;
            (buffer, completion) = match message.await {
                Ok(received) => received,
                // The connection ended while the message arrived. The buffer is free for another.
                Err(TransferError { buffer: unused, error: OperationError::Failed(_) }) => {
                    buffer = unused;
                    continue;
                }
                Err(failed) => return Err(failed.into()),
            };
            let length = completion.length as usize;
            let answer = buffer.to_vec(0..length)?.to_ascii_uppercase();
            let answer = self.zone.register(answer, Access::LOCAL)?;
            let sent = {
                let mut connections =
                    self.connections.lock().expect("no task panics with the lock");
                connections
                    .get_mut(&completion.endpoint)
                    .map(|endpoint| endpoint.send(answer, 0..length))
            };
            if let Some(sent) = sent {
                // A client that has left gets no answer.
                let _ = sent.await;
            }
        }
    }

    /// Accepts a client, and keeps its endpoint until it leaves.
    async fn serve(self: Arc<Self>, mut endpoint: AsyncEndpoint, request: dat::ConnectionRequest) {
        // A client may be connected before the accept returns here. It waits for a message, which
        // tells it that the server knows its endpoint.
        if endpoint.accept(request, b"").await.is_err() {
            return;
        }
        let (id, closed) = (endpoint.id(), endpoint.closed());
        let Ok(welcome) = self.zone.register(b"welcome".to_vec(), Access::LOCAL) else { return };
        let sent = {
            let mut connections = self.connections.lock().expect("no task panics with the lock");
            connections.entry(id).insert_entry(endpoint).get_mut().send(welcome, 0..7)
        };
        let _ = sent.await;
        let _ = closed.await;
        let endpoint = self.connections.lock().expect("no task panics with the lock").remove(&id);
        drop(endpoint);
    }
}

/// Runs clients at the same time.
async fn clients(adapter: &str, address: &str, qualifier: &str) -> Result<(), Box<dyn Error>> {
    let adapter = Arc::new(AsyncAdapter::new(Adapter::open(adapter)?, 1024, &Tokio)?);
    let (address, qualifier) = (address.parse()?, qualifier.parse()?);
    let mut tasks = Vec::new();
    for number in 0..CLIENTS {
        tasks.push(tokio::spawn(client(adapter.clone(), address, qualifier, number)));
    }
    let mut answers = 0;
    for task in tasks {
        answers += task.await??;
    }
    println!("{answers} answers for {CLIENTS} clients");
    Ok(())
}

async fn client(
    adapter: Arc<AsyncAdapter>,
    address: dat::Address,
    qualifier: u64,
    number: usize,
) -> std::io::Result<usize> {
    let zone = adapter.adapter().zone()?;
    let buffer = || zone.register(vec![0; SIZE], Access::LOCAL);
    let mut endpoint = adapter.create(adapter.endpoint().zone(&zone))?;
    let welcome = endpoint.receive(buffer()?, 0..SIZE);
    endpoint.connect(address, qualifier, b"", None).await?;
    welcome.await?;
    for message in 0..MESSAGES {
        let question = format!("message {message} of client {number}");
        let expected = question.to_uppercase();
        let answer = endpoint.receive(buffer()?, 0..SIZE);
        let length = question.len();
        endpoint.send(zone.register(question.into_bytes(), Access::LOCAL)?, 0..length).await?;
        let (answer, completion) = answer.await?;
        let answer = answer.to_vec(0..completion.length as usize)?;
        if answer != expected.as_bytes() {
            return Err(std::io::Error::other("a wrong answer"));
        }
    }
    Ok(MESSAGES)
}
