//! What the IA parameters of an entry may name.

use std::fs;
use std::net::IpAddr;
use std::path::Path;

use adapter::netdev;
use registry::Entry;

/// What this host has.
#[derive(Debug, Default)]
pub(crate) struct Devices {
    network: Vec<String>,
    rdma: Vec<String>,
    addresses: Vec<IpAddr>,
}

impl Devices {
    pub(crate) fn of_host() -> Devices {
        let addresses = netdev::addresses().unwrap_or_default();
        Devices {
            network: names_in(Path::new("/sys/class/net")),
            rdma: names_in(Path::new("/sys/class/infiniband")),
            addresses: addresses.iter().map(|found| found.addr.ip()).collect(),
        }
    }

    /// What the entry names and this host has not. Only providers that are known to read their parameters so are judged.
    pub(crate) fn missing<'e>(&self, entry: &'e Entry) -> Option<&'e str> {
        let library = Path::new(&entry.library).file_name()?.to_str()?;
        let known = ["libdapl", "libdat_"].iter().any(|start| library.starts_with(start));
        let name = place(entry)?;
        let has = |names: &[String]| names.iter().any(|has| has == name);
        let there = match name.parse::<IpAddr>() {
            Ok(address) => address.is_loopback() || self.addresses.contains(&address),
            // A name with a dot is a host's, which takes a network to judge.
            Err(_) => name.contains('.') || has(&self.network) || has(&self.rdma),
        };
        (known && !there).then_some(name)
    }

    /// The names, for people.
    pub(crate) fn names(&self) -> String {
        let names: Vec<&str> = self.network.iter().chain(&self.rdma).map(String::as_str).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    }
}

/// The device, address or host that an entry names.
pub(crate) fn place(entry: &Entry) -> Option<&str> {
    entry.ia_params.split_whitespace().next().filter(|word| !word.contains('='))
}

/// What a directory lists, in order; nothing where there is none.
pub(crate) fn names_in(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_known_provider_names_is_judged() {
        let devices = Devices {
            network: vec!["eth0".to_owned()],
            rdma: vec!["mlx5_0".to_owned()],
            addresses: vec![[192, 0, 2, 1].into()],
        };
        let missing = |library: &str, params: &str| {
            let line = format!("a u2.0 nonthreadsafe default {library} v.1.0 \"{params}\" \"\"");
            let (entries, _) = registry::conf::parse(Path::new("dat.conf"), line.as_bytes());
            devices.missing(&entries[0]).map(ToOwned::to_owned)
        };
        for fine in ["eth0 0", "mlx5_0 1", "192.0.2.1", "127.0.0.5", "", "crc=on", "node7.example.org"] {
            assert_eq!(missing("libdaplofa.so.2", fine), None, "{fine}");
        }
        for gone in ["eth7", "192.0.2.2", "mlx4_0"] {
            assert_eq!(missing("/opt/libdat_verbs.so", &format!("{gone} 1")).as_deref(), Some(gone));
            assert_eq!(missing("libvendor.so", &format!("{gone} 1")), None, "who knows what it means there");
        }
    }
}
