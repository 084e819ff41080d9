"""arraysim demo: the real binary clones by offload, alone and on an array that runs; its figures are the counters'."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import Daemon, MiB, binary, free_port, run
from test_top import Terminal

#: What the demonstration's own array has of its write cache of 64 MiB for a pool, and what it copies beyond that.
CAP, BEYOND = int(64 * MiB * 0.66), 80 * MiB

#: Behind four copies of 2 MiB each a write waits half a second, which a busy machine alone does not bring about.
LEAST_WAIT_MS = 100


class Demo:
    """arraysim demo with an array of its own."""

    def __init__(self, tmp_path: Path, *args: object) -> None:
        self.data, self.page = tmp_path / "array", free_port()
        self.out = (tmp_path / "out").open("w+")
        command = [binary(), "demo", "--data", self.data, "--page", f"127.0.0.1:{self.page}", *args]
        self.proc = subprocess.Popen([str(c) for c in command], stdout=self.out, stderr=subprocess.STDOUT, text=True)

    def text(self) -> str:
        self.out.seek(0)
        return self.out.read()

    def wait(self, seen: Callable[[str], object], timeout: float = 180) -> str:
        deadline = time.monotonic() + timeout
        while not seen(text := self.text()):
            assert self.proc.poll() is None and time.monotonic() < deadline, text
            time.sleep(0.05)
        return text

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.page}/api/v1{path}", timeout=60) as r:
            return json.load(r)

    def end(self, how: signal.Signals) -> int:
        self.proc.send_signal(how)
        return self.proc.wait(60)

    def __enter__(self) -> Demo:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.proc.poll() is None:
            self.proc.kill()
        self.proc.wait()
        self.out.close()


def volumes(counters: Any) -> dict[str, Any]:
    return {v["volume"]: v for v in counters["volumes"]}


def latencies(text: str) -> tuple[float, float, float]:
    """Return what a write of the victim took before, during and after the clone, in ms."""
    m = re.search(r"took ([\d.]+) ms before the clone, ([\d.]+) ms during it, and ([\d.]+) ms after it", text)
    assert m, text
    return float(m[1]), float(m[2]), float(m[3])


def shows_waits(text: str) -> bool:
    """Tell whether the victim's writes waited for the clone alone."""
    before, during, after = latencies(text)
    return during > max(LEAST_WAIT_MS, 4 * before, 4 * after)


def demonstrated(folder: Path) -> tuple[Demo, str]:
    """Return a demonstration that has come to its end and serves on, and what it says.

    Where the machine stands still for a second, writes wait before or after the clone, too: it is shown again.
    """
    for n in range(3):
        (folder / str(n)).mkdir()
        d = Demo(folder / str(n))
        try:
            text = d.wait(lambda text: "until Ctrl-C" in text)
            if n == 2 or shows_waits(text):
                return d, text
            assert d.end(signal.SIGINT) == 0, d.text()
        except BaseException:
            d.proc.kill()
            raise
    raise AssertionError


