#!/usr/bin/env python3
"""torch's DistributedDataParallel with its gradients through switchd: equal replicas, gloo's result, failures that end the training.

Skips where no Python has torch (Debian: python3-torch). gloo's own traffic, TCP, crosses the same switchd as ordinary frames.
"""

import functools
import json
import os
import signal
import subprocess
import sys
import time

import harness
import lab
from harness import check, equal
from test_python import environment

RANKS = 3
STEPS = 12
RATE = 0.05
SCRIPT = os.path.join(harness.ROOT, "tests", "python", "ddp_rank.py")
PYTHONS = (sys.executable, "/usr/bin/python3")


@functools.lru_cache(maxsize=None)
def python_with_torch():
    for python in PYTHONS:
        if os.access(python, os.X_OK):
            found = subprocess.run([python, "-c", "import torch.distributed as d; assert d.is_available()"], stderr=-3)
            if found.returncode == 0:
                return python
    print(f"skipped: none of {', '.join(PYTHONS)} has torch with its distributed part (Debian: apt install python3-torch)",
          file=sys.stderr)
    sys.exit(lab.SKIP)


class Run:
    """One rank a host, over gloo or the switch."""

    ports = iter(range(29500, 29600))

    def __init__(self, switch, exchange, *flags):
        self.switch = switch
        self.exchange = exchange
        port = str(next(self.ports))
        self.ranks = [switch.net.start(
            [python_with_torch(), SCRIPT, "--exchange", exchange, "--steps", STEPS, "--rate", RATE, "--output", self.path("steps", rank),
             "--weights", self.path("weights", rank), *flags],
            host=rank, stdout=-1, stderr=-1, text=True,
            env=environment(RANK=str(rank), WORLD_SIZE=str(RANKS), MASTER_ADDR=switch.net.hosts[0].address, MASTER_PORT=port,
                            GLOO_SOCKET_IFNAME="eth0")) for rank in range(RANKS)]

    def path(self, kind, rank):
        return self.switch.net.path(f"{kind}-{self.exchange}-{rank}")

    def rows(self, rank):
        """What a rank has written so far: its steps, and at the end its figures."""
        try:
            with open(self.path("steps", rank)) as file:
                return [json.loads(line) for line in file.read().split("\n")[:-1]]
        except OSError:
            return []

    def wait_for_step(self, rank, step):
        def there():
            check(self.ranks[rank].poll() is None, f"rank {rank} ended before step {step}")
            return len(self.rows(rank)) > step

        harness.eventually(f"rank {rank} makes step {step}", there, 60)

    def finish(self):
        """Exit code and error text of every rank."""
        ends = []
        for process in self.ranks:
            _, err = process.communicate(timeout=120 * harness.SLOW)
            ends.append((process.returncode, err.strip()))
        return ends

    def results(self):
        """Steps and figures of every rank, which ended well with the same bits after each step."""
        for rank, (code, err) in enumerate(self.finish()):
            equal(code, 0, f"exit code of rank {rank} over {self.exchange} ({err})")
        results = [self.rows(rank) for rank in range(RANKS)]
        for rank, rows in enumerate(results):
            equal([row["step"] for row in rows[:-1]], list(range(STEPS)), f"steps of rank {rank}")
            equal([row["sha256"] for row in rows[:-1]], [row["sha256"] for row in results[0][:-1]],
                  f"weights of rank {rank} after each step over {self.exchange}")
        return results

    def weights(self, rank=0):
        return harness.floats(self.path("weights", rank))


def tolerance(figures):
    """How far two runs' weights may be apart that differ in the order in which floats are added.

    A mean of n gradients has n - 1 additions and a division (gloo: n divisions, n - 1 additions): each rounds by at most u = 2^-24
    of the sum of magnitudes, n times the largest gradient g, so two orders differ by at most 2 (n + 1) u g in a mean, and a step by
    the rate times that; storing the stepped weight w rounds by u |w| in each run. Differences then pass through the network's
    own derivatives: 8 is the factor allowed for that over the few steps here."""
    u = 2.0**-24
    gradient = max(row["largest_gradient"] for row in figures)
    weight = max(row["weights_largest"] for row in figures)
    return 8 * STEPS * (RATE * 2 * (RANKS + 1) * u * gradient + 2 * u * weight)


class Expected:
    """The same training over gloo, once for all tests: no sum of it goes through the switch."""

    found = None

    def __init__(self, switch):
        run = Run(switch, "gloo")
        self.figures = [rows[-1] for rows in run.results()]
        self.weights = run.weights()
        equal(switch.counters()["aggregate_completed"], 0, "sums completed for a run over gloo")

    @classmethod
    def get(cls, switch):
        cls.found = cls.found or cls(switch)
        return cls.found


