#!/usr/bin/env python3
"""iswitch-sim as people use it. usage: test_program.py ISWITCH_SIM SCENARIOS"""
import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest

PROGRAM = SCENARIOS = None


def run(*arguments, code=0):
    done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=240)
    if done.returncode != code:
        raise AssertionError(f"{arguments}: exit code {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return done


def report(*arguments):
    return json.loads(run(*arguments, "--json").stdout)


def packets(path):
    """Lengths and times of the packets of a pcapng file."""
    with open(path, "rb") as file:
        data = file.read()
    found, at = [], 0
    while at < len(data):
        kind, length = struct.unpack_from("<II", data, at)
        if kind == 6:
            _, high, low, _, original = struct.unpack_from("<IIIII", data, at + 8)
            found.append((high << 32 | low, original))
        at += length
    return found


class Scenarios(unittest.TestCase):
    """Every example runs, breaks nothing and does its work."""

    def check(self, name, seed="1"):
        result = report(os.path.join(SCENARIOS, name + ".json"), "--seed", seed)
        self.assertEqual(result["violations"], [])
        self.assertTrue(all(job["completed"] > 0 for job in result["jobs"]))
        return result

    def test_star(self):
        result = self.check("star")
        self.assertEqual(result["operations"], 8 * 40)
        self.assertEqual(result["failures"], 0)
        # 40 operations of 695 segments from 8 workers, each answered once to each.
        self.assertGreaterEqual(result["packets"], 2 * 8 * 40 * 695)

    def test_restarts(self):
        result = self.check("restarts")
        self.assertEqual(result["failures"], 0)
        self.assertEqual(result["faults"]["planned"], 12)
        self.assertGreater(result["operations"], 1000)

    def test_two_tiers(self):
        result = self.check("two-tiers")
        self.assertGreater(result["links"]["lost"], 100)
        self.assertGreater(result["links"]["corrupted"], 10)
        self.assertEqual(result["operations"], 4 * 60)

    def test_three_tiers(self):
        result = self.check("three-tiers")
        self.assertEqual(result["faults"], {"planned": 4})
        self.assertGreater(result["failures"], 0)
        self.assertGreater(result["links"]["cut"], 0)
        starts = {node["name"]: node["starts"] for node in result["switches"]}
        self.assertEqual(starts["leaf1"], 2)
        self.assertEqual(sum(starts.values()), len(starts) + 1)

    def test_async(self):
        result = self.check("async")
        for job in result["jobs"]:
            self.assertEqual(job["mode"], "async")
            self.assertGreater(job["updates"], 100)
        self.assertGreater(result["jobs"][0]["stale_dropped"], 0)  # the straggler's
        self.assertGreater(result["jobs"][0]["catch_ups"], 0)      # the one that crashed
        self.assertLessEqual(max(map(int, result["jobs"][0]["staleness"])), 3)

    def test_trouble(self):
        self.check("trouble", "7")

    def test_one_rack(self):
        self.assertEqual(self.check("one-rack")["operations"], 64 * 3)

    def test_all_are_tried(self):
        tried = {name[5:].replace("_", "-") for name in dir(self) if name.startswith("test_")}
        files = {name[:-5] for name in os.listdir(SCENARIOS)}
        self.assertEqual(files - tried, {"rack-of-racks"})  # below


class LargeTree(unittest.TestCase):
    def test_4096_workers_in_three_tiers(self):
        if os.environ.get("ISWITCH_SANITIZED"):
            self.skipTest("takes minutes under sanitizers")
        result = report(os.path.join(SCENARIOS, "rack-of-racks.json"))
        self.assertEqual(result["violations"], [])
        self.assertEqual(result["operations"], 4096 * 3)
        self.assertEqual(result["failures"], 0)
        self.assertEqual(len(result["switches"]), 1 + 8 + 64)


class Program(unittest.TestCase):
    def test_same_seed_same_run(self):
        hashes = run("--seeds", "1:6", "--hashes").stdout
        self.assertEqual(len(hashes.splitlines()), 6)
        self.assertEqual(hashes, run("--seeds", "1:6", "--hashes", "--threads", "1").stdout)
        one = run("--seed", "4", "--hashes").stdout
        self.assertEqual(one, hashes.splitlines(keepends=True)[3])
        self.assertEqual(report("--seed", "4")["hash"], one.split()[1])

    def test_tables(self):
        table = run("--seed", "3").stdout
        self.assertIn("properties: all hold", table)
        many = run("--seeds", "1:8", "--shape", "star", "--modes", "sync").stdout
        self.assertIn("star, sync", many)
        self.assertIn("million packets/s", many)
        self.assertIn("all ", run("--soak", "1", "--seed", "5").stdout)

    def test_capture(self):
        scenario = os.path.join(SCENARIOS, "three-tiers.json")
        with tempfile.TemporaryDirectory() as folder:
            result = report(scenario, "--pcap", folder)
            cables = {cable["name"]: cable for cable in result["cables"]}
            self.assertEqual({name[:-7] for name in os.listdir(folder)}, set(cables))
            for name, cable in cables.items():
                found = packets(os.path.join(folder, name + ".pcapng"))
                self.assertEqual(len(found), cable["up"]["delivered"] + cable["down"]["delivered"])
                self.assertEqual(found, sorted(found, key=lambda packet: packet[0]))
            one = os.path.join(folder, "one")
            self.assertEqual(report(scenario, "--pcap", "w3=" + one)["hash"], result["hash"])
            self.assertEqual(packets(one), packets(os.path.join(folder, "w3.pcapng")))
            self.assertIn("no such link", run(scenario, "--pcap", "w99=" + one, code=2).stderr)

    def test_wrong_calls(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "bad.json")
            with open(path, "w") as file:
                file.write('{"topology": {"tiers": [2]}, "links": {"rate_gbps": -3}, "jobs": [{"id": 1}]}')
            error = run(path, code=2).stderr
            self.assertEqual(error, f"{path}: /links/rate_gbps: -3: must be a number from 0.0 to 1000000.0\n")
            self.assertEqual(len(run(os.path.join(folder, "none.json"), code=2).stderr.splitlines()), 1)
        self.assertEqual(len(run("--seeds", "9:3", code=2).stderr.splitlines()), 1)
        run("--seeds", "1:3", "--soak", "1", code=2)
        run("--nonsense", code=2)


if __name__ == "__main__":
    PROGRAM, SCENARIOS = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
