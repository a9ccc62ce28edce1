"""What the benchmarks' scripts share: quantiles, tables, huge pages for a run, the machine's name."""

import contextlib
import json
import os
import platform
import statistics


def quantile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def summary(values):
    """The median, and the spread between the tenth and the ninetieth of a hundred."""
    return {"median": statistics.median(values), "p10": quantile(values, 0.1),
            "p90": quantile(values, 0.9), "samples": len(values)}


def spread(figure, digits=1):
    return f"{figure['median']:.{digits}f} [{figure['p10']:.{digits}f}, {figure['p90']:.{digits}f}]"


def print_table(head, rows):
    rows = [head, *rows]
    widths = [max(len(str(row[i])) for row in rows) for i in range(len(head))]
    for row in rows:
        print("  ".join(str(cell).rjust(width) for cell, width in zip(row, widths)))


def machine():
    name = platform.processor() or "unknown processor"
    with open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                name = line.split(":", 1)[1].strip()
                break
    return {"processor": name, "cpus": len(os.sched_getaffinity(0)), "kernel": platform.release()}


def write_json(path, value):
    with open(path, "w") as file:
        json.dump(value, file, indent=1)
        file.write("\n")


@contextlib.contextmanager
def huge_pages(mebibytes):
    """Reserves so many of 2 MiB pages beside those there are, as far as the rights and the memory go,
    and gives them back. Yields whether they are there."""
    path = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
    try:
        with open(path) as file:
            before = int(file.read())
        wanted = before + mebibytes // 2
        with open(path, "w") as file:
            file.write(str(wanted))
        with open(path) as file:
            there = int(file.read()) >= wanted
    except OSError:
        yield False
        return
    try:
        yield there
    finally:
        with open(path, "w") as file:
            file.write(str(before))


def pyplot():
    """matplotlib's pyplot, or None and a line that says what is missing."""
    try:
        import matplotlib
        matplotlib.use("svg")
        from matplotlib import pyplot
        return pyplot
    except ImportError:
        print("no plot: python3-matplotlib is not installed")
        return None
