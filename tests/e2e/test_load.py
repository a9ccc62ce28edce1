#!/usr/bin/env python3
"""iswitch-load against switchd over kernel UDP and memif, over lossy cables, and against a path that falsifies sums."""

import json
import os
import sys

import harness
import lab
from harness import check, equal

# Between the workers and the switch: from the 200th result on, it adds 1 to the first element of each.
FORGER = """
import select, socket, struct, sys
switch = (sys.argv[1], 17170)
front = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
front.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
front.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
front.bind(("127.0.0.1", 17170))
print("ready", flush=True)
backs, results = {}, 0
while True:
    for ready in select.select([front, *backs.values()], [], [])[0]:
        if ready is front:
            data, ancillary, _, client = front.recvmsg(65536, 64)
            if client not in backs:
                backs[client] = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                backs[client].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
                backs[client].connect(switch)
            backs[client].setsockopt(socket.IPPROTO_IP, socket.IP_TOS, ancillary[0][2][0])
            backs[client].send(data)
        else:
            client = next(address for address, back in backs.items() if back is ready)
            data = ready.recv(65536)
            if len(data) > 200:
                results += 1
                if results > int(sys.argv[2]):
                    data = data[:22] + struct.pack("<f", struct.unpack("<f", data[22:26])[0] + 1) + data[26:]
            front.sendto(data, client)
"""


def load(net, *arguments, host=0, code=0, timeout=60):
    """Runs it to the end; gives its figures (with --json) and what it wrote to stderr."""
    done = net.run([harness.binary("iswitch-load"), "--switch", harness.SWITCH_IP, *arguments], host=host, check=False,
                   timeout=timeout * harness.SLOW)
    equal(done.returncode, code, f"exit code of iswitch-load {' '.join(map(str, arguments))}; it wrote {done.stdout}{done.stderr}")
    figures = json.loads(done.stdout) if "--json" in arguments and done.stdout else None
    return figures, done.stderr.strip()


