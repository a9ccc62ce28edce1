#!/usr/bin/env python3
"""switchd as a process, with ports that need neither rights nor hardware (net_null, net_ring): exit codes, one clear line for
each thing that can be wrong, the admin socket, the order of the end, nothing left behind. Needs no root.

usage: test_process.py SWITCHD CONFIGS [TEST...]
"""

import contextlib
import glob
import json
import os
import re
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import time

SWITCHD = sys.argv[1]
CONFIGS = sys.argv[2]
PATIENCE = 60  # seconds; a loaded machine is slow, a right daemon is not


def check(condition, text):
    if not condition:
        raise AssertionError(text)


def minimal(folder, **more):
    return {
        "switch": {"name": f"t{os.getpid()}", "ip": "10.77.0.254", "mac": "02:00:00:00:00:fe"},
        "ports": [{"name": "p0", "device": "net_ring0"}, {"name": "p1", "device": "net_ring1"}],
        "jobs": [{"id": 1, "members": 2, "slots": 64}],
        "admin": {"socket": os.path.join(folder, "admin.sock")},
        **more,
    }


def environment(folder):
    # A private runtime directory shows what is left behind.
    return {**os.environ, "XDG_RUNTIME_DIR": folder, "RUNTIME_DIRECTORY": ""}


def write(folder, config, name="config.json"):
    path = os.path.join(folder, name)
    with open(path, "w") as file:
        file.write(config if isinstance(config, str) else json.dumps(config))
    return path


def run_to_end(folder, config, *flags):
    return subprocess.run([SWITCHD, "--config", write(folder, config), *flags], env=environment(folder), text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=PATIENCE)


class Connection:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(PATIENCE)
        self.socket.connect(path)
        self.file = self.socket.makefile("rwb")

    def send(self, line):
        self.file.write(line.encode() + b"\n")
        self.file.flush()

    def reply(self):
        line = self.file.readline()
        check(line.endswith(b"\n"), f"no whole reply line: {line!r}")
        return json.loads(line)

    def ask(self, command, **keys):
        self.send(json.dumps({"command": command, **keys}))
        return self.reply()

    def close(self):
        self.file.close()
        self.socket.close()


class Running:
    """A daemon, ended with SIGTERM and checked at the end."""

    def __init__(self, folder, config, expect_warnings=False):
        self.folder = folder
        self.path = config["admin"]["socket"]
        self.log_path = os.path.join(folder, "log")
        self.expect_warnings = expect_warnings
        with open(self.log_path, "w") as log:
            self.process = subprocess.Popen([SWITCHD, "--config", write(folder, config, "running.json")], stderr=log,
                                            env=environment(folder))

    def log(self):
        with open(self.log_path) as file:
            return file.read()

    def __enter__(self):
        deadline = time.monotonic() + PATIENCE
        while " runs: " not in self.log():
            check(self.process.poll() is None, f"ended at start: {self.log()}")
            check(time.monotonic() < deadline, f"not ready: {self.log()}")
            time.sleep(0.05)
        return self

    def __exit__(self, kind, value, trace):
        if kind is not None:
            sys.stderr.write(self.log())
            self.process.kill()
            self.process.wait()
            return
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(PATIENCE)
        log = self.log()
        check(code == 0, f"exit code {code}: {log}")
        check("every packet buffer is back" in log, log)
        check(not os.path.exists(self.path), "the socket is left behind")
        check(not glob.glob(os.path.join(self.folder, "iswitch-dpdk-*")), "DPDK's directory is left behind")
        if not self.expect_warnings:
            check(not re.search(r" (warning|error) ", log), f"unexpected warning: {log}")

    def connect(self):
        return Connection(self.path)


@contextlib.contextmanager
def temporary():
    folder = tempfile.mkdtemp(prefix="iswitch-process-")
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


# ---- frames, written from protocol.md


