"""Two nodes that show one array under dm-multipath, and the death of the one that has it under load.

ARRAYSIM_TAKE_OVERS, an even number, says how often they take its folder over from each other below a file system.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from guest import RESULTS, Initiator, KernelLog, mounted, wait
from harness import Daemon, MiB, Volume, free_port, run
from load import fsck, mkfs
from nodes import Node, linked
from test_multipath import CONF, FAILURES, Paths, mapped, repeated, verified_load

#: What docs/nodes.md tells people to write, but for five minutes: that is what a start may take in a guest whose
#: processor others want, and a host that gives up sooner says nothing about the array.
BY_PRIORITY = CONF.replace(
    "no_path_retry queue",
    "no_path_retry 300\n    path_grouping_policy group_by_prio\n    prio alua\n    failback immediate",
)

DEATHS = 3
TAKE_OVERS = int(os.environ.get("ARRAYSIM_TAKE_OVERS", "4"))

#: What says that an error has got past dm-multipath.
ABOVE = re.compile(
    r"(EXT4-fs|JBD2).*(error|warning|abort|failed)|Buffer I/O error|lost async page|dev dm-\d+.*error", re.I
)

pytestmark = pytest.mark.kernel_says(FAILURES)


@dataclass
class Nodes:
    """The node that has the array, and one that forwards."""

    owner: Daemon
    other: Daemon

    def take_over(self) -> None:
        """Kill the owner; the other one starts again with the array, whose folder both can reach, and is linked to."""
        dead, taker = self.owner, self.other
        dead.kill()
        taker.kill()
        dead.data, taker.data = taker.data, dead.data
        dead.config.forward, taker.config.forward = True, False
        taker.start()
        dead.start()
        self.owner, self.other = taker, dead
        wait("link", lambda: linked(dead))


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    """Two nodes in this guest."""
    link, volumes = free_port(), [Volume("v", 0, size=128 * MiB)]
    with (
        Daemon(Node(volumes=volumes, number=1, link=link), "owner") as owner,
        Daemon(Node(volumes=volumes, number=2, link=link, forward=True), "other") as other,
    ):
        wait("link", lambda: linked(other))
        yield Nodes(owner, other)
        for d in (owner, other):  # as they are called, whichever has the array
            (RESULTS / f"arraysim-{d.name}.log").write_text(d.log_tail(10000))


@pytest.fixture(scope="module")
def paths(nodes: Nodes, initiator: Initiator) -> Iterator[Paths]:
    """The LUN by both nodes."""
    with mapped(initiator, [f"127.0.0.1:{d.port}" for d in (nodes.owner, nodes.other)], BY_PRIORITY) as p:
        yield p


def priorities() -> list[int]:
    """Return the priorities of the path groups, in the order of multipath -ll."""
    return [int(n) for n in re.findall(r"prio=(\d+)", run(["multipath", "-ll"], timeout=330).stdout)]


def test_the_owner_is_preferred(paths: Paths) -> None:
    """A group for each node, by what ALUA says: the owner's is used, the other one waits."""
    owner, other = paths.disks
    shown = [
        "hwhandler='1 alua'",
        rf"prio=50 status=active\n[^\n]*{owner.sd.removeprefix('/dev/')} ",
        rf"prio=10 status=enabled\n[^\n]*{other.sd.removeprefix('/dev/')} ",
    ]

    def text() -> str:
        said = run(["multipath", "-ll"], timeout=330).stdout
        (RESULTS / "multipath.txt").write_text(said)
        return said

    # With the priorities multipathd chooses the group, a moment later.
    wait("the group of the owner", lambda: all(re.search(s, said) for said in [text()] for s in shown), said=shown)


def test_the_owner_dies_under_load(nodes: Nodes, paths: Paths) -> None:
    """fio that verifies what it writes meets no error while the owner is killed and comes back, again and again."""

    def connects() -> float:
        return nodes.other.metrics().sum("link_connects_total")

    before = connects()
    with verified_load(paths.device):
        for _ in range(DEATHS):
            time.sleep(2)
            nodes.owner.kill()
            time.sleep(1)
            nodes.owner.start()
            wait("link", lambda: linked(nodes.other))
            paths.await_states("^active ready", "^active ready")
    wait("priorities", lambda: sorted(priorities()) == [10, 50])
    # A node that had no processor for longer than a link is patient connects once more.
    assert connects() >= before + DEATHS


def test_load_on_the_forwarding_path(nodes: Nodes, paths: Paths) -> None:
    """A host that has lost its way to the owner writes on by the other node."""

    def written() -> float:
        return nodes.other.metrics().sum("link_bytes_total", direction="write")

    before, owner = written(), paths.disks[0]
    with verified_load(paths.device):
        run(["multipathd", "fail", "path", owner.sd.removeprefix("/dev/")], timeout=330)
        wait(
            "writes by the other node",
            lambda: nodes.other.metrics().sum("link_bytes_total", direction="write") > before,
        )
    run(["multipathd", "reinstate", "path", owner.sd.removeprefix("/dev/")], timeout=330)


def used(paths: Paths) -> str:
    """Return the disk that dm-multipath uses: the one in the active group of paths."""
    found = re.search(r"status=active\n\W*\d+:\d+:\d+:\d+ (\w+)", run(["multipath", "-ll"], timeout=330).stdout)
    return f"/dev/{found[1]}" if found else ""


@pytest.mark.slow
def test_take_overs_below_a_file_system(nodes: Nodes, paths: Paths, kernel_log: KernelLog, folder: Path) -> None:
    """Both nodes take the array over from each other below a file system, which meets no error; hosts follow it."""
    disk = dict(zip((nodes.owner, nodes.other), paths.disks, strict=True))
    fio = ["fio", "--name=load", "--thread", f"--directory={folder}", "--numjobs=4", "--size=3m", "--group_reporting"]
    fio += ["--ioengine=libaio", "--iodepth=8", "--rw=randwrite", "--bsrange=4k-64k", "--fsync=32"]
    fio += ["--verify=crc32c", "--verify_fatal=1", "--unlink=1"]
    took = []
    mkfs("ext4", paths.device)
    with mounted(paths.device, folder), repeated(fio):
        for n in range(TAKE_OVERS):
            time.sleep(1)
            began = time.monotonic()
            nodes.take_over()
            started = time.monotonic() - began
            paths.await_states("^active ready", "^active ready")
            wait("the owner's path", lambda: used(paths) == disk[nodes.owner].sd)
            took.append(time.monotonic() - began)
            print(
                f"take-over {n + 1}: its path is used after {took[-1]:.1f} s, both run after {started:.1f} s",
                flush=True,
            )
    bad = [line for line in kernel_log.read() if ABOVE.search(line)]
    assert not bad, " | ".join(bad)
    fsck("ext4", paths.device)
    took.sort()
    print(f"{TAKE_OVERS} take-overs, {took[len(took) // 2]:.1f} s in the middle, {took[-1]:.1f} s at the most")
