#!/usr/bin/env python3
"""Workers without the kernel on the way: memif to a switchd on the same host, as an unprivileged user where there is one; a switchd
on a host as the leaf of a tree; DPDK devices."""

import json
import os
import pwd
import random
import shutil
import sys
import time

import harness
import lab
from harness import check, equal

PYTHON_WORKER = """
import sys, time, iswitch
from array import array
rank, until = int(sys.argv[1]), time.monotonic() + float(sys.argv[2])
with iswitch.join(job=1, rank=rank, size=2, device=sys.argv[3], local_address=f"10.77.0.{rank + 1}", operation_timeout=2.0) as agent:
    def reduce(base):
        vector = array("f", [float(base + rank)] * 5000)
        agent.all_reduce(vector).wait()
        assert list(vector) == [2.0 * base + 1] * 5000, vector[:3]
    reduce(10)
    print("first", flush=True)
    sys.stdin.readline()
    while True:
        try:
            reduce(20)
            break
        except iswitch.Error as error:
            assert time.monotonic() < until, f"no sum any more: {error}"
    print("second", flush=True)
    sys.stdin.readline()
"""


def unprivileged():
    """What makes a process nobody's; nothing where we are nobody in particular already."""
    with open("/proc/self/uid_map") as file:
        whole = any(int(line.split()[2]) > 65536 for line in file)
    if os.geteuid() != 0 or not whole:
        return None
    return pwd.getpwnam("nobody")


class Host:
    """A switchd with memif ports, for `workers` on this host. A worker is told its device by device(rank)."""

    def __init__(self, workers=2, jobs=None, mtu=1500, start=True, **config):
        self.net = lab.Lab(hosts=0)
        self.workers = workers
        self.user = unprivileged()
        self.start_now = start
        self.mtu = mtu
        self.config = config
        self.jobs = jobs or [harness.job(members=workers)]

    def __enter__(self):
        self.net.__enter__()
        try:
            # For the worker's user: the socket, what goes in and out, and the programs.
            os.chmod(self.net.directory, 0o711)
            self.folder = self.net.path("open")
            os.mkdir(self.folder)
            os.chmod(self.folder, 0o777)
            self.programs = {}
            self.switch = harness.Daemon(self.net, "tor0", {
                "switch": harness.identity("tor0", 0),
                "ports": [{"name": f"w{i}", "mtu": self.mtu,
                           "device": f"net_memif{i},role=server,id={i},socket-abstract=no,socket={self.socket}"}
                          for i in range(self.workers)],
                "jobs": self.jobs,
                **self.config,
            })
            # A worker that has ended is a link that is down.
            self.switch.expect_warning(r"port w\d+: link (up|down)")
            if self.start_now:
                self.start_switch()
        except BaseException:
            self.switch.print_log()
            self.net.__exit__(None, None, None)
            raise
        return self

    def start_switch(self):
        """Whoever may write to the socket may be a worker: here, everybody."""
        before = os.umask(0)
        try:
            self.switch.start()
        finally:
            os.umask(before)

    def __exit__(self, kind, value, trace):
        try:
            if kind is not None:
                self.switch.print_log()
            elif self.switch.process is not None:
                self.switch.end()
        finally:
            self.net.__exit__(kind, value, trace)

    @property
    def socket(self):
        return os.path.join(self.folder, "memif.sock")

    def device(self, rank, more=""):
        return f"net_memif0,socket={self.socket},id={rank}{more}"

    def program(self, name):
        """A copy that the worker's user may run."""
        if name not in self.programs:
            self.programs[name] = shutil.copy(harness.binary(name), self.folder)
            os.chmod(self.programs[name], 0o755)
        return self.programs[name]

    def start(self, command, **options):
        identity = []
        if self.user:
            identity = ["setpriv", f"--reuid={self.user.pw_uid}", f"--regid={self.user.pw_gid}", "--clear-groups", "--inh-caps=-all"]
        return self.net.start([*identity, *command], stdout=-1, stderr=-1, text=True, **options)

    def start_rank(self, rank, vector, *extra, device=None, size=None, timeout=30):
        given, taken = os.path.join(self.folder, f"in{rank}"), os.path.join(self.folder, f"out{rank}")
        harness.write_floats(given, vector)
        if os.path.exists(taken):
            os.unlink(taken)
        process = self.start([self.program("iswitch-allreduce"), "--switch", harness.SWITCH_IP, "--rank", rank, "--size",
                              size or self.workers, "--device", device or self.device(rank), "--local-address",
                              f"10.77.0.{rank + 1}", "--input", given, "--output", taken, "--timeout", timeout, *extra])
        return process, taken

    def all_reduce(self, vectors, *extra, timeout=30, more=""):
        ranks = [self.start_rank(rank, vector, *extra, device=self.device(rank, more), timeout=timeout)
                 for rank, vector in enumerate(vectors)]
        return harness.Run(ranks, timeout)


