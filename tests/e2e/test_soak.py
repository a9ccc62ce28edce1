#!/usr/bin/env python3
"""Many small operations: the memory of switchd and of the workers stays flat, every pool is full again.

    test_soak.py                         # 20,000 operations, as in the test run
    ISWITCH_SOAK=1000000 test_soak.py    # as long as one likes
"""

import os
import random
import time

import harness
from harness import check, equal


def resident_kib(pid):
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))


def memory_stays_flat():
    operations = int(os.environ.get("ISWITCH_SOAK", 20_000))
    with harness.Switch(hosts=2, jobs=[harness.job(members=2, slots=64)]) as switch:
        vectors = [harness.integer_vector(random.Random(rank), 16) for rank in range(2)]
        total = [sum(column) for column in zip(*vectors)]
        run = switch.all_reduce(vectors, extra=["--repeat", operations], timeout=60)
        pids = [switch.process.pid, *(process.pid for process, _ in run.ranks)]

        def completed():
            return switch.counters()["aggregate_completed"]

        # A tenth of the way everything that is allocated once has been.
        harness.eventually("a tenth of the operations", lambda: completed() >= operations // 10, 60 + operations // 1000)
        early = [resident_kib(pid) for pid in pids]
        started, done_before = time.monotonic(), completed()
        harness.eventually("nine tenths of the operations", lambda: completed() >= operations * 9 // 10, 60 + operations // 500)
        rate = (completed() - done_before) / (time.monotonic() - started)
        late = [resident_kib(pid) for pid in pids]
        for rank, result in enumerate(run.sums()):
            equal(list(result), total, f"sum at rank {rank}")
        equal(completed(), operations, "sums completed")
        for name, before, after in zip(("switchd", "rank 0", "rank 1"), early, late):
            check(after - before <= 512,
                  f"{name} grew from {before} to {after} KiB over {operations * 8 // 10} operations")
        memory = switch.ask("status")["memory"]
        print(f"      {operations} operations, {rate:.0f} a second, KiB resident {early} -> {late}", flush=True)
        print(f"      pools: {memory}", flush=True)


if __name__ == "__main__":
    harness.main(memory_stays_flat)
