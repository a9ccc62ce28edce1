"""PPO workers in the hosts of a lab, one a host."""

import json

import harness
from harness import check, equal

FIRST_PORT = 47100
# Small batches: the tests are about exchanges, not about learning.
SMALL = ["--set", "environments=2", "--set", "steps=16", "--set", "minibatches=4", "--set", "epochs=2"]


class Training:
    """Workers that train until they are stopped or `flags` say so, and the files they write. `addresses`: of each host's switch."""

    def __init__(self, net, addresses, *flags):
        self.net = net
        self.addresses = addresses
        self.flags = [*SMALL, "--seconds", 0, *flags]
        self.workers = [None] * len(addresses)
        for rank in range(len(addresses)):
            self.start(rank)

    def path(self, kind, rank):
        return self.net.path(f"{kind}{rank}")

    def start(self, rank):
        command = [harness.binary("iswitch-rl-worker"), "--exchange", "iswitch", "--switch", self.addresses[rank], "--rank", rank,
                   "--size", len(self.addresses), "--local-port", FIRST_PORT + rank, "--progress", self.path("progress", rank),
                   "--json", self.path("figures", rank), *self.flags]
        self.workers[rank] = self.net.start(command, host=rank, stdout=-1, stderr=-1, text=True)

    def updates(self, rank):
        try:
            with open(self.path("progress", rank)) as file:
                lines = file.read().split("\n")[:-1]
            return json.loads(lines[-1])["updates"] if lines else 0
        except OSError:
            return 0

    def wait_for_updates(self, rank, count, seconds=30):
        def there():
            worker = self.workers[rank]
            if worker.poll() not in (None, 0):
                raise harness.Failed(f"worker {rank} ended with exit code {worker.returncode}: {worker.stderr.read()}")
            return self.updates(rank) >= count

        harness.eventually(f"worker {rank} makes {count} updates", there, seconds)

    def stop(self, rank):
        """One that wants to stop stops all."""
        self.workers[rank].terminate()

    def finish(self, seconds=30):
        """Exit code and error text of every worker."""
        ends = []
        for worker in self.workers:
            _, err = worker.communicate(timeout=seconds * harness.SLOW)
            ends.append((worker.returncode, err.strip()))
        return ends

    def figures(self):
        """Of all workers, which ended well and with the same weights."""
        for rank, (code, err) in enumerate(self.finish()):
            equal(code, 0, f"exit code of worker {rank} ({err})")
        figures = []
        for rank in range(len(self.workers)):
            with open(self.path("figures", rank)) as file:
                figures.append(json.load(file))
        for one in figures:
            equal(one["weights_sha256"], figures[0]["weights_sha256"], f"weights of worker {one['rank']}")
            check(one["equal_weights"], f"worker {one['rank']} found the weights to differ")
        return figures
