//! What a user is told who may do less than root: where it happened, and what to do.

use std::sync::Arc;

use libtest_mimic::Trial;
use opendat_tests::{Stop, trial};

use super::machine::{Guest, Machine};

struct Check {
    name: &'static str,
    /// What such a user may not open, below /dev/infiniband.
    closed: Option<&'static str>,
    command: &'static str,
    says: &'static [&'static str],
}

const CHECKS: &[Check] = &[
    Check {
        name: "without_rdma_cm",
        closed: Some("rdma_cm"),
        command: "query verbs",
        says: &[
            "dat: verbs (verbs): /dev/infiniband/rdma_cm: Permission denied (os error 13); rdma-core's udev rules let every \
             user open it, and so does `chmod a+rw`, as root",
            "dat: cannot open IA \"verbs\" (u2.0)",
            "    built in: the provider's dat_ia_open answered 0x800a0000 (DAT_PROVIDER_NOT_FOUND)",
        ],
    },
    Check {
        name: "without_the_device",
        closed: Some("uverbs*"),
        command: "query verbs",
        says: &[
            "dat: verbs (verbs): /dev/infiniband/uverbs0: Permission denied (os error 13); rdma-core's udev rules let every \
             user open it, and so does `chmod a+rw`, as root",
            "dat: cannot open IA \"verbs\" (u2.0)",
            "    built in: the provider's dat_ia_open answered 0x80120000 (DAT_INVALID_ADDRESS)",
        ],
    },
    Check {
        name: "with_a_small_memlock",
        closed: None,
        command: "bench --adapter verbs --address 10.77.0.2 --operations send --sizes 1M",
        says: &[
            "dat: the server process: dat_lmr_create: not enough resources (DAT_RESOURCE_MEMORY_REGION); free registered \
                 memory, or raise the limit of locked memory: `ulimit -l`",
        ],
    },
];

pub(super) fn trials(machine: &Arc<Machine>) -> Vec<Trial> {
    let trials = CHECKS.iter().map(|check| {
        let machine = Arc::clone(machine);
        trial(format!("guest::rights::{}", check.name), move || {
            machine.run(("rxe", 1500), true, |guest| check.holds(guest))
        })
    });
    trials.collect()
}

impl Check {
    fn holds(&self, guest: &Guest) -> Result<(), Stop> {
        let allow = |mode| match self.closed {
            Some(node) => guest.run(&format!("chmod {mode} /dev/infiniband/{node}")).map(drop),
            None => Ok(()),
        };
        allow("600")?;
        // A user who may lock 16 KiB.
        let said = guest.run(&format!(
            "ulimit -l 16; DAT_OVERRIDE=/dev/null chroot --userspec=1000:1000 / /tmp/dist/bin/dat {} 2>&1; :",
            self.command
        ));
        allow("666")?;
        let said = said?;
        // libibverbs has something to say of small limits itself; the last line is the exit status.
        let ours = said.lines().filter(|line| self.says.contains(line)).collect::<Vec<_>>();
        match ours == self.says && !said.contains("panicked") {
            true => Ok(()),
            false => Err(format!("it does not say\n{}\nbut\n{said}", self.says.join("\n")).into()),
        }
    }
}