def check_figures(figures, workers, segments):
    check(figures["operations"] > 0, f"no operation was done: {figures}")
    equal(figures["workers"], workers, "workers")
    equal(figures["operation_segments"], segments, "operation_segments")
    equal(figures["elements_wrong"], 0, "elements_wrong")
    equal(figures["elements_checked"], figures["operations"] * workers * figures["operation_bytes"] // 4, "elements_checked")
    sums = figures["operations"] * segments
    equal(figures["contributions_sent"] - figures["retransmissions"], sums * workers, "contributions sent for the first time")
    equal(figures["segment_latency_us"]["count"], sums * workers, "segment latencies")
    for name in ("segment_latency_us", "operation_latency_us"):
        row = figures[name]
        check(0 < row["p50"] <= row["p90"] <= row["p99"] <= row["p999"] <= row["max"], f"{name}: {row}")
    expected = sums * workers / figures["seconds"]
    check(abs(figures["contributions_per_second"] / expected - 1) < 0.01, f"contributions_per_second: {figures}")


def kernel_udp():
    for workers in (2, 4, 17):
        with harness.Switch(hosts=1, jobs=[harness.job(members=workers)]) as switch:
            figures, _ = load(switch.net, "--workers", workers, "--segments", 64, "--seconds", 1, "--json")
            check_figures(figures, workers, 64)
            counters = switch.counters()
            equal(counters["aggregate_added"], figures["operations"] * 64 * workers, "aggregate_added")
            # They have left in order: others can take their places.
            figures, _ = load(switch.net, "--workers", workers, "--size", 4, "--seconds", 0.3, "--json")
            check_figures(figures, workers, 1)


def memif():
    with lab.Lab(hosts=0) as net:
        path = net.path("memif.sock")
        daemon = harness.Daemon(net, "tor0", {
            "switch": harness.identity("tor0", 0),
            "ports": [{"name": f"w{i}", "device": f"net_memif{i},role=server,id={i},socket-abstract=no,socket={path}"}
                      for i in range(3)],
            "jobs": [harness.job(1, 2), harness.job(2, 7), harness.job(3, 64)],
        })
        daemon.expect_warning(r"port w\d+: link (up|down)")
        daemon.start()
        devices = [f"net_memif{i},socket={path},id={i}" for i in range(3)]
        try:
            for number, workers, used in ((1, 2, 1), (2, 7, 1), (2, 7, 3), (3, 64, 2)):
                arguments = [argument for device in devices[:used] for argument in ("--device", device)]
                figures, _ = load(net, "--job", number, "--workers", workers, "--segments", 100, "--seconds", 1, "--local-address",
                                  "10.77.0.1", *arguments, "--json", host=None)
                check_figures(figures, workers, 100)
                check(figures["devices"] == devices[:used], figures)
            daemon.end()
        except BaseException:
            daemon.print_log()
            raise


def a_dpdk_device():
    if not os.path.exists(os.path.join(harness.BUILD, "agent", "libiswitch-agent-dpdk.so")):
        print("      libiswitch-agent-dpdk.so is not built: not tried")
        return
    with harness.Switch(hosts=1, jobs=[harness.job(members=5)]) as switch:
        # An address that the kernel does not have, or it would answer too.
        figures, _ = load(switch.net, "--workers", 5, "--segments", 50, "--seconds", 1, "--json", "--device",
                          "net_af_packet0,iface=eth0", "--local-address", "10.77.0.101")
        check_figures(figures, 5, 50)


def at_a_rate():
    """As many operations as were due, no more and no fewer, on a machine that can carry them."""
    with harness.Switch(hosts=1, jobs=[harness.job()]) as switch:
        figures, _ = load(switch.net, "--workers", 2, "--rate", 200, "--seconds", 3, "--json")
        check_figures(figures, 2, 1)
        equal(figures["operations"], 600, "operations in 3 s at 200 a second")
        figures, _ = load(switch.net, "--workers", 2, "--rate", 2000, "--segments", 20, "--seconds", 2, "--json")
        check_figures(figures, 2, 20)
        check(figures["seconds"] >= 1.9, f"it was through after {figures['seconds']} s")
        equal(figures["operations"], 200, "operations of 20 segments in 2 s at 2000 segments a second")


def losses_are_made_good():
    faults = {"loss": 0.01, "duplicate": 0.01, "reorder": 0.02, "corrupt": 0.005, "seed": 7}
    with harness.Switch(hosts=1, jobs=[harness.job(members=4)], faults=faults) as switch:
        figures, _ = load(switch.net, "--workers", 4, "--segments", 50, "--seconds", 2, "--json", "--timeout", 30)
        check_figures(figures, 4, 50)
        check(figures["retransmissions"] > 0, f"nothing was sent again: {figures}")


def a_key():
    with harness.Switch(hosts=1, start=False) as switch:
        path = switch.net.path("key")
        with open(path, "wb") as file:
            file.write(os.urandom(32))
        os.chmod(path, 0o600)
        switch.config["jobs"] = [harness.job(key_file=path)]
        switch.start()
        figures, _ = load(switch.net, "--workers", 2, "--seconds", 0.5, "--key-file", path, "--json")
        check_figures(figures, 2, 256)
        _, err = load(switch.net, "--workers", 2, "--timeout", 1, code=3)
        check("\n" not in err and "key" in err, err)


def forged_sums_are_found():
    with harness.Switch(hosts=1, jobs=[harness.job()]) as switch:
        for after, code in ((10 ** 9, 0), (200, 5)):
            forger = switch.net.start([sys.executable, "-c", FORGER, harness.SWITCH_IP, after], host=0, stdout=-1, text=True)
            equal(forger.stdout.readline().strip(), "ready", "the forger's first line")
            done = switch.net.run([harness.binary("iswitch-load"), "--switch", "127.0.0.1", "--workers", 2, "--segments", 32,
                                   "--seconds", 1, "--json"], host=0, check=False)
            equal(done.returncode, code, f"exit code; it wrote {done.stdout}{done.stderr}")
            figures = json.loads(done.stdout)
            if code == 0:
                check_figures(figures, 2, 32)
            else:
                check(figures["elements_wrong"] > 0, figures)
                check("should be" in done.stderr and done.stderr.count("\n") == 1, done.stderr)
            switch.net.stop(forger)


def what_is_wrong_is_told_in_one_line():
    with harness.Switch(hosts=1, jobs=[harness.job(1, 3), harness.job(2, 2, mode="async")]) as switch:
        for arguments, code, words in (
                (["--workers", 3, "--job", 9, "--timeout", 1], 3, "no such job"),
                (["--workers", 2, "--timeout", 1], 3, "2 of 3 members"),
                (["--workers", 4, "--timeout", 1], 3, ""),
                (["--workers", 65], 2, "--workers"),
                (["--size", 8, "--segments", 2], 2, "--size"),
                (["--local-address", "somewhere"], 2, "somewhere"),
                (["--device", "net_null0"], 2, "--local-address"),
                (["--device", "net_memif0,socket=/nowhere", "--local-address", "10.77.0.9", "--timeout", 0.5], 1, "/nowhere"),
                (["--key-file", "/nowhere"], 2, "/nowhere"),
                (["--workers", 2, "--job", 2, "--timeout", 1], 3, "")):
            _, err = load(switch.net, *arguments, code=code)
            check("\n" not in err and err.startswith("iswitch-load: ") and words in err, f"{arguments}: wrote {err!r}")
        done = switch.net.run([harness.binary("iswitch-load"), "--switch", "10.77.0.253", "--timeout", 1], host=0, check=False)
        equal(done.returncode, 3, f"exit code without a switch; it wrote {done.stderr}")
    # The switch ends in the middle.
    with harness.Switch(hosts=1, jobs=[harness.job()]) as switch:
        process = switch.net.start([harness.binary("iswitch-load"), "--switch", harness.SWITCH_IP, "--seconds", 60, "--timeout", 2],
                                   host=0, stdout=-1, stderr=-1, text=True)
        harness.eventually("sums are under way", lambda: switch.counters()["aggregate_added"] > 2_000)
        switch.kill()
        _, err = process.communicate(timeout=30 * harness.SLOW)
        equal(process.returncode, 4, f"exit code; it wrote {err}")
        check(err.count("\n") == 1, err)


if __name__ == "__main__":
    harness.main(kernel_udp, memif, a_dpdk_device, at_a_rate, losses_are_made_good, a_key, forged_sums_are_found, what_is_wrong_is_told_in_one_line)
