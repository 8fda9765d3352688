//! A store that clients read without the server's help: they find a value by an RDMA read of the
//! server's table. Only changes are messages.
//!
//! Run `key_value server [ADAPTER]`, which prints a connection qualifier, and on the same or
//! another host `key_value put ADDRESS QUALIFIER KEY VALUE [ADAPTER]` and `key_value get ADDRESS
//! QUALIFIER KEY [ADAPTER]`.

use std::collections::HashMap;
use std::env;
use std::error::Error;

use dat::{
    Access, Adapter, Close, Completion, ConnectionEvent, ConnectionRequest, Endpoint, EndpointId,
    Event, EventDispatcher, Flags, MemoryRegion, ProtectionZone, RemoteRegion, Status,
};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["server"] => server("tcp-emu"),
        ["server", adapter] => server(adapter),
        ["put", address, qualifier, key, value] => {
            Client::connect("tcp-emu", address, qualifier)?.put(key, value)
        }
        ["put", address, qualifier, key, value, adapter] => {
            Client::connect(adapter, address, qualifier)?.put(key, value)
        }
        ["get", address, qualifier, key] => {
            Client::connect("tcp-emu", address, qualifier)?.get(key)
        }
        ["get", address, qualifier, key, adapter] => {
            Client::connect(adapter, address, qualifier)?.get(key)
        }
        _ => Err("usage: key_value server [ADAPTER] | put ADDRESS QUALIFIER KEY VALUE [ADAPTER] \
                  | get ADDRESS QUALIFIER KEY [ADAPTER]"
            .into()),
    }
}

/// The number of slots of the table. A key belongs into the slot that its hash selects. Two keys
/// with the same slot replace each other, because this is an example.
const SLOTS: usize = 1024;
/// A key and a value, each padded with zeros, and their hash.
const SLOT_SIZE: usize = 64;
const KEY_SIZE: usize = 24;
const HASH_AT: usize = SLOT_SIZE - 8;

/// FNV-1a.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}

/// A slot of the table. While the server changes a slot, a client may read a mixture of old and new
/// bytes. The hash does not fit then, and the client reads again.
#[derive(Clone, Copy)]
struct Slot([u8; SLOT_SIZE]);

impl Slot {
    fn new(key: &str, value: &str) -> Result<Self, Box<dyn Error>> {
        let mut slot = [0; SLOT_SIZE];
        if key.is_empty() || key.len() > KEY_SIZE || value.len() > HASH_AT - KEY_SIZE {
            return Err("a key has 1 to 24 bytes, a value at most 32".into());
        }
        slot[..key.len()].copy_from_slice(key.as_bytes());
        slot[KEY_SIZE..KEY_SIZE + value.len()].copy_from_slice(value.as_bytes());
        let sum = hash(&slot[..HASH_AT]);
        slot[HASH_AT..].copy_from_slice(&sum.to_be_bytes());
        Ok(Slot(slot))
    }

    fn is_empty(&self) -> bool {
        self.0 == [0; SLOT_SIZE]
    }

    fn is_whole(&self) -> bool {
        self.is_empty() || self.0[HASH_AT..] == hash(&self.0[..HASH_AT]).to_be_bytes()
    }

    fn key(&self) -> String {
        text(&self.0[..KEY_SIZE])
    }

    fn value(&self) -> String {
        text(&self.0[KEY_SIZE..HASH_AT])
    }

    /// The offset of a key's slot in the table.
    fn offset_of(key: &str) -> usize {
        hash(key.as_bytes()) as usize % SLOTS * SLOT_SIZE
    }
}

fn text(padded: &[u8]) -> String {
    String::from_utf8_lossy(padded).trim_end_matches('\0').to_owned()
}

/// A connected client, with the buffer for its messages.
struct Connection {
    endpoint: Endpoint,
    message: MemoryRegion<'static>,
}

impl Connection {
    fn accept(
        request: ConnectionRequest,
        mut endpoint: Endpoint,
        zone: &ProtectionZone,
        table: RemoteRegion,
    ) -> dat::Result<Self> {
        let message = zone.register(vec![0; SLOT_SIZE], Access::LOCAL)?;
        endpoint.post_receive(&[message.segment(0..SLOT_SIZE)?], 0)?;
        request.accept(&mut endpoint, &table.to_bytes())?;
        Ok(Connection { endpoint, message })
    }

