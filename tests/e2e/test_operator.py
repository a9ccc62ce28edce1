#!/usr/bin/env python3
"""What an operator does with switchctl, as tables and as JSON."""

import json
import os
import random
import signal
import struct
import time

import harness
from harness import check, equal


def ctl(switch, *words, host=None, check_code=True):
    return switch.net.run([harness.binary("switchctl"), "--socket", switch.socket, *words], check=check_code)


def ctl_json(switch, *words):
    return json.loads(ctl(switch, "--json", *words).stdout)


def tables_and_json():
    with harness.Switch(hosts=2) as switch:
        for command in ("status", "ports", "jobs", "members", "slots", "counters"):
            text = ctl(switch, command).stdout
            check(text.strip() and "null" not in text, f"switchctl {command} printed {text!r}")
            equal(ctl_json(switch, command)["ok"], True, f"switchctl --json {command}")
        check("no members have joined" in ctl(switch, "members").stdout, "an empty list says so")
        refused = ctl(switch, "halt", 9, check_code=False)
        equal((refused.returncode, len(refused.stderr.splitlines())), (1, 1), f"halting an unknown job ({refused.stderr})")
        check("9" in refused.stderr, f"the error does not name the job: {refused.stderr}")
        equal(ctl(switch, "nonsense", check_code=False).returncode, 2, "an unknown command's exit code")


def a_missing_member_is_seen_and_the_sum_forced():
    with harness.Switch(hosts=3) as switch:
        vectors = [harness.integer_vector(random.Random(rank), 100) for rank in range(3)]
        run = switch.all_reduce(vectors, extra=["--repeat", 1_000_000], timeout=60)
        harness.eventually("the job runs", lambda: switch.job_state()["state"] == "running")
        os.kill(run.ranks[2][0].pid, 19)  # SIGSTOP: it holds its place and says nothing
        slots = harness.eventually("a sum waits", lambda: [row for row in ctl_json(switch, "slots")["slots"] if row["age_ms"] > 100])
        equal(slots[0]["missing"], [2], "members missing from the open sum")
        check("2" in ctl(switch, "slots", "--job", 1).stdout, "the table names the missing member")
        ctl(switch, "force", 1, slots[0]["segment"], slots[0]["round"])
        equal(switch.counters()["aggregate_forced"], 1, "forced sums")
        again = ctl(switch, "force", 1, 5, 77, check_code=False)
        equal(again.returncode, 1, "forcing a sum that is not open")
        for process, _ in run.ranks:
            process.kill()
        run.finish()


def threshold_halt_reset_remove():
    with harness.Switch(hosts=3, jobs=[harness.job(members=3, history=8)]) as switch:
        vectors = [harness.integer_vector(random.Random(rank), 100) for rank in range(3)]
        run = switch.all_reduce(vectors, extra=["--repeat", 1_000_000], timeout=60)
        harness.eventually("the job runs", lambda: switch.job_state()["state"] == "running")
        ctl(switch, "halt", 1)
        equal(switch.job_state()["state"], "halted", "state after halt")
        time.sleep(0.2)
        before = switch.counters()["aggregate_added"]
        time.sleep(0.3)
        equal(switch.counters()["aggregate_added"], before, "contributions summed while halted")
        # Now, since a sum of two would end a rank.
        ctl(switch, "set-threshold", 1, 2)
        equal(switch.job_state()["threshold"], 2, "threshold")
        ctl(switch, "set-threshold", 1, 0)
        equal(switch.job_state()["threshold"], 3, "threshold that follows the members")
        ctl(switch, "resume", 1)
        harness.eventually("sums go on after resume", lambda: switch.counters()["aggregate_added"] > before)
        old = switch.job_state()["base_round"]
        ctl(switch, "reset", 1)
        check((switch.job_state()["base_round"] - old) % 2**32 in range(2, 2**31), "a reset did not move base_round on")
        ends = run.finish()
        for rank, (code, err) in enumerate(ends):
            check(code != 0 and "reset" in err, f"rank {rank} does not report the reset: {code} {err}")
        ctl(switch, "remove-job", 1)
        equal(switch.job_state(), None, "the removed job")


def a_job_is_added_while_another_runs():
    with harness.Switch(hosts=4, jobs=[harness.job(1, 2)]) as switch:
        vectors = [harness.integer_vector(random.Random(rank), 10_000) for rank in range(2)]
        total = [sum(column) for column in zip(*vectors)]
        steady = switch.all_reduce(vectors, extra=["--repeat", 300], timeout=60)
        with open(switch.net.path("job.json"), "w") as file:
            json.dump(harness.job(7, 2), file)
        ctl(switch, "add-job", switch.net.path("job.json"))
        equal(ctl(switch, "add-job", switch.net.path("job.json"), check_code=False).returncode, 1, "adding it twice")
        added = switch.all_reduce(vectors, host_of=lambda rank: rank + 2, number=7)
        for run in (added, steady):
            for rank, result in enumerate(run.sums()):
                equal(list(result), total, f"sum at rank {rank}")


