#!/usr/bin/env python3
"""switchd against docs/protocol.md, sentence by sentence, spoken to by the client in client.py and by raw frames.

Each test here is a group of scenarios over one switchd; each scenario has a job of its own. A scenario that fails does not
keep the others from running; the group fails with all that was found.
"""

import contextlib
import itertools
import os
import random
import struct
import time

import client
import harness
from client import *  # noqa: F403: the protocol's names
from harness import check, equal, eventually

ONE, TWO, THREE = client.pack_floats([1.0, 2.0]), client.pack_floats([10.0, 20.0]), client.pack_floats([100.0, 200.0])


def scenario(**config):
    """The job's config that a scenario needs; two members unless it says otherwise."""
    def mark(function):
        function.config = {"members": 2, "slots": 32, "base_round": 1000, **config}
        return function
    return mark


def u32s(*values):
    return struct.pack(f"!{len(values)}I", *values)


def u16(value):
    return struct.pack("!H", value)


class Bench:
    """What a scenario works with: hosts, its job, its workers."""

    def __init__(self, switch, hosts, number, config):
        self.switch, self.hosts, self.number, self.config = switch, hosts, number, config
        self.key = None
        if "key_file" in config:
            with open(config["key_file"], "rb") as file:
                self.key = file.read()

    def worker(self, host, **more):
        made = Worker(self.hosts[host], **{"job": self.number, "key": self.key, "patience": 4 * harness.SLOW, **more})
        WORKERS.append(made)
        return made

    def members(self, count=None, hosts=None):
        """The job's workers, joined until it runs."""
        made = [self.worker(i if hosts is None else hosts[i]) for i in range(count or self.config["members"])]
        for worker in made:
            equal(worker.join().status, OK, "status of a first Join")
        for worker in made:
            equal(worker.join().state, RUNNING, "state when all have joined")
        equal([worker.member for worker in made], list(range(len(made))), "member ids in order of joining")
        return made

    def in_sum(self, *members, segment=0):
        """Waits until these are in the segment's open sum."""
        def there():
            rows = [row for row in self.switch.ask("slots", job=self.number)["slots"] if row["segment"] == segment]
            return [row["members"] for row in rows] == ([list(members)] if members else [])
        eventually(f"members {members} in the open sum of segment {segment}", there)

    def in_order(self, workers, round_, payloads, segment=0, **more):
        """One contribution after the other, so that the order of arrival is known."""
        before = self.switch.counters()["aggregate_added"]
        for number, (worker, payload) in enumerate(zip(workers, payloads)):
            worker.contribute(round_, segment, payload, **more)
            eventually("the contribution is added", lambda: self.switch.counters()["aggregate_added"] == before + number + 1)

    @contextlib.contextmanager
    def counted(self, frames=None, **expected):
        """Around sending: these counters grow by so much, and with `frames` all terminal counters together by that."""
        before, received = self.switch.counters(), self.switch.received()
        yield
        if frames is not None:
            eventually(f"{frames} frames end in a terminal counter", lambda: self.switch.received() >= received + frames, 4)

        def found():
            now = self.switch.counters()
            return {name: now[name] - before[name] for name in expected}
        try:
            eventually("counters", lambda: found() == expected, 5)
        except harness.Failed:
            now = self.switch.counters()
            raise harness.Failed(f"counters: expected {expected}, grew: { {n: now[n] - before[n] for n in now if now[n] != before[n]} }")
        if frames is not None:
            equal(self.switch.received() - received, frames, "sum of the terminal counters")


WORKERS = []  # their sockets stay open until the switch has ended: no ICMP errors towards it


def quiet(*workers):
    for worker in workers:
        equal(worker.rest(), [], f"what member {worker.member} of job {worker.job} got")


def run(*scenarios, hosts=3, **more):
    jobs, failed = [], []
    with harness.Switch(hosts=hosts, jobs=[], start=False, **more) as switch:
        path = switch.net.path("key")
        with open(path, "wb") as file:
            file.write(KEY)
        os.chmod(path, 0o600)
        for number, one in enumerate(scenarios, 1):
            if one.config.get("key_file"):
                one.config["key_file"] = path
            jobs.append({"id": number, **one.config})
        switch.config["jobs"] = jobs
        for i in range(hosts):
            switch.net.run(["ip", "neigh", "replace", client.SWITCH_IP, "lladdr", client.SWITCH_MAC, "dev", "eth0", "nud", "permanent"],
                           host=i)
        switch.start()
        ends = [Host(switch.net.hosts[i], switch.net.mac(i)) for i in range(hosts)]
        for job, one in zip(jobs, scenarios):
            started = time.monotonic()
            try:
                one(Bench(switch, ends, job["id"], job))
                print(f"    ok    {one.__name__}  {time.monotonic() - started:.2f} s", flush=True)
            except AssertionError as problem:
                failed.append(f"{one.__name__}: {problem}")
                print(f"    FAIL  {failed[-1]}", flush=True)
            switch.ask("remove-job", job=job["id"])
        equal(switch.ask("status")["ok"], True, "status after all")
    for worker in WORKERS:
        worker.socket.close()
    WORKERS.clear()
    for end in ends:
        end.close()
    check(not failed, f"{len(failed)} of {len(scenarios)} scenarios: " + "; ".join(failed))


KEY = bytes(range(32))


# ---- the client itself

def client_speaks_the_vectors():
    """Frames of the project's wire vectors, taken apart and put together."""
    contribution = Received(bytes.fromhex(
        "0200000000fe020000000100080045ae005200004000401124550a4d00010a4d00fe9c414312003e428b1000000100000000000500000007deadbeef00000001"
        "0000803f000020c0f4fd543b00000080caf2497100e07f4701000000cdcccc3d"))
    check(contribution.ip_right and contribution.udp_right, "checksums of the contribution")
    equal((contribution.kind, contribution.job, contribution.round, contribution.segment, contribution.set),
          (CONTRIBUTION, 1, 5, 7, 0xDEADBEEF00000001), "fields of the contribution")
    equal(frame(contribution.packet, ("10.77.0.1", 40001), source_mac="02:00:00:00:01:00"), contribution.raw, "the frame made again")
    join = Received(bytes.fromhex(
        "0200000000fe020000000103080045bc005200004000401124440a4d00040a4d00fe9c444312003eb47812010001ffff0000004d0000000000060a24181e4001"
        "0000000000030000000005a05eed000126cc7c8c2af3b03a21e24547dd7eb9ae"))
    check(join.tagged(KEY, "10.77.0.4", 40004), "tag of the Join")
    equal(operation_tag(0, 0, 0, 10244, 0), 3111314972, "operation tag of a sum")
    equal(operation_tag(1, 0, 3, 1681062, 7), 2712113654, "operation tag of a broadcast")
    equal(add(0x3F800000, 0x33800000), 0x3F800000, "a tie goes to even")
    equal(add(0x7F7FFFFF, 0x7F7FFFFF), 0x7F800000, "overflow")
    equal(add(0x7F800000, 0xFF800000), 0x7FC00000, "infinity less infinity")
    equal(add(0x00000001, 0x00000001), 0x00000002, "subnormals")


# ---- section 4 and the frames of results

@scenario()
def result_frame_and_replay(bench):
    a, b = bench.members()
    a.contribute(0, 3, ONE)
    b.contribute(0, 3, TWO)
    for worker in (a, b):
        worker.first = got = worker.result(0, 3)
        equal((got.destination_mac, got.source_mac), (worker.host.mac, client.SWITCH_MAC), "MAC addresses")
        equal((got.ip_version, got.ihl, got.tos, got.ttl, got.fragment, got.identification), (4, 5, 0xAE, 64, 0x4000, 0), "IPv4 fields")
        equal((got.source, got.destination), (client.SWITCH_IP, worker.host.ip), "addresses")
        equal((got.source_port, got.destination_port), (client.PORT, worker.port), "UDP ports")
        check(got.ip_right and got.udp_right, "checksums of a result")
        equal((got.version, got.kind, got.flags, got.job, got.member, got.set), (1, RESULT, 0, bench.number, 2, 3), "header of a result")
        equal(got.floats, [11.0, 22.0], "the sum")
        equal(len(got.raw), max(14 + got.total_length, 0), "bytes of the frame")
    for flags in (0, RETRANSMIT):
        with bench.counted(frames=2, aggregate_replayed=1):  # and a Ping's frame
            b.contribute(0, 3, TWO, flags=flags)
            equal([f.raw for f in b.rest()], [b.first.raw], "a result sent again is the same bytes")
        quiet(a)
    with bench.counted(aggregate_replayed=1):
        a.contribute(0, 3, b"")  # same operation tag, whatever the length
    equal([f.raw for f in a.rest()], [a.first.raw], "replay to an empty copy")
    quiet(b)


