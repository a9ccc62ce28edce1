#!/usr/bin/env python3
"""What tests/e2e/test_python.py runs in a host: members of one job as threads of one process, a function a scenario.

usage: members.py SCENARIO; exit code 0 when all was as expected. A scenario that needs something done to the switch says so by a
line on stdout and goes on when it reads one from stdin. torch and numpy are used where they are there.
"""

import array
import ctypes
import gc
import os
import random
import sys
import threading
import time
import weakref

import iswitch

try:
    import numpy
except ImportError:
    numpy = None
try:
    import torch
except ImportError:
    torch = None


def check(condition, text):
    if not condition:
        raise AssertionError(text)


def equal(found, expected, what):
    check(found == expected, f"{what}: found {found!r}, expected {expected!r}")


def raised(kind, call, what):
    """Calls it and gives the exception, which must be of exactly this class."""
    try:
        call()
    except iswitch.Error as error:
        check(type(error) is kind, f"{what}: raised {type(error).__name__} ({error}), expected {kind.__name__}")
        check(str(error) and "\n" not in str(error), f"{what}: the text is not one line: {str(error)!r}")
        return error
    raise AssertionError(f"{what}: nothing was raised, expected {kind.__name__}")


def say(line):
    """Asks the test for something, and waits until it is done."""
    print(line, flush=True)
    equal(sys.stdin.readline().strip(), "done", f"answer to {line!r}")


def on_members(count, body, **options):
    """Joins `count` members and runs body(agent) on a thread each; the first failure is raised here."""
    failures = []

    def run(rank):
        try:
            with iswitch.join(rank=rank, size=count, **options) as agent:
                body(agent)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


MEMBERS = 2
LENGTHS = (0, 1, 359, 360, 361, 5000)


def values_of(rank, length):
    """Whole numbers: their sums and halves are exact in float32 in any order."""
    draw = random.Random(rank * 100_000 + length)
    return [float(draw.randint(-1000, 1000)) for _ in range(length)]


def kinds():
    """Each kind of vector: (name, make of a list, list of)."""
    yield "array", lambda values: array.array("f", values), list
    yield "ctypes", lambda values: (ctypes.c_float * len(values))(*values), list
    if numpy:
        yield "numpy", lambda values: numpy.array(values, numpy.float32), lambda vector: vector.tolist()
    if torch:
        yield "torch", lambda values: torch.tensor(values, dtype=torch.float32), lambda vector: vector.tolist()


def sums_and_means():
    def body(agent):
        equal(agent.size_expected, MEMBERS, "members of the job")
        for name, make, listed in kinds():
            for length in LENGTHS:
                what = f"{length} floats of {name}"
                vectors = [values_of(rank, length) for rank in range(MEMBERS)]
                total = [sum(column) for column in zip(*vectors)]
                own = make(vectors[agent.rank])
                out = make([7.0] * length)
                handle = agent.all_reduce(own, out)
                check(handle.wait() is out, f"wait() does not give the output, {what}")
                check(handle.done, f"not done after wait(), {what}")
                equal(listed(out), total, f"sum of {what}")
                equal(listed(own), vectors[agent.rank], f"input after the sum of {what}")
                equal((handle.partial, handle.smallest_workers), (False, MEMBERS) if length else (False, handle.smallest_workers),
                      f"partial and workers of {what}")
                check(agent.all_reduce(own, op="mean").wait() is own, f"wait() does not give the input, {what}")
                equal(listed(own), [value / MEMBERS for value in total], f"mean of {what}")
                data = make(vectors[agent.rank])
                agent.broadcast(data, root=1).wait()
                equal(listed(data), vectors[1], f"broadcast of {what}")
                equal(agent.barrier().wait(), None, "outcome of a barrier")
        # Read-only input, other shapes, and a mixture of kinds.
        read_only = memoryview(array.array("f", [1.0, 2.0]).tobytes()).cast("f")
        out = array.array("f", [0.0, 0.0])
        agent.all_reduce(read_only, out).wait()
        equal(list(out), [1.0 * MEMBERS, 2.0 * MEMBERS], "sum of a read-only buffer")
        if numpy and torch:
            matrix = numpy.full((3, 4), agent.rank + 1.0, numpy.float32)
            tensor = torch.zeros(2, 6)
            agent.all_reduce(matrix, tensor).wait()
            equal(tensor.tolist(), [[3.0] * 6] * 2, "sum of a matrix into a tensor of another shape")
        statistics = agent.statistics()
        check(statistics["operations_done"] > 0 and statistics["operations_failed"] == 0, f"statistics: {statistics}")

    on_members(MEMBERS, body)