def internet_checksum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def frame(message, *, tos=0xAC, dport=17170, ihl=5, flags=0x4000, ip_checksum=None, udp_checksum=None, udp_length=None, vlan=False,
          cut=0, sport=40001):
    source, destination = bytes([10, 77, 0, 1]), bytes([10, 77, 0, 254])
    length = 8 + len(message) if udp_length is None else udp_length
    pseudo = source + destination + struct.pack(">BBH", 0, 17, length)
    header = struct.pack(">HHHH", sport, dport, length, 0)
    right = internet_checksum(pseudo + header + message) or 0xFFFF
    udp = struct.pack(">HHHH", sport, dport, length, right if udp_checksum is None else udp_checksum) + message
    options = b"\1" * (ihl * 4 - 20)
    ip = struct.pack(">BBHHHBBH", 0x40 | ihl, tos, 20 + len(options) + len(udp), 0, flags, 64, 17, 0) + source + destination + options
    value = internet_checksum(ip) if ip_checksum is None else ip_checksum
    ip = ip[:10] + struct.pack(">H", value) + ip[12:]
    ethernet = bytes.fromhex("0200000000fe020000000001") + (bytes.fromhex("81000005") if vlan else b"") + b"\x08\x00"
    whole = ethernet + ip + udp
    return whole[:len(whole) - cut]


def data_message(*, version=1, kind=0, flags=0, job=1, member=0, round_=1, segment=0, payload=b"\0\0\x80\x3f" * 8):
    return struct.pack(">BBHHIIQ", version << 4 | kind, flags, job, member, round_, segment, 7 << 32 | 1) + payload


def join_message(*, job=1, tag=bytes(16), nonce=1000):
    body = struct.pack(">BBBBHHII", 0, 0, 0, 0, 0xFFFF, 0, 1440, 77)
    return struct.pack(">BBHHIIQ", 0x12, 1, job, 0xFFFF, 5, 0, nonce) + body + tag


