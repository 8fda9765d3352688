//! Arguments that several commands have, of `dat` and of the workshop.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, TcpListener};

use anyhow::{Context, Result, bail};
use clap::Args;

/// Options that several commands share: the adapter, its address, and the output format.
#[derive(Args)]
pub struct CommonArguments {
    /// The adapter, by its name in the registry
    #[arg(long, visible_alias = "ia", value_name = "NAME", default_value = "tcp-emu")]
    pub adapter: String,
    /// The address at which the adapter is reached on this host; by default the address in the
    /// adapter's registry entry, or 127.0.0.1 if the entry has none
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    address: Option<dat::Address>,
    /// Print one JSON document instead of a table
    #[arg(long)]
    pub json: bool,
}

fn address(text: &str) -> Result<dat::Address, &'static str> {
    text.parse().map_err(
        |_| "expected an IPv4 or IPv6 address of this host, as in 127.0.0.1 or fe80::1%eth0",
    )
}

/// Returns the address of an adapter whose entry names a device or an address. The adapter cannot
/// be reached at any other address.
pub fn address_from_entry(name: &str) -> Result<Option<dat::Address>> {
    let candidates = dat::registry().list().candidates();
    let of_name = candidates.into_iter().find(|candidate| candidate.entry.ia_name == name);
    match of_name.and_then(|candidate| registry::host::device_parameter(&candidate.entry)) {
        Some(_) => Ok(dat::Adapter::open(name)?.attributes().address),
        None => Ok(None),
    }
}

impl CommonArguments {
    /// Returns the address at which this adapter and `others` are reached on this host.
    ///
    /// # Errors
    /// Fails if the address is unusable. The check runs before the two processes start, because an
    /// error of this process is clearer than an error of a child process.
    pub fn address(&self, others: &[String]) -> Result<dat::Address> {
        let address = match self.address {
            Some(address) => address,
            None => std::iter::once(&self.adapter)
                .chain(others)
                .find_map(|name| address_from_entry(name).transpose())
                .transpose()?
                .unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST).into()),
        };
        match TcpListener::bind(address.with_port(0)) {
            Ok(_) => Ok(address),
            Err(error) if error.kind() == ErrorKind::AddrNotAvailable => bail!(
                "{address} is not an address of this host; `ip -brief address` lists the \
                  host's addresses; without --address, the address is that of the adapter's entry, \
                  or 127.0.0.1"
            ),
            Err(error) if error.kind() == ErrorKind::InvalidInput => bail!(
                "{address} does not say on which network device; append its name or the \
                 number that `ip address` shows, as in {address}%2"
            ),
            Err(error) => {
                Err(error).with_context(|| format!("listening on {address} for plain TCP"))
            }
        }
    }
}

/// Reports the errors in the registry file before the command does anything else. Later uses of the
/// registry do not report them again.
pub fn report_registry_errors() {
    dat::registry().list();
}