def compare_with_gloo(switch, *flags):
    expected, summed = Expected.get(switch), switch.counters()["aggregate_completed"]
    run = Run(switch, "iswitch", *flags)
    found = run.results()
    figures = found[0][-1]
    check(figures["buckets"] >= 3, f"only {figures['buckets']} buckets: nothing was in flight together")
    # Each gradient crossed the switch: the segments of one vector a step, at least.
    summed, least = switch.counters()["aggregate_completed"] - summed, STEPS * figures["size"] * 4 // 1440
    check(summed >= least, f"{summed} sums were made in the switch, fewer than {least}")
    ours, theirs = run.weights(), expected.weights
    equal(len(ours), len(theirs), "number of weights")
    apart = max(abs(a - b) for a, b in zip(ours, theirs))
    most = tolerance([rows[-1] for rows in found] + expected.figures)
    start_loss, end_loss = found[0][0]["loss"], found[0][-2]["loss"]
    print(f"      {figures['size']} weights, {figures['buckets']} buckets: at most {apart:.2e} apart from gloo's, "
          f"allowed {most:.2e}; loss {start_loss:.3f} -> {end_loss:.3f}", flush=True)
    check(apart <= most, f"weights differ from gloo's by {apart:.3e}, allowed are {most:.3e}")
    # Training must move the weights by much more than the tolerance, or the comparison shows nothing.
    check(end_loss < 0.9 * start_loss, f"nothing was learnt: loss {start_loss} -> {end_loss}")


def three_replicas_are_equal_and_as_over_gloo():
    with harness.Switch(hosts=RANKS) as switch:
        compare_with_gloo(switch)
        compare_with_gloo(switch, "--static-graph")


def losses_change_nothing():
    seed = 7
    with harness.Switch(hosts=RANKS, faults={"loss": 0.005, "reorder": 0.01, "duplicate": 0.01, "seed": seed}) as switch:
        compare_with_gloo(switch)
        lost = sum(report[direction]["lost"] for report in switch.cut_cables() for direction in ("forward", "backward"))
        print(f"      seed {seed}: {lost} frames lost", flush=True)
        check(lost > 0, "nothing was lost")


def a_killed_rank_ends_the_others_training():
    with harness.Switch(hosts=RANKS) as switch:
        run = Run(switch, "iswitch", "--timeout", 3, "--steps", 100_000)
        run.wait_for_step(0, 3)
        run.ranks[2].send_signal(signal.SIGKILL)
        killed = time.monotonic()
        ends = run.finish()
        took = time.monotonic() - killed
        for rank in (0, 1):
            code, err = ends[rank]
            equal(code, 4, f"exit code of rank {rank} ({err})")
            # One may hear of the other's giving up (a reset) before its own deadline.
            check(err.splitlines()[-1].startswith(("TimedOut [2]", "JobReset")), f"error of rank {rank}: {err}")
        check(any("TimedOut [2]" in err for _, err in ends), f"no rank named the missing one: {ends}")
        check(took < 3 + 5 * harness.SLOW, f"the others needed {took:.1f} s to fail with a deadline of 3 s")


def a_reset_reaches_the_training_loop_which_goes_on():
    with harness.Switch(hosts=RANKS) as switch:
        run = Run(switch, "iswitch", "--recover", "--pause", 0.1)
        run.wait_for_step(0, 3)
        switch.ask("reset", job=1)
        results = run.finish()
        for rank, (code, err) in enumerate(results):
            equal(code, 0, f"exit code of rank {rank} ({err})")
        rows = [run.rows(rank) for rank in range(RANKS)]
        check(sum(row[-1]["recoveries"] for row in rows) > 0, "no training loop heard of the reset")
        for rank in range(RANKS):
            equal(rows[rank][-2]["step"], STEPS - 1, f"last step of rank {rank}")
            equal(rows[rank][-2]["sha256"], rows[0][-2]["sha256"], f"weights of rank {rank} at the end")


def a_killed_switch_ends_the_training():
    with harness.Switch(hosts=RANKS) as switch:
        run = Run(switch, "iswitch", "--timeout", 3, "--steps", 100_000)
        run.wait_for_step(0, 3)
        switch.kill()
        killed = time.monotonic()
        ends = run.finish()
        took = time.monotonic() - killed
        check(took < 3 + 5 * harness.SLOW, f"the ranks needed {took:.1f} s to fail with a deadline of 3 s")
        for rank, (code, err) in enumerate(ends):
            equal(code, 4, f"exit code of rank {rank} ({err})")
            check(err.splitlines()[-1].startswith("SwitchGone"), f"error of rank {rank}: {err}")


if __name__ == "__main__":
    python_with_torch()
    harness.main(three_replicas_are_equal_and_as_over_gloo, losses_change_nothing, a_killed_rank_ends_the_others_training,
                 a_reset_reaches_the_training_loop_which_goes_on, a_killed_switch_ends_the_training)
