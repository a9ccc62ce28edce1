#!/usr/bin/env python3
"""Losses, duplicates, reordering and corruption on every cable, both directions: sums are exact and everything ends."""

import random

import harness
from harness import check, equal


def sums_are_exact_under(faults, ranks, elements, repeat):
    seed = faults["seed"]
    print(f"      seed {seed}, {faults}", flush=True)
    with harness.Switch(hosts=ranks, faults=faults, jobs=[harness.job(members=ranks, slots=64)]) as switch:
        vectors = [harness.integer_vector(random.Random(seed * 100 + rank), elements) for rank in range(ranks)]
        total = [sum(column) for column in zip(*vectors)]
        run = switch.all_reduce(vectors, extra=["--repeat", repeat], timeout=60)
        for rank, result in enumerate(run.sums()):
            equal(list(result), total, f"sum at rank {rank}, seed {seed}")
        counters = switch.counters()
        received = switch.received()
        reports = switch.cut_cables()
        for report in reports:
            for direction in ("forward", "backward"):
                if faults.get("loss"):
                    check(report[direction]["lost"] > 0, f"the cable lost nothing: {report}")
                equal(report[direction]["refused"], 0, "frames that the cable could not send")
        delivered = sum(report["forward"]["delivered"] for report in reports)
        check(received <= delivered, f"switchd counted {received} frames, the cables delivered {delivered}")
        segments = -(-elements // 360) * repeat
        check(counters["aggregate_completed"] >= segments, f"only {counters['aggregate_completed']} sums completed")
        check(counters["aggregate_added"] == counters["aggregate_completed"] * ranks,
              f"{counters['aggregate_added']} contributions in {counters['aggregate_completed']} sums of {ranks}")


def one_percent_loss_ten_percent_duplicates_reordering():
    for seed in (1, 2):
        sums_are_exact_under({"seed": seed, "loss": 0.01, "duplicate": 0.1, "reorder": 0.1}, 4, 10_244, 20)


def heavy_loss():
    sums_are_exact_under({"seed": 3, "loss": 0.1, "duplicate": 0.05, "reorder": 0.2}, 3, 3_000, 10)


def corruption():
    sums_are_exact_under({"seed": 4, "loss": 0.01, "corrupt": 0.02}, 3, 10_244, 20)


if __name__ == "__main__":
    harness.main(one_percent_loss_ten_percent_duplicates_reordering, heavy_loss, corruption)
