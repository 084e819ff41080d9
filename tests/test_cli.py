"""The command line against a running daemon: objects, exports, counters, errors that say how to mend."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from arrays import Delta, noise, read, same, write
from harness import Config, Daemon, MiB, Pool, Result, Volume, binary, run

CONFIG = Config(pools=[Pool("p0"), Pool("p1", copy="data")], volumes=[Volume("base", 0, size=64 * MiB)])


@pytest.fixture(scope="module")
def daemon():  # type: ignore[no-untyped-def]
    with Daemon(CONFIG, "cli") as d:
        yield d


def refused(r: Result, *words: str) -> None:
    """Assert an error of one line that holds the words."""
    assert r.returncode not in (0, None), r
    assert len(r.stderr.strip().splitlines()) == 1 and not r.stdout.strip(), r
    for w in words:
        assert re.search(w, r.stderr), r


def luns(d: Daemon, initiator: str = "iqn.2026-01.io.example:x") -> list[int]:
    out = run(["iscsi-ls", "-s", "-i", initiator, d.portal()], expect=None).stdout
    return [int(x) for x in re.findall(r"^Lun:(\d+)", out, re.M)]


def test_life_of_a_volume(daemon: Daemon, tmp_path: Path) -> None:
    d = daemon
    d.cli("volume", "create", "life", "--pool", "p0", "--size", "32MiB", "--lun", "5")
    assert 5 in luns(d)
    data = noise(1 * MiB, seed=1)
    write(d, 5, 16, data, tmp_path)
    d.cli("volume", "resize", "life", "48MiB")
    assert "Number of logical blocks=98304" in d.sg("sg_readcap", "--16", "/dev/sg5").stdout
    same(read(d, 5, 16, 2048, tmp_path), data)
    shown = d.cli_json("volume", "show", "life")
    assert shown["name"] == "life" and shown["size"] == 48 * MiB
    assert "life" in d.cli("volume", "list").stdout
    refused(d.cli("volume", "delete", "life", expect=None), "--force|export")
    assert 5 in luns(d)
    d.cli("volume", "delete", "life", "--force")
    assert 5 not in luns(d)
    assert [v["name"] for v in d.cli_json("volume", "list")] == ["base"]


@pytest.mark.parametrize("pool", ["p0", "p1"])
def test_clone(daemon: Daemon, pool: str, tmp_path: Path) -> None:
    d = daemon
    data = noise(2 * MiB, seed=2)
    write(d, 0, 1000, data, tmp_path)
    delta = Delta(d)
    d.cli("volume", "clone", "base", f"clone-{pool}", "--pool", pool)
    moved = delta.sum("undercover_write_bytes_total", volume=f"clone-{pool}")
    assert moved == 0 if pool == "p0" else moved >= 2 * MiB
    d.cli("export", "add", f"clone-{pool}", "--lun", "9")
    write(d, 0, 1000, bytes(2 * MiB), tmp_path)
    same(read(d, 9, 1000, 4096, tmp_path), data)
    d.cli("volume", "delete", f"clone-{pool}", "--force")


def test_exports(daemon: Daemon) -> None:
    d = daemon
    one, two = "iqn.2026-01.io.example:one", "iqn.2026-01.io.example:two"
    d.cli("volume", "create", "shown", "--pool", "p0", "--size", "16MiB")
    assert luns(d, one) == [0]
    d.cli("export", "add", "shown", "--lun", "3", "--initiator", one)
    # Who is named somewhere sees what is exported to that name, and nothing else.
    assert 3 in luns(d, one) and 3 not in luns(d, two)
    listed = d.cli_json("export", "list")
    assert any(e["volume"] == "shown" and e["lun"] == 3 for e in listed), listed
    d.cli("export", "remove", "shown")
    assert 3 not in luns(d, one)
    d.cli("volume", "delete", "shown", "--force")


def test_geometry_options(daemon: Daemon) -> None:
    d = daemon
    d.cli("volume", "create", "geo", "--pool", "p0", "--size", "16MiB", "--block-size", "4096", "--thick", "--lun", "4")
    out = d.sg("sg_readcap", "--16", "/dev/sg4").stdout
    assert "Logical block length=4096 bytes" in out and "lbpme=0" in out
    d.cli("volume", "delete", "geo", "--force")


def test_counters_and_pools(daemon: Daemon, tmp_path: Path) -> None:
    d = daemon
    write(d, 0, 0, noise(1 * MiB, seed=3), tmp_path)
    counters = d.cli_json("counters")
    assert [v["volume"] for v in counters["volumes"]] and "undercover_write_bytes" in counters["volumes"][0]
    assert "base" in d.cli("counters").stdout
    assert {p["name"] for p in d.cli_json("pool", "list")} == {"p0", "p1"}
    with subprocess.Popen(
        [binary(), "counters", "--watch", "--json", "--interval", "100ms", "--data", d.data], stdout=subprocess.PIPE
    ) as p:
        assert p.stdout is not None
        lines = [json.loads(p.stdout.readline()) for _ in range(3)]
        p.terminate()
    assert all("volumes" in line for line in lines)


def test_check_running_and_stopped() -> None:
    with Daemon(CONFIG, "check") as d:
        d.cli("check")
        d.stop()
        d.cli("check")
        assert d.cli_json("check")["problems"] in (None, [])
        d.start()


def test_errors_say_how_to_mend(daemon: Daemon, tmp_path: Path) -> None:
    d = daemon
    refused(d.cli("volume", "show", "nothing", expect=None), "nothing")
    refused(d.cli("volume", "create", "base", "--pool", "p0", "--size", "1GiB", expect=None), "base", "exists")
    refused(d.cli("volume", "create", "x", "--pool", "nopool", "--size", "1GiB", expect=None), "nopool")
    refused(d.cli("volume", "create", "x", "--pool", "p0", "--size", "1parsec", expect=None), "1parsec")
    refused(run([binary(), "volume", "list", "--data", tmp_path / "none"], expect=None), "serve|daemon|running")
    # A second daemon on the same folder must not start.
    r = run([binary(), "serve", d.file, "--data", d.data], expect=None)
    assert r.returncode not in (0, None) and "in use" in r.stderr, r


def test_policy_faults_and_events(daemon: Daemon) -> None:
    d = daemon
    d.cli("policy", "set", "--budget", "30", "--budget-pressure")
    d.cli("policy", "set", "--order", "lru")
    policy = d.cli_json("policy", "show")
    assert (policy["budget_percent"], policy["budget_pressure"], policy["destage_order"]) == (30, True, "lru")
    refused(d.cli("policy", "set", "--budget", "101", expect=None), "100")
    refused(d.cli("policy", "set", expect=None), "needs a flag")

    disk = d.cli_json("pool", "list")[0]["mdisks"][0]["name"]
    d.cli("fault", "mdisk", "p0", disk, "--offline")
    assert "OFFLINE" in d.cli("pool", "list").stdout
    d.cli("fault", "mdisk", "p0", disk, "--online", "--bandwidth", "64MiB")
    refused(d.cli("fault", "mdisk", "p0", "none", "--offline", expect=None), "none", "pool list")
    d.cli("fault", "mirror", "--lost")
    assert not d.cli_json("status")["mirrored"]
    d.cli("fault", "mirror", "--restored")
    refused(d.cli("fault", "write-mode", "p0", "never", expect=None), "fast")
    d.cli("fault", "mdisk", "p0", disk, "--bandwidth", "0")

    d.cli("pool", "create", "new", "--size", "64MiB", "--mdisks", "1")
    d.cli("pool", "delete", "new")
    d.cli("volume", "create", "zeroed", "--pool", "p0", "--size", "16MiB", "--thick")
    d.cli("volume", "zero", "zeroed")
    assert d.cli_json("volume", "show", "zeroed")["zero"] == 16 * MiB
    d.cli("volume", "delete", "zeroed", "--force")
    events = d.cli("events").stdout
    assert "the write cache lost its mirror" in events and "volume zeroed zeroed" in events
    assert "INITIATOR" in d.cli("host", "list").stdout


def test_token_opens_the_interface(daemon: Daemon) -> None:
    d = daemon
    token = d.cli("token").stdout.strip()
    assert d.cli("token", "--link").stdout.strip() == f"http://127.0.0.1:{d.metrics_port}/#token={token}"
    url = f"http://127.0.0.1:{d.metrics_port}/api/v1/check"

    def check(**headers: str) -> Any:
        try:
            with urllib.request.urlopen(urllib.request.Request(url, method="POST", headers=headers), timeout=60) as r:
                return json.load(r)
        except urllib.error.HTTPError as e:
            return json.load(e)

    assert check(Authorization=f"Bearer {token}")["ok"]
    assert check()["status"] == 401
    assert check(Authorization="Bearer wrong")["status"] == 401


POOL = "pools:\n  - {name: a, mdisks: [{name: m, size: 1GiB}]}\n"
BROKEN = {
    "unknown key": ("pools: []\nvolums: []\n", 2),
    "bad size": ("cache:\n  size: lots\n", 2),
    "unknown pool": (POOL + "volumes:\n  - {name: v, pool: b, size: 1GiB}\n", 4),
    "no yaml": ("pools: [\n", 1),
}


@pytest.mark.parametrize("case", BROKEN)
def test_configuration_errors_have_line_numbers(case: str, tmp_path: Path) -> None:
    text, line = BROKEN[case]
    f = tmp_path / "bad.yaml"
    f.write_text(text)
    r = run([binary(), "serve", f, "--data", tmp_path / "data"], expect=None)
    assert r.returncode not in (0, None), r
    assert re.search(rf"bad\.yaml:{line}\b|line {line}\b", r.stderr), r


def test_completion() -> None:
    for shell in ("bash", "zsh", "fish"):
        assert "arraysim" in run([binary(), "completion", shell]).stdout
