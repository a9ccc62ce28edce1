"""A worker written from docs/protocol.md alone, with plain sockets: a second implementation to hold switchd against.

Sockets are opened inside a host's network namespace and used from here, so the logic stays in the test. Datagrams leave
through ordinary UDP sockets (the host's kernel makes the headers) or, where they are to be wrong, as raw frames;
frames are received as they are, with all their headers.
"""

import collections
import contextlib
import ctypes
import hashlib
import hmac
import os
import random
import socket
import struct
import time

SWITCH_IP = "10.77.0.254"
SWITCH_MAC = "02:00:00:00:00:fe"
PORT = 17170
DATA, CONTROL = 0xAC, 0xBC
ECT0, CE = 2, 3
CONTRIBUTION, RESULT, REQUEST, REPLY = range(4)
JOIN, LEAVE, RESET, SETH, FBCAST, HELP, HALT, RESUME, PING = range(1, 10)
OK, NO_JOB, NOT_MEMBER, FULL, BAD_TAG, BAD_VALUE, UNSUPPORTED, GONE, HALTED, NO_PARENT, REPLAYED, MISMATCH = range(12)
FORMING, RUNNING, STOPPED = range(3)
RETRANSMIT, ECN_ECHO, PARTIAL = 8, 16, 32
NOBODY = 0xFFFF
MASK = 0xFFFFFFFF


# ---- numbers

def inet_checksum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def crc32c(data):
    crc = MASK
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ MASK


def operation_tag(kind=0, data_type=0, root=0, elements=0, caller=0):
    return crc32c(struct.pack("!BBHIQI", kind, data_type, 0, root, elements, caller))


def control_tag(key, packet, ip, port):
    if key is None:
        return bytes(16)
    return hmac.new(key, packet + socket.inet_aton(ip) + struct.pack("!H", port), hashlib.sha256).digest()[:16]


def newer(a, b):
    """RFC 1982: round a comes after round b."""
    return 0 < (a - b) & MASK < 1 << 31


def float_of(bits):
    return struct.unpack("<f", struct.pack("<I", bits))[0]


def add(a, b):
    """The bits of one binary32 addition. Rounding the exact-enough binary64 sum again is innocuous: 53 >= 2 * 24 + 2."""
    total = float_of(a) + float_of(b)
    if total != total:
        return 0x7FC00000
    try:
        return struct.unpack("<I", struct.pack("<f", total))[0]
    except OverflowError:
        return 0x7F800000 if total > 0 else 0xFF800000


def sum_bits(contributions):
    """Lists of bits in order of arrival, starting from 0.0; empty ones add nothing."""
    total = None
    for bits in contributions:
        if bits:
            total = [add(a, b) for a, b in zip(total or [0] * len(bits), bits)]
    return total or []


def pack_bits(bits):
    return struct.pack(f"<{len(bits)}I", *bits)


def pack_floats(values):
    return struct.pack(f"<{len(values)}f", *values)


# ---- frames

def header(kind, second, job, member, round_, segment, set_, version=1):
    return struct.pack("!BBHHIIQ", version << 4 | kind, second, job, member, round_ & MASK, segment, set_)


def mac_bytes(text):
    return bytes.fromhex(text.replace(":", ""))


def frame(body, source, destination=(SWITCH_IP, PORT), tos=DATA | ECT0, source_mac=None, destination_mac=SWITCH_MAC, version=4,
          options=b"", fragment=0x4000, identification=0, ttl=64, protocol=17, ip_checksum=None, udp_checksum=None, udp_length=None,
          total_length=None, vlan=b""):
    """An Ethernet frame; what is not given is right."""
    length = 8 + len(body)
    ends = socket.inet_aton(source[0]) + socket.inet_aton(destination[0])
    udp = struct.pack("!HHH", source[1], destination[1], udp_length if udp_length is not None else length)
    if udp_checksum is None:
        udp_checksum = inet_checksum(ends + struct.pack("!HH", 17, length) + udp + bytes(2) + body) or 0xFFFF
    start = struct.pack("!BBHHHBB", version << 4 | 5 + len(options) // 4, tos,
                        total_length if total_length is not None else 20 + len(options) + length,
                        identification, fragment, ttl, protocol)
    if ip_checksum is None:
        ip_checksum = inet_checksum(start + bytes(2) + ends + options)
    return (mac_bytes(destination_mac) + mac_bytes(source_mac) + vlan + b"\x08\x00" + start + struct.pack("!H", ip_checksum) + ends +
            options + udp + struct.pack("!H", udp_checksum) + body)