def several_in_flight():
    """The operations' number is above what the agent looks at when it starts one; results are right though handles are dropped."""
    count, length = 200, 1000

    def body(agent):
        vectors = [array.array("f", [float(agent.rank + number)] * length) for number in range(count)]
        handles = [agent.all_reduce(vector, tag=number) if number % 2 else agent.all_reduce(vector, tag=number) and None
                   for number, vector in enumerate(vectors)]
        for handle in filter(None, reversed(handles)):
            handle.wait()
        agent.barrier().wait()
        for number, vector in enumerate(vectors):
            equal(list(vector), [1.0 + 2 * number] * length, f"sum {number} of those in flight")

    on_members(MEMBERS, body)


class Floats(array.array):
    """An array that may be referred to weakly."""


def buffers_live_until_done():
    turn = threading.Barrier(MEMBERS, timeout=60)

    def body(agent):
        if agent.rank == 0:
            vector = Floats("f", [1.0] * 5000)
            watched = weakref.ref(vector)
            agent.all_reduce(vector)  # nobody holds the handle
            del vector
            gc.collect()
            check(watched() is not None, "the vector of an operation under way was freed")
            check(raises_buffer_error(watched()), "the vector of an operation under way could be moved")
            turn.wait()
            agent.barrier().wait()
            agent.barrier().wait()  # starting it lets go of what is done
            gc.collect()
            check(watched() is None, "the vector is still held though its operation is done")
        else:
            turn.wait()
            agent.all_reduce(array.array("f", [1.0] * 5000)).wait()
            agent.barrier().wait()
            agent.barrier().wait()

    on_members(MEMBERS, body)


def raises_buffer_error(vector):
    try:
        vector.extend([0.0] * 100_000)
    except BufferError:
        return True
    return False


def waits_release_the_interpreter():
    """One member waits; meanwhile this process's other threads run, and wait(timeout) ends when it should."""
    turn = threading.Barrier(MEMBERS, timeout=60)

    def body(agent):
        vector = array.array("f", [1.0])
        if agent.rank == 0:
            handle = agent.all_reduce(vector)
            ticks, stop = [], threading.Event()

            def tick():
                while not stop.wait(0.001):
                    ticks.append(None)

            ticker = threading.Thread(target=tick)
            ticker.start()
            started = time.monotonic()
            error = raised(iswitch.Pending, lambda: handle.wait(0.5), "waiting for an operation that the other has not begun")
            took = time.monotonic() - started
            stop.set()
            ticker.join()
            check(isinstance(error, TimeoutError), "Pending is no TimeoutError")
            check(0.4 < took < 5, f"wait(0.5) took {took:.2f} s")
            # Held through each slice of a wait (100 ms), the interpreter would run the other thread a few times only.
            check(len(ticks) > 50, f"another thread ran only {len(ticks)} times during wait(0.5)")
            check(not handle.done, "done though the other member has not begun")
            raised(iswitch.Pending, lambda: handle.wait(0), "wait(0)")
            turn.wait()
            handle.wait()
            equal(list(vector), [2.0], "the sum at last")
        else:
            turn.wait()
            agent.all_reduce(vector).wait()

    on_members(MEMBERS, body)