@pytest.mark.slow
def test_alone(tmp_path: Path) -> None:
    d, text = demonstrated(tmp_path)
    with d:
        # The evidence stays: on the page's interface, in the counters, in the events.
        shown = volumes(d.get("/counters"))
        clone, golden, victim = (shown[f"demo-{name}"] for name in ("clone", "golden", "victim"))
        assert clone["host_written_bytes"] == clone["host_read_bytes"] == 0
        assert clone["undercover_write_bytes"] == clone["host_described_bytes"]["xcopy_dst"]
        assert clone["undercover_write_bytes"] == golden["host_written_bytes"]
        assert CAP + BEYOND - MiB <= clone["undercover_write_bytes"] <= CAP + BEYOND + MiB
        assert golden["undercover_write_bytes"] == victim["undercover_write_bytes"] == 0
        assert victim["host_written_bytes"] > 0
        assert shows_waits(text), text
        lines = re.findall(r"^ +[\d.]+  (\w+) +([\d.]+) +([\d.]+) +(\d+) % +(\d+) % +(\S+)$", text, re.MULTILINE)
        phases = [line[0] for line in lines]
        assert list(dict.fromkeys(phases)) == ["fill", "before", "clone", "after"], text
        assert any(float(line[2]) > 5 and int(line[4]) > 80 for line in lines if line[0] == "clone"), text
        assert all(float(line[2]) == 0 for line in lines if line[0] in ("fill", "before")), text
        deadline = time.monotonic() + 60
        while not any("offloads wrote" in e["text"] and e.get("volume") == "demo-clone" for e in d.get("/events")):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        # What it says to look at next can be typed as it stands; the clone is the golden volume.
        commands = re.findall(rf"  {binary()} ((?:counters|policy) .*)$", text, re.MULTILINE)
        assert len(commands) == 2, text
        for command in commands:
            assert "demo-shared" in run([binary(), *command.split()]).stdout or command.startswith("policy")
        portal = json.loads(run([binary(), "status", "--json", "--data", d.data]).stdout)
        urls = [f"iscsi://{portal['portal']}/{portal['target']}/{lun}" for lun in (0, 1)]
        run(["qemu-img", "compare", "-f", "raw", "-F", "raw", *urls])
        assert d.end(signal.SIGINT) == 0, d.text()
        assert not d.data.exists()


@pytest.mark.slow
def test_once_names_no_array_that_has_gone(tmp_path: Path) -> None:
    """With --once the array ends with the demonstration: there is nothing to look at from another terminal."""
    data = tmp_path / "array"
    r = run([binary(), "demo", "--once", "--data", data, "--page", f"127.0.0.1:{free_port()}"], timeout=180)
    assert "The clone held up to" in r.stdout and not data.exists()
    assert "another terminal" not in r.stdout and "--data" not in r.stdout, r.stdout


def test_interrupted(tmp_path: Path) -> None:
    """SIGTERM in the middle of the clone ends it at once, and leaves nothing."""
    with Demo(tmp_path) as d:
        d.wait(lambda text: re.search(r"^ +[\d.]+  clone ", text, re.MULTILINE))
        start = time.monotonic()
        assert d.end(signal.SIGTERM) == 1
        assert time.monotonic() - start < 20
        assert d.text().splitlines()[-1] == "arraysim: interrupted"
        assert not d.data.exists()


@pytest.mark.parametrize("how", [signal.SIGHUP, signal.SIGINT])
def test_leaves_no_temporary_folder(tmp_path: Path, how: signal.Signals) -> None:
    """A terminal that is closed, and three Ctrl-C in a row, leave no more than one does."""
    with (tmp_path / "out").open("w+") as out:
        env = os.environ | {"TMPDIR": str(tmp_path / "tmp")}
        (tmp_path / "tmp").mkdir()
        command = [str(binary()), "demo", "--page", f"127.0.0.1:{free_port()}"]
        # The demonstration goes on without its terminal where SIGHUP was ignored as it started, as it is under nohup.
        heard = signal.signal(signal.SIGHUP, signal.SIG_DFL)
        try:
            proc = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=env)
        finally:
            signal.signal(signal.SIGHUP, heard)
        try:
            deadline = time.monotonic() + 60
            while " fill " not in (tmp_path / "out").read_text():
                assert proc.poll() is None and time.monotonic() < deadline
                time.sleep(0.05)
            assert list((tmp_path / "tmp").iterdir())
            for _ in range(3 if how is signal.SIGINT else 1):
                proc.send_signal(how)
                time.sleep(0.02)
            assert proc.wait(60) == 1, (tmp_path / "out").read_text()
            assert list((tmp_path / "tmp").iterdir()) == []
        finally:
            proc.kill()
            proc.wait()


def test_ends_with_its_reader(tmp_path: Path) -> None:
    """Piped into head, it ends when nobody reads on, and leaves nothing."""
    (tmp_path / "tmp").mkdir()
    command = [str(binary()), "demo", "--page", f"127.0.0.1:{free_port()}"]
    env = os.environ | {"TMPDIR": str(tmp_path / "tmp")}
    with (
        (tmp_path / "err").open("w+") as err,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=err, env=env, text=True) as proc,
    ):
        try:
            assert proc.stdout and any(" fill " in line for line in proc.stdout)
            assert list((tmp_path / "tmp").iterdir())
            proc.stdout.close()
            assert proc.wait(60) == 1, (tmp_path / "err").read_text()
            assert list((tmp_path / "tmp").iterdir()) == []
        finally:
            proc.kill()


