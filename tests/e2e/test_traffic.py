#!/usr/bin/env python3
"""Ordinary traffic through switchd: ARP, ping to the switch and between hosts, a TCP bulk transfer while a job runs."""

import random
import re

import harness
from harness import check, equal

SENDER = """
import socket, sys
s = socket.create_connection(("10.77.0.2", 5001), 20)
block = bytes(range(256)) * 256
for _ in range(int(sys.argv[1])): s.sendall(block)
s.close()
"""
RECEIVER = """
import hashlib, socket
s = socket.create_server(("10.77.0.2", 5001)); s.settimeout(20)
print("listening", flush=True)
c, _ = s.accept(); c.settimeout(20)
h, n = hashlib.sha256(), 0
while True:
    b = c.recv(1 << 20)
    if not b: break
    h.update(b); n += len(b)
print(n, h.hexdigest(), flush=True)
"""


def ping(switch, host, address, count=5, size=56, least=None):
    done = switch.net.run(["ping", "-n", "-q", "-c", count, "-i", "0.05", "-W", 2 * harness.SLOW, "-s", size, address], host=host,
                          check=False)
    received = re.search(r"(\d+) received", done.stdout)
    check(received, f"ping printed no summary: {done.stdout}{done.stderr}")
    answered = int(received.group(1))
    check((least or count) <= answered <= count, f"{answered} of {count} echo replies from {address} to host {host}, {size} bytes")


def ping_switch_and_hosts():
    with harness.Switch(hosts=3) as switch:
        for size in (0, 1, 56, 1472):
            ping(switch, 0, harness.SWITCH_IP, size=size)
            ping(switch, 1, "10.77.0.3", size=size)
        counters = switch.counters()
        check(counters["local_arp_answered"] >= 1, "no ARP request answered")
        equal(counters["local_echo_answered"], 20, "local_echo_answered")
        check(counters["l2_forwarded"] >= 40, f"echo between hosts not forwarded: {counters['l2_forwarded']}")


def bulk_transfer_while_a_job_runs():
    import hashlib
    blocks = 400  # 25 MiB
    with harness.Switch(hosts=3) as switch:
        receiver = switch.net.start(["/usr/bin/python3", "-c", RECEIVER], host=1, stdout=-1, text=True)
        equal(receiver.stdout.readline().strip(), "listening", "the receiver's first line")
        vectors = [harness.integer_vector(random.Random(rank), 20_000) for rank in range(3)]
        run = switch.all_reduce(vectors, extra=["--repeat", 200])
        sender = switch.net.start(["/usr/bin/python3", "-c", SENDER, blocks], host=0)
        # A build with sanitizers is slower than the senders: full queues drop ordinary frames too.
        least = None if harness.SLOW == 1 else 15
        ping(switch, 2, harness.SWITCH_IP, count=20, least=least)
        ping(switch, 2, "10.77.0.1", count=20, least=least)
        equal(sender.wait(60), 0, "the TCP sender's exit code")
        expected = hashlib.sha256(bytes(range(256)) * 256 * blocks).hexdigest()
        equal(receiver.stdout.readline().split(), [str(blocks * 65536), expected], "bytes and hash received")
        total = [sum(column) for column in zip(*vectors)]
        for rank, result in enumerate(run.sums()):
            equal(list(result), total, f"sum at rank {rank}")


if __name__ == "__main__":
    harness.main(ping_switch_and_hosts, bulk_transfer_while_a_job_runs)
