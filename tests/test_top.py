"""arraysim top: on a pseudo-terminal, as a person sees it, and as CSV."""

from __future__ import annotations

import csv
import fcntl
import io
import json
import os
import pty
import re
import select
import struct
import subprocess
import termios
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyte
import pytest
from arrays import noise, write
from harness import Config, Daemon, Mdisk, MiB, Pool, Volume, binary, run

CONFIG = Config(
    pools=[Pool("fast", copy="data"), Pool("slow", copy="data", mdisks=[Mdisk("m0", bandwidth=4 * MiB)])],
    volumes=[
        Volume("original", 0, pool="fast", size=32 * MiB),
        Volume("clone", 1, pool="slow", size=32 * MiB),
        Volume("idle", 2, pool="fast", size=32 * MiB),
    ],
    cache=16 * MiB,
    store="memory",
)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(CONFIG, "top") as d:
        write(d, 0, 0, noise(16 * MiB, seed=1), tmp_path_factory.mktemp("top"))
        d.sg("sg_write_same", "--16", "--lba=0", "--num=8", "/dev/sg2")
        yield d


class Terminal:
    """A terminal of 120 by 30 with a command in it."""

    def __init__(self, command: list[object]) -> None:
        self.screen = pyte.Screen(120, 30)
        self.stream = pyte.ByteStream(self.screen)
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 120, 0, 0))
        env = {**os.environ, "TERM": "xterm-256color"}
        self.proc = subprocess.Popen([str(c) for c in command], stdin=slave, stdout=slave, stderr=slave, env=env)
        os.close(slave)
        self.master = master

    def wait(self, seen: Callable[[list[str]], object], timeout: float = 60) -> list[str]:
        """Read until the screen is as wanted; return its lines."""
        deadline = time.monotonic() + timeout
        while not seen(lines := [line.rstrip() for line in self.screen.display]):
            left = deadline - time.monotonic()
            assert left > 0, "\n".join(lines)
            if select.select([self.master], [], [], left)[0]:
                try:
                    data = os.read(self.master, 65536)
                except OSError:  # the command has ended
                    data = b""
                assert data, "\n".join(lines)
                self.stream.feed(data)
                # A terminal answers when it is asked for its colours; so does this one.
                if b"\x1b]11;?" in data:
                    os.write(self.master, b"\x1b]11;rgb:0000/0000/0000\x1b\\")
                if b"\x1b[6n" in data:
                    os.write(self.master, b"\x1b[1;1R")
        return lines

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.proc.poll() is None:
            self.proc.kill()
        self.proc.wait()
        os.close(self.master)


def rows(lines: list[str]) -> list[list[str]]:
    """Return the cells of the rows below the heads.

    A screen comes in pieces, and a row that is not all there yet has empty cells.
    """
    return [[*re.split(r" {1,}", line.strip()), *[""] * 8] for line in lines[3:29] if line.strip()]


def names(lines: list[str]) -> list[str]:
    return [r[0] for r in rows(lines)]


def test_views_order_filter_and_pause(daemon: Daemon) -> None:
    with Terminal([binary(), "top", "--interval", "200ms", "--data", daemon.data]) as t:
        lines = t.wait(lambda s: s[2].startswith("VOLUME") and len(names(s)) == 3)
        assert "UNDERCOVER MB/s▾" in lines[2] and "undercover 0.0 MB/s" in lines[0]
        # The column before it: by what hosts write, and on to the names.
        for n, head in ((1, "WRITE MB/s▾"), (2, "READ MB/s▾"), (3, "CMD/s▾"), (4, "POOL▾"), (5, "VOLUME▾")):
            t.press("<")
            t.wait(lambda s, h=head: h in s[2])
            assert n
        t.wait(lambda s: names(s) == ["clone", "idle", "original"])
        t.press("r")
        t.wait(lambda s: names(s) == ["original", "idle", "clone"])
        t.press("/id")
        t.wait(lambda s: names(s) == ["idle"] and "filter: id_" in s[1])
        t.press("\x1b")
        t.wait(lambda s: len(names(s)) == 3)
        t.press("?")
        t.wait(lambda s: s[2].startswith("Keys and columns") and any("hide idle rows" in line for line in s))
        t.press("?z")
        t.wait(lambda s: "idle hidden" in s[1] and "idle" not in names(s))
        t.press("z")
        t.wait(lambda s: len(names(s)) == 3)
        t.press("p")
        t.wait(lambda s: s[2].startswith("POOL") and sorted(names(s)) == ["fast", "slow"])
        t.press("h")
        t.wait(lambda s: s[2].startswith("HOST") and "".join(names(s)[:1]).startswith("iqn."))
        t.press("v")
        t.wait(lambda s: s[2].startswith("VOLUME"))

        # One clone may be over before all of this is on the screen: another follows.
        with clones(daemon):
            t.press("u")
            # Hosts write nothing, the cache does. Header and rows come one after the other.
            busy = re.compile(r"[1-9]\d*(\.\d+)?")
            t.wait(
                lambda s: re.search(r"undercover [1-9]", s[0])
                and any(r[0] == "clone" and r[4] in ("0.0", "<0.1") and busy.fullmatch(r[5]) for r in rows(s)[:1])
            )
            t.press("o")
            t.wait(lambda s: any(r[0] == "clone" and r[2] == "xcopy" for r in rows(s)))
            t.press("i")
            t.wait(lambda s: s[2].startswith("VOLUME") and any(r[0] == "clone" and r[2] == "xcopy" for r in rows(s)))
            t.press("o")
            t.press(" ")
            t.wait(lambda s: "PAUSED" in s[1])
        t.press(" ")
        t.wait(lambda s: "PAUSED" not in s[1] and "undercover 0.0 MB/s" in s[0])
        t.press("q")
        assert t.proc.wait(60) == 0


