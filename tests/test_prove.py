"""`make prove`: what it writes of a run, and that its proofs are there."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path

import mutations
import prove
import pytest
from harness import REPO, free_port, tool

GO = """ok  \tgithub.com/arraysim/arraysim/internal/block\t0.1s
--- FAIL: TestModel (12.00s)
    --- FAIL: TestModel/seed_7 (1.00s)
        model_test.go:88: seed 7: sector 4 is stale
    --- FAIL: TestModel/seed_9 (1.00s)
        model_test.go:88: seed 9: sector 5 is stale
FAIL
FAIL\tgithub.com/arraysim/arraysim/internal/hostcache/tier\t12.3s
FAIL
make: *** [Makefile:92: tier-test] Error 1
"""
RACE = "==================\nWARNING: DATA RACE\nRead at 0x00c0\n==================\nexit status 66\n"
PYTEST = """=========================== short test summary info ============================
FAILED tests/test_kill.py::test_no_acknowledged_sector_is_lost - AssertionError: seed 5
1 failed in 3.21s
make: *** [Makefile:73: kill-test] Error 1
"""
GUEST = """takeover      93.1 failed in call: tests/vm/test_takeover.py::test_x[50]: AssertionError: sector 3 | lost
vm: test_takeover          93.1 s  FAILED (1)   1 failed
0 passed, 1 failed, 0 skipped
make: *** [scripts/vm/vm.mk:39: vm-take-over] Error 1
"""
MUTATIONS = "| 3 lost | SURVIVED | 9 s |\n1 of 37 survived: 3 lost\nmake: *** [Makefile:96: tier-mutations] Error 1\n"
OTHER = "cannot open the socket\nmake: *** [Makefile:99: page-bench] Error 1\n"


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (GO, "FAILED: TestModel/seed_7 and 1 more: model_test.go:88: seed 7: sector 4 is stale"),
        (RACE, "FAILED: WARNING: DATA RACE"),
        (PYTEST, "FAILED: tests/test_kill.py::test_no_acknowledged_sector_is_lost - AssertionError: seed 5"),
        (GUEST, "FAILED: tests/vm/test_takeover.py::test_x[50]: AssertionError: sector 3 / lost"),
        (MUTATIONS, "FAILED: 1 of 37 survived: 3 lost"),
        (OTHER, "FAILED: cannot open the socket"),
        ("", "FAILED: it said nothing"),
    ],
    ids=["go", "race", "pytest", "guest", "mutations", "other", "silence"],
)
def test_a_row_says_what_failed(text: str, want: str) -> None:
    assert prove.judge(1, text) == want


def test_a_proof_without_tests_fails() -> None:
    nothing = "testing: warning: no tests to run\nok  \texample/sim\t0.03s [no tests to run]\n"
    assert prove.judge(0, nothing) == "FAILED: there was no test to run"
    assert prove.judge(0, nothing + "ok  \texample/other\t3.1s\n") == "passed"
    assert prove.judge(0, "1 passed in 3 s\n") == "passed"


def test_a_row_keeps_the_figure() -> None:
    """The rows of the walk and of the cells have their figures; that of another proof says no more than its result."""
    (walk,) = (p for p in prove.PROOFS if p.name == "walk")
    said = "  31.0 s  UNDERCOVER moves: 88.0 MB/s\nUNDERCOVER moved after 31.0 s; all commands took 60 s\n"
    assert prove.figure(walk, said) == ", UNDERCOVER moved after 31.0 s"
    assert prove.figure(walk, "the array is not ready") == "" == prove.figure(prove.PROOFS[0], said)
    (cells,) = (p for p in prove.PROOFS if p.name == "cells")
    figure = "60 cells: 0.77 points on average, 6.46 at most, 9 beyond 2"
    assert prove.figure(cells, f"    cells_test.go:74: {figure}\n--- FAIL: TestAutoCells (123.50s)\n") == ", " + figure


def test_progress_is_what_says_how_far_a_proof_is(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("    kill_test.go:200: 900 of 1000 kills\n=== CONT  TestKills/7\n--- PASS: TestKills/7 (1.0s)\n\n")
    assert prove.last_line(log) == "kill_test.go:200: 900 of 1000 kills"


def test_a_row_names_a_commit() -> None:
    """A tag below the commit is no part of it."""
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=REPO, capture_output=True, text=True, check=True).stdout
    assert head.startswith(prove.commit().removesuffix("+"))


def wait(look: Callable[[], object]) -> None:
    """Wait until look() is true."""
    deadline = time.monotonic() + 60
    while not look():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_an_interrupted_proof_leaves_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shell ends at once; what it started does not, and is killed."""
    child = "trap '' TERM; echo $$ >child; exec sleep 600"
    proc = subprocess.Popen(
        ["bash", "-c", f'bash -c "{child.replace("$", chr(92) + "$")}" & wait'], cwd=tmp_path, start_new_session=True
    )
    file = tmp_path / "child"
    wait(lambda: file.exists() and file.read_text())
    monkeypatch.setattr(prove, "GRACE", 0.5)
    prove.end(proc)
    wait(lambda: not members(proc.pid))


