"""libiscsi's conformance suite, one process a case.

Every outcome other than "passed" must stand in libiscsi-exceptions.txt with its reason, and an entry there
that does not come true is a failure too. docs/conformance.md has the outcome as a
table; ARRAYSIM_REWRITE=1 writes it anew.
"""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import libiscsi
import pytest
from harness import REPO, Config, Daemon, GiB, MiB, Volume, run

TABLE = Path(__file__).with_name("libiscsi-exceptions.txt")
DOCUMENT = REPO / "docs" / "conformance.md"
#: Of a case. In a pool a write at depth 1 takes milliseconds, and some cases send thousands.
TIMEOUT = 600 if "ARRAYSIM_CEPH_CONF" in os.environ else 240

#: Shapes of units, by LUN.
LUN = {"512e": 0, "4kn": 1, "protected": 2, "removable": 3, "small": 4}
ARRAY = Config(
    volumes=[
        Volume("thin", LUN["512e"]),
        Volume("native", LUN["4kn"], block_size=4096),
        Volume("protected", LUN["protected"], write_protect=True),
        Volume("removable", LUN["removable"], removable=True),
        # SANITIZE takes its time, 32 MiB a second.
        Volume("small", LUN["small"], size=64 * MiB),
    ]
)

#: Suites and cases that mean something only on a special unit.
PLACE = {
    "ReadOnly": "protected",
    "NoMedia": "removable",
    "PreventAllow": "removable",
    "StartStopUnit": "removable",
    "Sanitize": "small",
    # Looks for the answer to "LBA i" at LBA i + 8 in one of its steps: right only
    # where a physical block is one logical block.
    "GetLBAStatus.UnmapSingle": "4kn",
}

#: Cases that have an array of their own, beside the others. Sanitize.Reset looks
#: after 5 seconds whether the medium is still overwritten, and sleeps a minute.
ALONE = {"Sanitize.Reset": Config(volumes=[Volume("wiped", LUN["small"], size=GiB)])}

#: Cases that sleep for seconds, and leave nothing for a second case to compute meanwhile.
SLEEP = re.compile(
    r"Reserve6\.(Target(Cold|Warm)Reset|LUNReset|ITNexusLoss)|iSCSIcmdsn\..*|Sanitize\.(Overwrite|Readonly)"
)

#: Suites that are run again with blocks of 4096 bytes.
ALSO_4KN = re.compile(
    r"CompareAndWrite|ExtendedCopy|GetLBAStatus|Mandatory|OrWrite|Prefetch\d+|Read\d+|ReadCapacity\d+|Unmap|"
    r"Verify\d+|Write\d+|WriteSame\d+|WriteVerify\d+|iSCSIResiduals"
)

#: What other targets reach by the same method: passed, failed, skipped.
PEERS = {"tgtd 1.0.85": (169, 12, 49), "LIO (Linux 6.1)": (127, 18, 85), "gotgt 2023-04": (114, 49, 67)}


def place(name: str) -> str:
    """Say on which shape of unit a case is counted."""
    return PLACE.get(name) or PLACE.get(name.partition(".")[0], "512e")


def slow(case: str) -> bool:
    """Say whether `make test-quick` leaves a case out: what sleeps, and what it does once with blocks of 512 bytes."""
    shape, _, name = case.partition("/")
    return name in ALONE or SLEEP.fullmatch(name) is not None or shape != place(name)


NAMES = libiscsi.names()
COUNTED = [f"{place(n)}/{n}" for n in NAMES]
CASES = COUNTED + [f"4kn/{n}" for n in NAMES if ALSO_4KN.fullmatch(n.partition(".")[0]) and f"4kn/{n}" not in COUNTED]