def write_pcap(path, frames):
    with open(path, "wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
        for one in frames:
            file.write(struct.pack("<IIII", 0, 0, len(one), len(one)) + one)


def read_pcap(path):
    with open(path, "rb") as file:
        data = file.read()
    frames = []
    at = 24
    while at + 16 <= len(data):
        size = struct.unpack_from("<I", data, at + 8)[0]
        frames.append(data[at + 16:at + 16 + size])
        at += 16 + size
    return frames


# ---- tests


def examples_are_right():
    found = sorted(glob.glob(os.path.join(CONFIGS, "*.json")))
    check(len(found) >= 4, f"examples: {found}")
    for path in found:
        done = subprocess.run([SWITCHD, "--config", path, "--check-config"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        check(done.returncode == 0 and done.stderr == "", f"{path}: {done.stderr}")


def examples_start_where_no_hardware_is_needed():
    for name in ("line-rate", "memif"):
        with open(os.path.join(CONFIGS, name + ".json")) as file:
            config = json.load(file)
        with temporary() as folder:
            config["admin"] = {"socket": os.path.join(folder, "admin.sock")}
            for port in config["ports"]:
                port["device"] = port["device"].replace("/run/iswitch", folder)
            with Running(folder, config) as daemon:
                ports = daemon.connect().ask("ports")["ports"]
                check([port["name"] for port in ports] == ["p0", "p1"], ports)
                if name == "line-rate":
                    check(all(port["transmit"] == "chained" and port["link"] == "up" for port in ports), ports)


def a_switch_and_its_standby_are_one_switch():
    configs = []
    for name in ("standby-a", "standby-b"):
        with open(os.path.join(CONFIGS, name + ".json")) as file:
            configs.append(json.load(file))
    one, other = configs
    check(one["jobs"] == other["jobs"] and all(one["switch"][key] == other["switch"][key] for key in ("ip", "mac")), configs)
    check(one["switch"]["name"] != other["switch"]["name"], configs)
    with temporary() as folder:
        for config in configs:  # one after the other, as they are to be run
            config["admin"] = {"socket": os.path.join(folder, "admin.sock")}
            for number, port in enumerate(config["ports"]):
                port["device"] = f"net_ring{number}"
            with Running(folder, config) as daemon:
                jobs = daemon.connect().ask("jobs")["jobs"]
                check(jobs[0]["state"] == "forming" and jobs[0]["stream"] is None, jobs)


def the_address_is_said_on_every_port():
    with temporary() as folder:
        with Running(folder, minimal(folder)) as daemon:  # a net_ring gives back what is sent to it
            admin = daemon.connect()
            deadline = time.monotonic() + PATIENCE
            while sum(port["rx_frames"] for port in admin.ask("ports")["ports"]) < 2:
                check(time.monotonic() < deadline, admin.ask("ports"))
                time.sleep(0.05)
            check([port["tx_frames"] for port in admin.ask("ports")["ports"]] == [1, 1], admin.ask("ports"))
            counters = {counter["name"]: counter["value"] for counter in admin.ask("counters")["counters"]}
            check(counters["l2_drop_bad_source"] == 2, "its own, come back, is dropped and not answered")
            check(counters["local_arp_answered"] == 0, counters)


def a_pause_ends_it_in_order():
    with temporary() as folder:
        config = minimal(folder)
        with Running(folder, config) as daemon:
            check(daemon.connect().ask("pause")["ok"], "pause")
            check(daemon.process.wait(PATIENCE) == 0, daemon.log())


def examples_without_their_hardware_say_so():
    with temporary() as folder:
        for name, words in (("single-host", "interface sw0 does not exist"), ("rack-nic", "huge pages|no device")):
            with open(os.path.join(CONFIGS, name + ".json")) as file:
                config = json.load(file)
            config["admin"] = {"socket": os.path.join(folder, "admin.sock")}
            if name == "single-host":
                config["ports"] = [dict(port, device=port["device"].replace("sw", f"no{os.getpid() % 10000}x")) for port in config["ports"]]
                words = "does not exist"
            else:
                config["memory"] = "auto"
                config["ports"] = [dict(port, device=port["device"].replace("0000:01", "0000:f7")) for port in config["ports"]]
                words = "DPDK has no device"
            one_line(run_to_end(folder, config), 1, words)
            nothing_left(folder)


def one_line(done, code, words):
    lines = done.stderr.strip().splitlines()
    errors = [line for line in lines if " info " not in line]
    check(done.returncode == code, f"exit code {done.returncode}: {done.stderr}")
    check(len(errors) == 1 and re.search(words, errors[0]), f"wanted one line with {words!r}: {done.stderr}")


def nothing_left(folder):
    left = [name for name in os.listdir(folder) if not name.endswith(".json") and name != "log"]
    check(not left, f"left behind: {left}")


def wrong_configs_exit_with_2():
    with temporary() as folder:
        config = minimal(folder)
        config["ports"][1]["mtu"] = 9
        config["poll"] = "never"
        for flags in ((), ("--check-config",)):
            done = run_to_end(folder, config, *flags)
            check(done.returncode == 2, done)
            lines = done.stderr.strip().splitlines()
            check(len(lines) == 2, lines)
            check("/ports/1/mtu: 9: must be an integer from 256 to 9216" in lines[0], lines)
            check('/poll: "never": must be "adaptive" or "busy"' in lines[1], lines)
        one_line(run_to_end(folder, "{"), 2, "not JSON: parse error at line 1, column 2")
        done = subprocess.run([SWITCHD, "--config", folder + "/none.json"], stderr=subprocess.PIPE, text=True)
        check(done.returncode == 2 and "cannot be read" in done.stderr, done)
        done = subprocess.run([SWITCHD], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        check(done.returncode == 2, done)
        nothing_left(folder)


def machine_errors_exit_with_1_and_leave_nothing():
    with temporary() as folder:
        cases = [
            ({"ports": [{"name": "a", "device": f"net_af_packet0,iface=no{os.getpid()}"}]}, "does not exist .* make it"),
            ({"ports": [{"name": "a", "device": "net_nonsense0"}]}, "port a: attaching net_nonsense0 fails"),
            ({"ports": [{"name": "a", "device": "0000:f7:00.0"}]}, "DPDK has no device 0000:f7:00.0; bind it"),
            ({"lcores": [1023]}, "CPU 1023 is not among those this process may use"),
            ({"memory": {"huge_pages": True, "payload_buffers": 16000000}}, r"huge pages: \d+ MiB are needed, \d+ MiB are free"),
            ({"admin": {"socket": "/proc/x/admin.sock"}}, "admin socket /proc/x/admin.sock"),
            ({"admin": {"socket": os.path.join(folder, "admin.sock"), "metrics": "203.0.113.1:1"}}, "metrics endpoint"),
        ]
        if os.path.exists("/sys/class/net/lo"):
            cases.append(({"ports": [{"name": "a", "device": "net_af_packet0,iface=lo", "mtu": 1504}]}, "MTU is 1504 in the config but 65536"))
        for change, words in cases:
            one_line(run_to_end(folder, {**minimal(folder), **change}), 1, words)
            nothing_left(folder)


def the_socket_is_private_and_exclusive():
    with temporary() as folder:
        config = minimal(folder)
        # A stale socket is replaced.
        stale = socket.socket(socket.AF_UNIX)
        stale.bind(config["admin"]["socket"])
        stale.close()
        with Running(folder, config) as daemon:
            mode = os.stat(daemon.path).st_mode
            check(stat.S_ISSOCK(mode) and stat.S_IMODE(mode) == 0o600, oct(mode))
            one_line(run_to_end(folder, config), 1, "another switchd listens there")
            check(daemon.connect().ask("status")["ok"], "the first daemon still answers")


def default_places_of_the_socket():
    with temporary() as folder:
        config = minimal(folder)
        del config["admin"]
        name = config["switch"]["name"]
        places = [f"/run/iswitch/{name}.sock", f"{folder}/iswitch/{name}.sock"]
        config_path = write(folder, config)
        log_path = os.path.join(folder, "log")
        with open(log_path, "w") as log:
            process = subprocess.Popen([SWITCHD, "--config", config_path], stderr=log, env=environment(folder))
        try:
            deadline = time.monotonic() + PATIENCE
            while " runs: " not in open(log_path).read():
                check(process.poll() is None and time.monotonic() < deadline, open(log_path).read())
                time.sleep(0.05)
            check(sum(os.path.exists(place) for place in places) == 1, places)
        finally:
            process.send_signal(signal.SIGINT)
            check(process.wait(PATIENCE) == 0, open(log_path).read())
        check(not any(os.path.exists(place) for place in places), "left behind")


def requests_and_replies():
    with temporary() as folder:
        with Running(folder, minimal(folder)) as daemon:
            one = daemon.connect()
            status = one.ask("status")
            check(status["ok"] and status["pid"] == daemon.process.pid and status["ports_up"] == 2, status)
            check(status["shards"] == 1 and len(status["lcores"]) == 1, status)
            pools = ("frame_buffers", "payload_buffers", "header_buffers")
            deadline = time.monotonic() + PATIENCE
            while any(status["memory"][pool]["free"] != status["memory"][pool]["size"] for pool in pools):
                check(time.monotonic() < deadline, status)  # what said the address is on its way yet
                time.sleep(0.05)
                status = one.ask("status")
            ports = one.ask("ports")["ports"]
            check([port["transmit"] for port in ports] == ["copied", "copied"], "net_ring may not share")
            jobs = one.ask("jobs")["jobs"]
            check(len(jobs) == 1 and jobs[0]["state"] == "forming" and jobs[0]["members_expected"] == 2, jobs)
            check(one.ask("members")["members"] == [], "nobody has joined")
            check(one.ask("slots") == {"ok": True, "slots": [], "truncated": False}, "no open sums")
            counters = {counter["name"]: counter for counter in one.ask("counters")["counters"]}
            # A net_ring gives back what is sent to it: the switch's own address, said at the start.
            check(counters["rx_frames"]["value"] <= 2 and not counters["rx_frames"]["terminal"], counters["rx_frames"])
            check(sum(counter["terminal"] for counter in counters.values()) > 30, "terminal counters")
            check(all(len(counter["lcores"]) == 1 for counter in one.ask("counters", per_lcore=True)["counters"]
                      if counter["name"].startswith("parse_")), "per lcore")

            # Errors are lines and the connection lives on.
            for line, words in (("nonsense", "one JSON object"), ("[]", "one JSON object"), ("{}", "unknown command"),
                                ('{"command":"fly"}', "unknown command"), ('{"command":"status","x":1}', "/x"),
                                ('{"command":"halt"}', "/job: is missing"), ('{"command":"halt","job":-1}', "/job: -1"),
                                ('{"command":"halt","job":9}', "9"), ('{"command":"slots","limit":0}', "/limit: 0"),
                                ('{"command":"set-threshold","job":1,"threshold":65}', "/threshold: 65"),
                                ('{"command":"members","job":5}', "no such job"),
                                ('{"command":"capture","ports":["p9"]}', "/ports"),
                                ('{"command":"capture","direction":"up"}', "/direction"),
                                ('{"command":"capture","snap":5}', "/snap")):
                one.send(line)
                reply = one.reply()
                check(not reply["ok"] and words in reply["error"] and "\n" not in reply["error"], (line, reply))
            one.send('{"command":"jobs","id":[7]}')
            check(one.reply()["id"] == [7], "id is copied")

            # Requests in one write are answered in order.
            one.send("\n".join(json.dumps({"command": "status", "id": i}) for i in range(50)))
            check([one.reply()["id"] for _ in range(50)] == list(range(50)), "order")

            # A half-closed connection still gets its replies.
            half = daemon.connect()
            half.send('{"command":"status"}')
            half.socket.shutdown(socket.SHUT_WR)
            check(half.reply()["ok"], "half closed")
            check(half.file.readline() == b"", "closed after the last reply")

            too_long = daemon.connect()
            too_long.send("x" * 70000)
            check("longer than 65536" in too_long.reply()["error"], "long line")
            check(too_long.file.readline() == b"", "closed")


def jobs_come_and_go():
    with temporary() as folder:
        with Running(folder, minimal(folder)) as daemon:
            one = daemon.connect()
            check(one.ask("add-job", job={"id": 2, "members": 3, "slots": 128}) == {"ok": True}, "added")
            check([job["id"] for job in one.ask("jobs")["jobs"]] == [1, 2], "both")
            reply = one.ask("add-job", job={"id": 2, "members": 3})
            check(not reply["ok"], reply)
            reply = one.ask("add-job", job={"id": 3, "members": 3, "segment_bytes": 8928, "colour": 1})
            check("needs an MTU of 8978" in reply["error"] and "/job/colour" in reply["error"], reply)
            reply = one.ask("add-job", job={"id": 3, "members": 3, "slots": 1000000})
            check(re.search(r"would need \d+ payload buffers, there are \d+", reply["error"]), reply)
            for command, keys in (("set-threshold", {"threshold": 1}), ("halt", {}), ("resume", {}), ("reset", {})):
                reply = one.ask(command, job=2, **keys)
                check(reply["ok"] or "\n" not in reply["error"], (command, reply))
            check(one.ask("remove-job", job=2) == {"ok": True}, "removed")
            check([job["id"] for job in one.ask("jobs")["jobs"]] == [1], "one is left")
            for i in range(100):  # what a job held is given back
                check(one.ask("add-job", job={"id": 9, "members": 2, "slots": 2000}) == {"ok": True}, i)
                check(one.ask("remove-job", job=9) == {"ok": True}, i)


def many_and_slow_clients():
    with temporary() as folder:
        with Running(folder, minimal(folder)) as daemon:
            clients = [daemon.connect() for _ in range(64)]
            check(all(client.ask("status")["ok"] for client in clients), "64 are served")
            extra = daemon.connect()
            check("too many connections" in extra.reply()["error"], "the 65th is refused")
            for client in clients[1:]:
                client.close()
            # One that never reads is dropped; the others are served on.
            slow = daemon.connect()
            slow.socket.settimeout(1)
            request = json.dumps({"command": "counters"}).encode() + b"\n"
            dropped = False
            try:
                for _ in range(4000):
                    slow.socket.sendall(request)
            except (BrokenPipeError, ConnectionResetError):
                dropped = True
            except (socket.timeout, TimeoutError):
                pass  # its requests are not read while its replies wait
            check(clients[0].ask("status")["ok"], f"another client is served (dropped: {dropped})")


def capture_streams_pcapng():
    with temporary() as folder:
        config = minimal(folder)
        # net_null hands out frames without end, net_ring takes what is flooded to it.
        config["ports"] = [{"name": "n0", "device": "net_null0,size=128"}, {"name": "r0", "device": "net_ring0"}]
        with Running(folder, config) as daemon:
            client = daemon.connect()
            check(client.ask("capture", ports=["n0"], snap=64, direction="rx") == {"ok": True, "format": "pcapng"}, "capture")
            stream = client.file.read(1 << 20)
            client.close()
            blocks = 0
            packets = 0
            at = 0
            while at + 8 <= len(stream):
                kind, size = struct.unpack_from("<II", stream, at)
                if at + size > len(stream):
                    break
                check(size % 4 == 0 and struct.unpack_from("<I", stream, at + size - 4)[0] == size, "block ends")
                check(blocks != 0 or kind == 0x0A0D0D0A, "section header first")
                if kind == 6:
                    interface, high, low, captured, original = struct.unpack_from("<IIIII", stream, at + 8)
                    check((interface, captured, original) == (0, 64, 128), (interface, captured, original))
                    seconds = ((high << 32) + low) / 1e9
                    check(abs(seconds - time.time()) < 600, "wall-clock time")
                    packets += 1
                at += size
                blocks += 1
            check(packets > 100, f"{packets} packets in {blocks} blocks")
            other = daemon.connect()
            check(other.ask("status")["ok"], "lives on")
            # A reader that stops reading never stops the switch; its frames are counted as dropped.
            lazy = daemon.connect()
            check(lazy.ask("capture")["ok"], "capture")
            deadline = time.monotonic() + PATIENCE
            while True:
                counters = {c["name"]: c["value"] for c in other.ask("counters")["counters"]}
                if counters["capture_dropped"] > 0:
                    break
                check(time.monotonic() < deadline, "drops are counted")
                time.sleep(0.05)
            terminal = sum(c["value"] for c in other.ask("counters")["counters"] if c["terminal"])
            check(terminal > 0, "frames are counted")


def refused_frames_are_counted_and_told():
    refused = {
        "parse_drop_udp_checksum": frame(data_message(), udp_checksum=0x1234),
        "parse_drop_ip_checksum": frame(data_message(), ip_checksum=0x1234),
        "parse_drop_vlan": frame(data_message(), vlan=True),
        "parse_drop_fragment": frame(data_message(), flags=0x2000),
        "parse_drop_ip_options": frame(data_message(), ihl=6),
        "parse_drop_truncated": frame(data_message(), cut=4),
        "parse_drop_udp_length": frame(data_message(), udp_length=20),
        "parse_drop_short_header": frame(b"\x10\0\0"),
        "parse_drop_version": frame(data_message(version=2)),
        "parse_drop_type": frame(data_message(kind=9)),
        "parse_drop_reserved_bits": frame(data_message(flags=0x40)),
        "parse_drop_payload_alignment": frame(data_message(payload=b"\0" * 7)),
        "classify_drop_unknown_job": frame(data_message(job=9)),
        "classify_drop_not_a_member": frame(data_message()),
        "classify_drop_result": frame(data_message(kind=1)),
        "parse_drop_action": frame(struct.pack(">BBHHIIQ", 0x12, 99, 1, 0, 5, 0, 2000) + bytes(16), tos=0xBC),
        "rx_drop_unusable": bytes(12) + b"\x08\x00" + bytes(3000),
    }
    with temporary() as folder:
        received, sent = os.path.join(folder, "in.pcap"), os.path.join(folder, "out.pcap")
        joins = [frame(join_message(), tos=0xBC), frame(join_message(tag=b"x" * 16), tos=0xBC, sport=40002),
                 frame(join_message(job=8), tos=0xBC, sport=40003)]
        write_pcap(received, list(refused.values()) + joins)
        config = minimal(folder)
        config["ports"] = [{"name": "left", "device": f"net_pcap0,rx_pcap={received},tx_pcap={sent}"},
                           {"name": "right", "device": "net_ring0"}]
        frames = len(refused) + len(joins) + 1  # and the switch's own address, which the net_ring gives back
        with Running(folder, config) as daemon:
            one = daemon.connect()
            deadline = time.monotonic() + PATIENCE
            while True:
                counters = {c["name"]: c for c in one.ask("counters")["counters"]}
                if counters["rx_frames"]["value"] == frames and counters["control_replies_sent"]["value"] >= 3:
                    break
                check(time.monotonic() < deadline, counters)
                time.sleep(0.05)
            for name in refused:
                check(counters[name]["value"] == 1, (name, counters[name]))
            check(counters["control_passed"]["value"] == 3, counters["control_passed"])
            check(counters["control_refused_bad_tag"]["value"] == 1, "bad tag")
            check(counters["control_refused_no_such_job"]["value"] == 1, "no such job")
            terminal = sum(c["value"] for c in counters.values() if c["terminal"])
            check(terminal == frames, f"{terminal} frames in terminal counters")
            members = one.ask("members", job=1)["members"]
            check(len(members) == 1 and members[0]["port"] == "left" and members[0]["udp_port"] == 40001 and members[0]["incarnation"] == 77,
                  members)
            for name in refused:
                if name == "rx_drop_unusable":
                    continue
                # The log is written now and then; counters are read at once.
                while f"({name})" not in daemon.log() and time.monotonic() < deadline:
                    time.sleep(0.05)
                lines = [line for line in daemon.log().splitlines() if f"({name})" in line]
                check(len(lines) == 1 and "on port left" in lines[0] and "02:00:00:00:00:01" in lines[0], (name, lines))
            check("request refused: join: bad tag" in daemon.log(), daemon.log())
        replies = [one for one in read_pcap(sent) if len(one) >= 64 and one[15] & 0xFC == 0xBC and one[42] == 0x13 and one[43] == 1]
        statuses = sorted(struct.unpack_from(">H", one, 64)[0] for one in replies)
        check(statuses == [0, 1, 4], f"statuses of the replies to Join: {statuses}")
        leaves = [one for one in read_pcap(sent) if len(one) >= 64 and one[42] == 0x12 and one[43] == 2]
        check(len(leaves) == 1, f"{len(leaves)} Leave notices at the end, for one member")
        first, *rest = read_pcap(sent)
        check(first[12:14] == b"\x08\x06" and first[28:32] == first[38:42], "first of all it says its own address")
        for one in rest:
            check(internet_checksum(one[14:34]) == 0, "IPv4 checksum of what is sent")


def a_flood_does_not_fill_the_log():
    with temporary() as folder:
        received = os.path.join(folder, "in.pcap")
        write_pcap(received, [frame(data_message(version=2))] * 20000)
        config = minimal(folder)
        config["ports"] = [{"name": "left", "device": f"net_pcap0,rx_pcap={received}"}, {"name": "right", "device": "net_ring0"}]
        with Running(folder, config) as daemon:
            one = daemon.connect()
            deadline = time.monotonic() + PATIENCE
            while {c["name"]: c["value"] for c in one.ask("counters")["counters"]}["parse_drop_version"] < 20000:
                check(time.monotonic() < deadline, "all are counted")
                time.sleep(0.05)
            lines = []
            while not lines:  # they are told a little later than they are counted
                check(time.monotonic() < deadline, "nothing is told")
                time.sleep(0.05)
                lines = [line for line in daemon.log().splitlines() if "parse_drop_version" in line]
            check(1 <= len(lines) <= 3, f"{len(lines)} lines for 20000 frames")


def metrics_endpoint():
    with temporary() as folder:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        config = minimal(folder)
        config["admin"]["metrics"] = f"127.0.0.1:{port}"
        done = run_to_end(folder, {**config, "ports": []})
        check(done.returncode == 2, done)
        try:
            with Running(folder, config):
                deadline = time.monotonic() + PATIENCE
                text = ""
                while "iswitch_rx_frames_total" not in text:
                    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5) as client:
                        client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
                        text = b"".join(iter(lambda: client.recv(65536), b"")).decode()
                    check(time.monotonic() < deadline, text)
                    time.sleep(0.1)
                check('iswitch_port_up{port="p0"} 1' in text, text)
                check('iswitch_job_running{job="1"} 0' in text, text)
        except AssertionError as problem:
            if "built without prometheus" not in str(problem):
                raise
            print("      skipped: built without prometheus-cpp")


def the_end_is_in_order_with_frames_in_flight():
    with temporary() as folder:
        config = minimal(folder)
        config["ports"] = [{"name": "n0", "device": "net_null0"}, {"name": "n1", "device": "net_null1"}, {"name": "r0", "device": "net_ring0"}]
        for second_signal in (False, True):
            with Running(folder, config) as daemon:
                time.sleep(0.2)
                if second_signal:
                    daemon.process.send_signal(signal.SIGINT)


def start_and_end_again_and_again():
    with temporary() as folder:
        for _ in range(5):
            with Running(folder, minimal(folder)):
                pass


def idle_costs_little():
    with temporary() as folder:
        with Running(folder, minimal(folder)) as daemon:
            time.sleep(1)
            ticks = os.sysconf("SC_CLK_TCK")

            def cpu():
                fields = open(f"/proc/{daemon.process.pid}/stat").read().rsplit(")", 1)[1].split()
                return (int(fields[11]) + int(fields[12])) / ticks

            before, start = cpu(), time.monotonic()
            time.sleep(2)
            share = (cpu() - before) / (time.monotonic() - start)
            check(share < 0.1, f"an idle daemon takes {share:.3f} of a core")
            check(daemon.connect().ask("status")["lcores"][0]["state"] == "sleeping", "sleeping")


TESTS = [examples_are_right, examples_start_where_no_hardware_is_needed, a_switch_and_its_standby_are_one_switch,
         the_address_is_said_on_every_port, a_pause_ends_it_in_order, examples_without_their_hardware_say_so,
         wrong_configs_exit_with_2, machine_errors_exit_with_1_and_leave_nothing, the_socket_is_private_and_exclusive,
         default_places_of_the_socket, requests_and_replies, jobs_come_and_go, many_and_slow_clients, capture_streams_pcapng,
         refused_frames_are_counted_and_told, a_flood_does_not_fill_the_log,
         metrics_endpoint, the_end_is_in_order_with_frames_in_flight, start_and_end_again_and_again, idle_costs_little]


def main():
    failed = 0
    wanted = sys.argv[3:]
    for test in TESTS:
        if wanted and test.__name__ not in wanted:
            continue
        start = time.monotonic()
        try:
            test()
            print(f"ok    {test.__name__}  {time.monotonic() - start:.1f} s", flush=True)
        except (AssertionError, OSError, subprocess.TimeoutExpired) as problem:
            failed += 1
            print(f"FAIL  {test.__name__}: {type(problem).__name__}: {problem}", flush=True)
    sys.exit(1 if failed else 0)


main()
