"""Fixtures of the guest; on any other machine the tests of this folder are collected only to be counted."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from guest import HERE, RESULTS, Initiator, KernelLog, clear_targets
from harness import run

if not HERE and "GUEST_COLLECT" not in os.environ:
    collect_ignore_glob = ["test_*.py", "boot/test_*.py"]


#: Seen in one run of three: nothing is under way in LIO, the array, or the SCSI layer (iorequest_cnt equals
#: iodone_cnt, nothing in flight), and fio waits for what the block layer has queued and never sends again.
LOST_REQUEUE = "on one processor Linux 6.1 can lose what it requeues while LIO's iSCSI target resets a LUN under load"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the guest's engine cannot do: it is not skipped but run elsewhere, by `make test-qemu`.

    Where the kernel's own target takes a quarter of a minute to recover from a reset, one of the two will do.
    """
    for item in items:
        if item.name == "test_reset_under_load[tcmu-iscsi---target]":
            item.add_marker(pytest.mark.slow)
        if item.name.startswith("test_reset_under_load[tcmu-iscsi-"):
            item.add_marker(pytest.mark.qemu(LOST_REQUEUE))
    if os.environ.get("GUEST_ENGINE", "qemu") != "qemu":
        elsewhere = [item for item in items if item.get_closest_marker("qemu")]
        items[:] = [item for item in items if item not in elsewhere]
        config.hook.pytest_deselected(items=elsewhere)
        for item in elsewhere:
            print(f"left to QEMU: {item.nodeid}: {item.get_closest_marker('qemu').args[0]}")
    # multipath-tools load the kernel's ALUA handler, which stays and meets every later disk.
    items.sort(key=lambda item: item.path.name in ("test_examples.py", "test_multipath.py"))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say in full what failed near the end, where the reader of a long run looks; pytest cuts it to a line."""
    for outcome in ("failed", "error"):
        for report in terminalreporter.getreports(outcome):
            crash = getattr(report.longrepr, "reprcrash", None)
            why = " ".join(str(crash.message if crash else report.longrepr).split())
            terminalreporter.write_line(f"{outcome} in {report.when}: {report.nodeid}: {why[:600]}")


@pytest.fixture(autouse=True)
def kernel_log(request: pytest.FixtureRequest) -> Iterator[KernelLog]:
    """The kernel's log of this test, which must show no trouble."""
    log = KernelLog()
    for mark in request.node.iter_markers("kernel_says"):
        log.allow(*mark.args)
    yield log
    bad = log.trouble()
    if log.lines:
        with (RESULTS / "kernel.log").open("a") as f:
            f.write("\n".join([f"== {request.node.name}", *log.lines, ""]))
    log.close()
    # In one line, so that the last lines of a long run tell what it was.
    assert not bad, "the kernel logged trouble: " + " | ".join(bad)


@pytest.fixture(scope="session")
def initiator() -> Iterator[Initiator]:
    """The kernel's iSCSI initiator."""
    with Initiator() as i:
        yield i


@pytest.fixture(scope="session")
def lio() -> Iterator[None]:
    """LIO with nothing configured, and again at the end."""
    modules = ("target_core_mod", "target_core_user", "target_core_file", "iscsi_target_mod", "tcm_loop")
    run(["modprobe", "--all", *modules])
    # Where LIO keeps reservations; without the folder it refuses PERSISTENT RESERVE OUT.
    Path("/etc/rtslib-fb-target/pr").mkdir(parents=True, exist_ok=True)
    yield
    clear_targets()


@pytest.fixture
def folder() -> Path:
    """A mount point."""
    path = Path("/srv/mount")
    path.mkdir(exist_ok=True)
    return path
