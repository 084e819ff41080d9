"""What a careless or a hostile user meets: nothing is left of what fails, and nothing that others named is obeyed."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import socket
import socketserver
import struct
import subprocess
import termios
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from arrays import Delta, noise, write
from harness import TARGET, Config, Daemon, Mdisk, MiB, Pool, Volume, binary, free_port, run
from nodes import eventually

CONFIG = Config(
    pools=[Pool("fast"), Pool("copies", copy="data", mdisks=[Mdisk("m0", bandwidth=64 * MiB)])],
    volumes=[Volume("source", 0, pool="copies", size=32 * MiB)],
    cache=64 * MiB,
)

#: A name that clears the screen, sets the title, and writes backwards.
HOSTILE = "iqn.2000-01.x:\x1b[2J\x1b]0;pwned\x07\u009b31m\u202e\x7f"


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with Daemon(CONFIG, "misuse") as d:
        yield d


def descriptors(d: Daemon) -> int:
    assert d.proc is not None
    return len(os.listdir(f"/proc/{d.proc.pid}/fd"))


def mdisk_files(d: Daemon) -> list[str]:
    return sorted(p.name for p in (d.data / "mdisk").iterdir())


# Objects that cannot be made


def test_pool_of_too_many_mdisks_leaves_nothing(daemon: Daemon) -> None:
    d = daemon
    d.cli("pool", "list")
    files, open_files = mdisk_files(d), descriptors(d)
    r = d.cli("pool", "create", "huge", "--size", "40TiB", "--mdisks", 10_000, expect=1)
    assert re.search(r"10000 mdisks .* can have 4096", r.stderr), r
    # In the way of one of many is a folder that is not empty.
    obstacle = d.data / "mdisk" / "huge.m70.img"
    (obstacle / "x").mkdir(parents=True)
    r = d.cli("pool", "create", "huge", "--size", "1GiB", "--mdisks", 100, expect=1)
    assert "huge.m70" in r.stderr and len(r.stderr.splitlines()) == 1, r
    (obstacle / "x").rmdir()
    obstacle.rmdir()
    assert mdisk_files(d) == files
    # Connections come and go; what leaks stays.
    eventually("the files of the pool are closed", lambda: descriptors(d) <= open_files + 2)
    d.cli("pool", "create", "huge", "--size", "1GiB", "--mdisks", 100)
    assert [p["name"] for p in d.cli_json("pool", "list")] == ["fast", "copies", "huge"]
    d.cli("pool", "delete", "huge")
    assert mdisk_files(d) == files
    eventually("the files of the pool are closed", lambda: descriptors(d) <= open_files + 2)


def test_few_descriptors_stay_for_connections() -> None:
    """All mdisks may have half of the process's open files; the array goes on to serve."""

    class Poor(Daemon):
        def command(self) -> list[object]:
            return ["prlimit", "--nofile=256", *super().command()]

    with Poor(CONFIG, "poor") as d:
        files = mdisk_files(d)
        r = d.cli("pool", "create", "many", "--size", "1GiB", "--mdisks", 100, expect=1)
        assert "ulimit" in r.stderr, r
        assert mdisk_files(d) == files
        d.sg("sg_turs", "/dev/sg0")
        d.cli("pool", "create", "some", "--size", "1GiB", "--mdisks", 20)


def none_waits(d: Daemon, *command: object) -> tuple[bool, str]:
    """Run a command, and list volumes again and again; tell whether none waited for a second, or a quarter of it.

    The list is what `volume list` asks for, without a start of the program, which a busy machine makes long by itself.
    """
    start, longest = time.monotonic(), 0.0
    with ThreadPoolExecutor(1) as others:
        other = others.submit(d.cli, *command, timeout=None)
        while not other.done():
            began = time.monotonic()
            with urllib.request.urlopen(f"http://127.0.0.1:{d.metrics_port}/api/v1/volumes", timeout=60) as r:
                assert r.status == 200
            longest = max(longest, time.monotonic() - began)
            time.sleep(0.01)
        other.result()
    took = time.monotonic() - start
    return longest < max(1, took / 4), f"a list waited {longest:.1f} s of the {took:.1f} s"


