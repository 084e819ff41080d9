"""Copies between two arrays of one Ceph pool: sg_xcopy goes on while the owner of one of them is replaced.

Each array has two nodes, one of which has it while the other one stands by. The host uses the one that stands by: its
commands are forwarded, and behind the take-over they are carried out there.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from arrays import Delta, noise, same
from harness import Mdisk, MiB, Pool, Result, Volume, free_port
from nodes import eventually
from test_rados import TAKE_OVERS, NodeInPool, RadosDaemon, await_owner, cluster, forwards  # noqa: F401

pytestmark = pytest.mark.proof

#: Take-overs of each test.
ROUNDS = max(1, TAKE_OVERS // 2)

#: What is copied at a time, in how many places of the volumes, and by commands of how many blocks.
SIZE, PLACES, BLOCKS = 2 * MiB, 8, 512


@dataclass
class PeerInPool(NodeInPool):
    """A node of one of two arrays. With the links of the other array's nodes it copies from there, else it lends."""

    links: list[int] = field(default_factory=list)

    def document(self, data: Path, portal: int, metrics: int) -> dict[str, Any]:
        """Return the configuration file's contents."""
        doc = super().document(data, portal, metrics)
        (data / "link.secret").write_text(f"the secret of the nodes of {self.rados['namespace']}\n")
        secret = data / "peer.secret"
        secret.write_text("the secret of the two arrays of this test\n")
        secret.chmod(0o600)
        reached = {"nodes": [f"127.0.0.1:{link}" for link in self.links]} if self.links else {"lend": True}
        return {**doc, "peers": [{"name": "other", "secret_file": str(secret), **reached}]}


class Pair:
    """An array and its two nodes."""

    def __init__(self, pool: dict[str, str], namespace: str, links: list[int]) -> None:
        self.links = [free_port(), free_port()]
        self.nodes = []
        for number, link in enumerate(self.links, 1):
            config = PeerInPool(
                [Pool("p0", mdisks=[Mdisk("m0", 256 * MiB)])], [Volume("v", 0, size=PLACES * SIZE)], cache=16 * MiB,
                rados={**pool, "namespace": namespace, "standby": True}, number=number, link=link, links=links,
            )  # fmt: skip
            self.nodes.append(RadosDaemon(config, f"{namespace}-{number}"))
        self.owner, self.other = self.nodes

    def start(self) -> None:
        self.owner.start()
        self.other.stand_by()
        forwards(self.other)

    def replace(self, way: str, meanwhile: Callable[[], None]) -> float:
        """End the owner. Behind the take-over, do something, and have it stand by; return the seconds until then."""
        owner, before, began = self.owner, self.other.served(), time.monotonic()
        owner.proc.send_signal(signal.SIGSTOP if way == "stop" else signal.SIGKILL)
        await_owner(self.other, before)
        took = time.monotonic() - began
        meanwhile()
        if way == "stop":
            owner.proc.send_signal(signal.SIGCONT)
        assert owner.proc.wait(60) != 0, "an owner that was fenced ended as if all were well"
        owner.stand_by()
        forwards(owner)
        self.owner, self.other = self.other, owner
        return took

    def end(self) -> None:
        self.owner.cli("check")
        self.other.stop()
        self.owner.stop()

    def close(self) -> None:
        for d in self.nodes:
            if d.alive():
                d.proc.send_signal(signal.SIGCONT)
                d.kill()
            d.cleanup()


class Copier:
    """A host: it writes to a place of the source, has the destination copy it, and compares; what fails, it repeats."""

    def __init__(self, source: Pair, destination: Pair, folder: Path, seed: int) -> None:
        self.source, self.destination, self.seed = source, destination, seed
        self.data, self.copy = folder / "data", folder / "copy"
        self.has: dict[int, bytes] = {}  # what a place holds at both arrays
        self.good = self.tried = 0  # bytes of runs of sg_xcopy
        self.copies = 0
        self.copying = False
        self.over = threading.Event()
        self.fault: BaseException | None = None

    def until_good(self, what: str, command: Callable[[], Result], timeout: float = 120) -> None:
        """Repeat a command until it ends well, as a host does that has lost a path, or heard of a change."""
        deadline = time.monotonic() + timeout
        while (r := command()).returncode != 0:
            assert r.returncode is not None, f"{what}: a command does not end\n{r}"
            assert time.monotonic() < deadline, f"{what}: not within {timeout:.0f} s\n{r}"
            time.sleep(0.1)

    def again(self) -> None:
        """Copy once more, to the next place."""
        place, data = self.copies % PLACES, noise(SIZE, self.seed + self.copies)
        at = place * SIZE // 512
        self.data.write_bytes(data)
        whole = ("bs=512", f"bpt={BLOCKS}", f"count={SIZE // 512}")
        self.until_good(
            "a write to the source",
            lambda: self.source.other.sg("sg_dd", f"if={self.data}", "of=/dev/sg0", f"seek={at}", *whole, expect=None),
        )

        def copy() -> Result:
            self.tried += SIZE
            urls = {"/dev/sg0": self.source.other.url(0), "/dev/sg1": self.destination.other.url(0)}
            argv = ("sg_xcopy", "--on_dst", "if=/dev/sg0", "of=/dev/sg1", f"skip={at}", f"seek={at}")
            return self.destination.other.sg(*argv, *whole, urls=urls, expect=None, timeout=90)

        self.copying = True
        self.until_good("a copy", copy)
        self.copying = False
        self.good += SIZE
        self.has[place] = data
        self.compare(self.destination, place)
        self.copies += 1

    def compare(self, array: Pair, place: int) -> None:
        """Compare a place of an array with what it has to hold."""

        def read() -> Result:
            self.copy.unlink(missing_ok=True)
            argv = ("sg_dd", "if=/dev/sg0", f"of={self.copy}", "bs=512", f"skip={place * SIZE // 512}")
            return array.other.sg(*argv, f"bpt={BLOCKS}", f"count={SIZE // 512}", expect=None)

        self.until_good("a read", read)
        same(self.copy.read_bytes(), self.has[place])

    def run(self) -> None:
        """Copy until the end of it."""
        try:
            while not self.over.is_set():
                self.again()
        except BaseException as e:
            self.fault = e

    def is_under_way(self) -> None:
        """Wait until a run of sg_xcopy has copied a part of it."""

        def began() -> bool:
            before = self.destination.owner.metrics().sum("peer_read_bytes_total", role="source")
            while self.copying and self.fault is None:
                if self.destination.owner.metrics().sum("peer_read_bytes_total", role="source") > before:
                    return True
            return self.fault is not None

        eventually("a copy is under way", began)

    def goes_on(self) -> None:
        """Wait until two more copies have ended well."""
        before = self.copies
        eventually("copies go on", lambda: self.fault is not None or self.copies >= before + 2, 180)