@scenario()
def kept_result_other_tag(bench):
    a, b = bench.members()
    for worker, payload in ((a, ONE), (b, TWO)):
        worker.contribute(0, 0, payload, tag=5)
    a.result(0), b.result(0)
    with bench.counted(aggregate_drop_mismatch=1, aggregate_replayed=0):
        a.contribute(0, 0, ONE, tag=6)
    notice = a.notice(MISMATCH)
    equal(notice.missing, 0 << 32 | 1000, "missing of a mismatch: segment and round")
    b.notice(MISMATCH)  # a member in the sum
    quiet(a, b)
    b.contribute(0, 0, b"", tag=5)
    equal(b.result(0).floats, [11.0, 22.0], "the kept result is as it was")


@scenario()
def open_duplicate(bench):
    a, b = bench.members()
    a.contribute(0, 1, ONE)
    bench.in_sum(0, segment=1)
    with bench.counted(aggregate_drop_duplicate=4, aggregate_drop_mismatch=0, aggregate_added=0):
        a.contribute(0, 1, ONE)
        a.contribute(0, 1, ONE, flags=RETRANSMIT)
        a.contribute(0, 1, ONE + TWO)  # the row of the duplicate comes before that of the mismatch
        a.contribute(0, 1, ONE, tag=99)
    quiet(a, b)
    b.contribute(0, 1, TWO)
    equal(a.result(0, 1).floats, [11.0, 22.0], "the sum without the copies")


@scenario(members=3)
def open_other_length(bench):
    a, b, c = bench.members()
    a.contribute(0, 2, ONE)
    bench.in_sum(0, segment=2)
    with bench.counted(aggregate_drop_mismatch=1):
        b.contribute(0, 2, ONE + TWO)
    for worker in (a, b):
        equal(worker.notice(MISMATCH).missing, 2 << 32 | 1000, "missing of a mismatch")
    quiet(a, b, c)  # c has no part in it
    c.contribute(0, 2, b"")
    b.contribute(0, 2, TWO)
    for worker in (a, b, c):
        got = worker.result(0, 2)
        equal((got.floats, got.member, got.set), ([11.0, 22.0], 3, 7), "the sum of the right ones")


@scenario(members=3)
def open_other_tag(bench):
    a, b, c = bench.members()
    a.contribute(0, 2, ONE, tag=7)
    bench.in_sum(0, segment=2)
    with bench.counted(aggregate_drop_mismatch=1):
        b.contribute(0, 2, TWO, tag=8)
    for worker in (a, b):
        notice = worker.notice(MISMATCH)
        equal((notice.missing, notice.action, notice.round), (2 << 32 | 1000, PING, 0), "missing, action and request id of a notice")
        check(notice.udp_right and notice.ip_right, "checksums of a notice")
        equal((notice.tos, notice.fragment, notice.identification, notice.ttl, notice.source_port, notice.tag),
              (0xBC, 0x4000, 0, 64, client.PORT, bytes(16)), "frame of a notice")
    quiet(c)
    time.sleep(1.1)  # the limit of notices
    with bench.counted(aggregate_drop_mismatch=1):
        c.contribute(0, 2, b"", tag=8)  # an empty one has a tag as well
    for worker in (a, c):
        worker.notice(MISMATCH)
    for worker in (b, c):
        worker.contribute(0, 2, TWO, tag=7)
    equal(a.result(0, 2).floats, [21.0, 42.0], "the sum")


@scenario(members=3)
def empty_contributions(bench):
    a, b, c = members = bench.members()
    for worker in members:
        worker.contribute(0, 0)
    for worker in members:
        got = worker.result(0)
        equal((got.body, got.member, got.set, got.flags), (b"", 3, 7, 0), "a sum of empties")
    bench.in_order((a, b), 1, (b"", TWO))
    with bench.counted(aggregate_drop_mismatch=1):
        c.contribute(1, 0, ONE + ONE)  # b's set the length
    c.contribute(1, 0, ONE)
    equal(a.result(1).floats, [11.0, 22.0], "empty, then the first non-empty sets the length")
    for worker, payload in ((a, b""), (b, TWO), (c, b"")):
        worker.contribute(2, 0, payload)
    equal([(w.result(2).floats, w.result(1).round) for w in (b, c)], [([10.0, 20.0], 1001)] * 2, "a broadcast")
    for worker in members:
        worker.contribute(3, 0)
    equal(a.result(3).body, b"", "no data left from the round before")


@scenario()
def ahead(bench):
    a, b = bench.members()
    with bench.counted(aggregate_drop_ahead=4, aggregate_opened=0):
        for round_ in (1, 2, 1000, (1 << 31) - 2):
            a.contribute(round_, 0, ONE)
    a.contribute(0, 0, ONE)
    bench.in_sum(0)
    with bench.counted(aggregate_drop_ahead=2):
        a.contribute(1, 0, ONE)
        b.contribute(1, 0, ONE)
    quiet(a, b)
    b.contribute(0, 0, TWO)
    equal([w.result(0).floats for w in (a, b)], [[11.0, 22.0]] * 2, "the sum")
    with bench.counted(aggregate_drop_ahead=1):
        a.contribute(2, 0, ONE)


@scenario()
def stale(bench):
    a, b = bench.members()
    with bench.counted(aggregate_drop_stale=1):
        b.contribute(-1, 4, ONE)  # an unused slot: as if its last round were base_round - 1, with no result kept
    equal(b.notice(GONE).missing, 4 << 32 | 999, "missing of a 7: segment and round")
    for round_ in (0, 1):
        for worker in (a, b):
            worker.contribute(round_, 4, ONE)
        a.result(round_, 4), b.result(round_, 4)
    with bench.counted(aggregate_drop_stale=1):
        a.contribute(0, 4, ONE)  # history is 1
    notice = a.notice(GONE)
    equal((notice.missing, notice.base_round, notice.state), (4 << 32 | 1000, 1000, RUNNING), "a 7: missing, base_round, state")
    quiet(a, b)
    b.contribute(1, 4, ONE)
    equal(b.result(1, 4).floats, [2.0, 4.0], "the last is kept")


@scenario(members=3)
def arrival_order_to_the_bit(bench):
    members = bench.members()
    values = [[0x4CBEBC20, 0x3F800000, 0x7F7FFFFF, 0x80000000],  # 1e8, 1, the greatest, -0.0
              [0x3F800000, 0x33800000, 0x7F7FFFFF, 0x80000000],
              [0xCCBEBC20, 0x33800000, 0xFF7FFFFF, 0x80000000]]
    for segment, order in enumerate(itertools.permutations(range(3))):
        bench.in_order([members[i] for i in order], 0, [pack_bits(values[i]) for i in order], segment)
        expected = sum_bits([values[i] for i in order])
        for worker in members:
            equal(worker.result(0, segment).bits, expected, f"bits after arrival in order {order}")


@scenario(members=3, segment_bytes=1440)
def random_floats_to_the_bit(bench):
    members = bench.members()
    dice = random.Random(7)
    special = [0, 0x80000000, 1, 0x80000001, 0x007FFFFF, 0x00800000, 0x80800000, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000,
               0x7FC00000, 0x7F800001, 0xFFC12345, 0x3F800000, 0xBF800000]
    for round_ in range(3):
        vectors = [[dice.choice((dice.getrandbits(32), dice.choice(special), 0x3F000000 + dice.getrandbits(25))) for _ in range(360)]
                   for _ in members]
        bench.in_order(members, round_, map(pack_bits, vectors))
        expected = sum_bits(vectors)
        for worker in members:
            found = worker.result(round_).bits
            wrong = [(i, [hex(v[i]) for v in vectors], hex(found[i]), hex(expected[i])) for i in range(360) if found[i] != expected[i]]
            equal(wrong[:3], [], "elements that differ: index, contributions, found, expected")


@scenario(members=1)
def special_values_alone(bench):
    """A sum starts from 0.0: even the first contribution is added."""
    a, = bench.members()
    cases = ((0x80000000, 0), (0x7F800001, 0x7FC00000), (0xFFFFFFFF, 0x7FC00000), (1, 1), (0x807FFFFF, 0x807FFFFF),
             (0xFF800000, 0xFF800000), (0x7F7FFFFF, 0x7F7FFFFF))
    a.contribute(0, 0, pack_bits([given for given, _ in cases]))
    got = a.result(0)
    equal([hex(b) for b in got.bits], [hex(b) for _, b in cases], "bits of a sum of one")
    equal((got.member, got.set), (1, 1), "workers and bitmap")


