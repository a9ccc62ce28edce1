#!/usr/bin/env python3
"""Switches that are killed and come back, or whose standby takes over: sums stay exact, training goes on, weights stay equal."""

import json
import os
import random
import sys
import tempfile
import time

import harness
from harness import check, equal
from training import Training

# From the kill until all workers go on: many times what it takes, which is printed.
MOST_SECONDS = 30


def standby_of(daemon, mac="02:00:00:00:01:77"):
    """Another process for the same address, ports and jobs, with a MAC of its own."""
    config = {**daemon.config, "switch": {**daemon.config["switch"], "name": daemon.name + "-standby", "mac": mac}}
    standby = harness.Daemon(daemon.net, daemon.name + "-standby", config)
    standby.expected_warnings = daemon.expected_warnings
    return standby


def restart(daemon):
    daemon.kill()
    daemon.start(wait=False)
    return daemon


def take_over(daemon):
    daemon.kill()
    standby = standby_of(daemon)
    standby.start(wait=False)
    return standby


def vectors_for(ranks, elements, seed):
    vectors = [harness.integer_vector(random.Random(seed * 10 + rank), elements) for rank in range(ranks)]
    return vectors, [sum(column) for column in zip(*vectors)]


class Sums:
    """Ranks that all-reduce whole numbers again and again; each checks its own sums bit by bit in the end."""

    def __init__(self, begin, ranks, elements, repeat, seed):
        vectors, self.total = vectors_for(ranks, elements, seed)
        self.run = begin(vectors, extra=["--repeat", repeat, "--json"], timeout=60)

    def figures(self):
        figures = []
        for rank, (process, path) in enumerate(self.run.ranks):
            out, err = process.communicate(timeout=120 * harness.SLOW)
            equal(process.returncode, 0, f"exit code of rank {rank} ({err.strip()})")
            equal(list(harness.floats(path)), self.total, f"sum at rank {rank}")
            figures.append(json.loads(out))
        return figures


def completed(daemon):
    """Sums since its last start; 0 while it starts."""
    try:
        return daemon.counters()["aggregate_completed"]
    except OSError:
        return 0


def kill_in_the_middle(sums, times, victim, act=restart):
    """`act` on the daemon again and again while the sums go on; gives the daemon that is there in the end."""
    for _ in range(times):
        harness.eventually(f"{victim.name} sums", lambda daemon=victim: completed(daemon) > 1000)
        victim = act(victim)
    harness.eventually(f"{victim.name} sums again", lambda: completed(victim) > 1000)
    for rank, one in enumerate(sums.figures()):
        equal(one["resumes"], times, f"restarts that rank {rank} noticed")
        equal(one["resets"], 0, f"resets at rank {rank}")
    return victim


def the_only_switch_is_killed_again_and_again():
    with harness.Switch(hosts=4) as switch:
        kill_in_the_middle(Sums(switch.all_reduce, 4, 50_000, 800, 1), 3, switch)


def a_standby_takes_over():
    with harness.Switch(hosts=4) as switch:
        sums = Sums(switch.all_reduce, 4, 50_000, 500, 2)
        standby = kill_in_the_middle(sums, 1, switch, take_over)
        switch.process = None
        standby.end()


def restarts_under_loss():
    with harness.Switch(hosts=3, faults={"loss": 0.01, "duplicate": 0.01, "reorder": 0.02, "seed": 5}) as switch:
        kill_in_the_middle(Sums(switch.all_reduce, 3, 20_000, 400, 3), 2, switch)


def a_leaf_and_the_root_are_killed():
    with harness.Tree() as tree:
        sums = Sums(tree.all_reduce, 4, 50_000, 1000, 4)
        for victim in (tree.leaves[0], tree.root, tree.leaves[1], tree.root):
            harness.eventually(f"the root and {victim.name} sum", lambda: min(completed(tree.root), completed(victim)) > 1000)
            restart(victim)
        harness.eventually("the root sums again", lambda: completed(tree.root) > 1000)
        for rank, one in enumerate(sums.figures()):
            # The root goes right after the first leaf, and so on: restarts in the middle of another's.
            check(one["resumes"] >= 2, f"rank {rank} noticed {one['resumes']} of four restarts")
            equal(one["resets"], 0, f"resets at rank {rank}")


