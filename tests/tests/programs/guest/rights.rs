//! Tests the messages for a user with fewer rights than root. The messages must say what failed and
//! how to fix it.

use std::sync::Arc;

use libtest_mimic::Trial;
use opendat_tests::{Stop, trial};

use super::machine::{Guest, Machine};

struct Check {
    name: &'static str,
    /// The device file below /dev/infiniband that the user may not open.
    closed: Option<&'static str>,
    command: &'static str,
    expected_lines: &'static [&'static str],
}

const CHECKS: &[Check] = &[
    Check {
        name: "without_rdma_cm",
        closed: Some("rdma_cm"),
        command: "query verbs",
        expected_lines: &[
            "dat: cannot open IA \"verbs\" (u2.0)",
            "    built in: the provider's dat_ia_open answered 0x800a0000 (DAT_PROVIDER_NOT_FOUND)",
            "    verbs (verbs): /dev/infiniband/rdma_cm: Permission denied (os error 13); \
             rdma-core's udev rules let every \
             user open it, and so does `chmod a+rw` as root",
        ],
    },
    Check {
        name: "without_the_device",
        closed: Some("uverbs*"),
        command: "query verbs",
        expected_lines: &[
            "dat: cannot open IA \"verbs\" (u2.0)",
            "    built in: the provider's dat_ia_open answered 0x80120000 (DAT_INVALID_ADDRESS)",
            "    verbs (verbs): /dev/infiniband/uverbs0: Permission denied (os error 13); \
             rdma-core's udev rules let every \
             user open it, and so does `chmod a+rw` as root",
        ],
    },
    Check {
        name: "with_a_small_memlock",
        closed: None,
        command: "bench --adapter verbs --address 10.77.0.2 --operations send --sizes 1M",
        expected_lines: &["dat: the server process: dat_lmr_create: not enough resources \
             (DAT_RESOURCE_MEMORY_REGION); free registered \
                 memory, or raise the limit of locked memory: `ulimit -l`"],
    },
];

pub(super) fn trials(machine: &Arc<Machine>) -> Vec<Trial> {
    let trials = CHECKS.iter().map(|check| {
        let machine = Arc::clone(machine);
        trial(format!("guest::rights::{}", check.name), move || {
            machine.run(("rxe", 1500), true, |guest| check.check(guest))
        })
    });
    trials.collect()
}

impl Check {
    fn check(&self, guest: &Guest) -> Result<(), Stop> {
        let allow = |mode| match self.closed {
            Some(node) => guest.run(&format!("chmod {mode} /dev/infiniband/{node}")).map(drop),
            None => Ok(()),
        };
        allow("600")?;
        // `ulimit -l 16` lets this user lock only 16 KiB of memory.
        let output = guest.run(&format!(
            "ulimit -l 16; \
             DAT_OVERRIDE=/dev/null chroot --userspec=1000:1000 / /tmp/dist/bin/dat {} 2>&1; :",
            self.command
        ));
        allow("666")?;
        let output = output?;
        // libibverbs prints a message of its own about small limits. The last line is the exit
        // status.
        let ours =
            output.lines().filter(|line| self.expected_lines.contains(line)).collect::<Vec<_>>();
        match ours == self.expected_lines && !output.contains("panicked") {
            true => Ok(()),
            false => {
                Err(format!("expected the lines\n{}\nin\n{output}", self.expected_lines.join("\n"))
                    .into())
            }
        }
    }
}