@pytest.mark.slow
def test_others_do_not_wait_for_a_pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To make a pool of 1,000 mdisks is to sync thousands of files, and to delete it to unlink them.

    On a busy machine a list may take long by itself, though not in three rounds: whoever held the lock meanwhile would
    be found in each.
    """
    monkeypatch.setenv("ARRAYSIM_SHM", str(tmp_path))  # on a disk, where that takes its time
    with Daemon(CONFIG, "wait") as d:
        files = mdisk_files(d)
        said: dict[str, list[str]] = {"create": [], "delete": []}
        done: set[str] = set()
        for _ in range(3):
            for change, more in (("create", ["--size", "10TiB", "--mdisks", 1000]), ("delete", [])):
                well, text = none_waits(d, "pool", change, "big", *more)
                said[change].append(text)
                done |= {change} if well else set()
                if change == "create":
                    (big,) = (p for p in d.cli_json("pool", "list") if p["name"] == "big")
                    assert len(big["mdisks"]) == 1000
            assert mdisk_files(d) == files
            if len(done) == 2:
                break
        assert len(done) == 2, said


def test_taken_lun_leaves_no_volume(daemon: Daemon) -> None:
    d = daemon
    r = d.cli("volume", "create", "n", "--pool", "fast", "--size", "1MiB", "--lun", 0, expect=1)
    assert 'LUN 0 is volume "source" already' in r.stderr, r
    assert [v["name"] for v in d.cli_json("volume", "list")] == ["source"]


def test_sizes_have_one_grammar(daemon: Daemon) -> None:
    """A decimal unit is decimal everywhere; docs/sizes.md."""
    d = daemon
    for text, want in (("1TB", 10**12), ("1T", 1 << 40), ("1TiB", 1 << 40), ("1.5GiB", 3 << 29)):
        d.cli("volume", "create", "sized", "--pool", "fast", "--size", text)
        assert d.cli_json("volume", "show", "sized")["size"] == want, text
        d.cli("volume", "delete", "sized")
    r = run([binary(), "bench", "zero", "--disk", "thin", "--size", "64MB"], expect=1)
    assert "62500KiB" in r.stderr, r  # 64 million bytes; a disk is whole MiB


# Starts that fail


def test_taken_port_makes_no_data_folder(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        free = f"127.0.0.1:{free_port()}"
        for listen, metrics in ((taken, free), (free, taken)):
            data = tmp_path / "data"
            r = run([binary(), "serve", "--data", data, "--listen", listen, "--metrics", metrics], expect=1)
            assert "address already in use" in r.stderr and taken in r.stderr, r
            assert not data.exists()


def test_addresses_that_are_printed_can_be_reached(tmp_path: Path) -> None:
    class Open(Daemon):
        def command(self) -> list[object]:
            return [*super().command(), "--listen", f"0.0.0.0:{self.port}", "--metrics", f"0.0.0.0:{self.metrics_port}"]

    with Open(CONFIG, "open") as d:
        ready = re.search(r"^ready: iscsi://(\S+)/iqn\S+, metrics (\S+),", d.log.read_text(), re.M)
        assert ready and ready[1] == f"127.0.0.1:{d.port}" and ready[2] == f"http://127.0.0.1:{d.metrics_port}/metrics"
        status = d.cli_json("status")
        assert status["page"] == f"http://127.0.0.1:{d.metrics_port}/" and status["portal"] == f"127.0.0.1:{d.port}"
        with urllib.request.urlopen(ready[2], timeout=60) as r:
            assert r.status == 200


def test_time_does_not_go_backwards() -> None:
    scenario = Path(__file__).parents[1] / "testdata" / "scenarios" / "001-undercover.yaml"
    r = run([binary(), "sim", scenario, "--until=-5m"], expect=None)
    assert r.returncode in (1, 2) and "is negative" in r.stderr, r


# What others named


def test_metrics_answer_to_no_foreign_name(daemon: Daemon) -> None:
    """A page elsewhere whose name DNS points here (rebinding) reads nothing."""
    base = f"http://127.0.0.1:{daemon.metrics_port}"
    for path in ("/metrics", "/", "/api/v1/status"):
        q = urllib.request.Request(base + path, headers={"Host": "evil.example"})
        with pytest.raises(urllib.error.HTTPError) as e:
            urllib.request.urlopen(q, timeout=60)
        assert e.value.code == 403, path
        with urllib.request.urlopen(base + path, timeout=60) as r:
            assert r.status == 200


def login_status(port: int, name: bytes) -> int:
    """Send one Login request with an initiator's name; return status class and detail."""
    text = b"InitiatorName=" + name + b"\0SessionType=Normal\0TargetName=" + TARGET.encode() + b"\0"
    header = struct.pack(">BBBB", 0x43, 0x87, 0, 0) + struct.pack(">I", len(text))
    header += bytes.fromhex("400001370000") + bytes(2) + struct.pack(">I", 1) + bytes(4) + bytes(8)
    header += bytes(48 - len(header))
    with socket.create_connection(("127.0.0.1", port), 60) as s:
        s.sendall(header + text + bytes(-len(text) % 4))
        answer = b""
        while len(answer) < 48 and (more := s.recv(4096)):
            answer += more
    assert answer[0] == 0x23, answer
    return int.from_bytes(answer[36:38])


