#!/usr/bin/env python3
"""A random model of docs/protocol.md section 9, written from the text alone.

Workers, a tree of switches and a network that loses, duplicates, reorders and keeps copies for as long as it likes (across
restarts too) are stepped in random order. Sums are symbolic: the tuple of what was added, in order, so "the same bits" is
"the same tuple". Rounds and numbers do not wrap here. What must hold stands in class Checks.

    restart.py --seeds 1:300              run seeds; prints the first broken property and its seed, exit code 1
    restart.py --seeds 7:7 --trace        with every delivery
    restart.py --seeds 1:500 --break RULE leave a rule out: a violation is what is expected (exit code 0 if one is found)
"""
import argparse
import random
import sys

RULES = {
    "drop-without-place": "results that arrive while a member has no place are dropped",
    "new-base": "a stream that goes on has a newer base_round",
    "all-below-end": "sums below F need all direct members",
    "hand-back": "who holds a result of [E, F) hands it back",
    "caught-up": "no push before all updates up to the settling answer",
    "settled-flag": "only a result marked SETTLED settles a member or a child",
    "keep-origin": "a stream that goes on keeps its origin",
    "life": "a Rejoin that does not name the switch's life is not let in",
    "worker-forms-again": "another incarnation of a worker's row makes the job form again",
    "doubt": "who is in an update that came through other switches is not known",
    "own-members-first": "updates up to the newest of a switch's own workers come from them alone",
    "refill-settles": "a place refilled by Join does not have to hand back",
    "predecessor": "a bit in a handed-back result may be a predecessor's",
    "join-origin": "a joiner of a running asynchronous job learns the origin",
}


class Broken(Exception):
    pass


def atoms(value):
    """What a symbolic sum holds, flat."""
    for part in value:
        if isinstance(part, tuple):
            yield from atoms(part)
        else:
            yield part


class Checks:
    """What must hold, whatever the network and the faults do."""

    def __init__(self, world):
        self.world = world
        self.truth = {}  # (origin, position) or (origin, slot, update): value
        self.holders = {}  # the same key: names of those who have used it
        self.where = {}  # asynchronous: contribution: its update
        self.acknowledged = {}
        self.given_up = set()

    def same(self, key, value, who):
        if self.truth.setdefault(key, value) != value:
            raise Broken(f"{who} has {value} for {key}, others {self.truth[key]}")
        self.holders.setdefault(key, set()).add(who)

    def died(self, worker):
        """What only the dead had used never was, for those who live."""
        for key, names in self.holders.items():
            names.discard(worker.name)
            if not names and key in self.truth:
                del self.truth[key]
                self.where = {atom: at for atom, at in self.where.items() if at != key}
                self.acknowledged = {atom: at for atom, at in self.acknowledged.items() if at != key}

    def copied(self, peer, to):
        for names in self.holders.values():
            if peer.name in names:
                names.add(to.name)

    def sync_result(self, worker, position, value):
        key = (worker.origin, position)
        self.same(key, value, worker.name)
        seen = set()
        for atom in atoms(value):
            name, _, origin, at = atom.split("|")
            if (int(origin), int(at)) != key:
                raise Broken(f"{atom} was added to {key}")
            if name in seen:
                raise Broken(f"{name} is twice in {key}: {value}")
            seen.add(name)
        if self.world.full and len(seen) != len(self.world.workers):
            raise Broken(f"not all are in {key}: {value}")

    def update(self, worker, slot, number, value):
        key = (worker.origin, slot, number)
        self.same(key, value, worker.name)
        for atom in atoms(value):
            if int(atom.split("|")[3]) != slot:
                raise Broken(f"{atom} was added to slot {slot}")
            if self.where.setdefault(atom, key) != key:
                raise Broken(f"{atom} is in {key} and in {self.where[atom]}")
        if len(set(atoms(value))) != len(list(atoms(value))):
            raise Broken(f"twice in {key}: {value}")

    def acknowledge(self, worker, slot, number, atom):
        self.acknowledged[atom] = (worker.origin, slot, number)

    def afresh(self, worker, reason):
        if self.world.lossless:
            raise Broken(f"{worker.name}: the job started afresh (reason {reason}) though nobody died")

    def at_end(self):
        for atom, key in self.acknowledged.items():
            if self.where.get(atom) != key:
                raise Broken(f"{atom} was acknowledged by {key} and is in {self.where.get(atom)}")
        if self.world.single and not self.world.deaths and self.given_up:
            raise Broken(f"given up at a single switch: {self.given_up}")


