//! The registry entries that need no file: one for each port of each RDMA device of this host.

use std::fs;
use std::path::Path;

use dat_core::{Error, OpenError};
use dat_sys::DAT_PROVIDER_NOT_FOUND;

use crate::params::SYSFS;

/// Returns the IA name and the ia_params of each port. The name consists of `verbs-` and the
/// device's name, such as `verbs-mlx5_0`. From the second port of a device on, a hyphen and the
/// port number follow, such as `verbs-mlx5_0-2`. This function opens no library.
pub fn entries() -> Vec<(String, String)> {
    entries_of(Path::new(SYSFS))
}

fn entries_of(sysfs: &Path) -> Vec<(String, String)> {
    let mut entries = Vec::new();
    for device in devices(sysfs) {
        let mut ports: Vec<u32> = file_names(&sysfs.join(&device).join("ports"))
            .iter()
            .filter_map(|port| port.parse().ok())
            .collect();
        ports.sort_unstable();
        for (index, port) in ports.into_iter().enumerate() {
            let name = if index == 0 {
                format!("verbs-{device}")
            } else {
                format!("verbs-{device}-{port}")
            };
            entries.push((name, format!("{device} {port}")));
        }
    }
    entries
}

/// Returns the names of the devices, sorted. Leaves out names that ia_params cannot express.
fn devices(sysfs: &Path) -> Vec<String> {
    let mut devices = file_names(sysfs);
    devices
        .retain(|name| !name.contains(|c: char| c.is_whitespace() || c.is_control() || c == '='));
    devices.sort_unstable();
    devices
}

fn file_names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// Fails first if there is no device: a user without a device need not be told to install
/// libraries.
pub(crate) fn require_device(sysfs: &Path) -> Result<(), OpenError> {
    if !file_names(sysfs).is_empty() {
        return Ok(());
    }
    let reason = format!(
        "this host has no RDMA device (none in {}): load the driver of one, or create one in \
         software as root: rdma link add rxe0 type rxe netdev eth0; the adapters tcp-emu and \
         softroce need none",
        sysfs.display()
    );
    Err(OpenError::new(Error::of(DAT_PROVIDER_NOT_FOUND), reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_port_of_each_device_has_an_entry() {
        let sysfs = tempfile::tempdir().expect("a directory");
        for port in [
            "mlx5_0/ports/2",
            "mlx5_0/ports/1",
            "mlx5_0/ports/10",
            "a/ports/1",
            "b c/ports/1",
            "d/ports",
        ] {
            fs::create_dir_all(sysfs.path().join(port)).expect("directories");
        }
        let entries = entries_of(sysfs.path());
        let entries: Vec<_> =
            entries.iter().map(|(name, params)| (name.as_str(), params.as_str())).collect();
        let expected = [
            ("verbs-a", "a 1"),
            ("verbs-mlx5_0", "mlx5_0 1"),
            ("verbs-mlx5_0-2", "mlx5_0 2"),
            ("verbs-mlx5_0-10", "mlx5_0 10"),
        ];
        assert_eq!(entries, expected);
        assert!(require_device(sysfs.path()).is_ok());
    }

    #[test]
    fn without_a_device_there_is_no_entry_and_the_error_says_how_to_create_one() {
        let nowhere = Path::new("/nonexistent/infiniband");
        assert_eq!(entries_of(nowhere), []);
        let error = require_device(nowhere).expect_err("a missing device must be refused");
        assert!(error.reason.contains("rdma link add rxe0 type rxe netdev"), "{error}");
    }
}