@scenario(history=3)
def history_of_three(bench):
    a, b = bench.members()
    first = {}
    for round_ in range(5):
        for worker in (a, b):
            worker.contribute(round_, 0, pack_floats([round_ + 1.0]))
        first[round_] = a.result(round_).raw
        b.result(round_)
    for round_ in (4, 2, 3):
        a.contribute(round_, 0, pack_floats([round_ + 1.0]), flags=RETRANSMIT)
        equal([f.raw for f in a.rest()], [first[round_]], f"replay of round {round_}, newest 4, history 3")
    with bench.counted(aggregate_drop_stale=1):
        a.contribute(1)
    equal(a.notice(GONE).missing, 1001, "missing")
    a.contribute(5, 0, ONE)
    bench.in_sum(0)
    b.contribute(2, 0)
    equal(b.result(2).floats, [6.0], "replay while a sum is open")
    b.contribute(5, 0, ONE)
    equal(a.result(5).floats, [2.0, 4.0], "and that sum is as it was")
    b.result(5)
    quiet(b)


@scenario(members=3, threshold=2)
def threshold_and_straggler(bench):
    a, b, c = members = bench.members()
    equal((c.ask(PING).threshold, c.ask(PING).history), (2, 8), "threshold, and history of a job whose config lowers it")
    for round_ in range(9):
        a.contribute(round_, 0, ONE)
        bench.in_sum(0)
        b.contribute(round_, 0, TWO)
        got = [worker.result(round_) for worker in members]
        equal([(g.floats, g.member, g.set, g.flags) for g in got], [([11.0, 22.0], 2, 3, 0)] * 3, "the result, to the straggler as well")
        if round_ == 0:
            first = got[2]
    c.contribute(1, 0, THREE)
    equal(c.result(1).set, 3, "the straggler is answered with the finished result")
    quiet(a, b, c)
    with bench.counted(aggregate_drop_stale=1):
        c.contribute(0, 0, THREE)
    equal(c.notice(GONE).missing, first.round, "one that falls further behind learns that it is gone")


@scenario(base_round=(1 << 32) - 2)
def rounds_wrap(bench):
    a, b = bench.members()
    equal(a.base, (1 << 32) - 2, "base_round of the config")
    for round_ in range(4):
        with bench.counted(aggregate_drop_ahead=1):
            a.contribute(round_ + 1, 0, ONE)
        for worker in (a, b):
            worker.contribute(round_, 0, ONE)
        equal([w.result(round_).floats for w in (a, b)], [[2.0, 4.0]] * 2, f"round base + {round_}")
    with bench.counted(aggregate_drop_stale=1):
        a.contribute(1, 0, ONE)
    equal(a.notice(GONE).missing, 0xFFFFFFFF, "missing")
    reply = a.ask(RESET, bytes(4))
    check(newer(reply.base_round, 2), f"base_round {reply.base_round} is at least 2 later than round 1, past the wrap")


@scenario(members=3)
def ecn(bench):
    a, b, c = members = bench.members()
    rounds = itertools.count()
    for what, ways in (("CE on one", ({}, {"ecn": CE}, {})), ("none", ({},) * 3), ("ECN-ECHO in one", ({"flags": ECN_ECHO}, {}, {})),
                       ("Not-ECT", ({"ecn": 0},) * 3), ("ECT(1)", ({"ecn": 1},) * 3), ("CE on the last", ({}, {}, {"ecn": CE}))):
        round_ = next(rounds)
        for worker, way in zip(members, ways):
            worker.contribute(round_, 0, ONE, **way)
        expected = ECN_ECHO if "CE" in what or "ECHO" in what else 0
        for worker in members:
            got = worker.result(round_)
            equal((got.flags, got.tos), (expected, 0xAE), f"flags and ToS of the result; {what}")
    last = next(rounds) - 1
    a.contribute(last, 0, ONE)
    equal(a.result(last).flags, ECN_ECHO, "flags of a replay")


@scenario()
def slots_are_independent(bench):
    a, b = bench.members()
    for segment in range(32):
        a.contribute(0, segment, pack_floats([float(segment)]))
    for segment in reversed(range(32)):
        b.contribute(0, segment, pack_floats([0.5]))
        equal(a.result(0, segment).floats, [segment + 0.5], f"segment {segment}")
    a.contribute(1, 31, ONE)
    b.contribute(0, 0, b"")
    equal(b.result(0, 0).floats, [0.5], "another slot's progress matters not")


@scenario(members=3)
def two_members_on_one_address(bench):
    a, b, c = members = bench.members(hosts=(0, 0, 1))
    for worker, payload in zip(members, (ONE, TWO, THREE)):
        worker.contribute(0, 0, payload)
    for worker in members:
        got = worker.result(0)
        equal((got.floats, got.set, got.destination_port), ([111.0, 222.0], 7, worker.port), "the sum, one to each")
    with bench.counted(classify_drop_not_a_member=1):
        a.contribute(1, 0, ONE, member=1)  # its neighbour's id
    a.notice(NOT_MEMBER)


@scenario()
def third_party(bench):
    a, b = bench.members(hosts=(0, 1))
    a.contribute(0, 0, ONE)
    bench.in_sum(0)
    stranger, neighbour = bench.worker(2, member=1), bench.worker(1, member=1)  # another address; b's address, another port
    with bench.counted(classify_drop_not_a_member=2, aggregate_added=0):
        for thief in (stranger, neighbour):
            thief.base = b.base
            thief.contribute(0, 0, THREE)
    for thief in (stranger, neighbour):
        notice = thief.notice(NOT_MEMBER)
        equal((notice.action, notice.round, notice.destination_port), (PING, 0, thief.port), "action, request id and port of a status 2")
    with bench.counted(frames=2, classify_drop_not_a_member=2, aggregate_added=0):
        stranger.host.send_raw(b.frame(b.data(b.base, 0, THREE)))  # b's address and port from another ingress port
        b.host.send_raw(b.frame(b.data(b.base, 0, THREE), source=("10.77.0.99", b.port)))
    first = stranger.rest()
    time.sleep(1.1)
    stranger.contribute(0, 0, THREE)
    second = stranger.notice(NOT_MEMBER)
    check(second.set > notice.set, f"the nonce of notices only grows: {notice.set}, then {second.set}; {first}")
    for action, body in ((SETH, u16(1)), (RESET, u32s(0)), (FBCAST, u32s(0, a.base)), (HALT, b""),
                         (RESUME, b""), (LEAVE, b""), (HELP, u32s(0, a.base)), (PING, b"")):
        equal(stranger.ask(action, body).status, NOT_MEMBER, f"status of action {action} with a member's id from elsewhere")
    b.contribute(0, 0, TWO)
    for worker in (a, b):
        got = worker.result(0)
        equal((got.floats, got.set, got.flags, got.round), ([11.0, 22.0], 3, 0, 1000), "the sum")
    equal(a.ask(PING).members, 2, "members")


@scenario()
def frames_taken_as_they_are(bench):
    """Padding is ignored, UDP checksum 0 means none, the destination MAC is not looked at."""
    a, b = bench.members()
    a.host.send_raw(a.frame(a.data(a.base, 0, ONE)) + b"\xEE" * 7)
    b.host.send_raw(b.frame(b.data(b.base, 0, TWO), udp_checksum=0))
    equal(a.result(0).floats, [11.0, 22.0], "padded and without checksum")
    for round_, mac in ((1, "02:77:77:77:77:77"), (2, "ff:ff:ff:ff:ff:ff")):
        a.host.send_raw(a.frame(a.data(a.base + round_, 0, ONE), destination_mac=mac))
        b.host.send_raw(b.frame(b.data(b.base + round_, 0, TWO), identification=7, fragment=0, ttl=1))
        equal(b.result(round_).floats, [11.0, 22.0], f"sent to {mac}")


@scenario(udp_checksum=False)
def no_udp_checksum(bench):
    a, b = bench.members()
    for worker in (a, b):
        worker.contribute(0, 0, ONE)
    got = a.result(0)
    equal((got.udp_checksum, got.ip_right, got.floats), (0, True, [2.0, 4.0]), "UDP checksum, IP checksum and sum")


# ---- section 6

def told_of_reset(base, *workers):
    """Each of them is told the new base_round by the switch; they answer and begin with it. (Whether the one that asked is
    told too, the text leaves open; it ignores what it hears.)"""
    for worker in workers:
        request = worker.expect(lambda f: f.kind == REQUEST and f.action == RESET and f.body[:4] == u32s(base), f"a Reset to {base}")
        equal((len(request.body), request.tos), (20, 0xBC), "body length and ToS of a Reset from the switch")
        worker.answer(request)
        worker.base = base