def capture_holds_both_directions():
    with harness.Switch(hosts=2) as switch:
        path = switch.net.path("run.pcap")
        recorder = switch.net.start([harness.binary("switchctl"), "--socket", switch.socket, "capture", "--pcap", path])
        harness.eventually("the capture file has begun", lambda: os.path.exists(path) and os.path.getsize(path) >= 24)
        vectors = [harness.integer_vector(random.Random(rank), 1_000) for rank in range(2)]
        switch.all_reduce(vectors).sums()
        time.sleep(0.5)
        equal(switch.net.stop(recorder), 0, "exit code of switchctl capture")
        with open(path, "rb") as file:
            data = file.read()
        magic, = struct.unpack_from("<I", data)
        check(magic in (0xA1B2C3D4, 0xA1B23C4D), f"{magic:#x} is not a pcap file's magic number")
        at, kinds, stamps = 24, [0, 0, 0, 0], []
        while at < len(data):
            seconds, fraction, kept, _ = struct.unpack_from("<IIII", data, at)
            frame = data[at + 16:at + 16 + kept]
            equal(len(frame), kept, "bytes of a record")
            stamps.append((seconds, fraction))
            if frame[12:14] == b"\x08\x00" and len(frame) >= 64 and frame[15] & 0xFC in (0xAC, 0xBC):
                kinds[frame[42] & 15] += 1
            at += 16 + kept
        counters = switch.counters()
        equal(kinds[0], counters["aggregate_added"] + counters["aggregate_drop_duplicate"] + counters["aggregate_replayed"],
              "contributions in the capture")
        equal(kinds[1], counters["deliver_copies"], "results in the capture")
        check(kinds[2] > 0 and kinds[3] > 0, f"no control traffic in the capture: {kinds}")
        check(abs(stamps[0][0] - time.time()) < 60, "time stamps are not wall-clock time")


def drained_and_started_again():
    with harness.Switch(hosts=2) as switch:
        vectors = [harness.integer_vector(random.Random(rank), 20_000) for rank in range(2)]
        run = switch.all_reduce(vectors, extra=["--repeat", 3_000, "--json"], timeout=60)
        harness.eventually("it sums", lambda: switch.counters()["aggregate_completed"] > 100)
        os.kill(run.ranks[1][0].pid, signal.SIGSTOP)
        harness.eventually("a sum waits", lambda: ctl_json(switch, "slots")["slots"])
        refused = ctl(switch, "drain", "--timeout", 0.3, check_code=False)
        equal((refused.returncode, len(refused.stderr.splitlines())), (1, 1), f"draining with sums open ({refused.stderr})")
        check("sums are open" in refused.stderr, refused.stderr)
        equal(switch.job_state()["state"], "running", "state after a drain that was given up")
        os.kill(run.ranks[1][0].pid, signal.SIGCONT)
        done = ctl(switch, "drain", "--timeout", 0.3, "--anyway")
        equal(len(done.stdout.splitlines()), 3, f"a line a stage ({done.stdout})")
        equal(switch.process.wait(15 * harness.SLOW), 0, "exit code of switchd after a drain")
        switch.start()
        harness.eventually("it sums again", lambda: switch.counters()["aggregate_completed"] > 100)
        stream = switch.job_state()["stream"]
        equal(stream["goes_on"], True, f"the stream ({stream})")
        check("went on after a restart" in ctl(switch, "jobs").stdout, ctl(switch, "jobs").stdout)
        total = [sum(column) for column in zip(*vectors)]
        for rank, (process, path) in enumerate(run.ranks):
            out, err = process.communicate(timeout=100 * harness.SLOW)
            equal(process.returncode, 0, f"exit code of rank {rank} ({err.strip()})")
            equal(list(harness.floats(path)), total, f"sum at rank {rank}")
            equal(json.loads(out)["resumes"], 1, f"restarts that rank {rank} noticed")
        # With nobody there nothing is open.
        equal(ctl(switch, "drain").returncode, 0, "draining an idle switch")
        equal(switch.process.wait(15 * harness.SLOW), 0, "exit code of switchd after a drain")
        switch.start()


if __name__ == "__main__":
    harness.main(tables_and_json, a_missing_member_is_seen_and_the_sum_forced, threshold_halt_reset_remove,
                 a_job_is_added_while_another_runs, capture_holds_both_directions, drained_and_started_again)
