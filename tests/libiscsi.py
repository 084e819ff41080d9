"""libiscsi's iscsi-test-cu: its cases, how one ended, and the tables of what is expected otherwise.

In one process a failure drags later cases along, and CUnit counts a case that
printed [SKIPPED] as passed; here a process runs one case, and such a one is "skipped".
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from harness import Result, run


def names() -> list[str]:
    """List Suite.Case; empty without the tool."""
    if shutil.which("iscsi-test-cu") is None:
        return []
    listed = subprocess.run(["iscsi-test-cu", "-l"], capture_output=True, text=True, check=False).stdout
    return re.findall(r"^ALL\.([^.\s]+\.[^.\s]+)$", listed, re.M)


def case(name: str, url: str, timeout: float) -> Result:
    """Run one case on a unit; those of several paths get two sessions with it."""
    urls = [url] * (2 if name.startswith("MultipathIO") else 1)
    args = ["--dataloss", "--allow-sanitize", f"--test=ALL.{name}"]
    return run(["iscsi-test-cu", *args, *urls], timeout=timeout, expect=None)


def outcome(r: Result) -> str:
    """Say how a case ended."""
    if r.returncode is None:
        return "timeout"
    if r.returncode < 0:
        return "crashed"
    ran = re.search(r"^ +tests +(\d+) +(\d+) +(\d+) +(\d+)", r.stdout, re.M)
    if ran is None or ran[2] != "1":
        return "not-run"
    if r.returncode != 0 or ran[4] != "0":
        return "failed"
    return "skipped" if "[SKIPPED]" in r.stdout.partition("Suite:")[2] else "passed"


def exceptions(table: Path) -> dict[str, tuple[str, str]]:
    """Read a table: shape/case, outcome, reason."""
    out = {}
    for line in table.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            name, end, reason = line.split(None, 2)
            assert name not in out, f"{name} stands twice in {table.name}"
            out[name] = (end, reason)
    return out