def answered_for_good(*workers):
    """Each answers what it was asked; then no order comes again."""
    for worker in workers:
        for order in worker.rest():
            if order.kind == REQUEST:
                worker.answer(order)
    for worker in workers:
        worker.rest(0.1)
    time.sleep(0.8)
    for worker in workers:
        equal([f for f in worker.rest() if f.kind == REQUEST], [], f"orders to member {worker.member} once answered")


@scenario(members=3, segment_bytes=64, history=2)
def join_forming_and_running(bench):
    a, b, c = (bench.worker(i) for i in range(3))
    reply = a.join(wanted=2)
    equal((reply.status, reply.state, reply.mode, reply.data_type, reply.member_id, reply.members, reply.expected, reply.shards,
           reply.segment_bytes, reply.slots, reply.base_round, reply.history, reply.missing, reply.zero, reply.zero2),
          (OK, FORMING, 0, 0, 2, 1, 3, 1, 64, 32, 1000, 2, 0, 0, 0), "the reply to a first Join")
    equal((reply.destination_mac, reply.source_mac, reply.tos, reply.ttl, reply.fragment, reply.identification, reply.source_port,
           reply.udp_right, reply.ip_right, len(reply.body), reply.tag),
          (a.host.mac, client.SWITCH_MAC, 0xBC, 64, 0x4000, 0, client.PORT, True, True, 56, bytes(16)), "the frame of a reply")
    with bench.counted(classify_drop_forming=1):
        a.contribute(0, 0, ONE)
    notice = a.notice(OK)
    equal((notice.state, notice.base_round, notice.members), (FORMING, 1000, 1), "what a member hears of a forming job")
    equal(a.join().member_id, 2, "the same id again")
    equal(b.join().member_id, 0, "the first free id")
    equal(c.join().state, RUNNING, "the last one's Join")
    equal(c.member, 1, "the id that was left")
    for worker in (a, b, c):
        reply = worker.join()
        equal((reply.state, reply.members, reply.threshold, reply.base_round), (RUNNING, 3, 3, 1000),
              "state, members, threshold, base_round")
        worker.contribute(0, 0, ONE)
    equal(a.result(0).set, 7, "bitmap")
    c.join()
    c.contribute(0, 0, ONE)
    equal(c.result(0).set, 7, "a repeated Join resets nothing")


@scenario()
def join_refreshes_the_mac(bench):
    a, b = bench.members()
    moved = "02:00:00:00:77:77"
    a.request_id += 1
    a.nonce += 1
    a.host.send_raw(a.frame(a.control(JOIN, a.join_body(), member=NOBODY), tos=CONTROL, source_mac=moved))
    equal(a.expect(lambda f: f.kind == REPLY, "the reply").destination_mac, moved, "where the reply to the Join goes")
    for worker in (a, b):
        worker.contribute(0, 0, ONE)
    equal((a.result(0).destination_mac, b.result(0).destination_mac), (moved, b.host.mac), "destination MACs of results")


@scenario(members=2)
def replacement_by_incarnation(bench):
    a, b = bench.members()
    for worker in (a, b):
        worker.contribute(0, 0, ONE)
    a.result(0), b.result(0)
    a.contribute(1, 0, ONE)
    bench.in_sum(0)
    again = b.join(incarnation=b.incarnation ^ 1)
    equal((again.status, again.member_id, again.members), (OK, 1, 2), "a restarted member's place")
    check(newer(again.base_round, 1000 + 1 + 1), f"base_round {again.base_round} is at least 2 later than round 1001")
    told_of_reset(again.base_round, a)
    bench.in_sum()
    for worker in (a, b):
        worker.base = again.base_round
        worker.contribute(0, 0, ONE)
        equal(worker.ask(PING).base_round, again.base_round, "base_round of all")
    equal([w.result(0).floats for w in (a, b)], [[2.0, 4.0]] * 2, "a sum after it")


@scenario()
def places_taken(bench):
    a, b = bench.members()
    late = bench.worker(2)
    equal(late.join(wanted=0).status, FULL, "a wanted id that is taken")
    equal(late.join(wanted=1).status, FULL, "a wanted id that is taken")
    equal(late.join().status, FULL, "any id, no place free")
    equal(a.ask(PING).base_round, 1000, "base_round is as it was")
    for worker in (a, b):
        worker.contribute(0, 0, ONE)
    equal(b.result(0).set, 3, "bitmap")


@scenario(member_timeout_ms=600)
def timed_out_places(bench):
    a, b = bench.members()
    c, d = bench.worker(2), bench.worker(2)

    def silent_but(one):
        end = time.monotonic() + 1
        while time.monotonic() < end:
            one.ask(PING)
            time.sleep(0.05)

    silent_but(a)
    equal(c.join(wanted=0).status, FULL, "a wanted id whose member is heard")
    reply = c.join(wanted=1)
    equal((reply.status, reply.member_id), (OK, 1), "a wanted id whose member has timed out")
    told_of_reset(reply.base_round, a)
    check(newer(reply.base_round, 1001), "base_round is at least 2 later")
    b.contribute(0, 0, ONE)
    b.notice(NOT_MEMBER)
    silent_but(a)
    again = d.join()
    equal((again.status, again.member_id), (OK, 1), "any id takes one that has timed out")
    told_of_reset(again.base_round, a)
    for worker in (a, d):
        worker.contribute(0, 0, ONE)
    equal(d.result(0).floats, [2.0, 4.0], "a sum of those that are there")


@scenario(members=3)
def leave_completes_sums(bench):
    a, b, c = bench.members()
    for worker in (a, b):
        worker.contribute(0, 0, ONE)
    c.contribute(0, 1, THREE)  # the leaver's part stays in the sum
    a.contribute(0, 1, ONE)
    a.contribute(0, 2, ONE)
    bench.in_sum(0, 1)
    bench.in_sum(0, 2, segment=1)
    reply = c.ask(LEAVE)
    equal((reply.status, reply.action), (OK, LEAVE), "the reply to a Leave")
    for worker in (a, b):
        got = worker.result(0)
        equal((got.floats, got.member, got.set, got.flags), ([2.0, 4.0], 2, 3, 0), "the sum that every remaining member is in")
    equal([f for f in c.rest() if f.kind == RESULT], [], "results to the one that left")
    b.contribute(0, 1, TWO)
    got = a.result(0, 1)
    equal((got.floats, got.member), ([111.0, 222.0], 3), "the leaver's part")
    b.contribute(0, 2, TWO)
    equal(b.result(0, 2).floats, [11.0, 22.0], "the sum of those that stay")
    again = c.ask_again(LEAVE)
    equal(again.status, OK, "the same Leave again is answered as before")
    with bench.counted(classify_drop_not_a_member=1):
        c.contribute(1, 0, ONE)
    c.notice(NOT_MEMBER)
    reply = a.ask(PING)
    equal((reply.state, reply.members, reply.expected, reply.threshold, reply.base_round), (RUNNING, 2, 3, 2, 1000),
          "the job after a Leave")
    back = bench.worker(2)  # into the place that Leave freed: resets
    reply = back.join()
    equal((reply.status, reply.member_id, reply.members), (OK, 2, 3), "a Join into the freed place")
    check(newer(reply.base_round, 1001), "base_round is at least 2 later")
    told_of_reset(reply.base_round, a, b)
    for worker in (a, b, back):
        worker.contribute(0, 0, ONE)
    equal(back.result(0).set, 7, "bitmap with all three")


@scenario(members=3)
def eviction_and_end_of_a_job(bench):
    a, b, c = bench.members()
    for worker in (a, b):
        worker.contribute(0, 0, ONE)
    bench.in_sum(0, 1)
    equal(bench.switch.ask("remove-member", job=bench.number, member=2)["ok"], True, "remove-member")
    equal(a.result(0).set, 3, "eviction has the effect of Leave")
    c.contribute(0, 0, ONE)
    c.notice(NOT_MEMBER)
    equal(bench.switch.ask("remove-job", job=bench.number)["ok"], True, "remove-job")
    for worker in (a, b):
        got = worker.request(LEAVE)
        equal((len(got.body), got.tos, got.job), (16, 0xBC, bench.number), "a Leave from the switch")
    equal(a.ask(PING).status, NO_JOB, "status of a removed job")