def vectors_of(workers, count, seed=1):
    return [harness.integer_vector(random.Random(seed * 64 + rank), count) for rank in range(workers)]


def check_sums(run, vectors, what):
    right = [sum(values) for values in zip(*vectors)]
    for rank, found in enumerate(run.sums()):
        check(list(found) == right, f"{what}: rank {rank} has wrong sums")


def sums_of_two_to_four_workers():
    for workers in (2, 3, 4):
        with Host(workers) as host:
            for count in (1, 360, 361, 100_003):
                vectors = vectors_of(workers, count, seed=count)
                check_sums(host.all_reduce(vectors), vectors, f"{workers} workers, {count} floats")
            vectors = vectors_of(workers, 20_000)
            check_sums(host.all_reduce(vectors, "--repeat", 50), vectors, f"{workers} workers, 50 times")
            counters = host.switch.counters()
            equal(sum(value for name, value in counters.items() if name.startswith("parse_drop")), 0, "frames that were malformed")


def segments_of_jumbo_frames():
    with Host(2, mtu=9000, jobs=[harness.job(members=2, segment_bytes=8928)]) as host:
        vectors = vectors_of(2, 300_000)
        check_sums(host.all_reduce(vectors, "--repeat", 5), vectors, "segments of 8928 bytes")


def pages_are_there_before_frames():
    """Which of its memory the switch uses for the first time while it sums."""
    def faults(switch):
        folder = f"/proc/{switch.process.pid}/task"
        for thread in os.listdir(folder):
            with open(f"{folder}/{thread}/stat") as file:
                name, fields = file.read().split("(", 1)[1].rsplit(")", 1)
            if name.startswith("rte-worker"):
                return int(fields.split()[7])  # minor ones
        raise harness.Failed("no packet loop is among the switch's threads")

    with Host(2, mtu=9000, jobs=[harness.job(members=2, segment_bytes=8928)]) as host:
        vectors = vectors_of(2, 1_000_000)
        before = faults(host.switch)
        check_sums(host.all_reduce(vectors, "--repeat", 4), vectors, "1 million floats")
        found = faults(host.switch) - before
        # Two workers have 2 x 2 x 256 buffers of three pages.
        check(found < 200, f"the packet loop was the first to use {found} pages")


def a_worker_whose_buffers_are_too_small_is_told():
    with Host(2, mtu=9000, jobs=[harness.job(members=2, segment_bytes=8928)]) as host:
        process, _ = host.start_rank(0, [1.0], device=host.device(0, ",bsize=2048"), timeout=3)
        _, err = process.communicate(timeout=30 * harness.SLOW)
        equal(process.returncode, 3, f"exit code; it said {err}")
        check("its segments of 8928 bytes need an MTU of 8978, the path has 2034" in err, err)


def a_switch_that_comes_late():
    with Host(2, start=False) as host:
        vectors = vectors_of(2, 1000)
        run = host.all_reduce(vectors, timeout=30 * harness.SLOW)
        time.sleep(1)
        host.start_switch()
        check_sums(run, vectors, "workers that were there first")


def a_lost_switch_is_an_error_in_time():
    with Host(2) as host:
        run = host.all_reduce(vectors_of(2, 200_000), "--repeat", 1_000_000, timeout=2)
        harness.eventually("sums are under way", lambda: host.switch.counters()["aggregate_added"] > 10_000)
        host.switch.kill()
        started = time.monotonic()
        for rank, (code, err) in enumerate(run.finish()):
            equal(code, 4, f"exit code of rank {rank}, which said {err}")
            check("\n" not in err and "the link of device net_memif0 is down" in err, f"rank {rank} said {err}")
        check(time.monotonic() - started < 6 * harness.SLOW, f"it took {time.monotonic() - started:.1f} s for a timeout of 2 s")
        # The killed switch has left its socket; the next one takes its place.
        host.start_switch()
        vectors = vectors_of(2, 1000)
        check_sums(host.all_reduce(vectors), vectors, "behind the next switch")


