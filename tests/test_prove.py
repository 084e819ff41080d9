"""`make prove`: what it writes of a run, and that its proofs are there."""

from __future__ import annotations

import re
import subprocess
import tomllib

import mutations
import prove
import pytest
from harness import REPO

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