@scenario(members=3, history=4)
def reset(bench):
    a, b, c = members = bench.members()
    for round_ in range(4):
        for worker in members:
            worker.contribute(round_, 0, ONE)
        for worker in members:
            worker.result(round_)
    a.contribute(4, 0, ONE)
    a.contribute(0, 1, ONE)
    bench.in_sum(0, segment=0)
    reply = a.ask(RESET, u32s(0))
    new = reply.base_round
    equal((reply.status, reply.action, reply.state), (OK, RESET, RUNNING), "the reply to a Reset")
    check(newer(new, 1004 + 1), f"base_round {new} is at least 2 later than round 1004")
    again = a.ask_again(RESET, u32s(0))
    equal((again.status, again.base_round), (OK, new), "the same Reset again is not done again")
    first = b.request(RESET)
    second = b.request(RESET)
    equal(second.raw, first.raw, "the order is repeated until answered")
    equal((first.job, first.segment, first.body[:4], first.tag), (bench.number, 0, u32s(new), bytes(16)), "the order's fields")
    told_of_reset(new, a, c)
    b.answer(first)
    answered_for_good(*members)
    bench.in_sum()
    with bench.counted(aggregate_drop_stale=2):
        b.contribute(3, 0, ONE)  # by the old base_round: kept before
        c.contribute(1000 - new, 1, ONE)  # and in an open sum before
    equal((b.notice(GONE).base_round, c.notice(GONE).base_round), (new, new), "base_round in a 7 tells what was missed")
    for worker in members:
        worker.base = new
        worker.contribute(0, 0, TWO)
    equal([w.result(0).floats for w in members], [[30.0, 60.0]] * 3, "the first sum after it")
    other = b.ask(RESET, u32s(0)).base_round
    check(newer(other, new + 1), "a second Reset goes on")
    told_of_reset(other, a, c)
    bench.switch.ask("reset", job=bench.number)
    third = a.ask(PING).base_round
    check(newer(third, other + 1), "the operator's Reset goes on")
    told_of_reset(third, a, b, c)


@scenario(members=3, history=4)
def set_threshold(bench):
    a, b, c = members = bench.members()
    a.contribute(0, 0, ONE)
    bench.in_sum(0)
    reply = b.ask(SETH, u16(2))
    equal((reply.status, reply.threshold), (OK, 2), "the reply to SetH")
    b.contribute(0, 0, ONE)
    bench.in_sum(0, 1)
    quiet(c)  # the sum was open before
    c.contribute(0, 0, ONE)
    equal(a.result(0).set, 7, "bitmap of the sum opened before")
    a.contribute(1, 0, ONE)
    c.contribute(1, 0, ONE)
    for worker in members:
        got = worker.result(1)
        equal((got.set, got.member, got.flags), (5, 2, 0), "a sum opened later: bitmap, workers, not PARTIAL")
    for value, status, threshold in ((64, OK, 3), (1, OK, 1), (65, BAD_VALUE, 1), (0xFFFF, BAD_VALUE, 1), (0, OK, 3)):
        reply = a.ask(SETH, u16(value))
        equal((reply.status, reply.threshold), (status, threshold), f"SetH {value}: status, threshold in force")
    c.ask(LEAVE)
    equal(a.ask(PING).threshold, 2, "0 follows the number of members")
    equal(a.ask(SETH, u16(1)).threshold, 1, "SetH 1")
    b.contribute(2, 0, TWO)
    equal(a.result(2).floats, [10.0, 20.0], "a sum of one")


@scenario(members=3, history=4)
def force(bench):
    a, b, c = members = bench.members()
    a.contribute(0, 5, ONE)
    b.contribute(0, 5, TWO)
    bench.in_sum(0, 1, segment=5)
    reply = c.ask(FBCAST, u32s(5, 1000))
    equal(reply.status, OK, "status of FBcast")
    for worker in members:
        worker.first = got = worker.result(0, 5)
        equal((got.floats, got.member, got.set, got.flags), ([11.0, 22.0], 2, 3, PARTIAL), "the forced sum")
    c.contribute(0, 5, THREE)
    equal([f.raw for f in c.rest()], [c.first.raw], "the late one is answered with it")
    again = c.ask_again(FBCAST, u32s(5, 1000))
    equal(again.status, OK, "the same FBcast again")
    quiet(*members)
    for worker in members:
        worker.contribute(1, 5, ONE)
    equal(a.result(1, 5).flags, 0, "PARTIAL does not stay")
    a.contribute(2, 5, ONE)
    bench.in_sum(0, segment=5)
    for round_ in (1001, 1003):
        a.ask(FBCAST, u32s(5, round_))
    bench.in_sum(0, segment=5)  # another round is not "that open sum"
    a.ask(FBCAST, u32s(4, 1000))  # nothing is open there
    with bench.counted(aggregate_forced=1):
        equal(bench.switch.ask("force", job=bench.number, segment=5, round=1002)["ok"], True, "the operator's")
    equal((a.result(2, 5).flags, c.result(2, 5).set), (PARTIAL, 1), "flags and bitmap")


@scenario(members=3)
def help_in_every_state(bench):
    a, b, c = members = bench.members()
    for round_ in (0, 1):
        for worker in members:
            worker.contribute(round_, 0, ONE)
        kept = [worker.result(round_) for worker in members]
    reply = b.ask(HELP, u32s(0, 1001))
    equal((reply.status, reply.missing), (OK, 0), "Help for a kept result")
    equal([f.raw for f in b.rest()], [kept[1].raw], "the result, to the asker")
    quiet(a, c)
    reply = b.ask(HELP, u32s(0, 1000))
    equal(reply.status, GONE, "Help for a result that is gone")
    a.contribute(2, 0, ONE)
    bench.in_sum(0)
    reply = a.ask(HELP, u32s(0, 1002))
    equal((reply.status, reply.missing), (OK, 6), "Help for an open sum: the members not in it")
    for worker in (b, c):
        request = worker.request(HELP)
        equal((request.body[:8], len(request.body), request.job, request.segment, request.tos), (u32s(0, 1002), 24, bench.number, 0, 0xBC),
              "a Help request")
    equal([f for f in a.rest() if f.kind == REQUEST], [], "requests to the one that is in the sum")
    b.contribute(2, 0, ONE)
    bench.in_sum(0, 1)
    equal(b.ask(HELP, u32s(0, 1002)).missing, 4, "who is missing now")
    c.contribute(2, 0, ONE)
    equal(a.result(2).set, 7, "bitmap")
    time.sleep(0.3)
    b.rest(), c.rest()
    time.sleep(0.7)
    quiet(b, c)  # Help requests are not repeated


@scenario(members=3)
def halt_and_resume(bench):
    a, b, c = members = bench.members()
    a.contribute(0, 0, ONE)
    bench.in_sum(0)
    reply = b.ask(HALT)
    equal((reply.status, reply.state), (OK, STOPPED), "the reply to a Halt")
    for worker in (a, c):
        first, second = worker.request(HALT), worker.request(HALT)
        equal((second.raw, len(first.body)), (first.raw, 16), "the order, repeated until answered")
        worker.answer(first)
    with bench.counted(classify_drop_halted=2):
        b.contribute(0, 0, TWO)
        a.contribute(0, 0, ONE)
    equal((b.notice(HALTED).state, a.notice(HALTED).base_round), (STOPPED, 1000), "state and base_round of a refusal")
    equal(c.ask(HALT).state, STOPPED, "Halt when halted")
    bench.in_sum(0)
    reply = c.ask(RESUME)
    equal((reply.status, reply.state), (OK, RUNNING), "the reply to a Resume")
    for worker in (a, b):
        request = worker.request(RESUME)
        worker.answer(request)
    for worker, payload in ((b, TWO), (c, THREE)):
        worker.contribute(0, 0, payload)
    equal(a.result(0).floats, [111.0, 222.0], "nothing is lost")
    equal(bench.switch.ask("halt", job=bench.number)["ok"], True, "the operator's Halt")
    for worker in members:
        worker.answer(worker.request(HALT))
    equal(a.ask(PING).state, STOPPED, "state")
    equal(bench.switch.ask("resume", job=bench.number)["ok"], True, "the operator's Resume")
    for worker in members:
        worker.answer(worker.request(RESUME))
    equal(a.ask(PING).state, RUNNING, "state")


@scenario()
def newer_order_replaces_the_older(bench):
    a, b = bench.members()
    a.ask(HALT)
    halt = b.request(HALT)
    a.ask(RESUME)
    resume = b.request(RESUME)
    b.answer(halt)  # too late: stands for nothing
    b.rest()
    equal({f.action for f in b.rest(0.5) if f.kind == REQUEST}, {RESUME}, "what is still repeated")
    b.answer(resume)
    answered_for_good(a, b)


@scenario(members=3)
def replayed_join(bench):
    """What was captured does not bring back a member that left, nor the incarnation that was replaced."""
    a, b, c = bench.members()
    old = {"request_id": c.request_id, "nonce": c.nonce, "member": NOBODY}
    equal(c.ask(LEAVE).status, OK, "Leave")
    equal(c.ask_again(JOIN, c.join_body(), **old).status, REPLAYED, "the Join of a member that left, again")
    old = {"request_id": b.request_id, "nonce": b.nonce, "member": NOBODY}
    new = b.join(incarnation=b.incarnation ^ 1).base_round
    equal(b.ask_again(JOIN, b.join_body(), **old).status, REPLAYED, "the Join of the incarnation before, again")
    equal((a.ask(PING).members, a.ask(PING).base_round), (2, new), "members and base_round")


