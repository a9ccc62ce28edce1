"""dpdk-testpmd over one net_null port: processor time a packet of its forwarding thread."""

import os
import pty
import re
import select
import signal
import subprocess
import time


class TestpmdError(Exception):
    pass


class Testpmd:
    """Rests but while it is measured, until closed; the port's frames go back to the port (one port,
    topology loop)."""

    def __init__(self, mode, frame_bytes, control_cpu, poller_cpu, huge_pages, burst=64, size_args=()):
        memory = ["--in-memory", "-m", "128"] if huge_pages else ["--no-huge", "-m", "256"]
        command = ["dpdk-testpmd", "--lcores", f"0@{control_cpu},1@{poller_cpu}", *memory, "--no-pci",
                   "--no-telemetry", "--no-shconf", f"--file-prefix=iswitch-testpmd-{os.getpid()}",
                   f"--vdev=net_null0,size={frame_bytes}", "--",
                   "--interactive", "--auto-start", "--nb-cores=1", "--port-topology=loop", f"--forward-mode={mode}",
                   f"--burst={burst}", "--no-mlockall", "--total-num-mbufs=4096",
                   f"--mbuf-size={max(2176, frame_bytes + 192)}"]
        if huge_pages:
            command.remove("--no-shconf")
        # To a terminal it writes line by line, to a pipe when a buffer is full.
        self.terminal, theirs = pty.openpty()
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=theirs, stderr=theirs)
        os.close(theirs)
        self._expect(r"testpmd> $")
        self.thread = self._poller()
        self.process.send_signal(signal.SIGSTOP)

    def close(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            try:
                self.process.stdin.write(b"stop\nquit\n")
                self.process.stdin.flush()
                self.process.wait(10)
            except (OSError, subprocess.TimeoutExpired):
                self.process.kill()
                self.process.wait()
        self.process.stdin.close()
        os.close(self.terminal)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def nanoseconds_a_packet(self, seconds):
        self.process.send_signal(signal.SIGCONT)
        first_packets, first_time = self._sample()
        time.sleep(seconds)
        packets, nanoseconds = self._sample()
        self.process.send_signal(signal.SIGSTOP)
        if packets == first_packets:
            raise TestpmdError("testpmd forwards nothing")
        return (nanoseconds - first_time) / (packets - first_packets)

    def _sample(self):
        self.process.stdin.write(b"show port stats 0\n")
        self.process.stdin.flush()
        text = self._expect(r"TX-packets:\s*\d+\s(?s:.*)testpmd> $")
        with open(f"/proc/{self.process.pid}/task/{self.thread}/schedstat") as file:
            nanoseconds = int(file.read().split()[0])
        return int(re.search(r"TX-packets:\s*(\d+)", text).group(1)), nanoseconds

    def _poller(self):
        tasks = f"/proc/{self.process.pid}/task"
        for task in os.listdir(tasks):
            with open(f"{tasks}/{task}/comm") as file:
                if re.match(r"(rte-worker-1|lcore-worker-1)$", file.read().strip()):
                    return task
        raise TestpmdError("testpmd has no forwarding thread")

    def _expect(self, pattern, patience=20):
        seen = b""
        deadline = time.monotonic() + patience
        while not re.search(pattern.encode(), seen):
            left = deadline - time.monotonic()
            ready, _, _ = select.select([self.terminal], [], [], max(left, 0))
            try:
                data = os.read(self.terminal, 65536) if ready else b""
            except OSError:  # it has ended
                data = b""
            if not data:
                raise TestpmdError("testpmd: " + seen.decode(errors="replace")[-500:])
            seen += data
        return seen.decode(errors="replace")
