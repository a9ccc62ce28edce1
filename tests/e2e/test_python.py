#!/usr/bin/env python3
"""The Python module over a real switchd: members are threads of a process in a host (tests/python/members.py)."""

import os
import subprocess
import sys

import harness
from harness import check, equal

MEMBERS = os.path.join(harness.ROOT, "tests", "python", "members.py")


def environment(**more):
    return {**os.environ, "PYTHONPATH": os.path.join(harness.ROOT, "agent", "python"), "OMP_NUM_THREADS": "1",
            "ISWITCH_LIBRARY": os.path.join(harness.BUILD, "agent", "libiswitch-agent.so"), "ISWITCH_SWITCH": harness.SWITCH_IP, **more}


def python_with_most():
    """An interpreter that has torch and numpy where one has them: Debian's packages are Debian's Python's."""
    for python in (sys.executable, "/usr/bin/python3"):
        if os.access(python, os.X_OK) and subprocess.run([python, "-c", "import torch, numpy"], stderr=-3).returncode == 0:
            return python
    return sys.executable


def start(switch, scenario, python=sys.executable, host=0, **more):
    return switch.net.start([python, MEMBERS, scenario], host=host, env=environment(**more), stdin=-1, stdout=-1, stderr=-1, text=True)


def finish(process, what):
    out, err = process.communicate(timeout=90 * harness.SLOW)
    check(process.returncode == 0, f"{what} failed: {err.strip()}")
    equal(out, "", f"what {what} wrote to stdout")


def run(scenario, jobs=None, python=sys.executable, answers=(), **config):
    """The scenario in a host; `answers`: (line that it writes, what is done to the switch then)."""
    with harness.Switch(hosts=1, jobs=jobs or [harness.job(1, 2)], **config) as switch:
        process = start(switch, scenario, python)
        for line, act in answers:
            found = process.stdout.readline().strip()
            if found != line:
                finish(process, scenario)
            equal(found, line, f"what {scenario} asks for")
            act(switch)
            process.stdin.write("done\n")
            process.stdin.flush()
        finish(process, scenario)


def without_torch_and_numpy():
    """`-S`: without the packages that the machine may have."""
    with harness.Switch(hosts=1, jobs=[harness.job(1, 2)]) as switch:
        process = switch.net.start([sys.executable, "-S", MEMBERS, "sums_and_means"], host=0, env=environment(), stdin=-1, stdout=-1,
                                   stderr=-1, text=True)
        finish(process, "sums_and_means without torch and numpy")


def sums_and_means_of_all_kinds():
    python = python_with_most()
    run("sums_and_means", python=python)


def several_in_flight():
    run("several_in_flight")


def buffers_live_until_done():
    run("buffers_live_until_done")


def waits_release_the_interpreter():
    run("waits_release_the_interpreter")


def failures_have_classes():
    run("a_missing_member_is_named")
    run("a_mismatch_is_told")
    run("closed_agents_say_so")
    run("joins_are_refused")
    run("a_reset_and_a_halt_are_told", answers=[("reset", lambda switch: switch.ask("reset", job=1)),
                                                ("halt", lambda switch: switch.ask("halt", job=1))])


def a_switch_that_ends_is_told():
    run("a_switch_that_ends_is_told", answers=[("end the switch", lambda switch: switch.end())])


def pushes_and_updates():
    jobs = [harness.job(1, 2, mode="async")]
    run("pushes_and_updates", jobs)
    run("a_reset_is_an_event", jobs)


def ranks_by_environment_with_a_key():
    with harness.Switch(hosts=2, start=False) as switch:
        key, other = switch.net.path("key"), switch.net.path("other-key")
        for path, byte in ((key, b"k"), (other, b"o")):
            with open(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "wb") as file:
                file.write(byte * 32)
        switch.config["jobs"] = [harness.job(2, 2, key_file=key)]
        switch.start()
        ranks = [start(switch, "by_environment", host=rank, RANK=str(rank), WORLD_SIZE="2", ISWITCH_KEY_FILE=key) for rank in range(2)]
        for rank, process in enumerate(ranks):
            finish(process, f"rank {rank}")
        ranks = [start(switch, "wrong_world_size", host=rank, RANK=str(rank), WORLD_SIZE="3", ISWITCH_KEY_FILE=key) for rank in range(2)]
        for rank, process in enumerate(ranks):
            finish(process, f"rank {rank} with a wrong WORLD_SIZE")
        stranger = start(switch, "by_environment", RANK="0", WORLD_SIZE="2", ISWITCH_KEY_FILE=other)
        _, err = stranger.communicate(timeout=60 * harness.SLOW)
        check(stranger.returncode != 0 and "Refused" in err, f"a wrong key was not refused: {err}")


if __name__ == "__main__":
    harness.main(without_torch_and_numpy, sums_and_means_of_all_kinds, several_in_flight, buffers_live_until_done,
                 waits_release_the_interpreter, failures_have_classes, a_switch_that_ends_is_told, pushes_and_updates,
                 ranks_by_environment_with_a_key)
