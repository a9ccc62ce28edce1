#!/usr/bin/env python3
"""Interfaces that go down, vanish and come back while switchd runs."""

import random
import time

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


SENDER = """
import socket, sys
address, frames = sys.argv[1], int(sys.argv[2])
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
    for number in range(frames):
        out.sendto(number.to_bytes(4, "big") * 300, (address, 9000))
"""


def what_a_slow_link_cannot_take_is_dropped_and_counted():
    frames = 3000
    ports = [{"name": f"p{i}", "device": f"net_af_packet{i},iface=sw{i}" + (",qdisc_bypass=0" if i == 1 else "")} for i in range(3)]
    with harness.Switch(hosts=3, jobs=[harness.job(members=2)], ports=ports) as switch:
        # 1200 bytes of payload at 2 Mb/s: some 200 frames a second. The shaper keeps what it cannot
        # send yet, and with it places of the port's transmit ring.
        switch.net.run(["tc", "qdisc", "add", "dev", "sw1", "root", "tbf", "rate", "2mbit", "burst", "3000", "limit", "8000000"])
        ping = ["ping", "-n", "-q", "-c", 1, "-W", 5, switch.net.hosts[1].address]
        switch.net.run(ping, host=0)  # so that both know where the other is

        def now():
            rows = {row["name"]: row for row in switch.ask("ports")["ports"]}
            # What comes from host 0 is for host 1, or for everybody.
            return {"from": rows["p0"]["rx_frames"], "sent": rows["p1"]["tx_frames"], "dropped": rows["p1"]["tx_dropped"]}

        before = now()
        switch.net.run(["/usr/bin/python3", "-c", SENDER, switch.net.hosts[1].address, frames], host=0)

        def settled():
            first = now()
            time.sleep(0.3)
            return first == now() and {name: value - before[name] for name, value in first.items()}

        seen = harness.eventually("host 0's frames are through", settled, 30)
        harness.check(seen["from"] > 600, f"af_packet's own ring took few of {frames} frames: {seen}")
        harness.check(seen["dropped"] > 0, f"nothing was dropped at a link a hundred times too slow: {seen}")
        equal(seen["sent"] + seen["dropped"], seen["from"], "frames sent or dropped at p1")
        equal(switch.counters()["tx_drop_full"], seen["dropped"], "tx_drop_full")
        # The others do not notice.
        vectors = [harness.integer_vector(random.Random(rank), 2_000) for rank in range(2)]
        total = [sum(column) for column in zip(*vectors)]
        for rank, result in enumerate(switch.all_reduce(vectors, host_of=lambda rank: 2 * rank, timeout=20).sums()):
            equal(list(result), total, f"sum at rank {rank} beside a full port")


def ports_over_af_xdp():
    """Where the kernel lets this process load an XDP program: containers often may not."""
    with harness.Switch(hosts=2, start=False) as switch:
        for i, port in enumerate(switch.config["ports"]):
            port["device"] = f"net_af_xdp{i},iface=sw{i}"
        switch.start(wait=False)
        harness.eventually("switchd answers, or ends", lambda: switch.process.poll() is not None or switch.ready(), 30)
        if switch.process.poll() is not None:
            switch.process = None
            harness.check("net_af_xdp0" in switch.log(), "switchd ended for another reason than AF_XDP")
            print("      left out: no XDP program may be loaded here", flush=True)
            return
        reduce_once(switch, "over AF_XDP")
        switch.net.run(["ping", "-c", "2", "-i", "0.1", "-W", 2 * harness.SLOW, switch.net.hosts[1].address], host=0)


if __name__ == "__main__":
    tests = [an_interface_goes_down_and_up, an_interface_is_deleted_and_made_again,
             what_a_slow_link_cannot_take_is_dropped_and_counted]
    # libxdp and DPDK's driver do not free all that they allocate, which a leak check tells of.
    if harness.SLOW == 1:
        tests.append(ports_over_af_xdp)
    harness.main(*tests)
