# SPDX-License-Identifier: MIT OR Apache-2.0
"""Half of the round-trip time between two ranks of MPI, by size: for `cargo xtask mpi`.

Rank 0 prints a line for each size: octets, and the median of the batches' averages in microseconds.
"""

import statistics
import sys
import time

from mpi4py import MPI

MIN_SIZE, MAX_SIZE = int(sys.argv[1]), int(sys.argv[2])
# How long each size is measured, in seconds, and in how many batches.
SECONDS_PER_SIZE, BATCHES = 0.2, 9

comm = MPI.COMM_WORLD
rank, other = comm.Get_rank(), 1 - comm.Get_rank()
here, there = bytearray(MAX_SIZE), bytearray(b"\x5a" * MAX_SIZE)


def run(size, count):
    """Seconds of half a round trip, as the mean of `count` round trips."""
    out, into = memoryview(there)[:size], memoryview(here)[:size]
    comm.Barrier()
    start = time.perf_counter()
    for _ in range(count):
        if rank == 0:
            comm.Send([out, MPI.BYTE], other)
            comm.Recv([into, MPI.BYTE], other)
        else:
            comm.Recv([into, MPI.BYTE], other)
            comm.Send([out, MPI.BYTE], other)
    return (time.perf_counter() - start) / count / 2


size = MIN_SIZE
while size <= MAX_SIZE:
    run(size, 4)
    count = max(2, int(SECONDS_PER_SIZE / BATCHES / 2 / run(size, 8)))
    # Both ranks do the same number of rounds.
    count = comm.bcast(count)
    times = [run(size, count) for _ in range(BATCHES)]
    if here[:size] != there[:size]:
        sys.exit(f"{size} octets did not arrive as they were sent")
    if rank == 0:
        print(size, statistics.median(times) * 1e6, flush=True)
    size *= 2
