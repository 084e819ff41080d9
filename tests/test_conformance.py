"""libiscsi's conformance suite, one process a case.

In one process a failure drags later cases along, and CUnit counts a case that
printed [SKIPPED] as passed; here it is "skipped". Every outcome other than
"passed" must stand in libiscsi-exceptions.txt with its reason, and an entry there
that does not come true is a failure too.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from arrays import NATIVE_4K, PROTECTED, REMOVABLE, STANDARD, THIN
from harness import Daemon, Result, run

TABLE = Path(__file__).with_name("libiscsi-exceptions.txt")
TIMEOUT = 60

#: Suites that mean something only on a special unit.
PLACE = {
    "ReadOnly": "protected",
    "NoMedia": "removable",
    "PreventAllow": "removable",
    "StartStopUnit": "removable",
}
LUN = {"512e": THIN, "4kn": NATIVE_4K, "protected": PROTECTED, "removable": REMOVABLE}

#: Suites that are run again with blocks of 4096 bytes.
ALSO_4KN = re.compile(
    r"CompareAndWrite|ExtendedCopy|GetLBAStatus|Mandatory|OrWrite|Prefetch\d+|Read\d+|ReadCapacity\d+|Unmap|"
    r"Verify\d+|Write\d+|WriteSame\d+|WriteVerify\d+|iSCSIResiduals"
)


def cases() -> list[str]:
    """List place/Suite.Case; empty without the tool (then test_suite_is_complete fails)."""
    if shutil.which("iscsi-test-cu") is None:
        return []
    listed = subprocess.run(["iscsi-test-cu", "-l"], capture_output=True, text=True, check=False).stdout
    names = re.findall(r"^ALL\.([^.\s]+\.[^.\s]+)$", listed, re.M)
    out = [f"{PLACE.get(n.partition('.')[0], '512e')}/{n}" for n in names]
    return out + [f"4kn/{n}" for n in names if ALSO_4KN.fullmatch(n.partition(".")[0])]


CASES = cases()


def exceptions() -> dict[str, tuple[str, str]]:
    """Read the table: case, outcome, reason."""
    table = {}
    for line in TABLE.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            case, outcome, reason = line.split(None, 2)
            assert case not in table, f"{case} stands twice in {TABLE.name}"
            table[case] = (outcome, reason)
    return table


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


class Shared:
    """An array for all cases; a new one after a case that may have broken it."""

    def __init__(self) -> None:
        self.daemon: Daemon | None = None

    def get(self) -> Daemon:
        if self.daemon is None:
            self.daemon = Daemon(STANDARD, "conformance").__enter__()
        return self.daemon

    def drop(self) -> None:
        if self.daemon is not None:
            daemon, self.daemon = self.daemon, None
            daemon.__exit__(None, None, None)


@pytest.fixture(scope="module")
def shared() -> Iterator[Shared]:
    s = Shared()
    yield s
    s.drop()


def test_suite_is_complete() -> None:
    run(["iscsi-test-cu", "-l"])
    assert len(CASES) > 230, "iscsi-test-cu lists fewer cases than version 1.19"


def test_table_names_only_cases_that_exist() -> None:
    assert sorted(set(exceptions()) - set(CASES)) == []


@pytest.mark.parametrize("case", CASES)
def test_case(shared: Shared, case: str) -> None:
    place, _, name = case.partition("/")
    array = shared.get()
    urls = [array.url(LUN[place])] * (2 if name.startswith("MultipathIO") else 1)
    args = ["--dataloss", "--allow-sanitize", f"--test=ALL.{name}"]
    r = run(["iscsi-test-cu", *args, *urls], timeout=TIMEOUT, expect=None)
    got = outcome(r)
    want, reason = exceptions().get(case, ("passed", ""))
    log = array.log_tail(30)
    if got not in ("passed", "skipped"):
        shared.drop()
    if got != want:
        why = f" ({TABLE.name} says: {reason})" if reason else f" and {TABLE.name} has no entry"
        pytest.fail(f"{case} {got}, expected {want}{why}\n{r}\n--- arraysim\n{log}", pytrace=False)