def run_clone(daemon: Daemon) -> subprocess.Popen[bytes]:
    """Start an EXTENDED COPY to the slow pool; 16 MiB at 4 MiB/s take seconds."""
    from harness import tool

    names = ";".join(f"/dev/sg{n}={daemon.url(n)}" for n in (0, 1))
    env = ["env", f"LD_PRELOAD={tool('sgshim.so')}", f"ARRAYSIM_SG={names}", "ARRAYSIM_TIMEOUT=120"]
    copy = ["sg_xcopy", "if=/dev/sg0", "of=/dev/sg1", "bs=512", "count=32768", "bpt=16384"]
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen([*env, *copy], **quiet)  # type: ignore[call-overload]


@contextmanager
def clones(daemon: Daemon) -> Iterator[None]:
    """Have clones made, one after the other, until the block ends; each must end well."""
    over, codes = threading.Event(), []

    def work() -> None:
        while not over.is_set():
            codes.append(run_clone(daemon).wait(120))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    assert set(codes) == {0}


@pytest.mark.parametrize("view", ["volumes", "pools", "hosts", "offloads"])
def test_batch(daemon: Daemon, view: str) -> None:
    out = daemon.cli("top", "-b", "-n", "2", "--interval", "100ms", "--view", view).stdout
    lines = list(csv.DictReader(io.StringIO(out)))
    assert lines and all(None not in line and None not in line.values() for line in lines)
    by_time = {line["time"] for line in lines}
    assert len(by_time) == 2
    if view == "volumes":
        assert {line["volume"] for line in lines} == {"original", "clone", "idle"}
        assert all(float(line["undercover_bytes_per_second"]) >= 0 for line in lines)


def patch(daemon: Daemon, path: str, body: dict[str, object]) -> None:
    token = daemon.cli("token").stdout.strip()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    url = daemon.cli_json("status")["page"] + "api/v1" + path
    ask = urllib.request.Request(url, json.dumps(body).encode(), headers, method="PATCH")
    with urllib.request.urlopen(ask, timeout=60) as r:
        assert r.status == 200


def in_flight(daemon: Daemon) -> list[dict[str, object]]:
    with urllib.request.urlopen(daemon.cli_json("status")["page"] + "api/v1/offloads", timeout=60) as r:
        return json.load(r)


@pytest.mark.slow
def test_slow_mdisk_leaves_a_copy_in_the_list(daemon: Daemon) -> None:
    """A fault holds the copy up: it is listed, with who copies, until the fault ends."""
    assert in_flight(daemon) == []
    patch(daemon, "/pools/slow/mdisks/m0", {"bandwidth": MiB // 4})
    job = run_clone(daemon)
    try:
        deadline = time.monotonic() + 60
        # What fits into the cache is over at once; the command behind it waits for half a minute.
        while not (seen := [o for o in in_flight(daemon) if int(str(o["age_ns"])) > 1_000_000_000]):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        first = seen[0]
        assert (first["volume"], first["primitive"]) == ("clone", "xcopy"), first
        assert str(first["initiator"]).startswith("iqn.") and first["total_bytes"] == 8 * MiB, first
        assert int(str(first["done_bytes"])) < 8 * MiB, first
        out = daemon.cli("top", "-b", "-n", "1", "--interval", "100ms", "--view", "running").stdout
        assert [line["volume"] for line in csv.DictReader(io.StringIO(out))] == ["clone"], out
    finally:
        patch(daemon, "/pools/slow/mdisks/m0", {"bandwidth": 1024 * MiB})
        job.wait(120)
    assert job.returncode == 0
    deadline = time.monotonic() + 60
    while in_flight(daemon):
        assert time.monotonic() < deadline


def test_refuses_with_one_line(daemon: Daemon, tmp_path: Path) -> None:
    for args, word in (
        ((), "-b"),
        (("-n", "3"), "-b"),
        (("-b", "--view", "disks"), "volumes"),
        (("-b", "--interval", "1ms"), "100ms"),
    ):
        r = daemon.cli("top", *args, expect=None)
        assert r.returncode != 0 and word in r.stderr and len(r.stderr.strip().splitlines()) == 1, r
    r = run([binary(), "top", "-b", "--data", tmp_path], expect=None)
    assert r.returncode == 1 and "arraysim serve" in r.stderr, r