def counted_once(c: Copier) -> bool:
    """Copy while nobody is replaced, and compare what the arrays count; tell whether all copies ended well at once."""
    c.again()  # unit attentions of the take-over are reported by then
    good, tried = c.good, c.tried
    source, destination = Delta(c.source.owner), Delta(c.destination.owner)
    for _ in range(2):
        c.again()
    good, tried = c.good - good, c.tried - tried
    moved = destination.sum("offload_bytes_total", primitive="xcopy", path="copy", src_pool="(another array)")
    for what, n in (
        ("moved", moved),
        ("undercover", destination.sum("undercover_write_bytes_total", origin="xcopy")),
        ("admitted", destination.lower()),
        ("read at the source", source.sum("peer_read_bytes_total", role="destination")),
    ):
        assert good <= n <= tried, f"{what}: {n} bytes for copies of {good}, in {tried} bytes of commands"
    assert source.sum("undercover_write_bytes_total") == 0, "it counts at the source, too"
    assert source.lower() == source.wire("v", "write") == good
    return good == tried


@pytest.mark.parametrize("way", ["kill", "stop"])
@pytest.mark.parametrize("whose", ["source", "destination"])
def test_copies_over_take_overs(cluster: dict[str, str], tmp_path: Path, whose: str, way: str) -> None:  # noqa: F811
    """No sector is wrong, every copy can be repeated, and it is an undercover write of the destination, once."""
    seed = int(os.environ.get("ARRAYSIM_SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"\n{ROUNDS} take-overs, seed {seed}; repeat with ARRAYSIM_TAKE_OVERS={TAKE_OVERS} ARRAYSIM_SEED={seed}")
    took, at_once = [], 0
    source = Pair(cluster, f"source-{whose}-{way}", [])
    destination = Pair(cluster, f"destination-{whose}-{way}", source.links)
    arrays = {"source": source, "destination": destination}
    c = Copier(source, destination, tmp_path, seed)

    def linked() -> bool:
        return destination.owner.metrics().sum("peer_up", role="source") == 1

    try:
        for a in arrays.values():
            a.start()
        eventually("the link of the arrays", linked)
        for _ in range(ROUNDS):
            at_once += counted_once(c)
            thread = threading.Thread(target=c.run)
            thread.start()
            try:
                c.goes_on()
                c.is_under_way()
                took.append(arrays[whose].replace(way, c.goes_on))
                c.goes_on()
            finally:
                c.over.set()
                thread.join(300)
            assert not thread.is_alive(), "a copy does not end"
            if c.fault:
                raise c.fault
            c.over.clear()
            eventually("the next link of the arrays", linked)
        at_once += counted_once(c)
        m = destination.owner.metrics()
        assert m.sum("cache_admitted_bytes_total", origin="host") == 0, "data went over the host"
        undercover = m.sum("undercover_write_bytes_total", origin="xcopy")
        if whose == "source":  # who is killed may lose what it counted in its last second
            assert c.good <= undercover, f"{undercover} bytes are undercover, {c.good} were copied"
        assert undercover <= c.tried, f"{undercover} bytes are undercover, {c.tried} were asked for"
        for a in arrays.values():
            for _ in a.nodes:
                for place in c.has:
                    c.compare(a, place)
                a.owner, a.other = a.other, a.owner  # the other path
        for a in arrays.values():
            a.end()
    except AssertionError as e:
        logs = "\n".join(f"--- {d.name}\n{d.log_tail(20)}" for a in arrays.values() for d in a.nodes)
        raise AssertionError(f"{e}\nseed {seed}\n{logs}") from None
    finally:
        for a in arrays.values():
            a.close()
    assert c.tried > c.good, "no copy had to be repeated: nothing is shown"
    assert at_once > 0, "no copies ended well at once: nothing is shown of what they count"
    print(
        f"  {c.copies} copies of {SIZE // MiB} MiB, repeated {(c.tried - c.good) // SIZE} times; served again after "
        f"{max(took):.1f} s at the most; load {os.getloadavg()[0]:.0f}"
    )
