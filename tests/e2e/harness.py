"""switchd among hosts for the end-to-end tests, one or a tree of them, and the checks that every such test makes.

A test is a script: `with harness.Switch(hosts=3, jobs=[...]) as switch: ...`; leaving the block ends switchd with SIGTERM and
fails the test when it does not end in order (exit code 0, pools full) or when its log holds a warning that the test
did not announce with expect_warning().
"""

import array
import json
import os
import re
import socket
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tools"))
import lab  # noqa: E402

BUILD = os.environ.get("ISWITCH_BUILD", os.path.join(ROOT, "build", "release"))
SWITCH_IP = "10.77.0.254"
UDP_PORT = 17170
# Sanitizer builds are several times slower.
SLOW = float(os.environ.get("ISWITCH_TEST_SLOWNESS", "1"))


class Failed(AssertionError):
    pass


def check(condition, text):
    if not condition:
        raise Failed(text)


def equal(found, expected, what):
    check(found == expected, f"{what}: found {found!r}, expected {expected!r}")


def binary(name):
    for folder in (".", "switchd", "tools", "tools/switchctl", "tools/load", "agent", "tools/rl", "tests/e2e"):
        path = os.path.join(BUILD, folder, name)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    raise Failed(f"{name} is not built in {BUILD} (set ISWITCH_BUILD)")


def job(number=1, members=2, **more):
    return {"id": number, "members": members, **more}


def floats(path):
    values = array.array("f")
    with open(path, "rb") as file:
        values.frombytes(file.read())
    return values


def write_floats(path, values):
    with open(path, "wb") as file:
        array.array("f", values).tofile(file)


def eventually(what, condition, seconds=10):
    """Waits until condition() is true; fails naming `what` otherwise."""
    end = time.monotonic() + seconds * SLOW
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise Failed(f"not within {seconds * SLOW:.0f} s: {what}")


class Daemon:
    """One switchd of a lab: its config, its life, its log and its admin socket. `config` is the whole file but for the admin
    socket."""

    def __init__(self, net, name, config):
        self.net = net
        self.name = name
        self.config = config
        self.process = None
        self.expected_warnings = []

    @property
    def socket(self):
        return self.net.path(f"{self.name}.sock")

    @property
    def log_path(self):
        return self.net.path(f"{self.name}.log")

    def full_config(self):
        return {"admin": {"socket": self.socket}, **self.config}

    def start(self, wait=True):
        path = self.net.path(f"{self.name}.json")
        with open(path, "w") as file:
            json.dump(self.full_config(), file)
        log = open(self.log_path, "a")
        self.process = self.net.start([binary("switchd"), "--config", path], stdout=log, stderr=log)
        log.close()
        if wait:
            eventually(f"switchd {self.name} answers on its admin socket", self.ready, 30)

    def ready(self):
        check(self.process.poll() is None, f"switchd ended at start with exit code {self.process.poll()}")
        try:
            return self.ask("status")["ok"]
        except OSError:
            return False

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process = None

    def end(self):
        """SIGTERM; checks the exit code and the log."""
        code = self.net.stop(self.process, 15 * SLOW)
        self.process = None
        if code != 0:
            self.print_log()
        equal(code, 0, f"exit code of switchd {self.name} after SIGTERM")
        self.check_log()

    def log(self):
        with open(self.log_path) as file:
            return file.read()

    def print_log(self):
        if os.path.exists(self.log_path):
            print(f"---- log of switchd {self.name}", self.log(), "----", sep="\n", file=sys.stderr)

    def expect_warning(self, pattern):
        self.expected_warnings.append(pattern)

    def check_log(self):
        for line in self.log().splitlines():
            if re.search(r"^\S+ (warning|error|critical) |Sanitizer|runtime error", line):
                if not any(re.search(pattern, line) for pattern in self.expected_warnings):
                    self.print_log()
                    raise Failed(f"unexpected in the log of switchd {self.name}: {line}")

    # ---- its admin socket

    def ask(self, command, **more):
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(10 * SLOW)
            client.connect(self.socket)
            client.sendall(json.dumps({"command": command, **more}).encode() + b"\n")
            line = b""
            while not line.endswith(b"\n"):
                piece = client.recv(65536)
                check(piece, f"the admin socket closed without an answer to {command}")
                line += piece
        return json.loads(line)

    def counters(self):
        return {row["name"]: row["value"] for row in self.ask("counters")["counters"]}

    def received(self):
        """Frames received, by the terminal counters."""
        return sum(row["value"] for row in self.ask("counters")["counters"] if row["terminal"])

    def job_state(self, number=1):
        return next((row for row in self.ask("jobs")["jobs"] if row["id"] == number), None)