class Lane:
    """Cases that run one after the other on one array; a new array after one that may have broken it."""

    def __init__(self, config: Config, cases: list[str]) -> None:
        self.config = config
        self.cases = cases

    def run(self) -> dict[str, tuple[str, str]]:
        """Return outcome and report of each case."""
        out: dict[str, tuple[str, str]] = {}
        daemon: Daemon | None = None
        try:
            for case in self.cases:
                if daemon is None:
                    daemon = Daemon(self.config, "conformance").__enter__()
                out[case] = self.one(daemon, case)
                if out[case][0] not in ("passed", "skipped"):
                    daemon.__exit__(None, None, None)
                    daemon = None
        finally:
            if daemon is not None:
                daemon.__exit__(None, None, None)
        return out

    def one(self, array: Daemon, case: str) -> tuple[str, str]:
        shape, _, name = case.partition("/")
        r = libiscsi.case(name, array.url(LUN[shape]), TIMEOUT)
        return libiscsi.outcome(r), f"{r}\n--- arraysim\n{array.log_tail(30)}"


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest) -> dict[str, tuple[str, str]]:
    """How the selected cases ended; all of them when the document is among the tests."""
    chosen = [i.callspec.params["case"] for i in request.session.items if i.originalname == "test_case"]
    if any(i.originalname == "test_document" for i in request.session.items):
        chosen = CASES
    lanes = [Lane(config, [c for c in chosen if c.partition("/")[2] == name]) for name, config in ALONE.items()]
    lanes.append(Lane(ARRAY, [c for c in chosen if c.partition("/")[2] not in ALONE]))
    done: dict[str, tuple[str, str]] = {}
    with ThreadPoolExecutor(len(lanes)) as pool:
        for result in pool.map(Lane.run, lanes):
            done |= result
    return done


def test_suite_is_complete() -> None:
    run(["iscsi-test-cu", "-l"])
    assert len(COUNTED) >= 230, f"iscsi-test-cu lists {len(COUNTED)} cases, version 1.19 has 230"


def test_table_names_only_cases_that_exist() -> None:
    assert sorted(set(libiscsi.exceptions(TABLE)) - set(CASES)) == []


@pytest.mark.parametrize("case", [pytest.param(c, marks=pytest.mark.slow) if slow(c) else c for c in CASES])
def test_case(outcomes: dict[str, tuple[str, str]], case: str) -> None:
    got, report = outcomes[case]
    want, reason = libiscsi.exceptions(TABLE).get(case, ("passed", ""))
    if got != want:
        why = f" ({TABLE.name} says: {reason})" if reason else f" and {TABLE.name} has no entry"
        pytest.fail(f"{case} {got}, expected {want}{why}\n{report}", pytrace=False)


def tables(outcomes: dict[str, tuple[str, str]]) -> str:
    """Make the tables of the document."""

    def count(cases: list[str]) -> tuple[int, int, int]:
        got = [outcomes[c][0] for c in cases]
        passed, skipped = got.count("passed"), got.count("skipped")
        return passed, len(got) - passed - skipped, skipped

    lines = ["| target | passed | failed | skipped |", "| --- | ---: | ---: | ---: |"]
    rows = {"arraysim": count(COUNTED)} | PEERS
    lines += [f"| {name} | {p} | {f} | {s} |" for name, (p, f, s) in rows.items()]
    lines += ["", "| suite | shape | passed | failed | skipped | 4Kn too: passed | failed | skipped |"]
    lines.append("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for suite in dict.fromkeys(n.partition(".")[0] for n in NAMES):
        mine = [c for c in COUNTED if c.partition("/")[2].startswith(suite + ".")]
        again = [c for c in CASES if c.partition("/")[2].startswith(suite + ".") and c not in COUNTED]
        shapes = ", ".join(dict.fromkeys(c.partition("/")[0] for c in mine))
        extra = [str(n) for n in count(again)] if again else ["", "", ""]
        lines.append("| " + " | ".join([suite, shapes, *(str(n) for n in count(mine)), *extra]) + " |")
    lines += ["", "| case | outcome | why |", "| --- | --- | --- |"]
    lines += [f"| {case} | {end} | {reason} |" for case, (end, reason) in libiscsi.exceptions(TABLE).items()]
    return "\n".join(lines) + "\n"


@pytest.mark.slow
def test_document(outcomes: dict[str, tuple[str, str]]) -> None:
    """The tables of docs/conformance.md are what the suite says."""
    text = DOCUMENT.read_text()
    begin, end = "<!-- iscsi-test-cu -->\n", "<!-- end -->\n"
    head, rest = text.split(begin)
    old, tail = rest.split(end)
    new = tables(outcomes)
    if os.environ.get("ARRAYSIM_REWRITE"):
        DOCUMENT.write_text(head + begin + new + end + tail)
        return
    assert new == old, f"{DOCUMENT.name} is out of date: ARRAYSIM_REWRITE=1 renews it"
