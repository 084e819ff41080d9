"""libiscsi's conformance suite through LIO and TCMU: the families of offloads, and with -m "" the whole of it.

Every outcome other than "passed" must stand in libiscsi-exceptions.txt with its reason, and an entry there that does
not come true is a failure too. "varies" is for what depends on how busy the machine is.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import doors
import libiscsi
import pytest
from doors import LIO_TARGET, VOLUMES
from guest import RESULTS

TABLE = Path(__file__).with_name("libiscsi-exceptions.txt")
TIMEOUT = 240

#: The suites that a short run has.
OFFLOADS = {"CompareAndWrite", "ExtendedCopy", "GetLBAStatus", "ReceiveCopyResults", "Unmap"} | {
    "WriteSame10",
    "WriteSame16",
}

#: Suites and cases that mean something only on a special unit. A backstore is never a removable medium.
PLACE = {
    "ReadOnly": "protected",
    "Sanitize": "thick",
    "Sanitize.BlockErase": "other",  # a thin one
    "Sanitize.Reset": "other",  # a large one: looks after 5 seconds whether it is still overwritten
    "GetLBAStatus.UnmapSingle": "native",
    # Expects that its list identifiers are unknown; over TCMU they are the unit's, and other cases use them.
    "ReceiveCopyResults.CopyStatus": "peer",
}


def place(name: str) -> str:
    """Say on which volume a case is run."""
    return PLACE.get(name) or PLACE.get(name.partition(".")[0], "thin")


NAMES = libiscsi.names()
CASES = [
    pytest.param(n, marks=() if n.partition(".")[0] in OFFLOADS else pytest.mark.slow, id=f"{place(n)}/{n}")
    for n in NAMES
]


@pytest.fixture(scope="module")
def target(lio: None) -> Iterator[doors.KernelDaemon]:
    """Backstores of user:array behind the kernel's iSCSI target."""
    with doors.kernel_array() as d, doors.exported([v.name for v in VOLUMES]):
        yield d


def test_suite_is_complete() -> None:
    assert len(NAMES) >= 230, f"iscsi-test-cu lists {len(NAMES)} cases, version 1.19 has 230"
    assert sorted(set(libiscsi.exceptions(TABLE)) - {f"{place(n)}/{n}" for n in NAMES}) == []


@pytest.mark.kernel_says(".")
@pytest.mark.parametrize("name", CASES)
def test_case(target: doors.KernelDaemon, name: str) -> None:
    lun = next(v.lun for v in VOLUMES if v.name == place(name))
    r = libiscsi.case(name, f"iscsi://127.0.0.1:3260/{LIO_TARGET}/{lun}", TIMEOUT)
    got = libiscsi.outcome(r)
    with (RESULTS / "conformance.txt").open("a") as f:
        f.write(f"{place(name)}/{name} {got}\n")
    want, reason = libiscsi.exceptions(TABLE).get(f"{place(name)}/{name}", ("passed", ""))
    if got != want and not (want == "varies" and got in ("passed", "failed")):
        why = f" ({TABLE.name} says: {reason})" if reason else f" and {TABLE.name} has no entry"
        pytest.fail(f"{name} {got}, expected {want}{why}\n{r}", pytrace=False)