def identity(name, number):
    """The "switch" object of a config; switch `number` is 10.77.0.254 downwards."""
    return {"name": name, "ip": f"10.77.0.{254 - number}", "mac": f"02:00:00:00:00:{254 - number:02x}", "udp_port": UDP_PORT}


def start_ranks(net, vectors, switch_ip, host_of=None, number=1, extra=(), timeout=30):
    """Starts one iswitch-allreduce a vector (rank = index, host = rank unless host_of says else) at switch_ip(rank); gives a Run."""
    ranks = []
    for rank, vector in enumerate(vectors):
        given, taken = net.path(f"in-{number}-{rank}"), net.path(f"out-{number}-{rank}")
        write_floats(given, vector)
        if os.path.exists(taken):
            os.unlink(taken)
        command = [binary("iswitch-allreduce"), "--switch", f"{switch_ip(rank)}:{UDP_PORT}", "--job", number, "--rank", rank,
                   "--input", given, "--output", taken, "--timeout", timeout, *extra]
        host = host_of(rank) if host_of else rank
        ranks.append((net.start(command, host=host, stdout=-1, stderr=-1, text=True), taken))
    return Run(ranks, timeout)


class Switch(Daemon):
    """Hosts and a running switchd. `config` holds further top-level keys; `faults` (loss, duplicate, reorder, corrupt as
    probabilities, seed) cuts every cable and puts a faulty one in."""

    def __init__(self, hosts=2, jobs=None, mtu=1500, start=True, port_options=None, faults=None, **config):
        super().__init__(lab.Lab(hosts=hosts, mtu=mtu, spliced=faults is not None), "tor0", {
            "switch": identity("tor0", 0),
            "ports": [{"name": f"p{i}", "device": f"net_af_packet{i},iface=sw{i}", "mtu": mtu, **(port_options or {})}
                      for i in range(hosts)],
            "jobs": jobs if jobs is not None else [job(members=hosts)],
            **config,
        })
        self.faults = faults
        self.cables = []
        self.hosts = hosts
        self.start_now = start

    def __enter__(self):
        self.net.__enter__()
        try:
            if self.faults is not None:
                self.join_cables()
            if self.start_now:
                self.start()
        except BaseException:
            self.print_log()
            self.net.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind, value, trace):
        try:
            if kind is not None:
                self.print_log()
            elif self.process is not None:
                self.end()
        finally:
            self.net.__exit__(kind, value, trace)

    def join_cables(self):
        faults = dict(self.faults)
        seed = faults.pop("seed")
        for i in range(self.hosts):
            command = [binary("faulty-cable"), "--a", f"in{i}", "--b", f"out{i}", "--seed", seed * 64 + i]
            for name, chance in faults.items():
                command += [f"--{name}", chance]
            cable = self.net.start(command, stdout=-1, text=True)
            equal(cable.stdout.readline().strip(), "ready", f"first line of the faulty cable {i}")
            self.cables.append(cable)

    def cut_cables(self):
        """Ends the faulty cables; gives what each did, by direction (forward: from the host)."""
        reports = []
        for cable in self.cables:
            self.net.stop(cable)
            reports.append(json.loads(cable.stdout.read()))
        return reports

    def all_reduce(self, vectors, host_of=None, number=1, extra=(), timeout=30):
        return start_ranks(self.net, vectors, lambda rank: SWITCH_IP, host_of, number, ["--size", len(vectors), *extra], timeout)