def a_missing_member_is_named():
    over = threading.Barrier(MEMBERS, timeout=60)

    def body(agent):
        if agent.rank == 0:
            handle = agent.all_reduce(array.array("f", [1.0]), timeout=1)
            error = raised(iswitch.TimedOut, handle.wait, "an operation that member 1 never joins")
            equal(error.missing, (1,), "missing members")
            check(not isinstance(error, TimeoutError), "a failure must not look like a wait that may be repeated")
            raised(iswitch.TimedOut, handle.wait, "waiting for it again")
            raised(iswitch.TimedOut, lambda: handle.partial, "partial of a failed operation")
        over.wait()

    on_members(MEMBERS, body)


def a_mismatch_is_told():
    def body(agent):
        vector = array.array("f", [1.0] * (10 + agent.rank))
        raised(iswitch.Mismatch, agent.all_reduce(vector).wait, f"sums of different lengths, rank {agent.rank}")

    on_members(MEMBERS, body)


def a_reset_and_a_halt_are_told():
    turn = threading.Barrier(MEMBERS, timeout=60)

    def body(agent):
        agent.barrier().wait()
        if agent.rank == 0:
            handle = agent.all_reduce(array.array("f", [1.0]))
            say("reset")
            raised(iswitch.JobReset, handle.wait, "an operation under way at a reset")
        turn.wait()
        try:
            agent.barrier().wait()  # the job goes on
        except iswitch.JobReset:  # rank 0 may have heard of the reset first
            agent.barrier().wait()
        if agent.rank == 0:
            say("halt")
        turn.wait()
        raised(iswitch.Halted, agent.all_reduce(array.array("f", [1.0]), timeout=1.5).wait, "a sum in a halted job")

    on_members(MEMBERS, body)


def a_switch_that_ends_is_told():
    ended = threading.Barrier(MEMBERS, timeout=60)

    def body(agent):
        handle = agent.barrier()
        handle.wait()
        if agent.rank == 0:
            handle = agent.barrier(timeout=10)
            say("end the switch")
        ended.wait()
        if agent.rank == 0:
            raised(iswitch.SwitchGone, handle.wait, "an operation under way when the switch ends")

    on_members(MEMBERS, body)


def closed_agents_say_so():
    over = threading.Barrier(MEMBERS, timeout=60)

    def body(agent):
        vector = array.array("f", [1.0])
        agent.barrier().wait()
        if agent.rank == 0:
            child = os.fork()
            if child == 0:
                try:
                    raised(iswitch.Closed, lambda: agent.all_reduce(vector), "an operation in a forked child")
                    os._exit(0)
                except BaseException as problem:
                    print(problem, file=sys.stderr, flush=True)
                    os._exit(1)
            equal(os.waitpid(child, 0)[1], 0, "exit status of the forked child")
            handle = agent.all_reduce(vector)
            agent.leave()
            raised(iswitch.Closed, handle.wait, "an operation under way when its member leaves")
            raised(iswitch.Closed, lambda: agent.all_reduce(vector), "an operation after leave()")
            agent.close()
            agent.close()
        over.wait()

    on_members(MEMBERS, body)


def joins_are_refused():
    def body(agent):
        agent.barrier().wait()
        if agent.rank == 0:
            raised(iswitch.Refused, lambda: iswitch.join(rank=iswitch.ANY_RANK, join_timeout=1), "a third of two members")
        raised(iswitch.BadArgument, lambda: agent.broadcast(array.array("f", [1.0]), root=70_000), "a root beyond all ids")
        agent.barrier().wait()

    on_members(MEMBERS, body)
    raised(iswitch.Refused, lambda: iswitch.join(job=9, join_timeout=1), "a job that is not there")


def by_environment():
    """One rank, everything but the job named by the environment (RANK, WORLD_SIZE, ISWITCH_SWITCH, ISWITCH_KEY_FILE)."""
    with iswitch.join(job=2) as agent:
        equal(agent.rank, int(os.environ["RANK"]), "rank taken from the environment")
        vector = array.array("f", [1.0 + agent.rank])
        equal(list(agent.all_reduce(vector).wait()), [3.0], "sum of the two ranks")
        equal(agent.barrier().wait(), None, "a barrier")