class Received:
    """A frame from the switch. Attributes are the fields; body is what follows the iSwitch header."""

    def __init__(self, raw):
        self.raw = raw
        self.destination_mac, self.source_mac = raw[0:6].hex(":"), raw[6:12].hex(":")
        (first, self.tos, self.total_length, self.identification, self.fragment, self.ttl, self.protocol,
         self.ip_checksum) = struct.unpack("!BBHHHBBH", raw[14:26])
        self.ihl, self.ip_version = first & 15, first >> 4
        self.source, self.destination = socket.inet_ntoa(raw[26:30]), socket.inet_ntoa(raw[30:34])
        self.source_port, self.destination_port, self.udp_length, self.udp_checksum = struct.unpack("!HHHH", raw[34:42])
        datagram = raw[34:14 + self.total_length]
        self.ip_right = inet_checksum(raw[14:34]) == 0
        self.udp_right = (self.udp_checksum != 0 and
                          inet_checksum(raw[26:34] + struct.pack("!HH", 17, len(datagram)) + datagram) == 0)
        packet = datagram[8:]
        self.packet = packet
        first, self.second, self.job, self.member, self.round, self.segment, self.set = struct.unpack("!BBHHIIQ", packet[:22])
        self.version, self.kind = first >> 4, first & 15
        self.body = packet[22:]
        self.flags = self.action = self.second
        if self.kind == REPLY and len(packet) == 22 + 40 + 16:
            (self.status, self.state, self.mode, self.data_type, self.zero, self.member_id, self.members, self.expected, self.threshold,
             self.shards, self.segment_bytes, self.slots, self.base_round, self.history, self.zero2,
             self.missing) = struct.unpack("!HBBBBHHHHHIIIHHQ", self.body[:40])
        if self.kind in (REQUEST, REPLY):
            self.tag = self.body[-16:]

    @property
    def bits(self):
        return list(struct.unpack(f"<{len(self.body) // 4}I", self.body))

    @property
    def floats(self):
        return list(struct.unpack(f"<{len(self.body) // 4}f", self.body))

    def tagged(self, key, ip, port):
        return self.tag == control_tag(key, self.packet[:-16], ip, port)

    def __repr__(self):
        name = ("contribution", "result", "request", "reply")[self.kind] if self.kind < 4 else f"type {self.kind}"
        if self.kind == REPLY and len(self.body) == 56:
            return (f"reply action {self.action} id {self.round} nonce {self.set} status {self.status} state {self.state} "
                    f"base {self.base_round} missing {self.missing:#x}")
        return f"{name} {self.second} round {self.round} segment {self.segment} set {self.set:#x} body {self.body.hex()[:64]}"


# ---- hosts and workers

