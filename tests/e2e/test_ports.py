#!/usr/bin/env python3
"""Interfaces that go down, vanish and come back while switchd runs."""

import random

import harness
from harness import equal


def link(switch, name):
    return next(row["link"] for row in switch.ask("ports")["ports"] if row["name"] == name)


def reduce_once(switch, what):
    vectors = [harness.integer_vector(random.Random(rank), 2_000) for rank in range(2)]
    total = [sum(column) for column in zip(*vectors)]
    for rank, result in enumerate(switch.all_reduce(vectors, timeout=20).sums()):
        equal(list(result), total, f"sum at rank {rank} {what}")


def an_interface_goes_down_and_up():
    with harness.Switch(hosts=3, jobs=[harness.job(members=2, member_timeout_ms=300)]) as switch:
        switch.expect_warning(r"port p2\b")
        switch.net.run(["ip", "link", "set", "sw2", "down"])
        harness.eventually("p2 shows as down", lambda: link(switch, "p2") == "down")
        reduce_once(switch, "while another port is down")
        switch.net.run(["ip", "link", "set", "sw2", "up"])
        harness.eventually("p2 shows as up", lambda: link(switch, "p2") == "up")
        switch.net.run(["ping", "-n", "-q", "-c", 3, "-i", "0.1", "-W", 5, harness.SWITCH_IP], host=2)


def an_interface_is_deleted_and_made_again():
    with harness.Switch(hosts=3, jobs=[harness.job(members=2, member_timeout_ms=300)]) as switch:
        switch.expect_warning(r"port p2\b")
        switch.net.unplug(2)
        harness.eventually("p2 shows as missing or down", lambda: link(switch, "p2") in ("missing", "down"))
        reduce_once(switch, "while an interface is missing")
        switch.net.plug(2)
        harness.eventually("p2 shows as up", lambda: link(switch, "p2") == "up")
        switch.net.run(["ping", "-n", "-q", "-c", 3, "-i", "0.1", "-W", 5, harness.SWITCH_IP], host=2)


if __name__ == "__main__":
    harness.main(an_interface_goes_down_and_up, an_interface_is_deleted_and_made_again)
