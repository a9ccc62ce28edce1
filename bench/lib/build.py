"""The build that a benchmark runs: made if need be, optimised, in a folder of its own."""

import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class BuildError(Exception):
    """One line."""


def add_arguments(parser):
    parser.add_argument("--build", default=os.path.join(ROOT, "build", "bench"), help="build folder (default build/bench)")
    parser.add_argument("--no-build", action="store_true", help="take the build folder as it is")
    parser.add_argument("--out", help="folder of the JSON and SVG files (default: the build folder)")


def make(options):
    """Installs and builds what is missing, unless it is told not to."""
    options.build = os.path.abspath(options.build)
    options.out = os.path.abspath(options.out or options.build)

    def run(*command):
        done = subprocess.run(command, stdout=sys.stderr)
        if done.returncode != 0:
            raise BuildError(f"{' '.join(command)} failed with exit code {done.returncode}")

    if not options.no_build:
        run(os.path.join(ROOT, "tools", "setup"), "--bench")
        if not os.path.exists(os.path.join(options.build, "build.ninja")):
            run("meson", "setup", options.build, ROOT, "--buildtype=release", "-Drl=disabled")
        run("ninja", "-C", options.build)
    os.makedirs(options.out, exist_ok=True)
