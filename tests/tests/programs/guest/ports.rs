//! A port of an RDMA device goes down, and `programs/port_down.c` there, over our verbs provider, hears of it.

use std::fs;

use opendat_tests::{Dist, Stop};

use super::machine::Guest;

/// A network device of its own: the wire has to stay.
const SCRIPT: &str = "\
    ip link add spare type dummy && ip addr add 10.98.0.1/24 dev spare && ip link set spare up && \
    rdma link add rxe_spare type rxe netdev spare || exit; \
    until grep -qs 0a62:0001 /sys/class/infiniband/rxe_spare/ports/1/gids/*; do sleep 0.02; done; \
    echo 'spare u2.0 nonthreadsafe default /share/libdat_verbs.so dapl.2.0 \"rxe_spare\" \"\"' >/tmp/spare.conf; \
    DAT_OVERRIDE=/tmp/spare.conf OPENDAT_TEST_IA=spare /share/port_down >/tmp/spare.out 2>&1 & \
    until grep -q open /tmp/spare.out || ! kill -0 $!; do sleep 0.02; done; \
    ip link set spare down; wait $!; status=$?; \
    rdma link delete rxe_spare; ip link delete spare; cat /tmp/spare.out; exit $status";

pub(super) fn goes_down(guest: &Guest, dist: &Dist) -> Result<(), Stop> {
    guest.c_program(dist, "port_down")?;
    let plugin = "libdat_verbs.so";
    fs::copy(dist.lib().join(plugin), guest.share().join(plugin))
        .map_err(|error| format!("{plugin}: {error}"))?;
    let said = guest.run(SCRIPT)?;
    match said.lines().any(|line| line == "ok") {
        true => Ok(()),
        false => Err(format!("port_down does not say ok:\n{said}").into()),
    }
}