def wrong_world_size():
    raised(iswitch.BadArgument, lambda: iswitch.join(job=2), "a job of another size than WORLD_SIZE")


def take_up(agent):
    """Who joined last may have joined a job that runs already; here nothing has happened in it."""
    found = agent.next(0.3)
    if found is not None:
        check(isinstance(found, iswitch.Event) and found.kind == "joined" and found.untouched, f"before the first push: {found}")
        agent.resume(*agent.numbers())


def pushes_and_updates():
    """Every push is in exactly one update a segment, and all members end with the same sum of all pushes."""
    elements, pushes = 1000, 30
    gradients = [[values_of(rank * 1000 + number, elements) for number in range(pushes)] for rank in range(MEMBERS)]
    total = [sum(column) for column in zip(*(gradient for own in gradients for gradient in own))]
    together = threading.Barrier(MEMBERS, timeout=60)

    def body(agent):
        together.wait()
        take_up(agent)
        together.wait()
        weights = [0.0] * elements
        segments = -(-elements * 4 // agent.segment_bytes)
        equal(len(agent.numbers()[1]), segments, "segments")
        last, workers, handles = agent.numbers()[1], [0] * segments, []
        end = time.monotonic() + 60
        while min(workers) < pushes * MEMBERS:
            check(time.monotonic() < end, f"pushes in the updates, a segment each, after a minute: {workers}")
            if len(handles) < pushes and (len(handles) < 2 or handles[-2].done):
                handles.append(agent.push(array.array("f", gradients[agent.rank][len(handles)])))
            update = agent.next(0.1)
            if update is None:
                continue
            check(isinstance(update, iswitch.Update), f"instead of an update: {update}")
            last[update.segment] = (last[update.segment] + 1) & 0xFFFFFFFF
            equal(update.number, last[update.segment], f"number of an update of segment {update.segment}")
            equal(update.first, update.segment * agent.segment_bytes // 4, "first element")
            workers[update.segment] += update.workers
            for offset, value in enumerate(update.values):
                weights[update.first + offset] += value
        for handle in handles:
            handle.wait()
        equal(len(handles), pushes, "pushes made")
        equal(workers, [pushes * MEMBERS] * segments, "pushes in the updates")
        equal(weights, total, f"weights of rank {agent.rank}")
        equal(agent.numbers()[1], last, "numbers at the end")
        equal(agent.next(0.2), None, "what comes after the last update")
        raised(iswitch.BadArgument, lambda: agent.push(array.array("f", [1.0])), "a push of another length")
        together.wait()

    on_members(MEMBERS, body, async_elements=elements)


def a_reset_is_an_event():
    together = threading.Barrier(MEMBERS, timeout=60)

    def body(agent):
        together.wait()
        take_up(agent)
        together.wait()
        push = agent.push(array.array("f", [1.0] * 10))
        if agent.rank == 0:
            agent.request_reset()
        together.wait()
        end = time.monotonic() + 30
        while not isinstance(found := agent.next(0.1), iswitch.Event):
            check(time.monotonic() < end, "no event within 30 s of a reset")
        equal(found.kind, "reset", "kind of the event")
        check(found.text and "\n" not in found.text, f"text of the event: {found.text!r}")
        # Whether the first push came through before the reset is open; one made now does not.
        try:
            push.wait()
        except iswitch.JobReset:
            pass
        together.wait()
        base_round, numbers = agent.numbers()
        equal((base_round, numbers), (found.base_round, [found.base_round]), "numbers between the event and resume()")
        agent.resume(base_round, numbers)
        together.wait()
        push = agent.push(array.array("f", [1.0 + agent.rank] * 10))
        while (update := agent.next(0.1)) is None:
            check(time.monotonic() < end, "no update within 30 s of a reset")
        equal((update.values.tolist(), update.workers), ([3.0] * 10, 2), "the first update after the reset")
        push.wait()
        together.wait()

    on_members(MEMBERS, body, async_elements=10)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