@scenario()
def far_rounds_do_no_harm(bench):
    """A contribution for a round far ahead, and a Reset after it: the new base_round is still newer than the old."""
    a, b = bench.members()
    a.contribute(5000, 0, ONE)
    first = a.ask(RESET, u32s(0)).base_round
    check(newer(first, 6000 + 1), f"base_round {first} is at least 2 later than every round seen, 6000 of a dropped one too")
    told_of_reset(first, a, b)
    a.contribute((1 << 31) - 1, 0, ONE)
    second = a.ask(RESET, u32s(0)).base_round
    check(newer(second, first + 1), f"base_round {second} is newer than {first}")
    told_of_reset(second, a, b)
    for worker in (a, b):
        worker.contribute(0, 0, ONE)
    equal(b.result(0).floats, [2.0, 4.0], "a sum")


@scenario()
def ping_and_nonces(bench):
    a, b = bench.members()
    reply = a.ask(PING)
    equal((reply.status, reply.state, reply.member_id, reply.members, reply.base_round), (OK, RUNNING, 0, 2, 1000), "the reply to a Ping")
    for nonce in (reply.set, 1, 0, (1 << 64) - 1):  # exempt, and not remembered either
        equal(a.ask_again(PING, nonce=nonce).status, OK, f"Ping with nonce {nonce}")
        equal(a.ask_again(HELP, u32s(0, 1000), nonce=nonce).set, nonce, f"Help with nonce {nonce}")
    equal(a.ask(SETH, u16(1)).status, OK, "SetH with a newer nonce")
    old = (a.request_id, a.nonce)
    equal(a.ask(SETH, u16(2)).threshold, 2, "SetH 2")
    now = (a.request_id, a.nonce)
    for request_id, nonce, action, what in ((*old, SETH, "an older one again"), (now[0], now[1] - 1, SETH, "an older nonce"),
                                            (now[0] + 1, now[1], SETH, "the same nonce, another id"),
                                            (now[0], now[1], RESET, "the same nonce and id, another action")):
        reply = a.ask_again(action, u16(1) if action == SETH else u32s(0), request_id=request_id, nonce=nonce)
        equal((reply.status, reply.threshold, reply.base_round), (REPLAYED, 2, 1000), f"status, threshold, base_round; {what}")
    equal(b.ask(SETH, u16(1)).threshold, 1, "another source has nonces of its own")
    reply = a.ask_again(SETH, u16(2))
    equal((reply.status, bench.switch.job_state(bench.number)["threshold_wanted"]), (OK, 1), "the last again: answered, not done again")
    equal(a.ask_again(JOIN, a.join_body(), nonce=now[1] - 5, member=NOBODY).status, REPLAYED, "an old Join")
    first = a.ask(RESET, u32s(0)).base_round
    last = {"request_id": a.request_id, "nonce": a.nonce}
    told_of_reset(first, b)
    equal(a.ask_again(RESET, u32s(0), **last).base_round, first, "the same Reset again")
    second = b.ask(RESET, u32s(0)).base_round
    check(newer(second, first), "b's Reset is done")
    told_of_reset(second, a)
    equal(a.ask_again(RESET, u32s(0), **last).status, OK, "a's Reset once more")
    equal(a.ask(PING).base_round, second, "base_round after a late copy of a Reset")


@scenario()
def statuses(bench):
    a, b = bench.members()
    stranger = bench.worker(2)
    for action, body in ((JOIN, stranger.join_body()), (PING, b""), (RESET, u32s(0))):
        reply = stranger.ask(action, body, job=999)
        equal((reply.status, reply.job), (NO_JOB, 999), f"action {action} to an unknown job")
    stranger.member = 1
    with bench.counted(classify_drop_unknown_job=1):
        stranger.base = 1000
        stranger.contribute(0, 0, ONE, job=999)
    stranger.notice(NOT_MEMBER)  # it matches no row either
    for what, status in (({"data_type": 1}, UNSUPPORTED), ({"data_type": 2}, UNSUPPORTED), ({"data_type": 3}, UNSUPPORTED),
                         ({"data_type": 4}, BAD_VALUE), ({"data_type": 255}, BAD_VALUE), ({"kind": 2}, BAD_VALUE), ({"mode": 2}, BAD_VALUE),
                         ({"shards": 1}, BAD_VALUE), ({"kind": 1, "shards": 0}, BAD_VALUE)):
        equal(stranger.join(**what).status, status, f"Join with {what}")
    check(stranger.join(mode=1).status in (BAD_VALUE, UNSUPPORTED), "Join for the other mode is refused")
    check(stranger.join(segment_bytes=1408).status in (BAD_VALUE, UNSUPPORTED), "Join that cannot take the job's segments is refused")
    equal(a.ask(PING).members, 2, "members")
    for action, body in ((PING, b""), (SETH, u16(1)), (LEAVE, b"")):
        equal(a.ask(action, body, member=1).status, NOT_MEMBER, f"action {action} with the other's id")
    reply = a.ask_again(PING, request_id=0xDEADBEEF, nonce=0x0123456789ABCDEF)
    equal((reply.round, reply.set, reply.segment), (0xDEADBEEF, 0x0123456789ABCDEF, 0), "request id and nonce come back")


@scenario(key_file=True)
def keys(bench):
    a, b = bench.members()
    here = (a.host.ip, a.port)

    def mine(reply, status, what):
        equal((reply.status, reply.tagged(KEY, *here)), (status, True), f"{what}: status, and the reply's tag is right")

    def refused(action, body, what, **more):
        a.ask(action, body, silent=True, **more)
        mine(a.repeat(action, body, **more), BAD_TAG, what)

    mine(a.ask(PING), OK, "right tag")
    packet = a.control(PING)[:-16]
    for tag in (bytes(16), b"\1" * 16, control_tag(KEY, packet, a.host.ip, a.port + 1), control_tag(KEY, packet, b.host.ip, a.port),
                control_tag(KEY[:-1], packet, *here)):
        refused(PING, b"", "wrong tag on a Ping", tag=tag)
    refused(RESET, u32s(0), "before the nonce", tag=bytes(16), nonce=1)
    refused(SETH, u16(99), "before the value", tag=bytes(16))
    refused(JOIN, a.join_body(kind=9), "before a Join's values", member=NOBODY, tag=bytes(16))
    stranger = bench.worker(2)
    equal(stranger.repeat(RESET, u32s(0), tag=bytes(16), member=0).status, BAD_TAG, "before the membership")
    stranger.ask(RESET, u32s(0), silent=True, member=0)
    equal(stranger.repeat(RESET, u32s(0), member=0).status, NOT_MEMBER, "right tag, not a member")
    stranger.key = None
    stranger.ask(JOIN, stranger.join_body(), silent=True)
    equal(stranger.repeat(JOIN, stranger.join_body()).status, BAD_TAG, "Join without the key")
    reply = a.ask(PING)
    equal((reply.base_round, reply.threshold, reply.members), (1000, 2, 2), "nothing of this was done")
    for worker in (a, b):  # contributions have no tag
        worker.contribute(0, 0, ONE)
    equal(a.result(0).floats, [2.0, 4.0], "the sum")
    a.contribute(-1, 0, ONE)
    mine(a.notice(GONE), GONE, "an unasked-for reply: the member is the client")
    reply = a.ask(HALT)
    mine(reply, OK, "Halt")
    order = b.request(HALT)
    b.key = None
    b.answer(order)  # untagged: counts for nothing
    b.key = KEY
    b.rest(0.1)
    again = b.request(HALT)
    equal(again.raw, order.raw, "the order again")
    b.answer(again)
    answered_for_good(a, b)


@scenario(key_file=True)
def tag_of_an_order(bench):
    a, b = bench.members()
    a.ask(HALT)
    order = b.request(HALT)
    check(order.tagged(KEY, client.SWITCH_IP, client.PORT), "the client of a switch's request, for its tag, is the requester: the switch; "
          f"right over the member's address instead: {order.tagged(KEY, b.host.ip, b.port)}")


@scenario(key_file=True)
def every_wrong_tag_is_answered(bench):
    a, b = bench.members()
    for i in range(5):
        equal(a.ask(PING, tag=bytes(16)).status, BAD_TAG, f"status of the wrong tag number {i + 1}")