def test_an_interrupted_proof_leaves_no_build(tmp_path: Path) -> None:
    """Go removes its folder at SIGINT alone."""
    traps = "; ".join(f"trap 'echo {name} >got; exit' {name}" for name in ("INT", "TERM"))
    script = f"{traps}; echo >begun; while sleep 0.1; do :; done"
    proc = subprocess.Popen(["bash", "-c", script], cwd=tmp_path, start_new_session=True, preexec_fn=prove.heed)
    wait((tmp_path / "begun").exists)
    prove.end(proc)
    assert (tmp_path / "got").read_text() == "INT\n"


LEAVES = """
import signal, time
from {} import leave
signal.signal(signal.SIGTERM, leave)
try:
    print("begun", flush=True)
    time.sleep(60)
finally:
    time.sleep(0.5)
    print("ended", flush=True)
"""


@pytest.mark.parametrize("where", ["scripts/prove", "scripts/vm/run"])
def test_a_second_signal_does_not_cut_the_end_short(where: str) -> None:
    """Make, which the first one reached too, sends it while daemons and guests are ended."""
    path = REPO / where
    argv = [sys.executable, "-c", LEAVES.format(path.name)]
    env = {**os.environ, "PYTHONPATH": str(path.parent)}
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True) as proc:
        assert proc.stdout and proc.stdout.readline() == "begun\n"
        proc.terminate()
        time.sleep(0.1)
        proc.terminate()
        assert proc.stdout.read() == "ended\n"
        assert proc.wait(30) in (124, 143)


def members(group: int) -> list[int]:
    """Return the processes of a group that have not ended; one that nobody has waited for has."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, of = stat.read_text().rpartition(")")[2].split()[:3]
            if int(of) == group and state != "Z":
                found.append(int(stat.parent.name))
    return found


KILL_TEST = "test_kill.py::test_no_acknowledged_sector_is_lost[one group]"


@pytest.mark.slow
def test_an_interrupted_kill_test_leaves_nothing(tmp_path: Path) -> None:
    """The daemon and the client end, and their folder goes, though make sends SIGTERM a second time."""
    proc = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-s", KILL_TEST],
        cwd=REPO / "tests",
        env={**os.environ, "ARRAYSIM_SHM": str(tmp_path), "ARRAYSIM_KILLS": "10000"},
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        wait(lambda: list(tmp_path.glob("*/torture.err")) or proc.poll() is not None)
        for _ in range(2):
            os.killpg(proc.pid, signal.SIGTERM)
            time.sleep(0.02)
        assert proc.wait(60) == pytest.ExitCode.INTERRUPTED
        assert list(tmp_path.iterdir()) == []
        wait(lambda: not members(proc.pid))
    finally:
        prove.end(proc)


def test_the_client_ends_with_whoever_reads_what_it_prints() -> None:
    """One whose test was killed would go on, or wait for a daemon that is dead, and nobody would end it."""
    argv = [tool("torture"), "--url", f"iscsi://127.0.0.1:{free_port()}/iqn.2026-01.io.arraysim:array/0"]
    with subprocess.Popen([*argv, "--patience", "600"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as proc:
        assert proc.stdout and proc.stderr
        try:
            proc.stdout.close()
            assert proc.wait(30) == 2
            assert b"nobody reads" in proc.stderr.read()
        finally:
            proc.kill()


def recipe(command: str) -> str:
    """Return what a proof's command runs."""
    if not command.startswith("make "):
        return command
    return subprocess.run([*command.split(), "-n"], cwd=REPO, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("proof", prove.PROOFS, ids=lambda p: p.name)
def test_what_a_proof_names_is_there(proof: prove.Proof) -> None:
    """A test that has another name, or another place, by now proves nothing."""
    for line in recipe(proof.command).splitlines():
        files = re.findall(r"\b(?:tests|scripts)/\S+\.(?:py|sh)\b", line)
        assert all((REPO / f).exists() for f in files), line
        if "go test" in line and (run := re.search(r"-run '?([\w$|^]+)", line)):
            (folder,) = re.findall(r"\./(internal/\S+)", line)
            source = "".join(p.read_text() for p in (REPO / folder).glob("*_test.go"))
            for name in run[1].replace("$", "").replace("^", "").split("|"):
                assert not name or re.search(rf"^func {name}\w*\(", source, re.M), f"{name} in {folder}"
        elif k := re.search(r"-k (\w+)", line):
            assert any(k[1] in (REPO / f).read_text() for f in files), line


@pytest.mark.parametrize("mutation", tomllib.loads(mutations.TABLE.read_text())["mutation"], ids=lambda m: m["name"])
def test_a_mutation_fits_the_sources(mutation: dict[str, str]) -> None:
    assert mutations.mutate(mutation) != (REPO / mutation["file"]).read_text()


def test_a_model_that_cannot_begin_finds_no_mutation() -> None:
    """Or each mutation would be found by a flag that has another name by now."""
    with pytest.raises(mutations.UnfitError, match="flag provided but not defined"):
        mutations.outcome(2, "TestModel", "flag provided but not defined: -tier.stop\nUsage of tier.test:\n")
    assert mutations.outcome(0, "TestModel", "PASS\n") == ""
    panic = "panic: boom [recovered]\n...\ntier.TestModel/7(0x1)\n"
    assert mutations.outcome(2, "TestModel", panic) == "seed 7: panic"
    assert mutations.outcome(1, "TestModel", "--- FAIL: TestModel (1s)\nFAIL\n") == "failed: FAIL"