def another_config_is_named(before, after, *names):
    """The switch comes back with another config of the job: every rank fails, with an error that has all of `names` in it."""
    with harness.Switch(hosts=2, jobs=[harness.job(members=2, **before)]) as switch:
        vectors, _ = vectors_for(2, 50_000, 5)
        run = switch.all_reduce(vectors, extra=["--repeat", 1_000_000], timeout=10)
        harness.eventually("it sums", lambda: completed(switch) > 1000)
        switch.config["jobs"] = [harness.job(members=2, **after)]
        restart(switch)
        harness.eventually("the switch answers", switch.ready)
        for rank, (code, err) in enumerate(run.finish()):
            check(code != 0, f"rank {rank} went on with {after} instead of {before}")
            equal(len(err.splitlines()), 1, f"lines of rank {rank}'s error ({err!r})")
            for name in names:
                check(name in err, f"rank {rank} does not name the difference ({name!r}): {err}")


def other_slots_are_named():
    another_config_is_named({"slots": 1024}, {"slots": 512}, "1024 slots before, 512 now")


def other_segments_are_named():
    another_config_is_named({"segment_bytes": 1440}, {"segment_bytes": 960}, "segments of 1440 bytes before, of 960 now")


def another_mode_is_named():
    another_config_is_named({}, {"mode": "async"}, "the job is asynchronous")


def another_key_is_named():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "key")
        with open(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
            file.write("a key that no rank has been told")
        another_config_is_named({}, {"key_file": path}, "the key differs from the switch's")


def wait_for_more(training, count, seconds):
    """Until every worker has made so many updates more than now."""
    wanted = [training.updates(rank) + count for rank in range(len(training.workers))]
    for rank, updates in enumerate(wanted):
        training.wait_for_updates(rank, updates, seconds)


def go_on(training, act):
    """`act`, then every worker goes on."""
    acted = time.monotonic()
    daemon = act()
    # What was under way may end one iteration; the second is the restarted switch's alone.
    wait_for_more(training, 16, MOST_SECONDS)
    print(f"      went on after {time.monotonic() - acted:.2f} s", flush=True)
    return daemon


def end_well(training):
    training.stop(0)
    figures = training.figures()
    for one in figures:
        equal(one["generations"], 1, f"generations of worker {one['rank']}")
        equal(one["exchange_details"]["resets"], 0, f"resets at worker {one['rank']}")
    return figures


def training_goes_on_over_one_switch():
    with harness.Switch(hosts=4) as switch:
        training = Training(switch.net, [harness.SWITCH_IP] * 4)
        wait_for_more(training, 16, 60)
        go_on(training, lambda: restart(switch))
        wait_for_more(training, 16, 30)
        standby = go_on(training, lambda: take_over(switch))
        switch.process = None
        wait_for_more(training, 16, 30)
        for one in end_well(training):
            equal(one["exchange_details"]["resumes"], 2, f"restarts that worker {one['rank']} noticed")
        standby.end()


def training_goes_on_over_a_tree():
    with harness.Tree() as tree:
        training = Training(tree.net, [tree.ip_of(rank) for rank in range(4)], "--member", "any")
        wait_for_more(training, 16, 60)
        for victim in (tree.leaves[0], tree.root):
            go_on(training, lambda victim=victim: restart(victim))
            wait_for_more(training, 16, 30)
        end_well(training)


WITHOUT_TRAINING = [the_only_switch_is_killed_again_and_again, a_standby_takes_over, restarts_under_loss, a_leaf_and_the_root_are_killed,
                    other_slots_are_named, other_segments_are_named, another_mode_is_named, another_key_is_named]

if __name__ == "__main__":
    if sys.argv[1:2] == ["--without-training"]:
        del sys.argv[1]
        harness.main(*WITHOUT_TRAINING)
    harness.main(*WITHOUT_TRAINING, training_goes_on_over_one_switch, training_goes_on_over_a_tree)