@scenario(history=1)
def rate_limits(bench):
    a, b = bench.members()
    b.ask(HALT)
    a.answer(a.request(HALT))
    stranger = bench.worker(2, member=0)
    stranger.base = a.base
    for worker, counter, status in ((a, "classify_drop_halted", HALTED), (stranger, "classify_drop_not_a_member", NOT_MEMBER)):
        worker.rest()
        started = time.monotonic()
        with bench.counted(**{counter: 100}):
            for i in range(100):
                worker.contribute(0, 0, ONE)
                time.sleep(0.004)
        notices = [f for f in worker.rest() if f.kind == REPLY and f.status == status]
        seconds = time.monotonic() - started
        check(1 <= len(notices) <= 10 * (1 + int(seconds)), f"at most ten a second: {len(notices)} in {seconds:.2f} s")
        nonces = [f.set for f in notices]
        check(all(x < y for x, y in zip(nonces, nonces[1:])), f"nonces grow: {nonces}")
        time.sleep(1.1)
        sent = time.monotonic()
        worker.contribute(0, 0, ONE)
        worker.notice(status)
        check(time.monotonic() - sent < 0.9 * harness.SLOW, f"the first in a second at once: {time.monotonic() - sent:.3f} s")


def control():
    run(join_forming_and_running, join_refreshes_the_mac, replacement_by_incarnation, places_taken, timed_out_places, leave_completes_sums,
        eviction_and_end_of_a_job, reset, set_threshold, force, help_in_every_state, halt_and_resume, newer_order_replaces_the_older,
        replayed_join, far_rounds_do_no_harm, ping_and_nonces, statuses, keys, tag_of_an_order, every_wrong_tag_is_answered, rate_limits)


@scenario()
def child_switch_as_a_member(bench):
    a, child = bench.worker(0), bench.worker(1)
    a.join()
    equal(child.join(kind=1, shards=2).status, OK, "status of a switch's Join")
    second_shard = bench.worker(1, port=child.port + 1)
    next(Worker.ports)
    for segment, flags, carried in ((0, 0, 0), (1, PARTIAL, PARTIAL), (2, ECN_ECHO, ECN_ECHO)):
        a.contribute(0, segment, ONE)
        child.contribute(0, segment, TWO, workers=12, flags=flags)
        got = a.result(0, segment)
        equal((got.floats, got.member, got.set, got.flags), ([11.0, 22.0], 13, 3, carried), "sum, workers, direct members, flags")
        second_shard.base = child.base
        there = (child, second_shard)[segment % 2].result(0, segment)
        equal(there.body, got.body, f"result to the child's port of segment {segment}")
    with bench.counted(classify_drop_workers=1):
        a.contribute(0, 3, ONE, workers=2)
    quiet(a)


@scenario(members=64, slots=4)
def sixty_four_members(bench):
    members = bench.members(hosts=[i % 3 for i in range(64)])
    bench.in_order(members[:2], 0, (ONE, TWO))
    for worker in members[2:]:
        worker.contribute(0, 0)
    for worker in members:
        got = worker.result(0)
        equal((got.floats, got.member, got.set), ([11.0, 22.0], 64, (1 << 64) - 1), f"sum, workers and bitmap at member {worker.member}")
    equal(bench.worker(0).join().status, FULL, "a 65th")


def sums():
    run(result_frame_and_replay, kept_result_other_tag, open_duplicate, open_other_length, open_other_tag, empty_contributions, ahead,
        stale, arrival_order_to_the_bit, random_floats_to_the_bit, special_values_alone, history_of_three, threshold_and_straggler,
        rounds_wrap, ecn, slots_are_independent, two_members_on_one_address, third_party, frames_taken_as_they_are, no_udp_checksum,
        child_switch_as_a_member, sixty_four_members)


# ---- sections 1 and 2: what is malformed, and what is not ours

def each_in_one(bench, cases, sender):
    """Each frame of the cases (name, frame, counter) ends in that terminal counter and no other; nobody is answered."""
    wrong = []
    for name, raw, counter in cases:
        try:
            with bench.counted(frames=1, **{counter: 1}):
                sender.host.send_raw(raw)
        except AssertionError as problem:
            wrong.append(f"{name}: {problem}")
    check(not wrong, "; ".join(wrong))


def bad_frames(w):
    """Frames that are ours and break a rule of section 1 or 2, from a member of a running job."""
    good = w.data(w.base, 0, ONE)
    right = w.frame(good)
    ping = w.control(PING)

    def data(**more):
        return w.frame(w.data(w.base, 0, **{"payload": ONE, **more}))

    def control(packet, **more):
        return w.frame(packet, tos=CONTROL, **more)

    truncated = "parse_drop_truncated"
    yield "wrong IP checksum", w.frame(good, ip_checksum=0x1234), "parse_drop_ip_checksum"
    yield "wrong UDP checksum", w.frame(good, udp_checksum=0x1234), "parse_drop_udp_checksum"
    yield "one bit of the payload", right[:-1] + bytes([right[-1] ^ 1]), "parse_drop_udp_checksum"
    yield "VLAN tag", w.frame(good, vlan=b"\x81\x00\x00\x05"), "parse_drop_vlan"
    yield "VLAN priority tag", w.frame(good, vlan=b"\x81\x00\xe0\x00"), "parse_drop_vlan"
    yield "IP options", w.frame(good, options=b"\1\1\1\1"), "parse_drop_ip_options"
    yield "40 bytes of IP options", w.frame(good, options=b"\1" * 40), "parse_drop_ip_options"
    for length in (34, 35, 37, 38, 41, 42, 63, 64, len(right) - 1):
        yield f"cut to {length} bytes", right[:length], truncated
    yield "IP total length above the frame", w.frame(good, total_length=20 + 8 + len(good) + 1), truncated
    yield "IP total length below the UDP header", w.frame(good, total_length=27, udp_length=7), truncated
    yield "IP total length below its own header", w.frame(good, total_length=19), truncated
    yield "UDP length below", w.frame(good, udp_length=8 + len(good) - 4), "parse_drop_udp_length"
    yield "UDP length above", w.frame(good, udp_length=8 + len(good) + 4), "parse_drop_udp_length"
    yield "UDP length 0", w.frame(good, udp_length=0), "parse_drop_udp_length"
    yield "no iSwitch header", w.frame(b""), "parse_drop_short_header"
    yield "21 bytes of header", w.frame(good[:21]), "parse_drop_short_header"
    for version in (0, 2, 15):
        yield f"version {version}", data(version=version), "parse_drop_version"
    for kind in (4, 9, 15):
        yield f"type {kind} with the data DSCP", data(kind=kind), "parse_drop_type"
    yield "contribution with the control DSCP", control(good), "parse_drop_type"
    yield "request with the data DSCP", w.frame(ping), "parse_drop_type"
    yield "request of type 4", control(w.control(PING, kind=4)), "parse_drop_type"
    for bit in (2, 6, 7):
        yield f"flag bit {bit}", data(flags=1 << bit), "parse_drop_reserved_bits"
    for cut in (1, 2, 3):
        yield f"payload of {8 - cut} bytes", data(payload=ONE[:-cut]), "parse_drop_payload_alignment"
    yield "payload above the segment", data(payload=ONE * 5), "classify_drop_length"
    for data_type in (1, 2, 3):
        yield f"data type {data_type}", data(flags=data_type), "classify_drop_data_type"
    for segment in (32, 33, 1 << 31, MASK):
        yield f"segment {segment}", w.frame(w.data(w.base, segment, ONE)), "classify_drop_segment"
    for workers in (0, 2, 65535, 65536, MASK):
        yield f"a worker that stands for {workers}", data(workers=workers), "classify_drop_workers"
    for job in (0, 999, 65535):
        yield f"job {job}", data(job=job), "classify_drop_unknown_job"
    for member in (1, 2, 63, 64, 65535):
        yield f"member {member}", data(member=member), "classify_drop_not_a_member"
    yield "a PARTIAL contribution's result", data(kind=RESULT), "classify_drop_result"
    for action in (0, 11, 255):
        yield f"action {action}", control(w.control(action)), "parse_drop_action"
    for action, body in ((PING, b""), (LEAVE, b""), (HALT, b""), (RESUME, b""), (RESET, bytes(4)), (SETH, bytes(2)), (HELP, bytes(8)),
                         (FBCAST, bytes(8)), (JOIN, w.join_body())):
        yield f"action {action}, too long", control(w.control(action, body + bytes(4))), "parse_drop_control_length"
        yield f"action {action}, a byte too long", control(w.control(action, body) + b"\0"), "parse_drop_control_length"
        yield f"action {action}, no tag", control(w.control(action, body, tag=b"")), "parse_drop_control_length"
        yield f"action {action}, short", control(w.control(action, body)[:-1]), "parse_drop_control_length"
        yield f"action {action}, segment 1", control(w.control(action, body, segment=1)), "parse_drop_control_fields"
    yield "Join with its zero byte set", control(w.control(JOIN, w.join_body(zero=1))), "parse_drop_control_fields"
    yield "reply of another length", control(w.control(PING, bytes(39), kind=REPLY)), "parse_drop_control_length"
    yield "reply with a segment", control(w.control(PING, bytes(40), kind=REPLY, segment=1)), "parse_drop_control_fields"
    yield "reply with a zero byte set", control(w.control(PING, bytes(5) + b"\1" + bytes(34), kind=REPLY)), "parse_drop_control_fields"
    yield "reply with a late zero byte set", control(w.control(PING, bytes(31) + b"\1" + bytes(8), kind=REPLY)), "parse_drop_control_fields"


