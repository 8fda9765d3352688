//! Tests in the guest that an RDMA device goes down or is removed while a program uses it through
//! provider-verbs. The program must get the event that reports the failure.

use std::sync::Arc;

use libtest_mimic::Trial;
use opendat_tests::{Dist, Skip, Stop, trial};

use super::machine::{Guest, Machine};
use crate::pair::LIMIT;

/// A failure of an RDMA device, and the program that must notice it.
struct Failure {
    name: &'static str,
    program: &'static str,
    /// The command that causes the failure. The command may wait until the device has no users.
    command: &'static str,
}

const FAILURES: &[Failure] = &[
    Failure { name: "port_down", program: "port_down", command: "ip link set spare down" },
    Failure {
        name: "device_removed",
        program: "device_gone",
        command: "rdma link delete rxe_spare",
    },
    Failure {
        name: "network_device_removed",
        program: "device_gone",
        command: "ip link delete spare",
    },
];

pub(super) fn trials(machine: &Arc<Machine>, dist: &Result<Dist, Skip>) -> Vec<Trial> {
    let trials = FAILURES.iter().map(|failure| {
        let (machine, dist) = (Arc::clone(machine), dist.clone());
        trial(format!("guest::verbs::{}", failure.name), move || {
            let dist = dist?;
            machine.run(("rxe", 1500), true, |guest| failure.run(guest, &dist))
        })
    });
    trials.collect()
}

/// A script that gives the test a network device of its own, because the wire has to stay up.
const SCRIPT: &str = "\
    rm -f /tmp/spare.out; \
    ip link add spare type dummy && ip addr add 10.98.0.1/24 dev spare && ip link set spare up && \
    rdma link add rxe_spare type rxe netdev spare || exit; \
    until grep -qs 0a62:0001 /sys/class/infiniband/rxe_spare/ports/1/gids/*; do sleep 0.02; done; \
    until grep -qsx rxe_spare /sys/class/infiniband_verbs/*/ibdev; do sleep 0.02; done; \
    echo 'spare u2.0 nonthreadsafe default /tmp/dist/lib/libdat_verbs.so dapl.2.0 \
          \"rxe_spare\" \"\"' >/tmp/spare.conf; \
    DAT_OVERRIDE=/tmp/spare.conf OPENDAT_TEST_IA=spare OPENDAT_TEST_ADDRESS=10.98.0.1 \
    LD_LIBRARY_PATH=/tmp/dist/lib \
        stdbuf -oL timeout -s ABRT 150 /share/PROGRAM >/tmp/spare.out 2>&1 & program=$!; \
    until grep -q open /tmp/spare.out || ! kill -0 $program; do sleep 0.02; done; \
    COMMAND & command=$!; \
    wait $program; status=$?; wait $command; \
    rdma link delete rxe_spare; ip link delete spare; cat /tmp/spare.out; exit $status";

impl Failure {
    fn run(&self, guest: &Guest, dist: &Dist) -> Result<(), Stop> {
        guest.c_program(dist, self.program)?;
        let script = SCRIPT.replace("PROGRAM", self.program).replace("COMMAND", self.command);
        let output = guest.run_for(&script, LIMIT)?;
        match output.lines().any(|line| line == "ok") {
            true => Ok(()),
            false => Err(format!("{} did not print ok:\n{output}", self.program).into()),
        }
    }
}
