"""Two nodes that show one array under dm-multipath, and the death of the one that has it under load."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from guest import RESULTS, Initiator, wait
from harness import Daemon, MiB, Volume, free_port, run
from nodes import Node, linked
from test_multipath import CONF, FAILURES, Paths, mapped, verified_load

#: What docs/nodes.md tells people to write.
BY_PRIORITY = CONF.replace(
    "no_path_retry queue",
    "no_path_retry 60\n    path_grouping_policy group_by_prio\n    prio alua\n    failback immediate",
)

DEATHS = 3

pytestmark = pytest.mark.kernel_says(FAILURES)


@dataclass
class Nodes:
    """The node that has the array, and one that forwards."""

    owner: Daemon
    other: Daemon


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    """Two nodes in this guest."""
    link, volumes = free_port(), [Volume("v", 0, size=128 * MiB)]
    with (
        Daemon(Node(volumes=volumes, number=1, link=link), "owner") as owner,
        Daemon(Node(number=2, link=link, forward=True), "other") as other,
    ):
        wait("link", lambda: linked(other))
        yield Nodes(owner, other)
        for d in (owner, other):
            (RESULTS / f"arraysim-{d.name}.log").write_text(d.log_tail(10000))


@pytest.fixture(scope="module")
def paths(nodes: Nodes, initiator: Initiator) -> Iterator[Paths]:
    """The LUN by both nodes."""
    with mapped(initiator, [f"127.0.0.1:{d.port}" for d in (nodes.owner, nodes.other)], BY_PRIORITY) as p:
        yield p


def priorities() -> list[int]:
    """Return the priorities of the path groups, in the order of multipath -ll."""
    return [int(n) for n in re.findall(r"prio=(\d+)", run(["multipath", "-ll"]).stdout)]


def test_the_owner_is_preferred(paths: Paths) -> None:
    """A group for each node, by what ALUA says: the owner's is used, the other one waits."""
    wait("priorities", lambda: sorted(priorities()) == [10, 50])
    text = run(["multipath", "-ll"]).stdout
    (RESULTS / "multipath.txt").write_text(text)
    assert "hwhandler='1 alua'" in text, text
    owner, other = paths.disks
    assert re.search(rf"prio=50 status=active\n[^\n]*{owner.sd.removeprefix('/dev/')} ", text), text
    assert re.search(rf"prio=10 status=enabled\n[^\n]*{other.sd.removeprefix('/dev/')} ", text), text


def test_the_owner_dies_under_load(nodes: Nodes, paths: Paths) -> None:
    """fio that verifies what it writes meets no error while the owner is killed and comes back, again and again."""
    with verified_load(paths.device):
        for _ in range(DEATHS):
            time.sleep(2)
            nodes.owner.kill()
            time.sleep(1)
            nodes.owner.start()
            wait("link", lambda: linked(nodes.other))
            paths.await_states("^active ready", "^active ready")
    wait("priorities", lambda: sorted(priorities()) == [10, 50])
    assert nodes.other.metrics().sum("link_connects_total") == 1 + DEATHS


def test_load_on_the_forwarding_path(nodes: Nodes, paths: Paths) -> None:
    """A host that has lost its way to the owner writes on by the other node."""

    def written() -> float:
        return nodes.other.metrics().sum("link_bytes_total", direction="write")

    before, owner = written(), paths.disks[0]
    with verified_load(paths.device):
        run(["multipathd", "fail", "path", owner.sd.removeprefix("/dev/")])
        wait(
            "writes by the other node",
            lambda: nodes.other.metrics().sum("link_bytes_total", direction="write") > before,
        )
    run(["multipathd", "reinstate", "path", owner.sd.removeprefix("/dev/")])
