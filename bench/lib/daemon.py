"""A switchd of a benchmark's, on the ports of a lab."""

import json
import os
import socket
import time

SWITCH_IP = "10.77.0.254"


class DaemonError(Exception):
    """One line."""


def start(net, program, ports, jobs, **more):
    """Starts switchd with such "ports", "jobs" and further keys of a config; gives its process once it answers. net.stop() ends it."""
    admin = net.path("switchd.sock")
    config = {"switch": {"name": "bench", "ip": SWITCH_IP, "mac": "02:00:00:00:00:fe"}, "ports": ports, "jobs": jobs,
              "admin": {"socket": admin}, "log": {"level": "error"}, **more}
    with open(net.path("switchd.json"), "w") as file:
        json.dump(config, file)
    process = net.start([program, "--config", net.path("switchd.json")])
    end = time.monotonic() + 20
    while not answers(admin):
        if process.poll() is not None or time.monotonic() > end:
            raise DaemonError("switchd did not start")
        time.sleep(0.05)
    return process


def answers(admin):
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(5)
            client.connect(admin)
            client.sendall(b'{"command": "status"}\n')
            return client.recv(1) == b"{"
    except OSError:
        return False


def processor_time(pid):
    """Seconds that the threads which a process has now have used; finer than the clock ticks of /proc/PID/stat."""
    total = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/schedstat") as file:
            total += int(file.read().split()[0])
    return total / 1e9
