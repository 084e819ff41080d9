"""`make test` counts what was skipped, and does not call it passed: of Go, of pytest here and in guests, of lint."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import gotest
import pytest
from harness import REPO


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ModuleType]:
    """scripts/test.py, whose name the standard library has, too; its logs are of this test alone."""
    spec = importlib.util.spec_from_file_location("parts", REPO / "scripts" / "test.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["parts"] = module  # dataclasses look for it
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "LOGS", tmp_path)
    yield module
    del sys.modules["parts"]


GO = """SKIPPED [12] internal/sim: TestMutations/a, TestMutations/b: left to the proof of the scenarios
523 passed, 12 skipped"""
TOOLS = """SKIPPED [1] test_systemd.py:189: systemd is not installed
=========== 849 passed, 1 skipped in 301.53s (0:05:01) ==========="""
CLUSTER = """SKIPPED [1] test_rados.py:170: Ceph is not installed: ceph-mon; run make rados-test
================ 1 skipped, 8 deselected in 0.31s ================"""
GUEST = """portal        59.9 tests/vm/test_portal.py::test_chap SKIPPED (no such module)   [ 50%]
portal        59.9 SKIPPED [2] tests/vm/test_portal.py:9: no such module
25 passed, 0 failed, 2 skipped"""


def test_what_was_skipped_is_counted_and_listed(parts: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    none = "SKIPPED [4] internal/x: TestA: no librados\n0 passed, 4 skipped"
    outputs = {"go": GO, "tools": TOOLS, "rados": CLUSTER, "vm": GUEST, "c": none, "build": "building bin/arraysim"}
    made = [parts.Part(name, ["echo", said], 60) for name, said in outputs.items()]
    runner = parts.Runner(made, 2)
    assert runner.run()
    ended = {line.split()[0]: line.split(None, 4)[4] for line in runner.table().splitlines()[1:-1]}
    assert ended == {
        "go": "passed, 12 skipped",
        "tools": "passed, 1 skipped",
        "rados": "skipped",
        "vm": "passed, 2 skipped",
        "c": "skipped",
        "build": "passed",
    }
    listed = runner.left_out()
    assert listed.startswith("20 skipped:\n")
    for name, why in {"go": "left to the proof", "tools": "systemd is", "rados": "Ceph is", "vm": "no such"}.items():
        assert [line for line in listed.splitlines() if line.split()[0] == name and why in line], listed
    assert "-- rados: skipped after" in capsys.readouterr().out
    for part in made:
        part.status = None
        part.skipped = []
    assert runner.left_out() == "nothing skipped"


def test_lint_says_what_it_left_out(tmp_path: Path) -> None:
    """Without npm the page is not built again for comparison, which is no failure and is counted."""
    for folder in ("scripts", "web", "bin"):
        (tmp_path / folder).mkdir()
    script = shutil.copy(REPO / "scripts" / "web.sh", tmp_path / "scripts")
    for name in ("bash", "dirname", "mkdir", "flock"):
        (tmp_path / "bin" / name).symlink_to(str(shutil.which(name)))
    bare = {"PATH": str(tmp_path / "bin")}
    r = subprocess.run(["bash", script, "check"], env=bare, capture_output=True, text=True, timeout=60)
    assert r.returncode == 0 and r.stderr.startswith("SKIPPED [1] web: npm is not installed"), r


def events(*said: tuple[str, str, str]) -> list[str]:
    """Return lines of go test -json: action, test, output."""
    lines = []
    for action, test, output in said:
        event = {"Action": action, "Package": "example.org/a/b/internal/x"}
        event |= {"Test": test} if test else {}
        event |= {"Output": output} if output else {}
        lines.append(json.dumps(event) + "\n")
    return lines


def printed(*said: tuple[str, str, str]) -> tuple[str, list[str]]:
    """Return what is printed of these events, and the last lines."""
    report = gotest.Report()
    shown = "".join(text for line in events(*said) for text in report.take(line))
    return shown, report.summary()


PASSED = [("run", "TestA", ""), ("output", "TestA", "    a_test.go:1: noise\n"), ("pass", "TestA", "")]
LEFT = [
    ("output", "TestB", "=== RUN   TestB\n"),
    ("output", "TestB", "    b_test.go:7: this kernel has none\n"),
    ("output", "TestB", "--- SKIP: TestB (0.00s)\n"),
    ("skip", "TestB", ""),
]
ENDED = [("output", "", "PASS\n"), ("output", "", "ok  \tx\t1s\n"), ("pass", "", "")]
BROKEN = [("output", "", "FAIL\n"), ("output", "", "FAIL\tx\t1s\n"), ("fail", "", "")]


def test_a_skip_of_go_is_said_with_its_reason() -> None:
    shown, last = printed(*PASSED, *LEFT, *ENDED)
    assert shown == "ok  \tx\t1s\n"
    assert last == ["SKIPPED [1] internal/x: TestB: this kernel has none\n", "1 passed, 1 skipped\n"]


def test_a_failure_of_go_is_shown_and_nothing_else() -> None:
    fails = [
        ("output", "TestC", "    c_test.go:3: bad\n"),
        ("output", "TestC", "--- FAIL: TestC (0s)\n"),
        ("fail", "TestC", ""),
    ]
    shown, last = printed(*PASSED, *LEFT, *fails, *BROKEN)
    assert shown == "--- FAIL: TestC (0s)\n    c_test.go:3: bad\nFAIL\tx\t1s\n"
    assert last[-1] == "1 passed, 1 skipped, 1 failed\n"


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ([("output", "TestD", "panic: boom\n")], "panic: boom\nFAIL\tx\t1s\n"),  # it did not end
        ([("output", "TestD", "WARNING: DATA RACE\n"), ("pass", "TestD", "")], "WARNING: DATA RACE\nFAIL\tx\t1s\n"),
        ([("output", "TestD", "exit\n"), ("pass", "TestD", "")], "exit\nFAIL\tx\t1s\n"),  # no test did it
        ([("output", "", "a leak\n")], "a leak\nFAIL\tx\t1s\n"),
    ],
    ids=["panic", "race", "afterwards", "of the package"],
)
def test_a_package_that_fails_says_why(said: list[tuple[str, str, str]], shown: str) -> None:
    assert printed(*said, *BROKEN)[0] == shown


def test_no_test_at_all_fails(tmp_path: Path) -> None:
    """A selection that leaves nothing, and a package without tests, prove nothing; the status of go test is kept."""
    go = tmp_path / "go"
    one = '"Test":"TestA",'
    for status, action, test, want in (
        (0, "pass", "", 1),
        (0, "pass", one, 0),
        (0, "skip", one, 0),  # it is there, and says why it does not run here
        (2, "pass", one, 2),
    ):
        go.write_text(f'#!/bin/sh\necho \'{{"Action":"{action}",{test}"Package":"x"}}\'; exit {status}\n')
        go.chmod(0o755)
        r = subprocess.run([REPO / "scripts" / "gotest.py", go, "test", "x"], capture_output=True, text=True)
        assert r.returncode == want, r
        assert ("no test ran" in r.stdout) == (want == 1)


def test_a_killed_go_says_what_was_under_way(tmp_path: Path) -> None:
    """Its packages have no end, so that nothing else would say which test it was, as where the memory is not enough."""
    said = [
        *PASSED,
        ("run", "TestE", ""),
        ("output", "TestE", "=== RUN   TestE\n"),
        ("run", "TestE/long", ""),
        ("output", "TestE/long", "    e_test.go:5: seed 7\n"),
    ]
    go = tmp_path / "go"
    go.write_text(f"#!/bin/sh\ncat <<'END'\n{''.join(events(*said))}END\nkill -KILL $$\n")
    go.chmod(0o755)
    r = subprocess.run([REPO / "scripts" / "gotest.py", go, "test", "x"], capture_output=True, text=True)
    assert r.returncode not in (0, 2), r
    cut = "CUT\texample.org/a/b/internal/x: it did not end; under way: TestE/long"
    assert r.stdout.splitlines() == ["    e_test.go:5: seed 7", cut, "1 passed, 0 skipped"]