def test_keeps_an_empty_folder_that_was_there(tmp_path: Path) -> None:
    (tmp_path / "array").mkdir()
    with Demo(tmp_path) as d:
        d.wait(lambda text: " fill " in text)
        assert list(d.data.iterdir())
        assert d.end(signal.SIGINT) == 1
    assert d.data.is_dir() and list(d.data.iterdir()) == []


@pytest.mark.slow
def test_on_a_running_array_and_its_remedy() -> None:
    with Daemon(name="demo-running") as d:

        def demonstrated() -> Any:
            return json.loads(d.cli("demo", "--running", "--json", timeout=180).stdout)

        # Where the machine stands still for a second, writes wait before or after the clone, too: it is shown again.
        for _ in range(3):
            first = demonstrated()
            assert first["clone_undercover_bytes"] == first["cloned_bytes"] == first["golden_written_bytes"] > 80 * MiB
            assert first["clone_host_written_bytes"] == first["clone_host_read_bytes"] == 0
            assert first["clone_peak_cache_share"] > 0.8
            during, after = first["victim_during"]["median_ns"], first["victim_after"]["median_ns"]
            shown = during > max(LEAST_WAIT_MS * 1e6, 4 * first["victim_before"]["median_ns"], 4 * after)
            if shown:
                break
        assert shown, first
        # As it suggests: with a budget for offloads the next clone leaves the victim room.
        d.cli("policy", "set", "--budget", "30", "--budget-pressure")
        second = demonstrated()
        assert second["clone_undercover_bytes"] == second["cloned_bytes"] == first["cloned_bytes"]
        assert second["clone_peak_cache_share"] < 0.4, second
        assert second["victim_during"]["median_ns"] < during / 3, (first, second)
        d.cli("demo", "--running", "--remove")
        assert not [v for v in d.cli_json("volume", "list") if v["name"].startswith("demo-")]
        assert {p["name"] for p in d.cli_json("pool", "list")} == {"gold", "silver"}
        assert d.cli_json("check")["problems"] in (None, [])


@pytest.mark.slow
def test_on_a_terminal(tmp_path: Path) -> None:
    """Bars of both layers and the victim's latency, drawn over themselves, and the evidence below."""
    with Terminal([binary(), "demo", "--data", tmp_path / "array", "--page", f"127.0.0.1:{free_port()}"]) as t:
        busy = re.compile(r"UNDERCOVER +[1-9]\d*\.\d MB/s +█")
        lines = t.wait(lambda s: any(busy.match(line) for line in s) and any("█" in r for r in s if "VICTIM" in r), 180)
        assert sum(line.startswith("UNDERCOVER") for line in lines) == 1
        assert any(re.match(r"HOSTS WRITE +\d+\.\d MB/s", line) for line in lines)
        assert any(re.match(r"WRITE CACHE +\d+ % +█+", line) for line in lines)
        t.wait(lambda s: any("until Ctrl-C" in line for line in s), 180)
        t.proc.send_signal(signal.SIGINT)
        assert t.proc.wait(60) == 0


@pytest.mark.parametrize(
    ("args", "word"),
    [
        (["--remove"], "--running"),
        (["--running", "--page", "127.0.0.1:1"], "--page"),
        (["--running"], "arraysim serve"),
        (["extra"], "extra"),
    ],
)
def test_refuses_with_one_line(tmp_path: Path, args: list[str], word: str) -> None:
    r = run([binary(), "demo", *args, "--data", tmp_path / "none"], expect=None)
    assert r.returncode in (1, 2) and word in r.stderr and len(r.stderr.strip().splitlines()) == 1, r


def test_takes_no_folder_in_use(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("")
    r = run([binary(), "demo", "--data", tmp_path], expect=1)
    assert "--running" in r.stderr and (tmp_path / "precious").exists()