def a_restarted_switch_costs_no_sum():
    with Host(2) as host:
        vectors = vectors_of(2, 100_000)
        run = host.all_reduce(vectors, "--repeat", 2000, "--json", timeout=30)
        for _ in range(2):
            harness.eventually("sums are under way", lambda: host.switch.counters()["aggregate_added"] > 10_000)
            host.switch.kill()
            host.start_switch()
        total = [sum(column) for column in zip(*vectors)]
        for rank, (process, path) in enumerate(run.ranks):
            out, err = process.communicate(timeout=120 * harness.SLOW)
            equal(process.returncode, 0, f"exit code of rank {rank} ({err.strip()})")
            equal(list(harness.floats(path)), total, f"sum at rank {rank}")
            figures = json.loads(out)
            equal((figures["resumes"], figures["resets"]), (2, 0), f"restarts that rank {rank} noticed, and resets")


def a_process_finds_the_next_switch():
    with Host(2) as host:
        module = os.path.join(harness.ROOT, "agent", "python")
        library = os.path.join(harness.BUILD, "agent", "libiswitch-agent.so")
        environment = {**os.environ, "PYTHONPATH": module, "ISWITCH_LIBRARY": library, "ISWITCH_SWITCH": harness.SWITCH_IP}
        host.user = None  # the module and the interpreter may lie where nobody may not go
        ranks = [host.start([sys.executable, "-c", PYTHON_WORKER, rank, 30 * harness.SLOW, host.device(rank)],
                            stdin=-1, env=environment) for rank in range(2)]

        def all_say(line):
            for rank, process in enumerate(ranks):
                found = process.stdout.readline().strip()
                check(found == line, f"rank {rank} says {found!r}, not {line!r}: {process.stderr.read() if not found else ''}")

        def go_on():
            for process in ranks:
                process.stdin.write("\n")
                process.stdin.flush()

        all_say("first")
        host.switch.kill()
        host.start_switch()
        go_on()
        all_say("second")
        go_on()
        for rank, process in enumerate(ranks):
            _, err = process.communicate(timeout=30 * harness.SLOW)
            equal(process.returncode, 0, f"exit code of rank {rank}, which said {err}")


def killed_workers_do_the_switch_no_harm():
    rounds = 8
    with Host(3, jobs=[harness.job(members=3, member_timeout_ms=1000)]) as host:
        for _ in range(rounds):
            run = host.all_reduce(vectors_of(3, 50_000), "--repeat", 1_000_000)
            before = host.switch.counters()["aggregate_added"]
            harness.eventually("sums are under way", lambda: host.switch.counters()["aggregate_added"] > before + 2_000, 30)
            for process, _ in run.ranks:
                process.kill()
            run.finish()
        vectors = vectors_of(3, 1000)
        check_sums(host.all_reduce(vectors), vectors, "after many killed workers")


def a_switch_ends_while_its_workers_are_killed():
    for _ in range(4):
        with Host(3) as host:
            run = host.all_reduce(vectors_of(3, 50_000), "--repeat", 1_000_000)
            harness.eventually("sums are under way", lambda: host.switch.counters()["aggregate_added"] > 500, 30)
            for process, _ in run.ranks:
                process.kill()
            run.finish()


def what_is_wrong_is_told_in_one_line():
    with Host(2) as host:
        for device, words in ((f"net_memif0,socket={host.folder}/nothing", "No such file or directory"),
                              (host.device(7), "the server refuses: ID not found"),
                              ("net_memif0,id=1", "socket=PATH is missing"),
                              ("net_nothing0", "net_nothing0")):
            started = time.monotonic()
            process, _ = host.start_rank(0, [1.0], device=device, timeout=3)
            _, err = process.communicate(timeout=30 * harness.SLOW)
            check(process.returncode in (2, 3), f"{device}: exit code {process.returncode}, {err}")
            check(err.count("\n") == 1 and words in err, f"{device}: said {err!r}")
            check(time.monotonic() - started < 8 * harness.SLOW, f"{device}: took {time.monotonic() - started:.1f} s")


