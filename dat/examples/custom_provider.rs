//! A program with a provider of its own, which no registry has to know: `examples/provider-loop` of
//! the repository, whose wire is the memory of the process. docs/writing-a-provider.md explains how
//! to write one.

use std::error::Error;

use dat::{Access, Adapter, Flags, Registry};
use dat_core::export::{AnyProvider, register};
use registry::{Api, Builtin, Builtins, FNS};

/// The adapters of the provider: one, called `memory`.
static ADAPTERS: &[Builtin] = &[Builtin {
    name: "memory",
    params: "",
    table: |info, params| register(AnyProvider::of::<dat_loop::Loop>(), FNS, info, params),
    discover: None,
}];

/// The registry of the program. It has no other adapters, except those in /etc/dat.conf.
static REGISTRY: Registry =
    Registry::new(Builtins { adapters: &[ADAPTERS], api: Api::U2_0, threadsafe: &[false] });

fn main() -> Result<(), Box<dyn Error>> {
    let (server, client) =
        (Adapter::open_in(&REGISTRY, "memory")?, Adapter::open_in(&REGISTRY, "memory")?);
    println!("provider: {}", server.attributes().provider);

    let zone = server.zone()?;
    let mut events = server.dispatcher(8)?;
    let buffer = zone.register(vec![0; 5], Access::LOCAL)?;
    let mut endpoint = server.endpoint().zone(&zone).events(&events).create()?;
    endpoint.post_receive(&[buffer.segment(0..5)?], 1)?;
    let listener = server.listen_any(&events)?;

    let client_zone = client.zone()?;
    let mut client_events = client.dispatcher(8)?;
    let message = client_zone.register(b"hello".to_vec(), Access::LOCAL)?;
    let mut caller = client.endpoint().zone(&client_zone).events(&client_events).create()?;
    let address = server.attributes().address.ok_or("the adapter has no address")?;
    caller.connect(address, listener.qualifier(), b"", None)?;

    events.wait(None)?.request()?.accept(&mut endpoint, b"")?;
    events.wait(None)?.established()?;
    client_events.wait(None)?.established()?;
    caller.post_send(&[message.segment(0..5)?], 2, Flags::default())?;
    println!("{}", events.wait(None)?);
    println!("memory: {}", String::from_utf8(buffer.to_vec(0..5)?)?);
    Ok(())
}
