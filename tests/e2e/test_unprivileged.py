#!/usr/bin/env python3
"""switchd, its workers and the demo as a user without any privilege, in a user namespace as `unshare -rn` makes it."""

import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time

import harness
from harness import check, equal

SKIP = 77
PYTHON = "/usr/bin/python3"  # this program's own may lie where only its owner may go
NOBODY = pwd.getpwnam("nobody")
LOCKED_MEMORY = 8 << 20  # bytes; what Debian gives a user

BINARIES = ["switchd/switchd", "tools/iswitch-allreduce", "tools/switchctl/switchctl", "tools/rl/iswitch-rl-worker"]
SCRIPTS = ["tools/lab.py", "tools/demo", *(f"tests/e2e/{name}" for name in ("harness.py", "test_traffic.py", "test_failures.py"))]


class Copy:
    """What the user needs, where he may read it: the tree itself may lie in somebody's home."""

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="iswitch-nobody-")
        os.chmod(self.folder, 0o755)
        for name in SCRIPTS:
            self.take(os.path.join(harness.ROOT, name), name)
        for name in BINARIES:
            if os.path.exists(os.path.join(harness.BUILD, name)):
                self.take(os.path.join(harness.BUILD, name), os.path.join("build", name))
        self.scratch = os.path.join(self.folder, "scratch")
        os.mkdir(self.scratch)
        if os.geteuid() == 0:
            os.chown(self.scratch, NOBODY.pw_uid, NOBODY.pw_gid)
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder, ignore_errors=True)

    def take(self, source, name):
        target = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copy(source, target)
        while target != self.folder:
            os.chmod(target, 0o755)
            target = os.path.dirname(target)

    def run(self, command, timeout):
        """As the user; fails with what the command printed unless it ends with 0."""
        identity = []
        if os.geteuid() == 0:
            identity = ["setpriv", f"--reuid={NOBODY.pw_uid}", f"--regid={NOBODY.pw_gid}", "--clear-groups", "--inh-caps=-all"]
        clean = {name: value for name, value in os.environ.items() if name not in ("ISWITCH_LAB", "XDG_RUNTIME_DIR")}
        clean.update(ISWITCH_BUILD=os.path.join(self.folder, "build"), TMPDIR=self.scratch, HOME=self.scratch,
                     PYTHONDONTWRITEBYTECODE="1")
        done = subprocess.run(["prlimit", f"--memlock={LOCKED_MEMORY}:{LOCKED_MEMORY}", *identity, PYTHON, *command],
                              cwd=self.folder, env=clean, capture_output=True, text=True, timeout=timeout * harness.SLOW)
        if done.returncode == SKIP:
            print(done.stderr.strip(), file=sys.stderr)
            sys.exit(SKIP)
        equal(done.returncode, 0, f"exit code of {' '.join(command)}; it printed {done.stdout}{done.stderr}")
        return done.stdout


def end_to_end_tests_pass():
    with Copy() as copy:
        for test in ("test_traffic.py", "test_failures.py"):
            out = copy.run([os.path.join(copy.folder, "tests/e2e", test)], 120)
            check("ok " in out and "FAIL" not in out, f"{test} printed {out}")
        equal(os.listdir(copy.scratch), [], "what the tests left in the user's temporary folder")


def the_demo_runs():
    with Copy() as copy:
        if not os.path.exists(os.path.join(copy.folder, "build/tools/rl/iswitch-rl-worker")):
            print("      (the trainer is not built: no demo)", flush=True)
            return
        figures = os.path.join(copy.scratch, "demo.json")
        # Built already: the packages are a matter of the machine's owner.
        out = copy.run(["-c", "import os, sys; os.environ['ISWITCH_LAB'] = '1'; "
                        "os.execvp('unshare', ['unshare', '-rn', sys.executable, *sys.argv[1:]])",
                        os.path.join(copy.folder, "tools/demo"), "--seconds", "4", "--workers", "3",
                        "--build", os.path.join(copy.folder, "build"), "--json", figures], 90)
        check("bit-identical weights: yes" in out, f"the demo printed {out}")
        with open(figures) as file:
            equal(len(json.load(file)["runs"]), 3, "runs in the demo's figures")
        equal(os.listdir(copy.scratch), ["demo.json"], "what the demo left in the user's temporary folder")


def main():
    failed = 0
    for test in (end_to_end_tests_pass, the_demo_runs):
        started = time.monotonic()
        try:
            test()
            print(f"ok    {test.__name__}  {time.monotonic() - started:.1f} s", flush=True)
        except (AssertionError, OSError, ValueError, subprocess.TimeoutExpired) as problem:
            failed += 1
            print(f"FAIL  {test.__name__}: {type(problem).__name__}: {problem}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
