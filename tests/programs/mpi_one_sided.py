"""One-sided MPI among all ranks: accumulates, puts, gets and locks, with the values that must
result. OCTETS is the size of the largest transfer. Each rank prints "one-sided: right"."""

import array
import sys

from mpi4py import MPI

WORLD = MPI.COMM_WORLD
RANK, RANKS = WORLD.rank, WORLD.size
NEXT, PREVIOUS = (RANK + 1) % RANKS, (RANK - 1) % RANKS
ALL = (1 << RANKS) - 1
"""The sum of `mine` over all ranks."""


def check(what, found, right):
    if not all(value == right for value in found):
        wrong = next((i, value) for i, value in enumerate(found) if value != right)
        sys.exit(f"rank {RANK}: {what}: element {wrong[0]} is {wrong[1]} instead of {right}")


def transfers(octets):
    count = octets // 8
    memory = array.array("d", [0.0] * count)
    fetched = array.array("d", [0.0] * count)
    # Each rank has a bit of its own, so a sum shows which ranks have contributed.
    mine = array.array("d", [float(1 << RANK)] * count)
    whole = (0, count, MPI.DOUBLE)
    window = MPI.Win.Create(memory, memory.itemsize, MPI.INFO_NULL, WORLD)

    window.Fence()
    for _ in range(3):
        window.Accumulate(mine, 0, whole, MPI.SUM)
    window.Fence()
    check("accumulate", memory, 3.0 * ALL if RANK == 0 else 0.0)

    window.Fence()
    window.Put(mine, NEXT, whole)
    window.Fence()
    check("put", memory, float(1 << PREVIOUS))

    window.Fence()
    window.Get(fetched, NEXT, whole)
    window.Fence()
    check("get", fetched, float(1 << RANK))

    memory[:] = array.array("d", [0.0] * count)
    window.Fence()
    window.Get_accumulate(mine, fetched, 0, whole, MPI.SUM)
    window.Fence()
    check("get_accumulate", memory, float(ALL) if RANK == 0 else 0.0)
    # What a rank fetches are contributions of other ranks only.
    check("fetched", (int(value) & (1 << RANK | ~ALL) for value in fetched), 0)

    memory[:] = array.array("d", [0.0] * count)
    WORLD.Barrier()
    for _ in range(10):
        window.Lock(0)
        window.Get(fetched, 0, whole)
        window.Flush(0)
        for i in (0, count - 1):
            fetched[i] += 1.0
        window.Put(fetched, 0, whole)
        window.Unlock(0)
    WORLD.Barrier()
    if RANK == 0:
        times = 10.0 * RANKS * (2 if count == 1 else 1)
        check("first and last under a lock", (memory[0], memory[-1]), times)
    window.Free()


for size in (8, int(sys.argv[1])):
    transfers(size)
print("one-sided: right", flush=True)