class Tree:
    """Two levels: a root, `leaves` leaf switches, `hosts_a_leaf` hosts on each; host i hangs on leaf i // hosts_a_leaf.
    `jobs` are the leaves' (members: hosts_a_leaf), `root_jobs` the root's (members: leaves)."""

    def __init__(self, leaves=2, hosts_a_leaf=2, jobs=None, root_jobs=None, parent=None):
        self.net = lab.Lab(hosts=leaves * hosts_a_leaf)
        self.hosts_a_leaf = hosts_a_leaf
        self.root = Daemon(self.net, "root", {
            "switch": identity("root", 0),
            "ports": [{"name": f"down{i}", "device": f"net_af_packet{i},iface=down{i}"} for i in range(leaves)],
            "jobs": root_jobs or [job(members=leaves)],
        })
        self.leaves = [Daemon(self.net, f"leaf{i}", {
            "switch": identity(f"leaf{i}", 1 + i),
            "ports": [{"name": "up", "device": f"net_af_packet0,iface=up{i}"},
                      *({"name": f"p{k}", "device": f"net_af_packet{1 + k},iface=sw{i * hosts_a_leaf + k}"}
                        for k in range(hosts_a_leaf))],
            "jobs": jobs or [job(members=hosts_a_leaf)],
            "parent": {"ip": SWITCH_IP, "port": "up", **(parent or {})},
        }) for i in range(leaves)]

    @property
    def daemons(self):
        return [self.root, *self.leaves]

    def leaf_of(self, rank):
        return self.leaves[rank // self.hosts_a_leaf]

    def ip_of(self, rank):
        return self.leaf_of(rank).config["switch"]["ip"]

    def __enter__(self):
        self.net.__enter__()
        try:
            for i in range(len(self.leaves)):
                self.net.cable(f"down{i}", f"up{i}")
            for daemon in self.daemons:
                daemon.start()
        except BaseException:
            self.print_logs()
            self.net.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind, value, trace):
        try:
            if kind is not None:
                self.print_logs()
            else:
                for daemon in reversed(self.daemons):
                    if daemon.process is not None:
                        daemon.end()
        finally:
            self.net.__exit__(kind, value, trace)

    def print_logs(self):
        for daemon in self.daemons:
            daemon.print_log()

    def all_reduce(self, vectors, number=1, extra=(), timeout=30):
        return start_ranks(self.net, vectors, self.ip_of, None, number, ["--member", "any", "--size", len(vectors), *extra], timeout)


class Run:
    """Ranks of one all-reduce under way."""

    def __init__(self, ranks, timeout):
        self.ranks = ranks
        self.timeout = timeout

    def finish(self):
        """Exit code and error text of every rank."""
        ends = []
        for process, _ in self.ranks:
            out, err = process.communicate(timeout=(self.timeout + 40) * SLOW)
            ends.append((process.returncode, err.strip()))
        return ends

    def sums(self):
        """The result of every rank; fails when one failed."""
        for rank, (code, err) in enumerate(self.finish()):
            check(code == 0, f"rank {rank} failed with exit code {code}: {err}")
        return [floats(path) for _, path in self.ranks]


def integer_vector(random, count, most=1000):
    """Whole numbers: their sums are exact in float32 in any order."""
    return [float(random.randint(-most, most)) for _ in range(count)]


def main(*tests):
    """Runs the tests named on the command line, or all of them; a line each."""
    lab.enter()
    wanted = sys.argv[1:]
    failed = 0
    for test in tests:
        if wanted and test.__name__ not in wanted:
            continue
        started = time.monotonic()
        try:
            test()
            print(f"ok    {test.__name__}  {time.monotonic() - started:.1f} s", flush=True)
        except (AssertionError, lab.LabError, OSError, ValueError, KeyError) as problem:
            failed += 1
            print(f"FAIL  {test.__name__}: {type(problem).__name__}: {problem}", flush=True)
    sys.exit(1 if failed else 0)
