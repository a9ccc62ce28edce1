"""Hosts on one machine: network namespaces joined by veth, for the demo, the tests and the benchmarks.

    lab.enter()                      # first: continue inside a network namespace of our own
    with lab.Lab(hosts=4) as net:    # interfaces sw0..sw3 here, eth0 = 10.77.0.1.. in the hosts
        switch = net.start(["switchd", "--config", ...])
        worker = net.start([...], host=0)

Works as root and unprivileged (a user namespace). Everything hangs on processes: when this process ends, however it
ends, its children are killed by the kernel and the namespaces go with them, so nothing can be left behind.
"""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

SKIP = 77  # meson's exit code for a skipped test

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


class LabError(Exception):
    """One line: what could not be made and why."""


def _die_with_parent():
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise LabError(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def enter():
    """Continues this program inside a network namespace of its own; exits with SKIP and a reason where that is forbidden."""
    if os.environ.pop("ISWITCH_LAB", None) == "1":
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that with blocks end in order
        _run("ip", "link", "set", "lo", "up")
        return
    flags = ["--net"] if os.geteuid() == 0 else ["--user", "--map-root-user", "--net"]
    probe = subprocess.run(["unshare", *flags, "true"], capture_output=True, text=True)
    if probe.returncode != 0:
        print(f"skipped: this machine allows no network namespaces ({probe.stderr.strip()})", file=sys.stderr)
        sys.exit(SKIP)
    os.environ["ISWITCH_LAB"] = "1"
    sys.stdout.flush()
    os.execvp("unshare", ["unshare", *flags, "--", sys.executable, *sys.argv])


class Host:
    """One network namespace with eth0, held open by a sleeping process."""

    def __init__(self, index, address):
        self.index = index
        self.address = address
        self.holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"], preexec_fn=_die_with_parent)
        own = os.readlink("/proc/self/ns/net")
        for _ in range(500):
            try:
                if os.readlink(f"/proc/{self.holder.pid}/ns/net") != own:
                    return
            except OSError:
                pass
            if self.holder.poll() is not None:
                break
            time.sleep(0.01)
        raise LabError("a host's network namespace did not come up (unshare --net)")

    def enter(self):
        return ["nsenter", f"--net=/proc/{self.holder.pid}/ns/net", "--"]


class Lab:
    """`hosts` hosts, each on one switch port; everything is torn down at the end of the with block."""

    def __init__(self, hosts=4, mtu=1500, network="10.77.0", spliced=False):
        """`spliced`: each cable is cut, ends in in<i> (towards the host) and out<i> (towards sw<i>), for a program to join them."""
        self.mtu = mtu
        self.spliced = spliced
        self.network = network
        self.count = hosts
        self.hosts = []
        self.processes = []
        self.cables = []
        self.directory = None

    # ---- life

    def __enter__(self):
        try:
            self.directory = tempfile.mkdtemp(prefix="iswitch-lab-")
            for index in range(self.count):
                self._add_host(index)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, *_):
        self.stop_all()
        for host in self.hosts:
            host.holder.kill()
            host.holder.wait()
        for index in range(len(self.hosts)):
            subprocess.run(["ip", "link", "delete", f"sw{index}"], capture_output=True)
            subprocess.run(["ip", "link", "delete", f"in{index}"], capture_output=True)
        for name in self.cables:
            subprocess.run(["ip", "link", "delete", name], capture_output=True)
        if self.directory:
            shutil.rmtree(self.directory, ignore_errors=True)

    def _add_host(self, index):
        host = Host(index, f"{self.network}.{index + 1}")
        self.hosts.append(host)
        self.plug(index)

    def plug(self, index):
        """Makes the cable of a host: sw<index> here, eth0 there. Also after unplug()."""
        host = self.hosts[index]
        near = f"sw{index}"
        if self.spliced:
            self._veth(near, f"out{index}")
            near = f"in{index}"
        self._veth(near, "eth0", "address", self.mac(index), "netns", str(host.holder.pid))
        for name in (f"sw{index}", f"out{index}", f"in{index}") if self.spliced else (f"sw{index}",):
            self._prepare(name)
        self._prepare("eth0", host.enter())
        _run(*host.enter(), "ip", "link", "set", "lo", "up")
        _run(*host.enter(), "ip", "address", "add", f"{host.address}/24", "dev", "eth0")

    def _veth(self, name, peer, *peer_options):
        _run("ip", "link", "add", name, "mtu", str(self.mtu), "type", "veth", "peer", "name", peer, "mtu", str(self.mtu),
             *peer_options)

    @staticmethod
    def _prepare(name, enter=()):
        # No IPv6 chatter; and the kernel's partial checksums and super-frames must not reach a packet socket.
        subprocess.run([*enter, "sysctl", "-qw", f"net.ipv6.conf.{name}.disable_ipv6=1"], capture_output=True)
        _run(*enter, "ethtool", "-K", name, "tx", "off", "tso", "off", "gso", "off", "gro", "off")
        _run(*enter, "ip", "link", "set", name, "up")

    def cable(self, one, other):
        """A cable between two interfaces here, for switches; it goes with the lab."""
        self._veth(one, other)
        self.cables.append(one)
        for name in (one, other):
            self._prepare(name)

    def unplug(self, index):
        """The cable is gone: both ends vanish."""
        for name in (f"sw{index}", f"in{index}") if self.spliced else (f"sw{index}",):
            _run("ip", "link", "delete", name)

    @staticmethod
    def mac(index):
        return f"02:00:00:00:01:{index:02x}"

    # ---- processes

    def path(self, name):
        """A file name in the lab's own folder."""
        return os.path.join(self.directory, name)

    def start(self, command, host=None, **options):
        """A process here (host None) or in a host; killed with the lab."""
        prefix = [] if host is None else self.hosts[host].enter()
        process = subprocess.Popen([*prefix, *map(str, command)], preexec_fn=_die_with_parent, **options)
        self.processes.append(process)
        return process

    def run(self, command, host=None, timeout=60, check=True):
        """Runs to the end and gives the CompletedProcess with text output."""
        prefix = [] if host is None else self.hosts[host].enter()
        done = subprocess.run([*prefix, *map(str, command)], capture_output=True, text=True, timeout=timeout)
        if check and done.returncode != 0:
            raise LabError(f"{' '.join(map(str, command))}: exit {done.returncode}: {done.stderr.strip()}")
        return done

    def stop(self, process, timeout=10):
        """SIGTERM, then SIGKILL after `timeout` seconds; gives the exit code."""
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(timeout)
            except subprocess.TimeoutExpired:
                process.kill()
        return process.wait()

    def stop_all(self):
        for process in reversed(self.processes):
            self.stop(process, 5)
        self.processes.clear()
