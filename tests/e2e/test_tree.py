#!/usr/bin/env python3
"""Two levels of switches: exact sums through a root and two leaves, and a parent that is wrong, vanishes and returns."""

import os
import random
import time

import harness
from harness import check, equal


def vectors_for(ranks, elements, seed):
    vectors = [harness.integer_vector(random.Random(seed * 10 + rank), elements) for rank in range(ranks)]
    return vectors, [sum(column) for column in zip(*vectors)]


def parent_state(leaf, number=1):
    return leaf.job_state(number)["parent"]["state"]


def equal_sums(run, total, what):
    for rank, result in enumerate(run.sums()):
        equal(list(result), total, f"sum at rank {rank} {what}")


def four_workers_on_two_leaves():
    with harness.Tree() as tree:
        for seed, elements in enumerate((1, 359, 50_000)):
            vectors, total = vectors_for(4, elements, seed)
            equal_sums(tree.all_reduce(vectors), total, f"of {elements} elements")
        # A segment's sum is two contributions at each switch, whatever came again.
        for daemon in tree.daemons:
            counters = daemon.counters()
            equal(counters["aggregate_added"], 2 * counters["aggregate_completed"], f"contributions to the sums of {daemon.name}")
            rx = sum(row["rx_frames"] for row in daemon.ask("ports")["ports"])
            harness.eventually(f"every frame at {daemon.name} is in one counter", lambda: daemon.received() >= rx)
        segments = sum(-(-elements // 360) for elements in (1, 359, 50_000))
        equal(tree.root.counters()["aggregate_completed"], segments, "sums completed at the root")
        members = tree.root.ask("members", job=1)["members"]
        equal([member["kind"] for member in members], [], "members of the root after all workers have left")


def other_kinds_of_jobs_over_two_levels():
    with harness.Tree(jobs=[harness.job(1, 2), harness.job(2, 2, udp_checksum=False), harness.job(3, 2, slots=64, segment_bytes=256)],
                      root_jobs=[harness.job(1, 2), harness.job(2, 2, udp_checksum=False),
                                 harness.job(3, 2, slots=16, segment_bytes=128)]) as tree:
        runs = []
        for number in (1, 2, 3):
            vectors, total = vectors_for(4, 20_000, number)
            runs.append((tree.all_reduce(vectors, number=number), total, number))
        for run, total, number in runs:
            equal_sums(run, total, f"of job {number}")


def a_parent_with_another_key_is_one_line():
    with harness.Tree() as plain:
        folder = plain.net.directory
        paths = []
        for name in ("one", "other"):
            paths.append(os.path.join(folder, name))
            with open(paths[-1], "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
                file.write(name.encode() * 16)
        leaf = plain.leaves[0]
        leaf.end()
        leaf.config["jobs"] = [harness.job(1, 2, key_file=paths[0])]
        plain.root.end()
        plain.root.config["jobs"] = [harness.job(1, 2, key_file=paths[1])]
        for daemon in (leaf, plain.root):
            daemon.expect_warning("key|tag")
        plain.leaves[1].expect_warning("parent|key|tag")
        plain.root.start()
        leaf.start()
        vectors, _ = vectors_for(2, 100, 1)
        run = plain.all_reduce(vectors, extra=["--key-file", paths[0]], timeout=3)

        def told():
            parent = leaf.job_state()["parent"]
            return "key" in parent["text"] and parent["text"]

        text = harness.eventually("the leaf says that its parent has another key", told)
        equal(len(text.splitlines()), 1, f"lines of {text!r}")
        for rank, (code, err) in enumerate(run.finish()):
            check(code != 0, f"rank {rank} did not fail")
            equal(len(err.splitlines()), 1, f"lines of rank {rank}'s error ({err!r})")


def a_parent_that_is_not_there_is_one_line():
    with harness.Tree(parent={"ip": "10.77.0.200"}) as tree:
        for leaf in tree.leaves:
            leaf.expect_warning("parent")
        vectors, _ = vectors_for(2, 100, 1)
        run = tree.all_reduce(vectors, timeout=3)
        started = time.monotonic()
        ends = run.finish()
        check(time.monotonic() - started < 3 + 3 * harness.SLOW, "the workers took too long to fail with a deadline of 3 s")
        for rank, (code, err) in enumerate(ends):
            check(code != 0, f"rank {rank} did not fail")
            equal(len(err.splitlines()), 1, f"lines of rank {rank}'s error ({err!r})")
        text = tree.leaves[0].job_state()["parent"]["text"]
        check("10.77.0.200" in text, f"the leaf's status does not name its parent: {text}")


def a_parent_that_vanishes_is_reported_and_comes_back():
    with harness.Tree() as tree:
        for leaf in tree.leaves:
            leaf.expect_warning("parent")
        vectors, total = vectors_for(4, 5_000, 7)
        run = tree.all_reduce(vectors, extra=["--repeat", 1_000_000], timeout=6)
        harness.eventually("the root sums", lambda: tree.root.counters()["aggregate_completed"] > 100)
        tree.root.kill()
        killed = time.monotonic()
        for leaf in tree.leaves:
            harness.eventually(f"{leaf.name} reports its parent", lambda: parent_state(leaf) in ("silent", "resolving", "joining"))
        for rank, (code, err) in enumerate(run.finish()):
            check(code != 0, f"rank {rank} did not fail")
            equal(len(err.splitlines()), 1, f"lines of rank {rank}'s error ({err!r})")
        check(time.monotonic() - killed < 6 + 4 * harness.SLOW, "the workers took too long to fail with a deadline of 6 s")
        tree.root.start()
        equal_sums(tree.all_reduce(vectors, timeout=30), total, "after the parent's return")


def a_killed_worker_is_replaced():
    with harness.Tree(jobs=[harness.job(members=2, member_timeout_ms=1000)]) as tree:
        vectors, total = vectors_for(4, 5_000, 3)
        run = tree.all_reduce(vectors, extra=["--repeat", 1_000_000], timeout=5)
        harness.eventually("the root sums", lambda: tree.root.counters()["aggregate_completed"] > 100)
        run.ranks[3][0].kill()
        for rank, (code, err) in enumerate(run.finish()):
            check(code != 0, f"rank {rank} did not fail")
        equal_sums(tree.all_reduce(vectors, timeout=30), total, "after the replacement")


if __name__ == "__main__":
    harness.main(four_workers_on_two_leaves, other_kinds_of_jobs_over_two_levels, a_parent_with_another_key_is_one_line,
                 a_parent_that_is_not_there_is_one_line, a_parent_that_vanishes_is_reported_and_comes_back,
                 a_killed_worker_is_replaced)
