#!/usr/bin/env python3
"""The trainer over a real switchd: equal weights, workers and switches that vanish, and the demo's own cleanliness."""

import glob
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

import harness
from harness import check, equal
from training import Training


def running(hosts, **job):
    return harness.Switch(hosts=hosts, jobs=[harness.job(members=hosts, **job)])


def training_over(switch, *flags):
    return Training(switch.net, [harness.SWITCH_IP] * switch.hosts, *flags)


def four_workers_end_with_equal_weights():
    with running(4) as switch:
        figures = training_over(switch, "--iterations", 10).figures()
        for one in figures:
            equal(one["updates"], 80, f"updates of worker {one['rank']}")
            equal(one["gradient_bytes"], 40976, "bytes of a gradient")
            equal(one["generations"], 1, "generations")
            equal(one["exchange_details"]["partial_sums"], 0, "partial sums")
        # What workers sent for the first time was added, each part once.
        first_sent = sum(one["exchange_details"]["contributions_sent"] - one["exchange_details"]["retransmissions"]
                         for one in figures)
        added = switch.counters()["aggregate_added"]
        check(added >= first_sent, f"{added} contributions were added, {first_sent} were sent")


def a_restarted_worker_takes_its_place_and_the_run_goes_on():
    with running(3) as switch:
        training = training_over(switch)
        training.wait_for_updates(0, 40)
        training.workers[1].kill()
        training.workers[1].communicate()
        before = training.updates(0)
        training.start(1)
        for rank in range(3):
            training.wait_for_updates(rank, before + 40)
        training.stop(2)
        figures = training.figures()
        for one in figures:
            check(one["updates"] >= before + 40, f"worker {one['rank']} made {one['updates']} updates, {before} before the kill")
            check(one["rank"] == 1 or one["generations"] > 1, f"worker {one['rank']} noticed no reset")


def a_killed_worker_is_named():
    with running(3) as switch:
        training = training_over(switch, "--timeout", 3)
        training.wait_for_updates(0, 8)
        training.workers[1].kill()
        killed = time.monotonic()
        ends = training.finish()
        took = time.monotonic() - killed
        for rank in (0, 2):
            code, err = ends[rank]
            equal(code, 3, f"exit code of worker {rank} ({err})")
            equal(len(err.splitlines()), 1, f"lines of worker {rank}'s error ({err!r})")
            check("member 1" in err, f"worker {rank}'s error does not name member 1: {err}")
        check(took < 3 + 4 * harness.SLOW, f"the others needed {took:.1f} s with a deadline of 3 s")


def a_killed_switch_is_told_from_a_killed_worker():
    with running(2) as switch:
        training = training_over(switch, "--timeout", 3)
        training.wait_for_updates(0, 8)
        switch.kill()
        for rank, (code, err) in enumerate(training.finish()):
            equal(code, 4, f"exit code of worker {rank} ({err})")
            equal(len(err.splitlines()), 1, f"lines of worker {rank}'s error ({err!r})")


def the_demo(folder, *arguments):
    """Starts it as lab.enter() would: here are the namespaces already. What it writes is in `folder`."""
    return subprocess.Popen([sys.executable, os.path.join(harness.ROOT, "tools", "demo"), "--build", harness.BUILD,
                             "--json", os.path.join(folder, "demo.json"), *arguments],
                            env={**os.environ, "ISWITCH_LAB": "1", "TMPDIR": folder}, stdout=-1, stderr=-1, text=True,
                            start_new_session=True)


def what_is_left(folder):
    links = subprocess.run(["ip", "-brief", "link"], capture_output=True, text=True).stdout.split("\n")
    return sorted(line.split()[0] for line in links if line), sorted(set(os.listdir(folder)) - {"demo.json"})


def check_session_is_empty(session):
    def empty():
        for entry in glob.glob("/proc/[0-9]*/stat"):
            try:
                with open(entry) as file:
                    fields = file.read().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(fields[3]) == session and fields[0] != "Z":
                return False
        return True

    harness.eventually("no process of the demo is left", empty)


def the_demo_ends_well_and_leaves_nothing():
    with tempfile.TemporaryDirectory() as folder:
        before = what_is_left(folder)
        for attempt in (1, 2):
            demo = the_demo(folder, "--seconds", "4", "--workers", "3")
            out, err = demo.communicate(timeout=90 * harness.SLOW)
            equal(demo.returncode, 0, f"exit code of the demo, run {attempt} ({err})")
            check("bit-identical weights: yes" in out, f"the demo does not say that weights are equal: {out}")
            with open(os.path.join(folder, "demo.json")) as file:
                figures = json.load(file)
            equal(len(figures["runs"]), 3, "runs in the demo's figures")
            check(figures["bit_identical_weights"], "the figures say that weights differ")
            check(figures["runs"][0]["updates"] > 0, "no update was made")
            check_session_is_empty(demo.pid)
            equal(what_is_left(folder), before, "interfaces and folders after the demo")


def the_demo_trains_over_a_tree_and_asynchronously():
    for flags in (["--tree"], ["--async"]):
        with tempfile.TemporaryDirectory() as folder:
            before = what_is_left(folder)
            demo = the_demo(folder, "--seconds", "5", "--workers", "4", *flags)
            out, err = demo.communicate(timeout=120 * harness.SLOW)
            equal(demo.returncode, 0, f"exit code of the demo {flags} ({err})")
            check("bit-identical weights: yes" in out, f"the demo {flags} does not say that weights are equal: {out}")
            with open(os.path.join(folder, "demo.json")) as file:
                figures = json.load(file)
            equal(len(figures["runs"]), 4, f"runs in the figures of the demo {flags}")
            for run in figures["runs"]:
                check(run["updates"] > 0, f"worker {run['rank']} of the demo {flags} made no update")
            check_session_is_empty(demo.pid)
            equal(what_is_left(folder), before, f"interfaces and folders after the demo {flags}")


def an_interrupted_demo_leaves_nothing():
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)):
        with tempfile.TemporaryDirectory() as folder:
            before = what_is_left(folder)
            demo = the_demo(folder, "--seconds", "60", "--workers", "2")
            for line in demo.stdout:
                if "grad/s" in line:
                    break
            demo.send_signal(number)
            _, err = demo.communicate(timeout=30 * harness.SLOW)
            equal(demo.returncode, code, f"exit code of the demo after {number.name} ({err})")
            check_session_is_empty(demo.pid)
            equal(what_is_left(folder), before, f"interfaces and folders after {number.name}")


if __name__ == "__main__":
    harness.main(four_workers_end_with_equal_weights, a_restarted_worker_takes_its_place_and_the_run_goes_on,
                 a_killed_worker_is_named, a_killed_switch_is_told_from_a_killed_worker, the_demo_ends_well_and_leaves_nothing,
                 the_demo_trains_over_a_tree_and_asynchronously, an_interrupted_demo_leaves_nothing)