    /// Stores the slot that was received, if it is whole, and posts the next receive.
    fn store_into(&mut self, table: &mut MemoryRegion<'static>) -> dat::Result<()> {
        let mut slot = Slot([0; SLOT_SIZE]);
        self.message.load(0, &mut slot.0)?;
        if slot.is_whole() {
            table.store(Slot::offset_of(&slot.key()), &slot.0)?;
        }
        self.endpoint.post_receive(&[self.message.segment(0..SLOT_SIZE)?], 0)
    }
}

/// Serves any number of clients. A client that fails does not disturb the others.
fn server(adapter: &str) -> Result<(), Box<dyn Error>> {
    let adapter = Adapter::open(adapter)?;
    let zone = adapter.zone()?;
    let mut events = adapter.dispatcher(1024)?;
    let table = vec![0; SLOTS * SLOT_SIZE];
    let mut table = zone.register(table, Access::LOCAL | Access::REMOTE_READ)?;
    let listener = adapter.listen_any(&events)?;
    println!("listening at {}", listener.qualifier());
    let mut clients: HashMap<EndpointId, Connection> = HashMap::new();
    loop {
        match events.wait(None)? {
            Event::ConnectionRequest(request) => {
                let endpoint = adapter.endpoint().zone(&zone).events(&events).create()?;
                match Connection::accept(request, endpoint, &zone, table.remote()) {
                    Ok(client) => drop(clients.insert(client.endpoint.id(), client)),
                    Err(error) => eprintln!("a client is not accepted: {error}"),
                }
            }
            Event::Completion(Completion { status: Status::Success, endpoint, .. }) => {
                if let Some(Err(error)) =
                    clients.get_mut(&endpoint).map(|client| client.store_into(&mut table))
                {
                    eprintln!("a client has failed: {error}");
                }
            }
            Event::Connection { event: ConnectionEvent::Established { .. }, .. } => {}
            Event::Connection { endpoint, .. } => drop(clients.remove(&endpoint)),
            // The receive that is left at the end of a connection.
            _ => {}
        }
    }
}

struct Client {
    endpoint: Endpoint,
    events: EventDispatcher,
    slot: MemoryRegion<'static>,
    table: RemoteRegion,
}

impl Client {
    fn connect(adapter: &str, address: &str, qualifier: &str) -> Result<Self, Box<dyn Error>> {
        let adapter = Adapter::open(adapter)?;
        let zone = adapter.zone()?;
        let mut events = adapter.dispatcher(8)?;
        let slot = zone.register(vec![0; SLOT_SIZE], Access::LOCAL)?;
        let mut endpoint = adapter.endpoint().zone(&zone).events(&events).create()?;
        endpoint.connect(address.parse()?, qualifier.parse()?, b"", None)?;
        let answer = events.wait(None)?.established()?;
        let table = RemoteRegion::from_bytes(&answer).ok_or("the server offers no table")?;
        Ok(Client { endpoint, events, slot, table })
    }

    fn read(&mut self, key: &str) -> Result<Slot, Box<dyn Error>> {
        let offset = Slot::offset_of(key);
        let remote = self.table.segment(offset..offset + SLOT_SIZE)?;
        loop {
            let local = [self.slot.segment(0..SLOT_SIZE)?];
            self.endpoint.post_read(&local, remote, 0, Flags::default())?;
            self.events.wait(None)?.completion()?;
            let mut slot = Slot([0; SLOT_SIZE]);
            self.slot.load(0, &mut slot.0)?;
            if slot.is_whole() {
                return Ok(slot);
            }
        }
    }

    fn get(mut self, key: &str) -> Result<(), Box<dyn Error>> {
        let slot = self.read(key)?;
        if slot.is_empty() || slot.key() != key {
            println!("{key} is not in the store");
        } else {
            println!("{key} is {}", slot.value());
        }
        self.disconnect()
    }

    fn put(mut self, key: &str, value: &str) -> Result<(), Box<dyn Error>> {
        let slot = Slot::new(key, value)?;
        self.slot.store(0, &slot.0)?;
        self.endpoint.post_send(&[self.slot.segment(0..SLOT_SIZE)?], 0, Flags::default())?;
        self.events.wait(None)?.completion()?;
        // The server has the message, but has perhaps not changed the table yet.
        while self.read(key)?.0 != slot.0 {}
        println!("{key} is now {value}");
        self.disconnect()
    }

    fn disconnect(mut self) -> Result<(), Box<dyn Error>> {
        self.endpoint.disconnect(Close::Graceful)?;
        Ok(self.events.wait(None)?.disconnected()?)
    }
}