@pytest.mark.parametrize(
    ("name", "status"),
    [
        (b"iqn.2000-01.x:good", 0),
        ("iqn.2000-01.x:größe".encode(), 0),
        (b"eui.02004567A425678D", 0),
        (HOSTILE.encode(), 0x0200),
        (b"iqn.2000-01.x:\x9b2J", 0x0200),
        (b"iqn.2000-01.x:a b", 0x0200),
        (b"iqn.2000-01.x:a/b", 0x0200),
        (b"iqn.2000-13.x:a", 0x0200),
        (b"eui.0200", 0x0200),
        (b"iqn.2000-01.x:" + b"a" * 300, 0x0200),
    ],
)
def test_names_are_those_of_the_standard(daemon: Daemon, name: bytes, status: int) -> None:
    assert login_status(daemon.port, name) == status
    text = daemon.log.read_bytes()
    assert b"\x1b" not in text and b"\xc2\x9b" not in text and b"\x07" not in text


class FakeDaemon:
    """Answers on an admin.sock as a daemon that lets every name in would."""

    def __init__(self, data: Path) -> None:
        volume = {
            "volume": HOSTILE, "id": 1, "pool": HOSTILE, "host_described_bytes": {}, "cache_admitted_bytes": {},
            "cache_destaged_bytes": {}, "offload_operations": {},
        }  # fmt: skip
        pool = {"pool": HOSTILE, "backend_written_by_origin": {}, "offload_inflight_bytes": {}}
        answers = {
            "sessions": [{"initiator": HOSTILE, "address": HOSTILE, "since": "2026-01-01T00:00:00Z"}],
            "events": [{"number": 1, "time": "2026-01-01T00:00:00Z", "kind": "session", "text": f"{HOSTILE} is here"}],
            "exports": [{"volume": HOSTILE, "lun": 1, "initiators": [HOSTILE]}],
            "volumes": [{"name": HOSTILE, "pool": HOSTILE, "exports": []}],
            "pools": [{"name": HOSTILE, "mdisks": [{"name": HOSTILE}]}],
            "offloads": [
                {"volume": HOSTILE, "initiator": HOSTILE, "primitive": HOSTILE, "since": "2026-01-01T00:00:00Z"}
            ],
            "status": {"version": HOSTILE, "data": HOSTILE, "portal": HOSTILE, "target": HOSTILE},
        }  # fmt: skip
        began = time.monotonic_ns()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                what = self.path.split("/")[3].split("?")[0]
                body = answers.get(what)
                if what == "counters":
                    hosts = [{"host": HOSTILE, "commands": {}, "failed": 1}]
                    now = time.monotonic_ns() - began
                    body = {"time_ns": now, "volumes": [volume], "pools": [pool], "hosts": hosts}
                code = 200 if body is not None else 404
                text = json.dumps(body if body is not None else {"detail": f"no {HOSTILE}", "status": 404}).encode()
                self.send_response(code)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def do_DELETE(self) -> None:
                self.path = "/api/v1/nothing"
                self.do_GET()

            def address_string(self) -> str:
                return "socket"

            def log_message(self, *args: object) -> None:
                pass

        class Listener(socketserver.ThreadingUnixStreamServer):
            daemon_threads = True

        self.server = Listener(str(data / "admin.sock"), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[Path]:
    f = FakeDaemon(tmp_path)
    yield tmp_path
    f.close()


def obeyed(text: str) -> list[str]:
    """Return the characters of an output that a terminal would obey, apart from line feeds and tabs."""
    return [repr(c) for c in text if c not in "\n\t" and (ord(c) < 32 or 0x7F <= ord(c) < 0xA0 or c == "\u202e")]


@pytest.mark.parametrize(
    "command",
    [
        ["host", "list"], ["host", "list", "--json"], ["events"], ["events", "--json"], ["export", "list"],
        ["volume", "list"], ["pool", "list"], ["counters"], ["counters", "--json"], ["status"],
        ["volume", "delete", "gone"], ["top", "-b", "-n", "1", "--interval", "100ms"],
        ["top", "-b", "-n", "1", "--interval", "100ms", "--view", "running"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_no_output_holds_what_a_terminal_obeys(fake: Path, command: list[str]) -> None:
    r = run([binary(), *command, "--data", fake], expect=None)
    assert "pwned" in r.text, r
    assert obeyed(r.text) == []
    if "--json" in command:
        assert json.dumps(HOSTILE)[1:-1] in json.dumps(json.loads(r.stdout))  # what it says is all there


def test_top_shows_names_and_obeys_none(fake: Path) -> None:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 200, 0, 0))
    p = subprocess.Popen(
        [str(binary()), "top", "--data", str(fake), "--interval", "100ms", "--view", "running"],
        stdin=slave, stdout=slave, stderr=slave, env={**os.environ, "TERM": "xterm"},
    )  # fmt: skip
    os.close(slave)
    seen, end = b"", time.monotonic() + 60
    while b"pwned" not in seen and time.monotonic() < end:
        if select.select([master], [], [], 0.2)[0]:
            seen += os.read(master, 65536)
    p.kill()
    p.wait()
    os.close(master)
    assert b"pwned" in seen
    assert b"\x1b]0;pwned" not in seen and "\u202e".encode() not in seen and "\u009b".encode() not in seen
    assert rb"\u001b]0;pwned" in seen


# What is counted


@pytest.mark.slow
def test_events_and_counters_of_a_new_volume_agree(daemon: Daemon, tmp_path: Path) -> None:
    """A volume that is made and cloned onto at once: events say all of it, and its successor begins at nothing."""
    d = daemon
    write(d, 0, 0, noise(32 * MiB, seed=1), tmp_path)
    for _ in range(2):
        seen = max([e["number"] for e in d.events()], default=0)
        d.cli("volume", "create", "new", "--pool", "copies", "--size", "32MiB", "--lun", 1)
        before = Delta(d)
        d.sg("sg_xcopy", "if=/dev/sg0", "of=/dev/sg1", "bs=512", "count=65536", "bpt=16384", timeout=120)
        counters = {v["volume"]: v for v in d.cli_json("counters")["volumes"]}
        assert counters["new"]["undercover_write_bytes"] == 32 * MiB
        # The lists of the copies, and what sg_xcopy asks the disks, are no data of theirs.
        assert before.wire("new") == 0 and before.wire("source") == 0
        assert counters["new"]["host_written_bytes"] == 0 and counters["new"]["host_read_bytes"] == 0

        def told(seen: int = seen) -> float:
            """What its events say of it in MiB. Three seconds between two commands of the copy make two of one."""
            texts = [e["text"] for e in d.events() if e["number"] > seen]
            return sum(float(n) for t in texts for n in re.findall(r"^offloads wrote ([\d.]+) MiB to volume new\b", t))

        eventually("the end of the copy is told", lambda: told() >= 31.9)
        assert told() == pytest.approx(32, abs=0.1), d.events()
        d.cli("volume", "delete", "new", "--force")
