//! Sends a file and shows the progress. Run `send_file receive FILE [ADAPTER]`, which prints a
//! connection qualifier, and on the same or another host `send_file send FILE ADDRESS QUALIFIER
//! [ADAPTER]`.
//!
//! The file is sent in chunks. The receiver has a buffer for each chunk that can be on its way. For
//! each buffer that is free again it sends a credit, an empty message. The sender sends a chunk
//! only if it has a credit, so no chunk arrives before there is a buffer for it.

use std::env;
use std::error::Error;
use std::fs::File;
use std::io::{self, Read, Write};

use dat::{Access, Adapter, Close, Completion, Event, EventDispatcher, Flags, Operation};

const CHUNK: usize = 64 << 10;
/// The number of chunks that can be on their way.
const CHUNKS: usize = 8;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["receive", file] => receive("tcp-emu", file),
        ["receive", file, adapter] => receive(adapter, file),
        ["send", file, address, qualifier] => send("tcp-emu", file, address, qualifier),
        ["send", file, address, qualifier, adapter] => send(adapter, file, address, qualifier),
        _ => Err("usage: send_file receive FILE [ADAPTER] \
                  | send FILE ADDRESS QUALIFIER [ADAPTER]"
            .into()),
    }
}

/// Prints each tenth of the transfer.
struct Progress {
    done: u64,
    all: u64,
}

impl Progress {
    fn add(&mut self, bytes: u64) -> io::Result<()> {
        let tenths = |bytes: u64| (bytes * 10).checked_div(self.all).unwrap_or(10);
        let before = tenths(self.done);
        self.done += bytes;
        for tenth in before + 1..=(self.done * 10).checked_div(self.all).unwrap_or(10) {
            print!("{}0 % ", tenth);
            io::stdout().flush()?;
        }
        Ok(())
    }

    fn is_complete(&self) -> bool {
        self.done >= self.all
    }
}

/// Waits for the next completion.
fn completion(events: &mut EventDispatcher) -> Result<Completion, Box<dyn Error>> {
    Ok(events.wait(None)?.completion()?)
}

fn receive(adapter: &str, path: &str) -> Result<(), Box<dyn Error>> {
    let adapter = Adapter::open(adapter)?;
    let zone = adapter.zone()?;
    let mut events = adapter.dispatcher(4 * CHUNKS)?;
    let buffers = zone.register(vec![0; CHUNKS * CHUNK], Access::LOCAL)?;
    let mut endpoint = adapter.endpoint().zone(&zone).events(&events).create()?;
    for index in 0..CHUNKS {
        let buffer = buffers.segment(index * CHUNK..(index + 1) * CHUNK)?;
        endpoint.post_receive(&[buffer], index as u64)?;
    }
    let listener = adapter.listen_any(&events)?;
    println!("listening at {}", listener.qualifier());

    let request = events.wait(None)?.request()?;
    let data = request.private_data()?;
    let all = data.first_chunk().map(|size| u64::from_be_bytes(*size)).ok_or("no size")?;
    request.accept(&mut endpoint, b"")?;
    events.wait(None)?.established()?;

    let (mut file, mut progress) = (File::create(path)?, Progress { done: 0, all });
    let mut chunk = vec![0; CHUNK];
    while !progress.is_complete() {
        let Completion { operation: Operation::Receive, cookie, length, .. } =
            completion(&mut events)?
        else {
            continue; // A credit was sent.
        };
        let start = usize::try_from(cookie)? * CHUNK;
        let bytes = &mut chunk[..length as usize];
        buffers.load(start, bytes)?;
        file.write_all(bytes)?;
        endpoint.post_receive(&[buffers.segment(start..start + CHUNK)?], cookie)?;
        endpoint.post_send(&[], 0, Flags::default())?;
        progress.add(length.into())?;
    }
    file.sync_all()?;
    println!("\n{all} bytes received");
    // The sender disconnects after the last credit.
    for event in events.incoming(None) {
        if let Event::Connection { .. } = event? {
            break;
        }
    }
    Ok(())
}

fn send(adapter: &str, path: &str, address: &str, qualifier: &str) -> Result<(), Box<dyn Error>> {
    let adapter = Adapter::open(adapter)?;
    let zone = adapter.zone()?;
    let mut events = adapter.dispatcher(4 * CHUNKS)?;
    let mut buffers = zone.register(vec![0; CHUNKS * CHUNK], Access::LOCAL)?;
    let mut endpoint = adapter.endpoint().zone(&zone).events(&events).create()?;
    // Credits are empty messages, which need receives without memory.
    for _ in 0..CHUNKS {
        endpoint.post_receive(&[], 0)?;
    }
    let mut file = File::open(path)?;
    let all = file.metadata()?.len();
    endpoint.connect(address.parse()?, qualifier.parse()?, &all.to_be_bytes(), None)?;
    events.wait(None)?.established()?;

    let mut progress = Progress { done: 0, all };
    // The buffers of chunks that were sent, and the credits.
    let (mut free, mut credits) = ((0..CHUNKS).collect::<Vec<_>>(), CHUNKS);
    let mut read = 0;
    while !progress.is_complete() || free.len() < CHUNKS || credits < CHUNKS {
        if read < all
            && credits > 0
            && let Some(index) = free.pop()
        {
            let mut chunk = Vec::with_capacity(CHUNK);
            (&mut file).take(CHUNK as u64).read_to_end(&mut chunk)?;
            let (start, length) = (index * CHUNK, chunk.len());
            buffers.store(start, &chunk)?;
            let segment = buffers.segment(start..start + length)?;
            endpoint.post_send(&[segment], index as u64, Flags::default())?;
            read += length as u64;
            credits -= 1;
            continue;
        }
        let Completion { operation, cookie, length, .. } = completion(&mut events)?;
        if operation == Operation::Receive {
            credits += 1;
            endpoint.post_receive(&[], 0)?;
        } else {
            free.push(usize::try_from(cookie)?);
            progress.add(length.into())?;
        }
    }
    println!("\n{all} bytes sent");
    Ok(endpoint.disconnect(Close::Graceful)?)
}