def hosts_are_leaves_of_a_tree():
    """Two hosts: each a switchd with memif ports for its own workers, and a port to the root."""
    with lab.Lab(hosts=0) as net:
        for i in range(2):
            net.cable(f"down{i}", f"up{i}")
        root = harness.Daemon(net, "root", {
            "switch": harness.identity("root", 0),
            "ports": [{"name": f"down{i}", "device": f"net_af_packet{i},iface=down{i}"} for i in range(2)],
            "jobs": [harness.job(members=2)],
        })
        leaves = [harness.Daemon(net, f"host{i}", {
            "switch": harness.identity(f"host{i}", 1 + i),
            "ports": [{"name": "up", "device": f"net_af_packet0,iface=up{i}"},
                      *({"name": f"w{k}", "device": f"net_memif{k},role=server,id={k},socket-abstract=no,"
                                                    f"socket={net.path(f'memif{i}.sock')}"} for k in range(2))],
            "jobs": [harness.job(members=2)],
            "parent": {"ip": harness.SWITCH_IP, "port": "up"},
        }) for i in range(2)]
        daemons = [root, *leaves]
        for daemon in daemons:
            daemon.expect_warning(r"port w\d+: link (up|down)")
        try:
            for daemon in daemons:
                daemon.start()
            vectors = vectors_of(4, 30_000)
            ranks = []
            for rank, vector in enumerate(vectors):
                given, taken = net.path(f"in{rank}"), net.path(f"out{rank}")
                harness.write_floats(given, vector)
                ranks.append((net.start([
                    harness.binary("iswitch-allreduce"), "--switch", leaves[rank // 2].config["switch"]["ip"], "--rank", rank,
                    "--member", "any", "--size", 4, "--local-address", f"10.77.0.{rank + 1}", "--device",
                    f"net_memif0,socket={net.path(f'memif{rank // 2}.sock')},id={rank % 2}", "--input", given, "--output", taken,
                    "--repeat", 10], stdout=-1, stderr=-1, text=True), taken))
            check_sums(harness.Run(ranks, 30), vectors, "two hosts of two workers")
            for daemon in reversed(daemons):
                daemon.end()
        except BaseException:
            for daemon in daemons:
                daemon.print_log()
            raise


def dpdk_devices():
    """The same over a device of DPDK's, which the library loads when it is asked for."""
    if not os.path.exists(os.path.join(harness.BUILD, "agent", "libiswitch-agent-dpdk.so")):
        print("      libiswitch-agent-dpdk.so is not built: not tried")
        return
    with harness.Switch(hosts=2) as switch:
        vectors = vectors_of(2, 50_000)
        ranks = []
        for rank, vector in enumerate(vectors):
            given, taken = switch.net.path(f"in{rank}"), switch.net.path(f"out{rank}")
            harness.write_floats(given, vector)
            # An address that the kernel does not have, or it would answer too.
            ranks.append((switch.net.start([
                harness.binary("iswitch-allreduce"), "--switch", harness.SWITCH_IP, "--rank", rank, "--size", 2, "--device",
                "net_af_packet0,iface=eth0", "--local-address", f"10.77.0.{rank + 101}", "--input", given, "--output", taken,
                "--repeat", 5], host=rank, stdout=-1, stderr=-1, text=True), taken))
        run = harness.Run(ranks, 30)
        check_sums(run, vectors, "net_af_packet")
        process = switch.net.start([
            harness.binary("iswitch-allreduce"), "--switch", harness.SWITCH_IP, "--rank", 0, "--device",
            "net_af_packet0,iface=eth7", "--local-address", "10.77.0.101", "--timeout", 2], host=0, stdin=-3, stdout=-1, stderr=-1,
            text=True)
        out, err = process.communicate(timeout=30 * harness.SLOW)
        equal(out, "", "what a failure wrote to stdout")
        check(process.returncode == 3 and err.count("\n") == 1 and "net_af_packet0" in err, f"exit code {process.returncode}: {err}")


if __name__ == "__main__":
    harness.main(sums_of_two_to_four_workers, segments_of_jumbo_frames, pages_are_there_before_frames,
                 a_worker_whose_buffers_are_too_small_is_told,
                 a_switch_that_comes_late, a_lost_switch_is_an_error_in_time, a_restarted_switch_costs_no_sum,
                 a_process_finds_the_next_switch, killed_workers_do_the_switch_no_harm,
                 a_switch_ends_while_its_workers_are_killed, what_is_wrong_is_told_in_one_line,
                 hosts_are_leaves_of_a_tree, dpdk_devices)
