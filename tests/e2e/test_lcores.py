#!/usr/bin/env python3
"""Several lcores, each with its shard: by handing over (one queue a port) and with queues of their own; faults; a tree."""

import os
import random
import re

import harness
from harness import check, equal

CPUS = sorted(os.sched_getaffinity(0))[:2]


def partition(daemon):
    """Every frame received ends in one terminal counter, on whichever lcore."""
    def settled():
        counters = daemon.counters()
        return daemon.received() == counters["rx_frames"] and counters
    return harness.eventually("the terminal counters add up to rx_frames", settled)


def sums_are_exact(switch, ranks, elements, repeat, seed, spread=True):
    vectors = [harness.integer_vector(random.Random(seed * 100 + rank), elements) for rank in range(ranks)]
    total = [sum(column) for column in zip(*vectors)]
    for rank, result in enumerate(switch.all_reduce(vectors, extra=["--repeat", repeat], timeout=60).sums()):
        equal(list(result), total, f"sum at rank {rank}")
    if not spread:
        return
    rows = {row["name"]: row["lcores"] for row in switch.ask("counters", per_lcore=True)["counters"] if row.get("lcores")}
    segments = -(-elements // 360) * repeat
    for lcore, done in enumerate(rows["aggregate_completed"]):
        check(done >= segments * 2 // 5, f"lcore {lcore} completed {done} of {segments} sums: {rows['aggregate_completed']}")


def ping(switch, host, address):
    done = switch.net.run(["ping", "-n", "-q", "-c", 5, "-i", "0.05", "-W", 2 * harness.SLOW, address], host=host, check=False)
    check(re.search(r" 5 received", done.stdout), f"echo from {address} to host {host}: {done.stdout}{done.stderr}")


def frames_are_handed_over():
    with harness.Switch(hosts=3, lcores=CPUS) as switch:
        status = switch.ask("status")
        equal(status["shards"], 2, "shards")
        equal([row["cpus"] for row in status["lcores"]], [[cpu] for cpu in CPUS], "CPUs of the lcores")
        ping(switch, 0, harness.SWITCH_IP)
        ping(switch, 1, "10.77.0.3")
        sums_are_exact(switch, 3, 20_000, 20, seed=1)
        partition(switch)
        equal(switch.counters()["rx_drop_handover_full"], 0, "frames lost between lcores")


def each_lcore_has_queues():
    with harness.Switch(hosts=3, lcores=CPUS, start=False) as switch:
        for port in switch.config["ports"]:
            port["device"] += ",qpairs=2"
        switch.start()
        check("2 receive and 2 transmit queues" in switch.log(), "the log does not tell of two queues")
        ping(switch, 0, harness.SWITCH_IP)
        ping(switch, 1, "10.77.0.3")
        sums_are_exact(switch, 3, 20_000, 20, seed=2)
        partition(switch)


def faults_change_nothing():
    seed = 5
    print(f"      seed {seed}", flush=True)
    faults = {"seed": seed, "loss": 0.02, "duplicate": 0.05, "reorder": 0.1}
    with harness.Switch(hosts=3, faults=faults, jobs=[harness.job(members=3, slots=64)], lcores=CPUS) as switch:
        sums_are_exact(switch, 3, 10_244, 20, seed, spread=False)
        counters = switch.counters()
        equal(counters["aggregate_added"], 3 * counters["aggregate_completed"], "contributions in sums of 3")
        switch.cut_cables()


def a_tree_of_shards():
    """Leaves with two shards below a root with one, and the other way round."""
    for leaf_cpus, root_cpus in ((CPUS, CPUS[:1]), (CPUS[:1], CPUS)):
        tree = harness.Tree()
        tree.root.config["lcores"] = root_cpus
        for leaf in tree.leaves:
            leaf.config["lcores"] = leaf_cpus
        with tree:
            vectors = [harness.integer_vector(random.Random(rank), 20_000) for rank in range(4)]
            total = [sum(column) for column in zip(*vectors)]
            for rank, result in enumerate(tree.all_reduce(vectors, extra=["--repeat", 10], timeout=60).sums()):
                equal(list(result), total, f"sum at rank {rank}")


if __name__ == "__main__":
    harness.main(frames_are_handed_over, each_lcore_has_queues, faults_change_nothing, a_tree_of_shards)