class Host:
    """The sockets of one network namespace."""

    def __init__(self, lab_host, mac):
        self.ip, self.mac = lab_host.address, mac
        self.namespace = f"/proc/{lab_host.holder.pid}/ns/net"
        self.socket = self.inside(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800)))
        self.socket.setsockopt(socket.SOL_SOCKET, 33, 1 << 23)  # SO_RCVBUFFORCE
        self.socket.bind(("eth0", 0x0800))
        self.queues = collections.defaultdict(collections.deque)

    def inside(self, make):
        """Calls make() with the calling thread in the host's namespace: sockets stay where they were made."""
        libc = ctypes.CDLL(None, use_errno=True)
        with open("/proc/thread-self/ns/net") as own, open(self.namespace) as theirs:
            for place, action in ((theirs, make), (own, lambda: None)):
                if libc.setns(place.fileno(), 0x40000000) != 0:
                    raise OSError(ctypes.get_errno(), "setns")
                if place is theirs:
                    made = action()
        return made

    def udp(self, port):
        made = self.inside(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        made.bind((self.ip, port))
        return made

    def send_raw(self, raw):
        self.socket.send(raw)

    def receive(self, port, seconds):
        """The next frame from the switch to that UDP port; None after `seconds`."""
        end = time.monotonic() + seconds
        while not self.queues[port]:
            self.socket.settimeout(max(end - time.monotonic(), 0.0001))
            try:
                raw = self.socket.recv(65536)
            except (TimeoutError, BlockingIOError):
                return None
            if len(raw) >= 64 and raw[23] == 17 and raw[26:30] == socket.inet_aton(SWITCH_IP):
                found = Received(raw)
                self.queues[found.destination_port].append(found)
        return self.queues[port].popleft()

    def close(self):
        self.socket.close()


class Worker:
    """A member, or somebody who would like to be one: an address, a UDP port, a member id and a stream of nonces."""

    ports = iter(range(40001, 60000))

    def __init__(self, host, job=1, key=None, port=None, member=NOBODY, patience=4.0):
        self.host, self.job, self.key, self.member, self.patience = host, job, key, member, patience
        self.port = port or next(Worker.ports)
        self.incarnation = random.randrange(1 << 32)
        self.socket = host.udp(self.port)
        self.request_id = 0
        self.nonce = time.time_ns() // 1000
        self.base = None  # base_round of the last Join reply

    # ---- sending

    def send(self, packet, tos, port=PORT):
        self.socket.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)
        self.socket.sendto(packet, (SWITCH_IP, port))

    def frame(self, packet, **more):
        """The raw frame of a datagram of this worker, for wrong ones."""
        return frame(packet, **{"source": (self.host.ip, self.port), "source_mac": self.host.mac, **more})

    def data(self, round_, segment=0, payload=b"", tag=1, flags=0, workers=1, member=None, job=None, kind=CONTRIBUTION, version=1):
        return header(kind, flags, self.job if job is None else job, self.member if member is None else member, round_, segment,
                      tag << 32 | workers, version) + payload

    def contribute(self, round_, segment=0, payload=b"", tag=1, ecn=ECT0, **more):
        """round_ counts from base_round."""
        self.send(self.data(self.base + round_, segment, payload, tag, **more), DATA | ecn)

    def control(self, action, body=b"", member=None, job=None, request_id=None, nonce=None, tag=None, kind=REQUEST, segment=0):
        packet = header(kind, action, self.job if job is None else job, self.member if member is None else member,
                        self.request_id if request_id is None else request_id, segment, self.nonce if nonce is None else nonce) + body
        return packet + (control_tag(self.key, packet, self.host.ip, self.port) if tag is None else tag)

    def ask(self, action, body=b"", **more):
        """A new request and its reply."""
        self.request_id += 1
        self.nonce = max(self.nonce + 1, time.time_ns() // 1000)
        return self.ask_again(action, body, **more)

    def ask_again(self, action, body=b"", silent=False, **more):
        """The same request id and nonce as before (or those given). With `silent` no answer is expected: gives None at once."""
        self.send(self.control(action, body, **more), CONTROL)
        if silent:
            return None
        return self.reply(action, more.get("request_id", self.request_id), more.get("nonce", self.nonce))

    def repeat(self, action, body=b"", **more):
        """The last request (already sent, or not), repeated until it is answered."""
        for _ in range(40):
            self.ask_again(action, body, silent=True, **more)
            with contextlib.suppress(AssertionError):
                return self.reply(action, more.get("request_id", self.request_id), more.get("nonce", self.nonce), 0.2)
        raise AssertionError(f"no reply to action {action}, repeated 40 times")

    def reply(self, action, request_id, nonce, seconds=None):
        return self.expect(lambda f: f.kind == REPLY and f.action == action and f.round == request_id and f.set == nonce,
                           f"a reply to action {action}", seconds)

    def join_body(self, kind=0, data_type=0, mode=0, zero=0, wanted=NOBODY, shards=0, segment_bytes=8928, incarnation=None):
        return struct.pack("!BBBBHHII", kind, data_type, mode, zero, wanted, shards, segment_bytes,
                           self.incarnation if incarnation is None else incarnation)

    def join(self, silent=False, tag=None, **more):
        reply = self.ask(JOIN, self.join_body(**more), member=NOBODY, silent=silent, tag=tag)
        if reply and reply.status == OK:
            self.member, self.base = reply.member_id, reply.base_round
        return reply

    def answer(self, request):
        """To a request of the switch; its tag is over the same client's address as the request's."""
        mine = (self.host.ip, self.port)
        key_client = mine if self.key and request.tagged(self.key, *mine) else (SWITCH_IP, PORT)
        packet = header(REPLY, request.action, self.job, self.member, request.round, 0, request.set) + bytes(40)
        self.send(packet + control_tag(self.key, packet, *key_client), CONTROL)

    # ---- receiving

    def receive(self, seconds=None):
        return self.host.receive(self.port, self.patience if seconds is None else seconds)

    def expect(self, wanted, what, seconds=None):
        """The first frame that `wanted` takes; others stay in the queue, in their order."""
        end = time.monotonic() + (self.patience if seconds is None else seconds)
        others = []
        try:
            while True:
                found = self.receive(end - time.monotonic())
                if found is None:
                    raise AssertionError(f"job {self.job} member {self.member}: {what} did not come; came: {others}")
                if wanted(found):
                    return found
                others.append(found)
        finally:
            self.host.queues[self.port].extendleft(reversed(others))

    def result(self, round_, segment=0):
        """round_ counts from base_round."""
        return self.expect(lambda f: f.kind == RESULT and f.round == (self.base + round_) & MASK and f.segment == segment,
                           f"the result of round base + {round_}, segment {segment}")

    def request(self, action):
        return self.expect(lambda f: f.kind == REQUEST and f.action == action, f"a request {action}")

    def notice(self, status):
        return self.expect(lambda f: f.kind == REPLY and f.action == PING and f.round == 0 and f.status == status,
                           f"an unasked-for reply with status {status}")

    def rest(self, settle=0.02):
        """All that has come, after a Ping went there and back: what was sent before has been dealt with."""
        self.send(self.control(PING, request_id=0xFFFFFFF0, nonce=7), CONTROL)
        self.expect(lambda f: f.kind == REPLY and f.round == 0xFFFFFFF0, "the reply to a Ping")
        found = []
        while (more := self.receive(settle)) is not None:
            found.append(more)
        return found
