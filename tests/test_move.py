"""An array in a Ceph pool moves from node to node while hosts of all nodes write."""

from __future__ import annotations

import os
import time

import pytest
from harness import Mdisk, MiB, Pool, ToolError, Volume, free_port, run
from nodes import eventually
from test_rados import BINARY, NodeInPool, RadosDaemon, cluster, forwards  # noqa: F401
from writers import CHANGED, INTERRUPTED, TRANSITION, Writer, check, finish

MOVES = int(os.environ.get("ARRAYSIM_MOVES", "9"))


def move(d: RadosDaemon, to: str, expect: int | None = 0) -> str:
    """Ask a node to give its array to another one."""
    return run([BINARY, "instance", "move", "--to", to, "--data", d.data], expect=expect).text


@pytest.mark.proof
def test_array_moves(cluster: dict[str, str]) -> None:  # noqa: F811
    """No command of a host fails, no session ends, nothing acknowledged is lost; what cannot be is refused."""
    nodes = []
    for number in (1, 2, 3):
        config = NodeInPool(
            [Pool("p0", mdisks=[Mdisk("m0", 256 * MiB)])], [Volume("v0", 0, size=64 * MiB)], cache=16 * MiB,
            rados={**cluster, "namespace": "moves", "standby": True}, number=number, link=free_port(),
        )  # fmt: skip
        nodes.append(RadosDaemon(config, f"rados-moves-{number}"))
    writers: list[Writer] = []
    took = []
    try:
        nodes[0].start()
        for d in nodes[1:]:
            d.stand_by()
            forwards(d)
        pids = [d.proc.pid for d in nodes]
        for to, says in (("a", "already has the array"), ("d", 'there is no node "d"')):
            answer = move(nodes[0], to, expect=None)
            assert says in answer and answer.count("\n") <= 1, answer
        writers = [Writer(d, 10 + n, range(n * 1000, n * 1000 + 200)) for n, d in enumerate(nodes * 2, 1)]
        for w in writers:
            w.start()
        owner = 0
        for k in range(MOVES):
            time.sleep(0.5)
            heir = (owner + 1 + k % 2) % 3
            before, began = [w.writes for w in writers], time.monotonic()
            answer = move(nodes[owner], "abc"[heir])
            assert f"node {heir + 1} {'abc'[heir]} has the array" in answer, answer
            eventually("hosts go on", lambda b=before: all(w.writes > n + 1 for w, n in zip(writers, b, strict=True)))
            took.append(time.monotonic() - began)
            for n, d in enumerate(nodes):
                if n != heir:
                    forwards(d)
            owner = heir
        finish(writers)
        codes = {code for w in writers for code in w.codes}
        assert CHANGED in codes and not codes & {TRANSITION, INTERRUPTED}, {f"{c:06x}" for c in codes}
        assert [w.sessions for w in writers] == [1] * len(writers), "a session was lost"
        assert [d.proc.pid for d in nodes] == pids and all(d.alive() for d in nodes)
        assert sum(check(writers, d) for d in nodes) > 300
        nodes[owner].cli("check")
        for d in (*nodes[:owner], *nodes[owner + 1 :], nodes[owner]):
            d.stop()
    except (AssertionError, ToolError) as e:
        raise AssertionError("\n".join([str(e), *(d.log_tail(20) for d in nodes)])) from None
    finally:
        for w in writers:
            w.over.set()
        for d in nodes:
            if d.alive():
                d.kill()
            d.cleanup()
    took.sort()
    writes = sum(w.writes for w in writers)
    print(f"\n  {writes} writes; hosts went on behind {took[len(took) // 2]:.1f} s, {took[-1]:.1f} s at the most")