def fragments(w):
    good = w.data(w.base, 0, ONE)
    first, later = 0x2000, 0x0005
    yield "first fragment", w.frame(good, fragment=first), "parse_drop_fragment"
    yield "later fragment", w.frame(good, fragment=later), "parse_drop_fragment"
    yield "later fragment whose data looks like another port", w.frame(good, destination=(client.SWITCH_IP, 53), fragment=later), \
        "parse_drop_fragment"
    yield "first fragment to port 53", w.frame(good, destination=(client.SWITCH_IP, 53), fragment=first), "parse_drop_fragment"
    yield "later fragment to another address", w.frame(good, destination=("10.77.0.253", client.PORT), fragment=later), "l2_drop_to_self"


def other_frames(w):
    """Frames that are not ours: ordinary traffic, here to the switch's own MAC address or to nobody known."""
    good = w.data(w.base, 0, ONE)
    right = w.frame(good)
    to_self = "l2_drop_to_self"
    for port in (client.PORT - 1, client.PORT + 1, 53):
        yield f"UDP port {port}", w.frame(good, destination=(client.SWITCH_IP, port)), to_self
    for dscp in (0, 42, 44, 46, 48):
        yield f"DSCP {dscp}", w.frame(good, tos=dscp << 2), to_self
    yield "TCP", w.frame(good, protocol=6), to_self
    yield "another address", w.frame(good, destination=("10.77.0.253", client.PORT)), to_self
    yield "IP version 6", w.frame(good, version=6), to_self
    yield "19 bytes of IPv4", right[:33], to_self
    yield "an Ethernet header alone", right[:14], to_self
    yield "another EtherType", right[:12] + b"\x88\xb5" + right[14:], to_self
    yield "from the switch's MAC", w.frame(good, tos=0, source_mac=client.SWITCH_MAC), "l2_drop_bad_source"
    yield "from a group", w.frame(good, tos=0, source_mac="03:00:00:00:00:01"), "l2_drop_bad_source"
    yield "to spanning tree", w.frame(good, tos=0, destination_mac="01:80:c2:00:00:00"), "l2_drop_link_local"
    yield "to nobody known", w.frame(good, tos=0, destination_mac="02:00:00:00:99:99"), "l2_flooded"
    yield "to everybody", w.frame(good, tos=0, destination_mac="ff:ff:ff:ff:ff:ff"), "l2_flooded"
    yield "to itself", w.frame(good, tos=0, destination_mac=w.host.mac), "l2_drop_same_port"


@scenario(segment_bytes=32)
def malformed(bench):
    a, b = bench.members()
    a.contribute(0, 0, ONE)
    bench.in_sum(0)
    each_in_one(bench, bad_frames(a), a)
    answers = [f for w in (a, b) for f in w.rest()]
    equal([f for f in answers if f.kind != REPLY or f.round or f.status != NOT_MEMBER], [], "answers to malformed frames")
    b.contribute(0, 0, TWO)
    equal(a.result(0).floats, [11.0, 22.0], "the sum, after all this")


@scenario()
def malformed_fragments(bench):
    a, b = bench.members()
    each_in_one(bench, fragments(a), a)
    quiet(a, b)


@scenario()
def fragments_between_hosts(bench):
    done = bench.switch.net.run(["ping", "-c1", "-W2", "-s", "3000", bench.hosts[1].ip], host=0, check=False)
    equal(done.returncode, 0, f"exit code of a ping in three fragments from host to host: {done.stdout.splitlines()[-2:]}")


@scenario(segment_bytes=32)
def ordinary(bench):
    a, b = bench.members()
    each_in_one(bench, other_frames(a), a)
    quiet(a, b)
    net = bench.switch.net
    net.run(["ip", "neigh", "del", client.SWITCH_IP, "dev", "eth0"], host=2)
    with bench.counted(local_arp_answered=1, local_echo_answered=1):
        net.run(["ping", "-c1", "-W4", client.SWITCH_IP], host=2)


@scenario(key_file=True)
def malformed_before_the_tag(bench):
    a, b = bench.members()
    each_in_one(bench, [("Join with its zero byte set", a.frame(a.control(JOIN, a.join_body(zero=1), tag=bytes(16)), tos=CONTROL),
                         "parse_drop_control_fields")], a)
    quiet(a)


@scenario(segment_bytes=64)
def random_damage(bench):
    """Whatever is done to good frames, each ends in exactly one counter and the daemon lives on."""
    a, b = bench.members()
    dice = random.Random(3)
    good = [a.frame(a.data(a.base, 0, ONE)), a.frame(a.data(a.base, 31, ONE * 8)), a.frame(a.control(PING), tos=CONTROL),
            a.frame(a.control(HELP, u32s(0, 1000)), tos=CONTROL), a.frame(a.control(PING, bytes(40), kind=REPLY), tos=CONTROL)]
    with bench.counted(frames=1000):
        for _ in range(1000):
            raw = bytearray(dice.choice(good))
            for _ in range(dice.randint(1, 4)):
                raw[dice.randrange(12, len(raw))] = dice.choice((0, 255, dice.getrandbits(8)))
            if dice.random() < 0.3:
                del raw[dice.randrange(14, len(raw)):]
            if dice.random() < 0.5 and len(raw) > 42:
                raw[24:26] = bytes(2)
                raw[24:26] = struct.pack("!H", inet_checksum(bytes(raw[14:34])))
                raw[40:42] = bytes(2)
            raw[20:22] = bytes(2)  # fragments have a scenario of their own
            a.host.send_raw(bytes(raw))
    a.rest()
    equal(b.ask(PING).state, RUNNING, "state")


def bad_input():
    run(malformed, malformed_fragments, fragments_between_hosts, ordinary, malformed_before_the_tag, random_damage)


@scenario(segment_bytes=8928)
def jumbo_segments(bench):
    a, b = bench.members()
    values = [random.Random(i).getrandbits(32) for i in range(2232)]
    bench.in_order((a, b), 0, (pack_bits(values), pack_bits(values[::-1])))
    equal(b.result(0).bits, sum_bits([values, values[::-1]]), "a sum of 8928 bytes")
    each_in_one(bench, [("8932 bytes", a.frame(a.data(1001, 0, bytes(8932))), "parse_drop_payload_length")], a)


def jumbo():
    run(jumbo_segments, hosts=2, mtu=9000, memory={"payload_buffers": 256})


def too_long_for_the_port():
    """The cable takes longer frames than the port is configured for."""
    with harness.Switch(hosts=1, jobs=[harness.job(members=1)], start=False) as switch:
        switch.net.run(["ip", "neigh", "replace", client.SWITCH_IP, "lladdr", client.SWITCH_MAC, "dev", "eth0", "nud", "permanent"], host=0)
        switch.start()
        switch.net.run(["ip", "link", "set", "eth0", "mtu", "3000"], host=0)
        switch.net.run(["ip", "link", "set", "sw0", "mtu", "3000"])
        host = Host(switch.net.hosts[0], switch.net.mac(0))
        bench = Bench(switch, [host], 1, {"members": 1})
        a, = bench.members()
        each_in_one(bench, [("1600 bytes of payload", a.frame(a.data(a.base, 0, bytes(1600))), "rx_drop_unusable"),
                            ("2900 bytes of ordinary traffic", a.frame(bytes(2900), tos=0), "rx_drop_unusable")], a)
        with bench.counted(aggregate_added=1):
            a.contribute(0, 0, bytes(1440))
        equal(len(a.result(0).body), 1440, "bytes of a full segment")
        switch.end()  # SIGTERM: the members are told
        leave = a.expect(lambda f: f.kind == REQUEST and f.action == LEAVE, "a Leave of the switch that ends", 2)
        equal((len(leave.body), leave.job), (16, 1), "the Leave's length and job")


if __name__ == "__main__":
    harness.main(client_speaks_the_vectors, sums, control, bad_input, jumbo, too_long_for_the_port)