class Network:
    """A bag of frames; and copies of some that come again at any later time."""

    def __init__(self, world):
        self.world, self.rng = world, world.rng
        self.bag, self.old = [], []

    def send(self, source, to, kind, **fields):
        self.bag.append((source, to, kind, fields))

    def step(self, faults):
        rng = self.rng
        if faults and self.old and rng.random() < 0.05:
            self.deliver(rng.choice(self.old))
        if not self.bag:
            return
        at = rng.randrange(len(self.bag))
        frame = self.bag[at]
        self.bag[at] = self.bag[-1]
        self.bag.pop()
        if faults:
            if rng.random() < self.world.loss:
                return
            if rng.random() < 0.1:
                self.bag.append(frame)
            if rng.random() < 0.3 and frame[2] != "join":
                if len(self.old) < 300:
                    self.old.append(frame)
                else:
                    self.old[rng.randrange(300)] = frame
            if len(self.bag) > 400:
                del self.bag[: len(self.bag) // 2]
        self.deliver(frame)

    def lose_joins(self, to):
        """Copies of plain Joins that outlive a restart are section 6's business, with or without section 9."""
        self.bag = [frame for frame in self.bag if frame[1] != to or frame[2] != "join"]

    def forget_process(self, name):
        """A new process has another port: what was for the old one does not reach it."""
        self.bag = [frame for frame in self.bag if name not in frame[:2]]
        self.old = [frame for frame in self.old if name not in frame[:2]]

    def deliver(self, frame):
        source, to, kind, fields = frame
        node = self.world.nodes[to]
        if self.world.trace:
            print(f"{source} -> {to} {kind} {fields}")
        node.receive(source, kind, fields)


class Member:
    """A member's side of the control part: a worker, or a switch towards its parent."""

    def start_member(self):
        self.placed = False
        self.incarnation = self.world.fresh()
        self.life = 0
        self.request = None
        self.ping = 0

    def lose_place(self):
        self.placed = False
        self.incarnation = self.world.fresh()
        self.life = 0
        self.request = None

    def ask(self):
        """Rejoin if there is a stream to go on with, else Join."""
        claim = self.claim()
        self.request = dict(nonce=self.world.fresh(), incarnation=self.incarnation, life=self.life, claim=claim)

    def repeat_request(self):
        kind = "rejoin" if self.request["claim"] else "join"
        self.world.net.send(self.name, self.up, kind, **self.request)

    def send_ping(self):
        self.ping = self.world.fresh()
        self.world.net.send(self.name, self.up, "ping", nonce=self.ping)

    def on_reply(self, f):
        if self.placed:
            if f["nonce"] != self.ping:
                return
            if f["status"] == 2:
                self.lose_place()
                self.lost_place()
            elif f["running"] and f["base"] > self.base:
                self.learn_reset(f["base"])
            return
        if not self.request or f["nonce"] != self.request["nonce"]:
            return
        if f["status"] == 2:
            self.lose_place()
        elif f.get("life"):
            self.life = f["life"]
            self.ask()
        elif f["running"]:
            self.placed = True
            self.got_place(f, bool(self.request["claim"]))


# ---- workers


class Worker(Member):
    def __init__(self, world, name, up, index):
        self.world, self.name, self.up, self.index = world, name, up, index
        self.generation = 0
        self.begin()

    def begin(self):
        self.origin = None
        self.base = 0
        self.clear()
        self.start_member()

    def die(self):
        self.world.checks.died(self)
        self.world.net.forget_process(self.name)
        self.generation += 1
        self.begin()

    def lost_place(self):
        pass

    def receive(self, source, kind, f):
        if kind == "reply":
            self.on_reply(f)
        elif kind == "lost":
            if self.placed:
                self.send_ping()
        elif kind == "result":
            if self.placed or (self.world.breaks("drop-without-place") and self.origin is not None):
                self.on_result(f)
        elif kind == "help":
            if self.placed:
                self.on_help(f)

    def tick(self):
        if not self.placed:
            if not self.request:
                self.ask()
            self.repeat_request()
            return
        if self.world.rng.random() < 0.2:
            self.send_ping()
        self.work()

    def on_help(self, f):
        pass


class SyncWorker(Worker):
    def clear(self):
        self.have = {}  # position: value, of the last `slots` positions
        self.lacks = 0
        self.sent = 0  # positions below it have been sent
        self.to_hand_back = set()

    def claim(self):
        if self.origin is None:
            return None
        end = max([self.lacks] + [p + 1 for p in self.have])
        used = max(self.sent, end) - 1
        newest = max(self.base, self.base + used // self.world.slots)
        return dict(origin=self.origin, newest=newest, position=self.lacks, end=end)

    def got_place(self, f, rejoined):
        self.base = f["base"]
        self.to_hand_back = set()
        if f.get("on"):
            if self.world.breaks("keep-origin"):
                self.origin = self.base
            if not self.world.breaks("hand-back"):
                self.to_hand_back = {p for p in self.have if f["E"] <= p < f["F"]}
        else:
            if rejoined:
                self.world.checks.afresh(self, f.get("reason"))
            self.clear()
            self.origin = self.base

    def learn_reset(self, base):
        self.world.checks.afresh(self, "reset")
        self.clear()
        self.base = self.origin = base

    def on_result(self, f):
        slots = self.world.slots
        position = (f["round"] - self.base) * slots + f["slot"]
        if position < 0 or position >= self.lacks + slots or f["round"] < self.base:
            return
        if position - slots >= self.lacks and position - slots not in self.have:
            return
        if position < self.lacks - slots:
            return
        self.world.checks.sync_result(self, position, f["value"])
        self.to_hand_back.discard(position)
        self.have[position] = f["value"]
        while self.lacks in self.have:
            self.lacks += 1
        for p in [p for p in self.have if p + slots in self.have]:
            del self.have[p]
        self.have = {p: v for p, v in self.have.items() if p >= self.lacks - slots}
        self.to_hand_back &= set(self.have)  # a newer round's result: that one is there too

    def work(self):
        rng, world = self.world.rng, self.world
        for p in self.to_hand_back:
            if rng.random() < 0.7:
                world.net.send(self.name, self.up, "handback", slot=p % world.slots, round=self.base + p // world.slots,
                               value=self.have[p])
        for p in range(self.lacks, min(self.lacks + rng.randint(1, world.slots), world.positions)):
            if p not in self.have and rng.random() < 0.8:
                self.sent = max(self.sent, p + 1)
                atom = f"{self.name}|{self.generation}|{self.origin}|{p}"
                world.net.send(self.name, self.up, "contribution", slot=p % world.slots, round=self.base + p // world.slots,
                               value=atom, again=rng.random() < 0.5)

    def done(self):
        return self.placed and self.lacks >= self.world.positions


class AsyncSlot:
    """A worker's view of one slot; numbers count from the origin (they shift with base_round)."""

    def __init__(self):
        self.update = 0
        self.kept = {}  # update: (value, set, doubt)
        self.ahead = {}  # results that came before their turn
        self.push = 0
        self.outstanding = None  # contribution of push number `push`
        self.settled = True
        self.target = 0
        self.pushed = 0
        self.rejoined = False
        self.waited = 0  # for an update that the answer of settling has promised
        self.bits_known = True  # a bit of ours in what is handed back cannot be our predecessor's


class AsyncWorker(Worker):
    def clear(self):
        self.slots = [AsyncSlot() for _ in range(self.world.slots)]
        self.needs_reset = False

    def claim(self):
        if self.needs_reset or self.origin is None:
            return None
        newest = max([0] + [max(s.update, s.push, s.target) for s in self.slots])
        return dict(origin=self.origin, newest=self.base + newest, position=0, end=0)

    def got_place(self, f, rejoined):
        self.base = f["base"]
        if f.get("on"):
            if self.world.breaks("keep-origin"):
                self.origin = self.base
            for s in self.slots:
                s.settled = False
                s.rejoined = True
                s.target = s.waited = 0
                s.ahead = {}
            return
        if rejoined:
            self.world.checks.afresh(self, f.get("reason"))
        self.world.checks.died(self)  # takes a peer's state instead of its own
        self.clear()
        self.origin = self.base
        if f.get("origin") and not self.world.breaks("join-origin"):
            self.origin = f["origin"]
        if f.get("late"):
            self.take_weights()

    def take_weights(self):
        """From a peer: its updates and their numbers."""
        peers = [w for w in self.world.workers if w is not self and w.origin == self.origin and w.placed and not w.needs_reset]
        if not peers:
            self.needs_reset = True  # nobody has weights to give
            return
        peer = self.world.rng.choice(peers)
        self.world.checks.copied(peer, self)
        for mine, theirs in zip(self.slots, peer.slots):
            mine.update = theirs.update
            mine.bits_known = False
            # The peer's view of who is in them is not about us; they are told as not known.
            mine.kept = {u: (v, s, True) for u, (v, s, _) in theirs.kept.items()}

    def learn_reset(self, base):
        self.world.checks.afresh(self, "reset")
        self.clear()
        self.base = self.origin = base

    def on_result(self, f):
        s, number = self.slots[f["slot"]], f["number"] - self.base
        if f["number"] < self.base or number < 0 or (number == 0 and not f["settled"]):
            return
        if f["settled"] or (self.world.breaks("settled-flag") and number >= s.update):
            s.settled = True
            s.target = max(s.target, number)
        if number > s.update:
            s.ahead[number] = f
        while s.update + 1 in s.ahead:
            self.apply(f["slot"], s, s.ahead.pop(s.update + 1))

    def apply(self, slot, s, f):
        s.update += 1
        s.waited = 0
        s.kept[s.update] = (f["value"], f["set"], f["doubt"])
        self.world.checks.update(self, slot, s.update, f["value"])
        mine, doubt = self.index in f["set"], f["doubt"]
        behind = not s.settled or s.update <= s.target
        if mine and behind and not s.bits_known and not self.world.breaks("predecessor"):
            doubt = True
        if s.settled and s.update >= s.target:
            s.bits_known = s.bits_known or mine or s.rejoined
        if s.outstanding and doubt:
            self.world.checks.given_up.add(s.outstanding)
            s.outstanding = None
        elif s.outstanding and mine:
            self.world.checks.acknowledge(self, slot, s.update, s.outstanding)
            s.outstanding = None

    def hand_back(self, slot, number):
        s = self.slots[slot]
        value, members, doubt = s.kept.get(number, ((), frozenset(), False))
        self.world.net.send(self.name, self.up, "handback", slot=slot, number=self.base + number, value=value, set=members,
                            doubt=doubt, settled=False)

    def on_help(self, f):
        number = f["number"] - self.base
        if number in self.slots[f["slot"]].kept:
            self.hand_back(f["slot"], number)

    def work(self):
        rng, world = self.world.rng, self.world
        if self.needs_reset:
            world.net.send(self.name, self.up, "reset", base=self.base)
            return
        for slot, s in enumerate(self.slots):
            if not s.settled:
                self.hand_back(slot, s.update)
                if not world.breaks("caught-up"):
                    continue
            if s.update < s.target and not world.breaks("caught-up"):
                s.waited += 1
                if world.deaths and s.waited > 80:
                    self.needs_reset = True  # who had it is dead
                world.net.send(self.name, self.up, "help", slot=slot, number=self.base + s.update + 1)
                continue
            if rng.random() < 0.4:
                world.net.send(self.name, self.up, "help", slot=slot, number=self.base + s.update + 1)
            if not s.outstanding and world.pushing and rng.random() < 0.6:
                s.push += 1
                s.pushed += not world.faulty
                s.outstanding = f"{self.name}|{self.generation}.{self.incarnation}|{self.origin}|{slot}|{s.push}"
            if s.outstanding:
                world.net.send(self.name, self.up, "push", slot=slot, number=self.base + s.push, tag=self.incarnation,
                               value=s.outstanding)

    def done(self):
        """After the faults: some pushes made, hence all but the last acknowledged."""
        return self.placed and not self.needs_reset and all(s.pushed >= 4 for s in self.slots)


# ---- switches


class Switch(Member):
    """The control part of a switch; its slots are in Sync/AsyncSwitch."""

    def __init__(self, world, name, up):
        self.world, self.name, self.up = world, name, up
        self.members = []  # names; the place in the list is the member id
        self.threshold = None
        self.restart()

    def restart(self):
        self.world.net.lose_joins(self.name)
        self.life_number = self.world.fresh()
        self.last_nonce = {}
        self.base = 0
        self.world.clock += self.world.rng.randint(1, self.world.clock_step)
        self.clock = self.world.clock
        self.forget()
        self.start_member()

    def forget(self):
        self.rows = {}  # member name: (incarnation, claim or None)
        self.running = False
        self.origin = None
        self.reset_wanted = False
        self.clear_slots()

    # -- as a member of the parent
    def claim(self):
        claims = [claim for _, claim in self.rows.values()]
        if not all(claims) or len({c["origin"] for c in claims}) != 1:
            return None
        return dict(origin=claims[0]["origin"], newest=max(c["newest"] for c in claims),
                    position=min(c["position"] for c in claims), end=max(c["end"] for c in claims))

    def complete_rows(self):
        return len(self.rows) == len(self.members)

    def lost_place(self):
        self.form_again()

    def got_place(self, f, rejoined):
        self.start_job(f["base"], f.get("on"), f.get("E", 0), f.get("F", 0), f.get("reason", 1), f.get("origin"), f.get("late"))

    def learn_reset(self, base):
        self.reset_wanted = False
        self.start_job(base, False, 0, 0, 0)

    # -- the job
    def form_again(self):
        rows = self.rows
        self.forget()
        for name in rows:
            self.world.net.send(self.name, name, "lost")
        if self.up:
            self.lose_place()

    def decide(self):
        """At a root, once all are there."""
        claim = self.claim()
        newest = max([self.base] + [c["newest"] for _, c in self.rows.values() if c])
        base = max(newest + 2, self.clock)
        if claim and claim["end"] - claim["position"] <= self.world.slots:
            self.start_job(newest if self.world.breaks("new-base") else base, True, claim["position"], claim["end"], 0, claim["origin"])
        else:
            # The clock has gone on since the last fresh start, whatever it is in streams that go on.
            base = max(base, max(w.base for w in self.world.workers) + 1000)
            self.start_job(base, False, 0, 0, 4 if claim else 1)

    def start_job(self, base, on, E, F, reason, origin=None, late=False):
        self.base, self.on, self.E, self.F, self.reason = base, on, E, F, reason
        self.running = True
        self.late = set(self.rows) if late else set()
        self.origin = self.claim()["origin"] if on else (origin or base)
        if on and self.world.breaks("keep-origin"):
            self.origin = base
        self.begin_slots()

    def reply(self, to, nonce, **fields):
        self.world.net.send(self.name, to, "reply", nonce=nonce, **fields)

    def standing_answer(self, to, nonce):
        if not self.running:
            self.reply(to, nonce, status=0, running=False, base=self.base)
        elif self.on and self.rows[to][1] and to not in self.late:
            self.reply(to, nonce, status=0, running=True, base=self.base, on=True, E=self.E, F=self.F)
        else:
            self.reply(to, nonce, status=0, running=True, base=self.base, on=False, reason=self.reason, origin=self.origin,
                       late=to in self.late)

    def on_join(self, source, f):
        nonce, last = f["nonce"], self.last_nonce.get(source, (0, False))
        if nonce < last[0]:
            return
        row = self.rows.get(source)
        if row and row[0] == f["incarnation"]:
            self.last_nonce[source] = (nonce, True)
            self.standing_answer(source, nonce)
            return
        if nonce == last[0] and last[1]:  # let in once, and has lost its place since
            self.reply(source, nonce, status=2)
            return
        claim = f["claim"]
        if claim and f["life"] != self.life_number and not self.world.breaks("life"):
            self.last_nonce[source] = (nonce, False)
            self.reply(source, nonce, status=0, running=False, base=self.base, life=self.life_number)
            return
        self.last_nonce[source] = (nonce, True)
        is_worker = isinstance(self.world.nodes[source], Worker)
        if self.running:
            known = row is not None and not (is_worker and self.world.breaks("worker-forms-again"))
            if claim and claim["origin"] == self.origin and (known or not is_worker):
                self.form_again()
            elif self.world.asynchronous and not (self.on and not is_worker):
                self.rows[source] = (f["incarnation"], None)
                self.late.add(source)
                self.refill(source)
                self.standing_answer(source, nonce)
                return
            else:  # as a Join: the job is reset
                self.rows[source] = (f["incarnation"], None)
                self.reset()
                if not self.up:
                    self.standing_answer(source, nonce)
                return  # a child's members learn of it as of any Reset
        self.rows[source] = (f["incarnation"], claim)
        if self.complete_rows():
            if self.up:
                self.lose_place()  # with a new incarnation: what it says of its members has changed
            else:
                self.decide()
        self.standing_answer(source, nonce)

    def reset(self):
        if self.up:
            self.reset_wanted = True
            self.running = False
        else:
            # How a Reset gets beyond numbers that only others know is section 6's business: here it just does.
            used = [w.base + 1000 for w in self.world.workers]
            self.start_job(max(self.base, self.highest(), *used) + 2, False, 0, 0, 5)

    def receive(self, source, kind, f):
        if kind == "reply":
            self.on_reply(f)
        elif kind in ("join", "rejoin"):
            self.on_join(source, f)
        elif kind == "ping":
            if source in self.rows:
                self.reply(source, f["nonce"], status=0, running=self.running, base=self.base)
            else:
                self.reply(source, f["nonce"], status=2)
        elif kind == "lost":
            if self.placed:
                self.send_ping()
        elif kind == "reset":
            if source in self.rows and self.running and f["base"] == self.base:
                self.reset()
        elif kind == "result":
            if self.placed and self.running:
                self.on_result(f)
        elif kind == "help" and source == self.up:
            if self.placed and self.running:
                self.on_help(None, f)
        elif source not in self.rows:
            self.world.net.send(self.name, source, "lost")
        elif self.running:
            if kind in ("contribution", "push"):
                self.on_contribution(source, f)
            elif kind == "handback":
                self.on_handback(source, f)
            elif kind == "help":
                self.on_help(source, f)

    def tick(self):
        if not self.up:
            return
        if self.placed:
            if self.world.rng.random() < 0.3:
                self.send_ping()
            if self.reset_wanted:
                self.world.net.send(self.name, self.up, "reset", base=self.base)
        elif self.complete_rows():
            if not self.request:
                self.ask()
            self.repeat_request()

    def to_member(self, name, kind, fields):
        self.world.net.send(self.name, name, kind, **fields)

    def to_all(self, kind, fields):
        for name in self.rows:
            self.to_member(name, kind, fields)


class SyncSwitch(Switch):
    def clear_slots(self):
        self.last, self.kept, self.open, self.waiting = [], [], [], []

    def begin_slots(self):
        n = self.world.slots
        self.last = [self.base + (self.E - 1 - s) // n for s in range(n)]
        self.kept = [{} for _ in range(n)]
        self.open = [None] * n  # [round, members, parts]
        self.waiting = [None] * n  # (round, kind, value)

    def highest(self):
        return max([self.base] + self.last) + 1

    def refill(self, source):
        pass

    def needed(self, s, r):
        position = (r - self.base) * self.world.slots + s
        if position < self.F and not self.world.breaks("all-below-end"):
            return len(self.members)
        return self.threshold

    def result(self, s, r):
        return dict(slot=s, round=r, value=self.kept[s][r])

    def send_up(self, s, again=False):
        r, kind, value = self.waiting[s]
        self.world.net.send(self.name, self.up, kind, slot=s, round=r, value=value, again=again)

    def close(self, s, r, value):
        self.last[s] = r
        self.kept[s][r] = value
        self.to_all("result", self.result(s, r))

    def on_contribution(self, source, f):
        s, r = f["slot"], f["round"]
        if r in self.kept[s]:
            self.to_member(source, "result", self.result(s, r))
        elif self.waiting[s] and r == self.waiting[s][0]:
            if f["again"]:
                self.send_up(s, True)
        elif self.open[s] and r == self.open[s][0]:
            if source not in self.open[s][1]:
                self.add(s, source, f["value"])
        elif not self.open[s] and not self.waiting[s] and r == self.last[s] + 1:
            self.open[s] = [r, [], []]
            self.add(s, source, f["value"])
        elif r <= self.last[s] and r >= self.base and self.up:
            self.world.net.send(self.name, self.up, "help", slot=s, round=r)

    def add(self, s, source, value):
        r, members, parts = self.open[s]
        members.append(source)
        parts.append(value)
        if len(members) < self.needed(s, r):
            return
        self.open[s] = None
        if self.up:
            self.waiting[s] = (r, "contribution", tuple(parts))
            self.send_up(s)
        else:
            self.close(s, r, tuple(parts))

    def on_handback(self, source, f):
        s, r = f["slot"], f["round"]
        if (r - self.base) * self.world.slots + s >= self.F:
            return
        if r in self.kept[s]:
            self.to_member(source, "result", self.result(s, r))
        elif self.waiting[s] and r == self.waiting[s][0]:
            self.send_up(s, True)
        elif (self.open[s] and r == self.open[s][0]) or (not self.open[s] and not self.waiting[s] and r == self.last[s] + 1):
            self.open[s] = None
            if self.up:
                self.waiting[s] = (r, "handback", f["value"])
                self.send_up(s)
            else:
                self.close(s, r, f["value"])

    def on_help(self, source, f):
        s, r = f["slot"], f["round"]
        if source and r in self.kept[s]:
            self.to_member(source, "result", self.result(s, r))
        elif source and self.up and self.base <= r <= self.last[s]:
            self.world.net.send(self.name, self.up, "help", slot=s, round=r)

    def on_result(self, f):
        s, r = f["slot"], f["round"]
        if r > self.last[s]:
            if self.open[s] and self.open[s][0] <= r:
                self.open[s] = None
            if self.waiting[s] and self.waiting[s][0] <= r:
                self.waiting[s] = None
            self.close(s, r, f["value"])
        elif r not in self.kept[s] and r >= self.base:
            self.kept[s][r] = f["value"]
            self.to_all("result", self.result(s, r))


class SwitchSlot:
    def __init__(self, base, settled):
        self.settled = settled
        self.handed = {}  # member: number it handed back
        self.own = base  # newest that a direct worker handed back
        self.last = base
        self.kept = {}  # number: [value, set of member ids, doubt]
        self.accepted = {}  # member: last accepted push
        self.members, self.parts = set(), []
        self.waiting = None  # (push, members, value)
        self.pushes = base


class AsyncSwitch(Switch):
    def clear_slots(self):
        self.slots = []

    def begin_slots(self):
        self.slots = [SwitchSlot(self.base, not self.on) for _ in range(self.world.slots)]

    def highest(self):
        return max([self.base] + [max([s.last, *s.accepted.values()]) for s in self.slots])

    def id_of(self, name):
        return self.members.index(name)

    def refill(self, source):
        """A place filled anew: its predecessor's bits mean nothing to it, and it has nothing to hand back."""
        who = self.id_of(source)
        for at, s in enumerate(self.slots):
            s.members.discard(who)
            s.accepted.pop(source, None)
            for k in s.kept.values():
                k[1] = k[1] - {who}
            if s.waiting:
                s.waiting = (s.waiting[0], s.waiting[1] - {who}, s.waiting[2])
            if not self.world.breaks("refill-settles"):
                s.handed.setdefault(source, self.base)
                self.try_settle(at)

    def result(self, at, number, settled=False):
        value, members, doubt = self.slots[at].kept.get(number, ((), frozenset(), False))
        return dict(slot=at, number=number, value=value, set=frozenset(members), doubt=doubt, settled=settled)

    # -- pushes
    def on_contribution(self, source, f):
        s, n, who = self.slots[f["slot"]], f["number"], self.id_of(source)
        if not s.settled or n <= self.base or f["tag"] != self.rows[source][0]:
            return
        if n > s.accepted.get(source, self.base):
            s.accepted[source] = n
            s.members.add(who)
            s.parts.append(f["value"])
            self.complete(f["slot"])
            return
        if s.waiting:
            self.send_up(f["slot"])
        if who in s.members or (s.waiting and who in s.waiting[1]) or n != s.accepted[source]:
            return
        acks = [u for u, k in s.kept.items() if who in k[1]]
        if acks:
            self.to_member(source, "result", self.result(f["slot"], max(acks)))

    def complete(self, at):
        s = self.slots[at]
        if len(s.members) < self.threshold or not s.parts or s.waiting:
            return
        value, members = tuple(s.parts), frozenset(s.members)
        s.members, s.parts = set(), []
        if self.up:
            s.pushes += 1
            s.waiting = (s.pushes, members, value)
            self.send_up(at)
        else:
            s.last += 1
            s.kept[s.last] = [value, members, False]
            self.to_all("result", self.result(at, s.last))

    def send_up(self, at):
        push, _, value = self.slots[at].waiting
        self.world.net.send(self.name, self.up, "push", slot=at, number=push, tag=self.incarnation, value=value)

    # -- results of the parent
    def on_result(self, f):
        at, number = f["slot"], f["number"]
        s = self.slots[at]
        if number < self.base:
            return
        if not s.settled:
            if self.complete_hand_backs(s) and (f["settled"] or (self.world.breaks("settled-flag") and number >= s.last)):
                self.take(s, f)
                s.settled = True
                s.last = max(s.last, number)
                self.to_all("result", self.result(at, s.last, True))
            return
        new = number not in s.kept and number > self.base
        if new:
            self.take(s, f)
        s.last = max(s.last, number)
        if new and number in s.kept:
            self.to_all("result", self.result(at, number, f["settled"] and number == s.last))
            self.complete(at)

    def take(self, s, f):
        number = f["number"]
        if number in s.kept or number == self.base:
            return
        if number <= s.own and not self.world.breaks("own-members-first"):
            return
        mine = self.world.nodes[self.up].members.index(self.name) in f["set"]
        members, doubt = frozenset(), f["doubt"]
        if mine and not doubt:
            if s.waiting:
                members, s.waiting = s.waiting[1], None
            else:
                doubt = True  # who of ours was in it is not known any more
        if self.world.breaks("doubt"):
            doubt = False
        s.kept[number] = [f["value"], members, doubt]

    # -- settling
    def complete_hand_backs(self, s):
        return len(s.handed) == len(self.members)

    def on_handback(self, source, f):
        at, number = f["slot"], f["number"]
        s = self.slots[at]
        if number < self.base:
            return
        is_worker = isinstance(self.world.nodes[source], Worker)
        if is_worker and not s.settled:
            s.own = max(s.own, number)
        doubt = f["doubt"] or (not is_worker and not self.world.breaks("doubt"))
        if number > self.base and (is_worker or number > s.own or self.world.breaks("own-members-first")):
            # What a direct worker knows of it goes before what came through a switch.
            better = number in s.kept and s.kept[number][2] and not doubt and not s.settled
            if number not in s.kept or better:
                joined = set() if self.world.breaks("predecessor") else {self.id_of(name) for name in self.late}
                s.kept[number] = [f["value"], frozenset() if doubt else f["set"] - joined, doubt]
                if s.settled:
                    self.to_all("result", self.result(at, number))
        if not s.settled:
            s.last = max(s.last, number)
            s.handed[source] = number
            self.try_settle(at)
        else:
            s.last = max(s.last, number)
            self.to_member(source, "result", self.result(at, s.last, True))

    def try_settle(self, at):
        s = self.slots[at]
        if s.settled or not self.complete_hand_backs(s):
            return
        if self.up:
            r = self.result(at, s.last)
            self.world.net.send(self.name, self.up, "handback", **r)
        else:
            s.settled = True
            self.to_all("result", self.result(at, s.last, True))

    def tick(self):
        super().tick()
        if self.up and self.placed and self.running:
            for at, s in enumerate(self.slots):
                if not s.settled:
                    self.try_settle(at)
                elif s.waiting:
                    self.send_up(at)

    def on_help(self, source, f):
        at, number = f["slot"], f["number"]
        s = self.slots[at]
        if number in s.kept:
            if source:
                self.to_member(source, "result", self.result(at, number))
            else:
                self.world.net.send(self.name, self.up, "handback", **self.result(at, number))
            return
        if number <= self.base or number > s.last:
            if source and self.up and s.settled:
                self.world.net.send(self.name, self.up, "help", slot=at, number=number)
            return
        self.to_all("help", dict(slot=at, number=number))
        if source and self.up and number > s.own:
            self.world.net.send(self.name, self.up, "help", slot=at, number=number)


# ---- the world


class World:
    def __init__(self, seed, broken=None, trace=False):
        self.rng = rng = random.Random(seed)
        self.broken, self.trace = broken, trace
        self.count = self.clock = 0
        self.asynchronous = rng.random() < 0.5
        self.slots = rng.randint(1, 4) if not self.asynchronous else rng.randint(1, 2)
        self.positions = rng.randint(6, 16)
        self.loss = rng.choice([0.02, 0.1, 0.3])
        self.deaths = rng.random() < 0.25
        self.full = rng.random() < 0.6
        self.clock_step = 1000 if self.deaths or rng.random() < 0.5 else 1
        self.lossless = not self.deaths and (self.full or self.asynchronous)
        self.faulty = self.pushing = True
        self.nodes, self.switches, self.workers = {}, [], []
        self.net, self.checks = Network(self), Checks(self)
        levels = rng.choice([1, 1, 2, 2, 3])
        self.single = levels == 1
        self.build("r", None, levels)
        for s in self.switches:
            n = len(s.members)
            s.threshold = rng.randint(1, n) if self.asynchronous and rng.random() < 0.5 or not self.full else n

    def fresh(self):
        self.count += 1
        return self.count

    def breaks(self, rule):
        return self.broken == rule

    def build(self, name, up, levels):
        switch = (AsyncSwitch if self.asynchronous else SyncSwitch)(self, name, up)
        self.nodes[name] = switch
        self.switches.append(switch)
        for i in range(self.rng.randint(2 if levels == 1 else 1, 3 if levels < 3 else 2)):
            child = f"{name}{i}"
            switch.members.append(child)
            if levels > 1 and (i == 0 or self.rng.random() < 0.8):
                self.build(child, name, levels - 1)
            else:
                worker = (AsyncWorker if self.asynchronous else SyncWorker)(self, child, name, i)
                self.nodes[child] = worker
                self.workers.append(worker)

    def run(self):
        rng = self.rng
        nodes = list(self.nodes.values())
        # Forming, without faults: who was never told that the job runs knows no stream.
        self.faultless(lambda: all(w.placed for w in self.workers), 500)
        for _ in range(rng.randint(100, 900)):
            for _ in range(rng.randint(1, 12)):
                self.net.step(True)
            rng.choice(nodes).tick()
            if rng.random() < 0.03:
                for s in rng.sample(self.switches, rng.randint(1, len(self.switches)) if rng.random() < 0.3 else 1):
                    if self.trace:
                        print(f"---- {s.name} restarts")
                    s.restart()
            if self.deaths and rng.random() < 0.004:
                w = rng.choice(self.workers)
                if self.trace:
                    print(f"---- {w.name} dies")
                w.die()
        self.faulty = False
        self.faultless(lambda: all(w.done() for w in self.workers), 1500)
        if self.asynchronous:
            self.pushing = False
            self.faultless(self.equal, 200)
        self.checks.at_end()

    def equal(self):
        return all(len({w.slots[s].update for w in self.workers}) == 1 for s in range(self.slots))

    def faultless(self, reached, limit):
        for _ in range(limit):
            if reached():
                return
            for n in self.nodes.values():
                n.tick()
            del self.net.bag[:-3000]
            for _ in range(min(len(self.net.bag), 1500)):
                self.net.step(False)
        raise Broken("stuck: " + ", ".join(f"{w.name} {'in' if w.placed else 'out'}" for w in self.workers))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="1:300")
    parser.add_argument("--break", dest="broken", choices=sorted(RULES), help="leave this rule out")
    parser.add_argument("--trace", action="store_true")
    arguments = parser.parse_args()
    first, last = (int(x) for x in arguments.seeds.split(":"))
    for seed in range(first, last + 1):
        world = World(seed, arguments.broken, arguments.trace)
        try:
            world.run()
        except Broken as broken:
            kind = "async" if world.asynchronous else "sync"
            print(f"seed {seed} ({kind}, {len(world.switches)} switches, {len(world.workers)} workers): {broken}")
            return 0 if arguments.broken else 1
    if arguments.broken:
        print(f"{last - first + 1} seeds without the rule '{RULES[arguments.broken]}' and no violation")
        return 1
    print(f"{last - first + 1} seeds hold")
    return 0


if __name__ == "__main__":
    sys.exit(main())
