#!/usr/bin/env python3
"""Workers and switches that vanish: errors that name who is missing, within the deadline; places that are taken again."""

import random
import time

import harness
from harness import check, equal


def vectors_for(ranks, elements=5_000, seed=1):
    vectors = [harness.integer_vector(random.Random(seed * 10 + rank), elements) for rank in range(ranks)]
    return vectors, [sum(column) for column in zip(*vectors)]


def a_killed_worker_is_named_and_its_place_taken_again():
    with harness.Switch(hosts=3, jobs=[harness.job(members=3, member_timeout_ms=1000)]) as switch:
        vectors, total = vectors_for(3)
        run = switch.all_reduce(vectors, extra=["--repeat", 1_000_000], timeout=5)
        harness.eventually("the job runs", lambda: switch.job_state()["state"] == "running")
        time.sleep(0.5)
        victim = run.ranks[1][0]
        victim.kill()
        killed = time.monotonic()
        ends = run.finish()
        took = time.monotonic() - killed
        for rank in (0, 2):
            code, err = ends[rank]
            check(code not in (0, -9), f"rank {rank} did not fail (exit code {code})")
            equal(len(err.splitlines()), 1, f"lines of rank {rank}'s error ({err!r})")
            check("member 1" in err or "members 1" in err, f"rank {rank}'s error does not name member 1: {err}")
        check(took < 5 + 3 * harness.SLOW, f"the survivors needed {took:.1f} s to fail with a deadline of 5 s")
        # The same job goes on with a whole new set of workers, rank 1 in the dead one's place.
        for rank, result in enumerate(switch.all_reduce(vectors, timeout=20).sums()):
            equal(list(result), total, f"sum at rank {rank} after the replacement")


def a_killed_switch_is_reported_and_the_next_one_joined():
    with harness.Switch(hosts=2) as switch:
        vectors, total = vectors_for(2)
        run = switch.all_reduce(vectors, extra=["--repeat", 1_000_000], timeout=4)
        harness.eventually("the job runs", lambda: switch.job_state()["state"] == "running")
        time.sleep(0.3)
        switch.kill()
        killed = time.monotonic()
        for rank, (code, err) in enumerate(run.finish()):
            check(code != 0, f"rank {rank} did not fail")
            check("gone" in err or "does not answer" in err, f"rank {rank}'s error does not say that the switch is gone: {err}")
        took = time.monotonic() - killed
        check(took < 4 + 3 * harness.SLOW, f"the workers needed {took:.1f} s to fail with a deadline of 4 s")
        switch.start()
        for rank, result in enumerate(switch.all_reduce(vectors, timeout=20).sums()):
            equal(list(result), total, f"sum at rank {rank} through the next switch")


def a_switch_that_ends_in_order_tells_its_agents_at_once():
    with harness.Switch(hosts=2) as switch:
        vectors, _ = vectors_for(2)
        run = switch.all_reduce(vectors, extra=["--repeat", 1_000_000, "--resume-within", 0], timeout=60)
        harness.eventually("the job runs", lambda: switch.job_state()["state"] == "running")
        time.sleep(0.3)
        switch.end()
        ended = time.monotonic()
        for rank, (code, err) in enumerate(run.finish()):
            check(code != 0, f"rank {rank} did not fail")
        check(time.monotonic() - ended < 5 * harness.SLOW, "the Leave notice was not heeded")


def two_jobs_do_not_touch_each_other():
    jobs = [harness.job(1, 2), harness.job(2, 2, member_timeout_ms=300)]
    with harness.Switch(hosts=4, jobs=jobs) as switch:
        vectors, total = vectors_for(2, 20_000)
        steady = switch.all_reduce(vectors, extra=["--repeat", 300], timeout=60)
        disturbances = 0
        while any(process.poll() is None for process, _ in steady.ranks):
            other, _ = vectors_for(2, 3_000, seed=disturbances + 2)
            unsteady = switch.all_reduce(other, host_of=lambda rank: rank + 2, number=2, extra=["--repeat", 1_000_000], timeout=10)
            time.sleep(0.2)
            if disturbances % 2 == 0:
                switch.ask("reset", job=2)
            unsteady.ranks[disturbances % 2][0].kill()
            for process, _ in unsteady.ranks:
                process.kill()
                process.communicate()
            disturbances += 1
        check(disturbances >= 1, "the other job was never disturbed")
        for rank, result in enumerate(steady.sums()):
            equal(list(result), total, f"sum of job 1 at rank {rank} beside {disturbances} crashes of job 2")


def two_workers_on_one_host_and_address():
    with harness.Switch(hosts=2) as switch:
        vectors, total = vectors_for(2)
        for rank, result in enumerate(switch.all_reduce(vectors, host_of=lambda rank: 0).sums()):
            equal(list(result), total, f"sum at rank {rank}")


if __name__ == "__main__":
    harness.main(a_killed_worker_is_named_and_its_place_taken_again, a_killed_switch_is_reported_and_the_next_one_joined,
                 a_switch_that_ends_in_order_tells_its_agents_at_once, two_jobs_do_not_touch_each_other,
                 two_workers_on_one_host_and_address)
