"""The bench outlives a server that stops answering: the row is recorded, the others get their figures."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from guest import RESULTS

BENCH = Path(__file__).with_name("bench.py")
OPTIONS = "--rounds 1 --seconds 1 --strace-seconds 1 --limit 15 --fills 1 --peers arraysim --rows rr1,rr32,rw1"


def server() -> int:
    """Return the array's process."""
    for p in Path("/proc").glob("[0-9]*/cmdline"):
        if p.read_bytes().split(b"\0")[1:2] == [b"serve"]:
            return int(p.parent.name)
    raise AssertionError("no array is running")


@pytest.mark.slow
@pytest.mark.kernel_says(r"Sense Key|I/O error|Synchronize Cache")  # what the dead server had outstanding
@pytest.mark.parametrize("fabric", ["loop", "iscsi"])
def test_server_that_hangs(lio: None, fabric: str) -> None:
    frozen = False
    with subprocess.Popen(
        [sys.executable, str(BENCH), *OPTIONS.split(), "--fabrics", fabric], stdout=subprocess.PIPE, text=True
    ) as p:
        assert p.stdout is not None
        for line in p.stdout:
            print(line, end="")
            if line.startswith("[1/3,"):
                os.kill(server(), signal.SIGSTOP)
                frozen = True
    assert frozen, "the first row had no line"
    rows = {r["row"]: r for r in json.loads((RESULTS / "bench.json").read_text())["records"]}
    assert list(rows) == ["rr1", "rr32", "rw1"]
    assert rows["rr32"]["failed"].startswith("did not end in 16 s"), rows["rr32"]
    assert "figure" not in rows["rr32"]
    for good in ("rr1", "rw1"):
        assert "failed" not in rows[good] and rows[good]["figure"] > 0, rows[good]
        assert rows[good]["cost"]["processor"] > 0 and rows[good]["system calls"]["write"] > 0, rows[good]
    assert p.returncode == 1, "a row of the array's failed"
    assert "did not end in 16 s" in (RESULTS / "bench.md").read_text()
